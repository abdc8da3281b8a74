"""Large files in pieces, in bounded memory: CSV and JSON lines, compressed or not."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.errors import BadInput
from harness.readers import _csv
from harness.tables import one_line
from harness.tables.sniff import BOM, compression, read_head, seems

BLOCK_BYTES = 1 << 24
HEAD_BYTES = 1 << 16
EXPLAINED_BYTES = 1 << 28
"""Files up to this size are read again as a whole to say which row is wrong."""


def csv_pieces(path: Path, columns: Mapping[str, pa.DataType], required: tuple[str, ...], ignored: list[str]) -> Iterator[pa.Table]:
    """What ``_csv.read_csv`` gives, in pieces of a few MiB; the names of further columns are added to ``ignored``.

    Raises BadInput as it does.
    """
    from pyarrow import csv as arrow_csv

    head = _head(path)
    _csv._refuse_other(path, head)
    header = _csv._header(path, head.removeprefix(BOM))
    taken = {name: kind for name, kind in columns.items() if name in header}
    sound = all(name in header for name in required) and not any(header.count(name) > 1 for name in taken)
    if not sound:
        _csv.read_csv(path, columns, required)
    ignored += [name for name in header if name not in columns]
    rows = 0
    with ExitStack() as stack:
        try:
            pieces = arrow_csv.open_csv(
                _open(path, stack),
                read_options=arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
                parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(column_types=taken, include_columns=list(taken), null_values=[""],
                                                         strings_can_be_null=True, quoted_strings_can_be_null=True),
            )
            for batch in pieces:
                if batch.num_rows:
                    rows += batch.num_rows
                    yield pa.Table.from_batches([batch])
        except (pa.ArrowException, OSError, EOFError) as error:
            if path.stat().st_size <= EXPLAINED_BYTES:
                _csv.read_csv(path, columns, required)
            raise BadInput(f"{path}: behind row {rows}: {one_line(error)}") from error
    if not rows:
        raise BadInput(f"{path}: has a header but no rows")


def json_pieces(path: Path, fields: Mapping[str, pa.DataType], required: tuple[str, ...]) -> Iterator[pa.Table]:
    """The ``fields`` of JSON lines, typed, in pieces of a few MiB; other fields are left out, absent ones are null.

    Raises BadInput when the file is something else, a line is not JSON or a field has another type, or one of ``required`` is missing.
    """
    from pyarrow import json as arrow_json

    what = seems(_head(path))
    if what != "JSON":
        raise BadInput(f"{path}: must be JSON lines (one object a line), but seems to be {what}")
    rows = 0
    with ExitStack() as stack:
        try:
            pieces = arrow_json.open_json(
                _open(path, stack),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
                parse_options=arrow_json.ParseOptions(explicit_schema=pa.schema(list(fields.items())),
                                                      unexpected_field_behavior="ignore"),
            )
            for batch in pieces:
                table = pa.Table.from_batches([batch])
                for name in required:
                    if table[name].null_count:
                        row = rows + table[name].is_null().to_pylist().index(True)
                        raise BadInput(f"{path}: row {row}: field {name} is missing; a row must have {', '.join(required)}")
                rows += batch.num_rows
                yield table
        except (pa.ArrowException, OSError, EOFError) as error:
            found = re.sub(r" in row (\d+)", lambda m: f" in row {rows + int(m[1])}", str(error))
            raise BadInput(f"{path}: is not JSON lines with {', '.join(required)} ({one_line(found)})") from error


def header_of(path: Path) -> list[str]:
    """The names in the first line of a CSV file. Raises BadInput when it seems to be something else."""
    head = _head(path)
    _csv._refuse_other(path, head)
    return _csv._header(path, head.removeprefix(BOM))


def first_line(path: Path) -> str:
    """The first line behind the header, as far as it is near the start of the file; "" when there is none."""
    lines = _head(path).splitlines()
    return lines[1].decode("utf-8", "replace") if len(lines) > 1 else ""


def _open(path: Path, stack: ExitStack) -> Any:
    """The unpacked bytes of ``path`` as a stream that Arrow reads."""
    kind = compression(read_head(path))
    file = stack.enter_context(pa.OSFile(str(path)))
    if kind is None:
        return file
    if kind == "zstd":
        return stack.enter_context(pa.CompressedInputStream(file, "zstd"))
    return stack.enter_context(pa.PythonFile(stack.enter_context(_csv._OPENERS[kind](path, "rb")), mode="r"))


def _head(path: Path) -> bytes:
    """The first unpacked bytes of ``path``. Raises BadInput when it is absent, empty or a broken archive."""
    try:
        with ExitStack() as stack:
            return _open(path, stack).read(HEAD_BYTES)
    except (OSError, EOFError, pa.ArrowException, ValueError) as error:
        raise BadInput(f"{path}: truncated or corrupt {compression(read_head(path)) or ''} file ({one_line(error)})") from error
