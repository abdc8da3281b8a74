"""Workloads: seeded generators and recorded traces, each a module of this folder with ``Params`` and ``generate``.

A new generator is one file here and one YAML in conf/workload; nothing is registered.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from harness.errors import BadInput
from harness.workload.parameters import typed

if TYPE_CHECKING:
    from harness.tables import TraceFile
    from harness.topology import Cluster

COMMANDS = ("embedded",)
"""Modules of this folder that are run, not loaded."""


def generators() -> dict[str, ModuleType]:
    """Every module of this folder that has a function ``generate``, by name."""
    found = {m.name: import_module(f"{__name__}.{m.name}") for m in iter_modules(__path__) if m.name not in COMMANDS}
    return {name: module for name, module in sorted(found.items()) if hasattr(module, "generate")}


def parameters(name: str, mapping: Mapping[str, Any]) -> Any:
    """``mapping`` as the ``Params`` of generator ``name``; its key ``generator`` is ignored, fields left out keep their default.

    Raises BadInput for an unknown generator or key, or a value of the wrong type.
    """
    known = generators()
    if name not in known:
        raise BadInput(f"workload.generator={name}: unknown; known are {', '.join(known)}")
    return typed(known[name].Params, {key: mapping[key] for key in mapping if key != "generator"}, name)


def load(name: str, mapping: Mapping[str, Any], cluster: "Cluster", seed: int) -> pa.Table:
    """The trace of generator ``name`` with these parameters, sorted by time: schema.JOBS, then what else a recorded trace holds.

    Raises BadInput as ``parameters`` and the generator do.
    """
    params = parameters(name, mapping)
    return generators()[name].generate(params, cluster, seed)


def stream(name: str, mapping: Mapping[str, Any]) -> "TraceFile | None":
    """The trace of generator ``name`` as a file, when it is to be read block by block instead of loaded. Raises BadInput as ``load``."""
    params = parameters(name, mapping)
    module = generators()[name]
    return module.streamed(params) if hasattr(module, "streamed") else None
