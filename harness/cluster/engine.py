"""The replay of a trace under a policy: one loop over instants, compiled once for all policies.

It knows events, queues and claims, and nothing of any policy. specs/replay-semantics.md is its contract.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import typeof, types

from harness.cluster.build import smallest_state
from harness.cluster.decide import (
    CLAIMED,
    FAULTY,
    HELD_BACK,
    NO_ROOM,
    PASSED_OVER,
    STARTED,
    drop_claim,
    mature,
    new_pending,
    rejoin,
    try_job,
)
from harness.cluster.hooks import HOOKS, signatures
from harness.cluster.lifecycle import end_unstarted, finish, wait
from harness.cluster.log import new_log
from harness.cluster.queue import (
    CALENDAR,
    FINISH,
    FRONT,
    HELD,
    VERSION,
    enqueue,
    expose,
    meld,
    new_queue,
    next_job,
    park,
    pop_event,
    remove_head,
    stale,
    unpark_all,
)
from harness.cluster.state import (
    CLAIMING,
    GRACE_S,
    HORIZON,
    NOW,
    PASS,
    REJECTED,
    RUNNING,
    UNBOUND,
    WAITING,
    Array,
    new_own,
    read_only,
)
from harness.jit import JIT, inlined, kernel, njit

IDLE_TICKS_S = 86400.0
"""With ticks, the replay ends after so many seconds of them in which nothing ran, arrived or was claimed."""


class Progress(NamedTuple):
    """Where the loop stands, so that it can be left and entered again."""

    tally: Array  # i8 (7,) columns ARRIVED ..
    last: Array  # f8 (2,) instant of the last event and of the last sign of life, s


ARRIVED, EVENTS, TICKS, UNPARKED_AT, IN_PASS, KNOWN, MORE = 0, 1, 2, 3, 4, 5, 6
"""Columns of Progress.tally: jobs that have arrived, events and ticks so far, the value of VERSION when parked classes last came back,
whether the loop was left in the middle of a pass (2: after something had changed in it), jobs whose arrival is known, and whether
there are more, which all arrive later than these."""

LAST_EVENT, LAST_LIFE = 0, 1

DONE, PAUSED, BROKEN, FULL, STARVED = 0, 1, 2, 3, 4
"""Why the loop was left: nothing is left to happen, enough events for now, an invalid intention, a log that must grow first, or all
known jobs have arrived and there are more."""


def new_progress(jobs: int) -> Progress:
    return Progress(np.array([0, 0, 0, -1, 0, jobs, 0]), np.zeros(2))


@inlined
def join_queue(view, own, queue, key, has_key, job):
    """A waiting job takes its place in the queue."""
    queue.node.key[job] = key(view, own, job) if has_key else 0.0
    enqueue(queue, view.jobs.klass[job], job)


@kernel
def ask_again(view, own, queue, key):
    """Builds the heaps anew from the waiting jobs, with the keys that they have now."""
    node, line, stack = queue.node, queue.line, queue.node.held
    n = _push(stack, 0, queue.mark[FRONT])
    while n:
        n -= 1
        job = stack[n]
        node.in_front[job] = 0
        n = _push(stack, _push(stack, n, node.front_child[job]), node.front_sibling[job])
    queue.mark[FRONT] = -1
    for c in range(len(line.root)):
        n = _push(stack, 0, line.root[c])
        line.root[c] = -1
        while n:
            n -= 1
            job = stack[n]
            n = _push(stack, _push(stack, n, node.child[job]), node.sibling[job])
            if view.jobs.status[job] == WAITING:
                node.key[job] = key(view, own, job)
                node.child[job] = node.sibling[job] = -1
                line.root[c] = meld(line.root[c], job, node.key, node.child, node.sibling)
        if not line.is_parked[c]:
            expose(queue, c)


@inlined
def _push(stack, n, job):
    if job < 0:
        return n
    stack[n] = job
    return n + 1


def replay(state, view, own, queue, pending, log, progress, key, admit, place, victims, blocked, tick, outranks, changed, defined, dynamic,
           period, stop_at):
    """Replays until nothing is left to happen, the horizon, or one of the other reasons to leave the loop, and returns it.

    ``view`` is the read-only face of ``state``; ``defined`` (8,) tells which hooks the policy defines, ``dynamic`` whether keys change
    while jobs wait; PAUSED comes after ``stop_at`` events. The loop can be entered again where it was left.
    """
    jobs, classes, clock, tally = state.jobs, state.classes, state.clock, progress.tally
    n_jobs, more = tally[KNOWN], tally[MORE]
    has_key, has_admit, preempts, has_blocked = defined[0], defined[1], defined[3], defined[4]
    has_rivals, notes = defined[6], defined[7]
    while True:
        if not tally[IN_PASS]:
            # 1. The next instant
            if more and tally[ARRIVED] == n_jobs:
                return STARVED
            while queue.mark[CALENDAR] and stale(queue, jobs, 0):
                pop_event(queue)
            arrival = jobs.submit[tally[ARRIVED]] if tally[ARRIVED] < n_jobs else np.inf
            event = queue.event.time[0] if queue.mark[CALENDAR] else np.inf
            ticking = (tally[TICKS] + 1) * period
            now = min(arrival, event, ticking)
            idle = arrival == np.inf and event == np.inf
            if now >= clock[HORIZON] or (idle and now - progress.last[LAST_LIFE] > IDLE_TICKS_S) or now == np.inf:
                return DONE
            if tally[EVENTS] >= stop_at:
                return PAUSED
            clock[NOW] = now
            progress.last[LAST_EVENT] = now
            if not idle:
                progress.last[LAST_LIFE] = now

            # 2. What happens at it: finishes, ends of grace, the tick, arrivals
            while queue.mark[CALENDAR] and queue.event.time[0] == now:
                if stale(queue, jobs, 0):
                    pop_event(queue)
                    continue
                kind, job = pop_event(queue)
                tally[EVENTS] += 1
                if kind != FINISH:
                    mature(state, view, own, queue, pending, log, job, jobs.klass[job], changed, notes)
                elif jobs.status[job] == RUNNING:
                    finish(state, job)
                    if notes:
                        changed(view, own, job)
                    queue.mark[VERSION] += 1
                else:
                    if jobs.status[job] == CLAIMING:
                        drop_claim(state, queue, pending, log, job)
                    end_unstarted(state, job)
            if ticking == now:
                tally[TICKS] += 1
                tally[EVENTS] += 1
                tick(view, own)
                queue.mark[VERSION] += 1  # the policy may see things differently now
            while tally[ARRIVED] < n_jobs and jobs.submit[tally[ARRIVED]] == now:
                job = tally[ARRIVED]
                tally[ARRIVED] += 1
                tally[EVENTS] += 1
                if classes.possible[jobs.klass[job]]:
                    wait(state, queue, job)
                    join_queue(view, own, queue, key, has_key, job)
                else:
                    jobs.status[job] = REJECTED

        # 3. Passes, until one changes nothing
        again = True
        while again:
            again = tally[IN_PASS] == 2
            if not tally[IN_PASS]:
                state.count[PASS] += 1
                for i in range(queue.mark[HELD]):
                    if jobs.status[queue.node.held[i]] == WAITING:
                        join_queue(view, own, queue, key, has_key, queue.node.held[i])
                queue.mark[HELD] = 0
                if dynamic:
                    ask_again(view, own, queue, key)
                if has_blocked or preempts or queue.mark[VERSION] != tally[UNPARKED_AT]:
                    tally[UNPARKED_AT] = queue.mark[VERSION]
                    unpark_all(queue)
            tally[IN_PASS] = 0
            while True:
                # 3a. The next job in the queue
                job = next_job(queue, jobs.klass)
                if job < 0:
                    break
                c = jobs.klass[job]
                if jobs.status[job] != WAITING:
                    remove_head(queue, c)
                    continue

                # 3b. Jobs of its class are known to fail, or the policy holds it back
                # (with each pass, what has started or come out of protection may be evicted for those of higher priority)
                reaches = preempts and (classes.rank[c] or has_rivals or state.count[UNBOUND])
                version = queue.mark[VERSION] + (state.count[PASS] if reaches else 0)
                failed = queue.line.failed[c] == version
                if not failed:
                    if has_admit and not admit(view, own, job):
                        remove_head(queue, c)
                        rejoin(queue, job)
                        continue

                    # 3c. Place it, or evict for it
                    outcome = try_job(state, view, own, queue, pending, log, job, place, victims, outranks, changed, defined)
                    if outcome == FAULTY:
                        return BROKEN
                    if outcome == NO_ROOM:
                        tally[IN_PASS] = 2 if again else 1
                        expose(queue, c)
                        return FULL
                    if outcome == STARTED or outcome == CLAIMED:
                        again = True
                        remove_head(queue, c)
                        tally[EVENTS] += outcome == CLAIMED and clock[GRACE_S] == 0.0
                        continue
                    if outcome == PASSED_OVER:
                        park(queue, c)
                        tally[UNPARKED_AT] = -1
                        continue
                    failed = outcome != HELD_BACK

                # 3d. It stays: its class waits until something is freed, and the policy may end the pass
                if failed:
                    queue.line.failed[c] = version
                    park(queue, c)
                    if has_blocked and blocked(view, own, job):
                        break
                else:
                    remove_head(queue, c)
                    rejoin(queue, job)


def _signature():
    state = smallest_state()
    own = new_own(np.zeros(1), 1, 1, 1, 1, np.zeros((1, 1)), state)
    pieces = [state, read_only(state), own, new_queue(1, 1), new_pending(state), new_log(), new_progress(1)]
    hooks = [types.FunctionType(signatures()[hook]) for hook in HOOKS]
    defined = types.Array(types.boolean, 1, "C")
    return types.int64(*map(typeof, pieces), *hooks, defined, types.boolean, types.float64, types.int64)


run: Any = njit(_signature(), cache=True, error_model="numpy", nogil=True, _nrt=False)(replay) if JIT else replay


def fresh(state):
    """Queue, pending decisions, log and progress for a fresh replay of ``state``."""
    return new_queue(len(state.jobs), len(state.classes)), new_pending(state), new_log(), new_progress(len(state.jobs))
