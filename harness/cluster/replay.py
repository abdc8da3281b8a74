"""One replay, from a trace table to what happened."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from harness.cluster import engine
from harness.cluster.build import Rules, build, why_impossible
from harness.cluster.decide import CAPPED
from harness.cluster.hooks import Policy
from harness.cluster.outcome import Outcome
from harness.cluster.run import Run
from harness.cluster.state import DECISIONS
from harness.errors import InvalidIntention
from harness.topology import Cluster


def replay(trace: pa.Table, cluster: Cluster, policy: Policy, rules: Rules, progress: Callable[[int, int], None] | None = None) -> Outcome:
    """Replays ``trace`` (schema.JOBS) on ``cluster`` under ``policy``; ``progress`` is told events and jobs arrived so far.

    Raises InvalidIntention when the policy proposes something that the engine must not do.
    """
    state, order, requests = build(trace, cluster, rules)
    run = Run(state, policy, requests, cluster)
    if run.go(progress) == engine.BROKEN:
        names = trace.column("job_id")
        raise InvalidIntention(run.complaint(lambda job: str(names[int(order[job])])))
    reasons = {int(c): why_impossible(state, int(c)) for c in np.flatnonzero(state.classes.possible == 0)}
    return Outcome(trace, order, state, run.log, reasons, int(run.where.tally[engine.EVENTS]), int(state.count[DECISIONS]), run.ended_at(),
                   int(run.pending.fault[CAPPED]), run.reports())
