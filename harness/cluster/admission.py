"""Queues with quotas in cohorts, as Kueue admits [C]: who may borrow, in which order, and who is evicted for whom.

A queue is a tenant, its quota counts GPUs (thousandths), and queues of one cohort lend each other what they do not use. What runs, or
claims what victims hold, uses its queue's quota. specs/cluster-policies.md, Kueue-like admission.
"""

from typing import NamedTuple

import numpy as np

from harness.cluster.fit import FREE, HOLD, Room, fill_room, give, take
from harness.cluster.preempt import FIRST_VICTIM, SERVER_FOUND, SETS_TRIED, evictable
from harness.cluster.rollup import fill_up
from harness.cluster.state import SCOPE_FROM, SCOPE_TO, Array
from harness.jit import allocating, copy, inlined, kernel, popcount, total
from harness.schema import MILLI

PARAMS = {
    "quota_by": ("equal", "demand"), "nominal_share": 1.0, "queues_per_cohort": 0.0, "borrowing_limit": 1e9,
    "within_queue": ("never", "lower_priority", "lower_or_newer_equal"), "reclaim": ("never", "lower_priority", "any"),
    "fair_sharing": ("off", "on"),
}
QUOTA, NOMINAL_SHARE, QUEUES_PER_COHORT, BORROWING_LIMIT, WITHIN_QUEUE, RECLAIM, FAIR_SHARING = range(7)
NEVER, LOWER, OTHERS_TOO = 0, 1, 2

EQUAL, DEMAND, USED = 0, 1, 2
"""Columns of Own.table (queues, 3), GPU thousandths: an equal share of the cluster, one in proportion to the GPU time that the queue's jobs
ask for, and what the queue uses."""

STATE = 1
COUNTED_AT = 0
"""Column of Own.state: 1 + the sum of the servers' versions for which USED holds."""

LEVEL = 2.0**33
"""What one level of borrowing, or a thousandth of a dominant share, weighs against priorities."""


class Trial(NamedTuple):
    """The scope as it would be without some running jobs."""

    used: Array  # f8 (queues,) GPU thousandths
    amount: Array  # i8 (S, 3)
    shared: Array  # i8 (S, G)
    cores: Array  # i8 (S, N)
    takes: Array  # i8 (S,) instances of the job that a server takes
    room: Room  # scratch
    pinned: Array  # i8 (N,) scratch
    order: Array  # i8 (J,) candidates in the order in which they are evicted
    chosen: Array  # i8 (J,) victims so far
    counts: Array  # i8 (3,) candidates, victims, and instances that all servers take


def quotas(tenant: Array, gpu_s: Array, gpus_milli: float) -> Array:
    """EQUAL and DEMAND of every queue: f8 (queues, 2), from the tenant and the GPU time asked for of each job."""
    queues = int(tenant.max(initial=-1)) + 1
    asked = np.bincount(tenant, gpu_s, queues)
    shares = np.column_stack([np.full(queues, 1.0 / max(queues, 1)), asked / max(asked.sum(), 1e-300)])
    return shares * gpus_milli


def prepare(view, requests, cluster) -> Array:
    """The table of queues: f8 (queues, 3)."""
    jobs, classes = view.jobs, view.classes
    gpu_s = (classes.instances * classes.gpus * classes.milli)[jobs.klass] / MILLI * jobs.duration
    shares = quotas(jobs.tenant, gpu_s, float(MILLI * cluster.gpus))
    return np.column_stack([shares, np.zeros(len(shares))])


@inlined
def nominal(own, q):
    """Quota of queue ``q``, GPU thousandths."""
    return np.floor(own.params[NOMINAL_SHARE] * own.table[q, DEMAND if own.params[QUOTA] == 1.0 else EQUAL])


@inlined
def same_cohort(own, a, b):
    n = own.params[QUEUES_PER_COHORT]
    return n == 0.0 or np.floor(a / n) == np.floor(b / n)


@inlined
def asked(view, job):
    """GPU thousandths that all instances of ``job`` hold."""
    c = view.jobs.klass[job]
    return view.classes.instances[c] * view.classes.gpus[c] * view.classes.milli[c]


@inlined
def count_used(view, own):
    """Brings USED up to date."""
    versions = total(view.version) + 1.0
    if own.state[COUNTED_AT] == versions:
        return
    own.state[COUNTED_AT] = versions
    for q in range(len(own.table)):
        own.table[q, USED] = 0.0
    for s in range(len(view.servers)):
        i = view.servers.first[s]
        while i >= 0:
            job = view.instances.job[i]
            c = view.jobs.klass[job]
            own.table[view.jobs.tenant[job], USED] += view.classes.gpus[c] * view.classes.milli[c]
            i = view.instances.next[i]


@inlined
def within_quota(own, used, q, more):
    """Whether queue ``q`` may use ``more``: its own quota and what it may borrow, and no more than the cohort has left."""
    if used[q] + more > nominal(own, q) * (1.0 + own.params[BORROWING_LIMIT]):
        return False
    left = 0.0
    for other in range(len(used)):
        if same_cohort(own, q, other):
            left += nominal(own, other) - used[other]
    return more <= left


@inlined
def dominant_share(own, used, q, more):
    """What queue ``q`` would borrow with ``more``, in thousandths of its cohort's quota, rounded down."""
    lendable = 0.0
    for other in range(len(used)):
        if same_cohort(own, q, other):
            lendable += nominal(own, other)
    borrowed = max(0.0, used[q] + more - nominal(own, q))
    return np.floor(1000.0 * borrowed / max(lendable, 1.0))


@inlined
def queue_key(view, own, job):
    """Less borrowing first, or with fair sharing the smaller dominant share; then priority."""
    count_used(view, own)
    q, more, used = view.jobs.tenant[job], asked(view, job), own.table[:, USED]
    if own.params[FAIR_SHARING] == 1.0:
        level = dominant_share(own, used, q, more)
    else:
        level = 1.0 if used[q] + more > nominal(own, q) else 0.0
    return LEVEL * level - view.classes.priority[view.jobs.klass[job]]


@allocating
def search_admission(view, own, job, found):
    """One whole victim search: victims anywhere in scope, and in ``found`` a server for the first instance. HOLD when nothing helps."""
    count_used(view, own)
    q, more = view.jobs.tenant[job], asked(view, job)
    fair, under = own.params[FAIR_SHARING] == 1.0, own.table[q, USED] + more <= nominal(own, q)
    order = np.zeros(len(view.jobs), np.int64)
    n = candidates(view, own, job, order, fair or under)
    if n == 0:
        return HOLD
    servers = len(view.servers)
    trial = Trial(own.table[:, USED].copy(), np.zeros((servers, 3), np.int64), view.shared.copy(), view.cores.copy(),
                  np.zeros(servers, np.int64), Room(np.zeros(3, np.int64), np.zeros(view.shared.shape[1], np.int64),
                                                    np.zeros(view.cores.shape[1], np.int64)),
                  np.zeros(view.cores.shape[1], np.int64), order, np.zeros(n, np.int64), np.zeros(3, np.int64))
    start_trial(view, job, trial, n)
    if fair:
        done = evict_by_share(view, own, job, trial, found)
    else:
        done = under and evict_in_order(view, own, job, trial, False, found)
        if not done:
            for v in range(trial.counts[1]):
                put_in(view, trial, job, trial.chosen[v], True)
            trial.counts[1] = 0
            done = evict_in_order(view, own, job, trial, True, found)
    if not done:
        return HOLD
    fill_back(view, own, job, trial, found)
    for v in range(trial.counts[1]):
        found[FIRST_VICTIM + v] = trial.chosen[v]
    found[SERVER_FOUND] = fullest(view, trial)
    return trial.counts[1]


@kernel
def candidates(view, own, job, order, others):
    """Lists in ``order`` whom ``job`` may evict: other queues before its own, lowest priority, latest start, lowest index."""
    jobs, c, q = view.jobs, view.jobs.klass[job], view.jobs.tenant[job]
    n = 0
    for s in range(view.count[SCOPE_FROM], view.count[SCOPE_TO]):
        i = view.servers.first[s]
        while i >= 0:
            other = view.instances.job[i]
            first_here = view.instances.server[jobs.first_instance[other]] == s and jobs.first_instance[other] == i
            i = view.instances.next[i]
            if first_here and evictable(view, other, c) and may_take(view, own, job, q, other, others):
                at = n
                while at > 0 and evicted_before(view, q, other, order[at - 1]):
                    order[at] = order[at - 1]
                    at -= 1
                order[at] = other
                n += 1
    return n


@inlined
def may_take(view, own, job, q, other, others):
    """Whether the policy lets ``job`` of queue ``q`` evict ``other``."""
    jobs, p = view.jobs, view.jobs.tenant[other]
    mine, theirs = view.classes.priority[jobs.klass[job]], view.classes.priority[jobs.klass[other]]
    if p == q:
        newer = jobs.submit[other] > jobs.submit[job] or (jobs.submit[other] == jobs.submit[job] and other > job)
        return own.params[WITHIN_QUEUE] != NEVER and (
            theirs < mine or (own.params[WITHIN_QUEUE] == OTHERS_TOO and theirs == mine and newer))
    return (others and own.params[RECLAIM] != NEVER and same_cohort(own, p, q) and own.table[p, USED] > nominal(own, p)
            and (own.params[RECLAIM] == OTHERS_TOO or theirs < mine))


@inlined
def evicted_before(view, q, a, b):
    jobs = view.jobs
    if (jobs.tenant[a] == q) != (jobs.tenant[b] == q):
        return jobs.tenant[a] != q
    pa, pb = view.classes.priority[jobs.klass[a]], view.classes.priority[jobs.klass[b]]
    if pa != pb:
        return pa < pb
    if jobs.start[a] != jobs.start[b]:
        return jobs.start[a] > jobs.start[b]
    return a < b


@kernel
def start_trial(view, job, trial, n):
    """Fills the trial with what is free now."""
    trial.counts[0] = n
    for s in range(view.count[SCOPE_FROM], view.count[SCOPE_TO]):
        fill_room(trial.room, view, s)
        copy(trial.amount[s], trial.room.amount)
        recount(view, trial, job, s)


@inlined
def recount(view, trial, job, s):
    """Brings what server ``s`` takes up to date."""
    c = view.jobs.klass[job]
    trial.counts[2] -= trial.takes[s]
    copy(trial.room.amount, trial.amount[s])
    copy(trial.room.shared, trial.shared[s])
    copy(trial.room.cores, trial.cores[s])
    trial.takes[s] = fill_up(view, c, view.servers.shape_id[s], trial.room, trial.pinned, view.classes.instances[c])
    trial.counts[2] += trial.takes[s]


@kernel
def put_in(view, trial, job, other, back):
    """Takes ``other`` out of the trial, or puts it ``back``."""
    jobs, d = view.jobs, view.jobs.klass[other]
    trial.used[jobs.tenant[other]] += asked(view, other) if back else -asked(view, other)
    for i in range(jobs.first_instance[other], jobs.end_instance[other]):
        s = view.instances.server[i]
        room = Room(trial.amount[s], trial.shared[s], trial.cores[s])
        if back:
            take(room, view, d, view.instances.gpus[i], view.instance_cores[i])
        else:
            give(room, view, d, view.instances.gpus[i], view.instance_cores[i])
        if view.count[SCOPE_FROM] <= s < view.count[SCOPE_TO]:
            recount(view, trial, job, s)


@inlined
def admissible(view, own, job, trial, found):
    """Whether the job's quota and its instances fit the trial."""
    found[SETS_TRIED] += 1
    return (within_quota(own, trial.used, view.jobs.tenant[job], asked(view, job))
            and trial.counts[2] >= view.classes.instances[view.jobs.klass[job]])


@inlined
def evict(view, trial, job, other):
    put_in(view, trial, job, other, False)
    trial.chosen[trial.counts[1]] = other
    trial.counts[1] += 1


@kernel
def evict_in_order(view, own, job, trial, own_queue_only, found):
    """Takes candidates out until the job fits; other queues give only while they borrow. Returns whether it does."""
    q = view.jobs.tenant[job]
    for n in range(trial.counts[0]):
        other = trial.order[n]
        p = view.jobs.tenant[other]
        if p != q and (own_queue_only or trial.used[p] <= nominal(own, p)):
            continue
        evict(view, trial, job, other)
        if admissible(view, own, job, trial, found):
            return True
    return False


@kernel
def evict_by_share(view, own, job, trial, found):
    """Fair sharing: the queue with the largest dominant share gives first, as long as the preemptor's share with the job is at most its
    own after the eviction, and in a second round below its own before it. Returns whether the job fits."""
    q, more = view.jobs.tenant[job], asked(view, job)
    for final in (True, False):
        n = trial.counts[0]
        kept = 0
        while n > 0:
            at = 0
            for k in range(1, n):
                a, b = view.jobs.tenant[trial.order[k]], view.jobs.tenant[trial.order[at]]
                if a != b:
                    share_a, share_b = dominant_share(own, trial.used, a, 0.0), dominant_share(own, trial.used, b, 0.0)
                    if share_a > share_b or (share_a == share_b and a < b):
                        at = k
            other = trial.order[at]
            n -= 1
            for k in range(at, kept + n):
                trial.order[k] = trial.order[k + 1]
            p = view.jobs.tenant[other]
            gives = True
            if p != q:
                mine, theirs = dominant_share(own, trial.used, q, more), dominant_share(own, trial.used, p, 0.0)
                after = dominant_share(own, trial.used, p, -float(asked(view, other)))
                gives = trial.used[p] > nominal(own, p) and (mine <= after if final else mine < theirs)
            if gives:
                evict(view, trial, job, other)
                if admissible(view, own, job, trial, found):
                    return True
            else:
                trial.order[n + kept] = other
                kept += 1
        trial.counts[0] = kept
    return False


@kernel
def fill_back(view, own, job, trial, found):
    """Puts victims back, the last but one first, wherever the job still fits."""
    for v in range(trial.counts[1] - 2, -1, -1):
        put_in(view, trial, job, trial.chosen[v], True)
        if admissible(view, own, job, trial, found):
            for w in range(v, trial.counts[1] - 1):
                trial.chosen[w] = trial.chosen[w + 1]
            trial.counts[1] -= 1
        else:
            put_in(view, trial, job, trial.chosen[v], False)


@kernel
def fullest(view, trial):
    """The server that takes an instance and has fewest free GPU thousandths in the trial. Ties: lowest index."""
    best, fewest = -1, 0
    for s in range(view.count[SCOPE_FROM], view.count[SCOPE_TO]):
        free = MILLI * popcount(trial.amount[s, FREE])
        for g in range(view.shapes.gpus[view.servers.shape_id[s]]):
            if trial.shared[s, g]:
                free += MILLI - trial.shared[s, g]
        if trial.takes[s] and (best < 0 or free < fewest):
            best, fewest = s, free
    return best
