"""The replay of requests under a policy: one loop over instants, compiled once for all policies and all step-time models.

It knows steps, operations, queues and KV blocks, and nothing of any policy. At an instant: steps that end, by replica; operations and KV
caches that arrive, by kind and request; replicas that go, drain or come; the tick; arrivals, by index. Then held requests are
dispatched, and touched replicas begin their next step or operation.
Steps at which nothing but tokens happens are advanced at once, up to the next moment at which
somebody may look at the replica or send it something: the next arrival,
tick, event of the calendar or change of the replicas, and where replicas are coupled before any other step ends (``others_end``).
"""

from typing import Any, NamedTuple

import numpy as np
from numba import typeof, types

from harness.jit import JIT, inlined, kernel, njit
from harness.serving.build import smallest_state
from harness.serving.hooks import HOOKS, signatures
from harness.serving.lifecycle import blocks_for, wait
from harness.serving.lifetimes import change
from harness.serving.log import has_room, new_log
from harness.serving.operation import end_operation, interrupt_operation, try_gang, try_operation
from harness.serving.queue import (
    EVENTS,
    MOVE,
    PENDING,
    RELEASED,
    is_stale,
    join,
    leave,
    new_calendar,
    pop_event,
    touch,
)
from harness.serving.speed import prefill_s
from harness.serving.state import (
    ACCEPTING,
    BLOCK,
    COUPLED,
    DECODE,
    FINISHED_N,
    HELD,
    HORIZON,
    LONGS,
    NOBODY,
    NOW,
    PAUSED,
    REJECTED,
    SKIP_AHEAD,
    WAITING,
    WHOLE,
    Array,
    read_only,
)
from harness.serving.step import (
    FINE,
    GANG_REPLICA,
    GANG_SIZE,
    GANG_SMALL,
    GANG_TWICE,
    NO_MODEL,
    NO_REPLICA,
    NOT_THERE,
    ONLY_DECODES,
    TOO_SMALL,
    admit_waiting,
    begin_step,
    blame,
    change_model,
    end_step,
    make_room,
    run_ahead,
)


class Progress(NamedTuple):
    """Where the loop stands, so that it can be left and entered again."""

    tally: Array  # i8 (5,) columns ARRIVED ..
    last: Array  # f8 (1,) instant of the last event, s
    fault: Array  # i8 (4,) see step.FAULT
    found: Array  # i8 (M,) replicas that ``gang`` names


ARRIVED, INSTANTS, TICKS, CHANGED, KNOWN = range(5)
"""Columns of Progress.tally: requests that have arrived, instants, ticks and changes of the replicas so far, and requests that may arrive
now. Of those behind them the first has its arrival in the table too."""

DONE, PAUSED_LOOP, BROKEN, FULL, STARVED = 0, 1, 2, 3, 4
"""Why the loop was left: nothing is left to happen, enough instants for now, an invalid intention, a log that must grow first, or all
known requests have arrived and there are more."""

IDLE_TICKS_S = 3600.0
"""With ticks, and requests that never start, the replay ends after so many seconds in which nothing else happened."""


def new_progress(replicas: int, requests: int) -> Progress:
    return Progress(np.array([0, 0, 0, 0, requests]), np.zeros(1), np.zeros(4, np.int64), np.zeros(replicas, np.int64))


@inlined
def others_end(view, r):
    """When a step of another replica ends that may concern replica ``r``: of any while replicas are coupled (requests are held that some
    replica could take, gangs have places, or the policy says so), and for a decode replica of one that prefills."""
    first = np.inf
    held = view.queues.waiting[len(view.due)] > 0 and view.count[ACCEPTING] > 0
    coupled = held or view.count[LONGS] > 0 or view.count[COUPLED] > 0
    if coupled or view.replicas.role[r] == DECODE:
        for other in range(len(view.due)):
            if other != r and (coupled or view.replicas.role[other] != DECODE):
                first = min(first, view.due[other])
    return first


@kernel
def place_gang(state, calendar, fault, found, q, k):
    """Request ``q`` takes a place on the first ``k`` replicas of ``found``, the first of which leads."""
    view = state.shown
    requests, replicas = view.requests, view.replicas
    if k > len(replicas):
        return blame(fault, GANG_SIZE, q, NOBODY, k)
    share = blocks_for(view, (requests.prompt[q] + k - 1) // k + state.work.output[q])
    for i in range(k):
        r = found[i]
        if r < 0 or r >= len(replicas) or replicas.role[r] == DECODE:
            return blame(fault, GANG_REPLICA, q, r, k)
        for j in range(i):
            if found[j] == r:
                return blame(fault, GANG_TWICE, q, r, k)
        if share > replicas.blocks[r]:
            return blame(fault, GANG_SMALL, q, r, k)
    for i in range(k):
        r = found[i]
        if replicas.long[r] < 0:
            replicas.long[r] = q
        replicas.long_tokens[r] += requests.prompt[q] // k
        requests.gang_mask[q] |= 1 << r
        touch(view, calendar, r)
    requests.gang[q], requests.share[q], requests.in_place[q] = k, share, 1
    requests.left[q] = requests.whole_s[q] = prefill_s(view, replicas.model[found[0]], k, requests.prompt[q])
    requests.replica[q], requests.status[q] = found[0], WAITING
    view.gangs[view.count[LONGS]] = q
    view.count[LONGS] += 1
    return FINE


@kernel
def dispatch(state, seen, own, calendar, progress, route, gang, interrupt, has_gang, has_interrupt):
    """Sends what is in the global queue, in its order, to replicas."""
    view, fault = state.shown, progress.fault
    requests, replicas, every = view.requests, view.replicas, len(view.due)
    q = view.queues.head[every]
    while q >= 0:
        behind = requests.behind[q]
        k = gang(seen, own, q, progress.found) if has_gang else 0
        if k > 0:
            leave(view, every, q)
            if place_gang(state, calendar, fault, progress.found, q, k):
                return 1
        elif k == 0:
            r = route(seen, own, q)
            if r == BLOCK:
                break
            if r >= 0:
                if r >= every:
                    return blame(fault, NO_REPLICA, q, r, 0)
                if replicas.role[r] == DECODE:
                    return blame(fault, ONLY_DECODES, q, r, 0)
                if not replicas.accepts[r]:
                    return blame(fault, NOT_THERE, q, r, 0)
                if blocks_for(view, requests.prompt[q] + state.work.output[q]) > replicas.blocks[r]:
                    return blame(fault, TOO_SMALL, q, r, 0)
                leave(view, every, q)
                wait(view, calendar, r, q)
                op = replicas.op[r]
                if has_interrupt and op >= 0 and not requests.yielding[op] and interrupt(seen, own, r, q):
                    interrupt_operation(view, calendar, op)
        q = behind
    return FINE


def replay(state, seen, own, calendar, log, progress, route, hand, key, admit, victim, interrupt, gang, plan, switch, tick, defined,
           dynamic, period, margin, stop_at):
    """Replays until nothing is left to happen, the horizon, or one of the other reasons to leave the loop, and returns it.

    ``seen`` is the read-only face of ``state.shown``; ``defined`` (10,) tells which hooks the policy defines, ``dynamic`` whether keys
    change while requests wait; ``margin`` is the most log entries of one instant; PAUSED_LOOP comes after ``stop_at`` instants. The loop
    can be entered again where it was left.
    """
    view, fault, tally = state.shown, progress.fault, progress.tally
    requests, replicas, clock, count, due, changes = view.requests, view.replicas, view.clock, view.count, view.due, view.changes
    n_requests, n_replicas, n_changes, every = len(requests), len(replicas), len(changes), len(replicas)
    has_key, has_admit, has_victim, has_interrupt, has_gang, has_plan, has_switch = (
        defined[2], defined[3], defined[4], defined[5], defined[6], defined[7], defined[8])
    while True:
        # 1. The next instant
        if tally[ARRIVED] == tally[KNOWN] and tally[KNOWN] < n_requests:
            return STARVED
        while calendar.mark[EVENTS] and is_stale(view, calendar, 0):
            pop_event(calendar)
        arrival = requests.arrival[tally[ARRIVED]] if tally[ARRIVED] < n_requests else np.inf
        event = calendar.event.time[0] if calendar.mark[EVENTS] else np.inf
        ticking = (tally[TICKS] + 1) * period
        changing = changes.time[tally[CHANGED]] if tally[CHANGED] < n_changes else np.inf
        step = np.inf
        for r in range(n_replicas):
            step = min(step, due[r])
        now = min(arrival, event, step, ticking, changing)
        idle = arrival == np.inf and event == np.inf and step == np.inf
        if now >= clock[HORIZON] or now == np.inf:
            return DONE
        if idle and (count[FINISHED_N] == n_requests or (changing == np.inf and now - progress.last[0] > IDLE_TICKS_S)):
            return DONE
        if tally[INSTANTS] >= stop_at:
            return PAUSED_LOOP
        if not has_room(log, margin):
            return FULL
        clock[NOW] = now
        if not idle:
            progress.last[0] = now
        tally[INSTANTS] += 1

        # 2. What happens at it: steps, operations and moves, changes of the replicas, the tick, arrivals
        if step == now:
            for r in range(n_replicas):
                if due[r] == now and end_step(state, seen, own, calendar, log, fault, r, hand):
                    return BROKEN
        while calendar.mark[EVENTS] and calendar.event.time[0] == now:
            if is_stale(view, calendar, 0):
                pop_event(calendar)
                continue
            kind, q = pop_event(calendar)
            if kind == MOVE:
                requests.key[q] = key(seen, own, q) if has_key else 1.0 * q
                wait(view, calendar, requests.replica[q], q)
            elif end_operation(state, seen, own, calendar, log, fault, q, hand):
                return BROKEN
        while changing == now:
            change(state, calendar, log, tally[CHANGED])
            tally[CHANGED] += 1
            changing = changes.time[tally[CHANGED]] if tally[CHANGED] < n_changes else np.inf
        if ticking == now:
            tally[TICKS] += 1
            tick(seen, own)
            for r in range(n_replicas):
                touch(view, calendar, r)
            calendar.mark[RELEASED] = 1
        while tally[ARRIVED] < n_requests and requests.arrival[tally[ARRIVED]] == now:
            q = tally[ARRIVED]
            tally[ARRIVED] += 1
            if requests.status[q] == REJECTED:
                continue
            view.tenants.waiting[requests.tenant[q]] += 1
            requests.status[q] = HELD
            requests.key[q] = key(seen, own, q) if has_key else 1.0 * q
            join(view, every, q)
            calendar.mark[RELEASED] = 1

        # 3. Held requests go to replicas
        if calendar.mark[RELEASED]:
            calendar.mark[RELEASED] = 0
            if view.queues.waiting[every] and count[ACCEPTING] and dispatch(
                    state, seen, own, calendar, progress, route, gang, interrupt, has_gang, has_interrupt):
                return BROKEN

        # 4. Touched replicas begin their next step or operation
        n = calendar.mark[PENDING]
        for i in range(n):
            r = calendar.todo[i]
            if replicas.busy[r]:
                continue
            long = replicas.long[r]
            if long >= 0 and (requests.status[long] == WAITING or requests.status[long] == PAUSED):
                try_gang(view, seen, own, calendar, long, admit, has_admit)
            if replicas.op[r] >= 0:
                continue
            if has_plan and replicas.changed[r]:
                plan(seen, own, r)
            if has_switch and replicas.changed[r]:
                model = switch(seen, own, r)
                if model < 0 or model >= len(view.models):
                    blame(fault, NO_MODEL, NOBODY, r, model)
                    return BROKEN
                if model != replicas.model[r]:
                    change_model(state, calendar, log, r, model)
            turn = replicas.turn[r] and replicas.batch[r]
            replicas.turn[r] = 0
            if count[WHOLE] and replicas.changed[r] and not turn and try_operation(
                    view, seen, own, calendar, r, key, admit, has_admit, dynamic):
                continue
            lost = make_room(state, calendar, log, r)
            if replicas.changed[r] and not lost and view.queues.waiting[r] and admit_waiting(
                    state, seen, own, calendar, log, fault, r, key, admit, victim, has_key, has_admit, has_victim, dynamic):
                return BROKEN
            begin_step(state, r)
            replicas.changed[r] = lost or (turn and view.queues.waiting[r])

        # 5. Steps that only make tokens are skipped
        coming = min(requests.arrival[tally[ARRIVED]] if tally[ARRIVED] < n_requests else np.inf,
                     calendar.event.time[0] if calendar.mark[EVENTS] else np.inf, (tally[TICKS] + 1) * period, changing)
        for i in range(n):
            r = calendar.todo[i]
            replicas.touched[r] = 0
            if count[SKIP_AHEAD] and replicas.busy[r] and replicas.op[r] < 0 and not (replicas.filling[r] or replicas.changed[r]):
                run_ahead(view, log, r, min(coming, others_end(view, r)))
        calendar.mark[PENDING] = 0


def _signature():
    state, own = smallest_state()
    pieces = [state, read_only(state.shown), own, new_calendar(1, 1), new_log(1), new_progress(1, 1)]
    hooks = [types.FunctionType(signatures()[hook]) for hook in HOOKS]
    defined = types.Array(types.boolean, 1, "C")
    return types.int64(*map(typeof, pieces), *hooks, defined, types.boolean, types.float64, types.int64, types.int64)


run: Any = njit(_signature(), cache=True, error_model="numpy", nogil=True, _nrt=False)(replay) if JIT else replay
