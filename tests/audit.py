"""A policy file whose hooks only look: whenever a job is about to be tried they recount who holds what, from the instances alone.

``admit`` compares the recount with the state, and ``blocked`` asks whether anything could have been done for a job after all. Both
answer as the defaults do and write the first fault to the last columns of ``own.state``. Nothing of harness.cluster.fit, ledger
or preempt is used. The last column of ``own.params`` says what ``blocked`` may expect of the policy.
"""

import numpy as np
from numba import njit

from harness.cluster.state import (
    CLAIMING,
    GRACE_S,
    GUARANTEED,
    MAX_EVICTABLE,
    MIN_RUNTIME_S,
    NOW,
    RUNNING,
)

NOTHING, NO_VICTIMS, COUNTS_ONLY, GUARANTEES = 0, 1, 2, 3
"""What the policy can do for a job: unknown, place it, evict by counts, evict with the guarantee in view."""

FAULT, JOB, SERVER, TIME = 0, 1, 2, 3
NOTES = 4
"""Columns at the end of own.state."""

(SOUND, GPU_TWICE, GPU_SUM, FREE_MASK, CORES, CPU, MEMORY, EVICTABLE, BUCKET, GANG, GUARANTEE, COULD_START, COULD_EVICT, NOT_RUNNING,
 FREE_SHARE) = range(15)
FAULTS = {
    GPU_TWICE: "a GPU is held beyond its 1,000 thousandths", GPU_SUM: "the free thousandths do not add up",
    FREE_MASK: "a GPU that is held counts as free", CORES: "the cores of a NUMA node do not add up", CPU: "the cores do not add up",
    MEMORY: "the memory does not add up", EVICTABLE: "the aggregates of evictable jobs are stale",
    BUCKET: "the server is in the wrong bucket", GANG: "a gang is not whole", GUARANTEE: "a guarantee is broken",
    COULD_START: "it could have started", COULD_EVICT: "evicting allowed victims would have admitted it",
    NOT_RUNNING: "who neither runs nor claims holds something", FREE_SHARE: "a GPU's use is not what its sharers hold",
}


@njit(cache=True)
def note(view, own, fault, job, s):
    at = len(own.state) - NOTES
    if own.state[at + FAULT] == SOUND:
        own.state[at + FAULT], own.state[at + JOB], own.state[at + SERVER], own.state[at + TIME] = fault, job, s, view.clock[NOW]


@njit(cache=True)
def count_server(view, own, s):
    """Recounts server ``s``. Victims in grace and claims may withhold more than the instances show, but never less."""
    k, c_of, instances = view.servers.shape_id[s], view.jobs.klass, view.instances
    exact = view.clock[GRACE_S] == 0.0
    gpus, nodes = view.shapes.gpus[k], view.shapes.numa_nodes[k]
    cpu, memory, cores = 0, 0, np.zeros(nodes, np.int64)
    held = np.zeros(gpus, np.int64)
    i = view.servers.first[s]
    while i >= 0:
        job = instances.job[i]
        c = c_of[job]
        if view.jobs.status[job] != RUNNING and view.jobs.status[job] != CLAIMING:
            note(view, own, NOT_RUNNING, job, s)
        for g in range(gpus):
            if instances.gpus[i] >> g & 1:
                held[g] += view.classes.milli[c]
        if view.classes.cores[c]:
            for node in range(nodes):
                cores[node] += view.instance_cores[i, node]
        cpu += view.classes.cpu[c]
        memory += view.classes.memory[c]
        i = instances.next[i]
    free = 0
    for g in range(gpus):
        if held[g] > 1000:
            note(view, own, GPU_TWICE, -1, s)
        is_free = view.servers.free[s] >> g & 1
        if (is_free and held[g] > 0) or (exact and not is_free and held[g] == 0):
            note(view, own, FREE_MASK, -1, s)
        if view.shared[s, g] and (view.shared[s, g] < held[g] or (exact and view.shared[s, g] != held[g])):
            note(view, own, FREE_SHARE, -1, s)
        if is_free:
            free += 1000
        elif view.shared[s, g]:
            free += 1000 - view.shared[s, g]
    if free != view.servers.gpu[s]:
        note(view, own, GPU_SUM, -1, s)
    if not view.bucket[free // 1000, s >> 5] >> (s & 31) & 1:
        note(view, own, BUCKET, -1, s)
    all_cores = 0
    for node in range(nodes):
        left = view.shape_cores[k, node] - cores[node]
        all_cores += view.shape_cores[k, node]
        if view.cores[s, node] < 0 or view.cores[s, node] > left or (exact and view.cores[s, node] != left):
            note(view, own, CORES, -1, s)
    left = 1000 * all_cores - cpu
    if view.servers.cpu[s] < 0 or view.servers.cpu[s] > left or (exact and view.servers.cpu[s] != left):
        note(view, own, CPU, -1, s)
    left = view.shapes.memory[k] - memory
    if view.servers.memory[s] < 0 or view.servers.memory[s] > left or (exact and view.servers.memory[s] != left):
        note(view, own, MEMORY, -1, s)


@njit(cache=True)
def count_evictable(view, own, s):
    """Recounts the aggregates of the running preemptible jobs of server ``s``, by priority."""
    for rank in range(view.evictable.shape[1]):
        gpu, cpu, newest = 0, 0, -np.inf
        i = view.servers.first[s]
        while i >= 0:
            job = view.instances.job[i]
            c = view.jobs.klass[job]
            if view.jobs.status[job] == RUNNING and view.classes.preemptible[c] and view.classes.rank[c] == rank:
                gpu += view.classes.gpus[c] * view.classes.milli[c]
                cpu += view.classes.cpu[c]
                newest = max(newest, view.jobs.start[job])
            i = view.instances.next[i]
        kept = view.evictable
        if kept.gpu[s, rank] != gpu or kept.cpu[s, rank] != cpu or kept.newest[s, rank] != newest:
            note(view, own, EVICTABLE, -1, s)


@njit(cache=True)
def inside(view, k, d, gpus, cores):
    """Whether domain ``d`` holds these GPUs (mask) and NUMA nodes with cores (N,)."""
    for node in range(view.shapes.numa_nodes[k]):
        if cores[node] and not view.domain.numa[k, d] >> node & 1:
            return False
    return gpus & ~view.domain.gpus[k, d] == 0


@njit(cache=True)
def count_gang(view, own, job):
    """A running or claiming job holds all its instances, a running one inside domains that its guarantee accepts."""
    c = view.jobs.klass[job]
    none = np.zeros(view.instance_cores.shape[1], np.int64)
    for instance in range(view.jobs.first_instance[job], view.jobs.end_instance[job]):
        s = view.instances.server[instance]
        i = view.servers.first[s]
        while i >= 0 and i != instance:
            i = view.instances.next[i]
        if i < 0:
            note(view, own, GANG, job, s)
        if view.classes.affinity[c] != GUARANTEED or view.jobs.status[job] != RUNNING:
            continue
        k, kept = view.servers.shape_id[s], False
        cores = view.instance_cores[instance] if view.classes.cores[c] else none
        for d in range(view.shapes.domains[k]):
            accepted = view.domain.level[k, d] <= view.on_shape.accepts[c, k]
            kept = kept or (accepted and inside(view, k, d, view.instances.gpus[instance], cores))
        if not kept:
            note(view, own, GUARANTEE, job, s)


def admit(view, own, job):
    for s in range(len(view.servers)):
        count_server(view, own, s)
        count_evictable(view, own, s)
    for j in range(len(view.jobs)):
        if view.jobs.status[j] == RUNNING or view.jobs.status[j] == CLAIMING:
            count_gang(view, own, j)
    return True


@njit(cache=True)
def may_go(view, victim, job):
    """Whether ``victim`` may be evicted for ``job`` now."""
    v, c, now = view.jobs.klass[victim], view.jobs.klass[job], view.clock[NOW]
    return (view.jobs.status[victim] == RUNNING and view.classes.preemptible[v] and view.classes.priority[v] < view.classes.priority[c]
            and not now - view.jobs.start[victim] < view.clock[MIN_RUNTIME_S] and view.jobs.evicted_at[victim] != now)


@njit(cache=True)
def could_go(view, s, job, evict, guarantee):
    """Whether an instance of ``job`` would fit server ``s``, without all that may be evicted there if ``evict``."""
    c, k = view.jobs.klass[job], view.servers.shape_id[s]
    gpus, nodes = view.shapes.gpus[k], view.shapes.numa_nodes[k]
    free, cores = np.zeros(gpus, np.int64), np.zeros(nodes, np.int64)
    cpu, memory = view.servers.cpu[s], view.servers.memory[s]
    for g in range(gpus):
        if view.servers.free[s] >> g & 1:
            free[g] = 1000
        elif view.shared[s, g]:
            free[g] = 1000 - view.shared[s, g]
    for node in range(nodes):
        cores[node] = view.cores[s, node]
    i = view.servers.first[s] if evict else -1
    while i >= 0:
        victim = view.instances.job[i]
        if may_go(view, victim, job):
            v = view.jobs.klass[victim]
            for g in range(gpus):
                if view.instances.gpus[i] >> g & 1:
                    free[g] += view.classes.milli[v]
            for node in range(nodes if view.classes.cores[v] else 0):
                cores[node] += view.instance_cores[i, node]
            cpu += view.classes.cpu[v]
            memory += view.classes.memory[v]
        i = view.instances.next[i]
    if cpu < view.classes.cpu[c] or memory < view.classes.memory[c] or not view.on_shape.allowed[c, k]:
        return False
    milli, need = view.classes.milli[c], view.classes.cores[c]
    if milli < 1000:
        for g in range(gpus):
            if free[g] >= milli and cores[view.gpu_numa[k, g]] >= need:
                return True
        return False
    for d in range(view.shapes.domains[k]):
        level = view.domain.level[k, d]
        if guarantee and view.classes.affinity[c] == GUARANTEED:
            if level != view.on_shape.accepts[c, k]:
                continue
        elif d != view.shapes.domains[k] - 1:
            continue
        whole, there = 0, 0
        for g in range(gpus):
            whole += free[g] == 1000 and view.domain.gpus[k, d] >> g & 1
        for node in range(nodes):
            there += cores[node] if view.domain.numa[k, d] >> node & 1 else 0
        if whole >= view.classes.gpus[c] and there >= need:
            return True
    return False


@njit(cache=True)
def may_go_number(view, s, job):
    """How many jobs of server ``s`` may be evicted, at most (a gang counts once for each instance)."""
    n, i = 0, view.servers.first[s]
    while i >= 0:
        n += may_go(view, view.instances.job[i], job)
        i = view.instances.next[i]
    return n


def blocked(view, own, job):
    expected = own.params[len(own.params) - 1]
    if expected == NOTHING or view.classes.instances[view.jobs.klass[job]] > 1:
        return False
    for s in range(len(view.servers)):
        if could_go(view, s, job, False, True):
            note(view, own, COULD_START, job, s)
        if expected == NO_VICTIMS:
            continue
        guarantee = expected == GUARANTEES
        if may_go_number(view, s, job) > view.count[MAX_EVICTABLE] or could_go(view, s, job, False, guarantee):
            continue
        if could_go(view, s, job, True, guarantee):
            note(view, own, COULD_EVICT, job, s)
    return False
