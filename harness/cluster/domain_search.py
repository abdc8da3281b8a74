"""Domain-first victim search: the winner of the exhaustive search, found inside the smallest domain that holds one.

Exactness rests on three facts. A set's T is fixed by the smallest domain that holds it, so it is enough to search NUMA nodes at
T = 15, sockets at 12 and the server at 7. Every column of a rank is additive or a maximum, so a partial set bounds all its
supersets column by column, and therefore in lexicographic order. A feasible set's supersets never rank before it, unless T is that of what
the preemptor is given (rank_by=assigned), where supersets are searched too.
"""

from typing import NamedTuple

import numpy as np

from harness.cluster.fit import CPU, FREE
from harness.cluster.preempt import (
    COST,
    COUNT,
    HIGHEST,
    PRIORITY_STEP,
    SCORE,
    SERVERS_SCANNED,
    SETS_TRIED,
    START,
    SUM,
    add_to_rank,
    all_evicted_fits,
    assigned_level,
    better,
    evictable,
    gather,
    keep_if_better,
    name_victims,
    new_candidates,
    new_search,
    price,
    rank_set,
    score,
    set_fits,
    tier,
    victims_found,
    worth_a_look,
)
from harness.cluster.state import MAX_EVICTABLE, NOW, NUMA, NVLINK, RUNNING, SCOPE_FROM, SCOPE_TO, SERVER, SOCKET, Array, Table, table
from harness.jit import allocating, copy, fill, inlined, kernel, lowest, popcount, records, total
from harness.schema import MILLI

SLACK = 1.0 - 1e-9
"""Costs are sums of float64 in changing order: bounds on them are taken a little lower."""


STEP = table(
    order="i8",  # row n: n-th candidate of the domain in search order
    gpus_left="i8",  # whole GPUs that candidates from a position on hold in sum
    cpu_left="i8",  # core thousandths likewise
    most_gpus="i8",  # most whole GPUs of one of them
    most_cpu="i8",
    least_sum="f8",  # smallest priority + 2^31 among them
    least_cost="f8",
    chosen="i8",  # set at each depth
    next="i8",  # position to try next at each depth
    whole="i8",  # its mask of whole GPUs
    cpu="i8",  # its core thousandths
    memory="i8",  # its MiB
)


class Walk(NamedTuple):
    """A depth-first walk over the sets of a domain's candidates, cheapest first."""

    step: Table  # STEP (M + 1,)
    rank: Array  # f8 (M + 1, 6) rank of the set at each depth
    bound: Array  # f8 (6,) the best rank that supersets can have


@allocating
def new_walk(m):
    return Walk(records(m + 1, STEP), np.zeros((m + 1, 6)), np.zeros(6))


SEEN, AT, EXACT, RANK, CHOSEN, BLOCK_SEEN, BLOCK_FROM, BLOCK_TO, BLOCK_AT, BLOCK_BEST, KEPT = 0, 1, 2, 3, 9, 10, 11, 12, 13, 14, 15
"""Columns of what is kept of a server for a class: 1 + the version of the server that it holds for; the only instant at which it holds, -1:
it holds at any; 1 if it is the best set there and 0 if it is a bound on it; its rank; its mask of candidates. In the row of the first
server of a block, for those of its servers that were in scope: 1 + the sum of their versions, which they were, the only instant or -1,
and the server that ranks first, -1: none. KEPT columns in all."""

BLOCK = 64


@allocating
def search_domain_first(view, own, job, found, alpha, by_assigned, by_cost):
    """The same winner as ``search_all_sets`` under the same ranking; ``by_cost`` puts the work lost before the tie rules.

    ``own.class_server`` (C, S, KEPT) keeps the best set of each server for the class of ``job``, or a bound on it, until the server
    changes. The server that ranks first is searched, if it has but a bound, until the first has a set.
    """
    c = view.jobs.klass[job]
    kept = own.class_server[c]
    search, candidates, walk = new_search(view), new_candidates(view, view.count[MAX_EVICTABLE]), new_walk(view.count[MAX_EVICTABLE])
    s = first_server(view, search.rank, kept, c, alpha, by_assigned)
    while s >= 0 and kept[s, EXACT] == 0.0:
        candidates = search_server(view, search, candidates, walk, kept, s, c, alpha, by_assigned, by_cost, found)
        s = first_server(view, search.rank, kept, c, alpha, by_assigned)
    if s < 0:
        return 0
    search.winner[0], search.winner[1] = s, np.int64(kept[s, CHOSEN])
    copy(search.best, kept[s, RANK:CHOSEN])
    smallest_indices(view, search, candidates, job, alpha, by_assigned, by_cost, found)
    return victims_found(search)


@kernel
def first_server(view, rank, kept, c, alpha, by_assigned):
    """The server in scope whose set, or bound on it, ranks first, or -1."""
    best, low, end = -1, view.count[SCOPE_FROM], view.count[SCOPE_TO]
    while low < end:
        high = min(low - low % BLOCK + BLOCK, end)
        s = first_of_block(view, rank, kept, low, high, c, alpha, by_assigned)
        if s >= 0 and comes_before(kept, s, best):
            best = s
        low = high
    return best


@inlined
def first_of_block(view, rank, kept, low, high, c, alpha, by_assigned):
    """The same for servers ``low`` to ``high``; looks at them one by one only if one has changed."""
    now, versions, block = view.clock[NOW], total(view.version[low:high]), kept[low - low % BLOCK]
    if (block[BLOCK_SEEN] != versions + 1 or block[BLOCK_FROM] != low or block[BLOCK_TO] != high
            or (block[BLOCK_AT] >= 0.0 and block[BLOCK_AT] != now)):
        best, at = -1, -1.0
        for s in range(low, high):
            if kept[s, SEEN] != view.version[s] + 1 or (kept[s, AT] >= 0.0 and kept[s, AT] != now):
                bound_server(view, rank, s, c, alpha, by_assigned)
                copy(kept[s, RANK:CHOSEN], rank)
                kept[s, SEEN], kept[s, AT], kept[s, EXACT] = view.version[s] + 1, -1.0, 0.0
            at = max(at, kept[s, AT])
            if comes_before(kept, s, best):
                best = s
        block[BLOCK_SEEN], block[BLOCK_FROM], block[BLOCK_TO], block[BLOCK_AT], block[BLOCK_BEST] = versions + 1, low, high, at, best
    return np.int64(block[BLOCK_BEST])


@inlined
def comes_before(kept, s, best):
    """Whether what is kept of server ``s`` ranks before that of server ``best`` (-1: none). Ties: lowest index."""
    if best < 0:
        return kept[s, RANK] < np.inf
    for column in range(RANK, CHOSEN):
        if kept[s, column] != kept[best, column]:
            return kept[s, column] < kept[best, column]
    return s < best


@inlined
def bound_server(view, rank, s, c, alpha, by_assigned):
    """The best rank that a set on server ``s`` could have, by its aggregates alone; infinite when there is none."""
    fill(rank, np.inf)
    if not worth_a_look(view, s, c):
        return
    lowest_rank, newest, most = -1, -np.inf, 1
    for r in range(view.classes.rank[c]):
        if view.evictable.newest[s, r] > -np.inf:
            if lowest_rank < 0:
                lowest_rank = r
            newest = max(newest, view.evictable.newest[s, r])
            most = max(most, view.ranks.most_gpus[r])
    if lowest_rank < 0:
        return
    priority = view.ranks.priority[lowest_rank]
    lacking = view.classes.gpus[c] - popcount(view.servers.free[s]) if view.classes.milli[c] == MILLI else 1
    n = max(1, (lacking + most - 1) // most)
    rank[COST], rank[HIGHEST], rank[SUM], rank[COUNT], rank[START] = 0.0, priority, n * (priority + PRIORITY_STEP), n, -newest
    rank[SCORE] = -score(top_tier(view, view.servers.free[s], view.servers.shape_id[s], c, by_assigned), rank[SUM], alpha)


@allocating
def search_server(view, search, candidates, walk, kept, s, c, alpha, by_assigned, by_cost, found):
    """Finds the best set of server ``s`` and keeps it. Returns the candidates, which may have grown."""
    limit = view.count[MAX_EVICTABLE]
    fill(search.best, np.inf)
    search.winner[0], search.winner[1] = -1, 0
    candidates, n = gather(view, search, candidates, s, c, limit, found)
    if n and all_evicted_fits(view, search, candidates, n, s, c, True):
        found[SERVERS_SCANNED] += 1
        if by_cost:
            price(view, candidates, n)
        walk_server(view, search, candidates, walk, n, s, c, alpha, by_assigned, found)
    copy(kept[s, RANK:CHOSEN], search.best)
    kept[s, CHOSEN], kept[s, EXACT] = search.winner[1], 1.0
    kept[s, AT] = -1.0 if not by_cost and lasts(view, s, c) else view.clock[NOW]
    kept[s - s % BLOCK, BLOCK_SEEN] = 0.0
    return candidates


@kernel
def lasts(view, s, c):
    """Whether the same jobs of server ``s`` may be evicted at any later instant, as long as nothing changes there."""
    i = view.servers.first[s]
    while i >= 0:
        job = view.instances.job[i]
        d = view.jobs.klass[job]
        if view.jobs.status[job] == RUNNING and view.classes.preemptible[d] and not evictable(view, job, c):
            if view.classes.priority[d] < view.classes.priority[c]:
                return False
        i = view.instances.next[i]
    return True


@kernel
def walk_server(view, search, candidates, walk, n, s, c, alpha, by_assigned, found):
    """Walks the domains of server ``s``, smallest first."""
    k = view.servers.shape_id[s]
    most = top_tier(view, search.room.amount[FREE], k, c, by_assigned)
    for d in range(view.shapes.domains[k]):
        if not searched(view, k, d, by_assigned):
            continue
        t = most if by_assigned else tier(view.domain.level[k, d])
        if t > most:
            continue
        if alpha == 0.0 and -t > search.best[SCORE]:
            break
        walk_domain(view, search, candidates, walk, n, s, c, d, t, alpha, by_assigned, found)


@inlined
def searched(view, k, d, by_assigned):
    """Whether sets inside domain ``d`` are searched on their own: NVLink groups have the T of their socket."""
    return view.domain.level[k, d] == SERVER and d == view.shapes.domains[k] - 1 if by_assigned else view.domain.level[k, d] != NVLINK


@inlined
def top_tier(view, free, k, c, by_assigned):
    """The largest T that a set on a server of shape ``k`` can have, by the GPUs that the request still lacks."""
    if view.classes.milli[c] < MILLI:
        return 15.0
    lacking = view.classes.gpus[c] - (0 if by_assigned else popcount(free))
    if lacking <= view.largest[k, NUMA]:
        return 15.0
    return 12.0 if lacking <= view.largest[k, SOCKET] else 7.0


@inlined
def inside_domain(view, candidates, n, s, d):
    """Mask of the candidates that hold nothing outside domain ``d``."""
    k = view.servers.shape_id[s]
    mask = 0
    for m in range(n):
        if candidates.of.gpus[m] & ~view.domain.gpus[k, d] == 0 and candidates.of.numa[m] & ~view.domain.numa[k, d] == 0:
            mask |= 1 << m
    return mask


@kernel
def walk_domain(view, search, candidates, walk, n, s, c, d, t, alpha, by_assigned, found):
    """Depth-first over the sets inside domain ``d``, skipping all that cannot rank before the best so far."""
    m = prepare(candidates, walk, inside_domain(view, candidates, n, s, d))
    countable = view.classes.milli[c] == MILLI and candidates.sharing[0] == 0
    walk.step.chosen[0], walk.step.next[0] = 0, 0
    walk.step.whole[0], walk.step.cpu[0], walk.step.memory[0] = 0, 0, 0
    rank_set(candidates, 0, walk.rank[0])
    depth = 0
    while depth >= 0:
        position = walk.step.next[depth]
        if position == m:
            depth -= 1
            continue
        walk.step.next[depth] = position + 1
        candidate = walk.step.order[position]
        rank = walk.rank[depth + 1]
        copy(rank, walk.rank[depth])
        add_to_rank(candidates, candidate, rank)
        whole = walk.step.whole[depth] | candidates.of.whole[candidate]
        cpu = walk.step.cpu[depth] + candidates.of.cpu[candidate]
        memory = walk.step.memory[depth] + candidates.of.memory[candidate]
        chosen = walk.step.chosen[depth] | 1 << candidate
        gpus_lacking = view.classes.gpus[c] - popcount(search.room.amount[FREE] | whole) if countable else 0
        cpu_lacking = view.classes.cpu[c] - search.room.amount[CPU] - cpu
        if gpus_lacking > walk.step.gpus_left[position + 1] or cpu_lacking > walk.step.cpu_left[position + 1]:
            continue
        if not worth_walking(search, walk, rank, position + 1, gpus_lacking, cpu_lacking, t, alpha):
            continue
        if gpus_lacking <= 0 and cpu_lacking <= 0:
            found[SETS_TRIED] += 1
            if set_fits(view, search, candidates, s, c, chosen, whole, cpu, memory):
                rank_set(candidates, chosen, search.rank)
                actual = tier(assigned_level(view, search, candidates, s, c, chosen)) if by_assigned else t
                search.rank[SCORE] = -score(actual, search.rank[SUM], alpha)
                keep_if_better(search, candidates, s, chosen, found)
                if not by_assigned:
                    continue
        walk.step.chosen[depth + 1], walk.step.next[depth + 1] = chosen, position + 1
        walk.step.whole[depth + 1], walk.step.cpu[depth + 1], walk.step.memory[depth + 1] = whole, cpu, memory
        depth += 1


@inlined
def prepare(candidates, walk, mask):
    """Orders the candidates of ``mask`` by cost, priority, latest start and index, with suffix sums for bounds. Returns their number."""
    m = 0
    while mask:
        candidate = lowest(mask)
        mask &= mask - 1
        j = m
        while j > 0 and _cheaper(candidates, candidate, walk.step.order[j - 1]):
            walk.step.order[j] = walk.step.order[j - 1]
            j -= 1
        walk.step.order[j] = candidate
        m += 1
    walk.step.gpus_left[m], walk.step.cpu_left[m], walk.step.most_gpus[m], walk.step.most_cpu[m] = 0, 0, 0, 0
    walk.step.least_sum[m], walk.step.least_cost[m] = np.inf, np.inf
    for j in range(m - 1, -1, -1):
        candidate = walk.step.order[j]
        gpus = popcount(candidates.of.whole[candidate])
        walk.step.gpus_left[j] = walk.step.gpus_left[j + 1] + gpus
        walk.step.cpu_left[j] = walk.step.cpu_left[j + 1] + candidates.of.cpu[candidate]
        walk.step.most_gpus[j] = max(walk.step.most_gpus[j + 1], gpus)
        walk.step.most_cpu[j] = max(walk.step.most_cpu[j + 1], candidates.of.cpu[candidate])
        walk.step.least_sum[j] = min(walk.step.least_sum[j + 1], candidates.of.priority[candidate] + PRIORITY_STEP)
        walk.step.least_cost[j] = min(walk.step.least_cost[j + 1], candidates.of.cost[candidate])
    return m


@inlined
def _cheaper(candidates, a, b):
    if candidates.of.cost[a] != candidates.of.cost[b]:
        return candidates.of.cost[a] < candidates.of.cost[b]
    if candidates.of.priority[a] != candidates.of.priority[b]:
        return candidates.of.priority[a] < candidates.of.priority[b]
    return candidates.of.start[a] > candidates.of.start[b]


@inlined
def worth_walking(search, walk, rank, position, gpus_lacking, cpu_lacking, t, alpha):
    """Whether a set of this rank, or a superset by candidates from ``position`` on, could rank before the best so far."""
    more = 0
    if gpus_lacking > 0:
        more = (gpus_lacking + walk.step.most_gpus[position] - 1) // walk.step.most_gpus[position]
    if cpu_lacking > 0:
        more = max(more, (cpu_lacking + walk.step.most_cpu[position] - 1) // walk.step.most_cpu[position])
    bound = walk.bound
    copy(bound, rank)
    if more:
        bound[COUNT] += more
        bound[SUM] += more * walk.step.least_sum[position]
        bound[COST] += more * walk.step.least_cost[position]
    bound[COST] *= SLACK
    bound[SCORE] = -score(t, bound[SUM], alpha)
    return better(bound, search.best)


@allocating
def smallest_indices(view, search, candidates, job, alpha, by_assigned, by_cost, found):
    """Among the winning server's sets that rank equal to the best, takes the one with lexicographically smallest victims.

    Sets of the right size are built in index order, so the first that ranks equal in a domain is its smallest.
    """
    c, s = view.jobs.klass[job], search.winner[0]
    k = view.servers.shape_id[s]
    candidates, n = gather(view, search, candidates, s, c, view.count[MAX_EVICTABLE], found)
    name_victims(search, candidates, found)
    if by_cost:
        price(view, candidates, n)
    size = int(search.best[COUNT])
    members, sums = np.zeros(size + 1, np.int64), np.zeros(size + 1)
    for d in range(view.shapes.domains[k]):
        if not searched(view, k, d, by_assigned):
            continue
        t = tier(view.domain.level[k, d])
        if not by_assigned and -score(t, search.best[SUM], alpha) != search.best[SCORE]:
            continue
        inside = inside_domain(view, candidates, n, s, d)
        depth, members[0] = 0, -1
        while depth >= 0:
            members[depth] += 1
            m = members[depth]
            if m >= n:
                depth -= 1
                continue
            if not inside >> m & 1 or candidates.of.priority[m] > search.best[HIGHEST] or (
                candidates.of.priority[m] == search.best[HIGHEST] and -candidates.of.start[m] > search.best[START]
            ):
                continue
            sums[depth + 1] = sums[depth] + candidates.of.priority[m] + PRIORITY_STEP
            if sums[depth + 1] > search.best[SUM]:
                continue
            if depth + 1 < size:
                members[depth + 1] = m
                depth += 1
                continue
            chosen = 0
            for i in range(size):
                chosen |= 1 << members[i]
            if ranks_equal(view, search, candidates, s, c, chosen, t, alpha, by_assigned, found):
                keep_if_better(search, candidates, s, chosen, found)
                break


@kernel
def ranks_equal(view, search, candidates, s, c, chosen, t, alpha, by_assigned, found):
    """Whether the set is feasible and ranks equal to the best; leaves its rank in ``search.rank``."""
    rank_set(candidates, chosen, search.rank)
    search.rank[SCORE] = search.best[SCORE]
    if better(search.best, search.rank) or better(search.rank, search.best):
        return False
    whole, cpu, memory, rest = 0, 0, 0, chosen
    while rest:
        m = lowest(rest)
        whole |= candidates.of.whole[m]
        cpu += candidates.of.cpu[m]
        memory += candidates.of.memory[m]
        rest &= rest - 1
    found[SETS_TRIED] += 1
    if not set_fits(view, search, candidates, s, c, chosen, whole, cpu, memory):
        return False
    actual = tier(assigned_level(view, search, candidates, s, c, chosen)) if by_assigned else t
    return -score(actual, search.rank[SUM], alpha) == search.best[SCORE]
