"""The queues of waiting requests, and the calendar of what ends apart from steps.

A queue is a list in the order (key, index), threaded through the requests: policies walk it, its head is taken and first-come
requests are added at once; other keys cost a walk. The calendar is a binary heap of (time, kind, index); an entry that has lost its meaning
stays in it and is recognised when it surfaces.
"""

from typing import NamedTuple

import numpy as np

from harness.jit import inlined, kernel
from harness.serving.state import NOBODY, Array, Table, table

OPERATION, MOVE = 0, 1
"""What the calendar holds: an operation ends or can be paused, and a KV cache arrives at its decode replica."""

KIND_SHIFT = 40

EVENT = table(
    time="f8",  # s
    code="i8",  # kind << KIND_SHIFT | request
)


class Calendar(NamedTuple):
    event: Table  # EVENT (calendar,)
    todo: Array  # i8 (M,) touched replicas
    mark: Array  # i8 (3,) columns EVENTS ..


EVENTS, PENDING, RELEASED = 0, 1, 2
"""Columns of Calendar.mark: entries of the calendar, replicas in ``todo``, and 1: something was freed, so that held requests are
tried again."""


def new_calendar(requests: int, replicas: int) -> Calendar:
    return Calendar(np.empty(4 * requests + 64, EVENT).view(np.recarray), np.zeros(replicas, np.int64), np.zeros(3, np.int64))


@inlined
def touch(view, calendar, r):
    """The replica is looked at before time goes on, and its policy is asked."""
    view.replicas.changed[r] = 1
    if not view.replicas.touched[r]:
        view.replicas.touched[r] = 1
        calendar.todo[calendar.mark[PENDING]] = r
        calendar.mark[PENDING] += 1


@kernel
def join(view, n, q):
    """Request ``q``, its key set, takes its place in queue ``n``."""
    requests, queue = view.requests, view.queues
    key = requests.key[q]
    head, behind, ahead = queue.head[n], NOBODY, queue.tail[n]
    if head >= 0 and (key < requests.key[head] or (key == requests.key[head] and q < head)):
        behind, ahead = head, NOBODY
    else:
        while ahead >= 0 and (key < requests.key[ahead] or (key == requests.key[ahead] and q < ahead)):
            behind, ahead = ahead, requests.ahead[ahead]
    requests.ahead[q], requests.behind[q] = ahead, behind
    if ahead >= 0:
        requests.behind[ahead] = q
    else:
        queue.head[n] = q
    if behind >= 0:
        requests.ahead[behind] = q
    else:
        queue.tail[n] = q
    queue.waiting[n] += 1
    queue.tokens[n] += requests.target[q] - requests.done[q]


@inlined
def leave(view, n, q):
    """Takes ``q`` out of queue ``n``."""
    requests, queue = view.requests, view.queues
    ahead, behind = requests.ahead[q], requests.behind[q]
    if ahead >= 0:
        requests.behind[ahead] = behind
    else:
        queue.head[n] = behind
    if behind >= 0:
        requests.ahead[behind] = ahead
    else:
        queue.tail[n] = ahead
    queue.waiting[n] -= 1
    queue.tokens[n] -= requests.target[q] - requests.done[q]


@inlined
def schedule(view, calendar, time, kind, q):
    """Adds an event to the calendar, dropping stale entries when it is full."""
    if calendar.mark[EVENTS] == len(calendar.event.time):
        _drop_stale(view, calendar)
    calendar.mark[EVENTS] += 1
    _sift_up(calendar.event, calendar.mark[EVENTS] - 1, time, kind << KIND_SHIFT | q)


@kernel
def pop_event(calendar):
    """Takes the earliest entry off the calendar, which must not be empty, and returns its kind and request."""
    code = calendar.event.code[0]
    n = calendar.mark[EVENTS] - 1
    calendar.mark[EVENTS] = n
    if n:
        _sift_down(calendar.event, n, calendar.event.time[n], calendar.event.code[n])
    return code >> KIND_SHIFT, code & ((1 << KIND_SHIFT) - 1)


@inlined
def is_stale(view, calendar, entry):
    """Whether an event no longer stands: the operation was paused meanwhile."""
    code = calendar.event.code[entry]
    return code >> KIND_SHIFT == OPERATION and view.requests.due[code] != calendar.event.time[entry]


@inlined
def _sift_up(event, i, time, code):
    while i:
        parent = (i - 1) >> 1
        if not (time < event.time[parent] or (time == event.time[parent] and code < event.code[parent])):
            break
        event.time[i], event.code[i] = event.time[parent], event.code[parent]
        i = parent
    event.time[i], event.code[i] = time, code


@inlined
def _sift_down(event, n, time, code):
    i = 0
    while 2 * i + 1 < n:
        child = 2 * i + 1
        if child + 1 < n and (event.time[child + 1] < event.time[child] or (
            event.time[child + 1] == event.time[child] and event.code[child + 1] < event.code[child]
        )):
            child += 1
        if not (event.time[child] < time or (event.time[child] == time and event.code[child] < code)):
            break
        event.time[i], event.code[i] = event.time[child], event.code[child]
        i = child
    event.time[i], event.code[i] = time, code


@kernel
def _drop_stale(view, calendar):
    kept = 0
    for entry in range(calendar.mark[EVENTS]):
        if not is_stale(view, calendar, entry):
            _sift_up(calendar.event, kept, calendar.event.time[entry], calendar.event.code[entry])
            kept += 1
    calendar.mark[EVENTS] = kept
