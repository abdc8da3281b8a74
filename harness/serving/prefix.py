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
from harness.serving.state import PREFIX_TOKENS, STORE_BLOCKS, STORE_SHARED, SWAP_S, Array, View

if TYPE_CHECKING:
    from harness.serving.pool import Pool


NEWER, OLDER, ABSENT = 0, 1, -1
"""A store is a row of View.stores: its blocks from the least to the most recent, closed to a ring by a mark with the number U. Block b has
its neighbours at 2 b + NEWER and 2 b + OLDER, ABSENT when it is not in the store; the last column counts the blocks."""

NO_BLOCKS = np.zeros(0, np.int32)


def no_stores(stores: int = 1, blocks: int = 0) -> Array:
    """So many empty stores for so many different blocks."""
    rings = np.full((stores, 2 * (blocks + 1) + 1), ABSENT, np.int32)
    rings[:, -3:] = blocks, blocks, 0
    return rings


def add_prefixes(view: View, trace: pa.Table, order: Array, pool: "Pool") -> View:
    """The view with the prefix blocks of the requests of ``trace``, in this ``order`` (Q,), and the empty stores of ``pool``.

    Raises BadInput for a request whose number of hashes does not go with ``pool.prefix_block_tokens``.
    """
    tokens, lists, requests = pool.prefix_block_tokens, trace["prefix_hashes"].combine_chunks(), view.requests
    length = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    prompt = trace["prompt_tokens"].to_numpy().astype(np.int64)
    wrong = np.flatnonzero((length > 0) & ((length < prompt // tokens) | (length > -(-prompt // tokens))))
    if len(wrong):
        row = int(wrong[0])
        raise BadInput(f"requests, row {row}: {length[row]} prefix_hashes for a prompt of {prompt[row]} tokens, but "
                       f"pool.prefix_block_tokens={tokens}; it must be what the trace has (Mooncake 512, Qwen-Bailian 16)")
    begin, whole = (np.cumsum(length) - length)[order], np.minimum(length, prompt // tokens)[order]
    requests.prefix, requests.prefix_n = np.cumsum(whole) - whole, whole
    place = np.repeat(begin - requests.prefix, whole) + np.arange(whole.sum())
    known, block = np.unique(lists.flatten().to_numpy()[place], return_inverse=True)
    shared = pool.prefix_store == "shared"
    view.count[[STORE_BLOCKS, PREFIX_TOKENS, STORE_SHARED]] = pool.prefix_blocks, tokens, shared
    return view._replace(prefix=block.astype(np.int32), stores=no_stores(1 if shared else pool.replicas, len(known)))


@inlined
def store_of(view, r):
    """Row of View.stores for replica ``r``."""
    return 0 if view.count[STORE_SHARED] else r


@kernel
def stored(view, r, q):
    """Prompt tokens of request ``q`` that the store of replica ``r`` would spare it: at most all but the last that it has to prefill."""
    requests = view.requests
    if not view.count[STORE_BLOCKS]:
        return 0
    s, n = store_of(view, r), 0
    while n < requests.prefix_n[q] and view.stores[s, 2 * view.prefix[requests.prefix[q] + n]] != ABSENT:
        n += 1
    return min(n * view.count[PREFIX_TOKENS], requests.target[q] - 1)


@inlined
def load_prefix(view, r, q):
    """The prefill of ``q``, out of its queue, begins on replica ``r`` with what the store has of it."""
    if view.count[STORE_BLOCKS]:
        tokens = stored(view, r, q)
        view.requests.done[q] = tokens
        view.replicas.stall[r] += tokens * view.clock[SWAP_S]
        if np.isnan(view.requests.first_token[q]):
            view.requests.loaded[q] = tokens


@inlined
def keep_prefix(view, r, q):
    """The prefill of ``q`` on replica ``r`` is complete: the store has its prompt."""
    if view.count[STORE_BLOCKS]:
        _keep(view, r, q)


@inlined
def forget_prefixes(view, r):
    """Replica ``r`` is gone, and its own store with it."""
    if view.count[STORE_BLOCKS] and not view.count[STORE_SHARED]:
        _forget(view, r)


@kernel
def _keep(view, r, q):
    stores, s, first = view.stores, store_of(view, r), view.requests.prefix[q]
    held = stores.shape[1] - 1
    mark = (held >> 1) - 1
    for i in range(view.requests.prefix_n[q] - 1, -1, -1):
        block = view.prefix[first + i]
        if stores[s, 2 * block] != ABSENT:
            _take_out(stores, s, block)
        elif stores[s, held] < view.count[STORE_BLOCKS]:
            stores[s, held] += 1
        else:
            _take_out(stores, s, stores[s, 2 * mark + NEWER])
        newest = stores[s, 2 * mark + OLDER]
        stores[s, 2 * newest + NEWER], stores[s, 2 * mark + OLDER] = block, block
        stores[s, 2 * block + NEWER], stores[s, 2 * block + OLDER] = mark, newest


@kernel
def _forget(view, r):
    stores = view.stores
    held = stores.shape[1] - 1
    mark = (held >> 1) - 1
    while stores[r, 2 * mark + NEWER] != mark:
        _take_out(stores, r, stores[r, 2 * mark + NEWER])
    stores[r, held] = 0


@inlined
def _take_out(stores, s, block):
    newer, older = stores[s, 2 * block + NEWER], stores[s, 2 * block + OLDER]
    stores[s, 2 * newer + OLDER], stores[s, 2 * older + NEWER] = older, newer
    stores[s, 2 * block + NEWER] = stores[s, 2 * block + OLDER] = ABSENT
