"""The jobs table of a cell: the trace, and what became of each job. specs/replay-semantics.md, "Accounting"."""

import numpy as np
import pyarrow as pa

from harness import schema
from harness.cluster.outcome import Outcome
from harness.cluster.state import (
    CLAIMING,
    EXPIRED,
    FINISHED,
    REJECTED,
    RUNNING,
    UNPINNED,
    UNSUBMITTED,
    WAITING,
    Array,
    View,
)
from harness.schema import MILLI

STATUS_WORDS = {
    WAITING: "waiting", CLAIMING: "waiting", RUNNING: "running", FINISHED: "finished", REJECTED: "rejected", EXPIRED: "expired",
    UNSUBMITTED: "not_submitted",
}
"""Status of the state -> schema.STATUSES: who claims still waits."""

RESULTS = schema.names(schema.RESULT_JOBS)

RENAMED = "trace_"
"""Prefix of an unknown trace column that is called like a result column."""


def jobs_table(outcome: Outcome) -> pa.Table:
    """The trace's columns, unknown ones included, then schema.RESULT_JOBS; rows in the order of the trace.

    An unknown column that is called like a result column gets the prefix ``trace_``. For a job that runs at the end of the replay
    the attempt so far counts: its progress is goodput. Times in seconds.
    """
    trace, job_of = outcome.trace, _job_of_each_row(outcome.order)
    results = _results(outcome)
    if job_of is not None:
        results = {name: column.take(job_of) for name, column in results.items()}
    fields = [field.with_name(_free_name(field.name, trace)) for field in trace.schema]
    return pa.table([*trace.columns, *results.values()], schema=pa.schema([*fields, *schema.arrow_schema(schema.RESULT_JOBS)]))


def gpus_of(state: View) -> Array:
    """GPUs of each job (J,), all instances together; a share counts as that part of a GPU."""
    classes = state.classes
    return (classes.instances * classes.gpus * classes.milli / MILLI)[state.jobs.klass]


def running_time(outcome: Outcome) -> Array:
    """Seconds (J,) that each job ran, restarts and the attempt that is open at the end included."""
    jobs = outcome.state.jobs
    ran, r = jobs.running.copy(), np.flatnonzero(jobs.status == RUNNING)
    ran[r] += outcome.end - jobs.start[r]
    return ran


def _job_of_each_row(order: Array) -> pa.Array | None:
    """The job index of each row of the trace; None when jobs are in trace order."""
    if (order[1:] > order[:-1]).all():
        return None
    job_of = np.empty(len(order), np.int64)
    job_of[order] = np.arange(len(order))
    return pa.array(job_of)


def _free_name(name: str, trace: pa.Table) -> str:
    new = name
    while new in RESULTS or (new != name and new in trace.column_names):
        new = RENAMED + new
    return new


def _results(outcome: Outcome) -> dict[str, pa.Array]:
    """The columns of schema.RESULT_JOBS in the order of the jobs of the state. The sums are written as the semantics read."""
    state, end = outcome.state, outcome.end
    jobs, gpus, ran = state.jobs, gpus_of(state), running_time(outcome)
    status, submit, duration = jobs.status.copy(), jobs.submit.copy(), jobs.duration
    first_start, finish = jobs.first_start.copy(), jobs.finish.copy()

    progress, restarting, r = jobs.progress.copy(), jobs.restarting.copy(), np.flatnonzero(status == RUNNING)
    progress[r] += jobs.speed[r] * np.maximum(0.0, end - (jobs.start[r] + jobs.restart[r]))
    restarting[r] += np.minimum(end - jobs.start[r], jobs.restart[r])

    until = np.where(np.isnan(finish), end, finish)
    queued = until - submit - ran
    waited = np.where(np.isnan(first_start), until, first_start) - submit
    absent = (status == REJECTED) | (status == UNSUBMITTED)
    queued[absent] = waited[absent] = np.nan
    jct = finish - submit

    missed, e = np.zeros(len(jobs)), np.flatnonzero((jobs.end < np.inf) & (status != UNSUBMITTED))
    is_open = (status[e] == RUNNING) | (status[e] == WAITING) | (status[e] == CLAIMING)
    missed[e] = np.where(is_open, np.minimum(jobs.end[e], end), jobs.end[e]) - submit[e] - ran[e]

    classes = sorted(outcome.reasons)
    reason_of = np.zeros(len(state.classes), np.int64)
    reason_of[classes] = np.arange(len(classes))
    return {
        "first_start": _nullable(first_start), "finish_time": _nullable(finish), "wait_s": _nullable(waited),
        "queue_s": _nullable(queued), "jct_s": _nullable(jct), "slowdown": _nullable(jct / duration),
        "bounded_slowdown": _nullable(np.maximum(1.0, jct / np.maximum(duration, 10.0))),
        "evictions": pa.array(jobs.evictions.astype(np.int32)), "goodput_gpu_s": pa.array(gpus * progress),
        "lost_gpu_s": pa.array(gpus * jobs.lost), "restart_gpu_s": pa.array(gpus * restarting),
        "shortfall_gpu_s": pa.array(gpus * missed), "level": words(jobs.level, schema.LEVELS, jobs.level == UNPINNED),
        "servers": _servers(state), "status": words(status, [STATUS_WORDS[s] for s in range(len(STATUS_WORDS))]),
        "reason": words(reason_of[jobs.klass], [outcome.reasons[c] for c in classes], status != REJECTED),
    }


def words(codes: Array, values: tuple[str, ...] | list[str], null: Array | None = None) -> pa.Array:
    """The string ``values[code]`` of each code (n,), null where ``null`` (n,) says so."""
    indices = pa.array(codes.astype(np.int32), mask=null)
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string())).cast(pa.string())


def _nullable(values: Array) -> pa.Array:
    return pa.array(values, from_pandas=True)


def _servers(state: View) -> pa.Array:
    """For each job the server of each instance in its last attempt, in placement order; [] when it never ran."""
    jobs, ran_on = state.jobs, state.instances.ran_on
    lengths = np.where(np.isnan(jobs.first_start), 0, jobs.end_instance - jobs.first_instance)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ran_on[ran_on >= 0].astype(np.int32)))
