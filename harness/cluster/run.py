"""A replay that is under way: the arrays that the loop works on, and the loop entered again until something else must be done."""

from collections.abc import Callable

import numpy as np

from harness.cluster import engine
from harness.cluster.build import Requests
from harness.cluster.decide import FAULT, FAULT_JOB, FAULT_SERVER, FAULT_VICTIM, FAULTS
from harness.cluster.hooks import Policy
from harness.cluster.log import doubled
from harness.cluster.state import HORIZON, NOW, RETRY_S, UNBOUND, View, read_only
from harness.topology import Cluster

SLICE = 2_000_000
"""Events between two reports of progress."""


class Run:
    """All that the loop reads and writes, and the policy. ``arrived_before``: jobs that arrived and are no longer in the state."""

    def __init__(self, state: View, policy: Policy, requests: Requests, cluster: Cluster):
        state.clock[RETRY_S] = policy.param("retry_s", 60.0)
        state.count[UNBOUND] = policy.unbound
        self.policy, self.state, self.arrived_before = policy, state, 0
        self.own = policy.own(state, requests, cluster)
        self.queue, self.pending, self.log, self.where = engine.fresh(state)

    def go(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Replays until the loop answers DONE, BROKEN or STARVED, and returns that; ``progress`` is told events and jobs arrived so far."""
        policy, view, defined, tally = self.policy, read_only(self.state), np.array(self.policy.defined), self.where.tally
        outcome = engine.PAUSED
        while outcome in (engine.PAUSED, engine.FULL):
            outcome = engine.run(self.state, view, self.own, self.queue, self.pending, self.log, self.where, *policy.hooks, defined,
                                 policy.dynamic, policy.period_s, tally[engine.EVENTS] + SLICE)
            if outcome == engine.FULL:
                self.log = doubled(self.log)
            if progress:
                progress(int(tally[engine.EVENTS]), self.arrived_before + int(tally[engine.ARRIVED]))
        return outcome

    def ended_at(self) -> float:
        """The last instant, in seconds, once the loop is done; the clock is set to it."""
        horizon = self.state.clock[HORIZON]
        end = float(horizon if horizon < np.inf else self.where.last[engine.LAST_EVENT])
        self.state.clock[NOW] = end
        return end

    def reports(self) -> dict[str, float]:
        """Metrics of the policy's own, by name."""
        return {name: float(self.own.state[column]) for name, column in self.policy.reports.items()}

    def complaint(self, name: Callable[[int], str]) -> str:
        """What was wrong with the policy's intention; ``name`` gives the job_id of a job of the state."""
        fault, jobs = self.pending.fault, len(self.state.jobs)
        victim = int(fault[FAULT_VICTIM])
        named = f", victim {name(victim)}" if 0 <= victim < jobs else (f", victim number {victim}" if victim >= 0 else "")
        return (f"policy {self.policy.name}, job {name(int(fault[FAULT_JOB]))}, server {fault[FAULT_SERVER]}{named}, "
                f"time {self.state.clock[NOW]:g} s: {FAULTS[int(fault[FAULT])]}")
