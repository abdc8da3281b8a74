"""What a file seems to be, judged by its first bytes, so that an error can say it."""

import re
from pathlib import Path

from harness.errors import BadInput

HEAD_BYTES = 512
COMPRESSIONS = ((b"\x1f\x8b", "gzip"), (b"BZh", "bz2"), (b"\xfd7zXZ\x00", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"))
_MAGIC = (
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"%PDF", "a PDF document"),
    (b"ARROW1", "an Arrow IPC (feather) file"),
    (b"SQLite format 3", "an SQLite database"),
    (b"ORC", "an ORC file"),
    (b"\xff\xfe", "text in UTF-16 (save it as UTF-8)"),
    (b"\xfe\xff", "text in UTF-16 (save it as UTF-8)"),
)
BOM = b"\xef\xbb\xbf"


def compression(head: bytes) -> str | None:
    """``gzip``, ``bz2``, ``xz`` or ``zstd`` when ``head`` begins like that, else None."""
    return next((name for magic, name in COMPRESSIONS if head.startswith(magic)), None)


def seems(head: bytes) -> str:
    """A few words for what a file that begins with ``head`` seems to be."""
    if not head:
        return "an empty file"
    if name := compression(head):
        return f"a {name} file"
    for magic, words in _MAGIC:
        if head.startswith(magic):
            return words
    if head.startswith(b"version https://git-lfs"):
        return "a Git-LFS pointer, not the data (fetch it with `git lfs pull`)"
    text = head.removeprefix(BOM).lstrip()
    lower = text[:64].lower()
    if lower.startswith((b"<!doctype html", b"<html")):
        return "an HTML page, not the data (was it downloaded from a web page?)"
    if lower.startswith(b"<"):
        return "an XML document"
    if lower.startswith((b"{", b"[")):
        return "JSON"
    if b"\x00" in head:
        return "a binary file"
    if not text:
        return "a blank file"
    first = text.splitlines()[0][:40].decode("utf-8", "replace")
    if re.match(rb"(apiVersion|kind|metadata|name)\s*:", text):
        return "YAML"
    return f"text that begins with '{one_line(first)}'"


def one_line(text: object, limit: int = 200) -> str:
    """``text`` as one printable line of at most ``limit`` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def require_file(path: Path) -> None:
    """Raises BadInput unless ``path`` is a regular file with at least one byte."""
    try:
        if not path.exists():
            raise BadInput(f"{path}: no such file")
        if path.is_dir():
            raise BadInput(f"{path}: is a folder, must be a file")
        if not path.is_file():
            raise BadInput(f"{path}: is not a regular file")
        if path.stat().st_size == 0:
            raise BadInput(f"{path}: is empty (0 bytes)")
    except (OSError, ValueError) as error:
        raise BadInput(f"{one_line(path)}: cannot be read ({one_line(error)})") from error


def read_head(path: Path) -> bytes:
    """The first bytes of ``path``. Raises BadInput when it cannot be read."""
    require_file(path)
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
