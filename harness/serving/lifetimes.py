"""Replicas that come and go: from a table of when each is there, and on what links, to changes; and what a change does.

A slot is a replica of the state, taken by one replica after another. A replica that drains finishes what it has and takes nothing new.
When it goes, the step under way is cut and makes no tokens, the KV caches are gone, its own prefix store too, and what was on it goes
back to the global queue (its tokens so far count, and are computed again with its prompt) or is dropped.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.jit import inlined, kernel
from harness.schema import LEVELS
from harness.serving.lifecycle import cached, preempt_member, preempt_prefill, take
from harness.serving.log import STEP, add_span
from harness.serving.prefix import forget_prefixes
from harness.serving.queue import RELEASED, join, leave, touch
from harness.serving.state import (
    ACCEPTING,
    CHANGE,
    COME,
    DRAIN,
    DROPPED,
    DROPS,
    FINISHED_N,
    GO,
    HELD,
    NOBODY,
    NOW,
    RECOMPUTE,
    Table,
)
from harness.serving.step import intact


def changes_of(replicas: pa.Table) -> Table:
    """CHANGE (.,) by time, of a table with one row for each stay of a replica: ``replica`` (slot), ``ready_time`` (s; null: never, and the
    row does not count), ``drain_time``, ``stop_time`` (s; null: not during the replay) and ``level`` (the coefficients of its links; null:
    those of the server).

    Raises BadInput for times out of order, and for two replicas in one slot at a time.
    """
    replicas = replicas.filter(pc.is_valid(replicas["ready_time"]))
    slot = replicas["replica"].to_numpy().astype(np.int64)
    ready, drain, stop = (replicas[f"{name}_time"].to_numpy(zero_copy_only=False).astype(float) for name in ("ready", "drain", "stop"))
    drain, stop = (np.where(np.isnan(values), np.inf, values) for values in (drain, stop))
    wrong = np.flatnonzero(~((ready <= drain) & (drain <= stop) & (ready < stop)))
    if len(wrong):
        raise BadInput(f"replicas, row {wrong[0]}: must have ready_time <= drain_time <= stop_time, and be there for some time")
    order = np.lexsort((ready, slot))
    early = np.flatnonzero((np.diff(slot[order]) == 0) & (ready[order][1:] < stop[order][:-1]))
    if len(early):
        raise BadInput(f"replicas, row {order[early[0] + 1]}: slot {slot[order[early[0] + 1]]} is still taken at its ready_time")
    level = [LEVELS.index(word or LEVELS[-1]) for word in replicas["level"].to_pylist()]
    found: Any = np.zeros(3 * len(slot), CHANGE).view(np.recarray)
    found.time, found.replica = np.concatenate([stop, drain, ready]), np.tile(slot, 3)
    found.what, found.link = np.repeat((GO, DRAIN, COME), len(slot)), np.tile(level, 3)
    found = found[(found.time < np.inf) & ~((found.what == DRAIN) & (np.tile(drain, 3) == np.tile(stop, 3)))]
    return found[np.lexsort((found.replica, found.what, found.time))]


@kernel
def change(state, calendar, log, i):
    """What change ``i`` brings."""
    view = state.shown
    r, what = view.changes.replica[i], view.changes.what[i]
    if what == GO:
        go(state, calendar, log, r, i)
    view.count[ACCEPTING] -= view.replicas.accepts[r]
    view.replicas.accepts[r] = what == COME
    view.count[ACCEPTING] += view.replicas.accepts[r]
    if what == COME:
        view.replicas.link[r] = view.changes.link[i]
    calendar.mark[RELEASED] = 1


@kernel
def go(state, calendar, log, r, i):
    """The replica is gone: everybody on it loses its place."""
    view = state.shown
    requests, replicas, now = view.requests, view.replicas, view.clock[NOW]
    if replicas.busy[r] and now > replicas.begin[r]:
        add_span(log, replicas.begin[r], now, r, STEP, 0, replicas.prompts[r], 0, replicas.used[r])
    replicas.busy[r], view.due[r], replicas.stall[r] = 0, np.inf, 0.0
    while replicas.filling[r]:
        preempt_prefill(view, calendar, r, view.prefills[r, replicas.filling[r] - 1])
    while replicas.batch[r]:
        preempt_member(state, calendar, log, r, view.members[r, replicas.batch[r] - 1], RECOMPUTE)
    q = view.queues.head[r]
    while q >= 0:
        behind = requests.behind[q]
        leave(view, r, q)
        if intact(view, q):
            requests.target[q], requests.done[q] = cached(view, q) + 1, 0
            requests.kept[q] = requests.swapped[q] = 0
        if view.count[DROPS]:
            drop(view, q, i)
        else:
            requests.status[q], requests.replica[q] = HELD, NOBODY
            join(view, len(view.due), q)
        q = behind
    take(view, r, -replicas.used[r])
    forget_prefixes(view, r)
    touch(view, calendar, r)


@inlined
def drop(view, q, i):
    """Request ``q`` is given up because of change ``i``."""
    view.requests.status[q], view.requests.dropped_by[q] = DROPPED, i
    view.tenants.waiting[view.requests.tenant[q]] -= 1
    view.count[FINISHED_N] += 1
