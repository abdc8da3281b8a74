"""One job's turn: place it, or evict for it, whole or not at all; then keep, or break, the claim.

Everything is tried on the real state and undone exactly when it fails, so that the policy sees each step of a gang.
"""

from typing import NamedTuple

import numpy as np

from harness.cluster.fit import HOLD, PASS_OVER, best_fit, fits, fits_server, gpu_of, level_of, numa_mask, server_of, share_fits
from harness.cluster.ledger import (
    change_share,
    enter_evictable,
    instance_level,
    leave_evictable,
    occupy,
    pin_and_occupy,
    vacate,
)
from harness.cluster.lifecycle import charge_eviction, start, wait
from harness.cluster.log import (
    CAN_HIT,
    CLAIM,
    CPUS,
    DECISION,
    ELSEWHERE,
    FREED,
    GRACE,
    LEVEL_ASSIGNED,
    LEVEL_VICTIMS,
    LOST,
    NEEDED,
    PREEMPTOR,
    RAN,
    SCANNED,
    SERVER_ID,
    TIME,
    TRIED,
    UNTIL,
    VICTIM_FROM,
    VICTIMS,
    WALL,
    add_attempt,
    add_held,
    add_row,
    add_seat,
    add_victim,
    has_room,
)
from harness.cluster.preempt import FIRST_VICTIM, SERVER_FOUND, SERVERS_CAPPED, SERVERS_SCANNED, SETS_TRIED, evictable, rival
from harness.cluster.queue import GRACE_END, HELD, VERSION, schedule
from harness.cluster.state import (
    ANYWHERE,
    CLAIMING,
    DECISIONS,
    EVICTING,
    GRACE_S,
    GUARANTEED,
    INSTANCE,
    NOW,
    RACK,
    RETRY_S,
    RUNNING,
    SCOPE_FROM,
    SCOPE_TO,
    UNBOUND,
    WAITING,
    Array,
    Table,
    View,
    table,
)
from harness.jit import copy, fill, inlined, kernel, lowest, total, wall_ns
from harness.schema import MILLI

CLAIM_STATE = table(
    row="i8",  # first row of the decision in the log
    victim="i8",  # first victim of the preemptor, -1: none
    next_victim="i8",
    hold="i8",  # first hold of the decision, -1: none
    claimed_gpu="i8",  # thousandths claimed beyond what victims hold
    claimed_cpu="i8",
    held="i8",  # row of the claim in Log.held
    evicted="i8",  # row n: n-th victim of the decision that is being made
)

HOLD_STATE = table(
    next="i8",
    server="i8",
    cpu="i8",  # thousandths
    memory="i8",  # MiB
)


class Pending(NamedTuple):
    """Decisions whose grace runs, by preemptor, and scratch for the one that is being made."""

    claim: Table  # CLAIM_STATE (J,)
    hold: Table  # HOLD_STATE (H,)
    hold_gpu: Array  # i8 (H, G) thousandths
    hold_cores: Array  # i8 (H, N)
    free_hold: Array  # i8 (2,) head of the list of returned holds, -1: none; and number of holds ever used
    scopes: Array  # i8 (1 + domains, 3) server ranges that a job may use, and their free GPU thousandths
    where: Array  # i8 (S,) scratch: servers of a decision
    gpu: Array  # i8 (2, G) scratch: thousandths that victims and claim hold on a server
    cores: Array  # i8 (2, N) likewise
    found: Array  # i8 (FIRST_VICTIM + J,) what the policy's victim search found
    cost: Array  # i8 (4,) columns COST_TRIED .. of the decision that is being made
    timespec: Array  # i8 (2,) for the wall clock
    fault: Array  # i8 (5,) columns FAULT ..; then how often a server had too many evictable jobs to consider


COST_TRIED, COST_SCANNED, WALL_NS, RESUMED = 0, 1, 2, 3
"""Columns of Pending.cost. RESUMED: the log was full at the end of the last attempt, whose cost stands for the same attempt made again."""

FAULT, FAULT_JOB, FAULT_SERVER, FAULT_VICTIM, CAPPED = 0, 1, 2, 3, 4
SOUND, BAD_SERVER, DOES_NOT_FIT, NOT_EVICTABLE, EVICTED_TWICE, NOT_ENOUGH, BAD_COUNT = 0, 1, 2, 3, 4, 5, 6
FAULTS = {
    BAD_SERVER: "proposes a server that does not exist or is out of scope",
    DOES_NOT_FIT: "places it where it does not fit",
    NOT_EVICTABLE: "evicts a job that may not be evicted",
    EVICTED_TWICE: "names a victim twice, or one that is not on the server",
    NOT_ENOUGH: "evicts too little: the job still does not fit",
    BAD_COUNT: "names no victims, or more than there are jobs",
}

STARTED, CLAIMED, FAILED, HELD_BACK, FAULTY, NO_ROOM, PASSED_OVER = 1, 2, 3, 4, 5, 6, 7
"""What came of a job's turn. NO_ROOM: nothing yet, since the log is full."""


def new_pending(view: View) -> Pending:
    jobs, instances = len(view.jobs), len(view.instances)
    claim, hold = np.zeros(jobs, CLAIM_STATE).view(np.recarray), np.zeros(instances, HOLD_STATE).view(np.recarray)
    gpus, nodes, servers = view.shared.shape[1], view.cores.shape[1], len(view.servers)
    return Pending(
        claim, hold, np.zeros((instances, gpus), np.int64), np.zeros((instances, nodes), np.int64), np.array([-1, 0]),
        np.zeros((2 + view.servers.rack[-1], 3), np.int64), np.zeros(servers, np.int64), np.zeros((2, gpus), np.int64),
        np.zeros((2, nodes), np.int64), np.zeros(jobs + FIRST_VICTIM, np.int64), np.zeros(4, np.int64), np.zeros(2, np.int64),
        np.zeros(5, np.int64),
    )


@inlined
def try_job(state, view, own, queue, pending, log, job, place, victims, outranks, changed, defined):
    """Starts ``job``, or makes it claim what victims free, or leaves all as it was; returns what came of it."""
    c = state.jobs.klass[job]
    places, preempts, has_rivals, notes = defined[2], defined[3], defined[6], defined[7]
    has_prey = preempts and (state.classes.rank[c] > 0 or has_rivals or state.count[UNBOUND] == 1)
    may_evict = has_prey and state.clock[NOW] >= state.jobs.retry_at[job]
    if not pending.cost[RESUMED]:
        fill(pending.cost, 0)
    n_domains = 0 if state.classes.network[c] == ANYWHERE else network_domains(state, pending, state.classes.network[c])
    held_back, refrains = False, False
    for turn in range(2):
        first, last = (1, n_domains) if turn == 0 else (0, 0 if n_domains == 0 or not state.classes.required[c] else -1)
        if preempts:
            state.count[EVICTING] = 0
        for scope in range(first, last + 1):
            enter_scope(state, pending, scope)
            outcome = place_gang(state, view, own, pending, job, place, places)
            if outcome == STARTED:
                start(state, queue, job)
                if notes:
                    changed(view, own, job)
            if outcome == STARTED or outcome == FAULTY or outcome == PASSED_OVER:
                return outcome
            held_back = held_back or outcome == HELD_BACK
        for scope in range(first, last + 1 if may_evict and not held_back else first):
            state.count[EVICTING] = 1
            enter_scope(state, pending, scope)
            outcome = evict_for_gang(state, view, own, queue, pending, log, job, place, victims, outranks, changed, has_rivals, notes)
            if outcome == HELD_BACK:
                refrains = True
            elif outcome != FAILED:
                pending.cost[RESUMED] = outcome == NO_ROOM
                return outcome
    return HELD_BACK if held_back or refrains or (has_prey and not may_evict) else FAILED


@inlined
def enter_scope(state, pending, scope):
    """Restricts placement and search to a network domain; scope 0 is the whole cluster."""
    state.count[SCOPE_FROM] = pending.scopes[scope, 0] if scope else 0
    state.count[SCOPE_TO] = pending.scopes[scope, 1] if scope else len(state.servers)


@kernel
def network_domains(state, pending, network):
    """Lists the racks or spines as scopes 1, 2, ...: fewest free GPU thousandths first, ties by index. Returns their number."""
    servers, scopes = state.servers, pending.scopes
    n = 0
    for s in range(len(servers)):
        d = 1 + (servers.rack[s] if network == RACK else servers.spine[s])
        if d > n:
            n = d
            scopes[d, 0], scopes[d, 2] = s, 0
        scopes[d, 1] = s + 1
        scopes[d, 2] += servers.gpu[s]
    for d in range(2, n + 1):
        low, high, free = scopes[d, 0], scopes[d, 1], scopes[d, 2]
        e = d
        while e > 1 and scopes[e - 1, 2] > free:
            copy(scopes[e], scopes[e - 1])
            e -= 1
        scopes[e, 0], scopes[e, 1], scopes[e, 2] = low, high, free
    return n


@inlined
def place_gang(state, view, own, pending, job, place, places):
    """Places all instances in turn, or none; by best fit unless the policy ``places`` itself."""
    jobs = state.jobs
    first, end = jobs.first_instance[job], jobs.end_instance[job]
    for i in range(first, end):
        state.count[INSTANCE] = i - first
        choice = place(view, own, job) if places else best_fit(state, job)
        if choice >= 0 and (not places or sound_placement(state, pending, job, choice)):
            pin_and_occupy(state, i, server_of(choice), gpu_of(choice), True, pending.cores[0])
            continue
        for placed in range(first, i):
            vacate(state, placed)
        if choice >= 0:
            return FAULTY
        return HELD_BACK if choice == HOLD else PASSED_OVER if choice == PASS_OVER else FAILED
    return STARTED


@inlined
def sound_placement(state, pending, job, choice):
    """Whether a proposed placement may be carried out; notes the fault if not."""
    s, g, c = server_of(choice), gpu_of(choice), state.jobs.klass[job]
    if not state.count[SCOPE_FROM] <= s < state.count[SCOPE_TO]:
        return note(pending, BAD_SERVER, job, s, -1)
    if not fits_server(state, s, c) or (g >= 0 and not share_fits(state, s, g, c)):
        return note(pending, DOES_NOT_FIT, job, s, -1)
    return True


@kernel
def note(pending, fault, job, s, victim):
    pending.fault[FAULT], pending.fault[FAULT_JOB], pending.fault[FAULT_SERVER] = fault, job, s
    pending.fault[FAULT_VICTIM] = victim
    return False


@kernel
def evict_for_gang(state, view, own, queue, pending, log, job, place, victims, outranks, changed, has_rivals, notes):
    """Places all instances in turn, evicting where nothing fits; commits the whole decision, or undoes it."""
    jobs, servers = state.jobs, state.servers
    c = jobs.klass[job]
    first, end = jobs.first_instance[job], jobs.end_instance[job]
    evicted = 0
    for i in range(first, end):
        state.count[INSTANCE] = i - first
        choice = place(view, own, job)
        if choice >= 0:
            if not sound_placement(state, pending, job, choice):
                return FAULTY
            pin_and_occupy(state, i, server_of(choice), gpu_of(choice), True, pending.cores[0])
            continue
        before = wall_ns(pending.timespec)
        for column in range(FIRST_VICTIM):
            pending.found[column] = 0
        n = victims(view, own, job, pending.found)
        if not pending.cost[RESUMED]:
            pending.cost[WALL_NS] += wall_ns(pending.timespec) - before
            pending.cost[COST_TRIED] += pending.found[SETS_TRIED]
            pending.cost[COST_SCANNED] += pending.found[SERVERS_SCANNED]
            pending.fault[CAPPED] += pending.found[SERVERS_CAPPED]
        if n <= 0:
            undo(state, pending, first, i, evicted)
            return HELD_BACK if n == HOLD else FAILED
        s = pending.found[SERVER_FOUND]
        if not take_out_victims(state, view, own, pending, job, s, n, evicted, outranks, has_rivals):
            return FAULTY
        evicted += n
        k = servers.shape_id[s]
        guarantees = fits_server(state, s, c)
        if not guarantees and not fits(state, c, k, servers.free[s], state.shared[s], state.cores[s],
                                       servers.cpu[s], servers.memory[s], False):
            note(pending, NOT_ENOUGH, job, s, -1)
            return FAULTY
        pin_and_occupy(state, i, s, -1, guarantees, pending.cores[0])
    seats = 0
    for v in range(evicted):
        seats += state.classes.instances[jobs.klass[pending.claim.evicted[v]]]
    if not has_room(log, end - first, evicted * (end - first), evicted, seats):
        undo(state, pending, first, end, evicted)
        return NO_ROOM
    sort(pending.claim.evicted, evicted)
    write_rows(state, pending, log, job, evicted)
    commit(state, view, own, queue, pending, log, job, evicted, changed, notes)
    return CLAIMED


@kernel
def undo(state, pending, first, end, evicted):
    """Takes the placed instances off again and puts the victims back."""
    for i in range(first, end):
        vacate(state, i)
    for v in range(evicted):
        put_back(state, pending.claim.evicted[v])


@kernel
def take_out_victims(state, view, own, pending, job, s, n, evicted, outranks, has_rivals):
    """Takes the proposed victims off their servers, for now; notes a fault if one of them may not be evicted."""
    jobs = state.jobs
    if not state.count[SCOPE_FROM] <= s < state.count[SCOPE_TO]:
        return note(pending, BAD_SERVER, job, s, -1)
    if n > len(pending.found) - FIRST_VICTIM:
        return note(pending, BAD_COUNT, job, s, -1)
    for v in range(n):
        victim = pending.found[FIRST_VICTIM + v]
        if not 0 <= victim < len(jobs) or not (evictable(state, victim, jobs.klass[job]) or (
                has_rivals and rival(state, victim, jobs.klass[job]) and outranks(view, own, job, victim))):
            twice = 0 <= victim < len(jobs) and jobs.status[victim] == WAITING
            return note(pending, EVICTED_TWICE if twice else NOT_EVICTABLE, job, s, victim)
        here = state.count[UNBOUND] == 1
        for i in range(jobs.first_instance[victim], jobs.end_instance[victim]):
            here = here or state.instances.server[i] == s
        if not here:
            return note(pending, EVICTED_TWICE, job, s, victim)
        jobs.status[victim] = WAITING
        for i in range(jobs.first_instance[victim], jobs.end_instance[victim]):
            vacate(state, i)
        leave_evictable(state, victim)
        pending.claim.evicted[evicted + v] = victim
    return True


@kernel
def put_back(state, victim):
    """Undoes the removal of a victim."""
    jobs, instances = state.jobs, state.instances
    for i in range(jobs.first_instance[victim], jobs.end_instance[victim]):
        occupy(state, i, instances.server[i], instances.gpus[i], state.instance_cores[i])
    jobs.status[victim] = RUNNING
    enter_evictable(state, victim)


@kernel
def commit(state, view, own, queue, pending, log, job, evicted, changed, notes):
    """Makes the decision final: victims stop, and the preemptor claims, or starts when there is no grace."""
    jobs, now, grace = state.jobs, state.clock[NOW], state.clock[GRACE_S]
    state.count[DECISIONS] += 1
    pending.claim.victim[job] = -1
    for v in range(evicted - 1, -1, -1):
        victim = pending.claim.evicted[v]
        pending.claim.next_victim[victim] = pending.claim.victim[job]
        pending.claim.victim[job] = victim
    r = pending.claim.row[job]
    c = jobs.klass[job]
    for v in range(evicted):
        victim = pending.claim.evicted[v]
        d = jobs.klass[victim]
        add_attempt(log, victim, jobs.start[victim], now)
        for i in range(jobs.first_instance[victim], jobs.end_instance[victim]):
            add_seat(log, state.instances.server[i], state.instances.gpus[i])
        lost = charge_eviction(state, queue, victim)
        if notes:
            changed(view, own, victim)
        n = state.classes.instances[d]
        log.numbers[r, LOST] += lost * (n * state.classes.gpus[d] * state.classes.milli[d]) / MILLI
        if grace > 0:
            add_held(log, victim, GRACE, now, now + grace, n * state.classes.gpus[d] * state.classes.milli[d],
                     n * state.classes.cpu[d])
    pending.claim.hold[job] = -1
    jobs.status[job] = CLAIMING
    if grace > 0:
        hold_for_victims(state, pending, job, True)
        pending.claim.held[job] = log.size[3]
        add_held(log, job, CLAIM, now, now + grace, pending.claim.claimed_gpu[job], pending.claim.claimed_cpu[job])
        schedule(queue, jobs, now + grace, GRACE_END, job)
    else:
        mature(state, view, own, queue, pending, log, job, c, changed, notes)


@kernel
def mature(state, view, own, queue, pending, log, job, c, changed, notes):
    """The grace of a decision is over: victims let go and are eligible again, and the claim becomes a start if its guarantee holds."""
    jobs, instances, now = state.jobs, state.instances, state.clock[NOW]
    release_holds(state, pending, job)
    victim = pending.claim.victim[job]
    while victim >= 0:
        if jobs.status[victim] == WAITING:
            rejoin(queue, victim)
        victim = pending.claim.next_victim[victim]
    queue.mark[VERSION] += 1
    if jobs.status[job] != CLAIMING:
        return
    first, end = jobs.first_instance[job], jobs.end_instance[job]
    kept = True
    if state.classes.affinity[c] == GUARANTEED:
        for i in range(first, end):
            kept = kept and instance_level(state, i) <= state.on_shape.accepts[c, state.servers.shape_id[instances.server[i]]]
    if kept:
        start(state, queue, job)
        if notes:
            changed(view, own, job)
        r = pending.claim.row[job]
        while r < log.size[0] and log.rows[r, PREEMPTOR] == job and log.rows[r, DECISION] == log.rows[pending.claim.row[job], DECISION]:
            log.rows[r, RAN] = 1
            r += 1
    else:
        for i in range(first, end):
            vacate(state, i)
        jobs.retry_at[job] = now + state.clock[RETRY_S]
        wait(state, queue, job)
        rejoin(queue, job)


@kernel
def drop_claim(state, queue, pending, log, job):
    """A claimant ends before its grace is over: victims hold on to all they have until then."""
    jobs = state.jobs
    log.held[pending.claim.held[job], UNTIL] = state.clock[NOW]
    release_holds(state, pending, job)
    for i in range(jobs.first_instance[job], jobs.end_instance[job]):
        vacate(state, i)
    hold_for_victims(state, pending, job, False)
    queue.mark[VERSION] += 1


@kernel
def rejoin(queue, job):
    """The job joins the queue with the next pass."""
    queue.node.held[queue.mark[HELD]] = job
    queue.mark[HELD] += 1


@kernel
def holdings(state, job, s, gpu, cores):
    """Adds what ``job`` holds, or held last, on server ``s`` to ``gpu`` (G,) thousandths and ``cores`` (N,).

    Returns core thousandths, MiB, a mask of GPUs, one of NUMA nodes with exclusive cores, and the number of its instances there.
    """
    jobs, instances, classes = state.jobs, state.instances, state.classes
    c = jobs.klass[job]
    cpu, memory, gpus, numa, here = 0, 0, 0, 0, 0
    for i in range(jobs.first_instance[job], jobs.end_instance[job]):
        if instances.server[i] != s:
            continue
        here += 1
        cpu += classes.cpu[c]
        memory += classes.memory[c]
        mask = instances.gpus[i]
        gpus |= mask
        while mask:
            gpu[lowest(mask)] += classes.milli[c]
            mask &= mask - 1
        if classes.cores[c]:
            numa |= numa_mask(state.instance_cores[i])
            for node in range(len(cores)):
                cores[node] += state.instance_cores[i, node]
    return cpu, memory, gpus, numa, here


@kernel
def servers_of(state, pending, job, n):
    """Adds the servers of ``job`` to the ``n`` sorted ones in ``pending.where``; returns their number."""
    jobs, where = state.jobs, pending.where
    for i in range(jobs.first_instance[job], jobs.end_instance[job]):
        s = state.instances.server[i]
        at = n
        while at > 0 and where[at - 1] > s:
            at -= 1
        if at > 0 and where[at - 1] == s:
            continue
        for e in range(n, at, -1):
            where[e] = where[e - 1]
        where[at] = s
        n += 1
    return n


@kernel
def apart(state, pending, job, n):
    """Whether ``job`` holds, or held last, nothing on the first ``n`` servers of ``pending.where``."""
    for i in range(state.jobs.first_instance[job], state.jobs.end_instance[job]):
        for w in range(n):
            if state.instances.server[i] == pending.where[w]:
                return False
    return True


@kernel
def sort(values, n):
    """Sorts the first ``n`` values ascending."""
    for i in range(1, n):
        value = values[i]
        j = i
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value


@kernel
def hold_for_victims(state, pending, job, claiming):
    """Withholds, until grace is over, what the victims hold beyond what the preemptor claims of it.

    Per pool the larger of victims' part and claim is withheld: a claim takes the victims' part first, free resources last.
    """
    gpu, claim_gpu, cores, claim_cores = pending.gpu[0], pending.gpu[1], pending.cores[0], pending.cores[1]
    n = 0
    victim = pending.claim.victim[job]
    while victim >= 0:
        n = servers_of(state, pending, victim, n)
        victim = pending.claim.next_victim[victim]
    if claiming:
        n = servers_of(state, pending, job, n)
    pending.claim.claimed_gpu[job], pending.claim.claimed_cpu[job] = 0, 0
    for w in range(n):
        s = pending.where[w]
        fill(gpu, 0)
        fill(cores, 0)
        fill(claim_gpu, 0)
        fill(claim_cores, 0)
        cpu, memory = 0, 0
        victim = pending.claim.victim[job]
        while victim >= 0:
            more_cpu, more_memory, _, _, _ = holdings(state, victim, s, gpu, cores)
            cpu += more_cpu
            memory += more_memory
            victim = pending.claim.next_victim[victim]
        claim_cpu, claim_memory = 0, 0
        if claiming:
            claim_cpu, claim_memory, _, _, _ = holdings(state, job, s, claim_gpu, claim_cores)
        pending.claim.claimed_cpu[job] += max(claim_cpu - cpu, 0)
        h = pending.free_hold[0]
        if h >= 0:
            pending.free_hold[0] = pending.hold.next[h]
        else:
            h = pending.free_hold[1]
            pending.free_hold[1] += 1
        pending.hold.next[h] = pending.claim.hold[job]
        pending.claim.hold[job] = h
        pending.hold.server[h] = s
        for g in range(len(gpu)):
            pending.hold_gpu[h, g] = max(gpu[g] - claim_gpu[g], 0)
            pending.claim.claimed_gpu[job] += max(claim_gpu[g] - gpu[g], 0)
        for node in range(len(cores)):
            pending.hold_cores[h, node] = max(cores[node] - claim_cores[node], 0)
        pending.hold.cpu[h], pending.hold.memory[h] = max(cpu - claim_cpu, 0), max(memory - claim_memory, 0)
        apply_hold(state, pending, h, 1)


@kernel
def apply_hold(state, pending, h, sign):
    servers, s = state.servers, pending.hold.server[h]
    state.version[s] += 1
    for g in range(pending.hold_gpu.shape[1]):
        if pending.hold_gpu[h, g]:
            change_share(state, s, g, sign * pending.hold_gpu[h, g])
    for node in range(pending.hold_cores.shape[1]):
        state.cores[s, node] -= sign * pending.hold_cores[h, node]
    servers.cpu[s] -= sign * pending.hold.cpu[h]
    servers.memory[s] -= sign * pending.hold.memory[h]


@kernel
def release_holds(state, pending, job):
    h = pending.claim.hold[job]
    while h >= 0:
        apply_hold(state, pending, h, -1)
        after = pending.hold.next[h]
        pending.hold.next[h] = pending.free_hold[0]
        pending.free_hold[0] = h
        h = after
    pending.claim.hold[job] = -1


@kernel
def write_rows(state, pending, log, job, evicted):
    """One row for each server on which victims free claimed resources; of an unbound policy also one for the lowest server, where the
    victims that hold nothing on any of the preemptor's servers are named too."""
    jobs, instances, servers, classes = state.jobs, state.instances, state.servers, state.classes
    c = jobs.klass[job]
    first_row = log.size[0]
    pending.claim.row[job] = first_row
    gpu, cores = pending.gpu[0], pending.cores[0]
    freed_in_rows, freed = 0, 0
    for v in range(evicted):
        d = jobs.klass[pending.claim.evicted[v]]
        freed += classes.instances[d] * classes.gpus[d] * classes.milli[d]
    n_servers = servers_of(state, pending, job, 0)
    for w in range(n_servers):
        s = pending.where[w]
        names_all = state.count[UNBOUND] == 1 and w == 0
        cpu, gpus, numa, here = 0, 0, 0, 0
        fill(gpu, 0)
        victims_from = log.size[1]
        for v in range(evicted):
            victim = pending.claim.evicted[v]
            more_cpu, _, more_gpus, more_numa, there = holdings(state, victim, s, gpu, cores)
            if there == 0 and not (names_all and apart(state, pending, victim, n_servers)):
                continue
            cpu += more_cpu
            gpus |= more_gpus
            numa |= more_numa
            add_victim(log, victim)
            here += 1
        if here == 0 and not names_all:
            continue
        freed_here = total(gpu)
        freed_in_rows += freed_here
        claim_level = -1
        n = 0
        for i in range(jobs.first_instance[job], jobs.end_instance[job]):
            if instances.server[i] == s:
                n += 1
                claim_level = max(claim_level, instance_level(state, i))
        k = servers.shape_id[s]
        r = add_row(log)
        row = log.rows[r]
        row[DECISION], row[PREEMPTOR], row[SERVER_ID] = state.count[DECISIONS], job, s
        row[VICTIM_FROM], row[VICTIMS] = victims_from, here
        row[NEEDED], row[FREED], row[CPUS] = n * classes.gpus[c] * classes.milli[c], freed_here, cpu
        row[LEVEL_VICTIMS], row[LEVEL_ASSIGNED] = level_of(state, k, gpus, numa), claim_level
        row[CAN_HIT], row[TRIED], row[SCANNED] = state.on_shape.can_hit[c, k], pending.cost[COST_TRIED], pending.cost[COST_SCANNED]
        log.numbers[r, TIME], log.numbers[r, WALL] = state.clock[NOW], pending.cost[WALL_NS] / 1000
    log.rows[first_row, ELSEWHERE] = freed - freed_in_rows
