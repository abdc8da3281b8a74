"""A part of a trace, by time, kind and number of rows."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.tables.checks import TIME_COLUMN, kind_of


def cut(table: pa.Table, start: float, end: float, kind: str | None, first: int | None, rebase: bool) -> pa.Table:
    """The rows of a trace that arrive in [start, end), of ``kind``, the ``first`` of them in time.

    Rows keep their order; times count from ``start`` when ``rebase``. Of services, the replicas in force at ``start`` begin
    there.
    Raises BadInput when ``kind`` is asked of requests.
    """
    what = kind_of(table, "trace")
    name = TIME_COLUMN[what]
    times = table[name].to_numpy().copy()
    if what == "services":
        order = np.argsort(times, kind="stable")
        services = table["service"].combine_chunks().dictionary_encode().indices.to_numpy()
        before = order[times[order] < start]
        in_force = [row for row in {int(services[row]): int(row) for row in before}.values()
                    if not ((services == services[row]) & (times == start)).any()]
        times[in_force] = start
    keep = (times >= start) & (times < end)
    if kind is not None:
        if "kind" not in table.column_names:
            raise BadInput(f"--kind {kind}: {what} have no kind")
        keep &= pc.equal(table["kind"], kind).to_numpy()
    rows = np.flatnonzero(keep)
    if first is not None:
        rows = np.sort(rows[np.argsort(times[rows], kind="stable")[:first]])
    offset = start if rebase else 0.0
    table = table.set_column(table.column_names.index(name), name, pa.array(times - offset)).take(pa.array(rows))
    if offset and what == "jobs":
        at = table.column_names.index("end_time")
        table = table.set_column(at, "end_time", pc.subtract(table["end_time"], offset))
    return table
