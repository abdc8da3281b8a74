"""Topology-aware preemption for gangs across servers (ours; the stated future work of arXiv 2411.11560): domain-first, one level up.

The whole gang is laid out at once in the smallest network domain (server, rack, spine, cluster) in which evictions make room for it; among
the domains of that level where the victims cost least. What the victims on one server cost for k instances is found by trying sets, as
exhaustive search does; the best split of the gang over the servers of a domain by dynamic programming, which is exact because costs add
up: (sum over servers of 15 - T of the victims there, sum over victims of priority + 2^31), compared in this order. A victim that is chosen
on several servers is charged on each. Ties: lowest domain; most instances on the lowest servers; lexicographically smallest victims.
"""

from typing import NamedTuple

import numpy as np

from harness.cluster.fit import FREE, NO_FIT, fits_server, level_of
from harness.cluster.preempt import (
    FIRST_VICTIM,
    PRIORITY_STEP,
    SERVER_FOUND,
    SERVERS_SCANNED,
    SETS_TRIED,
    cheaper_indices,
    evict_in_trial,
    gather,
    new_candidates,
    new_search,
    reset_trial,
    tier,
)
from harness.cluster.rollup import CLUSTER, domain_of, fill_up
from harness.cluster.rollup import SERVER_STATE as ROLLUP_SERVER_STATE
from harness.cluster.rollup import STATE as ROLLUP_STATE
from harness.cluster.state import ANYWHERE, INSTANCE, MAX_EVICTABLE, PASS, RUNNING, SCOPE_FROM, SCOPE_TO, Array
from harness.jit import allocating, inlined, kernel, lowest, popcount
from harness.schema import MILLI

TOP_TIER = 15.0

SERVER_STATE = ROLLUP_SERVER_STATE + 2
GIVEN, EVICTS = ROLLUP_SERVER_STATE, ROLLUP_SERVER_STATE + 1
"""Columns of Own.server_state: instances that the plan gives the server, and 1 if it evicts there."""

JOB_STATE = 2
VICTIM_OF, VICTIM_ON = 0, 1
"""Columns of Own.job_state: the number of the plan that evicts the job, and on which server it is named."""

STATE = ROLLUP_STATE + 7
PLANS, OF_PASS, OF_JOB, UP_TO, LEVEL, FROM, TO = range(ROLLUP_STATE, STATE)
"""Columns of Own.state: plans so far; pass, job and largest level that the last search was for; level (-1: nothing was found) and servers
of the domain that it chose. Those of rollup.py, here and above, come before: a policy may use both."""


class Hosting(NamedTuple):
    """What it costs to host k = 0 .. n instances on each server, and then on that and the later servers of a domain."""

    tiers: Array  # f8 (S, n + 1) 15 - T of the victims, inf: cannot
    priorities: Array  # f8 (S, n + 1) sum of (priority + 2^31)
    chosen: Array  # i8 (S, n + 1) mask of candidates
    rest_tiers: Array  # f8 (S + 1, n + 1) the same sums from the server to the end of the domain
    rest_priorities: Array  # f8 (S + 1, n + 1)


@allocating
def plan_gang(view, own, job, up_to, found):
    """Searches the smallest domain, of level ``up_to`` at most, in which ``job`` can be hosted, and notes the plan in ``own``."""
    c = view.jobs.klass[job]
    n, servers = view.classes.instances[c], len(view.servers)
    search, candidates = new_search(view), new_candidates(view, view.count[MAX_EVICTABLE])
    cores, sums = np.zeros(view.cores.shape[1], np.int64), np.zeros((2, 4), np.int64)
    host = Hosting(np.full((servers, n + 1), np.inf), np.full((servers, n + 1), np.inf), np.zeros((servers, n + 1), np.int64),
                   np.full((servers + 1, n + 1), np.inf), np.full((servers + 1, n + 1), np.inf))
    for s in range(servers):
        candidates, m = gather(view, search, candidates, s, c, view.count[MAX_EVICTABLE], found)
        if len(sums) < 1 << m:
            sums = np.zeros((1 << m, 4), np.int64)
        host_server(view, search, candidates, sums, cores, m, s, c, n, host, found)
    own.state[PLANS] += 1.0
    own.state[OF_PASS], own.state[OF_JOB], own.state[UP_TO], own.state[LEVEL] = view.count[PASS], job, up_to, -1.0
    if not choose_domain(view, own, n, up_to, host):
        return
    low, high, left = int(own.state[FROM]), int(own.state[TO]), n
    best_split(low, high, n, host)
    for s in range(low, high):
        k = largest_share(s, left, host)
        left -= k
        own.server_state[s, GIVEN], own.server_state[s, EVICTS] = k, host.chosen[s, k] != 0
        if host.chosen[s, k]:
            candidates, m = gather(view, search, candidates, s, c, view.count[MAX_EVICTABLE], found)
            name_planned(own, candidates, host.chosen[s, k], s)


@kernel
def host_server(view, search, candidates, sums, cores, m, s, c, n, host, found):
    """Fills row ``s`` of ``host`` from the ``m`` candidates of the server."""
    k = view.servers.shape_id[s]
    reset_trial(search)
    fits = fill_up(view, c, k, search.trial, cores, n)
    for j in range(fits + 1):
        host.tiers[s, j], host.priorities[s, j] = 0.0, 0.0
    if m == 0 or fits == n:
        return
    reset_trial(search)
    for i in range(m):
        evict_in_trial(search, candidates, i)
    if fill_up(view, c, k, search.trial, cores, n) <= fits:
        return
    found[SERVERS_SCANNED] += 1
    countable = view.classes.milli[c] == MILLI and view.classes.gpus[c] > 0 and candidates.sharing[0] == 0
    for chosen in range(1, 1 << m):
        last, smaller, total = lowest(chosen), sums[chosen & (chosen - 1)], sums[chosen]
        total[0] = smaller[0] | candidates.of.whole[last]
        total[1] = smaller[1] | candidates.of.gpus[last]
        total[2] = smaller[2] | candidates.of.numa[last]
        total[3] = smaller[3] + candidates.of.priority[last] + int(PRIORITY_STEP)
        most = n
        if countable:
            most = min(n, popcount(search.room.amount[FREE] | total[0]) // view.classes.gpus[c])
        tiers, priorities = TOP_TIER - tier(level_of(view, k, total[1], total[2])), float(total[3])
        if most <= fits or not costs_less(host, s, most, tiers, priorities, chosen):
            continue
        found[SETS_TRIED] += 1
        reset_trial(search)
        rest = chosen
        while rest:
            evict_in_trial(search, candidates, lowest(rest))
            rest &= rest - 1
        for j in range(fits + 1, fill_up(view, c, k, search.trial, cores, n) + 1):
            if costs_less(host, s, j, tiers, priorities, chosen):
                host.tiers[s, j], host.priorities[s, j], host.chosen[s, j] = tiers, priorities, chosen


@inlined
def costs_less(host, s, j, tiers, priorities, chosen):
    """Whether this set comes before the one that hosts ``j`` instances on server ``s`` so far."""
    if tiers != host.tiers[s, j]:
        return tiers < host.tiers[s, j]
    if priorities != host.priorities[s, j]:
        return priorities < host.priorities[s, j]
    return cheaper_indices(chosen, host.chosen[s, j])


@kernel
def choose_domain(view, own, n, up_to, host):
    """Notes the cheapest domain of the smallest level that can host ``n`` instances; returns whether there is one."""
    servers = len(view.servers)
    for level in range(up_to + 1):
        tiers, priorities, low = np.inf, np.inf, 0
        while low < servers:
            high = low + 1
            while high < servers and domain_of(view, level, high) == domain_of(view, level, low):
                high += 1
            best_split(low, high, n, host)
            if host.rest_tiers[low, n] < tiers or (host.rest_tiers[low, n] == tiers and host.rest_priorities[low, n] < priorities):
                tiers, priorities = host.rest_tiers[low, n], host.rest_priorities[low, n]
                own.state[LEVEL], own.state[FROM], own.state[TO] = level, low, high
            low = high
        if tiers < np.inf:
            return True
    return False


@kernel
def best_split(low, high, n, host):
    """Fills rows ``low`` .. ``high`` of the sums: the least cost of 0 .. n instances on servers from there to ``high``."""
    for t in range(n + 1):
        host.rest_tiers[high, t] = host.rest_priorities[high, t] = 0.0 if t == 0 else np.inf
    for s in range(high - 1, low - 1, -1):
        for t in range(n + 1):
            best_tiers, best_priorities = np.inf, np.inf
            for k in range(t + 1):
                tiers = host.tiers[s, k] + host.rest_tiers[s + 1, t - k]
                priorities = host.priorities[s, k] + host.rest_priorities[s + 1, t - k]
                if tiers < best_tiers or (tiers == best_tiers and priorities < best_priorities):
                    best_tiers, best_priorities = tiers, priorities
            host.rest_tiers[s, t], host.rest_priorities[s, t] = best_tiers, best_priorities


@inlined
def largest_share(s, left, host):
    """Most of ``left`` instances that server ``s`` can take in a split of least cost."""
    for k in range(left, -1, -1):
        if (host.tiers[s, k] + host.rest_tiers[s + 1, left - k] == host.rest_tiers[s, left]
                and host.priorities[s, k] + host.rest_priorities[s + 1, left - k] == host.rest_priorities[s, left]):
            return k
    return 0


@inlined
def name_planned(own, candidates, chosen, s):
    """Marks the candidates of mask ``chosen`` as victims of the plan on server ``s``, but for those already named on another."""
    while chosen:
        victim = candidates.of.job[lowest(chosen)]
        if own.job_state[victim, VICTIM_OF] != own.state[PLANS]:
            own.job_state[victim, VICTIM_OF], own.job_state[victim, VICTIM_ON] = own.state[PLANS], s
        chosen &= chosen - 1


@inlined
def largest_level(view, job):
    """The largest domain in which the gang may lie, for the scope that is tried: what it asks for, or the cluster."""
    c = view.jobs.klass[job]
    everywhere = view.count[SCOPE_FROM] == 0 and view.count[SCOPE_TO] == len(view.servers)
    if view.classes.network[c] == ANYWHERE or (everywhere and not view.classes.required[c]):
        return CLUSTER
    return view.classes.network[c]


@inlined
def gang_server(view, own):
    """The server of the plan for the instance that is being placed, -1 if the plan leaves the scope; those that evict come first."""
    low, high, left = int(own.state[FROM]), int(own.state[TO]), view.count[INSTANCE]
    if own.state[LEVEL] < 0 or low < view.count[SCOPE_FROM] or high > view.count[SCOPE_TO]:
        return -1
    for evicts in (1.0, 0.0):
        for s in range(low, high):
            if own.server_state[s, EVICTS] == evicts:
                if left < own.server_state[s, GIVEN]:
                    return s
                left -= int(own.server_state[s, GIVEN])
    return -1


@inlined
def list_planned(view, own, s, found):
    """Fills ``found`` with the plan's victims on server ``s`` that still run, by index; returns their number."""
    n, i = 0, view.servers.first[s]
    while i >= 0:
        job = view.instances.job[i]
        i = view.instances.next[i]
        if own.job_state[job, VICTIM_OF] != own.state[PLANS] or own.job_state[job, VICTIM_ON] != s or view.jobs.status[job] != RUNNING:
            continue
        at, known = FIRST_VICTIM, False
        while at < FIRST_VICTIM + n:
            known = known or found[at] == job
            at += 1
        if not known:
            while at > FIRST_VICTIM and found[at - 1] > job:
                found[at] = found[at - 1]
                at -= 1
            found[at] = job
            n += 1
    found[SERVER_FOUND] = s
    return n


@inlined
def place_planned(view, own, job):
    """place, while the job evicts: the server of the plan, once its victims are out; the first instance always asks for victims."""
    s = gang_server(view, own) if view.count[INSTANCE] else -1
    if s < 0:
        return NO_FIT
    i = view.servers.first[s]
    while i >= 0:
        other = view.instances.job[i]
        i = view.instances.next[i]
        if (own.job_state[other, VICTIM_OF] == own.state[PLANS] and own.job_state[other, VICTIM_ON] == s
                and view.jobs.status[other] == RUNNING):
            return NO_FIT
    return s if fits_server(view, s, view.jobs.klass[job]) else NO_FIT


@allocating
def gang_victims(view, own, job, up_to, found):
    """victims for an instance of a gang: what the plan evicts on its server; 0 without a plan in this scope."""
    if view.count[INSTANCE] == 0 and (
            own.state[OF_PASS] != view.count[PASS] or own.state[OF_JOB] != job or own.state[UP_TO] != up_to):
        plan_gang(view, own, job, up_to, found)
    s = gang_server(view, own)
    return list_planned(view, own, s, found) if s >= 0 else 0
