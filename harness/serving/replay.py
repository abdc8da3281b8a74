"""One replay of requests, from a trace table to what happened."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from harness.errors import BadInput, InvalidIntention
from harness.serving import engine
from harness.serving.build import build_state
from harness.serving.hooks import Policy
from harness.serving.lifetimes import changes_of
from harness.serving.log import STAYS, Log, doubled, new_log
from harness.serving.outcome import Outcome
from harness.serving.pool import Pool
from harness.serving.queue import new_calendar
from harness.serving.state import COUPLED, DECODING, HORIZON, NOW, Array, Own, Table, View, read_only
from harness.serving.step import FAULT, FAULT_OTHER, FAULT_REPLICA, FAULT_REQUEST, FAULTS
from harness.serving.tokens import times_between_tokens

SLICE = 2_000_000
"""Instants between two reports of progress."""


def replay(trace: pa.Table, pool: Pool, policy: Policy, seed: int = 0, horizon_s: float = np.inf,
           progress: Callable[[int, int], None] | None = None, replicas: pa.Table | None = None) -> Outcome:
    """Replays ``trace`` (schema.REQUESTS) on ``pool`` under ``policy``; ``progress`` is told instants and requests arrived so far.

    ``replicas`` says when each replica is there and on what links (lifetimes.changes_of); None: all of the pool's, all the time.

    Raises InvalidIntention when the policy proposes something that the engine must not do, and BadInput for a pool or a policy whose
    replicas cannot come and go.
    """
    changes = None
    if replicas is not None:
        changes = _changes(replicas, pool, policy)
        pool = replace(pool, replicas=1 + max(replicas["replica"].to_pylist(), default=0))
    if not pool.decode_replicas and policy.param("decode_share", 0.0):
        pool = replace(pool, decode_replicas=round(pool.replicas * policy.param("decode_share", 0.0)))
    state, order, tenants = build_state(trace, pool, seed, horizon_s, policy.defines("gang"), changes)
    view = state.shown
    view.count[COUPLED] = policy.coupled
    seen = read_only(view)
    own = Own(policy.values.copy(), np.zeros(policy.state), np.zeros((len(order), policy.request_state)),
              np.zeros((pool.replicas, policy.replica_state)), np.zeros((len(view.tenants), policy.tenant_state)))
    margin = pool.replicas * (pool.batch + 4) + 16
    calendar, log, where = new_calendar(len(order), pool.replicas), new_log(2 * margin + 8192), engine.new_progress(pool.replicas)
    defined, outcome = np.array(policy.defined), engine.PAUSED_LOOP
    while outcome in (engine.PAUSED_LOOP, engine.FULL):
        outcome = engine.run(state, seen, own, calendar, log, where, *policy.hooks, defined, policy.dynamic, policy.period_s, margin,
                             where.tally[engine.INSTANTS] + SLICE)
        if outcome == engine.FULL:
            log = doubled(log)
        if progress:
            progress(int(where.tally[engine.INSTANTS]), int(where.tally[engine.ARRIVED]))
    if outcome == engine.BROKEN:
        raise InvalidIntention(_complaint(trace, order, policy, view, where.fault))
    horizon = view.clock[HORIZON]
    end = float(horizon if horizon < np.inf else where.last[0])
    view.clock[NOW] = end
    log = _close(view, log)
    mean, high = times_between_tokens(log, view.requests, pool.replicas)
    return Outcome(trace, order, state, log, mean, high, tenants, pool.gpus, int(where.tally[engine.INSTANTS]), end)


def _changes(replicas: pa.Table, pool: Pool, policy: Policy) -> Table:
    """The changes of ``replicas`` when pool and policy are such that replicas can come and go."""
    if pool.prefill != "chunked" or pool.decode_replicas or policy.param("decode_share", 0.0):
        raise BadInput("replicas that come and go: need pool.prefill=chunked and pool.decode_replicas=0")
    if policy.defines("gang") or pool.models:
        raise BadInput(f"policy {policy.name}: places requests on several replicas, or the pool has several models; replicas that come and "
                       "go need a policy without gangs, and one model")
    return changes_of(replicas)


def _close(view: View, log: Log) -> Log:
    """Books the tokens of the requests that are in a decode batch at the end."""
    requests = view.requests
    inside = np.flatnonzero(requests.status == DECODING)
    while log.size[STAYS] + len(inside) > len(log.stays):
        log = doubled(log)
    for q in inside:
        r, ordinal = requests.replica[q], view.replicas.ordinal[requests.replica[q]]
        log.stays[log.size[STAYS]] = (q, r, requests.since[q], ordinal, np.nan)
        log.size[STAYS] += 1
        requests.decoded[q] += ordinal - requests.since[q]
        requests.since[q] = ordinal
    return log


def _complaint(trace: pa.Table, order: Array, policy: Policy, view: View, fault: Array) -> str:
    names = trace.column("request_id")
    q = int(fault[FAULT_REQUEST])
    named = names[int(order[q])] if q >= 0 else "none"
    return (f"policy {policy.name}, request {named}, replica {fault[FAULT_REPLICA]}, time {view.clock[NOW]:g} s: "
            f"{FAULTS[int(fault[FAULT])]} ({fault[FAULT_OTHER]})")
