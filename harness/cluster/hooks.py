"""The hooks of a policy: their signatures, their defaults, and how a policy file becomes a Policy.

A policy is one Python file that defines any of the functions below; what it leaves out does nothing. ``view`` (state.View) is read-only;
``own`` (state.Own) holds the policy's parameters and scratch arrays.

``key(view, own, job) -> float``: place in the queue, smaller first; ties by submit time, then index. Asked when a job joins it.
``admit(view, own, job) -> bool``: False holds the job back in this pass; never blocks others.
``place(view, own, job) -> int``: server for the next instance of the job (view.count[INSTANCE]), NO_FIT or HOLD.
``victims(view, own, job, found) -> int``: fills ``found`` (see preempt.py) with a server and the jobs to evict there; returns their number.
``blocked(view, own, job) -> bool``: True (STOP) ends the pass at a job for which nothing could be done.
``tick(view, own) -> None``: called every PERIOD_S seconds.

Constants of a policy file: ``PARAMS`` (name -> default number, or tuple of words, the first being the default, stored as its index),
``STATE``, ``JOB_STATE``, ``SERVER_STATE`` and ``CLASS_SERVER_STATE`` (columns of the scratch arrays), ``PERIOD_S``.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numba import typeof, types

from harness.cluster.build import smallest_state
from harness.cluster.fit import best_fit
from harness.cluster.state import GO_ON, Own, View, new_own, read_only
from harness.errors import BadInput
from harness.jit import JIT, njit

POLICIES = Path(__file__).parent / "policies"


def _key(view, own, job):
    return 0.0


def _admit(view, own, job):
    return True


def _place(view, own, job):
    return best_fit(view, job)


def _victims(view, own, job, found):
    return 0


def _blocked(view, own, job):
    return GO_ON


def _tick(view, own):
    pass


DEFAULTS: dict[str, Callable] = {
    "key": _key, "admit": _admit, "place": _place, "victims": _victims, "blocked": _blocked, "tick": _tick,
}
HOOKS = tuple(DEFAULTS)


@dataclass(frozen=True)
class Policy:
    """A policy ready to run: compiled hooks in the order of HOOKS, which of them it defines itself, and its sizes."""

    name: str
    hooks: tuple[Any, ...]
    defined: tuple[bool, ...]
    params: tuple[str, ...]
    values: np.ndarray
    state: int
    job_state: int
    server_state: int
    class_server: int
    period_s: float
    file: Path

    def param(self, name: str, missing: float) -> float:
        return float(self.values[self.params.index(name)]) if name in self.params else missing

    def own(self, view: View) -> Own:
        """Its parameters, and fresh scratch arrays for a replay of ``view``."""
        return new_own(self.values, self.state, self.job_state, self.server_state, self.class_server, view)


@cache
def signatures() -> dict[str, Any]:
    """Numba signature of each hook."""
    smallest = read_only(smallest_state())
    view, own = typeof(smallest), typeof(new_own(np.zeros(1), 1, 1, 1, 1, smallest))
    f8, i8, b1 = types.float64, types.int64, types.boolean
    found = types.Array(types.int64, 1, "C")
    return {
        "key": f8(view, own, i8), "admit": b1(view, own, i8), "place": i8(view, own, i8), "victims": i8(view, own, i8, found),
        "blocked": b1(view, own, i8), "tick": types.void(view, own),
    }


@cache
def _compiled(function: Callable, hook: str, source: str):
    if not JIT:
        return function
    try:
        return njit(signatures()[hook], cache=True, error_model="numpy")(function)
    except Exception as error:  # numba raises many kinds; all mean that the user's function cannot be compiled
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise BadInput(f"{source}: {hook} does not compile: {said[-1] if said else error}") from error


def policy_names() -> list[str]:
    """The policies that ship with the harness."""
    return sorted(path.stem for path in POLICIES.glob("[a-z]*.py"))


def load_policy(name: str | None = None, file: str | None = None, params: Mapping[str, Any] | None = None) -> Policy:
    """The policy ``name`` of this folder, or the one in ``file``, with its parameters set.

    Raises BadInput for an unknown name, a file that cannot be loaded, or a parameter that the policy does not have.
    """
    module, path = _module(name, file)
    name = path.stem
    source = f"policy {name}"
    declared = getattr(module, "PARAMS", {})
    defined = tuple(hook in vars(module) for hook in HOOKS)
    if not any(defined):
        raise BadInput(f"{source}: {path} defines no hook; a policy defines one or more of {', '.join(HOOKS)}")
    hooks = tuple(_compiled(_plain(vars(module).get(hook, DEFAULTS[hook])), hook, source) for hook in HOOKS)
    return Policy(
        name, hooks, defined, tuple(declared), _param_values(declared, params or {}, source),
        getattr(module, "STATE", 0), getattr(module, "JOB_STATE", 0), getattr(module, "SERVER_STATE", 0),
        getattr(module, "CLASS_SERVER_STATE", 0), float(getattr(module, "PERIOD_S", np.inf)), path.resolve(),
    )


def declared_params(name: str | None, file: str | None) -> Mapping[str, Any]:
    """PARAMS of the policy ``name``, or of the one in ``file``."""
    return getattr(_module(name, file)[0], "PARAMS", {})


def _module(name: str | None, file: str | None) -> tuple[ModuleType, Path]:
    if file is not None:
        return _load_file(Path(file)), Path(file)
    if name not in policy_names():
        raise BadInput(f"policy={name}: there is no such policy; there are {', '.join(policy_names())}")
    return importlib.import_module(f"harness.cluster.policies.{name}"), POLICIES / f"{name}.py"


def _plain(function: Callable) -> Callable:
    return getattr(function, "py_func", function)


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


def _param_values(declared: Mapping[str, Any], given: Mapping[str, Any], source: str) -> np.ndarray:
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
