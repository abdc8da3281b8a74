"""Changes to who holds what: each keeps the aggregates of a server true, and has an exact inverse.

Only the engine calls these, on the writable state.
"""

import numpy as np

from harness.cluster.fit import level_of, numa_mask, pin
from harness.cluster.state import PINNING, RUNNING, UNPINNED
from harness.jit import copy, inlined, kernel, lowest, popcount
from harness.schema import MILLI


@inlined
def change_gpu(state, s, delta):
    """Adds ``delta`` thousandths to the free GPUs of server ``s`` and moves it to its bucket."""
    servers = state.servers
    old = servers.gpu[s] // MILLI
    servers.gpu[s] += delta
    new = servers.gpu[s] // MILLI
    if old != new:
        bit = 1 << (s & 31)
        state.bucket[old, s >> 5] ^= bit
        state.bucket_size[old] -= 1
        state.bucket[new, s >> 5] |= bit
        state.bucket_size[new] += 1


@inlined
def change_share(state, s, g, delta):
    """Adds ``delta`` thousandths to the use of partly used GPU ``g``; at 0 the GPU is free."""
    state.shared[s, g] += delta
    if state.shared[s, g] == 0:
        state.servers.free[s] |= 1 << g
    else:
        state.servers.free[s] &= ~(1 << g)
    change_gpu(state, s, -delta)


@inlined
def occupy(state, i, s, gpus, cores):
    """Instance ``i`` takes these GPUs (mask) and exclusive cores (N,) of server ``s``."""
    servers, instances, classes = state.servers, state.instances, state.classes
    c = state.jobs.klass[instances.job[i]]
    instances.server[i] = s
    instances.gpus[i] = gpus
    if classes.cores[c]:
        copy(state.instance_cores[i], cores)
    hold(state, i, 1)
    head = servers.first[s]
    instances.prev[i] = -1
    instances.next[i] = head
    if head >= 0:
        instances.prev[head] = i
    servers.first[s] = i


@inlined
def vacate(state, i):
    """Instance ``i`` gives back all it holds; where it sat stays on record."""
    servers, instances = state.servers, state.instances
    hold(state, i, -1)
    before, after = instances.prev[i], instances.next[i]
    if before >= 0:
        instances.next[before] = after
    else:
        servers.first[instances.server[i]] = after
    if after >= 0:
        instances.prev[after] = before


@inlined
def hold(state, i, sign):
    """Takes (sign 1) or gives back (sign -1) the resources of instance ``i``."""
    servers, instances, classes = state.servers, state.instances, state.classes
    c, s = state.jobs.klass[instances.job[i]], instances.server[i]
    gpus = instances.gpus[i]
    state.version[s] += 1
    if classes.milli[c] < MILLI:
        change_share(state, s, lowest(gpus), sign * classes.milli[c])
    elif gpus:
        servers.free[s] ^= gpus
        change_gpu(state, s, -sign * MILLI * popcount(gpus))
    servers.cpu[s] -= sign * classes.cpu[c]
    servers.memory[s] -= sign * classes.memory[c]
    if classes.cores[c]:
        for node in range(state.instance_cores.shape[1]):
            state.cores[s, node] -= sign * state.instance_cores[i, node]


@inlined
def pin_and_occupy(state, i, s, guarantees, cores):
    """Pins instance ``i`` on server ``s``, where it fits, and takes the resources; ``cores`` (N,) is scratch."""
    servers = state.servers
    c = state.jobs.klass[state.instances.job[i]]
    gpus = pin(state, c, servers.shape_id[s], servers.free[s], state.shared[s], state.cores[s],
               state.count[PINNING], guarantees, cores)
    occupy(state, i, s, gpus, cores)


@inlined
def instance_level(state, i):
    """Level of what instance ``i`` holds, UNPINNED when it holds neither GPUs nor exclusive cores."""
    servers, instances = state.servers, state.instances
    c = state.jobs.klass[instances.job[i]]
    numa = numa_mask(state.instance_cores[i]) if state.classes.cores[c] else 0
    return level_of(state, servers.shape_id[instances.server[i]], instances.gpus[i], numa)


@inlined
def job_level(state, job):
    """Level of the worst instance of ``job``."""
    worst = UNPINNED
    for i in range(state.jobs.first_instance[job], state.jobs.end_instance[job]):
        worst = max(worst, instance_level(state, i))
    return worst


@kernel
def enter_evictable(state, job):
    """A preemptible job has begun to run: adds it to the aggregates of its servers."""
    classes = state.classes
    c = state.jobs.klass[job]
    rank = classes.rank[c]
    for i in range(state.jobs.first_instance[job], state.jobs.end_instance[job]):
        s = state.instances.server[i]
        state.version[s] += 1
        state.evictable.gpu[s, rank] += classes.gpus[c] * classes.milli[c]
        state.evictable.cpu[s, rank] += classes.cpu[c]
        state.evictable.newest[s, rank] = max(state.evictable.newest[s, rank], state.jobs.start[job])


@kernel
def leave_evictable(state, job):
    """A preemptible job, already off its servers, no longer runs: takes it out of their aggregates."""
    classes, jobs, instances = state.classes, state.jobs, state.instances
    c = jobs.klass[job]
    rank = classes.rank[c]
    for i in range(jobs.first_instance[job], jobs.end_instance[job]):
        s = instances.server[i]
        state.version[s] += 1
        state.evictable.gpu[s, rank] -= classes.gpus[c] * classes.milli[c]
        state.evictable.cpu[s, rank] -= classes.cpu[c]
        if jobs.start[job] == state.evictable.newest[s, rank]:
            newest = -np.inf
            other = state.servers.first[s]
            while other >= 0:
                d = jobs.klass[instances.job[other]]
                if classes.preemptible[d] and classes.rank[d] == rank and jobs.status[instances.job[other]] == RUNNING:
                    newest = max(newest, jobs.start[instances.job[other]])
                other = instances.next[other]
            state.evictable.newest[s, rank] = newest
