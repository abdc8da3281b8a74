"""Prefill of whole prompts as operations: put together, run, paused in place between two operators, and resumed.

An operation is known by its head request; its other requests are chained by ``mate``. It has its replicas to itself: decode members
make no tokens meanwhile. A gang's request is an operation of its own on all replicas of the gang.
"""

import numpy as np

from harness.jit import inlined, kernel
from harness.serving.lifecycle import blocks_for, enter, take
from harness.serving.log import OPERATION_SPAN, add_span
from harness.serving.queue import OPERATION, join, leave, schedule, touch
from harness.serving.speed import step_s
from harness.serving.state import (
    ADMIT,
    BATCH,
    BLOCKED_S,
    BOUNDARY,
    CHUNK,
    INTERRUPTS,
    LONGS,
    NOBODY,
    NOW,
    PAUSED,
    PREFILLING,
    STOP,
    WAITING,
)
from harness.serving.step import FINE, intact, prefilled, rerank


@inlined
def run(view, calendar, q):
    """The operation of ``q`` starts or goes on."""
    requests = view.requests
    requests.began[q] = view.clock[NOW]
    requests.due[q] = view.clock[NOW] + requests.left[q]
    requests.yielding[q] = 0
    schedule(view, calendar, requests.due[q], OPERATION, q)


@kernel
def try_gang(view, seen, own, calendar, q, admit, has_admit):
    """Starts or resumes the operation of a gang's request if no other runs on its replicas, KV blocks are there, and the policy agrees."""
    requests, replicas = view.requests, view.replicas
    first = requests.status[q] == WAITING
    for m in range(len(replicas)):
        if (requests.gang_mask[q] >> m) & 1:
            if replicas.long[m] != q or replicas.op[m] >= 0 or (first and replicas.used[m] + requests.share[q] > replicas.blocks[m]):
                return
    if has_admit and admit(seen, own, q, requests.replica[q]) != ADMIT:
        return
    for m in range(len(replicas)):
        if (requests.gang_mask[q] >> m) & 1:
            replicas.op[m] = q
            if first:
                take(view, m, requests.share[q])
    if first:
        enter(view, requests.replica[q], q)
    requests.status[q] = PREFILLING
    run(view, calendar, q)


@kernel
def try_operation(view, seen, own, calendar, r, key, admit, has_admit, dynamic):
    """Resumes or starts the operation that the queue of replica ``r`` has first; whether there was one."""
    requests, replicas = view.requests, view.replicas
    if dynamic:
        rerank(view, seen, own, r, key)
    head, last, tokens, pairs, largest, n = NOBODY, NOBODY, 0, 0.0, 0, 0
    q = view.queues.head[r]
    while q >= 0:
        behind = requests.behind[q]
        size = requests.target[q]
        if intact(view, q) or (head >= 0 and (requests.left[q] > 0 or tokens + size > view.count[CHUNK])):
            q = behind
            continue
        verdict = admit(seen, own, q, r) if has_admit else ADMIT
        if verdict == STOP:
            break
        if verdict != ADMIT:
            q = behind
            continue
        if requests.left[q] > 0:
            leave(view, r, q)
            head = q
            mate = head
            while mate >= 0:
                requests.status[mate] = PREFILLING
                mate = requests.mate[mate]
            break
        need = blocks_for(view, size)
        if replicas.batch[r] + n >= view.count[BATCH] or replicas.used[r] + need > replicas.blocks[r]:
            break
        leave(view, r, q)
        enter(view, r, q)
        requests.status[q] = PREFILLING
        requests.mate[q] = NOBODY
        take(view, r, need)
        if head < 0:
            head = q
            replicas.forming[r] = q
        else:
            requests.mate[last] = q
        last = q
        n += 1
        tokens += size
        pairs += 0.5 * size * size
        largest = max(largest, size)
        replicas.forming_tokens[r] = tokens
        if tokens >= view.count[CHUNK]:
            break
        q = behind
    replicas.forming[r], replicas.forming_tokens[r] = NOBODY, 0
    if head < 0:
        return False
    if n:
        requests.whole_s[head] = requests.left[head] = step_s(
            view.coef, view.limit, view.row[replicas.model[r], 1] + replicas.link[r], n, tokens, pairs, 0, 0, 0, largest
        ) + replicas.stall[r]
        replicas.stall[r] = 0.0
    replicas.op[r] = head
    run(view, calendar, head)
    return True


@inlined
def interrupt_operation(view, calendar, q):
    """The operation of ``q`` is to be paused at the next boundary between two operators, unless it ends by then."""
    requests, now = view.requests, view.clock[NOW]
    at = now
    if view.clock[BOUNDARY]:
        between = requests.whole_s[q] / view.clock[BOUNDARY]
        before = requests.whole_s[q] - requests.left[q]
        at = max(now, requests.began[q] + (np.ceil((before + now - requests.began[q]) / between) * between - before))
    view.clock[BLOCKED_S] += min(at, requests.due[q]) - now
    view.count[INTERRUPTS] += 1
    if at < requests.due[q]:
        requests.yielding[q] = 1
        requests.due[q] = at
        schedule(view, calendar, at, OPERATION, q)


@kernel
def gang_prefilled(view, q):
    """The gang of ``q`` is no longer first on its replicas: the next one placed there is."""
    requests, replicas = view.requests, view.replicas
    for m in range(len(replicas)):
        if (requests.gang_mask[q] >> m) & 1:
            replicas.long_tokens[m] -= requests.prompt[q] // requests.gang[q]
            replicas.long_decodes[m] += 1
            replicas.long[m] = NOBODY
            for i in range(view.count[LONGS]):
                other = view.gangs[i]
                waits = requests.status[other] == WAITING or requests.status[other] == PAUSED
                if waits and (requests.gang_mask[other] >> m) & 1:
                    replicas.long[m] = other
                    break


@kernel
def end_operation(state, seen, own, calendar, log, fault, q, hand):
    """The operation of ``q`` is paused or complete."""
    view = state.shown
    requests, replicas, now = view.requests, view.replicas, view.clock[NOW]
    r = requests.replica[q]
    paused = requests.yielding[q]
    n, mate = 0, q
    while mate >= 0:
        n += 1
        mate = requests.mate[mate]
    for m in range(len(replicas)):
        if replicas.op[m] == q:
            add_span(log, requests.began[q], now, m, OPERATION_SPAN, 0, n, 0, replicas.used[m])
            replicas.op[m] = NOBODY
            replicas.turn[m] = 1
            touch(view, calendar, m)
    requests.left[q] = max(requests.left[q] - (now - requests.began[q]), 0.0) if paused else 0.0
    requests.due[q] = np.inf
    if paused:
        mate = q
        while mate >= 0:
            requests.status[mate] = PAUSED
            requests.preemptions[mate] += 1
            mate = requests.mate[mate]
        if not requests.in_place[q]:
            join(view, r, q)
        return FINE
    if requests.in_place[q]:
        gang_prefilled(view, q)
    mate = q
    while mate >= 0:
        following = requests.mate[mate]
        requests.mate[mate] = NOBODY
        requests.done[mate] = requests.target[mate]
        if prefilled(state, seen, own, calendar, log, fault, r, mate, hand):
            return 1
        mate = following
    return FINE
