"""Stage 3, placements to tokens: the request-level replay of each service on the replicas that it had, when it had them, each as fast as
the links between its GPUs let it be."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from harness.metrics.requests import requests_table
from harness.metrics.serving import serving_utilization
from harness.serving.hooks import Policy
from harness.serving.pool import Pool
from harness.serving.replay import replay

ALL = "all"
"""Name of the service of requests that name none."""


def tokens(requests: pa.Table, replicas: pa.Table, pool: Pool, policy: Policy, seed: int, interval_s: float | None = None,
           warmup_s: float = 0.0, progress: Callable[[int, int], None] | None = None) -> tuple[pa.Table, pa.Table]:
    """schema.RESULT_REQUESTS in the order of ``requests``, and schema.SERVING_UTILIZATION with the column ``service``.

    ``replicas``: schema.REPLICAS. Services share nothing: each is a replay of its own on its own replicas, with the same pool and policy.
    Requests of a service that never has a replica wait for ever.
    """
    service = pc.fill_null(requests["service"], "")
    made, used, rows, arrived, events = [], [], [], 0, 0
    for name in pc.unique(service).to_pylist():
        mine = pc.equal(service, name)
        rows.append(pc.indices_nonzero(mine))
        known = replicas.filter(pc.equal(replicas["service"], name or ALL))
        tell = progress and (lambda instants, came, before=arrived, past=events: progress(past + instants, before + came))
        outcome = replay(requests.filter(mine), pool, policy, seed, progress=tell, replicas=known)
        made.append(requests_table(outcome))
        table = serving_utilization(outcome, interval_s, min(warmup_s, outcome.end))
        used.append(table.append_column("service", pa.array([name or ALL] * table.num_rows)))
        arrived, events = arrived + len(outcome.order), events + outcome.events
    order = pc.sort_indices(pa.concat_arrays([part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part for part in rows]))
    return pa.concat_tables(made).take(order).combine_chunks(), pa.concat_tables(used).combine_chunks()
