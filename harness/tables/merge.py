"""Several traces of one kind as one."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.schema import TRACES
from harness.tables.blocks import TraceFile, singly
from harness.tables.checks import TIME_COLUMN, checked, kind_of
from harness.tables.sniff import one_line

MARKED = {"jobs": "tenant", "services": "service", "requests": "service"}
"""Kind of trace -> the column that says from which trace a row comes."""

OWN_BLOCKS = 1 << 52
"""Prefix hashes of trace k are shifted by k times this."""


def merge(traces: Mapping[str, pa.Table], starts_s: Sequence[float] | None = None) -> pa.Table:
    """The rows of all ``traces`` (name -> trace), sorted by arrival; ties in the order of the traces, then of their rows.

    A job or request is renamed NAME/ID, always, so that ids stay unique. Its tenant (jobs) or service (services, requests) becomes
    NAME/what it was, or NAME alone when it was empty. Prefix hashes of different traces are made different. ``starts_s``: what each
    trace's times are moved by; None leaves them as they are, on one clock. Columns beyond the schema that one trace lacks are null there.
    Raises BadInput for traces of different kinds, columns of types that do not go together, and a move before time 0.
    """
    kind = _kind({name: kind_of(table, name) for name, table in traces.items()})
    parts = [_part(table, kind, name, number, starts_s[number] if starts_s else 0.0) for number, (name, table) in enumerate(traces.items())]
    whole = _in_order(_together(list(traces), parts), kind)
    return checked(whole, TRACES[kind][1], "the merged trace")


def merge_sorted(traces: Mapping[str, TraceFile], starts_s: Sequence[float]) -> Iterator[pa.Table]:
    """``merge`` of traces of jobs or requests that are each sorted by arrival, with the same rows, in pieces.

    Each trace is checked while it is read: a block of each is in memory, and as many as one instant spans, beside 8 bytes for each row.
    """
    kind = _kind({name: str(source.kind) for name, source in traces.items()})
    coming = [map(partial(_part, kind=kind, name=name, number=number, start_s=starts_s[number]), source.checked_blocks())
              for number, (name, source) in enumerate(traces.items())]
    waiting = [next(blocks) for blocks in coming]
    like, more = _together(list(traces), [part.slice(0, 0) for part in waiting]), [True] * len(waiting)
    while True:
        times = [part[TIME_COLUMN[kind]].to_numpy() for part in waiting]
        known = min((mine[-1] for mine, goes_on in zip(times, more, strict=True) if goes_on), default=np.inf)
        ready = [int(np.searchsorted(mine, known)) if known < np.inf else len(mine) for mine in times]
        whole = _together(list(traces), [like, *(part.slice(0, n) for part, n in zip(waiting, ready, strict=True))])
        yield checked(_in_order(whole, kind), singly(TRACES[kind][1]), "the merged trace")
        if not any(more):
            return
        for i, mine in enumerate(times):
            waiting[i] = waiting[i].slice(ready[i])
            if more[i] and mine[-1] == known:
                following = next(coming[i], None)
                more[i] = following is not None
                waiting[i] = pa.concat_tables([waiting[i], following]) if following is not None else waiting[i]


def _kind(kinds: Mapping[str, str]) -> str:
    """The one kind of all traces. Raises BadInput."""
    kind = next(iter(kinds.values()))
    if other := next((name for name, found in kinds.items() if found != kind), None):
        raise BadInput(f"{other}: holds {kinds[other]}, the first trace {kind}; only traces of one kind go together")
    return kind


def _part(table: pa.Table, kind: str, name: str, number: int, start_s: float) -> pa.Table:
    """Rows of the trace with this ``name`` and ``number`` as they are in the merged one."""
    table = _moved(table, kind, name, start_s)
    if kind != "services":
        table = _replaced(table, TRACES[kind][0], pc.binary_join_element_wise(name, table[TRACES[kind][0]], "/"))
    was = pc.fill_null(table[MARKED[kind]], "")
    table = _replaced(table, MARKED[kind], pc.if_else(pc.equal(was, ""), name, pc.binary_join_element_wise(name, was, "/")))
    return (own_blocks(table, number) if kind == "requests" else table).replace_schema_metadata(None)


def _together(names: Sequence[str], parts: Sequence[pa.Table]) -> pa.Table:
    """Parts of all traces below each other, with the columns of all. Raises BadInput."""
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise BadInput(f"{', '.join(names)}: have columns of types that do not go together ({one_line(error)})") from error


def _in_order(rows: pa.Table, kind: str) -> pa.Table:
    order = np.argsort(rows[TIME_COLUMN[kind]].to_numpy(), kind="stable")
    return rows.take(pa.array(order)).combine_chunks()


def own_blocks(requests: pa.Table, number: int, apart: int = OWN_BLOCKS) -> pa.Table:
    """``requests`` with prefix hashes that no trace of another ``number`` has, when all are from 0 to ``apart`` - 1."""
    column = requests["prefix_hashes"].combine_chunks()
    if not number or column.null_count == len(column):
        return requests
    shifted = pc.add(column.values, pa.scalar(number * apart, pa.int64()))
    lists = pa.ListArray.from_arrays(column.offsets, shifted, mask=column.is_null() if column.null_count else None)
    return _replaced(requests, "prefix_hashes", lists)


def _moved(table: pa.Table, kind: str, name: str, start_s: float) -> pa.Table:
    if not start_s:
        return table
    column = TIME_COLUMN[kind]
    if table.num_rows and pc.min(table[column]).as_py() + start_s < 0:
        raise BadInput(f"{name}: moved by {start_s:g} s its first arrival would be before time 0")
    table = _replaced(table, column, pc.add(table[column], start_s))
    return _replaced(table, "end_time", pc.add(table["end_time"], start_s)) if kind == "jobs" else table


def _replaced(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)
