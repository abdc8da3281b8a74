"""JSON documents as they are found in the wild."""

import json
from pathlib import Path
from typing import Any

from harness.errors import BadInput
from harness.readers._stream import HEAD_BYTES, TextStream, read_text
from harness.tables import one_line
from harness.tables.sniff import seems


def is_json(path: Path) -> bool:
    """Whether the unpacked text of ``path`` begins like JSON. Raises BadInput when it cannot be read."""
    try:
        stream = TextStream(path, "JSON")
    except BadInput as error:
        if "but seems to be" in str(error):
            return False
        raise
    head = stream.read(HEAD_BYTES)
    stream.close()
    return seems(head) == "JSON"


def read_json(path: Path) -> Any:
    """The value in ``path``. Raises BadInput when it is absent, no JSON, or cut off."""
    text = read_text(path, "JSON")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at_end = error.pos >= len(error.doc.rstrip()) - 1 or error.msg.startswith("Unterminated")
        what = "cut off, or not JSON" if at_end else "not JSON"
        raise BadInput(f"{path}: line {error.lineno}, column {error.colno}: {what} ({one_line(error.msg, 80)})") from error
    except (RecursionError, ValueError) as error:
        raise BadInput(f"{path}: not JSON ({one_line(error, 80)})") from error


def field(item: Any, name: str, kind: type | tuple[type, ...], where: str, default: Any = None) -> Any:
    """``item[name]``, ``default`` when it is missing or null. Raises BadInput when ``item`` is no object or the value no ``kind``."""
    if not isinstance(item, dict):
        raise BadInput(f"{where}: must be a JSON object, is {type(item).__name__}")
    value = item.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or isinstance(value, bool):
        raise BadInput(f"{where}: {name} must be {_words(kind)}, is {one_line(value, 40)}")
    return value


def _words(kind: type | tuple[type, ...]) -> str:
    words = {dict: "an object", list: "a list", str: "text", int: "a whole number", float: "a number"}
    return " or ".join(words[one] for one in (kind if isinstance(kind, tuple) else (kind,)))
