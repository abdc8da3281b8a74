"""The preemptions table of a cell: one row for each decision and server on which victims free claimed resources."""

import numpy as np
import pyarrow as pa

from harness import schema
from harness.cluster.log import (
    CPUS,
    DECISION,
    ELSEWHERE,
    FREED,
    LEVEL_ASSIGNED,
    LEVEL_VICTIMS,
    LOST,
    NEEDED,
    PREEMPTOR,
    RAN,
    SCANNED,
    SERVER_ID,
    TIME,
    TRIED,
    VICTIM_FROM,
    VICTIMS,
    WALL,
)
from harness.cluster.outcome import Outcome
from harness.cluster.state import SERVER, UNPINNED, Array
from harness.metrics.jobs import words
from harness.schema import MILLI


def preemptions_table(outcome: Outcome) -> pa.Table:
    """schema.PREEMPTIONS, rows by decision, then server. Victims are in the order in which they were submitted.

    A claim that is still pending at the end has ``ran`` = false. ``search_wall_us`` is wall-clock time: no two runs agree in it.
    """
    log, names = outcome.log, outcome.trace["job_id"]
    rows, numbers, victims = log.rows[:log.size[0]], log.numbers[:log.size[0]], log.victims[:log.size[1]]
    # The log appends the victims of a row right before the row, so rows share the list without gaps.
    ends = rows[:, VICTIM_FROM] + rows[:, VICTIMS]
    offsets = np.concatenate([[0], ends])
    priority = outcome.state.classes.priority[outcome.state.jobs.klass[victims]]
    summed = np.concatenate([[0], np.cumsum(priority)])[offsets]
    columns = {
        "decision_id": rows[:, DECISION], "time": numbers[:, TIME], "job_id": _named(outcome, names, rows[:, PREEMPTOR]),
        "server": rows[:, SERVER_ID].astype(np.int32),
        "victims": pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), _named(outcome, names, victims)),
        "victims_n": rows[:, VICTIMS].astype(np.int32), "victim_priority_sum": np.diff(summed),
        "gpus_needed": rows[:, NEEDED] / MILLI, "gpus_freed": rows[:, FREED] / MILLI, "gpus_freed_elsewhere": rows[:, ELSEWHERE] / MILLI,
        "cpus_freed": rows[:, CPUS] / MILLI,
        "level_victims": _level(rows[:, LEVEL_VICTIMS]), "hit_victims": _hit(rows[:, LEVEL_VICTIMS]),
        "level_assigned": _level(rows[:, LEVEL_ASSIGNED]), "hit_assigned": _hit(rows[:, LEVEL_ASSIGNED]),
        "ran": rows[:, RAN] == 1, "lost_gpu_s": numbers[:, LOST], "subsets_tried": rows[:, TRIED],
        "servers_scanned": rows[:, SCANNED], "search_wall_us": numbers[:, WALL],
    }
    arrays = [column if isinstance(column, pa.Array) else pa.array(np.ascontiguousarray(column)) for column in columns.values()]
    assert list(columns) == schema.names(schema.PREEMPTIONS)
    return pa.table(arrays, schema=schema.arrow_schema(schema.PREEMPTIONS))


def _named(outcome: Outcome, names: pa.ChunkedArray, jobs: Array) -> pa.Array:
    """The job_id of each of ``jobs`` (n,), indices of the state."""
    return names.take(pa.array(outcome.order[jobs])).combine_chunks()


def _level(levels: Array) -> pa.Array:
    return words(levels, schema.LEVELS, levels == UNPINNED)


def _hit(levels: Array) -> pa.Array:
    return pa.array(levels != SERVER, mask=levels == UNPINNED)
