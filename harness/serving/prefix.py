"""Prefix reuse: KV caches of earlier prompts in host memory, from which a prompt that begins like one of them loads its beginning.

It is the part of Mooncake (Qin et al., FAST'25) that stays on one host: a store of KV caches in CPU memory beside the GPUs, known by the
hashes of prefix blocks and evicted by LRU. ``pool.prefix_store=shared`` is one such store for all replicas, at the same bandwidth. Not
modelled: the network between stores, SSDs, copies of hot blocks, and reuse of KV blocks on the GPU itself.

A prefill that begins, a recomputed one too, counts the longest run of its first blocks in the store as done, and the next step stalls
until they are copied to the GPU. The last token is always computed, since it makes the next. A completed prefill puts the whole blocks of
its prompt into the store, the first of them last: so a block goes before those that it continues. A partial block is
never there, and the KV cache of an output neither: the trace has no hash of it.
"""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.jit import inlined, kernel
from harness.serving.state import ABSENT, MOST, SHARED, SWAP_S, TOKENS, Array, Stores

if TYPE_CHECKING:
    from harness.serving.pool import Pool


def empty_stores(replicas: int) -> Stores:
    """No store: nothing is kept, nothing found."""
    ints, ring = np.zeros(1, np.int64), np.zeros((1, 1), np.int32)
    return Stores(np.zeros(3, np.int64), ints, np.zeros(0, np.int32), np.zeros(replicas, np.int64), ints.copy(), ring, ring.copy(),
                  np.zeros(0, np.int64))


def build_stores(trace: pa.Table, order: Array, pool: "Pool") -> Stores:
    """Empty stores of ``pool`` for the requests of ``trace`` in this ``order`` (Q,).

    Raises BadInput for a request whose number of hashes does not go with ``pool.prefix_block_tokens``.
    """
    tokens, lists = pool.prefix_block_tokens, trace["prefix_hashes"].combine_chunks()
    length = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    prompt = trace["prompt_tokens"].to_numpy().astype(np.int64)
    whole = np.minimum(length, prompt // tokens)
    wrong = np.flatnonzero((length > 0) & ((length < prompt // tokens) | (length > -(-prompt // tokens))))
    if len(wrong):
        row = int(wrong[0])
        raise BadInput(f"requests, row {row}: {length[row]} prefix_hashes for a prompt of {prompt[row]} tokens, but "
                       f"pool.prefix_block_tokens={tokens}; it must be what the trace has (Mooncake 512, Qwen-Bailian 16)")
    begin, whole = (np.cumsum(length) - length)[order], whole[order]
    first = np.concatenate([[0], np.cumsum(whole)])
    place = np.repeat(begin - first[:-1], whole) + np.arange(first[-1])
    known, block = np.unique(lists.flatten().to_numpy()[place], return_inverse=True)
    stores = 1 if pool.prefix_store == "shared" else pool.replicas
    ring = np.full((stores, len(known) + 1), ABSENT, np.int32)
    ring[:, -1] = len(known)
    of = np.arange(pool.replicas) % stores
    return Stores(np.array([tokens, pool.prefix_blocks, pool.prefix_store == "shared"], np.int64), first, block.astype(np.int32), of,
                  np.zeros(stores, np.int64), ring, ring.copy(), np.zeros(len(order), np.int64))


@kernel
def stored(view, r, q):
    """Prompt tokens of request ``q`` that the store of replica ``r`` would spare it: at most all but the last that it has to prefill."""
    stores = view.stores
    if not stores.size[MOST]:
        return 0
    s, first = stores.of[r], stores.first[q]
    i = first
    while i < stores.first[q + 1] and stores.newer[s, stores.block[i]] != ABSENT:
        i += 1
    return min((i - first) * stores.size[TOKENS], view.requests.target[q] - 1)


@inlined
def load_prefix(view, r, q):
    """The prefill of ``q``, out of its queue, begins on replica ``r`` with what the store has of it."""
    if view.stores.size[MOST]:
        tokens = stored(view, r, q)
        view.requests.done[q] = tokens
        view.replicas.stall[r] += tokens * view.clock[SWAP_S]
        if np.isnan(view.requests.first_token[q]):
            view.stores.loaded[q] = tokens


@inlined
def keep_prefix(view, r, q):
    """The prefill of ``q`` on replica ``r`` is complete: the store has its prompt."""
    if view.stores.size[MOST]:
        _keep(view, r, q)


@inlined
def forget_prefixes(view, r):
    """Replica ``r`` is gone, and its own store with it."""
    if view.stores.size[MOST] and not view.stores.size[SHARED]:
        _forget(view, r)


@kernel
def _keep(view, r, q):
    stores = view.stores
    s, end = stores.of[r], stores.newer.shape[1] - 1
    for i in range(stores.first[q + 1] - 1, stores.first[q] - 1, -1):
        block = stores.block[i]
        if stores.newer[s, block] != ABSENT:
            _take_out(stores, s, block)
        elif stores.held[s] < stores.size[MOST]:
            stores.held[s] += 1
        else:
            _take_out(stores, s, stores.newer[s, end])
        newest = stores.older[s, end]
        stores.newer[s, newest], stores.older[s, end] = block, block
        stores.newer[s, block], stores.older[s, block] = end, newest


@kernel
def _forget(view, r):
    stores = view.stores
    s, end = stores.of[r], stores.newer.shape[1] - 1
    while stores.newer[s, end] != end:
        _take_out(stores, s, stores.newer[s, end])
    stores.held[s] = 0


@inlined
def _take_out(stores, s, block):
    newer, older = stores.newer[s, block], stores.older[s, block]
    stores.older[s, newer], stores.newer[s, older] = older, newer
    stores.newer[s, block] = stores.older[s, block] = ABSENT
