"""What happens to one request: it enters a replica, joins the decode batch, is preempted, moves, finishes. KV caches follow it."""

import numpy as np

from harness.jit import inlined, kernel
from harness.serving.log import add_stay
from harness.serving.queue import MOVE, RELEASED, join, schedule, touch
from harness.serving.state import (
    BLOCK_TOKENS,
    BY_KEY,
    DECODING,
    ENTERED,
    FINISHED,
    FINISHED_N,
    LONGS,
    MOVE_FLOOR_S,
    MOVE_S,
    MOVING,
    NOW,
    PAUSE,
    PREFILLING,
    RECOMPUTE,
    SWAP,
    SWAP_S,
    WAITING,
)


@inlined
def blocks_for(view, tokens):
    """KV blocks that ``tokens`` fill."""
    return (tokens + view.count[BLOCK_TOKENS] - 1) // view.count[BLOCK_TOKENS]


@inlined
def take(view, r, blocks):
    """``blocks`` KV blocks of replica ``r`` are taken (or freed, if negative) now; the time integral of those in use is kept."""
    replicas, now = view.replicas, view.clock[NOW]
    replicas.used_s[r] += replicas.used[r] * (now - replicas.used_at[r])
    replicas.used_at[r] = now
    replicas.used[r] += blocks


@inlined
def cached(view, q):
    """Tokens in the KV cache of a request whose prefill is complete; of one that decodes, as it joined its batch. Of a gang's request
    they are those on one replica of the gang."""
    requests = view.requests
    return (requests.prompt[q] + requests.gang[q] - 1) // requests.gang[q] + requests.decoded[q] - 1


@inlined
def wait(view, calendar, r, q):
    """The request, its key set, waits in the queue of replica ``r``."""
    view.requests.status[q] = WAITING
    view.requests.replica[q] = r
    join(view, r, q)
    touch(view, calendar, r)


@inlined
def enter(view, r, q):
    """The request, out of its queue, is admitted to replica ``r``."""
    requests = view.requests
    requests.replica[q] = r
    requests.entered[q] = view.count[ENTERED]
    view.count[ENTERED] += 1
    if np.isnan(requests.start[q]):
        requests.start[q] = view.clock[NOW]


@inlined
def is_before(view, q, other):
    """Whether request ``q`` comes before another by its key, ties by index."""
    key = view.requests.key
    return key[q] < key[other] or (key[q] == key[other] and q < other)


@inlined
def begin_prefill(view, r, q):
    """Its prompt is prefilled chunk by chunk, from the next step on; the KV blocks are taken."""
    requests, replicas = view.requests, view.replicas
    n = replicas.filling[r]
    replicas.filling[r] = n + 1
    while view.count[BY_KEY] and n and is_before(view, q, view.prefills[r, n - 1]):
        other = view.prefills[r, n - 1]
        view.prefills[r, n] = other
        requests.place[other] = n
        n -= 1
    requests.status[q] = PREFILLING
    requests.place[q] = n
    view.prefills[r, n] = q
    replicas.filling_tokens[r] += requests.target[q] - requests.done[q]
    take(view, r, blocks_for(view, requests.target[q]))


@inlined
def end_prefill(view, r, q):
    """It leaves the prefill members, whose order stays."""
    requests, replicas = view.requests, view.replicas
    n = replicas.filling[r] - 1
    for i in range(requests.place[q], n):
        other = view.prefills[r, i + 1]
        view.prefills[r, i] = other
        requests.place[other] = i
    replicas.filling[r] = n
    replicas.filling_tokens[r] -= requests.target[q] - requests.done[q]


@inlined
def join_batch(state, r, q):
    """It becomes a decode member of replica ``r``; its KV blocks are already taken."""
    view, work = state.shown, state.work
    requests, replicas = view.requests, view.replicas
    n, ordinal, tokens = replicas.batch[r], replicas.ordinal[r], cached(view, q)
    requests.status[q] = DECODING
    requests.since[q] = ordinal
    requests.place[q] = n
    view.members[r, n] = q
    replicas.batch[r] = n + 1
    replicas.context[r] += tokens
    work.ends[q] = ordinal + work.output[q] - requests.decoded[q]
    if n == 0:
        replicas.lead[r], replicas.next_end[r] = tokens - ordinal, work.ends[q]
    elif not replicas.stale[r]:
        replicas.lead[r] = max(replicas.lead[r], tokens - ordinal)
        replicas.next_end[r] = min(replicas.next_end[r], work.ends[q])
    if not requests.in_place[q]:
        view.phase[r, (ordinal - tokens) % view.count[BLOCK_TOKENS]] += 1
    if np.isnan(requests.decode_start[q]):
        requests.decode_start[q] = view.clock[NOW]


@inlined
def leave_batch(state, log, r, q):
    """It stops being a decode member, and its tokens are booked; its KV blocks stay taken."""
    view = state.shown
    requests, replicas = view.requests, view.replicas
    ordinal, tokens = replicas.ordinal[r], cached(view, q)
    made = ordinal - requests.since[q]
    n = replicas.batch[r] - 1
    last = view.members[r, n]
    view.members[r, requests.place[q]] = last
    requests.place[last] = requests.place[q]
    replicas.batch[r] = n
    replicas.context[r] -= tokens + made
    replicas.stale[r] = 1
    if not requests.in_place[q]:
        view.phase[r, (requests.since[q] - tokens) % view.count[BLOCK_TOKENS]] -= 1
    requests.decoded[q] += made
    view.tenants.output[requests.tenant[q]] += made
    if made:
        add_stay(log, q, r, requests.since[q], ordinal, np.nan)


@kernel
def refresh(state, r):
    """Finds the largest KV cache and the next end of a batch again."""
    view, work = state.shown, state.work
    requests, replicas = view.requests, view.replicas
    lead, next_end = -(1 << 60), 1 << 60
    for i in range(replicas.batch[r]):
        q = view.members[r, i]
        lead = max(lead, cached(view, q) - requests.since[q])
        next_end = min(next_end, work.ends[q])
    replicas.lead[r], replicas.next_end[r], replicas.stale[r] = lead, next_end, 0


@inlined
def release(view, calendar, r, q):
    """The KV blocks of a request on replica ``r`` are free."""
    if view.requests.in_place[q]:
        for m in range(len(view.replicas)):
            if (view.requests.gang_mask[q] >> m) & 1:
                take(view, m, -view.requests.share[q])
                view.replicas.long_decodes[m] -= 1
                touch(view, calendar, m)
        n = view.count[LONGS] - 1
        after = False
        for i in range(n):
            after = after or view.gangs[i] == q
            if after:
                view.gangs[i] = view.gangs[i + 1]
        view.count[LONGS] = n
    else:
        take(view, r, -blocks_for(view, cached(view, q)))
    calendar.mark[RELEASED] = 1


@inlined
def finish(state, calendar, r, q):
    """The last token is made; the request is off its batch."""
    view = state.shown
    release(view, calendar, r, q)
    view.requests.status[q] = FINISHED
    view.requests.finish[q] = view.clock[NOW]
    view.tenants.waiting[view.requests.tenant[q]] -= 1
    view.count[FINISHED_N] += 1
    touch(view, calendar, r)


@inlined
def make_first_token(state, log, r, q):
    """A prefill is complete and makes a token; whether it is the last."""
    view = state.shown
    requests = view.requests
    requests.decoded[q] += 1
    if np.isnan(requests.first_token[q]):
        requests.first_token[q] = view.clock[NOW]
        view.tenants.prompt[requests.tenant[q]] += requests.prompt[q]
    else:
        add_stay(log, q, r, 0, 0, view.clock[NOW])
    return requests.decoded[q] == state.work.output[q]


@inlined
def hand_over(view, calendar, r, q, to):
    """Its KV cache goes from prefill replica ``r`` to decode replica ``to``."""
    take(view, r, -blocks_for(view, cached(view, q)))
    calendar.mark[RELEASED] = 1
    view.requests.status[q] = MOVING
    view.requests.replica[q] = to
    view.requests.swapped[q] = 2
    view.requests.target[q] = view.requests.done[q] = cached(view, q)
    moved = view.clock[NOW] + view.clock[MOVE_FLOOR_S] + cached(view, q) * view.clock[MOVE_S]
    schedule(view, calendar, moved, MOVE, q)


@kernel
def preempt_prefill(view, calendar, r, q):
    """A chunked prefill is given up: its blocks are free, and it waits to begin again."""
    requests = view.requests
    end_prefill(view, r, q)
    take(view, r, -blocks_for(view, requests.target[q]))
    requests.done[q] = 0
    requests.preemptions[q] += 1
    wait(view, calendar, r, q)


@kernel
def preempt_member(state, calendar, log, r, q, how):
    """A decode member leaves its batch and waits for another place in it, with its KV cache dropped, copied to the host or kept."""
    view = state.shown
    requests, replicas = view.requests, view.replicas
    leave_batch(state, log, r, q)
    tokens = cached(view, q)
    if how != PAUSE:
        take(view, r, -blocks_for(view, tokens))
    requests.done[q] = tokens if how != RECOMPUTE else 0
    requests.target[q] = tokens if how != RECOMPUTE else tokens + 1
    requests.kept[q], requests.swapped[q] = how == PAUSE, how == SWAP
    if how == SWAP:
        replicas.stall[r] += tokens * view.clock[SWAP_S]
    requests.preemptions[q] += 1
    wait(view, calendar, r, q)


@inlined
def come_back(state, r, q):
    """A request that waits with its KV cache intact joins the batch of replica ``r``, right before a step."""
    view = state.shown
    requests = view.requests
    tokens = cached(view, q)
    if not requests.kept[q]:
        take(view, r, blocks_for(view, tokens))
    if requests.swapped[q] == 1:
        view.replicas.stall[r] += tokens * view.clock[SWAP_S]
    requests.kept[q] = requests.swapped[q] = 0
    enter(view, r, q)
    join_batch(state, r, q)


@kernel
def drop_kept(view, calendar, r):
    """Frees the KV cache of the last waiting request that kept it; whether there was one. It will be computed again."""
    requests = view.requests
    q = view.queues.tail[r]
    while q >= 0 and not requests.kept[q]:
        q = requests.ahead[q]
    if q < 0:
        return False
    tokens = cached(view, q)
    view.queues.tokens[r] += tokens + 1
    requests.target[q], requests.done[q], requests.kept[q] = tokens + 1, 0, 0
    take(view, r, -blocks_for(view, tokens))
    return True
