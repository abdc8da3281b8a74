"""Policy files of either side: how one is found, loaded, compiled, and given its parameters."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from harness.errors import BadInput
from harness.jit import JIT, njit


@cache
def compiled(function: Callable, signature: Any, hook: str, source: str) -> Any:
    """``function`` compiled for ``signature``. Raises BadInput naming ``source`` and ``hook`` when it cannot be."""
    if not JIT:
        return function
    try:
        return njit(signature, cache=True, error_model="numpy")(function)
    except Exception as error:  # numba raises many kinds; all mean that the user's function cannot be compiled
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise BadInput(f"{source}: {hook} does not compile: {said[-1] if said else error}") from error


def plain(function: Callable) -> Callable:
    """The Python function behind a compiled one."""
    return getattr(function, "py_func", function)


def load_module(name: str | None, file: str | None, folder: Path, package: str, names: Sequence[str]) -> tuple[ModuleType, Path]:
    """The module and path of the policy ``name`` of ``folder``, which is ``package``, or of the one in ``file``.

    Raises BadInput for a name that is not among ``names``, and a file that cannot be loaded.
    """
    if file is not None:
        return _load_file(Path(file)), Path(file)
    if name not in names:
        raise BadInput(f"policy={name}: there is no such policy; there are {', '.join(names)}")
    return importlib.import_module(f"{package}.{name}"), folder / f"{name}.py"


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadInput(f"policy.file={path}: there is no such file")
    name = f"harness_user_policy_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"policy.file={path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadInput(f"policy.file={path}: {type(error).__name__}: {error}") from error
    return module


def param_values(declared: Mapping[str, Any], given: Mapping[str, Any], source: str) -> np.ndarray:
    """The values of the ``declared`` parameters, a word as its index, with those ``given`` set. Raises BadInput for others."""
    values = []
    for name, default in declared.items():
        value = given.get(name, default[0] if isinstance(default, tuple) else default)
        if isinstance(default, tuple):
            if value not in default:
                raise BadInput(f"policy.{name}={value}: must be one of {', '.join(default)}")
            value = default.index(value)
        elif isinstance(value, str) or value is None:
            raise BadInput(f"policy.{name}={value}: must be a number")
        values.append(float(value))
    for name in given:
        if name not in declared:
            known = ", ".join(declared) or "none"
            raise BadInput(f"policy.{name}: {source} has no such parameter; it has {known}")
    return np.array(values)
