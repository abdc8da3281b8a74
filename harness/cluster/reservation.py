"""When and where a blocked job could run, if the running ones ended as their users said: the reservation of EASY backfill."""

from typing import NamedTuple

import numpy as np

from harness.cluster.fit import CPU, FREE, MEMORY, Room, empty_room, fill_room, fits, give, pin, take
from harness.cluster.state import ANYWHERE, NOW, PINNING, RACK, RUNNING, Array
from harness.jit import allocating, copy, kernel, popcount
from harness.schema import MILLI


class Rooms(NamedTuple):
    """What is free on every server of a hypothetical cluster, and how many instances of the job each could take."""

    amount: Array  # i8 (S, 3)
    shared: Array  # i8 (S, G)
    cores: Array  # i8 (S, N)
    takes: Array  # i8 (S,)


@kernel
def expected_end(view, job):
    """When a running job ends by its estimate, in seconds; not before now."""
    jobs = view.jobs
    end = jobs.start[job] + jobs.restart[job] + (jobs.estimate[job] - jobs.progress[job]) / jobs.speed[job]
    return min(max(view.clock[NOW], end), jobs.end[job])


@kernel
def expected_run(view, job):
    """Seconds that a waiting job runs by its estimate, at speed 1."""
    jobs = view.jobs
    restart = jobs.restart_cost[job] if jobs.evictions[job] else 0.0
    return restart + (jobs.estimate[job] - jobs.progress[job])


@allocating
def reserve(view, job, reserved):
    """Shadow time of a blocked job: the first expected end of a running job after which it can be placed.

    Marks with 1 in ``reserved`` (S,) the servers where best fit then places it, all others with 0. inf if it never can.
    """
    n_servers = len(view.servers)
    rooms, trial, room = _rooms(view, n_servers), _rooms(view, n_servers), empty_room(view)
    cores = np.zeros(view.cores.shape[1], np.int64)
    jobs, ends, n = _running(view)
    order = np.argsort(ends[:n], kind="mergesort")
    return _reserve(view, job, rooms, trial, room, cores, jobs, ends, order, reserved)


@allocating
def _rooms(view, n):
    return Rooms(np.zeros((n, 3), np.int64), view.shared.copy(), view.cores.copy(), np.zeros(n, np.int64))


@allocating
def _running(view):
    """Running jobs by index, their expected ends, and their number."""
    n = 0
    for job in range(len(view.jobs)):
        n += view.jobs.status[job] == RUNNING
    jobs, ends = np.zeros(n, np.int64), np.zeros(n)
    n = 0
    for job in range(len(view.jobs)):
        if view.jobs.status[job] == RUNNING:
            jobs[n], ends[n] = job, expected_end(view, job)
            n += 1
    return jobs, ends, n


@kernel
def _reserve(view, job, rooms, trial, room, cores, jobs, ends, order, reserved):
    c = view.jobs.klass[job]
    capacity = 0
    for s in range(len(view.servers)):
        fill_room(room, view, s)
        copy(rooms.amount[s], room.amount)
        rooms.takes[s] = _takes(view, c, s, room, cores)
        capacity += rooms.takes[s]
    for n in range(len(order)):
        ended = jobs[order[n]]
        d = view.jobs.klass[ended]
        for i in range(view.jobs.first_instance[ended], view.jobs.end_instance[ended]):
            s = view.instances.server[i]
            give(Room(rooms.amount[s], rooms.shared[s], rooms.cores[s]), view, d, view.instances.gpus[i], view.instance_cores[i])
            _copy_room(room, rooms, s)
            capacity -= rooms.takes[s]
            rooms.takes[s] = _takes(view, c, s, room, cores)
            capacity += rooms.takes[s]
        if capacity >= view.classes.instances[c] and _place(view, c, rooms, trial, cores, reserved):
            return ends[order[n]]
    return np.inf


@kernel
def _copy_room(room, rooms, s):
    copy(room.amount, rooms.amount[s])
    copy(room.shared, rooms.shared[s])
    copy(room.cores, rooms.cores[s])


@kernel
def _fits(view, c, s, room):
    return fits(view, c, view.servers.shape_id[s], room.amount[FREE], room.shared, room.cores, room.amount[CPU], room.amount[MEMORY], True)


@kernel
def _pin_and_take(view, c, s, room, cores):
    gpus = pin(view, c, view.servers.shape_id[s], room.amount[FREE], room.shared, room.cores, view.count[PINNING], True, cores)
    take(room, view, c, gpus, cores)


@kernel
def _takes(view, c, s, room, cores):
    """Instances of class ``c`` that ``room`` holds, up to the size of the gang; uses the room up."""
    n = 0
    while n < view.classes.instances[c] and _fits(view, c, s, room):
        _pin_and_take(view, c, s, room, cores)
        n += 1
    return n


@kernel
def _place(view, c, rooms, trial, cores, reserved):
    """Places all instances in turn by best fit, in the first network domain that takes them; marks their servers."""
    network = view.classes.network[c]
    domain_of = view.servers.rack if network == RACK else view.servers.spine
    tried = -1.0, -1
    while network != ANYWHERE:
        domain, free = _next_domain(view, rooms, domain_of, tried)
        if domain < 0:
            break
        if _place_in(view, c, rooms, trial, cores, reserved, domain_of, domain):
            return True
        tried = free, domain
    if network != ANYWHERE and view.classes.required[c]:
        return False
    return _place_in(view, c, rooms, trial, cores, reserved, domain_of, -1)


@kernel
def _next_domain(view, rooms, domain_of, after):
    """The domain that follows ``after`` in the order (free GPU thousandths, index), and its free thousandths; -1: none."""
    best, fewest = -1, 0.0
    for domain in range(domain_of[len(domain_of) - 1] + 1):
        free = 0.0
        for s in range(len(domain_of)):
            if domain_of[s] == domain:
                free += _free_gpu(view, rooms, s)
        if (free > after[0] or (free == after[0] and domain > after[1])) and (best < 0 or free < fewest):
            best, fewest = domain, free
    return best, fewest


@kernel
def _free_gpu(view, rooms, s):
    """Free GPU thousandths of server ``s``."""
    free = MILLI * popcount(rooms.amount[s, FREE])
    for g in range(view.shapes.gpus[view.servers.shape_id[s]]):
        if rooms.shared[s, g]:
            free += MILLI - rooms.shared[s, g]
    return free


@kernel
def _place_in(view, c, rooms, trial, cores, reserved, domain_of, domain):
    for s in range(len(reserved)):
        reserved[s] = 0.0
        copy(trial.amount[s], rooms.amount[s])
        copy(trial.shared[s], rooms.shared[s])
        copy(trial.cores[s], rooms.cores[s])
    for _ in range(view.classes.instances[c]):
        best, fewest = -1, 0
        for s in range(len(reserved)):
            if rooms.takes[s] == 0 or (domain >= 0 and domain_of[s] != domain):
                continue
            free = _free_gpu(view, trial, s)
            if (best < 0 or free < fewest) and _fits(view, c, s, Room(trial.amount[s], trial.shared[s], trial.cores[s])):
                best, fewest = s, free
        if best < 0:
            return False
        _pin_and_take(view, c, best, Room(trial.amount[best], trial.shared[best], trial.cores[best]), cores)
        reserved[best] = 1.0
    return True
