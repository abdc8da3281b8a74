"""Stage 4, answers: what users and batch owners got, and what it cost, from the tables of the other stages alone."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.colocation.settings import Prices
from harness.colocation.tokens import ALL
from harness.schema import MILLI, REQUEST_STATUSES

Value = float | int | bool | None
Array = np.ndarray
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
MOST_SERVICES = 8
OFFLINE = ("batch", "training")


def answers(requests: pa.Table, replicas: pa.Table, jobs: pa.Table, gpus: int, end_s: float, prices: Prices,
            warmup_s: float = 0.0) -> dict[str, Value]:
    """Metrics by name. ``gpus`` of the cluster; the replay of the cluster ended at ``end_s``; requests that arrive before ``warmup_s`` do
    not count.

    - ``requests``, ``requests_<status>``; ``ttft_s_*``, ``tbt_mean_s_*``, ``tbt_p99_s_*``, ``queue_s_*``: mean and quantiles over requests
      that got so far; ``slo_met_share`` and ``slo_violations``: of the requests that are not rejected, and did not finish within their
      objectives, dropped and open ones included; with prefix stores ``prefix_hit_share``. All again with the service as suffix, where
      there are 2 to 8.
    - ``replica_wanted_s``: replica seconds that the services trace asks for = ``replica_served_s`` (model loaded) + ``replica_late_s``
      (on its server, loading) + ``replica_missing_s`` (nowhere); ``replicas_<level>_share``: of the served seconds, at that level;
      ``replicas_evicted``.
    - ``goodput_gpu_s_offline``, ``lost_gpu_s_offline``, ``restart_gpu_s_offline``: of batch and training together.
    - ``online_gpu_h``: GPU hours held by replicas; ``offline_gpu_h``: by running offline jobs; ``cluster_gpu_h``: all there are.
    - ``cost_per_mtoken``: price of the replicas' GPU hours per million tokens made for requests that finished;
      ``cost_per_offline_gpu_h``: price of all other GPU hours, idle ones included, per GPU hour of offline goodput. Together they are what
      the cluster costs.
    """
    found = {**served(requests, warmup_s), **placed(replicas, jobs, gpus, end_s)}
    return found | dict(_costs(requests, found, prices))


def placed(replicas: pa.Table, jobs: pa.Table, gpus: int, end_s: float) -> dict[str, Value]:
    """The metrics of ``answers`` that are of replicas and offline work."""
    return dict([*_replicas(replicas, jobs, end_s), *_work(jobs, gpus, end_s)])


def served(requests: pa.Table, warmup_s: float = 0.0) -> dict[str, Value]:
    """The metrics of ``answers`` that are of requests."""
    counted = requests.filter(pc.greater_equal(requests["arrival_time"], warmup_s))
    found = dict(_served(counted, ""))
    names = pc.unique(pc.fill_null(counted["service"], ALL)).to_pylist()
    if 2 <= len(names) <= MOST_SERVICES:
        for name in sorted(names):
            found |= dict(_served(counted.filter(pc.equal(counted["service"], name)), f"_{name}"))
    return found


def _served(requests: pa.Table, suffix: str) -> Iterator[tuple[str, Value]]:
    status = requests["status"].to_numpy(zero_copy_only=False)
    yield f"requests{suffix}", len(status)
    if not suffix:
        for word in REQUEST_STATUSES:
            yield f"requests_{word}", int((status == word).sum())
    for name in ("ttft_s", "tbt_mean_s", "tbt_p99_s", "queue_s"):
        values = requests[name].to_numpy(zero_copy_only=False).astype(float)
        values = values[~np.isnan(values)]
        yield f"{name}_mean{suffix}", float(values.mean()) if len(values) else None
        for word, share in QUANTILES:
            yield f"{name}_{word}{suffix}", float(np.quantile(values, share)) if len(values) else None
    came = (status != "rejected") & (status != "not_submitted")
    met = pc.fill_null(requests["slo_met"], False).to_numpy(zero_copy_only=False)
    asked = came & pc.is_valid(requests["slo_met"]).to_numpy(zero_copy_only=False)
    yield f"slo_met_share{suffix}", float(met[asked].mean()) if asked.any() else None
    yield f"slo_violations{suffix}", int((asked & ~met).sum())
    if "cached_tokens" in requests.column_names:
        started = requests.filter(pc.is_valid(requests["start_time"]))
        whole = pc.sum(started["prompt_tokens"]).as_py()
        yield f"prefix_hit_share{suffix}", pc.sum(started["cached_tokens"]).as_py() / whole if whole else None


def _replicas(replicas: pa.Table, jobs: pa.Table, end_s: float) -> Iterator[tuple[str, Value]]:
    online = jobs.filter(pc.is_valid(jobs["service"]))
    submit, end = (online[name].to_numpy() for name in ("submit_time", "end_time"))
    wanted = float((np.minimum(end, end_s) - submit).clip(min=0.0).sum())
    cards = online["gpus"].to_numpy().astype(float) * online["gpu_milli"].to_numpy() / MILLI
    missing = float((online["shortfall_gpu_s"].to_numpy() / np.where(cards > 0, cards, 1.0)).sum())
    ready_s, loading_s = _stays(replicas, end_s)
    yield "replica_wanted_s", wanted
    yield "replica_served_s", float(ready_s.sum())
    yield "replica_missing_s", missing
    yield "replica_late_s", float(loading_s.sum())
    for level in ("numa", "nvlink", "socket", "server"):
        there = pc.fill_null(pc.equal(replicas["level"], level), False).to_numpy(zero_copy_only=False)
        yield f"replicas_{level}_share", float(ready_s[there].sum() / ready_s.sum()) if ready_s.sum() else None
    yield "replicas_evicted", int(pc.sum(pc.equal(replicas["ended"], "evicted")).as_py() or 0)


def _stays(replicas: pa.Table, end_s: float) -> tuple[Array, Array]:
    """Seconds of each stay with the model loaded, and before."""
    start, ready, stop = (replicas[f"{name}_time"].to_numpy(zero_copy_only=False).astype(float) for name in ("start", "ready", "stop"))
    stop = np.where(np.isnan(stop), end_s, stop)
    ready = np.where(np.isnan(ready), stop, ready)
    return stop - ready, ready - start


def _work(jobs: pa.Table, gpus: int, end_s: float) -> Iterator[tuple[str, Value]]:
    kind = jobs["kind"].to_numpy(zero_copy_only=False)
    offline = np.isin(kind, OFFLINE)
    sums = {name: jobs[f"{name}_gpu_s"].to_numpy() for name in ("goodput", "lost", "restart", "shortfall")}
    for name in ("goodput", "lost", "restart"):
        yield f"{name}_gpu_s_offline", float(sums[name][offline].sum())
    cards = jobs["instances"].to_numpy().astype(float) * jobs["gpus"].to_numpy() * jobs["gpu_milli"].to_numpy() / MILLI
    online = np.flatnonzero(~offline)
    until = np.minimum(jobs["end_time"].to_numpy(zero_copy_only=False).astype(float)[online], end_s)
    wanted = until - jobs["submit_time"].to_numpy()[online]
    online_s = float((cards[online] * wanted.clip(min=0.0)).sum() - sums["shortfall"][online].sum())
    yield "online_gpu_h", online_s / 3600.0
    yield "offline_gpu_h", float(sum(sums[name][offline].sum() for name in ("goodput", "lost", "restart"))) / 3600.0
    yield "cluster_gpu_h", gpus * end_s / 3600.0


def _costs(requests: pa.Table, found: Mapping[str, Any], prices: Prices) -> Iterator[tuple[str, Value]]:
    goodput_h = found["goodput_gpu_s_offline"] / 3600.0
    done = requests.filter(pc.equal(requests["status"], "finished"))
    millions = float((pc.sum(done["prompt_tokens"]).as_py() or 0) + (pc.sum(done["output_tokens"]).as_py() or 0)) / 1e6
    rest_h = found["cluster_gpu_h"] - found["online_gpu_h"]
    yield "cost_per_mtoken", prices.gpu_h * found["online_gpu_h"] / millions if millions else None
    yield "cost_per_offline_gpu_h", prices.gpu_h * rest_h / goodput_h if goodput_h else None
