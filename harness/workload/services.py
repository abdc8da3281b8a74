"""From a `services` trace (how many replicas a service wants, and when) to jobs, one for each replica."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.schema import INSTANCE, JOBS, SERVICES, names
from harness.workload.common import jobs


def expand(services: pa.Table, end_s: float | None = None) -> pa.Table:
    """The jobs of a services trace.

    Scale-out submits replicas with the instance columns of the row that asks for them. Scale-in ends the newest, so the k-th
    replica is one job for every stretch of time in which at least k are wanted. Replicas wanted at the end last until ``end_s``
    (s; default: the last time of the trace). ``end_time`` is that instant and ``duration`` the stretch. Of several rows of a
    service at one instant the last counts; what is submitted at ``end_s`` or later is left out.

    Returns the columns of schema.JOBS, then ``service`` and the columns that the schema does not know, sorted by submit_time
    (ties: services in order of appearance, then the older replica). Jobs are named ``service-N``, N from 0 in that order.

    Raises BadInput when nothing is left, as for a trace that never changes and has no ``end_s``.
    """
    code = pc.index_in(services["service"], services["service"].unique()).to_numpy()
    time = services["time"].to_numpy()
    replicas = services["replicas"].to_numpy().astype(np.int64)
    end = float(time.max()) if end_s is None and len(time) else float(end_s or 0.0)

    row = np.lexsort((np.arange(len(time)), time, code))
    row = row[time[row] < end]
    if len(row):
        last_of_instant = np.append((np.diff(code[row]) != 0) | (np.diff(time[row]) != 0), True)
        row = row[last_of_instant]
    code, time, wanted = code[row], time[row], replicas[row]
    first = np.append(True, np.diff(code) != 0)[: len(code)]
    last = np.append(np.diff(code) != 0, True)[: len(code)]
    before = np.where(first, 0, np.roll(wanted, 1))

    begun, begun_rank = _ranks(before, wanted)
    ended, ended_rank = _ranks(wanted, before)
    closed, closed_rank = _ranks(np.zeros_like(wanted), np.where(last, wanted, 0))
    end_code = np.concatenate([code[ended], code[closed]])
    end_rank = np.concatenate([ended_rank, closed_rank])
    end_time = np.concatenate([time[ended], np.full(len(closed), end)])
    ends = end_time[np.lexsort((end_time, end_rank, end_code))]
    starts = np.lexsort((time[begun], begun_rank, code[begun]))
    begun, begun_rank = begun[starts], begun_rank[starts]

    order = np.lexsort((begun_rank, code[begun], time[begun]))
    begun, ends = begun[order], ends[order]
    if not len(begun):
        raise BadInput(f"services trace: no replica is wanted before its end at {end:g} s; workload.services_end_s sets the end")
    return _jobs(services.take(row[begun]), time[begun], ends, _numbers_within(code[begun]))


def _ranks(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row the ranks low + 1 ... high (none when high <= low), as (row of each, rank), both i64."""
    count = np.maximum(high - low, 0)
    rows = np.repeat(np.arange(len(count)), count)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    return rows, low[rows] + 1 + within


def _numbers_within(code: np.ndarray) -> np.ndarray:
    """The position of each element among those of its code: i64 (n,)."""
    order = np.argsort(code, kind="stable")
    counts = np.bincount(code)
    number = np.empty(len(code), dtype=np.int64)
    number[order] = np.arange(len(code)) - np.repeat(np.cumsum(counts) - counts, counts)
    return number


def _jobs(asked: pa.Table, submit: np.ndarray, end: np.ndarray, number: np.ndarray) -> pa.Table:
    service = asked["service"].to_pylist()
    columns: dict[str, object] = {c.name: asked[c.name] for c in INSTANCE if c.name in asked.column_names}
    columns |= {
        "job_id": [f"{s}-{n}" for s, n in zip(service, number, strict=True)],
        "submit_time": submit, "end_time": end, "duration": end - submit,
    }
    replicas = jobs(len(submit), columns)
    for name in ("service", *(n for n in asked.column_names if n not in names(SERVICES) and n not in names(JOBS))):
        replicas = replicas.append_column(asked.schema.field(name), asked[name])
    return replicas.combine_chunks()
