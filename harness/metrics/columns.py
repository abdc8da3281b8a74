"""The columns of a jobs table that may be larger than memory, one at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.cluster.state import Array


class FilePieces:
    """The tables, row group by row group, of a Parquet file of ours."""

    def __init__(self, path: Path):
        self.path, self.rows = path, pq.read_metadata(path).num_rows

    def select(self, names: Sequence[str]) -> Iterator[pa.Table]:
        with pq.ParquetFile(self.path) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=list(names))


class Columns:
    """Columns of the tables ``pieces`` below each other, but only of the rows in ``kept`` (J,): everything is about these alone."""

    def __init__(self, pieces: Sequence[pa.Table] | FilePieces, kept: Array | None = None):
        self.pieces, self.kept = pieces, kept
        self.rows = pieces.rows if isinstance(pieces, FilePieces) else sum(piece.num_rows for piece in pieces)

    def where(self, name: str, low: float) -> "Columns":
        """The same columns for the rows whose number ``name`` is at least ``low``."""
        kept = np.concatenate([piece >= low for piece, in self._read((name,))])
        return self if kept.all() else Columns(self.pieces, kept)

    def numbers(self, name: str, chosen: Array | None = None) -> Array:
        """A column as floats or integers (n,), null as nan; of the rows ``chosen`` (mask) alone. Read-only where nothing was copied."""
        return self.computed(lambda values: values, (name,), chosen)

    def computed(self, function: Callable[..., Array], names: Sequence[str], chosen: Array | None = None) -> Array:
        """What ``function`` makes of some columns (n,), for the rows ``chosen`` alone."""
        rows = self._rows(chosen)
        whole, at, found = np.zeros(0), 0, 0
        for values in self._read(names):
            result = function(*values)
            if rows is None and len(result) == self.rows:
                return result
            part = result if rows is None else result[rows[at:at + len(result)]]
            if not at:
                whole = np.empty(self.rows if rows is None else np.count_nonzero(rows), part.dtype)
            whole[found:found + len(part)] = part
            at, found = at + len(result), found + len(part)
        return whole

    def codes(self, name: str, words: tuple[str, ...]) -> Array:
        """Positions in ``words`` of a column of words: i1 (n,)."""
        found = np.concatenate([pc.index_in(table[name], value_set=pa.array(words)).to_numpy().astype(np.int8)
                                for table in self._tables((name,))])
        return found if self.kept is None else found[self.kept]

    def largest(self, name: str) -> float | None:
        """The largest number of a column; None without any."""
        values = self.numbers(name)
        return None if np.isnan(values).all() else float(np.nanmax(values))

    def _rows(self, chosen: Array | None) -> Array | None:
        """``chosen``, a mask of the rows kept, as one of all rows; None for all."""
        if self.kept is None or chosen is None:
            return self.kept if chosen is None else chosen
        rows = self.kept.copy()
        rows[self.kept] = chosen
        return rows

    def _tables(self, names: Sequence[str]) -> Iterable[pa.Table]:
        return self.pieces.select(names) if isinstance(self.pieces, FilePieces) else (piece.select(names) for piece in self.pieces)

    def _read(self, names: Sequence[str]) -> Iterator[tuple[Array, ...]]:
        for table in self._tables(names):
            yield tuple(table[name].to_numpy() for name in names)
