"""The hooks of a serving policy: their signatures, their defaults, and how a policy file becomes a Policy.

A policy is one Python file that defines any of the functions below; what it leaves out does nothing. ``view`` (state.View) is read-only;
``own`` (state.Own) holds the policy's parameters and scratch arrays; ``q`` is a request, ``r`` a replica.

``route(view, own, q) -> int``: replica whose queue it joins; HOLD keeps it in the global queue, BLOCK those behind it too.
``hand(view, own, q) -> int``: decode replica for a request that a prefill replica has prefilled.
``key(view, own, q) -> float``: place in a queue, smaller first; ties by index. Asked on arrival; with DYNAMIC before each admission.
``admit(view, own, q, r) -> int``: ADMIT, SKIP or STOP, asked in the order of the queue for each step or operation that r begins.
``victim(view, own, r, q) -> int``: member of r's batch that makes place for q, or NOBODY. Preempted as the pool's ``preemption`` says.
``interrupt(view, own, r, q) -> bool``: whether the operation that runs on r is paused in place for q, which has just joined r's queue.
``gang(view, own, q, found) -> int``: fills ``found`` with so many replicas on which q is prefilled together and decodes on the first; 0:
ask ``route``; HOLD. Its operation starts when no other runs on them and ``admit`` agrees.
``plan(view, own, r) -> None``: before r's next step or operation, when something has changed there.
``switch(view, own, r) -> int``: model that r should have loaded.
``tick(view, own) -> None``: called every PERIOD_S seconds.

Constants of a policy file: ``PARAMS`` (name -> default number, or tuple of words, the first being the default, stored as its index),
``STATE``, ``REQUEST_STATE``, ``REPLICA_STATE`` and ``TENANT_STATE`` (columns of the scratch arrays), ``PERIOD_S``, ``DYNAMIC`` (keys change
while requests wait), ``COUPLED`` (what happens on one replica depends on the others).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import typeof, types

from harness.errors import BadInput
from harness.policy_files import compiled, load_module, param_values, plain
from harness.serving.build import smallest_state
from harness.serving.routing import decoder, routed
from harness.serving.state import ADMIT, NOBODY, ROUTING, read_only

POLICIES = Path(__file__).parent / "policies"


def _route(view, own, q):
    return routed(view, q, view.count[ROUTING])


def _hand(view, own, q):
    return decoder(view, q)


def _key(view, own, q):
    return 0.0


def _admit(view, own, q, r):
    return ADMIT


def _victim(view, own, r, q):
    return NOBODY


def _interrupt(view, own, r, q):
    return False


def _gang(view, own, q, found):
    return 0


def _plan(view, own, r):
    pass


def _switch(view, own, r):
    return view.replicas.model[r]


def _tick(view, own):
    pass


DEFAULTS: dict[str, Callable] = {
    "route": _route, "hand": _hand, "key": _key, "admit": _admit, "victim": _victim, "interrupt": _interrupt, "gang": _gang,
    "plan": _plan, "switch": _switch, "tick": _tick,
}
HOOKS = tuple(DEFAULTS)


@dataclass(frozen=True)
class Policy:
    """A policy ready to run: compiled hooks in the order of HOOKS, which of them it defines itself, its sizes and its constants."""

    name: str
    hooks: tuple[Any, ...]
    defined: tuple[bool, ...]
    params: tuple[str, ...]
    values: np.ndarray
    state: int
    request_state: int
    replica_state: int
    tenant_state: int
    period_s: float
    dynamic: bool
    coupled: bool
    file: Path

    def param(self, name: str, missing: float) -> float:
        return float(self.values[self.params.index(name)]) if name in self.params else missing

    def defines(self, hook: str) -> bool:
        return self.defined[HOOKS.index(hook)]


@cache
def signatures() -> dict[str, Any]:
    """Numba signature of each hook."""
    state, scratch = smallest_state()
    view, own = typeof(read_only(state.shown)), typeof(scratch)
    f8, i8, b1 = types.float64, types.int64, types.boolean
    return {
        "route": i8(view, own, i8), "hand": i8(view, own, i8), "key": f8(view, own, i8), "admit": i8(view, own, i8, i8),
        "victim": i8(view, own, i8, i8), "interrupt": b1(view, own, i8, i8), "gang": i8(view, own, i8, types.Array(i8, 1, "C")),
        "plan": types.void(view, own, i8), "switch": i8(view, own, i8), "tick": types.void(view, own),
    }


def policy_names() -> list[str]:
    """The serving policies that ship with the harness."""
    return sorted(path.stem for path in POLICIES.glob("[a-z]*.py"))


def load_policy(name: str | None = None, file: str | None = None, params: Mapping[str, Any] | None = None) -> Policy:
    """The policy ``name`` of this folder, or the one in ``file``, with its parameters set.

    Raises BadInput for an unknown name, a file that cannot be loaded, or a parameter that the policy does not have.
    """
    module, path = load_module(name, file, POLICIES, "harness.serving.policies", policy_names())
    source = f"policy {path.stem}"
    declared = getattr(module, "PARAMS", {})
    defined = tuple(hook in vars(module) for hook in HOOKS)
    if not any(defined):
        raise BadInput(f"{source}: {path} defines no hook; a serving policy defines one or more of {', '.join(HOOKS)}")
    hooks = tuple(compiled(plain(vars(module).get(hook, DEFAULTS[hook])), signatures()[hook], hook, source) for hook in HOOKS)
    state, request_state, replica_state, tenant_state = (
        int(getattr(module, name, 0)) for name in ("STATE", "REQUEST_STATE", "REPLICA_STATE", "TENANT_STATE"))
    return Policy(path.stem, hooks, defined, tuple(declared), param_values(declared, params or {}, source), state, request_state,
                  replica_state, tenant_state, float(getattr(module, "PERIOD_S", np.inf)), bool(getattr(module, "DYNAMIC", False)),
                  bool(getattr(module, "COUPLED", False)), path.resolve())


def declared_params(name: str | None, file: str | None) -> Mapping[str, Any]:
    """PARAMS of the policy ``name``, or of the one in ``file``."""
    return getattr(load_module(name, file, POLICIES, "harness.serving.policies", policy_names())[0], "PARAMS", {})
