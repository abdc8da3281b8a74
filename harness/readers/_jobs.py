"""What readers of jobs share: rows of chunks gathered into one trace, with repeated rows, reused names and open ends settled."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._csv import Chunk
from harness.readers._rules import RowOptions, Tally
from harness.readers._spool import ROW, Repeats, Spool
from harness.schema import JOBS
from harness.tables import rows_text
from harness.tables.blocks import singly

SHORTEST_OPEN_S = 1.0
"""A job without an end lasts at least that long."""
START = "_start"
"""Hidden column: when a job without an end started; NaN for the others."""


class JobRows:
    """The jobs of an import, whose ``options`` have duplicates and unsorted.

    ``names`` says where job_id comes from: ``made`` by the reader, so unique; ``given`` by the file, where only an exact repetition
    of a row may use a name again; ``reused`` when other rows may, too. A name that comes again gets ``#ROW`` behind it, unless only the
    ``last_of_name`` is wanted.
    """

    def __init__(self, paths: Sequence[Path], tally: Tally, options: RowOptions, names: str, last_of_name: bool = False) -> None:
        self.source = ", ".join(str(path) for path in paths)
        self.tally, self.names = tally, names
        self.duplicates, self.unsorted = options.duplicates, options.unsorted
        self.spool = Spool(singly(JOBS), "submit_time")
        self.last_of_name = last_of_name
        self._repeats, self._ids = Repeats(), Repeats()
        self._keep: list[np.ndarray] = []

    def add(self, source: str, columns: Mapping[str, Any], keep: np.ndarray,
            same: Iterable[pa.ChunkedArray | pa.Array]) -> None:
        """Further rows, of which the mask ``keep`` goes on. Equal values in the columns ``same`` make an exact repetition."""
        self._repeats.add(same)
        if self.names != "made":
            self._ids.add([columns["job_id"]])
        self.spool.add(columns, keep, sum(map(len, self._keep)), source)
        self._keep.append(keep)

    def add_chunk(self, chunk: Chunk, columns: Mapping[str, Any], keep: np.ndarray) -> None:
        """``add`` for the rows of ``chunk``, all of whose columns count."""
        self.add(chunk.source, columns, keep, chunk.table.columns)

    def done(self, origin: float = 0.0, until: float | None = None, drop: Sequence[int] | np.ndarray = ()) -> Spool:
        """The trace: times count from ``origin``, jobs without an end run ``until`` then, rows numbered ``drop`` are left out."""
        kept = np.concatenate(self._keep)
        again = self._repeats.rows()
        self.tally.add(f"exact repetitions of an earlier row: {{:,}} {'kept' if self.duplicates == 'keep' else 'dropped'}", len(again))
        out = np.union1d(np.asarray(drop, np.int64), again if self.duplicates == "drop" else np.empty(0, np.int64))
        out = np.union1d(out, self._superseded())
        out = out[kept[out]]
        renamed = self._renamed(again, kept)
        if not self.spool.sorted:
            if self.unsorted == "refuse":
                raise BadInput(f"{self.source}: not sorted by submission, must be (--unsorted sort sorts)")
            self.tally.say("not sorted by submission: sorted, ties in file order")

        def finish(table: pa.Table) -> pa.Table:
            rows = table[ROW].to_numpy()
            if len(renamed):
                table = _rename(table, np.isin(rows, renamed), rows)
            if until is not None:
                table = _close(table, until)
            return _shift(table, origin) if origin else table

        self.spool.seal(out, finish, self.source)
        return self.spool

    def _superseded(self) -> np.ndarray:
        """Numbers of the rows that a later one of the same name replaces."""
        if not self.last_of_name:
            return np.empty(0, np.int64)
        rows, first = self._ids.pairs()
        last = {name: row for name, row in zip(first.tolist(), rows.tolist(), strict=True)}
        older = np.setdiff1d(np.union1d(rows, first), np.array(list(last.values()), np.int64))
        self.tally.add("earlier records of a name: {:,} dropped", len(older))
        return older

    def _renamed(self, again: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Numbers of the rows whose name was used before. Raises BadInput when it may not be."""
        if self.names == "made" or self.last_of_name:
            return np.empty(0, np.int64)
        rows, first = self._ids.pairs()
        fresh = ~np.isin(rows, again)
        if self.names == "given" and fresh.any():
            bad = np.zeros(len(kept), bool)
            bad[rows[fresh]] = True
            raise BadInput(f"{self.source}: column job_id, {rows_text(bad)}: was used by an earlier row ({first[fresh][0]}), "
                           "must be a unique string")
        if self.duplicates == "drop":
            rows = rows[fresh]
        self.tally.add("names used by an earlier row: {:,} got # and the row's number behind them", kept[rows].sum())
        return rows


def _rename(table: pa.Table, which: np.ndarray, rows: np.ndarray) -> pa.Table:
    names = pc.binary_join_element_wise(table["job_id"], pc.cast(pa.array(rows), pa.string()), "#")
    return _put(table, "job_id", pc.if_else(pa.array(which), names, table["job_id"]))


def _close(table: pa.Table, until: float) -> pa.Table:
    """``table`` with open ends at ``until``; an estimate that was no more than the placeholder of the duration follows it."""
    start, before = table[START].to_numpy(), table["duration"].to_numpy()
    length = np.where(np.isfinite(start), np.maximum(until - start, SHORTEST_OPEN_S), before)
    estimate = table["duration_estimate_s"].to_numpy()
    table = _put(table, "duration", pa.array(length))
    return _put(table, "duration_estimate_s", pa.array(np.where(estimate == before, length, estimate)))


def _shift(table: pa.Table, origin: float) -> pa.Table:
    for name in ("submit_time", "end_time"):
        table = _put(table, name, pc.subtract(table[name], origin))
    return table


def _put(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)
