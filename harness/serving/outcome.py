"""What a replay of requests leaves behind, from which all tables are made."""

from dataclasses import dataclass

import pyarrow as pa

from harness.serving.log import Log
from harness.serving.state import Array, State


@dataclass(frozen=True)
class Outcome:
    """The trace, the final state, the log, and counts.

    ``tbt_mean`` and ``tbt_p99`` (Q,) are of the times between the tokens of each request, s. ``order`` (Q,) gives the row of the trace
    behind each request of the state; ``tenants`` their names; ``gpus`` those of the pool;
    ``end`` is the last instant in seconds; ``events`` counts instants.
    """

    trace: pa.Table
    order: Array
    state: State
    log: Log
    tbt_mean: Array
    tbt_p99: Array
    tenants: list[str]
    gpus: int
    events: int
    end: float
