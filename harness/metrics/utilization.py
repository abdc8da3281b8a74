"""The utilization table of a cell: exact means over intervals of what was held, ran and waited.

Everything is a set of spans [since, until) of jobs. A mean over an interval is the number of spans that cover it whole, an exact sum
of integers, plus the parts of those that begin or end in it. Nothing is sorted: n spans and m intervals cost O(n log m).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from harness import schema
from harness.cluster.log import HELD_CPU, HELD_GPU, HOLDER, SINCE, UNTIL
from harness.cluster.outcome import Outcome
from harness.cluster.state import FINISHED, REJECTED, RUNNING, UNSUBMITTED, Array
from harness.errors import BadInput
from harness.schema import MILLI

INTERVALS = 200
"""Intervals of a table whose interval_s is not given."""

MAX_INTERVALS = 1_000_000


@dataclass(frozen=True)
class Spans:
    """Times [since, until) in s, each of one job, with the GPU and core thousandths held meanwhile: arrays (n,)."""

    job: Array
    since: Array
    until: Array
    gpu: Array
    cpu: Array


def utilization_table(outcome: Outcome, interval_s: float | None = None, warmup_s: float = 0.0) -> pa.Table:
    """schema.UTILIZATION over [warmup_s, end of the replay) in steps of ``interval_s``, the last one shorter where it does not divide.

    By default interval_s is that span / 200. Without a span there are no rows. Grace counts as held by the victim, a claim (the part
    that victims do not hold) by the preemptor. A job is in the queue from its submission to its end whenever it does not run, in grace
    and while claiming too, unless it was rejected. Raises BadInput for an interval_s that is not positive or makes too many rows.
    """
    kind, running, held = outcome.state.jobs.kind, running_spans(outcome), held_spans(outcome)
    return utilization_of(outcome.end, interval_s, warmup_s, [(running, kind[running.job])], [queue_spans(outcome, running)],
                          [(held, kind[held.job])])


def utilization_of(end: float, interval_s: float | None, warmup_s: float, running: Iterable[tuple["Spans", Array]],
                   queue: Iterable["Spans"], held: Iterable[tuple["Spans", Array]]) -> pa.Table:
    """The table from its spans, which may come in pieces; running and held ones with the kind (n,) of their jobs."""
    edges = _edges(warmup_s, end, interval_s)
    kinds = range(len(schema.KINDS))
    ran, kept, waits = [Means(edges) for _ in kinds], [Means(edges) for _ in kinds], Means(edges)
    for sums, pieces in ((ran, running), (kept, held)):
        for spans, kind in pieces:
            for k in kinds:
                sums[k].add(spans, kind == k)
    for spans in queue:
        waits.add(spans)
    ran, kept = (np.array([mean.result() for mean in sums]) for sums in (ran, kept))
    gpu = dict(zip(schema.KINDS, ran[:, 0] + kept[:, 0], strict=True))
    queue_gpus, _, queue_len = waits.result()
    columns = {
        "t_start": edges[:-1], "t_end": edges[1:], "gpu_alloc": sum(gpu.values()), "gpu_busy": ran[:, 0].sum(axis=0),
        **{f"gpu_alloc_{name}": gpu[name] for name in ("online", "batch", "training")},
        "cpu_alloc": (ran[:, 1] + kept[:, 1]).sum(axis=0), "queue_len": queue_len, "queue_gpus": queue_gpus,
        "running_jobs": ran[:, 2].sum(axis=0),
    }
    assert list(columns) == schema.names(schema.UTILIZATION)
    return pa.table(list(map(pa.array, columns.values())), schema=schema.arrow_schema(schema.UTILIZATION))


def _edges(begin: float, end: float, interval_s: float | None) -> Array:
    """Ends of the intervals, in s: at least ``begin`` alone, which is none."""
    if interval_s is not None and not 0 < interval_s < np.inf:
        raise BadInput(f"interval_s={interval_s}: must be a positive number of seconds, or null for a {INTERVALS}th of the replay")
    if not end > begin:
        return np.array([begin])
    n = INTERVALS if interval_s is None else int(min(np.ceil((end - begin) / interval_s), MAX_INTERVALS + 1))
    if n > MAX_INTERVALS:
        raise BadInput(f"interval_s={interval_s}: makes more than {MAX_INTERVALS:,} rows of {end - begin:g} s; "
                       f"must be at least {(end - begin) / MAX_INTERVALS:g}")
    starts = begin + np.arange(n) * ((end - begin) / n if interval_s is None else interval_s)
    return np.append(starts[starts < end], end)


def means(edges: Array, spans: Spans, chosen: Array | None = None) -> Array:
    """Mean GPUs, cores and number of ``spans`` over each [edges[i], edges[i + 1]): shape (3, len(edges) - 1).

    ``chosen`` (n,) is a mask of the spans that count. Spans may reach beyond the edges.
    """
    sums = Means(edges)
    sums.add(spans, chosen)
    return sums.result()


class Means:
    """``means`` of spans that come in pieces: the pieces give the same, to the bit, as their spans at once."""

    def __init__(self, edges: Array):
        self.edges, bins = edges, len(edges) - 1
        self.whole, self.heads, self.tails = np.zeros((3, bins + 1)), np.zeros((3, bins)), np.zeros((3, bins))

    def add(self, spans: Spans, chosen: Array | None = None) -> None:
        edges, bins = self.edges, len(self.edges) - 1
        since, until = np.maximum(spans.since, edges[0]), np.minimum(spans.until, edges[-1])
        counts = until > since if chosen is None else chosen & (until > since)
        if not bins or not counts.any():
            return
        since, until, gpu, cpu = since[counts], until[counts], spans.gpu[counts], spans.cpu[counts]
        first, last = np.searchsorted(edges, since, "right") - 1, np.searchsorted(edges, until, "left") - 1
        within = first == last
        head = np.where(within, until, edges[first + 1]) - since
        tail = np.where(within, 0.0, until - edges[last])
        inner = np.maximum(last, first + 1)
        for row, weight in enumerate((gpu, cpu, None)):
            np.add.at(self.heads[row], first, head if weight is None else weight * head)
            np.add.at(self.tails[row], last, tail if weight is None else weight * tail)
            self.whole[row] += np.bincount(first + 1, weight, bins + 1) - np.bincount(inner, weight, bins + 1)

    def result(self) -> Array:
        """GPUs, cores and number by interval."""
        whole = np.cumsum(self.whole, axis=1)[:, :-1]
        return (whole + (self.heads + self.tails) / np.diff(self.edges)) / np.array([[MILLI], [MILLI], [1]])


def running_spans(outcome: Outcome) -> Spans:
    """Every attempt, by job and then by time; one that is open at the end of the replay lasts until then."""
    jobs, evicted = outcome.state.jobs, outcome.log.attempts[:outcome.log.size[2]]
    job = evicted[:, 0].astype(np.int64)
    # The log adds up to the time of the ended attempts in the same order as the state did, so that they differ only where the last
    # attempt did not end in an eviction.
    booked = np.bincount(job, evicted[:, 2] - evicted[:, 1], len(jobs))
    status = jobs.status
    last = np.flatnonzero((status == RUNNING) | ((status == FINISHED) & (jobs.running > booked)))
    stop = np.where(status[last] == RUNNING, outcome.end, jobs.finish[last])
    job, since, until = np.append(job, last), np.append(evicted[:, 1], jobs.start[last]), np.append(evicted[:, 2], stop)
    if len(evicted):
        order = np.argsort(job, kind="stable")
        job, since, until = job[order], since[order], until[order]
    return _spans(outcome, job, since, until)


def queue_spans(outcome: Outcome, running: Spans) -> Spans:
    """When each job that was submitted and not rejected neither ran nor had ended; spans of no length included."""
    before, rest = waits_before(outcome, running), waits_after(outcome, running)
    return Spans(*(np.append(getattr(before, name), getattr(rest, name)) for name in ("job", "since", "until", "gpu", "cpu")))


def waits_before(outcome: Outcome, running: Spans) -> Spans:
    """The time in the queue before each attempt."""
    submit = outcome.state.jobs.submit[running.job]
    again = np.append(False, running.job[1:] == running.job[:-1])[:len(submit)]
    return _spans(outcome, running.job, np.where(again, np.append(0.0, running.until[:-1])[:len(submit)], submit), running.since)


def waits_after(outcome: Outcome, running: Spans) -> Spans:
    """The time in the queue that no attempt ended."""
    jobs = outcome.state.jobs
    since = jobs.submit.copy()
    last = np.append(running.job[1:] != running.job[:-1], True)[:len(running.job)]
    since[running.job[last]] = running.until[last]
    until = np.where(np.isnan(jobs.finish), outcome.end, jobs.finish)
    rest = np.flatnonzero((jobs.status != REJECTED) & (jobs.status != UNSUBMITTED) & (until > since))
    return _spans(outcome, rest, since[rest], until[rest])


def held_spans(outcome: Outcome) -> Spans:
    """What victims in grace hold, and what is claimed beyond that."""
    held = outcome.log.held[:outcome.log.size[3]]
    until = np.minimum(held[:, UNTIL], outcome.end)
    return Spans(held[:, HOLDER].astype(np.int64), held[:, SINCE], until, held[:, HELD_GPU], held[:, HELD_CPU])


def _spans(outcome: Outcome, job: Array, since: Array, until: Array) -> Spans:
    """Spans in which each job holds, or asks for, all its instances."""
    classes, klass = outcome.state.classes, outcome.state.jobs.klass[job]
    gpu, cpu = classes.instances * classes.gpus * classes.milli, classes.instances * classes.cpu
    return Spans(job, since, until, gpu[klass], cpu[klass])
