"""What fits where, and which GPUs and cores it gets: predicates over what is free on one server.

Functions take the free resources of a server as plain values, so that they answer for the real server and for a
hypothetical one alike. Rules: specs/replay-semantics.md, "Resources of a server"; docs/decisions/0001-readings.md.
"""

from typing import NamedTuple

import numpy as np

from harness.cluster.state import GUARANTEED, PACKED, SCOPE_FROM, SCOPE_TO, SERVER, SPREAD, UNPINNED, Array
from harness.jit import allocating, copy, fill, inlined, kernel, lowest, lowest_bits, popcount, total
from harness.schema import MILLI

NO_FIT = -1
"""place: no server can take the instance as it is. Must follow from what the job's class asks for alone."""
HOLD = -2
"""place: a server could take it, but the policy does not want it started now."""
PASS_OVER = -3
"""place: no job of its class is to start, or to evict, in this pass."""

GPU_SHIFT = 32
"""Bits of what ``place`` returns that hold the server; above them is 0, or the number of a GPU plus 1."""


@inlined
def on_gpu(s, g):
    """place: server ``s``, and GPU ``g`` of it for a fractional instance."""
    return s | (g + 1) << GPU_SHIFT


@inlined
def server_of(choice):
    """The server of what ``place`` returned, which is neither NO_FIT nor HOLD."""
    return choice & (1 << GPU_SHIFT) - 1


@inlined
def gpu_of(choice):
    """The GPU that ``place`` named, -1: the engine is to choose."""
    return (choice >> GPU_SHIFT) - 1


class Room(NamedTuple):
    """What is free on one server, real or hypothetical."""

    amount: Array  # i8 (3,) columns FREE (mask of wholly free GPUs), CPU (thousandths), MEMORY (MiB)
    shared: Array  # i8 (G,) thousandths in use of a partly used GPU
    cores: Array  # i8 (N,) cores of each NUMA node not held exclusively


FREE, CPU, MEMORY = 0, 1, 2


@allocating
def empty_room(view):
    return Room(np.zeros(3, np.int64), np.zeros(view.shared.shape[1], np.int64), np.zeros(view.cores.shape[1], np.int64))


@inlined
def fill_room(room, view, s):
    """Sets ``room`` to what is free on server ``s``."""
    room.amount[FREE] = view.servers.free[s]
    room.amount[CPU] = view.servers.cpu[s]
    room.amount[MEMORY] = view.servers.memory[s]
    copy(room.shared, view.shared[s])
    copy(room.cores, view.cores[s])


@kernel
def fill_empty_server(room, view, k):
    """Sets ``room`` to an empty server of shape ``k``."""
    room.amount[FREE] = (1 << view.shapes.gpus[k]) - 1
    room.amount[MEMORY] = view.shapes.memory[k]
    fill(room.shared, 0)
    copy(room.cores, view.shape_cores[k])
    room.amount[CPU] = MILLI * total(room.cores)


@inlined
def cores_in(cores, numa_mask):
    """Cores not held exclusively in the NUMA nodes of ``numa_mask``."""
    n = 0
    while numa_mask:
        n += cores[lowest(numa_mask)]
        numa_mask &= numa_mask - 1
    return n


@inlined
def share_gpu(view, c, k, free, shared, cores):
    """GPU for a fractional instance: the tightest partly used one that fits, else the lowest free one, else -1.

    Its NUMA node must have all the exclusive cores asked for. Ties: lowest index.
    """
    milli, need = view.classes.milli[c], view.classes.cores[c]
    whole, tightest, least = -1, -1, MILLI
    for g in range(view.shapes.gpus[k]):
        if need > cores[view.gpu_numa[k, g]]:
            continue
        if free >> g & 1:
            if whole < 0:
                whole = g
        elif 0 < shared[g] <= MILLI - milli and MILLI - shared[g] < least:
            tightest, least = g, MILLI - shared[g]
    return tightest if tightest >= 0 else whole


@inlined
def free_share(view, s, g):
    """Free thousandths of GPU ``g`` of server ``s``."""
    if view.servers.free[s] >> g & 1:
        return MILLI
    return MILLI - view.shared[s, g] if view.shared[s, g] > 0 else 0


@inlined
def share_fits(view, s, g, c):
    """Whether GPU ``g`` of server ``s`` has the share that an instance of class ``c`` asks for, and its NUMA node the exclusive cores."""
    k, milli = view.servers.shape_id[s], view.classes.milli[c]
    return milli < MILLI and g < view.shapes.gpus[k] and free_share(view, s, g) >= milli and (
        view.cores[s, view.gpu_numa[k, g]] >= view.classes.cores[c])


@inlined
def domain_fits(view, c, k, d, free, cores):
    """Whether domain ``d`` has the whole GPUs and the exclusive cores that an instance asks for."""
    if popcount(free & view.domain.gpus[k, d]) < view.classes.gpus[c]:
        return False
    need = view.classes.cores[c]
    return need == 0 or cores_in(cores, view.domain.numa[k, d]) >= need


@inlined
def fits(view, c, k, free, shared, cores, cpu, memory, guarantees):
    """Whether an instance of class ``c`` fits a server of shape ``k`` with these resources free.

    Without ``guarantees`` only counts are tested, as the blind policies do.
    """
    if cpu < view.classes.cpu[c] or memory < view.classes.memory[c] or not view.on_shape.allowed[c, k]:
        return False
    if view.classes.milli[c] < MILLI:
        return share_gpu(view, c, k, free, shared, cores) >= 0
    need = view.classes.cores[c]
    if popcount(free) < view.classes.gpus[c] or (need and total(cores) < need):
        return False
    if not guarantees or view.classes.affinity[c] != GUARANTEED:
        return True
    return accepted_domain(view, c, k, free, cores) >= 0


@inlined
def accepted_domain(view, c, k, free, cores):
    """Lowest fitting domain of the accepted level of a guaranteed instance, -1 if there is none."""
    for d in range(view.shapes.domains[k]):
        if view.domain.level[k, d] == view.on_shape.accepts[c, k] and domain_fits(view, c, k, d, free, cores):
            return d
    return -1


@inlined
def fits_server(view, s, c):
    """Whether an instance of class ``c`` can be placed on server ``s`` now, guarantee included."""
    return fits(view, c, view.servers.shape_id[s], view.servers.free[s], view.shared[s], view.cores[s],
                view.servers.cpu[s], view.servers.memory[s], True)


@inlined
def best_fit(view, job):
    """The server in scope with fewest free GPU thousandths that fits an instance of ``job``, or NO_FIT. Ties: lowest index."""
    return best_fit_among(view, job, view.speed[0, 0, :0])


@inlined
def best_fit_among(view, job, barred):
    """``best_fit`` without the servers whose entry in ``barred`` (S,) is not 0; an empty array bars none."""
    c = view.jobs.klass[job]
    need = view.classes.gpus[c] if view.classes.milli[c] == MILLI else 0
    low, high = view.count[SCOPE_FROM], view.count[SCOPE_TO]
    for b in range(need, view.bucket.shape[0]):
        if view.bucket_size[b] == 0:
            continue
        best, fewest = NO_FIT, np.int64(0)
        for w in range(low >> 5, (high + 31) >> 5):
            word = view.bucket[b, w]
            while word:
                s = (w << 5) + lowest(word)
                word &= word - 1
                if not low <= s < high or (best >= 0 and view.servers.gpu[s] >= fewest) or (len(barred) and barred[s] != 0.0):
                    continue
                if fits_server(view, s, c):
                    best, fewest = s, view.servers.gpu[s]
                    if fewest == b * MILLI:
                        return best
        if best >= 0:
            return best
    return NO_FIT


@inlined
def pinning_domain(view, c, k, free, cores, pinning, guarantees):
    """The domain inside which an instance with whole GPUs or exclusive cores is pinned, or -1.

    ``packed``: the smallest level with a fitting domain; among equals fewest free GPUs, then lowest index. Others: the server, or
    the lowest fitting domain of the accepted level under a guarantee.
    """
    guaranteed, need = guarantees and view.classes.affinity[c] == GUARANTEED, view.classes.gpus[c]
    if pinning != PACKED:
        return accepted_domain(view, c, k, free, cores) if guaranteed else view.shapes.domains[k] - 1
    best, fewest, level = -1, 0, SERVER
    for d in range(view.shapes.domains[k]):
        if best >= 0 and view.domain.level[k, d] > level:
            break
        if guaranteed and view.domain.level[k, d] > view.on_shape.accepts[c, k]:
            break
        if domain_fits(view, c, k, d, free, cores):
            n = popcount(free & view.domain.gpus[k, d])
            if best < 0 or n < fewest:
                best, fewest, level = d, n, view.domain.level[k, d]
                if n == need:
                    break
    return best


@inlined
def pin_gpus(view, k, d, n, free, pinning):
    """Mask of ``n`` whole GPUs inside domain ``d``."""
    inside = free & view.domain.gpus[k, d]
    if pinning != SPREAD and not (pinning == PACKED and view.domain.level[k, d] == SERVER and view.shapes.numa_nodes[k] > 1):
        return lowest_bits(inside, n)
    taken, left = 0, n
    while left:
        roomiest, most = 0, 0
        for node in range(view.shapes.numa_nodes[k]):
            there = popcount(inside & view.domain.gpus[k, node])
            if there > most:
                roomiest, most = node, there
        step = 1 if pinning == SPREAD else min(left, most)
        gpus = lowest_bits(inside & view.domain.gpus[k, roomiest], step)
        taken |= gpus
        inside ^= gpus
        left -= step
    return taken


@inlined
def pin_cores(view, k, d, need, gpus, cores, out):
    """Writes to ``out`` (N,) the exclusive cores of an instance with these ``gpus``: in proportion to them, then lowest first."""
    fill(out, 0)
    if need == 0:
        return
    n = popcount(gpus)
    left = need
    if n:
        for node in range(view.shapes.numa_nodes[k]):
            there = popcount(gpus & view.domain.gpus[k, node])
            if there:
                out[node] = min((need * there + n - 1) // n, cores[node], left)
                left -= out[node]
    for node in range(view.shapes.numa_nodes[k]):
        if left and view.domain.numa[k, d] >> node & 1:
            more = min(cores[node] - out[node], left)
            out[node] += more
            left -= more


@inlined
def pin_share(view, c, k, g, out):
    """GPU ``g`` (as a mask) for a fractional instance, and its exclusive cores in ``out`` (N,)."""
    fill(out, 0)
    out[view.gpu_numa[k, g]] = view.classes.cores[c]
    return 1 << g


@inlined
def pin(view, c, k, free, shared, cores, pinning, guarantees, out):
    """GPUs (mask) of an instance that fits, and its exclusive cores in ``out`` (N,)."""
    if view.classes.milli[c] < MILLI:
        return pin_share(view, c, k, share_gpu(view, c, k, free, shared, cores), out)
    if view.classes.gpus[c] == 0 and view.classes.cores[c] == 0:
        fill(out, 0)
        return 0
    d = pinning_domain(view, c, k, free, cores, pinning, guarantees)
    gpus = pin_gpus(view, k, d, view.classes.gpus[c], free, pinning)
    pin_cores(view, k, d, view.classes.cores[c], gpus, cores, out)
    return gpus


@inlined
def numa_mask(cores):
    """Mask of the NUMA nodes with at least one core in ``cores`` (N,)."""
    mask = 0
    for node in range(len(cores)):
        if cores[node] > 0:
            mask |= 1 << node
    return mask


@inlined
def level_of(view, k, gpus, numa):
    """Smallest level that holds these GPUs and NUMA nodes; UNPINNED when there are none."""
    if gpus == 0 and numa == 0:
        return UNPINNED
    home = view.gpu_numa[k, lowest(gpus)] if gpus else lowest(numa)  # its domain is the first that can hold them
    for d in range(home, view.shapes.domains[k]):
        if gpus & ~view.domain.gpus[k, d] == 0 and numa & ~view.domain.numa[k, d] == 0:
            return view.domain.level[k, d]
    return SERVER


@kernel
def take(room, view, c, gpus, cores):
    """Takes what an instance of class ``c`` was pinned to out of ``room``."""
    room.amount[CPU] -= view.classes.cpu[c]
    room.amount[MEMORY] -= view.classes.memory[c]
    room.amount[FREE] &= ~gpus
    if view.classes.milli[c] < MILLI:
        room.shared[lowest(gpus)] += view.classes.milli[c]
    for node in range(len(cores)):
        room.cores[node] -= cores[node]


@kernel
def give(room, view, c, gpus, cores):
    """Puts back into ``room`` what an instance of class ``c`` holds."""
    room.amount[CPU] += view.classes.cpu[c]
    room.amount[MEMORY] += view.classes.memory[c]
    if view.classes.milli[c] < MILLI:
        g = lowest(gpus)
        room.shared[g] -= view.classes.milli[c]
        if room.shared[g] == 0:
            room.amount[FREE] |= gpus
    else:
        room.amount[FREE] |= gpus
    if view.classes.cores[c]:
        for node in range(len(cores)):
            room.cores[node] += cores[node]
