"""One replica's steps: what goes into the next one, and what its end brings. The arithmetic of skipped steps is that of single ones."""

import numpy as np

from harness.jit import inlined, kernel
from harness.serving.lifecycle import (
    begin_prefill,
    blocks_for,
    cached,
    come_back,
    drop_kept,
    end_prefill,
    enter,
    finish,
    hand_over,
    is_before,
    join_batch,
    leave_batch,
    make_first_token,
    preempt_member,
    preempt_prefill,
    refresh,
    take,
)
from harness.serving.log import STEP, add_span
from harness.serving.prefix import keep_prefix, load_prefix
from harness.serving.queue import join, leave, touch
from harness.serving.speed import step_s
from harness.serving.state import (
    ADMIT,
    BATCH,
    BLOCK_TOKENS,
    BY_KEY,
    CHUNK,
    DECODE,
    DECODING,
    HORIZON,
    NOBODY,
    NOW,
    OFFLOADED,
    PAUSE,
    PREEMPTION,
    PREFILL,
    PREFILLING,
    RECOMPUTE,
    STOP,
    SWAP,
    SWITCHES,
    WHOLE,
)

FINE, FAULTY = 0, 1

AHEAD = 1024
"""Most steps of a replica that are advanced at one instant, so that it is known how much the log grows."""

FAULT, FAULT_REQUEST, FAULT_REPLICA, FAULT_OTHER = 0, 1, 2, 3
"""Columns of the fault record: what is wrong, and the request, replica and other request or number concerned."""

FAULTS = (
    "", "route names a replica that there is not", "route names a replica that only decodes", "route names a replica too small for it",
    "hand names a replica that does not decode", "victim is no member of the batch", "victim holds a gang, which is not preempted",
    "gang names more replicas than there are", "gang names a replica that there is not", "gang names a replica twice",
    "gang names too few replicas for its KV cache",
    "switch names a model that there is not",
    "route names a replica that is not there, or drains",
)
(NO_FAULT, NO_REPLICA, ONLY_DECODES, TOO_SMALL, NO_DECODER, NO_MEMBER, GANG_VICTIM, GANG_SIZE, GANG_REPLICA, GANG_TWICE, GANG_SMALL,
 NO_MODEL, NOT_THERE) = range(13)


@inlined
def blame(fault, what, q, r, other):
    fault[FAULT], fault[FAULT_REQUEST], fault[FAULT_REPLICA], fault[FAULT_OTHER] = what, q, r, other
    return FAULTY


@inlined
def growth_of(view, r):
    """KV blocks that the decode members need for the next step."""
    return view.phase[r, view.replicas.ordinal[r] % view.count[BLOCK_TOKENS]]


@inlined
def intact(view, q):
    """Whether a waiting request has its KV cache, here or on the way, and only needs a place in the batch."""
    return view.requests.kept[q] or view.requests.swapped[q]


@kernel
def rerank(view, seen, own, r, key):
    """Asks for all keys of a queue again and orders it."""
    q = view.queues.head[r]
    view.queues.head[r] = view.queues.tail[r] = NOBODY
    view.queues.waiting[r] = view.queues.tokens[r] = 0
    while q >= 0:
        behind = view.requests.behind[q]
        view.requests.key[q] = key(seen, own, q)
        join(view, r, q)
        q = behind


@kernel
def make_room(state, calendar, log, r):
    """Frees KV blocks until all decode members can make a token; whether anybody lost its place. The last to enter go first."""
    view = state.shown
    requests, replicas = view.requests, view.replicas
    lost = False
    while replicas.used[r] + growth_of(view, r) > replicas.blocks[r]:
        if drop_kept(view, calendar, r):
            continue
        last, entered = NOBODY, -1
        for i in range(replicas.batch[r]):
            q = view.members[r, i]
            if not requests.in_place[q] and requests.entered[q] > entered:
                last, entered = q, requests.entered[q]
        for i in range(replicas.filling[r]):
            q = view.prefills[r, i]
            if requests.entered[q] > entered:
                last, entered = q, requests.entered[q]
        if requests.status[last] == PREFILLING:
            preempt_prefill(view, calendar, r, last)
        else:
            preempt_member(state, calendar, log, r, last, SWAP if view.count[PREEMPTION] == SWAP else RECOMPUTE)
        lost = True
    return lost


@kernel
def change_model(state, calendar, log, r, model):
    """Takes everybody off the batch and loads another model; with offloading it is there already."""
    view = state.shown
    replicas = view.replicas
    how = PAUSE if view.count[OFFLOADED] else SWAP
    while replicas.filling[r]:
        preempt_prefill(view, calendar, r, view.prefills[r, replicas.filling[r] - 1])
    while replicas.batch[r]:
        preempt_member(state, calendar, log, r, view.members[r, replicas.batch[r] - 1], how)
    if not view.count[OFFLOADED]:
        replicas.stall[r] += view.models.switch_s[model]
    replicas.model[r] = model
    view.count[SWITCHES] += 1


@inlined
def has_place(view, r, q):
    """Whether request ``q`` could enter the step at hand: a place in the batch, and KV blocks."""
    replicas = view.replicas
    if replicas.batch[r] + replicas.filling[r] >= view.count[BATCH]:
        return False
    if not intact(view, q):
        need = blocks_for(view, view.requests.target[q])
    else:
        tokens = cached(view, q)
        need = 0 if view.requests.kept[q] else blocks_for(view, tokens)
        need += tokens % view.count[BLOCK_TOKENS] == 0
    spare = replicas.blocks[r] // 100 if replicas.batch[r] + replicas.filling[r] else 0
    return replicas.used[r] + growth_of(view, r) + need + spare <= replicas.blocks[r]


@inlined
def tokens_before(view, r, q):
    """Tokens still to be prefilled of the prefill members of replica ``r`` whose keys come before that of ``q``."""
    tokens = 0
    for i in range(view.replicas.filling[r]):
        other = view.prefills[r, i]
        if is_before(view, other, q):
            tokens += view.requests.target[other] - view.requests.done[other]
    return tokens


@kernel
def admit_waiting(state, seen, own, calendar, log, fault, r, key, admit, victim, has_key, has_admit, has_victim, dynamic):
    """Lets waiting requests into the step at hand, in the order of the queue."""
    view = state.shown
    requests, replicas, queues = view.requests, view.replicas, view.queues
    budget = view.count[CHUNK] - replicas.batch[r] - replicas.filling_tokens[r]
    if dynamic:
        rerank(view, seen, own, r, key)
    q = queues.head[r]
    while q >= 0:
        behind = requests.behind[q]
        whole = intact(view, q)
        if requests.service[q] != replicas.model[r] or (view.count[WHOLE] and not whole):
            q = behind
            continue
        if not whole and (tokens_before(view, r, q) >= view.count[CHUNK] - replicas.batch[r] if view.count[BY_KEY] else budget <= 0):
            break
        verdict = admit(seen, own, q, r) if has_admit else ADMIT
        if verdict == STOP:
            break
        if verdict != ADMIT:
            q = behind
            continue
        if not has_place(view, r, q):
            other = victim(seen, own, r, q) if has_victim else NOBODY
            if other >= 0:
                if other >= len(requests) or requests.replica[other] != r:
                    return blame(fault, NO_MEMBER, q, r, other)
                if requests.in_place[other]:
                    return blame(fault, GANG_VICTIM, q, r, other)
                if requests.status[other] == DECODING:
                    preempt_member(state, calendar, log, r, other, view.count[PREEMPTION])
                elif requests.status[other] == PREFILLING and not view.count[WHOLE]:
                    budget += requests.target[other] - requests.done[other]
                    preempt_prefill(view, calendar, r, other)
                else:
                    return blame(fault, NO_MEMBER, q, r, other)
                continue
            if replicas.batch[r] + replicas.filling[r] == 0 and drop_kept(view, calendar, r):
                q = queues.head[r]
                continue
            break
        leave(view, r, q)
        if whole:
            come_back(state, r, q)
            budget -= 1
        else:
            enter(view, r, q)
            load_prefix(view, r, q)
            begin_prefill(view, r, q)
            budget -= requests.target[q] - requests.done[q]
        q = behind
        if dynamic:
            rerank(view, seen, own, r, key)
            q = queues.head[r]
    return FINE


@inlined
def begin_step(state, r):
    """Puts the next step of replica ``r`` together from its members; whether there is anything to do."""
    view = state.shown
    requests, replicas, now = view.requests, view.replicas, view.clock[NOW]
    batch, ordinal = replicas.batch[r], replicas.ordinal[r]
    prompts, tokens, past, pairs, largest = 0, 0, 0, 0.0, 0
    if not view.count[WHOLE]:
        budget = view.count[CHUNK] - batch
        for i in range(replicas.filling[r]):
            q = view.prefills[r, i]
            n = min(budget, requests.target[q] - requests.done[q])
            requests.chunk[q] = n
            if n > 0:
                budget -= n
                prompts += 1
                tokens += n
                past += requests.done[q]
                pairs += n * (requests.done[q] + 0.5 * n)
                largest = max(largest, requests.done[q] + n)
    if batch == 0 and prompts == 0:
        return False
    if replicas.stale[r]:
        refresh(state, r)
    take(view, r, growth_of(view, r))
    if batch:
        largest = max(largest, replicas.lead[r] + ordinal + 1)
    seconds = step_s(view.coef, view.limit, view.row[replicas.model[r], 1] + replicas.link[r], prompts, tokens, pairs, past, batch,
                     replicas.context[r] + batch, largest)
    replicas.begin[r], view.due[r] = now, now + (replicas.stall[r] + seconds)
    replicas.busy[r], replicas.stall[r] = 1, 0.0
    replicas.tokens[r], replicas.prompts[r] = tokens, prompts
    return True


@inlined
def run_ahead(view, log, r, before):
    """Ends up to AHEAD steps of replica ``r`` that only make tokens, and begins the next, as long as they end before ``before``: what comes
    at the end of a step belongs to the next."""
    replicas = view.replicas
    batch, blocks, tokens = replicas.batch[r], replicas.blocks[r], view.count[BLOCK_TOKENS]
    row, lead = view.row[replicas.model[r], 1] + replicas.link[r], replicas.lead[r]
    last = min(replicas.next_end[r] - 1, replicas.ordinal[r] + AHEAD)
    ordinal, used, context, begin, end = replicas.ordinal[r], replicas.used[r], replicas.context[r], replicas.begin[r], view.due[r]
    ahead = False
    before = min(before, view.clock[HORIZON])
    while end < before and ordinal < last:
        growth = view.phase[r, (ordinal + 1) % tokens]
        if used + growth > blocks:
            break
        add_span(log, begin, end, r, STEP, batch, 0, 0, used)
        replicas.used_s[r] += used * (end - begin)
        ordinal += 1
        used += growth
        context += batch
        begin = end
        end = begin + step_s(view.coef, view.limit, row, 0, 0, 0.0, 0, batch, context + batch, lead + ordinal + 1)
        ahead = True
    if ahead:
        replicas.ordinal[r], replicas.used[r], replicas.context[r] = ordinal, used, context
        replicas.begin[r], replicas.used_at[r], view.due[r] = begin, begin, end


@inlined
def prefilled(state, seen, own, calendar, log, fault, r, q, hand):
    """The prompt of ``q`` is prefilled on replica ``r``: it makes a token, and is done, moves on or joins the batch."""
    view = state.shown
    if make_first_token(state, log, r, q):
        finish(state, calendar, r, q)
    elif view.replicas.role[r] == PREFILL and not view.requests.in_place[q]:
        to = hand(seen, own, q)
        if to < 0 or to >= len(view.replicas) or view.replicas.role[to] != DECODE:
            return blame(fault, NO_DECODER, q, r, to)
        hand_over(view, calendar, r, q, to)
        touch(view, calendar, r)
    else:
        join_batch(state, r, q)
        touch(view, calendar, r)
    return FINE


@kernel
def end_step(state, seen, own, calendar, log, fault, r, hand):
    """The step of replica ``r`` ends now."""
    view, work = state.shown, state.work
    requests, replicas, now = view.requests, view.replicas, view.clock[NOW]
    batch = replicas.batch[r]
    add_span(log, replicas.begin[r], now, r, STEP, batch, replicas.prompts[r], replicas.tokens[r], replicas.used[r])
    replicas.busy[r], view.due[r] = 0, np.inf
    if batch:
        replicas.ordinal[r] += 1
        replicas.context[r] += batch
        if replicas.ordinal[r] == replicas.next_end[r]:
            i = batch - 1
            while i >= 0:
                q = view.members[r, i]
                if work.ends[q] == replicas.ordinal[r]:
                    leave_batch(state, log, r, q)
                    finish(state, calendar, r, q)
                i -= 1
    if not view.count[WHOLE]:
        i = 0
        while i < replicas.filling[r]:
            q = view.prefills[r, i]
            replicas.filling_tokens[r] -= requests.chunk[q]
            requests.done[q] += requests.chunk[q]
            requests.chunk[q] = 0
            if requests.done[q] < requests.target[q]:
                i += 1
                continue
            end_prefill(view, r, q)
            keep_prefix(view, r, q)
            if prefilled(state, seen, own, calendar, log, fault, r, q, hand):
                return FAULTY
        if replicas.filling[r]:
            touch(view, calendar, r)
    changed = replicas.changed[r]
    touch(view, calendar, r)
    replicas.changed[r] = changed
    return FINE
