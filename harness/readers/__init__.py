"""Readers of public formats: one file each, found by listing this folder. Never used while replaying.

A reader is a module with

- a docstring whose first line names the format, and which states the rule for each of its oddities;
- a frozen dataclass ``Options`` with a default and a help text for each field (``harness.readers._options.option``);
- ``read(paths, options) -> (result, report)``: the result is a trace in the contract's schema (``pa.Table``, or a ``Spool`` that gives
  it out in batches), or a cluster (a mapping, written as YAML for ``cluster=``); the report says line by line what was repaired,
  dropped or assumed, with counts.

The module ``alibaba_openb`` is the format ``alibaba-openb``; a module whose name begins with ``_`` is no format.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Protocol

import pyarrow as pa

from harness.errors import BadInput
from harness.readers._spool import Spool


class Reader(Protocol):
    """What a module of this folder offers."""

    Options: type[Any]

    def read(self, paths: Sequence[Path], options: Any) -> tuple[pa.Table | Spool | Mapping[str, Any], list[str]]: ...


def formats() -> dict[str, Reader]:
    """Name of the format -> its module, in alphabetical order."""
    return {name: _load(name) for name in format_names()}


def format_names() -> list[str]:
    """Names of the formats, in alphabetical order, without importing a reader."""
    return sorted(m.name.replace("_", "-") for m in iter_modules(__path__) if not m.name.startswith("_"))


def reader(name: str) -> Reader:
    """The reader of the format ``name``. Raises BadInput for an unknown one."""
    names = format_names()
    if name not in names:
        close = get_close_matches(name, names, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise BadInput(f"unknown format '{name}', must be one of {', '.join(names)}{hint}")
    return _load(name)


def _load(name: str) -> Any:
    return import_module(f"{__name__}.{name.replace('-', '_')}")
