"""Bytes as they are found in the wild, in pieces: unpacked by content, without a byte order mark, known to be UTF-8."""

import bz2
import codecs
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.errors import BadInput
from harness.tables import one_line
from harness.tables.sniff import BOM, HEAD_BYTES, compression, read_head, seems

PIECE_BYTES = 1 << 22
_OPENERS: dict[str | None, Callable[[Path], Any]] = {
    None: lambda path: path.open("rb"),
    "gzip": lambda path: gzip.open(path, "rb"),
    "bz2": lambda path: bz2.open(path, "rb"),
    "xz": lambda path: lzma.open(path, "rb"),
    "zstd": lambda path: pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"),
}
_TEXT = "text that begins"


class TextStream:
    """The UTF-8 text of ``path`` as a file object to read from once.

    ``edit`` changes whole lines before they are checked and handed on (bytes to bytes, never longer). ``expected`` says in errors
    what the file must be. Every method raises BadInput when the file is absent, empty, something else, a broken archive or not UTF-8.
    """

    def __init__(self, path: Path, expected: str, edit: Callable[[bytes], bytes] | None = None) -> None:
        self.path, self.edit = path, edit
        self.kind = compression(read_head(path))
        self.closed = False
        self.line = 1
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._rest, self._ready = b"", b""
        self._file = self._guarded(lambda: _OPENERS[self.kind](path))
        self._next = self._guarded(lambda: self._file.read(PIECE_BYTES))
        refuse_other(path, self._next[:HEAD_BYTES], expected)
        self._next = self._next.removeprefix(BOM)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        self.closed = True

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` further bytes (all of them when negative); empty at the end."""
        pieces, have = [self._ready], len(self._ready)
        while self._next and (size < 0 or have < size):
            pieces.append(self._checked(self._piece()))
            have += len(pieces[-1])
        whole = b"".join(pieces)
        end = have if size < 0 else size
        self._ready = whole[end:]
        return whole[:end]

    def _piece(self) -> bytes:
        """The next piece of the file, edited: whole lines of it when there is an edit."""
        piece, self._next = self._next, self._guarded(lambda: self._file.read(PIECE_BYTES))
        if self.edit is None:
            return piece
        lines = self._rest + piece
        end = lines.rfind(b"\n") + 1 if self._next else len(lines)
        self._rest = lines[end:]
        return self.edit(lines[:end])

    def _checked(self, piece: bytes) -> bytes:
        try:
            self._decoder.decode(piece, final=not self._next)
        except UnicodeDecodeError as error:
            line = self.line + piece.count(b"\n", 0, max(error.start, 0))
            raise BadInput(f"{self.path}: line {line} is not text in UTF-8 (Latin-1 or a damaged file?), save it as UTF-8") from error
        self.line += piece.count(b"\n")
        return piece

    def _guarded(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except (OSError, EOFError, lzma.LZMAError, pa.ArrowException, ValueError) as error:
            what = f"truncated or corrupt {self.kind} file" if self.kind else "cannot be read"
            raise BadInput(f"{self.path}: {what} ({one_line(error)})") from error


def read_text(path: Path, expected: str) -> bytes:
    """All of the UTF-8 text of ``path``. Raises BadInput as TextStream does."""
    stream = TextStream(path, expected)
    try:
        return stream.read()
    finally:
        stream.close()


def raw_head(path: Path, size: int) -> bytes:
    """The first bytes of ``path``, unpacked, in whatever encoding. Raises BadInput when it cannot be read."""
    kind = compression(read_head(path))
    try:
        with _OPENERS[kind](path) as file:
            return file.read(size).removeprefix(BOM)
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException, ValueError) as error:
        raise BadInput(f"{path}: truncated or corrupt {kind} file ({one_line(error)})") from error


def refuse_other(path: Path, head: bytes, expected: str) -> None:
    """Raises BadInput when a file that begins with ``head`` is not of the ``expected`` kind: CSV is any plain text."""
    what = seems(head)
    plain = what.startswith(_TEXT)
    if not (plain if expected != "JSON" else what == "JSON"):
        raise BadInput(f"{path}: must be {expected}, but seems to be {what}")
