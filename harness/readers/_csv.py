"""CSV as it is found in the wild: compressed, with a BOM, columns in any order, or something else altogether. In chunks of rows."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._stream import TextStream
from harness.tables import one_line, rows_text

CHUNK_BYTES = 1 << 22
HEADER_BYTES = 1 << 16


class Dialect(NamedTuple):
    """How rows are written. ``names`` are those of a file without header; ``edit`` changes its lines first."""

    expected: str = "CSV"
    separator: str = ","
    quote: str | bool = '"'
    names: tuple[str, ...] = ()
    edit: Callable[[bytes], bytes] | None = None


class Chunk(NamedTuple):
    """Consecutive rows of a file: the columns asked for that it has, by name and typed (an empty field is null).

    ``first`` is the number of the first row in its file and ``number`` in all files; ``source`` names the file in errors.
    """

    table: pa.Table
    path: Path
    source: str
    first: int
    number: int
    ignored: tuple[str, ...]

    def __contains__(self, name: object) -> bool:
        return name in self.table.column_names

    @property
    def rows(self) -> int:
        return self.table.num_rows


CSV = Dialect()


def read_chunks(paths: Sequence[Path], columns: Mapping[str, pa.DataType], required: tuple[str, ...],
                dialect: Dialect = CSV) -> Iterator[Chunk]:
    """The rows of all files in turn, about CHUNK_BYTES of text at a time.

    Raises BadInput when a file is no CSV, lacks one of ``required``, or has a row of the wrong length or a field of the wrong type.
    """
    number = 0
    for path in paths:
        header = _header(path, dialect)
        taken = _taken(path, header, columns, required)
        ignored = tuple(name for name in header if name not in columns)
        first = 0
        for table in _tables(path, taken, dialect):
            source = f"{path}, counted from row {first}" if first else str(path)
            yield Chunk(table, path, source, first, number, ignored)
            first += table.num_rows
            number += table.num_rows
        if not first:
            raise BadInput(f"{path}: has a header but no rows")


def read_csv(path: Path, columns: Mapping[str, pa.DataType], required: tuple[str, ...]) -> tuple[pa.Table, list[str]]:
    """All rows of ``path`` as ``read_chunks`` gives them, and the names of the columns it has beyond ``columns``."""
    chunks = list(read_chunks([path], columns, required))
    return pa.concat_tables([chunk.table for chunk in chunks]), list(chunks[0].ignored)


def header_of(path: Path) -> list[str]:
    """The names in the first line of a CSV file. Raises BadInput when it is none."""
    return _header(path, CSV)


def _header(path: Path, dialect: Dialect) -> list[str]:
    stream = TextStream(path, dialect.expected, dialect.edit)
    line = stream.read(HEADER_BYTES).partition(b"\n")[0]
    stream.close()
    if dialect.names:
        return list(dialect.names)
    try:
        words = line.decode("utf-8").rstrip("\r")
        return next(csv.reader([words], delimiter=dialect.separator), []) if dialect.quote else words.split(dialect.separator)
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: the header is not {dialect.expected} ({one_line(error, 100)})") from error


def _taken(path: Path, header: list[str], columns: Mapping[str, pa.DataType], required: tuple[str, ...]) -> dict[str, pa.DataType]:
    """The columns to read. Raises BadInput when one is missing or there twice."""
    missing = [name for name in required if name not in header]
    if missing:
        found = one_line(", ".join(header), 120)
        others = ", ".join(name for name in columns if name not in required)
        raise BadInput(f"{path}: columns missing: {', '.join(missing)}; must have {', '.join(required)}"
                       f"{f' (and may have {others})' if others else ''}; found {found}{_hint(header)}")
    taken = {name: kind for name, kind in columns.items() if name in header}
    twice = [name for name in taken if header.count(name) > 1]
    if twice:
        raise BadInput(f"{path}: column {twice[0]}: there {header.count(twice[0])} times, must be there once")
    return taken


def _tables(path: Path, types: Mapping[str, pa.DataType], dialect: Dialect) -> Iterator[pa.Table]:
    bad_rows: list[str] = []
    try:
        yield from _parsed(path, types, dialect, bad_rows)
    except pa.ArrowException as error:
        if bad_rows:
            raise BadInput(f"{path}: {bad_rows[0]}") from error
        raise BadInput(_why(path, types, dialect, error)) from error


def _parsed(path: Path, types: Mapping[str, pa.DataType], dialect: Dialect, bad_rows: list[str]) -> Iterator[pa.Table]:
    from pyarrow import csv as arrow_csv

    begin = 1 if dialect.names else 2

    def remember(row: Any) -> str:
        at = f"row {row.number - begin}: " if row.number else ""
        bad_rows.append(f"{at}{row.actual_columns} fields, must be {row.expected_columns}: {one_line(row.text, 60)}")
        return "error"

    stream = TextStream(path, dialect.expected, dialect.edit)
    try:
        reader = arrow_csv.open_csv(
            pa.PythonFile(stream, mode="r"),
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=CHUNK_BYTES, column_names=list(dialect.names) or None),
            parse_options=arrow_csv.ParseOptions(delimiter=dialect.separator, quote_char=dialect.quote,
                                                 newlines_in_values=bool(dialect.quote), invalid_row_handler=remember),
            convert_options=arrow_csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=[""],
                                                     strings_can_be_null=True, quoted_strings_can_be_null=True),
        )
        for batch in reader:
            if batch.num_rows:
                yield pa.Table.from_batches([batch])
    finally:
        stream.close()


def _hint(header: list[str]) -> str:
    """What else the file may be, by its header."""
    line = ",".join(header)
    for sign, name in (("\t", "tabs"), (";", "semicolons"), ("|", "vertical bars")):
        if len(header) == 1 and sign in line:
            return f" (separated by {name}, must be commas)"
    if len(header) == 1 and "," in line:
        return " (separated by commas)"
    from harness.readers import format_names

    for name in format_names():
        needs = getattr(import_module(f"harness.readers.{name.replace('-', '_')}"), "REQUIRED", ())
        if len(needs) > 2 and set(needs) <= set(header):
            return f" (these are columns of the format {name})"
    if header and all(word.replace(".", "").replace("-", "").isdigit() for word in header if word):
        return " (the first line is numbers: is the header missing?)"
    return ""


def _why(path: Path, types: Mapping[str, pa.DataType], dialect: Dialect, error: Exception) -> str:
    """The column, rows and value that made typed parsing fail, found by parsing everything as text."""
    if "Empty CSV file" in str(error):
        return f"{path}: has a header but no rows"
    bad_rows: list[str] = []
    masks: dict[str, list[np.ndarray]] = {name: [] for name in types}
    first: dict[str, str] = {}
    try:
        for text in _parsed(path, {name: pa.string() for name in types}, dialect, bad_rows):
            for name, kind in types.items():
                words = pc.unique(text[name])
                bad = pc.is_in(text[name], words.filter(pa.array([not _readable(word, kind) for word in words.to_pylist()]))).to_numpy()
                masks[name].append(bad)
                if bad.any():
                    first.setdefault(name, text[name][int(np.argmax(bad))].as_py())
    except pa.ArrowException:
        return f"{path}: {bad_rows[0]}" if bad_rows else f"{path}: is not {dialect.expected} ({one_line(error)})"
    for name in first:
        right = "a time such as 2017-10-09 07:01:55" if pa.types.is_timestamp(types[name]) else "a number"
        return f"{path}: column {name}, {rows_text(np.concatenate(masks[name]))}: '{one_line(first[name], 40)}' must be {right}"
    return f"{path}: is not {dialect.expected} ({one_line(error)})"


def _readable(value: str | None, kind: pa.DataType) -> bool:
    try:
        pa.scalar(value, pa.string()).cast(kind)
    except pa.ArrowException:
        return False
    return True
