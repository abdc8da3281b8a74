"""Parquet files in and out: read whole and checked, written whole or not at all."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import BadInput
from harness.schema import TRACES
from harness.tables.checks import checked, kind_of
from harness.tables.sniff import one_line, read_head, seems

METADATA_KEY = b"harness"

ROW_GROUP = 262_144
"""Rows of a row group of the files we write."""

FORMAT: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True, "use_dictionary": False}
"""Without dictionaries: most columns are times or names that do not come again, and zstd finds what does. A million jobs are written in
a quarter less time, to a quarter less space."""


def read_trace(path: str | Path, kind: str | None = None) -> pa.Table:
    """The trace in ``path``: schema columns first (defaults applied), then the unknown ones as they are.

    ``kind`` is jobs, services or requests; by default the column that marks the kind decides. Row order is kept. The table keeps
    the file's ``harness`` metadata. Raises BadInput with file, column, rows (from 0), what is wrong and what would be right.
    """
    if kind is not None and kind not in TRACES:
        raise BadInput(f"{path}: unknown kind of trace '{kind}', must be one of {', '.join(TRACES)}")
    table = read_parquet(path)
    return checked(table, TRACES[kind or kind_of(table, str(path))][1], str(path))


def read_parquet(path: str | Path) -> pa.Table:
    """The raw table in ``path``. Raises BadInput when it is absent, a folder, empty, truncated, corrupt or no Parquet file."""
    path = Path(path)
    head = read_head(path)
    if not head.startswith(b"PAR1"):
        raise BadInput(f"{path}: must be a Parquet trace, but seems to be {seems(head)}; `harness-traces import` converts traces")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError, NotImplementedError, TypeError) as error:
        raise BadInput(f"{path}: truncated or corrupt Parquet file ({one_line(error)})") from error
    kept = {METADATA_KEY: table.schema.metadata[METADATA_KEY]} if METADATA_KEY in (table.schema.metadata or {}) else None
    return table.replace_schema_metadata(kept)


def metadata_of(table: pa.Table) -> dict[str, Any]:
    """What ``write_table`` was given as metadata, as it travels with ``table``; {} when there is none or it is not ours."""
    try:
        found = json.loads((table.schema.metadata or {}).get(METADATA_KEY, b"{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def write_table(table: pa.Table, path: str | Path, metadata: Mapping[str, Any] | None = None) -> None:
    """Writes ``table`` whole or not at all (temporary name in the same folder, then a rename), zstd, with page checksums.

    The same table and metadata give the same bytes. ``metadata`` (values that JSON can hold) goes into the schema metadata under
    the key ``harness``. Missing folders are made. Raises BadInput when the place cannot be written.
    """
    plain = table.replace_schema_metadata(_packed(metadata))
    write_atomically(path, lambda temporary: pq.write_table(plain, temporary, ROW_GROUP, **FORMAT))


class TableWriter:
    """Writes a table that comes in pieces: the same bytes as ``write_table`` of them below each other, with the same ``metadata``.

    At least one piece must be written. Meant for a folder that gets its name when it is whole.
    """

    def __init__(self, path: Path, metadata: Mapping[str, Any] | None = None):
        self.path, self.file, self.waiting = path, None, []
        self.packed = _packed(metadata)

    def write(self, piece: pa.Table) -> None:
        self.waiting.append(piece.replace_schema_metadata(self.packed))
        while sum(table.num_rows for table in self.waiting) >= ROW_GROUP:
            self._row_group()

    def _row_group(self) -> None:
        whole = pa.concat_tables(self.waiting).combine_chunks()
        if self.file is None:
            self.file = pq.ParquetWriter(self.path, whole.schema, **FORMAT)
        self.file.write_table(whole.slice(0, ROW_GROUP), ROW_GROUP)
        self.waiting = [whole.slice(ROW_GROUP)] if whole.num_rows > ROW_GROUP else []

    def close(self) -> None:
        if self.waiting and (self.file is None or sum(table.num_rows for table in self.waiting)):
            self._row_group()
        if self.file is not None:
            self.file.close()


def write_batches(batches: Iterable[pa.Table], path: str | Path, metadata: Mapping[str, Any]) -> pa.Schema:
    """``write_table`` for a trace that comes in pieces (at least one), with the same bytes; returns the schema of the pieces."""
    schemas: list[pa.Schema] = []

    def write(temporary: Path) -> None:
        writer = TableWriter(temporary, metadata)
        try:
            for batch in batches:
                schemas[:] = [batch.schema]
                writer.write(batch)
        finally:
            writer.close()

    write_atomically(path, write)
    return schemas[0]


def _packed(metadata: Mapping[str, Any] | None) -> dict[bytes, bytes] | None:
    return {METADATA_KEY: json.dumps(metadata, sort_keys=True).encode()} if metadata else None


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Calls ``write(temporary)``, then renames the file to ``path``; leaves nothing behind when that fails.

    Missing folders are made. Raises BadInput when the place cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp") if path.name else path
    try:
        if path.is_dir():
            raise BadInput(f"{path}: is a folder, must be a file name")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"{one_line(path)}: cannot be written ({one_line(error)})") from error
