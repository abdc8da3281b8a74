"""Stage 1, demand to replicas: what the HorizontalPodAutoscaler of Kubernetes would want, as a pure function of a request trace.

Load is measured in replicas: the seconds of a replica that the requests of the last ``window_s`` take, per second, with the token
throughput of the pool's step-time model at full prefill chunks and at a decode batch of ``batch``. The metric is what arrives, not what
is served, so that the wanted replicas do not depend on any policy.

Semantics (autoscaling/v2, "Horizontal Pod Autoscaling" of the Kubernetes documentation): every ``sync_s``,
desired = ceil(current x utilization / target), unchanged within the tolerance; then the stabilization windows; then the most that may be
added in one sync; then the bounds. Scaling in has no limit of its own.
"""

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness import schema
from harness.colocation.settings import Autoscaler
from harness.serving.pool import Pool
from harness.serving.speed import CONTEXT, FEATURES, HAS_DECODE, HAS_PREFILL, LARGEST, MEMBERS, ONE, PAIRS, PROMPTS, TOKENS
from harness.tables import checked

Array = np.ndarray
ROUNDING = 1e-9
"""Less than this above a whole number of replicas is rounding, as in a load of exactly so many."""


def demand(requests: pa.Table, pool: Pool, scaler: Autoscaler, start_s: float, end_s: float) -> pa.Table:
    """schema.DEMAND: for each service of ``requests`` and each sync in [start_s, end_s), load and wanted replicas."""
    seconds = request_seconds(requests, pool, scaler.batch)
    arrival, service = requests["arrival_time"].to_numpy(), pc.fill_null(requests["service"], "")
    parts = []
    for name in pc.unique(service).to_pylist():
        mine = pc.equal(service, name).to_numpy(zero_copy_only=False)
        time, load = load_of(arrival[mine], seconds[mine], scaler, start_s, end_s)
        recommended, wanted = scaled(load, scaler)
        columns = {"service": [name or "all"] * len(time), "time": time, "load": load, "recommended": recommended, "wanted": wanted}
        parts.append(pa.table(columns).cast(schema.arrow_schema(schema.DEMAND)))
    return pa.concat_tables(parts).combine_chunks()


def request_seconds(requests: pa.Table, pool: Pool, batch: int) -> Array:
    """Seconds of a replica on the fastest links that each request takes (Q,): its prompt in full chunks, and its output in a decode batch
    of ``batch`` with contexts of the trace's mean length."""
    prompt, output = (requests[f"{name}_tokens"].to_numpy().astype(float) for name in ("prompt", "output"))
    context = float(np.mean(prompt + 0.5 * output)) if len(prompt) else 0.0
    coef, limit, row, _ = pool.tables()
    first = int(row[0, 1])

    def seconds(**features: float) -> float:
        known = {"one": ONE, "prefills": HAS_PREFILL, "decodes": HAS_DECODE, "prompts": PROMPTS, "tokens": TOKENS, "pairs": PAIRS,
                 "members": MEMBERS, "context": CONTEXT, "largest": LARGEST}
        x = np.zeros(FEATURES)
        for name, value in features.items():
            x[known[name]] = value
        larger, other, rest = coef[first, int(features.get("members", 0) >= limit[first])] @ x
        return max(larger, other) + rest

    chunk, mean = float(pool.chunk), float(np.mean(prompt)) if len(prompt) else 0.0
    prefill = seconds(one=1, prefills=1, prompts=1, tokens=chunk, pairs=0.5 * mean * chunk, largest=mean) / chunk
    decode = seconds(one=1, decodes=1, members=batch, context=batch * context, largest=context) / batch
    return prefill * prompt + decode * output


def load_of(arrival: Array, seconds: Array, scaler: Autoscaler, start_s: float, end_s: float) -> tuple[Array, Array]:
    """Times of the syncs, and the mean load over the window before each, which begins at ``start_s`` at the earliest (replicas)."""
    time = np.arange(start_s, end_s, scaler.sync_s)
    sums, order = np.concatenate([[0.0], np.cumsum(seconds[np.argsort(arrival, kind="stable")])]), np.sort(arrival)
    since = np.maximum(time - scaler.window_s, start_s)
    first = np.where(since > start_s, np.searchsorted(order, since, "right"), np.searchsorted(order, start_s, "left"))
    found = sums[np.searchsorted(order, time, "right")] - sums[first]
    return time, np.where(time > start_s, found, 0.0) / np.maximum(time - since, scaler.sync_s)


def scaled(load: Array, scaler: Autoscaler) -> tuple[Array, Array]:
    """The recommendation before, and the wanted replicas after, everything that holds it back: both i8, one for each sync."""
    recommended, wanted = np.zeros(len(load), np.int64), np.zeros(len(load), np.int64)
    low, high = scaler.min_replicas, scaler.max_replicas
    up, down = (int(window // scaler.sync_s) for window in (scaler.up_window_s, scaler.down_window_s))
    current, changed = low, -np.inf
    for k, value in enumerate(load):
        ratio = value / max(current, 1) / scaler.target
        within = current > 0 and abs(ratio - 1.0) <= scaler.tolerance
        recommended[k] = min(max(current if within else ceil(value / scaler.target - ROUNDING), low), high)
        target = current
        target = max(target, int(recommended[max(0, k - up): k + 1].min()))
        target = min(target, int(recommended[max(0, k - down): k + 1].max()))
        most = max(current + scaler.up_pods, ceil(current * (1.0 + scaler.up_percent / 100.0)))
        target = min(max(min(target, most), low), high)
        if target != current and (k * scaler.sync_s - changed) >= scaler.cooldown_s:
            current, changed = target, k * scaler.sync_s
        wanted[k] = current
    return recommended, wanted


def services(found: pa.Table, scaler: Autoscaler, instance: Mapping[str, Any], gpus: int) -> pa.Table:
    """schema.SERVICES of a demand table: the replicas that are there once the delays have passed, a row for each change.

    A scale-out has effect ``out_delay_s`` later, unless it was taken back by then; a scale-in ``drain_s`` later, likewise. ``instance``
    are columns of the replicas, each of ``gpus`` GPUs.
    """
    parts = []
    for name in pc.unique(found["service"]).to_pylist():
        mine = found.filter(pc.equal(found["service"], name))
        time, wanted = mine["time"].to_numpy(), mine["wanted"].to_numpy().astype(np.int64)
        at, replicas = delayed(time, wanted, scaler.out_delay_s, scaler.drain_s)
        rows = len(at)
        columns: dict[str, Any] = {"service": [name] * rows, "time": at, "replicas": replicas}
        columns |= {key: [value] * rows for key, value in {"gpus": gpus, "kind": "online", **instance}.items()}
        parts.append(pa.table(columns))
    return checked(pa.concat_tables(parts, promote_options="permissive"), schema.SERVICES, "colocation.replica")


def delayed(time: Array, wanted: Array, out_s: float, in_s: float) -> tuple[Array, Array]:
    """When the number of replicas changes, and to what: the least that was wanted over the last ``out_s``, of which the most over the last
    ``in_s``; before the first time its number was wanted for ever."""
    least = _extreme(*_steps(time, wanted), out_s, np.minimum)
    most = _extreme(*least, in_s, np.maximum)
    return most


def _steps(time: Array, value: Array) -> tuple[Array, Array]:
    """A step function without the times at which nothing changes."""
    kept = np.append(True, np.diff(value) != 0)[: len(value)]
    return time[kept], value[kept]


def _extreme(time: Array, value: Array, window_s: float, reduce: np.ufunc) -> tuple[Array, Array]:
    """The least or most of a step function over the last ``window_s``, as a step function."""
    at = np.unique(np.concatenate([time, time[1:] + window_s]))
    last = np.searchsorted(time, at, "right")
    # At ``at`` a value counts that held at any moment of (at - window_s, at].
    first = np.maximum(np.searchsorted(time, at - window_s, "right") - 1, 0)
    found = np.array([reduce.reduce(value[a:b]) for a, b in zip(first, last, strict=True)], value.dtype)
    return _steps(at, found)
