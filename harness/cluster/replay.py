"""One replay, from a trace table to what happened."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from harness.cluster import engine
from harness.cluster.build import Rules, build_state, why_impossible
from harness.cluster.decide import CAPPED, FAULT, FAULT_JOB, FAULT_SERVER, FAULT_VICTIM, FAULTS
from harness.cluster.hooks import Policy
from harness.cluster.log import doubled
from harness.cluster.outcome import Outcome
from harness.cluster.state import DECISIONS, HORIZON, NOW, RETRY_S, Array, View, read_only
from harness.errors import InvalidIntention
from harness.topology import Cluster

SLICE = 2_000_000
"""Events between two reports of progress."""


def replay(trace: pa.Table, cluster: Cluster, policy: Policy, rules: Rules, progress: Callable[[int, int], None] | None = None) -> Outcome:
    """Replays ``trace`` (schema.JOBS) on ``cluster`` under ``policy``; ``progress`` is told events and jobs arrived so far.

    Raises InvalidIntention when the policy proposes something that the engine must not do.
    """
    state, order = build_state(trace, cluster, rules)
    state.clock[RETRY_S] = policy.param("retry_s", 60.0)
    view = read_only(state)
    own = policy.own(state)
    queue, pending, log, where = engine.fresh(state)
    defined, outcome = np.array(policy.defined), engine.PAUSED
    while outcome in (engine.PAUSED, engine.FULL):
        outcome = engine.run(state, view, own, queue, pending, log, where, *policy.hooks, defined, policy.period_s,
                             where.tally[engine.EVENTS] + SLICE)
        if outcome == engine.FULL:
            log = doubled(log)
        if progress:
            progress(int(where.tally[engine.EVENTS]), int(where.tally[engine.ARRIVED]))
    if outcome == engine.BROKEN:
        raise InvalidIntention(_complaint(trace, order, policy, state, pending.fault))
    horizon = state.clock[HORIZON]
    end = float(horizon if horizon < np.inf else where.last[engine.LAST_EVENT])
    state.clock[NOW] = end
    reasons = {int(c): why_impossible(state, int(c)) for c in np.flatnonzero(state.classes.possible == 0)}
    return Outcome(trace, order, state, log, reasons, int(where.tally[engine.EVENTS]), int(state.count[DECISIONS]), end,
                   int(pending.fault[CAPPED]))


def _complaint(trace: pa.Table, order: Array, policy: Policy, state: View, fault: Array) -> str:
    names = trace.column("job_id")
    victim = fault[FAULT_VICTIM]
    named = f", victim {names[int(order[victim])]}" if 0 <= victim < len(order) else (f", victim number {victim}" if victim >= 0 else "")
    return (f"policy {policy.name}, job {names[int(order[fault[FAULT_JOB]])]}, server {fault[FAULT_SERVER]}{named}, "
            f"time {state.clock[NOW]:g} s: {FAULTS[int(fault[FAULT])]}")
