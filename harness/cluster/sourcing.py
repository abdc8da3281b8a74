"""How victim sets are sourced: by reprieve, by trying all sets, by trying small ones first, or inside the smallest domain first.

Each function is one whole victim search: it fills ``found`` and returns the number of victims, 0 when there is nothing to gain.
"""

import numpy as np

from harness.cluster.fit import level_of
from harness.cluster.preempt import (
    FIRST_VICTIM,
    SCORE,
    SERVER_FOUND,
    SERVERS_SCANNED,
    SETS_TRIED,
    SUM,
    add_to_rank,
    all_evicted_fits,
    assigned_level,
    better,
    evict_in_trial,
    gather,
    keep_if_better,
    new_candidates,
    new_search,
    next_draw,
    rank_set,
    reprieve_in_trial,
    reset_trial,
    score,
    set_fits,
    tier,
    trial_fits,
    victims_found,
    worth_a_look,
)
from harness.cluster.state import MAX_EVICTABLE, SCOPE_FROM, SCOPE_TO
from harness.jit import allocating, copy, fill, inlined, kernel, lowest

EXHAUSTIVE, IMP = 0, 1


@allocating
def search_by_reprieve(view, job, found, guarantees, from_the_bottom, first, wanted):
    """One candidate per server by reprieve; the servers' candidates are ranked without T.

    All evictable jobs are taken out and put back in reprieve order (highest priority, earliest start, lowest index), each that
    still lets the request fit. ``from_the_bottom`` first evicts in the opposite order only until the request fits. Servers
    are looked at from ``first`` on, around the scope, until ``wanted`` candidates are found.
    """
    c = view.jobs.klass[job]
    search, candidates = new_search(view), new_candidates(view, 16)
    low, n_servers = view.count[SCOPE_FROM], view.count[SCOPE_TO] - view.count[SCOPE_FROM]
    best_n = 0
    for step in range(n_servers):
        s = low + (first + step) % n_servers
        if not worth_a_look(view, s, c):
            continue
        candidates, n = gather(view, search, candidates, s, c, 0, found)
        reset_trial(search)
        if n == 0 or trial_fits(view, search, s, c, guarantees) or not all_evicted_fits(view, search, candidates, n, s, c, guarantees):
            continue
        found[SERVERS_SCANNED] += 1
        order = reprieve_order(candidates, n)
        out = n
        if from_the_bottom:
            reset_trial(search)
            out = 0
            while not trial_fits(view, search, s, c, guarantees):
                out += 1
                evict_in_trial(search, candidates, order[n - out])
                found[SETS_TRIED] += 1
        victim = np.zeros(n, np.bool_)
        for position in range(n - out, n):
            m = order[position]
            reprieve_in_trial(search, candidates, m)
            found[SETS_TRIED] += 1
            if not trial_fits(view, search, s, c, guarantees):
                evict_in_trial(search, candidates, m)
                victim[m] = True
        rank_set(candidates, 0, search.rank)
        search.rank[SCORE] = 0.0
        for m in range(n):
            if victim[m]:
                add_to_rank(candidates, m, search.rank)
        if better(search.rank, search.best):
            copy(search.best, search.rank)
            found[SERVER_FOUND] = s
            best_n = 0
            for m in range(n):
                if victim[m]:
                    found[FIRST_VICTIM + best_n] = candidates.of.job[m]
                    best_n += 1
        wanted -= 1
        if wanted == 0:
            break
    return best_n


@allocating
def reprieve_order(candidates, n):
    """Candidates by highest priority, earliest start, lowest index."""
    order = np.arange(n)
    for i in range(1, n):
        m = order[i]
        j = i
        while j > 0 and _reprieved_before(candidates, m, order[j - 1]):
            order[j] = order[j - 1]
            j -= 1
        order[j] = m
    return order


@kernel
def _reprieved_before(candidates, a, b):
    if candidates.of.priority[a] != candidates.of.priority[b]:
        return candidates.of.priority[a] > candidates.of.priority[b]
    return candidates.of.start[a] < candidates.of.start[b]


@allocating
def search_all_sets(view, job, found, method, alpha, by_assigned):
    """Exhaustive or IMP sourcing on every server, all candidates ranked together by S and the tie rules [code]."""
    c = view.jobs.klass[job]
    limit = view.count[MAX_EVICTABLE]
    search, candidates = new_search(view), new_candidates(view, limit)
    sums = np.zeros((2, 5), np.int64)
    for s in range(view.count[SCOPE_FROM], view.count[SCOPE_TO]):
        if not worth_a_look(view, s, c):
            continue
        candidates, n = gather(view, search, candidates, s, c, limit, found)
        if n == 0 or not all_evicted_fits(view, search, candidates, n, s, c, True):
            continue
        found[SERVERS_SCANNED] += 1
        if method == EXHAUSTIVE:
            if len(sums) < 1 << n:
                sums = np.zeros((1 << n, 5), np.int64)
            _all_sets(view, search, candidates, sums, n, s, c, alpha, by_assigned, found)
        else:
            _smallest_sets(view, search, candidates, sums[0], n, s, c, alpha, by_assigned, found)
    return victims_found(search)


WHOLE, GPUS, NODES, CORES, MIB = range(5)
"""Columns of the sums over a set: masks of whole GPUs, of all GPUs, of NUMA nodes with exclusive cores; core thousandths, MiB."""


@inlined
def _extend(candidates, m, subset, total):
    """Sets ``total`` to the sums of ``subset`` with candidate ``m``."""
    total[WHOLE] = subset[WHOLE] | candidates.of.whole[m]
    total[GPUS] = subset[GPUS] | candidates.of.gpus[m]
    total[NODES] = subset[NODES] | candidates.of.numa[m]
    total[CORES] = subset[CORES] + candidates.of.cpu[m]
    total[MIB] = subset[MIB] + candidates.of.memory[m]


@kernel
def _all_sets(view, search, candidates, sums, n, s, c, alpha, by_assigned, found):
    """Every non-empty set; ``sums`` (2^n, 5) lets each extend a smaller one."""
    for chosen in range(1, 1 << n):
        _extend(candidates, lowest(chosen), sums[chosen & (chosen - 1)], sums[chosen])
        found[SETS_TRIED] += 1
        _consider(view, search, candidates, s, c, chosen, sums[chosen], alpha, by_assigned, found)


@kernel
def _smallest_sets(view, search, candidates, total, n, s, c, alpha, by_assigned, found):
    """IMP: sets of size 1, 2, ... until a size has a feasible one; all feasible sets of that size are candidates [code]."""
    for size in range(1, n + 1):
        feasible = False
        chosen = (1 << size) - 1
        while chosen < 1 << n:
            fill(total, 0)
            rest = chosen
            while rest:
                _extend(candidates, lowest(rest), total, total)
                rest &= rest - 1
            found[SETS_TRIED] += 1
            feasible = _consider(view, search, candidates, s, c, chosen, total, alpha, by_assigned, found) or feasible
            bit = chosen & -chosen
            ripple = chosen + bit
            chosen = ripple | (((chosen ^ ripple) >> 2) // bit)
        if feasible:
            return


@inlined
def _consider(view, search, candidates, s, c, chosen, total, alpha, by_assigned, found):
    """Ranks the set if it is feasible, and keeps it if it is the best; returns whether it is feasible."""
    if not set_fits(view, search, candidates, s, c, chosen, total[WHOLE], total[CORES], total[MIB]):
        return False
    if by_assigned:
        t = tier(assigned_level(view, search, candidates, s, c, chosen))
    else:
        t = tier(level_of(view, view.servers.shape_id[s], total[GPUS], total[NODES]))
    if alpha == 0.0 and -t > search.best[SCORE]:
        return True
    rank_set(candidates, chosen, search.rank)
    search.rank[SCORE] = -score(t, search.rank[SUM], alpha)
    keep_if_better(search, candidates, s, chosen, found)
    return True


@allocating
def search_at_random(view, job, found, x):
    """A random feasible set on a random server, counts only; ``x`` is the first draw.

    Among the servers that pass the remove-all test one is drawn; its evictable jobs are shuffled and evicted until the request fits.
    """
    c = view.jobs.klass[job]
    search, candidates = new_search(view), new_candidates(view, 16)
    servers = np.zeros(view.count[SCOPE_TO] - view.count[SCOPE_FROM], np.int64)
    n_servers = 0
    for s in range(view.count[SCOPE_FROM], view.count[SCOPE_TO]):
        if not worth_a_look(view, s, c):
            continue
        candidates, n = gather(view, search, candidates, s, c, 0, found)
        reset_trial(search)
        if n and not trial_fits(view, search, s, c, False) and all_evicted_fits(view, search, candidates, n, s, c, False):
            servers[n_servers] = s
            n_servers += 1
    found[SERVERS_SCANNED] = n_servers
    if n_servers == 0:
        return 0
    s = servers[x % n_servers]
    candidates, n = gather(view, search, candidates, s, c, 0, found)
    order = np.arange(n)
    for i in range(n - 1, 0, -1):
        x = next_draw(x)
        j = x % (i + 1)
        order[i], order[j] = order[j], order[i]
    found[SERVER_FOUND] = s
    reset_trial(search)
    for i in range(n):
        evict_in_trial(search, candidates, order[i])
        found[FIRST_VICTIM + i] = candidates.of.job[order[i]]
        found[SETS_TRIED] += 1
        if trial_fits(view, search, s, c, False):
            return i + 1
    return 0
