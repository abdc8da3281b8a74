"""Two priority queues: the waiting jobs, and the calendar of coming events.

Waiting jobs form one pairing heap per class, and the heads of the classes form another, so that a pass meets jobs in the order
(key, index) without ever touching the jobs behind a head that cannot start. Pairing heaps are intrusive: a node is a job index.
The calendar is a binary heap of (time, kind, index); entries that have lost their meaning stay in it and are recognised when
they surface.
"""

from typing import NamedTuple

import numpy as np

from harness.cluster.state import Array, Table, table
from harness.jit import inlined, kernel

FINISH, GRACE_END = 0, 1
KIND_SHIFT = 40


NODE = table(
    key="f8",  # of the policy, smaller first
    child="i8",  # in the heap of its class
    sibling="i8",
    front_child="i8",  # in the heap of heads
    front_sibling="i8",
    in_front="i8",  # 1: it is in the heap of heads
    held="i8",  # row n: n-th job that joins the queue with the next pass
)

LINE = table(
    root="i8",  # head of the class, -1: nobody waits
    failed="i8",  # VERSION, with the number of passes where that counts, when the class last failed
    parked="i8",  # row n: n-th class left out of the heap of heads because it failed
    is_parked="i8",
)

EVENT = table(
    time="f8",  # s
    code="i8",  # kind << KIND_SHIFT | job
)


class Queue(NamedTuple):
    node: Table  # NODE (J,)
    line: Table  # LINE (C,)
    event: Table  # EVENT (calendar,)
    mark: Array  # i8 (5,) columns FRONT ..


FRONT, PARKED, HELD, VERSION, CALENDAR = 0, 1, 2, 3, 4
"""Columns of Queue.mark: root of the heap of heads, numbers of parked classes and held jobs, how often something was freed,
and entries of the calendar."""


def new_queue(jobs: int, classes: int) -> Queue:
    line = np.zeros(classes, LINE).view(np.recarray)
    line.root, line.failed = -1, -1
    return Queue(np.zeros(jobs, NODE).view(np.recarray), line, np.empty(3 * jobs + 64, EVENT).view(np.recarray),
                 np.array([-1, 0, 0, 0, 0]))


@inlined
def meld(a, b, key, child, sibling):
    """Root of the union of two heaps given by their roots (-1: empty). Smaller key first, ties by index."""
    if a < 0:
        return b
    if b < 0:
        return a
    if key[b] < key[a] or (key[b] == key[a] and b < a):
        a, b = b, a
    sibling[b] = child[a]
    child[a] = b
    return a


@inlined
def without_root(root, key, child, sibling):
    """Root of a heap after its root is taken out."""
    node = child[root]
    child[root] = -1
    pairs = -1
    while node >= 0:
        other = sibling[node]
        sibling[node] = -1
        rest = -1
        if other >= 0:
            rest = sibling[other]
            sibling[other] = -1
        pair = meld(node, other, key, child, sibling)
        sibling[pair] = pairs
        pairs = pair
        node = rest
    merged = -1
    while pairs >= 0:
        rest = sibling[pairs]
        sibling[pairs] = -1
        merged = meld(merged, pairs, key, child, sibling)
        pairs = rest
    return merged


@inlined
def expose(queue, c):
    """Puts the head of class ``c`` into the front."""
    job = queue.line.root[c]
    if job >= 0 and not queue.node.in_front[job]:
        queue.node.in_front[job] = 1
        queue.node.front_child[job] = queue.node.front_sibling[job] = -1
        queue.mark[FRONT] = meld(queue.mark[FRONT], job, queue.node.key, queue.node.front_child, queue.node.front_sibling)


@inlined
def enqueue(queue, c, job):
    """Adds a waiting job of class ``c``, its key already set."""
    queue.node.child[job] = queue.node.sibling[job] = -1
    queue.line.root[c] = meld(queue.line.root[c], job, queue.node.key, queue.node.child, queue.node.sibling)
    if queue.line.root[c] == job:
        expose(queue, c)


@inlined
def remove_head(queue, c):
    """Takes the head of class ``c`` out and exposes the next."""
    queue.line.root[c] = without_root(queue.line.root[c], queue.node.key, queue.node.child, queue.node.sibling)
    expose(queue, c)


@inlined
def next_job(queue, klass):
    """The first waiting job in the order of the queue, taken out of the front but not out of its class; -1: none."""
    while queue.mark[FRONT] >= 0:
        job = queue.mark[FRONT]
        queue.mark[FRONT] = without_root(job, queue.node.key, queue.node.front_child, queue.node.front_sibling)
        queue.node.in_front[job] = 0
        if queue.line.root[klass[job]] == job:
            return job
    return -1


@inlined
def park(queue, c):
    """Leaves class ``c`` out of the front until ``unpark_all``."""
    if not queue.line.is_parked[c]:
        queue.line.is_parked[c] = 1
        queue.line.parked[queue.mark[PARKED]] = c
        queue.mark[PARKED] += 1


@kernel
def unpark_all(queue):
    for i in range(queue.mark[PARKED]):
        queue.line.is_parked[queue.line.parked[i]] = 0
        expose(queue, queue.line.parked[i])
    queue.mark[PARKED] = 0


@inlined
def schedule(queue, jobs, time, kind, job):
    """Adds an event to the calendar, dropping stale entries when it is full."""
    if queue.mark[CALENDAR] == len(queue.event.time):
        _drop_stale(queue, jobs)
    queue.mark[CALENDAR] += 1
    _sift_up(queue, queue.mark[CALENDAR] - 1, time, kind << KIND_SHIFT | job)


@inlined
def pop_event(queue):
    """Takes the earliest entry off the calendar, which must not be empty, and returns its kind and job."""
    code = queue.event.code[0]
    n = queue.mark[CALENDAR] - 1
    queue.mark[CALENDAR] = n
    if n:
        _sift_down(queue, n, queue.event.time[n], queue.event.code[n])
    return code >> KIND_SHIFT, code & ((1 << KIND_SHIFT) - 1)


@inlined
def stale(queue, jobs, entry):
    """Whether a finish event no longer stands: the job was evicted, or ended otherwise."""
    code = queue.event.code[entry]
    return code >> KIND_SHIFT == FINISH and jobs.due[code] != queue.event.time[entry]


@inlined
def _sift_up(queue, i, time, code):
    while i:
        parent = (i - 1) >> 1
        if not (time < queue.event.time[parent] or (time == queue.event.time[parent] and code < queue.event.code[parent])):
            break
        queue.event.time[i], queue.event.code[i] = queue.event.time[parent], queue.event.code[parent]
        i = parent
    queue.event.time[i], queue.event.code[i] = time, code


@inlined
def _sift_down(queue, n, time, code):
    i = 0
    while 2 * i + 1 < n:
        child = 2 * i + 1
        if child + 1 < n and (queue.event.time[child + 1] < queue.event.time[child] or (
            queue.event.time[child + 1] == queue.event.time[child] and queue.event.code[child + 1] < queue.event.code[child]
        )):
            child += 1
        if not (queue.event.time[child] < time or (queue.event.time[child] == time and queue.event.code[child] < code)):
            break
        queue.event.time[i], queue.event.code[i] = queue.event.time[child], queue.event.code[child]
        i = child
    queue.event.time[i], queue.event.code[i] = time, code


@kernel
def _drop_stale(queue, jobs):
    kept = 0
    for entry in range(queue.mark[CALENDAR]):
        if not stale(queue, jobs, entry):
            _sift_up(queue, kept, queue.event.time[entry], queue.event.code[entry])
            kept += 1
    queue.mark[CALENDAR] = kept
