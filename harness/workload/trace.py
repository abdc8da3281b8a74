"""Any Parquet trace as a workload: cut out a part of it, scale its load, map its classes.

The steps, in this order: read, expand services to jobs, keep the rows that match ``where``, cut by time and number, shift to
zero, squeeze the clock, scale the load, map classes. With the default parameters the trace passes unchanged but for its order.
"""

from dataclasses import dataclass, field, fields
from math import floor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.schema import JOBS, REQUESTS
from harness.tables import TIME_COLUMN, TraceFile, checked, kind_of, own_blocks, read_trace
from harness.workload.classes import apply_rules, matching
from harness.workload.common import Stream, check_number, generator, in_order, milliseconds
from harness.workload.services import expand

if TYPE_CHECKING:
    from harness.topology import Cluster

STREAMED_ROWS = 4_000_000
"""From so many rows on, a trace of jobs or requests that is taken as it is is streamed."""


@dataclass(frozen=True)
class Params:
    """Parameters of trace.

    path: Parquet file of jobs, services or requests; relative to the working directory.
    services_end_s: when the replicas of a services trace that are still wanted end; null: at its last time (s).
    where: conditions on columns; only rows that meet all of them are kept, null: all rows (see harness.workload.classes).
    start_s, end_s: keep rows submitted in [start_s, end_s), in the trace's own clock; null: no bound (s).
    first: keep that many of the earliest rows; null: all.
    shift_to_zero: move the clock so that the first row kept is submitted at 0.
    time_scale: multiplies the times between arrivals, not the durations; below 1 it squeezes clock and day (1).
    load_scale: below 1 each row is kept with that probability; above 1 copies of rows are added, in expectation load_scale - 1
        for each (1).
    jitter_s: an added copy is submitted up to that much later than its original, uniformly; past the end of the trace it wraps
        around (s).
    map: rules that set columns of matching rows, such as the priority of a class (see harness.workload.classes).
    stream: whether the trace is read block by block while it is replayed, in memory that does not grow with it; it must be sorted by
        time, and no other parameter but path may be set. null: when it is so, and has 4,000,000 rows or more.
    """

    path: str | None = None
    services_end_s: float | None = None
    where: dict[str, Any] | None = None
    start_s: float | None = None
    end_s: float | None = None
    first: int | None = None
    shift_to_zero: bool = False
    time_scale: float = 1.0
    load_scale: float = 1.0
    jitter_s: float = 3600.0
    map: list[dict[str, Any]] = field(default_factory=list)
    stream: bool | None = None


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The rows of the trace after all steps, sorted by time, ties in the order of the file; unknown columns are carried through.

    ``cluster`` is not looked at: what can never run on it is for the engine to reject.
    Raises BadInput for parameters out of range, a file that is no trace, and when no row is left.
    """
    _check(params)
    assert params.path is not None
    trace = read_trace(params.path)
    kind = kind_of(trace, params.path)
    if kind == "services":
        trace = expand(trace, params.services_end_s)
    schema_table, time = (REQUESTS, "arrival_time") if kind == "requests" else (JOBS, "submit_time")
    trace = trace.filter(pa.array(matching(trace, params.where or {}, "workload.where")))
    trace = _cut(in_order([trace], time), time, params)
    if params.shift_to_zero:
        trace = _move(trace, time, trace[time].to_numpy() - trace[time][0].as_py())
    trace = squeeze(trace, params.time_scale)
    trace = scale_load(trace, params.load_scale, params.jitter_s, seed)
    if params.map:
        trace = checked(apply_rules(trace, schema_table, params.map, seed), schema_table, f"{params.path} after workload.map")
    return trace.combine_chunks()


def streamed(params: Any) -> TraceFile | None:
    """The trace as a file to be read block by block; None when it is to be loaded whole.

    ``params`` are those of any generator with ``path`` and ``stream``. Raises BadInput when it should be streamed and cannot be, and for
    a file that is no Parquet file.
    """
    if params.stream is False or not params.path:
        return None
    file = TraceFile(params.path)
    if not params.stream and (file.rows < STREAMED_ROWS or file.kind is None):
        return None
    plain = type(params)(path=params.path, stream=params.stream)
    steps = [f"workload.{step.name}" for step in fields(params) if getattr(params, step.name) != getattr(plain, step.name)]
    if not steps and file.kind and file.rows and file.in_order():
        return file
    if params.stream:
        why = f"{', '.join(steps)} cannot be applied to it" if steps else f"{params.path} must have jobs or requests, sorted by {file.time}"
        raise BadInput(f"workload.stream=true: the trace is taken as it is, and {why}; leave workload.stream out to load it whole")
    return None


def _check(params: Params) -> None:
    if not params.path:
        raise BadInput("workload.path: give a Parquet trace, for example workload.path=traces/paper_mix.parquet")
    check_number("time_scale", params.time_scale, above=0)
    check_number("load_scale", params.load_scale, above=0)
    check_number("jitter_s", params.jitter_s, low=0)
    for key in ("services_end_s", "start_s", "end_s"):
        if getattr(params, key) is not None:
            check_number(key, getattr(params, key), low=0)
    if params.first is not None:
        check_number("first", params.first, low=1)


def _cut(trace: pa.Table, time: str, params: Params) -> pa.Table:
    """The rows between the bounds, at most ``first`` of them; ``trace`` is sorted by time."""
    at = trace[time].to_numpy()
    low = 0 if params.start_s is None else int(np.searchsorted(at, params.start_s, side="left"))
    high = len(at) if params.end_s is None else int(np.searchsorted(at, params.end_s, side="left"))
    if params.first is not None:
        high = min(high, low + params.first)
    if high <= low:
        span = f"its times are {at[0]:g} to {at[-1]:g} s" if len(at) else "no row meets workload.where"
        raise BadInput(f"{params.path}: no row is left after the cut to workload.start_s={params.start_s}, "
                       f"end_s={params.end_s}; {span}")
    return trace.slice(low, high - low)


def _move(trace: pa.Table, time: str, moved: np.ndarray) -> pa.Table:
    """``trace`` with these times; an end_time keeps its distance to the submit_time."""
    if time == "submit_time":
        at = trace.column_names.index("end_time")
        stays = pc.subtract(trace["end_time"], trace[time])
        trace = trace.set_column(at, trace.schema.field(at), pc.add(pa.array(moved), stays))
    at = trace.column_names.index(time)
    return trace.set_column(at, trace.schema.field(at), pa.array(moved))


def squeeze(trace: pa.Table, time_scale: float) -> pa.Table:
    """``trace`` with all arrivals at ``time_scale`` times their times; durations stay."""
    time = TIME_COLUMN[kind_of(trace, "trace")]
    return trace if time_scale == 1.0 else _move(trace, time, trace[time].to_numpy() * time_scale)


def scale_load(trace: pa.Table, load_scale: float, jitter_s: float, seed: int) -> pa.Table:
    """Jobs or requests with ``load_scale`` times the load, on the same clock; sorted by time.

    Below 1 each row is kept with that probability; above 1 copies are added, each submitted up to ``jitter_s`` later than its
    original (uniformly; past the end it wraps around), renamed ID+1, ID+2, ... A copied request has prefix blocks of its own, as another
    user's would be. Of services the replicas are multiplied, and rounded. Raises BadInput when no row is left.
    """
    kind = kind_of(trace, "trace")
    if kind == "services":
        replicas = np.rint(trace["replicas"].to_numpy() * load_scale).astype(np.int64)
        at = trace.column_names.index("replicas")
        return trace.set_column(at, trace.schema.field(at), pa.array(replicas).cast(trace.schema.field(at).type))
    requests = kind == "requests"
    trace = in_order([trace], TIME_COLUMN[kind])
    name, time = ("request_id", "arrival_time") if requests else ("job_id", "submit_time")
    whole = floor(load_scale)
    drawn = generator(seed, Stream.THINNING).random(trace.num_rows) < load_scale - whole
    if whole == 0:
        trace = trace.filter(pa.array(drawn))
        if not trace.num_rows:
            raise BadInput(f"workload.load_scale={load_scale}: no row is left; raise it")
        return trace
    start = float(trace[time][0].as_py())
    span = float(trace[time][-1].as_py()) - start
    ids = trace[name]
    mark = "+"
    while pc.any(pc.match_substring(ids, mark)).as_py():
        mark += "+"
    layers = [trace]
    for k in range(1, whole + 1):
        copy = trace if k < whole else trace.filter(pa.array(drawn))
        late = generator(seed, Stream.JITTER, k).random(copy.num_rows) * jitter_s
        moved = copy[time].to_numpy() - start + late
        wrapped = np.where(moved > span, np.mod(moved, span) if span > 0 else 0.0, moved)
        copy = _move(copy, time, milliseconds(start + wrapped))
        named = pc.binary_join_element_wise(copy[name], f"{mark}{k}", "")
        copy = copy.set_column(copy.column_names.index(name), copy.schema.field(name), named)
        layers.append(own_blocks(copy, k) if requests else copy)
    return in_order(layers, time)
