"""CSV as it is found in the wild: compressed, with a BOM, columns in any order, or something else altogether."""

import bz2
import codecs
import csv
import gzip
import lzma
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.tables import one_line, rows_text
from harness.tables.sniff import BOM, HEAD_BYTES, compression, read_head, seems

_OPENERS = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}
_TEXT = "text that begins"
PIECE_BYTES = 1 << 24


def read_bytes(path: Path) -> bytes:
    """The content of ``path``, unpacked when its first bytes say gzip, bz2, xz or zstd.

    Raises BadInput when it is absent, empty or a broken archive.
    """
    kind = compression(read_head(path))
    try:
        if kind is None:
            return path.read_bytes()
        if kind == "zstd":
            with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
                return stream.read()
        with _OPENERS[kind](path, "rb") as file:
            return file.read()
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException, ValueError) as error:
        what = f"truncated or corrupt {kind} file" if kind else "cannot be read"
        raise BadInput(f"{path}: {what} ({one_line(error)})") from error


def read_csv(path: Path, columns: Mapping[str, pa.DataType], required: tuple[str, ...]) -> tuple[pa.Table, list[str]]:
    """The ``columns`` that ``path`` has, by name and typed (an empty field is null), and the names of those it has beyond them.

    Raises BadInput when the file is no CSV, lacks one of ``required``, or has a row of the wrong length or a field of the
    wrong type.
    """
    from pyarrow import csv as arrow_csv

    data = read_bytes(path)
    _refuse_other(path, data[:HEAD_BYTES])
    _require_utf8(path, data)
    data = data.removeprefix(BOM)
    header = _header(path, data)
    missing = [name for name in required if name not in header]
    if missing:
        found = one_line(", ".join(header), 120)
        others = ", ".join(name for name in columns if name not in required)
        raise BadInput(f"{path}: columns missing: {', '.join(missing)}; must have {', '.join(required)}"
                       f"{f' (and may have {others})' if others else ''}; found {found}{_separator_hint(header)}")
    taken = {name: kind for name, kind in columns.items() if name in header}
    twice = [name for name in taken if header.count(name) > 1]
    if twice:
        raise BadInput(f"{path}: column {twice[0]}: there {header.count(twice[0])} times, must be there once")
    bad_rows: list[str] = []

    def remember(row: arrow_csv.InvalidRow) -> str:
        at = f"row {row.number - 2}: " if row.number else ""
        bad_rows.append(f"{at}{row.actual_columns} fields, must be {row.expected_columns}: {one_line(row.text, 60)}")
        return "error"

    def parse(types: Mapping[str, pa.DataType]) -> pa.Table:
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(use_threads=False),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=remember),
            convert_options=arrow_csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=[""],
                                                     strings_can_be_null=True, quoted_strings_can_be_null=True),
        )

    try:
        table = parse(taken)
    except pa.ArrowException as error:
        if bad_rows:
            raise BadInput(f"{path}: {bad_rows[0]}") from error
        raise BadInput(_why(path, parse, taken, error)) from error
    if table.num_rows == 0:
        raise BadInput(f"{path}: has a header but no rows")
    return table, [name for name in header if name not in columns]


def _refuse_other(path: Path, head: bytes) -> None:
    """Raises BadInput when ``head`` does not look like delimited text."""
    what = seems(head)
    if not what.startswith(_TEXT):
        raise BadInput(f"{path}: must be CSV, but seems to be {what}")


def _require_utf8(path: Path, data: bytes) -> None:
    """Raises BadInput with the first line that is not UTF-8. In pieces: the text is not needed."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data), PIECE_BYTES):
        piece = data[start:start + PIECE_BYTES]
        try:
            decoder.decode(piece, final=start + PIECE_BYTES >= len(data))
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, start) + piece.count(b"\n", 0, max(error.start, 0)) + 1
            raise BadInput(f"{path}: line {line} is not text in UTF-8 (Latin-1 or a damaged file?), save it as UTF-8") from error


def _header(path: Path, data: bytes) -> list[str]:
    end = data.find(b"\n")
    line = data if end < 0 else data[:end]
    try:
        return next(csv.reader([line.decode("utf-8").rstrip("\r")]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: the header is not CSV ({one_line(error, 100)})") from error


def _separator_hint(header: list[str]) -> str:
    line = ",".join(header)
    for sign, name in (("\t", "tabs"), (";", "semicolons"), ("|", "vertical bars")):
        if len(header) == 1 and sign in line:
            return f" (separated by {name}, must be commas)"
    return ""


def _why(path: Path, parse, types: Mapping[str, pa.DataType], error: Exception) -> str:
    """The column, rows and value that made typed parsing fail, found by parsing everything as text."""
    try:
        text = parse({name: pa.string() for name in types})
    except pa.ArrowException:
        return f"{path}: is not CSV ({one_line(error)})"
    for name, kind in types.items():
        bad = np.array([not _readable(value, kind) for value in pc.unique(text[name]).to_pylist()])
        if bad.any():
            values = pc.unique(text[name]).filter(pa.array(bad))
            rows = pc.is_in(text[name], values).to_numpy()
            first = text[name][int(np.argmax(rows))].as_py()
            return f"{path}: column {name}, {rows_text(rows)}: '{one_line(first, 40)}' must be {_words(kind)}"
    return f"{path}: is not CSV ({one_line(error)})"


def _readable(value: str | None, kind: pa.DataType) -> bool:
    try:
        pa.scalar(value, pa.string()).cast(kind)
    except pa.ArrowException:
        return False
    return True


def _words(kind: pa.DataType) -> str:
    return "a time such as 2017-10-09 07:01:55" if pa.types.is_timestamp(kind) else "a number"
