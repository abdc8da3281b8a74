"""Policies that go by service: what jobs have had and still need, and the eviction of those that are behind. specs/cluster-policies.md."""

import numpy as np

from harness.cluster.fit import fill_room
from harness.cluster.preempt import (
    FIRST_VICTIM,
    SERVER_FOUND,
    SERVERS_SCANNED,
    SETS_TRIED,
    all_evicted_fits,
    describe,
    evict_in_trial,
    new_candidates,
    new_search,
    reprieve_in_trial,
    reset_trial,
    trial_fits,
    unprotected,
)
from harness.cluster.state import NOW, RUNNING, SCOPE_FROM, SCOPE_TO
from harness.jit import allocating, inlined, kernel
from harness.schema import MILLI

JOB_STATE = 2
RANK, MEASURE = 0, 1
"""Columns of Own.job_state that a policy fills for running jobs before it searches: place in the order, higher is later, and what they have
had or need."""


@inlined
def gpus_of(view, job):
    """GPUs that all instances of ``job`` hold while it runs."""
    c = view.jobs.klass[job]
    return view.classes.instances[c] * view.classes.gpus[c] * view.classes.milli[c] / MILLI


@inlined
def attained(view, job):
    """GPU seconds that ``job`` has had, of the attempts that failed too."""
    jobs = view.jobs
    ran = jobs.running[job]
    if jobs.status[job] == RUNNING:
        ran += view.clock[NOW] - jobs.start[job]
    return gpus_of(view, job) * ran


@inlined
def remaining(view, job):
    """Seconds of work that ``job`` still needs by its estimate; negative when it is overdue."""
    jobs = view.jobs
    left = jobs.estimate[job] - jobs.progress[job]
    if jobs.status[job] == RUNNING:
        left -= jobs.speed[job] * max(0.0, view.clock[NOW] - (jobs.start[job] + jobs.restart[job]))
    return left


@kernel
def _list(view, own, job, rank, candidates, s):
    """Lists the jobs of server ``s``, by index, that ``job`` may evict and that come after ``rank``; returns their number.

    When they are more than the array holds it lists none.
    """
    instances, n, room = view.instances, 0, len(candidates.of)
    priority = view.classes.priority[view.jobs.klass[job]]
    i = view.servers.first[s]
    while i >= 0:
        victim, first = instances.job[i], True
        i = instances.next[i]
        if view.classes.priority[view.jobs.klass[victim]] > priority or not unprotected(view, victim):
            continue
        if own.job_state[victim, RANK] <= rank:
            continue
        m = min(n, room)
        for other in range(m):
            first = first and candidates.of.job[other] != victim
        if not first:
            continue
        n += 1
        if n > room:
            continue
        while m > 0 and candidates.of.job[m - 1] > victim:
            candidates.of.job[m] = candidates.of.job[m - 1]
            m -= 1
        candidates.of.job[m] = victim
    if n <= room:
        candidates.sharing[0] = 0
        for m in range(n):
            describe(view, candidates, m, s)
    return n


@allocating
def search_behind(view, own, job, found, rank):
    """Victims among the jobs that come after ``rank``, the place of ``job``: on each server those of highest MEASURE until the request
    fits, then each that may stay is put back, the lowest measure first. The server whose victims have the highest least measure wins.

    Priorities higher than its own are safe. Ties: fewest victims, then the lowest server; among jobs of equal measure the highest index is
    evicted first. The guarantee is kept in view.
    """
    c, measure = view.jobs.klass[job], own.job_state[:, MEASURE]
    search, candidates = new_search(view), new_candidates(view, 16)
    best_n, best_least = 0, -np.inf
    for s in range(view.count[SCOPE_FROM], view.count[SCOPE_TO]):
        if not view.on_shape.allowed[c, view.servers.shape_id[s]]:
            continue
        n = _list(view, own, job, rank, candidates, s)
        if n > len(candidates.of):
            candidates = new_candidates(view, 2 * n)
            n = _list(view, own, job, rank, candidates, s)
        fill_room(search.room, view, s)
        reset_trial(search)
        if n == 0 or trial_fits(view, search, s, c, True) or not all_evicted_fits(view, search, candidates, n, s, c, True):
            continue
        found[SERVERS_SCANNED] += 1
        order = np.arange(n)
        for i in range(1, n):
            j = i
            while j > 0 and measure[candidates.of.job[order[j - 1]]] <= measure[candidates.of.job[i]]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = i
        out = 0
        reset_trial(search)
        while not trial_fits(view, search, s, c, True):
            evict_in_trial(search, candidates, order[out])
            found[SETS_TRIED] += 1
            out += 1
        chosen, least = 0, np.inf
        for position in range(out - 1, -1, -1):
            m = order[position]
            reprieve_in_trial(search, candidates, m)
            found[SETS_TRIED] += 1
            if trial_fits(view, search, s, c, True):
                order[position] = -1
            else:
                evict_in_trial(search, candidates, m)
                chosen, least = chosen + 1, min(least, measure[candidates.of.job[m]])
        if best_n == 0 or least > best_least or (least == best_least and chosen < best_n):
            best_n, best_least = 0, least
            found[SERVER_FOUND] = s
            for position in range(out):
                if order[position] >= 0:
                    found[FIRST_VICTIM + best_n] = candidates.of.job[order[position]]
                    best_n += 1
    return best_n
