"""The state of a request-level replay: what a policy may read, and what only the engine writes.

Every field is named, typed and given its unit here once. Tables are arrays of records (``view.requests.status[q]``). Times are in
seconds, KV caches in blocks of ``pool.block`` tokens. Q requests, M replicas, B the largest batch, K models, G the largest gang,
T tenants, S prefix stores, U different prompt blocks.

A replica's work is one of two kinds. A *step* is an iteration of continuous batching: every member of the decode batch gets a token
and, with chunked prefill, some prompts are prefilled by a chunk. An *operation* is the prefill of whole prompts, on one replica or
on a gang of them, that can be paused in place between two operators. Decode members count their tokens by the replica's
``ordinal``, the number of its steps that made tokens, so that a step costs the same for any batch.
"""

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray
Table = np.recarray

UNSUBMITTED, HELD, WAITING, PREFILLING, PAUSED, MOVING, DECODING, FINISHED, REJECTED, DROPPED = range(10)
"""Status of a request: not arrived, in the global queue, in the queue of its replica, in prefill, its prefill paused in place, its KV
cache on the way to a decode replica, in the decode batch of its replica, done, impossible on this pool, and given up because its replica
went."""

MIXED, PREFILL, DECODE = 0, 1, 2
"""Role of a replica: both phases, or one of the two pools."""

NOBODY = -1
HOLD, BLOCK = -1, -2
"""Answers of ``route`` beside a replica: the request stays in the global queue; the same, and none behind it is tried now."""

STOP, SKIP, ADMIT = -1, 0, 1
"""Answers of ``admit``: nobody else enters this step; this request does not; it does, if there is room."""

GO, DRAIN, COME = 0, 1, 2
"""What changes about a replica: it is gone with all that is on it, it takes no more requests, it is there and takes them. At one instant
in this order."""

RECOMPUTE, SWAP, PAUSE = 0, 1, 2
"""How a preempted request comes back: its KV cache is computed again, was copied to host memory, or stayed where it is."""

NOW, HORIZON, SWAP_S, MOVE_S, MOVE_FLOOR_S, BOUNDARY, BLOCKED_S = range(7)
"""Columns of View.clock: s; s; s to copy one token's KV cache between GPU and host; the same between replicas; s of every such move;
operators of a prefill operation after which it can be paused (0: at once); s from interruptions to the pauses that they asked for."""

(SEED, BATCH, CHUNK, BLOCK_TOKENS, WHOLE, PREEMPTION, SKIP_AHEAD, OFFLOADED, COUPLED, ROUTING, ENTERED, SWITCHES, LONGS,
 FINISHED_N, DROPS, ACCEPTING, BY_KEY, INTERRUPTS, STORE_BLOCKS, PREFIX_TOKENS, STORE_SHARED) = range(21)
"""Columns of View.count: the seed; most decode and prefill members of a replica; tokens of a step, or of an operation with several
prompts; tokens of a KV block; 1: whole prompts are prefilled, as operations; how the engine preempts; 1: runs of steps are advanced at
once; 1: the other models stay loaded, partly on the host; 1: the policy looks at several replicas when one changes; the
rule of routing; admissions, model switches, gangs placed and not finished, and requests
finished, rejected or dropped so far; 1: what is on a replica that goes is dropped, not sent to another;
replicas that take requests; 1: a step's chunk goes to the prompts in the order of their keys; interruptions of operations;
most blocks of a prefix store, 0: there is none; tokens of such a block; 1: all replicas share one store."""


def table(**fields: str) -> np.dtype:
    """A record type from field names and NumPy type codes."""
    return np.dtype(list(fields.items()), align=True)


REQUEST = table(
    arrival="f8",
    prompt="i8",  # tokens
    predicted="f8",  # output tokens that a predictor sees, with the error that the pool states
    service="i8",  # model asked for
    tenant="i8",
    priority="i8",  # higher wins
    ttft_slo="f8",  # s, inf: none
    tbt_slo="f8",
    status="i8",
    replica="i8",  # where it waits or runs, or last did; -1: nowhere yet
    gang="i8",  # replicas that its prefill runs on
    gang_mask="i8",  # of a request dispatched by ``gang``: bit r: it is placed on replica r
    target="i8",  # tokens to prefill in this attempt: the prompt, and the output so far when it is computed again
    done="i8",  # of these, prefilled
    chunk="i8",  # of these, in the step at hand
    decoded="i8",  # output tokens made before it joined the decode batch
    since="i8",  # ordinal of its replica when it joined
    place="i8",  # its column in View.members or View.prefills
    entered="i8",  # number of its last admission
    in_place="i8",  # 1: dispatched by ``gang``: it decodes where it was prefilled, its KV cache reserved on every replica
    share="i8",  # blocks reserved on each replica of its gang
    swapped="i8",  # 1: its KV cache is in host memory; 2: it came from a prefill replica
    kept="i8",  # 1: preempted in place, its KV cache is still on the replica
    preemptions="i8",
    dropped_by="i8",  # change that took its replica, and it with it; -1: none
    start="f8",  # first admission, nan: none yet
    first_token="f8",
    decode_start="f8",  # first joined a decode batch
    finish="f8",
    left="f8",  # s of its operation still to run, when it heads one
    began="f8",  # when the operation last started or resumed
    due="f8",  # when it ends or can be paused; inf: it does not run
    whole_s="f8",  # s of the whole operation
    yielding="i8",  # 1: the operation is to be paused at ``due``
    mate="i8",  # next request of the same operation
    key="f8",  # place in the queue
    ahead="i8",  # neighbours in its queue
    behind="i8",
    prefix="i8",  # its first whole prompt block in View.prefix
    prefix_n="i8",  # how many there are
    loaded="i8",  # prompt tokens that the prefill which made its first token had from a prefix store
)

REPLICA = table(
    role="i8",
    server="i8",
    gpus="i8",
    model="i8",  # model loaded
    accepts="i8",  # 1: it is there and takes requests
    link="i8",  # added to View.row: the coefficients of the links between its GPUs
    blocks="i8",  # KV blocks
    used="i8",  # of these, in use
    used_s="f8",  # integral of those in use, block s, up to used_at
    used_at="f8",  # s
    batch="i8",  # decode members
    filling="i8",  # prefill members of the step at hand or the next
    context="i8",  # tokens in the KV caches of the decode members
    lead="i8",  # largest (KV tokens - ordinal) of a decode member
    ordinal="i8",  # steps so far that made tokens
    next_end="i8",  # ordinal at which the next decode member finishes
    stale="i8",  # 1: lead and next_end must be found again
    filling_tokens="i8",  # tokens that its admitted requests still have to prefill
    long="i8",  # first of the gangs placed here whose prompt is not prefilled
    long_tokens="i8",  # prompt tokens of those gangs that fall on this replica
    long_decodes="i8",  # gangs that decode and have KV blocks here
    op="i8",  # head of the operation that runs here
    forming="i8",  # head of the operation that is being put together
    forming_tokens="i8",  # its prompt tokens so far
    turn="i8",  # 1: after an operation, decode members get the next step
    busy="i8",  # 1: a step is under way
    touched="i8",  # 1: it must be looked at before time goes on
    changed="i8",  # 1: its batch, its queue or its memory has changed since the policy was last asked
    begin="f8",  # of the step under way
    stall="f8",  # s that the next step waits for swaps or a model
    tokens="i8",  # prefill tokens of the step under way
    prompts="i8",  # prompts in it
)

QUEUE = table(
    head="i8",  # first and last request, in the order of their keys
    tail="i8",
    waiting="i8",  # requests
    tokens="i8",  # that they still have to prefill
)

TENANT = table(
    prompt="i8",  # tokens prefilled, each request once
    output="i8",  # tokens made by decode members that have left their batch
    waiting="i8",  # requests not finished
)

MODEL = table(
    switch_s="f8",  # to load it in place of another
    layers="i8",
)

CHANGE = table(
    time="f8",  # s
    replica="i8",
    what="i8",  # GO, DRAIN or COME
    link="i8",  # of a replica that comes
)

WORK = table(
    output="i8",  # tokens the request will make: no policy sees it
    ends="i8",  # ordinal at which it finishes
)


class View(NamedTuple):
    """What a policy sees: the same arrays as the State, not writable, without the true output lengths."""

    clock: Array  # f8 (7,) columns NOW ..
    count: Array  # i8 (21,) columns SEED ..
    coef: Array  # f8 (rows, 2, 3, features) step times, see speed.py
    limit: Array  # i8 (rows,) decode batch from which the second set of coefficients holds
    row: Array  # i8 (K, G + 1) row of coef for a model prefilled by so many replicas
    models: Table  # MODEL (K,)
    tenants: Table  # TENANT (T,)
    requests: Table  # REQUEST (Q,) in arrival order
    replicas: Table  # REPLICA (M,)
    queues: Table  # QUEUE (M + 1,) of the replicas, and the global one
    due: Array  # f8 (M,) end of the step under way; inf: none
    members: Array  # i8 (M, B) decode members, in no order
    gangs: Array  # i8 (Q,) requests placed by ``gang`` and not finished, in that order; count[LONGS] of them
    prefills: Array  # i8 (M, B) prefill members, in the order in which a step's chunk goes to them
    phase: Array  # i8 (M, block) decode members that need a block at ordinals of that remainder
    changes: Table  # CHANGE (.,) of the replicas, by time; none: all are there from the start
    prefix: Array  # i4 (.,) numbers of the whole prompt blocks of all requests, equal where prompts are
    stores: Array  # i4 (S, 2 (U + 1) + 1) prefix stores, see prefix.py


class State(NamedTuple):
    """What policies see, and what they do not. (Numba forbids a field called view.)"""

    shown: View  # the view, writable
    work: Table  # WORK (Q,)


class Own(NamedTuple):
    """All that a policy may write, except ``params``, which come from its configuration."""

    params: Array  # f8 (number of params,)
    state: Array  # f8 (STATE of the policy,)
    request_state: Array  # f8 (Q, REQUEST_STATE of the policy)
    replica_state: Array  # f8 (M, REPLICA_STATE of the policy)
    tenant_state: Array  # f8 (T, TENANT_STATE of the policy)


def read_only(value: Any) -> Any:
    """The same arrays, not writable, through any depth of named tuples."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    return type(value)(*(read_only(field) for field in value))
