"""A replay that is under way: the arrays that the loop works on, and the loop entered again until something else must be done."""

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.serving import engine
from harness.serving.hooks import Policy
from harness.serving.log import STAYS, doubled, new_log
from harness.serving.pool import Pool
from harness.serving.queue import Calendar
from harness.serving.state import COUPLED, HORIZON, NOW, Own, State, read_only
from harness.serving.step import AHEAD, FAULT, FAULT_OTHER, FAULT_REPLICA, FAULT_REQUEST, FAULTS

SLICE = 2_000_000
"""Instants between two reports of progress."""


class Run:
    """All that the loop reads and writes, and the policy; ``zeros`` makes the policy's table of requests."""

    def __init__(self, state: State, pool: Pool, policy: Policy, calendar: Calendar, zeros: Callable[..., Any] = np.zeros):
        view = state.shown
        view.count[COUPLED] = policy.coupled
        self.state, self.policy, self.calendar = state, policy, calendar
        self.seen = read_only(view)
        n, m = len(view.requests), pool.replicas
        self.own = Own(policy.values.copy(), np.zeros(policy.state), zeros((n, policy.request_state), float),
                       np.zeros((m, policy.replica_state)), np.zeros((len(view.tenants), policy.tenant_state)))
        self.margin = m * (pool.batch + AHEAD + 4) + 16
        self.log, self.where = new_log(2 * self.margin), engine.new_progress(m, n)

    def go(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Replays until the loop answers DONE, BROKEN or STARVED, and returns that; ``progress`` is told instants and requests arrived."""
        policy, tally = self.policy, self.where.tally
        defined, outcome = np.array(policy.defined), engine.PAUSED_LOOP
        while outcome in (engine.PAUSED_LOOP, engine.FULL):
            outcome = engine.run(self.state, self.seen, self.own, self.calendar, self.log, self.where, *policy.hooks, defined,
                                 policy.dynamic, policy.period_s, self.margin, tally[engine.INSTANTS] + SLICE)
            if outcome == engine.FULL:
                self.full()
            if progress:
                progress(int(tally[engine.INSTANTS]), int(tally[engine.ARRIVED]))
        return outcome

    def full(self) -> None:
        """Makes room in the log."""
        self.log = doubled(self.log)

    @property
    def instants(self) -> int:
        return int(self.where.tally[engine.INSTANTS])

    def close(self) -> float:
        """Books the tokens of the requests that are in a decode batch once the loop is done, and returns the last instant, in seconds."""
        view, requests = self.state.shown, self.state.shown.requests
        horizon = view.clock[HORIZON]
        view.clock[NOW] = end = float(horizon if horizon < np.inf else self.where.last[0])
        inside = np.sort(np.concatenate([view.members[r, :batch] for r, batch in enumerate(view.replicas.batch)]))
        while self.log.size[STAYS] + len(inside) > len(self.log.stays):
            self.log = doubled(self.log)
        for q in inside:
            r, ordinal = requests.replica[q], view.replicas.ordinal[requests.replica[q]]
            self.log.stays[self.log.size[STAYS]] = (q, r, requests.since[q], ordinal, np.nan)
            self.log.size[STAYS] += 1
            requests.decoded[q] += ordinal - requests.since[q]
            requests.since[q] = ordinal
        return end

    def complaint(self, name: Callable[[int], str]) -> str:
        """What was wrong with the policy's intention; ``name`` gives the request_id of a request of the state."""
        fault = self.where.fault
        q = int(fault[FAULT_REQUEST])
        return (f"policy {self.policy.name}, request {name(q) if q >= 0 else 'none'}, replica {fault[FAULT_REPLICA]}, "
                f"time {self.state.shown.clock[NOW]:g} s: {FAULTS[int(fault[FAULT])]} ({fault[FAULT_OTHER]})")
