"""The hooks of a policy: their signatures, their defaults, and how a policy file becomes a Policy.

A policy is one Python file that defines any of the functions below; what it leaves out does nothing. ``view`` (state.View) is read-only;
``own`` (state.Own) holds the policy's parameters and scratch arrays.

``key(view, own, job) -> float``: place in the queue, smaller first; ties by submit time, then index. Asked when a job joins it; with
DYNAMIC before each pass.
``admit(view, own, job) -> bool``: False holds the job back in this pass; never blocks others.
``place(view, own, job) -> int``: server for the next instance of the job (view.count[INSTANCE]), ``on_gpu(server, gpu)`` to choose the GPU
of a fractional one too, NO_FIT, HOLD or PASS_OVER.
``victims(view, own, job, found) -> int``: fills ``found`` (see preempt.py) with a server and the jobs to evict there; returns their number,
0 if nothing helps, which must hold for the job's whole class, or HOLD if it holds for this job alone.
``blocked(view, own, job) -> bool``: True (STOP) ends the pass at a job for which nothing could be done.
``outranks(view, own, job, victim) -> bool``: whether ``job`` may evict a running preemptible job of its own priority. Who comes later in
the queue must outrank no more than who comes before. Lower priorities may be evicted in any case, higher ones never.
``changed(view, own, job) -> None``: the job has started or stopped to run: view.jobs.status[job] is RUNNING, WAITING (evicted) or FINISHED.
``tick(view, own) -> None``: called every PERIOD_S seconds; a parameter ``period_s`` takes its place.

``prepare(view, requests, cluster) -> array (., .)`` is plain Python, called once before the replay: ``requests`` (build.Requests) says
what the classes of the whole trace ask for and how many jobs each has; what it returns becomes ``own.table``.

Constants of a policy file: ``PARAMS`` (name -> default number, or tuple of words, the first being the default, stored as its index),
``STATE``, ``JOB_STATE``, ``SERVER_STATE`` and ``CLASS_SERVER_STATE`` (columns of the scratch arrays), ``PERIOD_S``, ``DYNAMIC`` (keys
change while jobs wait), ``UNBOUND_VICTIMS`` (it may evict whatever its own priority, and anywhere in scope, as policies do that free
quotas and not servers), ``REPORTS`` (name of a metric of the summary -> column of own.state that holds it in the end), ``NEEDS_TRACE``
(parameter -> the word of it with which ``prepare`` must see all jobs, so that the trace cannot be streamed; True: it always must).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numba import typeof, types

from harness.cluster.build import Requests, smallest_state
from harness.cluster.fit import best_fit
from harness.cluster.state import GO_ON, Own, View, new_own, read_only
from harness.errors import BadInput
from harness.policy_files import compiled, load_module, param_values, plain
from harness.topology import Cluster

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


def _outranks(view, own, job, victim):
    return False


def _changed(view, own, job):
    pass


DEFAULTS: dict[str, Callable] = {
    "key": _key, "admit": _admit, "place": _place, "victims": _victims, "blocked": _blocked, "tick": _tick,
    "outranks": _outranks, "changed": _changed,
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
    prepare: Callable[[View, Requests, Cluster], np.ndarray] | None
    dynamic: bool
    period_s: float
    unbound: bool
    file: Path
    reports: Mapping[str, int]
    needs_trace: bool

    def param(self, name: str, missing: float) -> float:
        return float(self.values[self.params.index(name)]) if name in self.params else missing

    def own(self, view: View, requests: Requests, cluster: Cluster) -> Own:
        """Its parameters, and fresh scratch arrays for a replay of ``view``, whose classes are ``requests``; prepared.

        Raises BadInput when ``prepare`` fails or returns something other than a matrix of numbers.
        """
        table = np.zeros((0, 0))
        if self.prepare is not None:
            try:
                table = np.ascontiguousarray(self.prepare(view, requests, cluster), dtype=np.float64)
            except Exception as error:  # a user's function may raise anything
                raise BadInput(f"policy {self.name}: prepare: {type(error).__name__}: {error}") from error
            if table.ndim != 2:
                raise BadInput(f"policy {self.name}: prepare must return an array of two dimensions, it has {table.ndim}")
        return new_own(self.values, self.state, self.job_state, self.server_state, self.class_server, table, view)


@cache
def signatures() -> dict[str, Any]:
    """Numba signature of each hook."""
    smallest = read_only(smallest_state())
    view, own = typeof(smallest), typeof(new_own(np.zeros(1), 1, 1, 1, 1, np.zeros((1, 1)), smallest))
    f8, i8, b1 = types.float64, types.int64, types.boolean
    found = types.Array(types.int64, 1, "C")
    return {
        "key": f8(view, own, i8), "admit": b1(view, own, i8), "place": i8(view, own, i8), "victims": i8(view, own, i8, found),
        "blocked": b1(view, own, i8), "tick": types.void(view, own),
        "outranks": b1(view, own, i8, i8), "changed": types.void(view, own, i8),
    }


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
    hooks = tuple(compiled(plain(vars(module).get(hook, DEFAULTS[hook])), signatures()[hook], hook, source) for hook in HOOKS)
    values = param_values(declared, params or {}, source)
    period_s = values[list(declared).index("period_s")] if "period_s" in declared else getattr(module, "PERIOD_S", np.inf)
    if not period_s > 0:
        raise BadInput(f"{source}: period_s={period_s:g}: must be positive")
    needs = getattr(module, "NEEDS_TRACE", {})
    return Policy(
        name, hooks, defined, tuple(declared), values,
        getattr(module, "STATE", 0), getattr(module, "JOB_STATE", 0), getattr(module, "SERVER_STATE", 0),
        getattr(module, "CLASS_SERVER_STATE", 0), getattr(module, "prepare", None), bool(getattr(module, "DYNAMIC", False)),
        float(period_s), bool(getattr(module, "UNBOUND_VICTIMS", False)), path.resolve(), getattr(module, "REPORTS", {}),
        needs is True or any((params or {}).get(key) == word for key, word in needs.items()),
    )


def declared_params(name: str | None, file: str | None) -> Mapping[str, Any]:
    """PARAMS of the policy ``name``, or of the one in ``file``."""
    return getattr(_module(name, file)[0], "PARAMS", {})


def _module(name: str | None, file: str | None) -> tuple[ModuleType, Path]:
    return load_module(name, file, POLICIES, "harness.cluster.policies", policy_names())
