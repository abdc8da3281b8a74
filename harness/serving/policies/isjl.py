"""ISJL: longest-job-first batches with short jobs inserted, up to a limit (arXiv 2608.02244). A RECONSTRUCTION from the abstract.

A batch is formed when the replica is empty. 1. The longest waiting jobs are mains, one for each place; the longest of all sets the
horizon H. 2. The others, longest first, go to the least loaded place where load + s <= H and (load + s) - (its longest job) <= delta; after
``inserts`` of them no more do. 3. In each place the shortest runs first and the main last, so that every job enters when no member has
made more
than delta tokens. delta = 0 is LJF. With ``insertion=tail`` a freed place takes the longest waiting job that ends by H, while at most delta
tokens have been made.
"""

import numpy as np

from harness.jit import allocating
from harness.serving.state import ADMIT, BATCH, FINISHED, SKIP

PARAMS = {"delta": 512.0, "inserts": 1e9, "insertion": ("head", "tail")}
DELTA, INSERTS, INSERTION = 0, 1, 2
REQUEST_STATE = 2
BATCH_OF, AFTER = 0, 1
REPLICA_STATE = 3
CURRENT, HORIZON, BEGAN = 0, 1, 2


def key(view, own, q):
    return -view.requests.predicted[q]


@allocating
def form(view, own, r):
    """Forms the next batch of replica ``r``: who is in it, and after whom in its place."""
    places, n = view.count[BATCH], view.queues.waiting[r]
    own.replica_state[r, CURRENT] += 1.0
    current = own.replica_state[r, CURRENT]
    load, longest, first = np.zeros(places), np.zeros(places), np.full(places, -1)
    delta, inserted = own.params[DELTA], 0.0
    most = own.params[INSERTS] if own.params[INSERTION] == 0 else 0.0
    q = view.queues.head[r]
    own.replica_state[r, HORIZON] = view.requests.predicted[q]
    own.replica_state[r, BEGAN] = view.replicas.ordinal[r]
    for i in range(n):
        s, place = view.requests.predicted[q], -1
        if i < places:
            place = i
            longest[place] = s
        elif inserted < most:
            for p in range(places):
                total = load[p] + s
                if total <= own.replica_state[r, HORIZON] and total - longest[p] <= delta and (place < 0 or load[p] < load[place]):
                    place = p
            inserted += place >= 0
        if place >= 0:
            own.request_state[q, BATCH_OF] = current
            own.request_state[q, AFTER] = -1.0
            if first[place] >= 0:
                own.request_state[first[place], AFTER] = q
            first[place] = q
            load[place] += s
        q = view.requests.behind[q]


def plan(view, own, r):
    if view.replicas.batch[r] + view.replicas.filling[r] == 0 and view.queues.waiting[r]:
        form(view, own, r)


def admit(view, own, q, r):
    if own.request_state[q, BATCH_OF] == own.replica_state[r, CURRENT]:
        before = int(own.request_state[q, AFTER])
        return ADMIT if before < 0 or view.requests.status[before] == FINISHED else SKIP
    if own.params[INSERTION] == 0:
        return SKIP
    elapsed = view.replicas.ordinal[r] - own.replica_state[r, BEGAN] + 1.0
    fits = elapsed <= own.params[DELTA] and view.requests.predicted[q] <= own.replica_state[r, HORIZON] - elapsed
    return ADMIT if fits else SKIP
