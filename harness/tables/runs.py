"""Rows that come in pieces, given back in order of an integer column, in bounded memory.

Pieces are gathered to runs of a fixed size, each sorted; runs that follow each other become one chain. What fits into one run stays
in memory, more goes to temporary files (in the folder that TMPDIR names), and chains are merged block by block while they are read.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

RUN_BYTES = 128 * 2**20
BLOCK_ROWS = 1 << 17


class Runs:
    """Sorts rows by the int64 column ``key``, then by the int64 column ``row``, which numbers them.

    ``run_bytes`` is the size of a run in memory; about four of them are held at a time, and one block of each chain.
    """

    def __init__(self, key: str, row: str, run_bytes: int = RUN_BYTES, block_rows: int = BLOCK_ROWS) -> None:
        self.key, self.row, self.run_bytes, self.block_rows = key, row, run_bytes, block_rows
        self._gathered: list[pa.Table] = []
        self._bytes = 0
        self._folder: TemporaryDirectory[str] | None = None
        self._chains: list[_Chain] = []
        self.rows = 0

    @property
    def in_memory(self) -> bool:
        """Whether everything so far fits into one run."""
        return self._folder is None

    def add(self, piece: pa.Table) -> None:
        """Takes the rows of ``piece``; all pieces have the same schema."""
        if not piece.num_rows:
            return
        self._gathered.append(piece)
        self._bytes += piece.nbytes
        self.rows += piece.num_rows
        if self._bytes >= self.run_bytes:
            self._spill()

    def __iter__(self) -> Iterator[pa.Table]:
        """The rows in order, in tables; rows of one key are always in one table. Call it once, when all pieces are added."""
        if self.in_memory:
            yield self._run()
            return
        if self._gathered:
            self._spill()
        for chain in self._chains:
            chain.close()
        with ExitStack() as stack:
            assert self._folder is not None
            stack.enter_context(self._folder)
            blocks = [_Blocks(stack.enter_context(pa.OSFile(str(chain.path))), self.key) for chain in self._chains]
            while any(len(block.table) for block in blocks):
                yield self._next(blocks)

    def _run(self) -> pa.Table:
        table = pa.concat_tables(self._gathered) if self._gathered else pa.table({})
        self._gathered, self._bytes = [], 0
        return self._sorted(table) if table.num_rows else table

    def _sorted(self, table: pa.Table) -> pa.Table:
        keys = table[self.key].to_numpy()
        rows = table[self.row].to_numpy()
        later = (keys[1:] > keys[:-1]) | ((keys[1:] == keys[:-1]) & (rows[1:] > rows[:-1]))
        return table if later.all() else table.take(pa.array(np.lexsort((rows, keys))))

    def _spill(self) -> None:
        """Writes what is gathered behind the chain that it follows most closely, or as a new one."""
        run = self._run()
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="harness-runs-")
        keys = run[self.key]
        first, last = keys[0].as_py(), keys[-1].as_py()
        chain = max((c for c in self._chains if c.last <= first), key=lambda c: c.last, default=None)
        if chain is None:
            chain = _Chain(Path(self._folder.name) / str(len(self._chains)), run.schema)
            self._chains.append(chain)
        chain.writer.write_table(run, max_chunksize=self.block_rows)
        chain.last = last

    def _next(self, blocks: list["_Blocks"]) -> pa.Table:
        """The rows that no later block can come before, one key's rows complete."""
        while True:
            bound = min((block.last for block in blocks if not block.ended), default=None)
            taken = [block.take_below(bound) for block in blocks]
            if any(part.num_rows for part in taken):
                return self._sorted(pa.concat_tables([part for part in taken if part.num_rows]))
            for block in blocks:
                if not block.ended and block.last == bound:
                    block.extend()


class _Chain:
    """A temporary file of sorted rows, being written."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.last: int = 0
        self._file = pa.OSFile(str(path), "wb")
        self.writer: Any = pa.ipc.new_stream(self._file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))

    def close(self) -> None:
        self.writer.close()
        self._file.close()


class _Blocks:
    """A temporary file of sorted rows, being read: ``table`` is what of it is in memory."""

    def __init__(self, file: pa.NativeFile, key: str) -> None:
        self.key = key
        self.reader = pa.ipc.open_stream(file)
        self.table = self.reader.schema.empty_table()
        self.ended = False
        self.extend()

    @property
    def last(self) -> int:
        return self.table[self.key][-1].as_py()

    def extend(self) -> None:
        """Reads one block more."""
        try:
            batch = self.reader.read_next_batch()
        except StopIteration:
            self.ended = True
            return
        self.table = pa.concat_tables([self.table, pa.Table.from_batches([batch])])

    def take_below(self, bound: int | None) -> pa.Table:
        """Takes the rows with a key below ``bound`` (all of them without one) out of the block; an empty block is filled again."""
        keys = self.table[self.key].to_numpy()
        count = len(keys) if bound is None else int(np.searchsorted(keys, bound, side="left"))
        part, self.table = self.table.slice(0, count), self.table.slice(count)
        if not self.table.num_rows and not self.ended:
            self.extend()
        return part
