"""Rows of a trace on their way from files to Parquet: sorted runs on disk, merged in bounded memory."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.schema import JOBS, Table
from harness.tables import checked
from harness.tables.blocks import string_hashes
from harness.tables.parquet import ROW_GROUP

ROW = "_row"
"""Hidden column: number of the row in all files together, which breaks ties. Columns that begin with _ are not written."""
RUN_ROWS, BATCH_ROWS = 1 << 19, 1 << 14
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Spool:
    """Rows are added in any order and come out by the column ``order_by``, ties in the order in which they were added.

    ``add`` validates them, so that errors name rows of the file. After ``seal`` the result can be read any number of times. At most
    ``run_rows`` rows (RUN_ROWS by default), and ``BATCH_ROWS`` of every run, are in memory at once; runs lie in a temporary folder
    until the object is gone.
    """

    def __init__(self, table_schema: Table = JOBS, order_by: str = "submit_time", run_rows: int = 0) -> None:
        self.table_schema, self.order_by, self.run_rows = table_schema, order_by, run_rows or RUN_ROWS
        self.sorted = True
        self._last = -np.inf
        self._waiting: list[pa.Table] = []
        self._rows = self._added = 0
        self._runs: list[Path] = []
        self._folder: TemporaryDirectory[str] | None = None
        self._drop = np.empty(0, np.int64)
        self._finish: Callable[[pa.Table], pa.Table] = lambda table: table

    def add(self, columns: Mapping[str, Any], keep: np.ndarray, first: int, source: str) -> None:
        """Adds the rows of the mask ``keep``; ``first`` is the number of the first of all. Raises BadInput for what no trace may hold."""
        table = checked(pa.table(dict(columns)), self.table_schema, source)
        times = table[self.order_by].to_numpy()
        if len(times):
            self.sorted &= bool(times[0] >= self._last and (np.diff(times) >= 0).all())
            self._last = times[-1]
        table = table.append_column(ROW, pa.array(np.arange(first, first + len(keep)))).filter(pa.array(keep))
        self._added += table.num_rows
        self._rows += table.num_rows
        self._waiting.append(table)
        if self._rows >= self.run_rows:
            self._write_run()

    def seal(self, drop: np.ndarray, finish: Callable[[pa.Table], pa.Table], source: str) -> None:
        """No more rows: leaves out those numbered ``drop`` (sorted), and has ``finish`` complete every batch.

        ``finish`` sees the hidden columns, must keep the order and never lose a row. Raises BadInput when no row is left.
        """
        self._drop, self._finish = drop, finish
        if self._runs and self._rows:
            self._write_run()
        self.num_rows = self._added - len(drop)
        if not self.num_rows:
            raise BadInput(f"{source}: no row is left to write")

    def batches(self) -> Iterator[pa.Table]:
        """The rows as tables of at most ROW_GROUP rows, every schema column there, hidden ones gone."""
        for table in self._merged():
            table = self._finish(table.filter(pa.array(~np.isin(table[ROW].to_numpy(), self._drop))) if len(self._drop) else table)
            yield table.drop_columns([name for name in table.column_names if name.startswith("_")])

    def table(self) -> pa.Table:
        """All rows as one table."""
        return pa.concat_tables(self.batches()).combine_chunks()

    def _sorted_waiting(self) -> pa.Table:
        table = pa.concat_tables(self._waiting)
        self._waiting, self._rows = [], 0
        return table.take(pa.array(np.argsort(table[self.order_by].to_numpy(), kind="stable"))).combine_chunks()

    def _write_run(self) -> None:
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="harness-import-")
        path = Path(self._folder.name) / f"{len(self._runs)}.arrow"
        table = self._sorted_waiting()
        try:
            with pa.ipc.new_file(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file:
                file.write_table(table, max_chunksize=BATCH_ROWS)
        except OSError as error:
            free = shutil.disk_usage(self._folder.name).free >> 20
            raise BadInput(f"{self._folder.name}: sorted rows cannot be written ({error.strerror or error}; {free:,} MiB are free); "
                           "TMPDIR names another folder") from error
        self._runs.append(path)
        del table
        pa.default_memory_pool().release_unused()

    def _merged(self) -> Iterator[pa.Table]:
        if not self._runs:
            whole = self._sorted_waiting()
            self._waiting = [whole]
            yield from (whole.slice(start, ROW_GROUP) for start in range(0, whole.num_rows, ROW_GROUP))
            return
        yield from merge([_run(path) for path in self._runs], self.order_by)


def _run(path: Path) -> Iterator[pa.Table]:
    with pa.OSFile(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for i in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(i)])


def merge(runs: Sequence[Iterator[pa.Table]], order_by: str) -> Iterator[pa.Table]:
    """Tables of all ``runs``, each sorted by (order_by, ROW), in that order throughout. Holds one batch of each run at a time.

    In turn, the smallest last key of the batches at hand bounds what can be given out: nothing smaller can come any more.
    """
    heads = [next(run, None) for run in runs]
    while any(head is not None for head in heads):
        keys = {i: (head[order_by].to_numpy(), head[ROW].to_numpy()) for i, head in enumerate(heads) if head is not None}
        bound = min((key[-1], row[-1]) for key, row in keys.values())
        parts = []
        for i, (key, row) in keys.items():
            low, high = np.searchsorted(key, bound[0], "left"), np.searchsorted(key, bound[0], "right")
            end = int(low + np.searchsorted(row[low:high], bound[1], "right"))
            head = heads[i]
            assert head is not None
            parts.append(head.slice(0, end))
            rest = head.slice(end)
            heads[i] = rest if rest.num_rows else next(runs[i], None)
        table = pa.concat_tables(parts)
        order = np.lexsort((table[ROW].to_numpy(), table[order_by].to_numpy()))
        yield table.take(pa.array(order))


class Repeats:
    """Finds rows that equal an earlier one, over all chunks, by 64-bit hashes: one false hit in 10^5 traces of 10^7 rows."""

    def __init__(self) -> None:
        self._hashes: list[np.ndarray] = []

    def add(self, columns: Iterable[pa.ChunkedArray | pa.Array]) -> None:
        """The next rows, by the columns that count."""
        self._hashes.append(hashes(columns))

    def rows(self) -> np.ndarray:
        """Numbers of the rows that equal an earlier one, sorted, i8."""
        return self.pairs()[0]

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the rows that equal an earlier one, sorted, and of the row that each equals first."""
        every = np.concatenate(self._hashes) if self._hashes else np.empty(0, np.uint64)
        self._hashes = [every]
        ordered = np.sort(every)
        twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        del ordered
        if not len(twice):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        value = np.minimum(np.searchsorted(twice, every), len(twice) - 1)
        rows = np.flatnonzero(twice[value] == every)
        value = value[rows]
        first = np.full(len(twice), len(every))
        np.minimum.at(first, value, rows)
        again = rows != first[value]
        return rows[again], first[value][again]


def hashes(columns: Iterable[pa.ChunkedArray | pa.Array]) -> np.ndarray:
    """A 64-bit hash of each row, u8 (rows,); nulls equal nulls."""
    result: np.ndarray | None = None
    for column in columns:
        flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if pa.types.is_string(flat.type):
            code = np.where(flat.is_null().to_numpy(zero_copy_only=False), _GOLDEN, string_hashes(flat.fill_null("")))
        else:
            values = flat.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False) + 0.0
            code = np.where(np.isnan(values), np.nan, values).view(np.uint64)
        result = _mixed(code if result is None else result * _GOLDEN ^ code)
    assert result is not None
    return result


def _mixed(x: np.ndarray) -> np.ndarray:
    """Finaliser of SplitMix64."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

