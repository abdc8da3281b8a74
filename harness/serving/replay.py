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
from harness.serving.outcome import Outcome
from harness.serving.pool import Pool
from harness.serving.queue import new_calendar
from harness.serving.run import Run
from harness.serving.state import Table
from harness.serving.tokens import times_between_tokens


def replay(trace: pa.Table, pool: Pool, policy: Policy, seed: int = 0, horizon_s: float = np.inf,
           progress: Callable[[int, int], None] | None = None, replicas: pa.Table | None = None) -> Outcome:
    """Replays ``trace`` (schema.REQUESTS) on ``pool`` under ``policy``; ``progress`` is told instants and requests arrived so far.

    ``replicas`` says when each replica is there and on what links (lifetimes.changes_of); None: all of the pool's, all the time.

    Raises InvalidIntention when the policy proposes something that the engine must not do, and BadInput for a pool or a policy whose
    replicas cannot come and go, or reuse no prefixes.
    """
    changes = None
    if replicas is not None:
        changes = _changes(replicas, pool, policy)
        pool = replace(pool, replicas=1 + max(replicas["replica"].to_pylist(), default=0))
    pool = pool_for(policy, pool)
    if pool.prefix_blocks and policy.defines("gang"):
        raise BadInput(f"pool.prefix_cache_gb={pool.prefix_cache_gb:g}: policy {policy.name} places requests on several replicas, which "
                       "reuse no prefixes; it must be 0")
    state, order, tenants = build_state(trace, pool, seed, horizon_s, policy.defines("gang"), changes)
    run = Run(state, pool, policy, new_calendar(len(order), pool.replicas))
    if run.go(progress) == engine.BROKEN:
        names = trace.column("request_id")
        raise InvalidIntention(run.complaint(lambda q: str(names[int(order[q])])))
    end = run.close()
    mean, high = times_between_tokens(run.log, state.shown.requests, pool.replicas)
    return Outcome(trace, order, state, run.log, mean, high, tenants, pool.gpus, run.instants, end)


def pool_for(policy: Policy, pool: Pool) -> Pool:
    """``pool`` with the decode replicas that the policy wants, where the pool names none."""
    if not pool.decode_replicas and policy.param("decode_share", 0.0):
        return replace(pool, decode_replicas=round(pool.replicas * policy.param("decode_share", 0.0)))
    return pool


def _changes(replicas: pa.Table, pool: Pool, policy: Policy) -> Table:
    """The changes of ``replicas`` when pool and policy are such that replicas can come and go."""
    if pool.prefill != "chunked" or pool.decode_replicas or policy.param("decode_share", 0.0):
        raise BadInput("replicas that come and go: need pool.prefill=chunked and pool.decode_replicas=0")
    if policy.defines("gang") or pool.models:
        raise BadInput(f"policy {policy.name}: places requests on several replicas, or the pool has several models; replicas that come and "
                       "go need a policy without gangs, and one model")
    return changes_of(replicas)
