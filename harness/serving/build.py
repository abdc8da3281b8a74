"""From a trace table and a pool to the state of a fresh replay."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.schema import LEVELS
from harness.serving.pool import PREEMPTIONS, Pool
from harness.serving.prefix import NO_BLOCKS, add_prefixes, no_stores
from harness.serving.routing import ROUTING as RULES
from harness.serving.speed import FEATURES
from harness.serving.state import (
    ACCEPTING,
    BATCH,
    BLOCK_TOKENS,
    BOUNDARY,
    BY_KEY,
    CHANGE,
    CHUNK,
    DECODE,
    DROPS,
    FINISHED_N,
    HORIZON,
    MIXED,
    MODEL,
    MOVE_FLOOR_S,
    MOVE_S,
    NOBODY,
    OFFLOADED,
    PREEMPTION,
    PREFILL,
    QUEUE,
    REJECTED,
    REPLICA,
    REQUEST,
    ROUTING,
    SEED,
    SKIP_AHEAD,
    SWAP_S,
    TENANT,
    UNSUBMITTED,
    WHOLE,
    WORK,
    Array,
    Own,
    State,
    Table,
    View,
)

MOST_REPLICAS = 62
"""The replicas of a gang are bits of an int64."""

PREDICTOR_STREAM = 7
"""Second number of the seed of predicted output lengths."""


def smallest_state() -> tuple[State, Own]:
    """A state of one request and one replica, whose types are those of every state, and scratch arrays."""
    def one(kind: np.dtype, n: int = 1) -> np.recarray:
        return np.zeros(n, kind).view(np.recarray)

    ints = np.zeros((1, 1), np.int64)
    view = View(np.zeros(7), np.zeros(21, np.int64), np.zeros((1, 2, 3, FEATURES)), np.zeros(1, np.int64), ints, one(MODEL), one(TENANT),
                one(REQUEST), one(REPLICA), one(QUEUE, 2), np.zeros(1), ints.copy(), np.zeros(1, np.int64), ints.copy(),
                ints.copy(), one(CHANGE), NO_BLOCKS, no_stores())
    return State(view, one(WORK)), Own(np.zeros(1), np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)))


def build_state(trace: pa.Table, pool: Pool, seed: int, horizon_s: float = np.inf, gangs: bool = False, changes: Table | None = None
                ) -> tuple[State, Array, list[str]]:
    """The state at time 0 for ``trace`` (schema.REQUESTS) on ``pool``; the row of the trace behind each request, which are in arrival
    order; and the names of the tenants.

    ``gangs``: the policy may place a request on several replicas. ``changes`` (CHANGE): when the replicas come and go, with a level as
    link; None: all are there. Raises BadInput when a request asks for a model that there is not, or has prefix hashes of other blocks.
    """
    order = np.argsort(trace["arrival_time"].to_numpy(), kind="stable")
    tenants = trace["tenant"].combine_chunks().dictionary_encode().dictionary.to_pylist()
    state = build_empty(trace.num_rows, len(tenants), pool, seed, horizon_s, gangs, changes)
    add_requests(state, 0, trace, order, tenants, pool, predictor(seed), gangs)
    if pool.prefix_blocks:
        state = state._replace(shown=add_prefixes(state.shown, trace, order, pool))
    return state, order, tenants


def predictor(seed: int) -> np.random.Generator:
    """The errors of predicted output lengths, request by request."""
    return np.random.default_rng((seed, PREDICTOR_STREAM))


def add_requests(state: State, first: int, block: pa.Table, order: Array, tenants: list[str], pool: Pool, errors: np.random.Generator,
                 gangs: bool) -> None:
    """Puts the rows of ``block``, in this ``order`` (n,), into the tables of an empty state as requests ``first`` .. first + n - 1."""
    n, whole = len(order), state.shown.requests
    requests: Any = whole[first:first + n]
    work: Any = state.work[first:first + n]
    requests.arrival = block["arrival_time"].to_numpy()[order]
    requests.prompt = requests.target = block["prompt_tokens"].to_numpy()[order]
    work.output = block["output_tokens"].to_numpy()[order]
    requests.predicted = work.output
    if pool.predictor_sigma:
        requests.predicted = np.maximum(1.0, work.output * np.exp(errors.normal(0.0, pool.predictor_sigma, n)))
    requests.service = _services(block, first, pool)[order]
    tenant = pc.fill_null(pc.index_in(block["tenant"], value_set=pa.array(tenants, pa.string())), len(tenants))
    requests.tenant = tenant.to_numpy()[order]
    if "priority" in block.column_names:
        requests.priority = pc.fill_null(block["priority"], 0).to_numpy()[order]
    for column, default in (("ttft_slo_s", pool.ttft_slo_s), ("tbt_slo_s", pool.tbt_slo_s)):
        own = block[column].to_numpy(zero_copy_only=False).astype(float)[order]
        setattr(requests, column.removesuffix("_s"), np.where(np.isnan(own), np.inf if default is None else default, own))
    requests.status, requests.gang = np.full(n, UNSUBMITTED), 1
    for name in ("replica", "mate", "ahead", "behind", "dropped_by"):
        setattr(requests, name, NOBODY)
    for name in ("start", "first_token", "decode_start", "finish"):
        setattr(requests, name, np.nan)
    requests.due = np.inf
    need = -(-(requests.prompt + work.output) // pool.block)
    impossible = need > pool.blocks * (pool.replicas - pool.decode_replicas if gangs else 1)
    requests["status"][impossible] = REJECTED
    state.shown.count[FINISHED_N] += int(impossible.sum())


def build_empty(n: int, tenants: int, pool: Pool, seed: int, horizon_s: float, gangs: bool, changes: Table | None = None,
                zeros: Callable[..., Any] = np.zeros) -> State:
    """A state with room for ``n`` requests of so many tenants, none of which is there; ``zeros`` makes the tables of requests."""
    m = pool.replicas
    requests, work = zeros(n, REQUEST).view(np.recarray), zeros(n, WORK).view(np.recarray)
    replicas = np.zeros(m, REPLICA).view(np.recarray)
    first_decoder = m - pool.decode_replicas
    replicas.role = np.where(np.arange(m) >= first_decoder, DECODE, PREFILL) if pool.decode_replicas else MIXED
    replicas.server = np.arange(m) // pool.per_server
    replicas.gpus = pool.tp
    replicas.model = np.arange(m) % len(pool.all_models)
    replicas.blocks = pool.blocks
    replicas.accepts = changes is None
    replicas.long = replicas.op = replicas.forming = NOBODY
    queues = np.zeros(m + 1, QUEUE).view(np.recarray)
    queues.head = queues.tail = NOBODY

    if gangs and m > MOST_REPLICAS:
        raise BadInput(f"pool.replicas={m}: a policy with gangs takes at most {MOST_REPLICAS}")

    coef, limit, row, switching = pool.tables()
    changes = np.zeros(0, CHANGE).view(np.recarray) if changes is None else changes.copy()
    changes.link *= len(coef) // len(LEVELS) if pool.links else 0
    models = np.zeros(len(switching), MODEL).view(np.recarray)
    models.switch_s, models.layers = switching, [model.layers for model in pool.all_models]
    clock, count = np.zeros(7), np.zeros(21, np.int64)
    clock[HORIZON] = horizon_s
    clock[SWAP_S] = pool.model.kv_bytes / (pool.gpu.pcie_gbs * 1e9 * pool.tp)
    clock[MOVE_FLOOR_S], clock[MOVE_S] = pool.move_s()
    clock[BOUNDARY] = 2 * pool.model.layers if pool.boundaries is None else pool.boundaries
    count[[SEED, BATCH, CHUNK, BLOCK_TOKENS]] = seed, pool.batch, pool.chunk, pool.block
    count[WHOLE] = pool.prefill == "whole"
    count[PREEMPTION], count[SKIP_AHEAD] = PREEMPTIONS.index(pool.preemption), pool.skip_ahead
    count[OFFLOADED], count[ROUTING] = pool.offload is not None, RULES.index(pool.routing)
    count[BY_KEY] = pool.chunk_order == "key"
    count[DROPS], count[ACCEPTING] = pool.unfinished == "drop", replicas["accepts"].sum()
    table = np.zeros(tenants + 1, TENANT).view(np.recarray)
    members = np.full((m, pool.batch), NOBODY, np.int64)
    view = View(clock, count, coef, limit, row, models, table, requests, replicas, queues, np.full(m, np.inf), members,
                np.zeros(n, np.int64), members.copy(),
                np.zeros((m, pool.block), np.int64), changes, NO_BLOCKS, no_stores())
    return State(view, work)


def _services(trace: pa.Table, first: int, pool: Pool) -> Array:
    """Index of the model that each row asks for, ``first`` and those behind it: 0 with one model, else that of its name."""
    if not pool.models:
        return np.zeros(trace.num_rows, np.int64)
    names = [model.name for model in pool.models]
    found = pc.index_in(trace["service"], value_set=pa.array(names))
    if found.null_count:
        row = int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])
        asked = trace["service"][row].as_py()
        raise BadInput(f"requests, row {first + row}: service={asked!r} is none of pool.models, which are {', '.join(names)}")
    return found.to_numpy(zero_copy_only=False).astype(np.int64)
