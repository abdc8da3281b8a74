"""Utilization and summary of a serving cell: exact, from every step of the log."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from harness import schema
from harness.metrics.requests import slo_met, status_words
from harness.metrics.spans import Integrals
from harness.metrics.utilization import interval_edges
from harness.serving.log import OPERATION_SPAN, SPANS, STEP, spans_of
from harness.serving.outcome import Outcome
from harness.serving.state import BLOCKED_S, FINISHED, INTERRUPTS, REJECTED, STORE_BLOCKS, SWITCHES, UNSUBMITTED, Array

STATISTICS = ("mean", "p50", "p95", "p99")
LATENCIES = ("queue_s", "ttft_s", "decode_wait_s", "tbt_mean_s", "tbt_p99_s", "e2e_s")

PIECE = 1_000_000
"""Requests whose latencies are worked out at once."""

MOST_TENANTS = 8
"""With more tenants, or one, latencies are not given by tenant."""

OUTPUT_WEIGHT = 2.0
"""Service of a tenant: prompt tokens + so many times the output tokens, as fair-serving work counts it."""

Value = float | int | bool | None


def serving_utilization(outcome: Outcome, interval_s: float | None = None, warmup_s: float = 0.0) -> pa.Table:
    """schema.SERVING_UTILIZATION over [warmup_s, end of the replay) in steps of ``interval_s``, by default a 200th of that."""
    return utilization_of(outcome, [spans_of(outcome.log)], [outcome.state.shown.requests], interval_s, warmup_s)


def utilization_of(outcome: Outcome, spans: Iterable[Any], requests: Iterable[Any], interval_s: float | None, warmup_s: float) -> pa.Table:
    """The table from spans (log.SPAN) and requests (arrival, start, finish, status) that may come in pieces."""
    edges, view = interval_edges(warmup_s, outcome.end, interval_s), outcome.state.shown
    steps, waits, stays = Integrals(edges, 7), Integrals(edges, 1), Integrals(edges, 1)
    for part in spans:
        duration = part.end - part.begin
        step = part.kind == STEP
        prompts = (part.prompts > 0) | (part.kind == OPERATION_SPAN)
        rates = np.divide(part.tokens, duration, out=np.zeros(len(duration)), where=duration > 0)
        made = np.divide(part.batch, duration, out=np.zeros(len(duration)), where=duration > 0)
        steps.add(part.begin, part.end, [None, prompts, step & (part.batch > 0), part.batch, part.used, rates, made])
    for part in requests:
        came = _came(part.status)
        for sums, until in ((waits, part.start), (stays, part.finish)):
            sums.add(part.arrival[came], np.where(np.isnan(until), outcome.end, until)[came], [None])
    busy, prefill, decode, batch, used, tokens, output = steps.result()
    (queue,), (present,) = waits.result(), stays.result()
    width = np.diff(edges)
    time = width * len(view.replicas)
    columns = {
        "t_start": edges[:-1], "t_end": edges[1:], "busy": busy / time, "prefill": prefill / time, "decode": decode / time,
        "batch": batch / time, "kv_used": used / (width * view.replicas.blocks.sum()), "prefill_tokens": tokens / width,
        "output_tokens": output / width, "queue_len": queue / width, "present": present / width,
    }
    return pa.table(list(map(pa.array, columns.values())), schema=schema.arrow_schema(schema.SERVING_UTILIZATION))


def serving_summary(outcome: Outcome, utilization: pa.Table, warmup_s: float = 0.0) -> dict[str, Value]:
    """Every metric of a serving cell by name; requests that arrive before ``warmup_s`` do not count.

    - ``requests_<status>``; ``throughput_rps``, ``output_tokens_s``: finished requests and tokens made over [warmup_s, end);
      ``goodput_rps``: the same of requests that met their objectives, ``slo_met_share`` their share of the requests with objectives.
      ``busy_s_per_token``: sum of all step times over the tokens made, which is the price of a token, in seconds of a replica, at which
      profit (price x tokens - sum of step costs) is zero.
    - ``queue_s``, ``ttft_s``, ``decode_wait_s`` (first token to decode batch), ``tbt_mean_s``, ``tbt_p99_s``, ``e2e_s``: each _mean,
      _p50, _p95, _p99 over requests, ``queue_s`` with the
      waiting so far of those that never started; all again with the tenant as suffix where there are 2 to 8 tenants.
    - ``makespan_s``: last finish; ``drain_ratio``: end over last arrival, about 1 for a stable system; ``unstable``: it is over 1.25.
    - by tenant, where there are 2 to 8: ``requests``, ``drain_rps`` (finished over its last finish), ``starved_share`` (not started when
      the last request of the others finishes), ``slo_met_share``.
    - ``batch_mean``, ``busy_mean``, ``prefill_share``, ``decode_share``: exact time-weighted means over replicas; ``kv_used_mean`` too, of
      the whole replay with whatever holds KV blocks while no step runs.
    - ``fairness_jain``: of the tenants' service (prompt tokens + 2 x output tokens) per second present; ``service_gap``: most minus least
      service of a tenant, over the mean. ``preemptions``, ``switches``: sums. ``blocking_s_mean``: from an interruption of a running
      operation to its pause, or its end if that comes first; None where none was interrupted.
    - ``prefix_hit_share``, with prefix stores: prompt tokens that they spared over all prompt tokens, of the requests that started.
    """
    view = outcome.state.shown
    requests = view.requests
    counted = _came(requests.status) & (requests.arrival >= warmup_s)
    word = status_words(outcome)
    done = counted & (requests.status == FINISHED)
    span = outcome.end - warmup_s
    met, has_slo = slo_met(outcome)
    last_arrival = float(requests.arrival[counted].max()) if counted.any() else 0.0
    drain = _share(outcome.end, last_arrival)
    width = utilization["t_end"].to_numpy() - utilization["t_start"].to_numpy()
    whole = float(width.sum())
    tokens = float(np.sum(requests.decoded, where=counted))
    means = {name: _share(float(width @ utilization[name].to_numpy()), whole) for name in ("batch", "busy", "prefill", "decode")}
    held = view.replicas.used_s + view.replicas.used * np.maximum(0.0, outcome.end - view.replicas.used_at)
    jain, gap = _fairness(outcome, counted)
    after = requests.arrival >= warmup_s
    return {
        "requests": int(after.sum()),
        **{f"requests_{name}": int((after & (word == s)).sum()) for s, name in enumerate(schema.REQUEST_STATUSES)},
        "events": outcome.events, "steps": int(outcome.log.size[SPANS]),
        "throughput_rps": _share(int(done.sum()), span), "output_tokens_s": _share(tokens, span),
        "busy_s_per_token": _share((means["busy"] or 0.0) * whole * len(view.replicas), tokens),
        "goodput_rps": _share(int((met & has_slo & counted).sum()), span) if has_slo.any() else None,
        "slo_met_share": _share(int((met & counted & has_slo).sum()), int((counted & has_slo).sum())),
        "makespan_s": float(np.nanmax(requests.finish)) if done.any() else None,
        "drain_ratio": drain, "unstable": drain is not None and drain > 1.25,
        "preemptions": int(np.sum(requests.preemptions, where=counted)), "switches": int(view.count[SWITCHES]),
        "blocking_s_mean": _share(float(view.clock[BLOCKED_S]), int(view.count[INTERRUPTS])),
        "batch_mean": means["batch"], "busy_mean": means["busy"], "prefill_share": means["prefill"], "decode_share": means["decode"],
        "kv_used_mean": _share(float(held.sum()), float(view.replicas.blocks.sum()) * outcome.end),
        "fairness_jain": jain, "service_gap": gap,
        **_reuse(outcome, counted),
        **dict(_drains(outcome, counted)),
        **dict(_latencies(outcome, counted)),
    }


def _came(status: Array) -> Array:
    return (status != REJECTED) & (status != UNSUBMITTED)


def _reuse(outcome: Outcome, counted: Array) -> dict[str, Value]:
    """What prefix stores spared, where there are any."""
    requests = outcome.state.shown.requests
    if not outcome.state.shown.count[STORE_BLOCKS]:
        return {}
    started = counted & ~np.isnan(requests.start)
    return {"prefix_hit_share": _share(float(requests.loaded[started].sum()), float(requests.prompt[started].sum()))}


def _tenants(outcome: Outcome) -> list[tuple[str, Array]]:
    """Name and mask (Q,) of each tenant, where there are 2 to MOST_TENANTS with a name."""
    named = [(name, outcome.state.shown.requests.tenant == t) for t, name in enumerate(outcome.tenants) if name]
    return named if 2 <= len(named) <= MOST_TENANTS else []


def _drains(outcome: Outcome, counted: Array) -> Iterator[tuple[str, Value]]:
    """What an overloaded system is told by, for each tenant."""
    requests = outcome.state.shown.requests
    for name, chosen in _tenants(outcome):
        mine, others = counted & chosen, counted & ~chosen
        done = mine & (requests.status == FINISHED)
        last = float(requests.finish[done].max()) if done.any() else 0.0
        rest = requests.finish[others & (requests.status == FINISHED)]
        late = mine & ~(requests.start <= (rest.max() if len(rest) else np.inf))
        yield f"requests_{name}", int(mine.sum())
        yield f"drain_rps_{name}", _share(int(done.sum()), last)
        yield f"starved_share_{name}", _share(int(late.sum()), int(mine.sum()))
        yield f"slo_met_share_{name}", _share(int((mine & slo_met(outcome)[0]).sum()), int(mine.sum()))


def _latencies(outcome: Outcome, counted: Array) -> Iterator[tuple[str, Value]]:
    requests = outcome.state.shown.requests
    values = {  # one at a time: a replay may have more requests than memory has room for
        "queue_s": lambda s: np.where(np.isnan(requests.start[s]), outcome.end, requests.start[s]) - requests.arrival[s],
        "ttft_s": lambda s: requests.first_token[s] - requests.arrival[s],
        "decode_wait_s": lambda s: requests.decode_start[s] - requests.first_token[s],
        "tbt_mean_s": lambda s: outcome.tbt_mean[s], "tbt_p99_s": lambda s: outcome.tbt_p99[s],
        "e2e_s": lambda s: requests.finish[s] - requests.arrival[s],
    }
    groups = [("", counted), *((f"_{name}", counted & chosen) for name, chosen in _tenants(outcome))]
    for name in LATENCIES:
        of_all = np.empty(len(requests))
        for low in range(0, len(of_all), PIECE):
            piece = slice(low, low + PIECE)
            of_all[piece] = values[name](piece)
        for suffix, chosen in groups:
            found = of_all[chosen & ~np.isnan(of_all)]
            stats = ([float(found.mean()), *map(float, np.quantile(found, (0.5, 0.95, 0.99), overwrite_input=True))] if len(found)
                     else [None] * len(STATISTICS))
            yield from zip((f"{name}_{statistic}{suffix}" for statistic in STATISTICS), stats, strict=True)


def _fairness(outcome: Outcome, counted: Array) -> tuple[float | None, float | None]:
    """Jain's index of the tenants' service rates, and the gap between most and least service over the mean; None with one tenant."""
    requests = outcome.state.shown.requests
    tenants = len(outcome.tenants) + 1
    present = np.bincount(requests.tenant[counted], minlength=tenants) > 0
    if present.sum() < 2:
        return None, None
    started = ~np.isnan(requests.first_token) & counted
    service = np.bincount(requests.tenant[started], requests.prompt[started] + OUTPUT_WEIGHT * requests.decoded[started], tenants)
    until = np.where(np.isnan(requests.finish), outcome.end, requests.finish)
    first, last = np.full(tenants, np.inf), np.zeros(tenants)
    np.minimum.at(first, requests.tenant[counted], requests.arrival[counted])
    np.maximum.at(last, requests.tenant[counted], until[counted])
    rate = service[present] / np.maximum(last[present] - first[present], 1e-9)
    jain = _share(float(rate.sum() ** 2), float(len(rate) * (rate**2).sum()))
    return jain, _share(float(np.ptp(service[present])), float(service[present].mean()))


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
