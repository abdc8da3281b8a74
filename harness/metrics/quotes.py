"""Wait quotes: what each job could have been told at its submission, beside what it waited, and Little's law per queue.

A RECONSTRUCTION from an abstract, with formulas of our own (specs/cluster-policies.md): a queue is M/G/k with k_eff = min over resources
of floor(quota / mean demand) servers; a = lambda E[S]; mean wait = ErlangC(k_eff, a) E[S] (1 + cv^2) / 2 / (k_eff - a), and of those who
wait at all it is exponential, which gives the 95th percentile. Quotes use only jobs of the queue that were submitted before. A job is
unfeasible when a >= k_eff or it asks for more than the quota: its wait has no bound.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import gammaincc, gammaln

from harness import schema
from harness.cluster.admission import quotas
from harness.cluster.outcome import Outcome
from harness.cluster.state import REJECTED, UNSUBMITTED, Array
from harness.metrics.utilization import queue_spans, running_spans
from harness.schema import MILLI
from harness.topology import UNBOUNDED, Cluster

HISTORY = 30
"""Jobs of a queue that must have been submitted before one is quoted."""

P95 = 0.05

QUOTABLE, UNFEASIBLE, UNKNOWN = schema.QUOTE_WORDS


class Quote(NamedTuple):
    """Of each job: effective servers, offered servers, mean wait and its 95th percentile (s); nan where a >= k_eff."""

    k_eff: Array
    offered: Array
    mean: Array
    p95: Array


def erlang_c(k: Array, a: Array) -> Array:
    """Probability of waiting in M/M/k with ``a`` < k offered servers, arrays of one shape; 1 where a >= k."""
    k, a = np.broadcast_arrays(np.asarray(k, float), np.asarray(a, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        blocking = np.exp(k * np.log(a) - a - gammaln(k + 1)) / gammaincc(k + 1, a)
        waits = blocking / (1 - a / k * (1 - blocking))
    return np.where(a <= 0, 0.0, np.where(a >= k, 1.0, waits))


def quote(rate: Array, mean_s: Array, cv2: Array, k_eff: Array) -> Quote:
    """M/G/k by Erlang-C and the (1 + cv^2)/2 of Pollaczek and Khinchine: arrivals per s, mean service time (s), its squared coefficient of
    variation, and servers."""
    offered = rate * mean_s
    feasible = (offered < k_eff) & (k_eff >= 1)
    waits = erlang_c(np.maximum(k_eff, 1), offered)
    scale = np.where(feasible, mean_s * (1 + cv2) / 2 / np.where(feasible, k_eff - offered, 1.0), np.nan)
    with np.errstate(divide="ignore"):
        p95 = scale * np.maximum(np.log(waits / P95), 0.0)
    return Quote(k_eff, offered, waits * scale, np.where(waits > 0, p95, np.where(feasible, 0.0, np.nan)))


def with_quotes(jobs: pa.Table, outcome: Outcome, cluster: Cluster, policy: dict[str, Any]) -> tuple[pa.Table, pa.Table]:
    """``jobs`` with the columns of schema.QUOTES, and the table of queues (schema.QUEUES).

    With quotas (policy kueue, whose parameters ``policy`` has) a queue is a tenant; under any other policy all jobs are one queue, and the
    cluster is its quota.
    """
    queue, shares, names = _queues(outcome, cluster, policy)
    state, quoted = outcome.state.jobs, _quotes(outcome, cluster, queue, shares)
    words = np.where(np.isnan(quoted.k_eff), UNKNOWN, np.where(np.isnan(quoted.mean), UNFEASIBLE, QUOTABLE))
    job_of = np.empty(len(state), np.int64)
    job_of[outcome.order] = np.arange(len(state))
    columns = {"quote": pa.array(words[job_of].astype(object), pa.string())}
    columns |= {name: pa.array(values[job_of], pa.float64(), from_pandas=True) for name, values in (
        ("quote_s", quoted.mean), ("quote_p95_s", quoted.p95))}
    for column in schema.QUOTES:
        jobs = jobs.append_column(schema.arrow_schema((column,))[0], columns[column.name])
    return jobs, _queues_table(outcome, jobs, job_of, queue, shares * cluster.gpus, names, quoted)


def _queues(outcome: Outcome, cluster: Cluster, policy: dict[str, Any]) -> tuple[Array, Array, list[str]]:
    """Queue of each job (J,), the share of the cluster that is each queue's quota, and their names."""
    jobs, classes = outcome.state.jobs, outcome.state.classes
    if policy["name"] != "kueue":
        return np.zeros(len(jobs), np.int64), np.ones(1), ["all"]
    gpu_s = (classes.instances * classes.gpus * classes.milli)[jobs.klass] / MILLI * jobs.duration
    shares = quotas(jobs.tenant, gpu_s, float(MILLI * cluster.gpus))[:, int(policy["quota_by"] == "demand")]
    tenants = outcome.trace["tenant"].to_pylist()
    names = {int(q): str(tenants[int(outcome.order[i])]) for i, q in reversed(list(enumerate(jobs.tenant)))}
    granted = np.floor(policy["nominal_share"] * shares) / max(MILLI * cluster.gpus, 1)
    return jobs.tenant, granted, [names[q] for q in range(len(shares))]


def _quotes(outcome: Outcome, cluster: Cluster, queue: Array, shares: Array) -> Quote:
    """The quote of each job, from those of its queue that came before it and could run within the quota; nan without enough of them.

    A job that asks for more than the quota has no server at all (k_eff 0).
    """
    jobs, classes = outcome.state.jobs, outcome.state.classes
    kinds: Any = classes[jobs.klass]
    cores = [sum(shape.numa_cores) for shape in cluster.shapes]
    bounded = all(n < UNBOUNDED for n in cores)
    demands = {"gpu": (kinds.instances * kinds.gpus * kinds.milli, MILLI * cluster.gpus)}
    if bounded:
        demands["cpu"] = (kinds.instances * kinds.cpu, MILLI * sum(cores[k] for k in cluster.shape_of))
    found = [np.full(len(jobs), np.nan) for _ in range(4)]
    for q, share in enumerate(shares):
        mine = np.flatnonzero((queue == q) & (jobs.status != REJECTED))
        fits = np.logical_and.reduce([demand[mine] <= share * total for demand, total in demands.values()])
        found[0][mine[~fits]] = 0.0
        mine = mine[fits]
        if len(mine) <= HISTORY:
            continue
        n = np.arange(len(mine), dtype=float)
        before = n >= HISTORY
        submit, service = jobs.submit[mine], jobs.estimate[mine]
        past = np.where(before, n, np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = past / (submit - submit[0])
            mean_s = _before(service) / past
            cv2 = np.maximum(_before(service**2) / past / mean_s**2 - 1, 0.0)
            k_eff = np.full(len(mine), np.inf)
            for demand, total in demands.values():
                k_eff = np.minimum(k_eff, np.floor(share * total / (_before(demand[mine].astype(float)) / past)))
        made = quote(rate, mean_s, cv2, np.where(np.isfinite(k_eff), k_eff, np.nan))
        for values, column in zip(found, made, strict=True):
            values[mine] = column
    return Quote(*found)


def _before(values: Array) -> Array:
    """Sum of all earlier values."""
    return np.cumsum(values) - values


def _queues_table(outcome: Outcome, jobs: pa.Table, job_of: Array, queue: Array, quota: Array, names: list[str], quoted: Quote) -> pa.Table:
    """schema.QUEUES: quoted against observed, and L against lambda W, over the whole replay."""
    state, end = outcome.state.jobs, outcome.end
    spans = queue_spans(outcome, running_spans(outcome))
    came = (state.status != REJECTED) & (state.status != UNSUBMITTED)
    wait, queued = (np.empty(len(job_of)) for _ in range(2))
    wait[job_of], queued[job_of] = (jobs[name].to_numpy() for name in ("wait_s", "queue_s"))
    rows = []
    for q, name in enumerate(names):
        mine = (queue == q) & came
        told = mine & ~np.isnan(quoted.mean)
        known = mine & ~np.isnan(quoted.k_eff)
        of_queue = queue[spans.job] == q
        rate, mean_wait = mine.sum() / end if end else 0.0, float(queued[mine].mean()) if mine.any() else 0.0
        waiting = _mean_length(spans.since[of_queue], spans.until[of_queue], end)
        rows.append({
            "tenant": name, "jobs": int(mine.sum()), "quota_gpus": float(quota[q]),
            "k_eff": _mean(quoted.k_eff[known]), "offered_servers": _mean(quoted.offered[known]), "quoted": int(told.sum()),
            "unfeasible": int((known & ~told).sum()), "quote_s_mean": _mean(quoted.mean[told]), "wait_s_mean": _mean(wait[told]),
            "quote_p95_s_mean": _mean(quoted.p95[told]), "wait_s_p95": float(np.quantile(wait[told], 0.95)) if told.any() else None,
            "covered_p95": _mean((wait[told] <= quoted.p95[told]).astype(float)),
            "arrival_rate": float(rate), "queue_s_mean": mean_wait, "queue_len_mean": waiting,
            "little_gap": abs(waiting - rate * mean_wait) / waiting if waiting else 0.0,
        })
    return pa.Table.from_pylist(rows, schema=schema.arrow_schema(schema.QUEUES))


def _mean_length(since: Array, until: Array, end: float) -> float:
    """Time mean of the number of open spans over [0, end], by walking through their ends in order of time."""
    times = np.concatenate([since, until])
    steps = np.concatenate([np.ones(len(since)), -np.ones(len(until))])
    order = np.argsort(times, kind="stable")
    length = np.cumsum(steps[order])
    return float((length[:-1] * np.diff(times[order])).sum() / end) if end and len(times) else 0.0


def _mean(values: Array) -> float | None:
    return float(values.mean()) if len(values) else None


def quote_metrics(queues: pa.Table) -> dict[str, float | None]:
    """Of all queues together: share of the quoted jobs whose wait was within the quoted p95, quoted and observed mean wait (s), share
    of the jobs with enough history that were called unfeasible, share of queues whose quoted mean was at least what was observed, and
    the largest relative distance of L to lambda W."""
    told = queues["quoted"].to_numpy().astype(float)
    unfeasible = queues["unfeasible"].to_numpy().astype(float)

    def weighted(name: str) -> float | None:
        values = queues[name].to_numpy().astype(float)
        return float((values[told > 0] * told[told > 0]).sum() / told.sum()) if told.sum() else None

    safe = queues["quote_s_mean"].to_numpy().astype(float) >= queues["wait_s_mean"].to_numpy()
    return {
        "quote_covered_p95": weighted("covered_p95"),
        "quote_s_mean": weighted("quote_s_mean"), "quote_wait_s_mean": weighted("wait_s_mean"),
        "quote_unfeasible_share": float(unfeasible.sum() / (unfeasible + told).sum()) if (unfeasible + told).sum() else None,
        "quote_safe_share": float(safe[told > 0].mean()) if told.any() else None,
        "little_gap_max": float(queues["little_gap"].to_numpy().max()) if queues.num_rows else None,
    }
