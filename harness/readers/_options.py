"""Options of a reader: fields of a frozen dataclass with a help text, and values from words of a command line."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any

from harness.errors import BadInput


def option(default: Any, help: str, values: tuple[str, ...] = ()) -> Any:
    """A dataclass field with ``default``, a ``help`` text and, for words, the ``values`` it may take."""
    return field(default=default, metadata={"help": help, "values": values})


def listed(kind: type[Any]) -> list[Field[Any]]:
    """The options of the dataclass ``kind``, in order of definition."""
    return list(fields(kind))


def parse(kind: type[Any], given: Mapping[str, str]) -> Any:
    """``kind`` with the options of ``given`` set from words. Raises BadInput for an unknown option or a wrong type."""
    known = {f.name: f for f in fields(kind)}
    values = {}
    for name, word in given.items():
        if name not in known:
            raise BadInput(f"--{name}: unknown option, must be one of {', '.join('--' + n for n in known) or 'none'}")
        values[name] = _value(known[name], word)
    return kind(**values)


def _value(known: Field[Any], word: str) -> Any:
    allowed = known.metadata.get("values") or ()
    if allowed and word not in allowed:
        raise BadInput(f"--{known.name} {word}: must be one of {', '.join(allowed)}")
    kind = type(known.default) if known.default is not MISSING else str
    try:
        if kind is bool:
            return {"true": True, "false": False}[word.lower()]
        return kind(word) if kind in (int, float) else word
    except (ValueError, KeyError) as error:
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise BadInput(f"--{known.name} {word}: must be {wanted}") from error
