"""From a mapping, as YAML gives it, to the frozen dataclass of a generator's parameters, checked by its annotations."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from harness.errors import BadInput

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "null", dict: "a mapping"}


def typed(kind: type, mapping: Mapping[str, Any], source: str) -> Any:
    """``mapping`` as an instance of the dataclass ``kind``; fields that it leaves out take their defaults.

    Annotations may be int, float, bool, str, None, list[...], dict[str, Any], Any and unions of them. A whole number passes for a
    float, and a float without fraction for a whole number; nothing else is converted. ``source`` names the owner in messages.

    Raises BadInput for an unknown key, listing the known ones, or a value of another type, saying what is wanted.
    """
    known = [f.name for f in fields(kind)]
    hints = get_type_hints(kind)
    for key in mapping:
        if key not in known:
            raise BadInput(f"workload.{key}: {source} has no such parameter; known are {', '.join(known)}")
    return kind(**{key: _value(value, hints[key], f"workload.{key}") for key, value in mapping.items()})


def _value(value: Any, kind: Any, key: str, wanted: str = "") -> Any:
    if kind is Any:
        return _plain(value)
    if get_origin(kind) in (Union, UnionType):
        if value is None and NoneType in get_args(kind):
            return None
        options = [k for k in get_args(kind) if k is not NoneType]
        if len(options) == 1 and value is not None:
            return _value(value, options[0], key, _words(kind))
    elif get_origin(kind) is list and isinstance(value, Sequence) and not isinstance(value, str):
        return [_value(v, get_args(kind)[0], f"{key}[{i}]") for i, v in enumerate(value)]
    elif get_origin(kind) is dict and isinstance(value, Mapping):
        return _plain(value)
    elif kind is bool and isinstance(value, bool) or kind is str and isinstance(value, str):
        return value
    elif kind in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
        if kind is float or isinstance(value, int) or value.is_integer():
            return kind(value)
    raise BadInput(f"{key}={value}: must be {wanted or _words(kind)}")


def _words(kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_words(k) for k in get_args(kind))
    if get_origin(kind) is list:
        return f"a list, each entry {_words(get_args(kind)[0])}"
    return WORDS[get_origin(kind) or kind]


def _plain(value: Any) -> Any:
    """``value`` with all its containers as dicts and lists."""
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value
