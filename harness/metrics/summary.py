"""The summary of a cell: one value per metric, null where there is nothing to measure."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness import schema
from harness.cluster.log import (
    CAN_HIT,
    CLAIM,
    DECISION,
    ELSEWHERE,
    FREED,
    GRACE,
    HELD_GPU,
    HOLDER,
    LEVEL_ASSIGNED,
    LEVEL_VICTIMS,
    LOST,
    PREEMPTOR,
    RAN,
    SINCE,
    TRIED,
    UNTIL,
    VICTIM_FROM,
    VICTIMS,
    WALL,
    WHAT,
)
from harness.cluster.outcome import Outcome
from harness.cluster.state import SERVER, UNPINNED, Array
from harness.metrics.jobs import gpus_of
from harness.schema import MILLI
from harness.topology import UNBOUNDED, Cluster

Value = float | int | bool | None

LATENCIES = ("wait_s", "jct_s", "slowdown", "bounded_slowdown")
SUMS = ("lost_gpu_s", "restart_gpu_s", "goodput_gpu_s", "shortfall_gpu_s")
STATISTICS = ("mean", "p50", "p95", "p99")


def summary(outcome: Outcome, cluster: Cluster, jobs: pa.Table, utilization: pa.Table, warmup_s: float = 0.0) -> dict[str, Value]:
    """Every metric of the cell by name, from its jobs and utilization tables and, for preemptions, the log.

    Counts, sums and statistics are over jobs with submit_time >= ``warmup_s``; decisions, and what their victims are charged, over
    those whose preemptor is such a job; grace and claims over those whose holder is. ``events`` and ``capped`` count the whole
    replay. ``utilization`` must begin at ``warmup_s``.

    - ``jobs_<status>``: jobs by status; ``offered_load``: GPU seconds asked for by the jobs submitted and not rejected, up to their
      end_time, per GPU second of the cluster between the first and the last submission (null where these coincide);
      ``unstable``: it exceeds 1.
    - ``hit_rate_*``: of the decisions of which a row has a level where an empty server could hit, the share in which all such rows hit.
    - ``ran_share``: decisions that ran / decisions. ``useful_share``: GPUs of the preemptors that ran / GPUs freed anywhere for them.
      ``preempted``: victims, once per decision; ``victims_per_placement``: victims / decisions that ran;
      ``lost_gpu_s_per_gpu_placed``: GPU seconds the decisions' victims lost / GPUs of the preemptors that ran.
    - ``gpu_alloc_mean``, ``gpu_busy_mean``, ``cpu_alloc_mean``: shares of the cluster's GPUs or cores, 0 to 1, over
      [warmup_s, end); null where there are none, or no limit. ``fragmentation_mean``: null unless the table has that column.
    - ``makespan_s``: the last finish_time. ``wait_s_*`` cover the jobs not rejected, expired or yet to be submitted, those that never
      started with their waiting so far, which ``wait_s_censored`` counts; ``jct_s_*`` and the slowdowns the finished jobs; all again
      with the kind of the job as suffix. Quantiles are linear.
    """
    counted = _numbers(jobs, "submit_time") >= warmup_s
    if not counted.all():
        jobs = jobs.filter(pa.array(counted))
    status = _codes(jobs, "status", schema.STATUSES)
    first = outcome.state.jobs.submit >= warmup_s
    return {
        "jobs": jobs.num_rows,
        **{f"jobs_{name}": int((status == s).sum()) for s, name in enumerate(schema.STATUSES)},
        "events": outcome.events,
        **_decisions(outcome, first),
        **{name: _sum(jobs, name) for name in SUMS},
        **_held(outcome, first),
        **_usage(cluster, utilization),
        "makespan_s": pc.max(jobs["finish_time"]).as_py(),
        **_load(cluster, jobs, status),
        "capped": outcome.capped,
        **dict(_latencies(jobs, status)),
    }


def _decisions(outcome: Outcome, counted: Array) -> dict[str, Value]:
    """Metrics of the decisions whose preemptor is among ``counted`` (J,)."""
    log = outcome.log
    rows, numbers = log.rows[:log.size[0]], log.numbers[:log.size[0]]
    kept = counted[rows[:, PREEMPTOR]]
    rows, numbers = rows[kept], numbers[kept]
    head = np.flatnonzero(np.append(True, rows[1:, DECISION] != rows[:-1, DECISION])[:len(rows)])
    n, ran, preemptor = len(head), rows[head, RAN] == 1, rows[head, PREEMPTOR]
    placed = gpus_of(outcome.state)[preemptor][ran].sum()
    freed = _by_decision(np.add, rows[:, FREED] + rows[:, ELSEWHERE], head)[ran].sum() / MILLI
    victims = _victims(outcome, rows)
    return {
        "decisions": n, "preempted": victims,
        "hit_rate_victims": _hit_rate(rows, LEVEL_VICTIMS, head), "hit_rate_assigned": _hit_rate(rows, LEVEL_ASSIGNED, head),
        "ran_share": _share(ran.sum(), n), "useful_share": _share(placed, freed), "victims_per_placement": _share(victims, ran.sum()),
        "subsets_tried_mean": _share(rows[head, TRIED].sum(), n),
        "search_wall_us_p50": float(np.median(numbers[head, WALL])) if n else None,
        "lost_gpu_s_per_gpu_placed": _share(numbers[:, LOST].sum(), placed),
    }


def _by_decision(reduce: np.ufunc, values: Array, head: Array) -> Array:
    return reduce.reduceat(values, head) if len(head) else values[:0]


def _victims(outcome: Outcome, rows: Array) -> int:
    """Victims of the decisions: one that holds something on several of their servers counts once."""
    n = rows[:, VICTIMS]
    within = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
    victim = outcome.log.victims[np.repeat(rows[:, VICTIM_FROM], n) + within]
    return len(np.unique(np.repeat(rows[:, DECISION], n) * len(outcome.order) + victim))


def _hit_rate(rows: Array, column: int, head: Array) -> float | None:
    able = (rows[:, column] != UNPINNED) & (rows[:, CAN_HIT] == 1)
    decided = _by_decision(np.logical_or, able, head)
    missed = _by_decision(np.logical_or, able & (rows[:, column] == SERVER), head)
    return _share((decided & ~missed).sum(), decided.sum())


def _held(outcome: Outcome, counted: Array) -> dict[str, Value]:
    """GPU seconds of grace, and of claims beyond it, up to the end of the replay."""
    held = outcome.log.held[:outcome.log.size[3]]
    held = held[counted[held[:, HOLDER].astype(np.int64)]]
    gpu_s = held[:, HELD_GPU] / MILLI * (np.minimum(held[:, UNTIL], outcome.end) - held[:, SINCE])
    return {name: float(gpu_s[held[:, WHAT] == what].sum()) for name, what in (("grace_gpu_s", GRACE), ("claim_gpu_s", CLAIM))}


def _usage(cluster: Cluster, utilization: pa.Table) -> dict[str, Value]:
    """Means over the whole time of the table, as shares of what the cluster has."""
    width = _numbers(utilization, "t_end") - _numbers(utilization, "t_start")
    bounded = all(max(shape.numa_cores) < UNBOUNDED for shape in cluster.shapes)
    cores = np.array([shape.cores for shape in cluster.shapes], np.int64)[cluster.shape_of].sum() if bounded else 0
    capacity = {"gpu_alloc": cluster.gpus, "gpu_busy": cluster.gpus, "cpu_alloc": int(cores), "fragmentation": 1}
    return {
        f"{name}_mean": _share(float(width @ _numbers(utilization, name)), most * float(width.sum()))
        if name in utilization.column_names else None
        for name, most in capacity.items()
    }


def _load(cluster: Cluster, jobs: pa.Table, status: Array) -> dict[str, Value]:
    """How many GPU seconds were asked for while jobs came in, per GPU second that there was."""
    came = (status != schema.STATUSES.index("rejected")) & (status != schema.STATUSES.index("not_submitted"))
    submit = _numbers(jobs, "submit_time")
    asked = np.fmin(_numbers(jobs, "duration"), _numbers(jobs, "end_time") - submit)
    gpus = _numbers(jobs, "instances").astype(float) * _numbers(jobs, "gpus") * _numbers(jobs, "gpu_milli") / MILLI
    span = np.ptp(submit[came]) if came.any() else 0.0
    load = _share((gpus * asked)[came].sum(), cluster.gpus * span)
    return {"offered_load": load, "unstable": load is not None and load > 1}


def _latencies(jobs: pa.Table, status: Array) -> Iterator[tuple[str, Value]]:
    """Statistics over all jobs, then by kind."""
    finished = status == schema.STATUSES.index("finished")
    waited = finished | (status == schema.STATUSES.index("waiting")) | (status == schema.STATUSES.index("running"))
    yield "wait_s_censored", int((waited & np.isnan(_numbers(jobs, "first_start"))).sum())
    kind = _codes(jobs, "kind", schema.KINDS)
    for name in LATENCIES:
        covered = waited if name == "wait_s" else finished
        values, kinds = _numbers(jobs, name)[covered], kind[covered]
        every = _statistics(values)
        for suffix, chosen in (("", None), *((f"_{word}", kinds == k) for k, word in enumerate(schema.KINDS))):
            same = chosen is None or chosen.all()
            found = every if same and len(values) else _statistics(values if chosen is None else values[chosen])
            yield from zip((f"{name}_{statistic}{suffix}" for statistic in STATISTICS), found, strict=True)


def _statistics(values: Array) -> list[float | None]:
    """In the order of STATISTICS."""
    if not len(values):
        return [None] * len(STATISTICS)
    return [float(values.mean()), *map(float, np.quantile(values, (0.5, 0.95, 0.99)))]


def _numbers(table: pa.Table, name: str) -> Array:
    """A column as floats or integers (n,), null as nan."""
    return table[name].to_numpy()


def _codes(table: pa.Table, name: str, words: tuple[str, ...]) -> Array:
    return pc.index_in(table[name], value_set=pa.array(words)).to_numpy()


def _sum(table: pa.Table, name: str) -> float:
    return float(_numbers(table, name).sum())


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None

