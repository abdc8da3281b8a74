"""What a replay leaves behind, from which all tables are made."""

from dataclasses import dataclass, field

import pyarrow as pa

from harness.cluster.log import Log
from harness.cluster.state import Array, View


@dataclass(frozen=True)
class Outcome:
    """What a replay leaves behind: the trace, the final state, the log, and counts.

    ``order`` (J,) gives the row of the trace behind each job index of the state; ``reasons`` says for each impossible class why its jobs
    are rejected; ``end`` is the last instant in seconds; ``capped`` counts how often a server had more evictable jobs than the
    FlexTopo family considers; ``reports`` are metrics of the policy's own.
    """

    trace: pa.Table
    order: Array
    state: View
    log: Log
    reasons: dict[int, str]
    events: int
    decisions: int
    end: float
    capped: int
    reports: dict[str, float] = field(default_factory=dict)
