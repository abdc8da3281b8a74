"""How many instances of a gang fit each server, rack and spine, and how a gang is spread over them: Kueue's topology-aware scheduling [C].

What fits is counted on the servers and rolled up. A level is SERVERS, RACKS, SPINES or CLUSTER, a domain of it an index (0: the cluster).
specs/cluster-policies.md, Kueue-like admission.
"""

import numpy as np

from harness.cluster.fit import CPU, FREE, MEMORY, empty_room, fill_empty_server, fill_room, fits, pin, take
from harness.cluster.state import ANYWHERE, INSTANCE, PASS, PINNING, SCOPE_FROM, SCOPE_TO, Array
from harness.jit import allocating, entry, inlined, kernel

SERVERS, RACKS, SPINES, CLUSTER = 0, 1, 2, 3

MOST = 1024
"""Instances of one class on one server are counted up to so many: what asks for nothing fits without end."""

CLASS_SERVER_STATE = 2
COUNTED_AT, FITS = 0, 1
"""Columns of Own.class_server: 1 + the version of the server that it holds for, and the instances that it takes."""

SERVER_STATE = 7
ROOM, TAKES, ORDER = 0, 3, 6
"""Columns of Own.server_state, ROOM and TAKES one for each level: row d says how many instances domain d could take and how many of the
gang it is given; ORDER: row n is the n-th server of the plan."""

STATE = 7
PLAN_PASS, PLAN_JOB, PLANNED, LOWEST, HIGHEST, AT, LEFT = 0, 1, 2, 3, 4, 5, 6
"""Columns of Own.state: of which pass and job the plan is, whether there is one, the first and last of its servers, and while its instances
are placed the row of ORDER that is next and how many more it takes."""


@inlined
def domain_of(view, level, s):
    """The domain of ``level`` in which server ``s`` stands."""
    if level == SERVERS:
        return s
    if level == CLUSTER:
        return 0
    return view.servers.rack[s] if level == RACKS else view.servers.spine[s]


@inlined
def parent_of(view, level, d):
    """The domain one level up in which domain ``d`` of ``level`` lies; racks and spines are ranges of servers."""
    if level == SERVERS:
        return view.servers.rack[d]
    low, high = 0, len(view.servers) - 1
    while low < high:
        middle = (low + high) // 2
        if view.servers.rack[middle] < d:
            low = middle + 1
        else:
            high = middle
    return view.servers.spine[low]


@inlined
def domains(view, level):
    """Domains of ``level``."""
    return domain_of(view, level, len(view.servers) - 1) + 1


@allocating
def count_and_roll_up(view, own, c):
    """Sets ROOM of every domain to the instances of class ``c`` that it takes as it is."""
    room, cores = empty_room(view), np.zeros(view.cores.shape[1], np.int64)
    _count_and_roll_up(view, own, c, room, cores)


@kernel
def _count_and_roll_up(view, own, c, room, cores):
    known, state = own.class_server[c], own.server_state
    for level in (RACKS, SPINES):
        for d in range(domains(view, level)):
            state[d, ROOM + level] = 0.0
    for s in range(len(view.servers)):
        if known[s, COUNTED_AT] != view.version[s] + 1.0:
            known[s, COUNTED_AT], known[s, FITS] = view.version[s] + 1.0, how_many(view, c, s, room, cores)
        state[s, ROOM] = known[s, FITS]
        state[view.servers.rack[s], ROOM + RACKS] += known[s, FITS]
        state[view.servers.spine[s], ROOM + SPINES] += known[s, FITS]


@kernel
def how_many(view, c, s, room, cores):
    """Instances of class ``c`` that server ``s`` takes one after another, up to MOST; ``room`` and ``cores`` (N,) are scratch."""
    fill_room(room, view, s)
    return fill_up(view, c, view.servers.shape_id[s], room, cores, MOST)


@kernel
def fill_up(view, c, k, room, cores, most):
    """Instances of class ``c`` that a server of shape ``k`` with this ``room`` takes, up to ``most``; uses the room up."""
    n = 0
    while n < most and fits(view, c, k, room.amount[FREE], room.shared, room.cores, room.amount[CPU], room.amount[MEMORY], True):
        gpus = pin(view, c, k, room.amount[FREE], room.shared, room.cores, view.count[PINNING], True, cores)
        take(room, view, c, gpus, cores)
        n += 1
    return n


def smallest_levels(view, requests, cluster) -> Array:
    """prepare: the smallest level, SERVERS, RACKS or CLUSTER, with a domain that could hold the gangs of each class: f8 (C, 1)."""
    takes = np.zeros((len(view.classes), len(view.shapes)), np.int64)
    fill_up_empty(view, takes)
    levels = np.full((len(takes), 1), float(CLUSTER))
    for level, domain in ((RACKS, view.servers.rack), (SERVERS, np.arange(len(view.servers)))):
        for c, on_shape in enumerate(takes):
            if np.bincount(domain, on_shape[view.servers.shape_id]).max() >= view.classes.instances[c]:
                levels[c] = level
    return levels


@entry
def fill_up_empty(view, takes):
    """Writes to ``takes`` (C, K) how many instances of each class an empty server of each shape holds, up to the size of the gang."""
    room, cores = empty_room(view), np.zeros(view.cores.shape[1], np.int64)
    for c in range(takes.shape[0]):
        for k in range(takes.shape[1]):
            fill_empty_server(room, view, k)
            takes[c, k] = fill_up(view, c, k, room, cores, view.classes.instances[c])


@inlined
def tightest(view, own, level, n):
    """The domain of ``level`` that takes ``n`` instances and fewest more, or -1. Ties: lowest index."""
    best = -1
    for d in range(domains(view, level)):
        room = own.server_state[d, ROOM + level]
        if room >= n and (best < 0 or room < own.server_state[best, ROOM + level]):
            best = d
    return best


@kernel
def spread(view, own, level, n, best_fit, below):
    """Gives ``n`` instances to domains of ``level``; with ``below`` only to those in a domain that was given some one level up.

    ``best_fit``: the roomiest first, and the tightest that takes the rest last; else (least free capacity) the tightest first.
    Ties: lowest index. Returns whether all found a place; on the level of servers ORDER is set.
    """
    state = own.server_state
    room, takes = ROOM + level, TAKES + level
    for d in range(domains(view, level)):
        state[d, takes] = 0.0
    left, chosen = n, 0
    while left > 0:
        roomiest, least, last = -1, -1, -1
        for d in range(domains(view, level)):
            if state[d, room] == 0.0 or state[d, takes] > 0.0 or (below and state[parent_of(view, level, d), takes + 1] == 0.0):
                continue
            if roomiest < 0 or state[d, room] > state[roomiest, room]:
                roomiest = d
            if least < 0 or state[d, room] < state[least, room]:
                least = d
            if state[d, room] >= left and (last < 0 or state[d, room] < state[last, room]):
                last = d
        if roomiest < 0:
            return False
        d = least if not best_fit else (last if last >= 0 else roomiest)
        state[d, takes] = min(float(left), state[d, room])
        left -= int(state[d, takes])
        if level == SERVERS:
            state[chosen, ORDER] = d
            chosen += 1
    return True


@inlined
def give_all(view, own, level, d, n):
    """Gives all ``n`` instances to domain ``d`` of ``level``."""
    for other in range(domains(view, level)):
        own.server_state[other, TAKES + level] = 0.0
    own.server_state[d, TAKES + level] = n
    if level == SERVERS:
        own.server_state[0, ORDER] = d


@inlined
def go_down(view, own, level, n, best_fit):
    """Spreads the gang from the domains of ``level`` that were given it to servers."""
    for lower in range(level - 1, -1, -1):
        spread(view, own, lower, n, best_fit, True)


@allocating
def plan(view, own, job, least_free_anywhere, least_free):
    """Plans the whole gang: in one domain of the level it asks for, in one of a higher level if that is only preferred, else in several.

    Without a wish, over the servers alone. ``least_free_anywhere`` and ``least_free`` say where least free capacity is to be used in place
    of best fit: without a wish, and with one. Returns whether there is a plan.
    """
    c = view.jobs.klass[job]
    n, network = view.classes.instances[c], view.classes.network[c]
    best_fit = not (least_free_anywhere if network == ANYWHERE else least_free)
    count_and_roll_up(view, own, c)
    level = network
    while True:
        d = tightest(view, own, level, n)
        if d >= 0:
            give_all(view, own, level, d, n)
            break
        if network != ANYWHERE and view.classes.required[c]:
            return False
        if network == ANYWHERE or level == SPINES:
            if not spread(view, own, level, n, best_fit, False):
                return False
            break
        level += 1
    go_down(view, own, level, n, best_fit)
    return True


@allocating
def plan_closest(view, own, job):
    """Plans the whole gang in the tightest domain of the smallest level that takes it, by best fit inside; returns that level, or -1."""
    c = view.jobs.klass[job]
    n = view.classes.instances[c]
    count_and_roll_up(view, own, c)
    for level in range(CLUSTER):
        d = tightest(view, own, level, n)
        if d >= 0:
            give_all(view, own, level, d, n)
            go_down(view, own, level, n, True)
            return level
    if not spread(view, own, SPINES, n, True, False):
        return -1
    go_down(view, own, SPINES, n, True)
    return CLUSTER


@inlined
def is_planned(view, own, job):
    """Whether this pass has looked for a plan of ``job`` already; nothing changes within its turn."""
    return own.state[PLAN_PASS] == view.count[PASS] and own.state[PLAN_JOB] == job


@inlined
def keep_plan(view, own, job, found):
    """Notes that the plan, if one was ``found``, is that of ``job`` in this pass."""
    own.state[PLAN_PASS], own.state[PLAN_JOB], own.state[PLANNED] = view.count[PASS], job, found
    lowest, highest, left, n = len(view.servers), -1, view.classes.instances[view.jobs.klass[job]] if found else 0, 0
    while left > 0:
        s = int(own.server_state[n, ORDER])
        lowest, highest, left, n = min(lowest, s), max(highest, s), left - int(own.server_state[s, TAKES]), n + 1
    own.state[LOWEST], own.state[HIGHEST] = lowest, highest


@inlined
def next_server(view, own):
    """The server of the plan for the instance that is being placed; -1 when there is no plan, or it leaves the scope."""
    if not own.state[PLANNED] or own.state[LOWEST] < view.count[SCOPE_FROM] or own.state[HIGHEST] >= view.count[SCOPE_TO]:
        return -1
    if view.count[INSTANCE] == 0:
        own.state[AT] = 0.0
        own.state[LEFT] = own.server_state[int(own.server_state[0, ORDER]), TAKES]
    elif own.state[LEFT] == 0.0:
        own.state[AT] += 1.0
        own.state[LEFT] = own.server_state[int(own.server_state[int(own.state[AT]), ORDER]), TAKES]
    own.state[LEFT] -= 1.0
    return int(own.server_state[int(own.state[AT]), ORDER])
