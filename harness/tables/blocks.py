"""A trace of jobs or requests that is read block by block, because it may be larger than memory."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.errors import BadInput
from harness.schema import TRACES, Table, arrow_schema, names
from harness.tables import parquet
from harness.tables.checks import TIME_COLUMN, checked, fill_defaults
from harness.tables.sniff import one_line, read_head, seems

HASH_STEP = np.uint64(0x9E3779B97F4A7C15)


def singly(table: Table) -> Table:
    """The rules of ``table`` that one row can break by itself."""
    return tuple(replace(column, unique=False) for column in table)


class TraceFile:
    """The rows of a Parquet file: its ``schema``, what ``kind`` of trace it is (None: none that can be read in blocks), its number of
    ``rows``, and their blocks of ROW_GROUP rows, the last one shorter.

    Raises BadInput, here and while it is read, when it is no Parquet file or is corrupt.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        head = read_head(self.path)
        if not head.startswith(b"PAR1"):
            raise BadInput(f"{path}: must be a Parquet trace, but seems to be {seems(head)}; `harness-traces import` converts traces")
        try:
            about = pq.read_metadata(self.path)
            self.schema, self.rows = about.schema.to_arrow_schema(), about.num_rows
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _corrupt(self.path, error) from error
        self.kind = next((kind for kind in ("jobs", "requests") if TRACES[kind][0] in self.schema.names), None)
        self.mark, self.table = TRACES[self.kind or "jobs"]
        self.singly = singly(self.table)
        self.time = TIME_COLUMN[self.kind or "jobs"]

    def checked_blocks(self) -> Iterator[pa.Table]:
        """The blocks, checked row by row; after the last one also that no job_id or request_id is there twice. Raises BadInput.

        That check takes 8 bytes for each row.
        """
        hashes, at = np.empty(self.rows, np.uint64), 0
        for raw in self.raw(True):
            block = checked(raw, self.singly, f"{self.path}{f' (rows counted from {at:,})' if at else ''}")
            hashes[at:at + block.num_rows] = string_hashes(block[self.mark])
            at += block.num_rows
            yield block
        hashes.sort()
        self._check_unique(hashes[1:][hashes[1:] == hashes[:-1]])

    def blocks(self) -> Iterator[pa.Table]:
        """The blocks of a file that passed ``checked_blocks``: schema columns first, defaults applied, then the unknown ones."""
        types = {field.name: field.type for field in arrow_schema(self.table)}
        for raw in self.raw(False):
            same = all(raw.schema.field(name).type == types.get(name, raw.schema.field(name).type) for name in raw.column_names)
            yield fill_defaults(raw, self.table) if same else checked(raw, self.singly, str(self.path))

    def in_order(self) -> bool:
        """Whether there is a column of arrivals, of numbers that never fall."""
        at = self.schema.get_field_index(self.time)
        if at < 0 or not (pa.types.is_floating(self.schema.types[at]) or pa.types.is_integer(self.schema.types[at])):
            return False
        last = -np.inf
        for block in self.raw(False, [self.time]):
            times = pc.fill_null(block[self.time].cast(pa.float64(), safe=False), np.nan).to_numpy()
            if times[0] < last or (times[1:] < times[:-1]).any():
                return False
            last = times[-1]
        return True

    def _check_unique(self, suspects: np.ndarray) -> None:
        """Raises BadInput when a name with one of these hashes is there twice."""
        seen: set[str] = set()
        for block in self.raw(False, [self.mark]) if len(suspects) else ():
            names = block[self.mark].cast(pa.string())
            for name in names.filter(pa.array(np.isin(string_hashes(names), suspects))).to_pylist():
                if name in seen:
                    raise BadInput(f"{self.path}: column {self.mark}: '{one_line(name, 40)}' is there twice, must be unique")
                seen.add(name)

    def raw(self, verify: bool, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The blocks as they are in the file, each column in one chunk; page checksums are tested when ``verify``."""
        size = parquet.ROW_GROUP
        waiting, n = [], 0
        try:
            with pq.ParquetFile(self.path, page_checksum_verification=verify) as file:
                for part in _parts(file, columns, size):
                    waiting.append(part)
                    n += part.num_rows
                    while n >= size:
                        whole = pa.concat_tables(waiting)
                        yield whole.slice(0, size).combine_chunks()
                        waiting, n = [whole.slice(size)], n - size
            if n:
                yield pa.concat_tables(waiting).combine_chunks()
        except (pa.ArrowException, OSError) as error:
            raise _corrupt(self.path, error) from error


class TraceColumns:
    """The trace in a file of jobs or requests as a table of which one column at a time is in memory, texts as a number a row.

    Raises BadInput, here, when it is not sound: see ``TraceFile.checked_blocks``.
    """

    def __init__(self, source: TraceFile):
        for _ in source.checked_blocks():
            pass
        self.source, self.num_rows, self.schema = source, source.rows, source.schema
        self.column_names = [*names(source.table), *(name for name in source.schema.names if name not in names(source.table))]

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        """A column of schema type with its default applied, or one beyond the schema as it is."""
        rules = tuple(column for column in self.source.singly if column.name == name)
        if name not in self.schema.names and rules[0].default in names(self.source.table):
            return self[str(rules[0].default)]
        read = [name] if name in self.schema.names else [self.source.time]
        parts = [checked(block, rules, str(self.source.path))[name] for block in self.source.raw(False, read)]
        if pa.types.is_string(parts[0].type):
            parts = [part.dictionary_encode() for part in parts]
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks]).unify_dictionaries()


def _parts(file: pq.ParquetFile, columns: list[str] | None, size: int) -> Iterator[pa.Table]:
    """The rows of a file, in tables of about ``size`` rows."""
    for group in range(file.num_row_groups):
        if file.metadata.row_group(group).num_rows <= 2 * size:
            yield file.read_row_group(group, columns=columns)
        else:
            for batch in file.iter_batches(size, [group], columns=columns):
                yield pa.Table.from_batches([batch])


def string_hashes(names: pa.ChunkedArray | pa.StringArray) -> np.ndarray:
    """A number for each string, u8 (n,): equal strings have equal ones."""
    array = (names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names).cast(pa.large_string())
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset:array.offset + len(array) + 1]
    text = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    length, start = np.diff(offsets), offsets[:-1]
    hashes = length.astype(np.uint64)
    for place in range(int(length.max(initial=0))):
        longer = slice(None) if place < length.min() else np.flatnonzero(length > place)
        hashes[longer] = (hashes[longer] ^ text[start[longer] + place]) * HASH_STEP
        hashes[longer] ^= hashes[longer] >> np.uint64(29)
    return hashes


def _corrupt(path: Path, error: Exception) -> BadInput:
    return BadInput(f"{path}: truncated or corrupt Parquet file ({one_line(error)})")
