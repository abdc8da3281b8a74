"""The summary of a cell: one value per metric, null where there is nothing to measure."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

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
from harness.metrics.columns import Columns
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
    - ``goodput_gpu_s_<kind>``: goodput of the jobs of one kind, null when there are none.
    - ``hit_rate_*``: of the decisions of which a row has a level where an empty server could hit, the share in which all such rows hit.
    - ``ran_share``: decisions that ran / decisions. ``useful_share``: GPUs of the preemptors that ran / GPUs freed anywhere for them.
      ``preempted``: victims, once per decision; ``victims_per_placement``: victims / decisions that ran;
      ``lost_gpu_s_per_gpu_placed``: GPU seconds the decisions' victims lost / GPUs of the preemptors that ran.
    - ``gpu_alloc_mean``, ``gpu_busy_mean``, ``cpu_alloc_mean``: shares of the cluster's GPUs or cores, 0 to 1, over
      [warmup_s, end); null where there are none, or no limit. ``fragmentation_mean``: null unless the table has that column;
      so is ``energy_kwh``, the sum over all intervals.
    - ``makespan_s``: the last finish_time. ``wait_s_*`` cover the jobs not rejected, expired or yet to be submitted, those that never
      started with their waiting so far, which ``wait_s_censored`` counts, and so does ``queue_s_mean``, of all time not running;
      ``jct_s_*`` and the slowdowns the finished jobs; all again with the kind of the job as suffix. Quantiles are linear.
    """
    return summary_of(outcome, cluster, Columns([jobs]), utilization, [Decided(outcome, warmup_s)], warmup_s)


def summary_of(outcome: Outcome, cluster: Cluster, jobs: Columns, utilization: pa.Table, decided: Sequence["Decided"],
               warmup_s: float) -> dict[str, Value]:
    """``summary`` of a jobs table and a log that come in pieces; ``outcome`` gives the counts of the whole replay."""
    jobs = jobs.where("submit_time", warmup_s)
    status = jobs.codes("status", schema.STATUSES)
    return {
        "jobs": len(status),
        **{f"jobs_{name}": int((status == s).sum()) for s, name in enumerate(schema.STATUSES)},
        "events": outcome.events,
        **_decisions(decided),
        **{name: float(jobs.numbers(name).sum()) for name in SUMS},
        **_goodput(jobs),
        **_held(decided),
        **_usage(cluster, utilization),
        "energy_kwh": float(utilization["energy_kwh"].to_numpy().sum()) if "energy_kwh" in utilization.column_names else None,
        "makespan_s": jobs.largest("finish_time"),
        **_load(cluster, jobs, status),
        "capped": outcome.capped,
        **outcome.reports,
        **dict(_latencies(jobs, status)),
    }


class Decided:
    """What the summary needs of the log of ``outcome``: of the decisions whose preemptor was submitted from ``warmup_s`` on, and of what
    such jobs held without running. Arrays by decision, if not said otherwise."""

    def __init__(self, outcome: Outcome, warmup_s: float):
        log, counted = outcome.log, outcome.state.jobs.submit >= warmup_s
        rows, numbers = log.rows[:log.size[0]], log.numbers[:log.size[0]]
        kept = counted[rows[:, PREEMPTOR]]
        rows, numbers = rows[kept], numbers[kept]
        head = np.flatnonzero(np.append(True, rows[1:, DECISION] != rows[:-1, DECISION])[:len(rows)])
        self.ran = rows[head, RAN] == 1
        self.placed = gpus_of(outcome.state)[rows[head, PREEMPTOR]]
        self.freed = _by_decision(np.add, rows[:, FREED] + rows[:, ELSEWHERE], head)
        self.tried, self.wall_us = rows[head, TRIED], numbers[head, WALL]
        self.hits = {name: _hits(rows, column, head) for name, column in (("victims", LEVEL_VICTIMS), ("assigned", LEVEL_ASSIGNED))}
        self.victims = _victims(outcome, rows)
        self.lost = numbers[:, LOST].copy()  # by row
        held = log.held[:log.size[3]]
        held = held[counted[held[:, HOLDER].astype(np.int64)]]
        gpu_s = held[:, HELD_GPU] / MILLI * (np.minimum(held[:, UNTIL], outcome.end) - held[:, SINCE])
        self.grace_gpu_s, self.claim_gpu_s = (gpu_s[held[:, WHAT] == what] for what in (GRACE, CLAIM))  # by holder


def _decisions(pieces: Sequence[Decided]) -> dict[str, Value]:
    """Metrics of the decisions."""
    ran, placed, freed, tried, wall_us, lost = (_joined(pieces, name) for name in ("ran", "placed", "freed", "tried", "wall_us", "lost"))
    n, victims, placed, freed = len(ran), sum(piece.victims for piece in pieces), placed[ran].sum(), freed[ran].sum() / MILLI
    hit, decided = ({name: sum(piece.hits[name][i] for piece in pieces) for name in ("victims", "assigned")} for i in (0, 1))
    return {
        "decisions": n, "preempted": victims,
        **{f"hit_rate_{name}": _share(hit[name], decided[name]) for name in hit},
        "ran_share": _share(ran.sum(), n), "useful_share": _share(placed, freed), "victims_per_placement": _share(victims, ran.sum()),
        "subsets_tried_mean": _share(tried.sum(), n), "search_wall_us_p50": float(np.median(wall_us)) if n else None,
        "lost_gpu_s_per_gpu_placed": _share(lost.sum(), placed),
    }


def _held(pieces: Sequence[Decided]) -> dict[str, Value]:
    """GPU seconds of grace, and of claims beyond it, up to the end of the replay."""
    return {name: float(_joined(pieces, name).sum()) for name in ("grace_gpu_s", "claim_gpu_s")}


def _joined(pieces: Sequence[Decided], name: str) -> Array:
    return np.concatenate([getattr(piece, name) for piece in pieces])


def _by_decision(reduce: np.ufunc, values: Array, head: Array) -> Array:
    return reduce.reduceat(values, head) if len(head) else values[:0]


def _victims(outcome: Outcome, rows: Array) -> int:
    """Victims of the decisions: one that holds something on several of their servers counts once."""
    n = rows[:, VICTIMS]
    within = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
    victim = outcome.log.victims[np.repeat(rows[:, VICTIM_FROM], n) + within]
    return len(np.unique(np.repeat(rows[:, DECISION], n) * len(outcome.order) + victim))


def _hits(rows: Array, column: int, head: Array) -> tuple[int, int]:
    """Decisions that hit, and decisions that could."""
    able = (rows[:, column] != UNPINNED) & (rows[:, CAN_HIT] == 1)
    decided = _by_decision(np.logical_or, able, head)
    missed = _by_decision(np.logical_or, able & (rows[:, column] == SERVER), head)
    return int((decided & ~missed).sum()), int(decided.sum())


def _usage(cluster: Cluster, utilization: pa.Table) -> dict[str, Value]:
    """Means over the whole time of the table, as shares of what the cluster has."""
    width = utilization["t_end"].to_numpy() - utilization["t_start"].to_numpy()
    bounded = all(max(shape.numa_cores) < UNBOUNDED for shape in cluster.shapes)
    cores = np.array([shape.cores for shape in cluster.shapes], np.int64)[cluster.shape_of].sum() if bounded else 0
    capacity = {"gpu_alloc": cluster.gpus, "gpu_busy": cluster.gpus, "cpu_alloc": int(cores), "fragmentation": 1}
    return {
        f"{name}_mean": _share(float(width @ utilization[name].to_numpy()), most * float(width.sum()))
        if name in utilization.column_names else None
        for name, most in capacity.items()
    }


def _load(cluster: Cluster, jobs: Columns, status: Array) -> dict[str, Value]:
    """How many GPU seconds were asked for while jobs came in, per GPU second that there was."""
    came = (status != schema.STATUSES.index("rejected")) & (status != schema.STATUSES.index("not_submitted"))
    asked = jobs.computed(_asked, ("submit_time", "duration", "end_time", "instances", "gpus", "gpu_milli"), came).sum()
    span = float(np.ptp(jobs.numbers("submit_time", came))) if came.any() else 0.0
    load = _share(asked, cluster.gpus * span)
    return {"offered_load": load, "unstable": load is not None and load > 1}


def _asked(submit: Array, duration: Array, end: Array, instances: Array, gpus: Array, milli: Array) -> Array:
    """GPU seconds that jobs ask for."""
    return instances.astype(float) * gpus * milli / MILLI * np.fmin(duration, end - submit)


def _goodput(jobs: Columns) -> dict[str, Value]:
    """GPU seconds of goodput by kind."""
    kind = jobs.codes("kind", schema.KINDS)
    done = {word: jobs.numbers("goodput_gpu_s", kind == k) for k, word in enumerate(schema.KINDS)}
    return {f"goodput_gpu_s_{word}": float(values.sum()) if len(values) else None for word, values in done.items()}


def _latencies(jobs: Columns, status: Array) -> Iterator[tuple[str, Value]]:
    """Statistics over all jobs, then by kind."""
    kind = jobs.codes("kind", schema.KINDS)
    finished, waiting, running = (schema.STATUSES.index(word) for word in ("finished", "waiting", "running"))
    for name in LATENCIES:
        covered = status == finished
        if name == "wait_s":
            covered |= (status == waiting) | (status == running)
            yield "wait_s_censored", int(np.isnan(jobs.numbers("first_start", covered)).sum())
        if name == "wait_s":
            for k, suffix in enumerate(("", *(f"_{word}" for word in schema.KINDS)), -1):
                queued = jobs.numbers("queue_s", covered if k < 0 else covered & (kind == k))
                yield f"queue_s_mean{suffix}", float(queued.mean()) if len(queued) else None
        every, n = _statistics(jobs.numbers(name, covered)), np.count_nonzero(covered)
        for k, suffix in enumerate(("", *(f"_{word}" for word in schema.KINDS)), -1):
            chosen = covered if k < 0 else covered & (kind == k)
            found = every if np.count_nonzero(chosen) == n else _statistics(jobs.numbers(name, chosen))
            yield from zip((f"{name}_{statistic}{suffix}" for statistic in STATISTICS), found, strict=True)


def _statistics(values: Array) -> list[float | None]:
    """In the order of STATISTICS; ``values`` are put out of order where they may be written."""
    if not len(values):
        return [None] * len(STATISTICS)
    mean = float(values.mean())
    return [mean, *map(float, np.quantile(values, (0.5, 0.95, 0.99), overwrite_input=values.flags.writeable))]


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
