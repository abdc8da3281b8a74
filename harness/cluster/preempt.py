"""The parts of a victim search: who may be evicted on a server, what is free without them, and which set is best.

A search goes over servers; on each it gathers the evictable jobs, tests whether evicting all of them would do, sources victim sets
and keeps the best. specs/topology-preemption.md, "Candidate sourcing" and "The tiers and the score".
"""

from typing import NamedTuple

import numpy as np

from harness.cluster.fit import CPU, FREE, MEMORY, Room, cores_in, empty_room, fill_room, fits, level_of, numa_mask, pin
from harness.cluster.lifecycle import lost_if_evicted
from harness.cluster.state import (
    DECISIONS,
    GRACE_S,
    GUARANTEED,
    INSTANCE,
    MIN_RUNTIME_S,
    NOW,
    NUMA,
    NVLINK,
    PINNING,
    RUNNING,
    SEED,
    SOCKET,
    UNBOUND,
    UNPINNED,
    Array,
    Table,
    table,
)
from harness.jit import allocating, copy, fill, inlined, kernel, lowest, popcount, records, total
from harness.schema import MILLI

SERVER_FOUND, SETS_TRIED, SERVERS_SCANNED, SERVERS_CAPPED, FIRST_VICTIM = 0, 1, 2, 3, 4
"""Columns of ``found``, which a victim search fills: server, cost of the search, servers with too many evictable jobs to consider,
then the victims."""

PRIORITY_STEP = 2.0**31
"""Added to each victim's priority in sums, so that fewer victims sum to less."""

SCORE, COST, HIGHEST, SUM, COUNT, START = range(6)
"""Columns of a rank, smaller is better: minus the score S, cost in GPU seconds, highest priority, sum of (priority + 2^31), number of
victims, minus the earliest start among the victims of highest priority."""


CANDIDATE = table(
    job="i8",
    gpus="i8",  # mask of GPUs it holds all or part of
    whole="i8",  # mask of those it holds whole
    cpu="i8",  # thousandths
    memory="i8",  # MiB
    numa="i8",  # mask of NUMA nodes where it has exclusive cores
    priority="i8",
    start="f8",  # s
    cost="f8",  # GPU seconds
)


class Candidates(NamedTuple):
    """The evictable jobs of one server, by index; M of them at most."""

    of: Table  # CANDIDATE (M,)
    cores: Array  # i8 (M, N) exclusive cores by NUMA node
    shared: Array  # i8 (M, G) thousandths of partly used GPUs
    sharing: Array  # i8 (1,) number of candidates that hold part of a GPU


class Search(NamedTuple):
    """One victim search: the room of the server that is looked at, and the best set so far."""

    room: Room  # free on the server
    trial: Room  # free on it if some set were evicted
    rank: Array  # f8 (6,) of the set that is looked at
    best: Array  # f8 (6,) of the best set
    winner: Array  # i8 (2,) server and mask of the best set, -1: none
    pinned: Array  # i8 (N,) scratch for pinning


@inlined
def evictable(view, job, c):
    """Whether a job of class ``c`` may evict ``job`` now: running, preemptible, past its protected start, and of lower priority unless the
    policy is unbound."""
    lower = view.classes.priority[view.jobs.klass[job]] < view.classes.priority[c]
    return (lower or view.count[UNBOUND] == 1) and unprotected(view, job)


@inlined
def rival(view, job, c):
    """The same of a job of equal priority: the policy's hook ``outranks`` decides."""
    return view.classes.priority[view.jobs.klass[job]] == view.classes.priority[c] and unprotected(view, job)


@inlined
def unprotected(view, job):
    """Whether ``job`` runs, is preemptible, past its protected start and was not evicted at this instant."""
    jobs, now = view.jobs, view.clock[NOW]
    return (
        jobs.status[job] == RUNNING
        and view.classes.preemptible[jobs.klass[job]] == 1
        and now - jobs.start[job] >= view.clock[MIN_RUNTIME_S]
        and jobs.evicted_at[job] != now
    )


@kernel
def draw(view):
    """State of the generator of a random search: a pure function of seed, decisions so far and instance."""
    x = (1000003 * view.count[SEED] + 7919 * view.count[DECISIONS] + 104729 * view.count[INSTANCE] + 12345) % 2147483647
    return next_draw(1 if x == 0 else x)


@kernel
def next_draw(x):
    """The draw after ``x``; use it modulo the number of choices."""
    return 48271 * x % 2147483647


@allocating
def new_search(view):
    room = empty_room(view)
    return Search(room, empty_room(view), np.zeros(6), np.full(6, np.inf), np.full(2, -1, np.int64),
                  np.zeros(len(room.cores), np.int64))


@allocating
def new_candidates(view, m):
    nodes, gpus = view.cores.shape[1], view.shared.shape[1]
    return Candidates(records(m, CANDIDATE), np.zeros((m, nodes), np.int64), np.zeros((m, gpus), np.int64), np.zeros(1, np.int64))


@inlined
def worth_a_look(view, s, c):
    """The aggregate filter: evicting every job of lower priority could free enough GPUs and cores on server ``s``."""
    if not view.on_shape.allowed[c, view.servers.shape_id[s]]:
        return False
    gpu, cpu = view.servers.gpu[s], view.servers.cpu[s]
    for rank in range(view.classes.rank[c]):
        gpu += view.evictable.gpu[s, rank]
        cpu += view.evictable.cpu[s, rank]
    return gpu >= view.classes.gpus[c] * view.classes.milli[c] and cpu >= view.classes.cpu[c]


@allocating
def gather(view, search, candidates, s, c, limit, found):
    """Sets ``search.room`` to server ``s`` and lists its evictable jobs, by index; at most ``limit`` of them if that is positive:
    lowest priority first, then latest start, then lowest index. Returns the candidates, which may have grown, and their number."""
    n = _gather(view, search, candidates, s, c, limit, found)
    if n > len(candidates.of):
        candidates = new_candidates(view, 2 * n)
        n = _gather(view, search, candidates, s, c, limit, found)
    return candidates, n


@inlined
def _gather(view, search, candidates, s, c, limit, found):
    """As ``gather``; when the candidates do not fit in their array it returns how many there are, and lists none."""
    fill_room(search.room, view, s)
    jobs, instances, classes = view.jobs, view.instances, view.classes
    n, room = 0, len(candidates.of)
    i = view.servers.first[s]
    while i >= 0:
        job = instances.job[i]
        i = instances.next[i]
        if not evictable(view, job, c) or (classes.instances[jobs.klass[job]] > 1 and _listed(candidates, min(n, room), job)):
            continue
        n += 1
        if n > room:
            continue
        m = n - 1
        while m > 0 and candidates.of.job[m - 1] > job:
            candidates.of.job[m] = candidates.of.job[m - 1]
            m -= 1
        candidates.of.job[m] = job
    if n > room:
        return n
    if 0 < limit < n:
        found[SERVERS_CAPPED] += 1
        n = _keep_cheapest(view, candidates, n, limit)
    candidates.sharing[0] = 0
    for m in range(n):
        describe(view, candidates, m, s)
    return n


@inlined
def _listed(candidates, n, job):
    for m in range(n):
        if candidates.of.job[m] == job:
            return True
    return False


@kernel
def _keep_cheapest(view, candidates, n, limit):
    """Drops the dearest candidates until ``limit`` are left."""
    jobs, classes = view.jobs, view.classes
    while n > limit:
        dearest = 0
        for m in range(1, n):
            a, b = candidates.of.job[m], candidates.of.job[dearest]
            pa, pb = classes.priority[jobs.klass[a]], classes.priority[jobs.klass[b]]
            if pa > pb or (pa == pb and jobs.start[a] <= jobs.start[b]):
                dearest = m
        n -= 1
        for m in range(dearest, n):
            candidates.of.job[m] = candidates.of.job[m + 1]
    return n


@inlined
def describe(view, candidates, m, s):
    """Fills row ``m`` with what the job holds on server ``s``."""
    jobs, instances = view.jobs, view.instances
    job = candidates.of.job[m]
    c = jobs.klass[job]
    candidates.of.gpus[m], candidates.of.whole[m], candidates.of.cpu[m], candidates.of.memory[m], candidates.of.numa[m] = 0, 0, 0, 0, 0
    fill(candidates.cores[m], 0)
    candidates.of.priority[m], candidates.of.start[m] = view.classes.priority[c], jobs.start[job]
    fractional = view.classes.milli[c] < MILLI
    if fractional:
        fill(candidates.shared[m], 0)
        candidates.sharing[0] += 1
    for i in range(jobs.first_instance[job], jobs.end_instance[job]):
        if instances.server[i] != s:
            continue
        gpus = instances.gpus[i]
        candidates.of.gpus[m] |= gpus
        if fractional:
            candidates.shared[m, lowest(gpus)] += view.classes.milli[c]
        else:
            candidates.of.whole[m] |= gpus
        candidates.of.cpu[m] += view.classes.cpu[c]
        candidates.of.memory[m] += view.classes.memory[c]
        if view.classes.cores[c]:
            for node in range(candidates.cores.shape[1]):
                candidates.cores[m, node] += view.instance_cores[i, node]
    if view.classes.cores[c]:
        candidates.of.numa[m] = numa_mask(candidates.cores[m])


@kernel
def price(view, candidates, n):
    """Sets each candidate's cost: the GPU seconds that evicting it would lose, restart included."""
    jobs = view.jobs
    for m in range(n):
        job = candidates.of.job[m]
        c = jobs.klass[job]
        gpus = view.classes.instances[c] * view.classes.gpus[c] * view.classes.milli[c] / MILLI
        candidates.of.cost[m] = gpus * (lost_if_evicted(jobs, job, view.clock[NOW]) + jobs.restart_cost[job])


@inlined
def reset_trial(search):
    """Nothing evicted."""
    copy(search.trial.amount, search.room.amount)
    copy(search.trial.shared, search.room.shared)
    copy(search.trial.cores, search.room.cores)


@inlined
def evict_in_trial(search, candidates, m):
    """Candidate ``m`` gives back what it holds, on the trial server."""
    trial = search.trial
    trial.amount[FREE] |= candidates.of.whole[m]
    trial.amount[CPU] += candidates.of.cpu[m]
    trial.amount[MEMORY] += candidates.of.memory[m]
    if candidates.of.numa[m]:
        for node in range(len(trial.cores)):
            trial.cores[node] += candidates.cores[m, node]
    partly = candidates.of.gpus[m] & ~candidates.of.whole[m]
    while partly:
        g = lowest(partly)
        trial.shared[g] -= candidates.shared[m, g]
        if trial.shared[g] == 0:
            trial.amount[FREE] |= 1 << g
        partly &= partly - 1


@inlined
def reprieve_in_trial(search, candidates, m):
    """The inverse of ``evict_in_trial``."""
    trial = search.trial
    trial.amount[FREE] &= ~candidates.of.gpus[m]
    trial.amount[CPU] -= candidates.of.cpu[m]
    trial.amount[MEMORY] -= candidates.of.memory[m]
    if candidates.of.numa[m]:
        for node in range(len(trial.cores)):
            trial.cores[node] -= candidates.cores[m, node]
    partly = candidates.of.gpus[m] & ~candidates.of.whole[m]
    while partly:
        g = lowest(partly)
        trial.shared[g] += candidates.shared[m, g]
        partly &= partly - 1


@inlined
def trial_fits(view, search, s, c, guarantees):
    """Whether the request fits the trial server."""
    trial = search.trial
    return fits(view, c, view.servers.shape_id[s], trial.amount[FREE], trial.shared, trial.cores, trial.amount[CPU],
                trial.amount[MEMORY], guarantees)


@kernel
def all_evicted_fits(view, search, candidates, n, s, c, guarantees):
    """The remove-all test: leaves the trial server with all ``n`` candidates evicted."""
    reset_trial(search)
    for m in range(n):
        evict_in_trial(search, candidates, m)
    return trial_fits(view, search, s, c, guarantees)


@inlined
def set_fits(view, search, candidates, s, c, chosen, whole, cpu, memory):
    """Whether the request, guarantee included, fits once the candidates of mask ``chosen`` are gone.

    ``whole``, ``cpu`` and ``memory`` are what the set holds in sum.
    """
    k = view.servers.shape_id[s]
    room = search.room
    if room.amount[CPU] + cpu < view.classes.cpu[c] or room.amount[MEMORY] + memory < view.classes.memory[c]:
        return False
    if candidates.sharing[0] or view.classes.milli[c] < MILLI:
        reset_trial(search)
        while chosen:
            evict_in_trial(search, candidates, lowest(chosen))
            chosen &= chosen - 1
        return trial_fits(view, search, s, c, True)
    free = room.amount[FREE] | whole
    if popcount(free) < view.classes.gpus[c]:
        return False
    if view.clock[GRACE_S] > 0.0 and view.classes.cores[c]:
        cores, rest = total(room.cores), chosen
        while rest:
            cores += total(candidates.cores[lowest(rest)])
            rest &= rest - 1
        if cores < view.classes.cores[c]:
            return False
    if view.classes.affinity[c] != GUARANTEED:
        return True
    for d in range(view.shapes.domains[k]):
        if view.domain.level[k, d] == view.on_shape.accepts[c, k] and popcount(free & view.domain.gpus[k, d]) >= view.classes.gpus[c]:
            cores = cores_in(room.cores, view.domain.numa[k, d])
            rest = chosen
            while rest and cores < view.classes.cores[c]:
                cores += cores_in(candidates.cores[lowest(rest)], view.domain.numa[k, d] & candidates.of.numa[lowest(rest)])
                rest &= rest - 1
            if cores >= view.classes.cores[c]:
                return True
    return False


@inlined
def tier(level):
    """T of the FlexTopo score: 15, less 3 beyond one NUMA node, less 5 beyond one socket [code]."""
    if level == UNPINNED or level == NUMA:
        return 15.0
    return 12.0 if level == NVLINK or level == SOCKET else 7.0


@inlined
def score(t, priority_sum, alpha):
    """S = alpha / sum(priority + 2^31) + (1 - alpha) T [code]; the largest wins."""
    return alpha / max(priority_sum, 1.0) + (1.0 - alpha) * t


@kernel
def set_level(view, candidates, s, chosen):
    """Smallest level that holds all that the set holds on server ``s``."""
    gpus, numa = 0, 0
    while chosen:
        m = lowest(chosen)
        gpus |= candidates.of.gpus[m]
        numa |= candidates.of.numa[m]
        chosen &= chosen - 1
    return level_of(view, view.servers.shape_id[s], gpus, numa)


@kernel
def assigned_level(view, search, candidates, s, c, chosen):
    """Level of what the request would be given once the set is gone."""
    reset_trial(search)
    while chosen:
        evict_in_trial(search, candidates, lowest(chosen))
        chosen &= chosen - 1
    trial, k = search.trial, view.servers.shape_id[s]
    gpus = pin(view, c, k, trial.amount[FREE], trial.shared, trial.cores, view.count[PINNING], True, search.pinned)
    return level_of(view, k, gpus, numa_mask(search.pinned))


@inlined
def rank_set(candidates, chosen, rank):
    """Fills all columns of ``rank`` but SCORE for the set of mask ``chosen``."""
    rank[COST], rank[HIGHEST], rank[SUM], rank[COUNT], rank[START] = 0.0, -np.inf, 0.0, 0.0, np.inf
    while chosen:
        add_to_rank(candidates, lowest(chosen), rank)
        chosen &= chosen - 1


@inlined
def add_to_rank(candidates, m, rank):
    """Adds candidate ``m`` to the set ranked by ``rank``."""
    rank[COST] += candidates.of.cost[m]
    rank[SUM] += candidates.of.priority[m] + PRIORITY_STEP
    rank[COUNT] += 1
    if candidates.of.priority[m] > rank[HIGHEST]:
        rank[HIGHEST] = candidates.of.priority[m]
        rank[START] = -candidates.of.start[m]
    elif candidates.of.priority[m] == rank[HIGHEST]:
        rank[START] = max(rank[START], -candidates.of.start[m])


@inlined
def better(a, b):
    """Whether rank ``a`` comes before rank ``b``."""
    for column in range(6):
        if a[column] != b[column]:
            return a[column] < b[column]
    return False


@kernel
def keep_if_better(search, candidates, s, chosen, found):
    """Makes the set of mask ``chosen``, ranked by ``search.rank``, the best so far if it is.

    Ties: the server looked at first, then the lexicographically smallest victims.
    """
    if not better(search.rank, search.best):
        if search.winner[0] != s or better(search.best, search.rank) or not cheaper_indices(chosen, search.winner[1]):
            return
    copy(search.best, search.rank)
    search.winner[0], search.winner[1] = s, chosen
    name_victims(search, candidates, found)


@inlined
def name_victims(search, candidates, found):
    """Writes the winner to ``found``; the candidates must be those of its server."""
    found[SERVER_FOUND] = search.winner[0]
    n, chosen = 0, search.winner[1]
    while chosen:
        found[FIRST_VICTIM + n] = candidates.of.job[lowest(chosen)]
        n += 1
        chosen &= chosen - 1


@kernel
def victims_found(search):
    """Number of victims of the best set, 0 when there is none."""
    return popcount(search.winner[1]) if search.winner[0] >= 0 else 0


@kernel
def cheaper_indices(a, b):
    """Whether the sorted candidates of mask ``a`` are lexicographically smaller than those of ``b``, another mask."""
    first = (a ^ b) & -(a ^ b)
    if a & first:
        return b > first
    return not a > first
