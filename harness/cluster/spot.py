"""Where jobs go in GFS' virtual clusters, and which spot jobs make place for those of high priority. specs/cluster-policies.md, GFS.

The rules are those of GFS (arXiv 2509.11134) and of its baselines as its public code has them [code].
"""

import numpy as np

from harness.cluster.fit import NO_FIT, fits_server
from harness.cluster.preempt import (
    FIRST_VICTIM,
    SERVER_FOUND,
    SERVERS_SCANNED,
    SETS_TRIED,
    all_evicted_fits,
    evict_in_trial,
    gather,
    new_candidates,
    new_search,
    reprieve_in_trial,
    reset_trial,
    trial_fits,
    worth_a_look,
)
from harness.cluster.quota import CAPACITY, HOUR, PERIOD, WINDOW, WINDOW_FAILED, WINDOW_KEPT, is_spot, pool_of, within_quota
from harness.cluster.service import gpus_of
from harness.cluster.state import NOW, SCOPE_FROM, SCOPE_TO
from harness.jit import allocating, inlined, kernel, lowest
from harness.schema import MILLI

DAY = 24 * HOUR
LAST_HOUR, LAST_DAY, RECENT = 0, 1, 2
SERVER_STATE = RECENT + DAY
"""Columns of Own.server_state: evictions on the server in the last hour and day, and a ring of those of each period."""

LEAST_WASTE, FIRST_SERVER, LARGEST_JOBS = 0, 1, 2
"""Which spot jobs go: GFS' rule, YARN-CS's (on the first server by best fit, the newest first), Lyra's (least cost per GPU, that is the
largest jobs first, on the server where they cost least)."""


@inlined
def spot_gpu(view, s):
    """GPU thousandths that running preemptible jobs hold on server ``s``."""
    gpu = 0
    for rank in range(view.evictable.shape[1]):
        gpu += view.evictable.gpu[s, rank]
    return gpu


@inlined
def quietness(own, s):
    """GFS' score of a server by the evictions on it: 10000 max(0, 1 - 0.01 * 2^(0.8 last hour + 0.2 last day))."""
    return 10000.0 * max(0.0, 1.0 - 0.01 * 2.0 ** (0.8 * own.server_state[s, LAST_HOUR] + 0.2 * own.server_state[s, LAST_DAY]))


@inlined
def best_server(view, own, job, alike):
    """The server in scope, with quota left, that fits an instance of ``job`` and has fewest free GPUs; NO_FIT if there is none.

    ``alike``, as in GFS: of equal whole free GPUs the one where jobs of its kind (HP or spot) hold most, then for spot the quietest server
    and for HP the least quiet. Otherwise thousandths count. Ties: lowest index.
    """
    c = view.jobs.klass[job]
    need = view.classes.gpus[c] if view.classes.milli[c] == MILLI else 0
    low, high = view.count[SCOPE_FROM], view.count[SCOPE_TO]
    sign = 1.0 if is_spot(view, job) else -1.0
    for b in range(need, view.bucket.shape[0]):
        if view.bucket_size[b] == 0:
            continue
        best, most, quiet = NO_FIT, -np.inf, -np.inf
        for w in range(low >> 5, (high + 31) >> 5):
            word = view.bucket[b, w]
            while word:
                s = (w << 5) + lowest(word)
                word &= word - 1
                if not low <= s < high:
                    continue
                score, calm = -float(view.servers.gpu[s]), 0.0
                if alike:
                    held = spot_gpu(view, s)
                    if sign < 0.0:
                        held = MILLI * view.shapes.gpus[view.servers.shape_id[s]] - view.servers.gpu[s] - held
                    score, calm = float(held), sign * quietness(own, s)
                if score < most or (score == most and calm <= quiet):
                    continue
                if within_quota(view, own, job, pool_of(view, own, s)) and fits_server(view, s, c):
                    best, most, quiet = s, score, calm
        if best >= 0:
            return best
    return NO_FIT


@inlined
def blind_server(view, job):
    """The server with fewest GPUs that are free or of spot jobs, and enough of them, whether it must evict or not; NO_FIT: none."""
    c = view.jobs.klass[job]
    best, fewest = NO_FIT, np.int64(0)
    for s in range(view.count[SCOPE_FROM], view.count[SCOPE_TO]):
        gpu = view.servers.gpu[s] + spot_gpu(view, s)
        if (best < 0 or gpu < fewest) and worth_a_look(view, s, c):
            best, fewest = s, gpu
    return best


@kernel
def note_eviction(view, own, job, tick):
    """Counts the eviction of a spot job on each of its servers, once for each instance."""
    for i in range(view.jobs.first_instance[job], view.jobs.end_instance[job]):
        row = own.server_state[view.instances.server[i]]
        row[LAST_HOUR] += 1.0
        row[LAST_DAY] += 1.0
        row[RECENT + tick % DAY] += 1.0


@kernel
def forget_evictions(view, own, tick):
    """The period ``tick`` begins: evictions of an hour and of a day before are no longer recent."""
    for s in range(len(view.servers)):
        row = own.server_state[s]
        if row[LAST_DAY] > 0.0:
            row[LAST_HOUR] -= row[RECENT + (tick - HOUR) % DAY]
            row[LAST_DAY] -= row[RECENT + tick % DAY]
            row[RECENT + tick % DAY] = 0.0


@allocating
def search_spot(view, own, job, found, rule):
    """Victims for one instance of an HP job by one of the rules above; returns their number.

    GFS: of the servers with fewest GPUs that are free or evictable, and enough, the one of least ``cost``. Ties: lowest server.
    """
    c = view.jobs.klass[job]
    search, candidates = new_search(view), new_candidates(view, 16)
    best_n, fewest, least = 0, np.int64(0), np.inf
    for s in range(view.count[SCOPE_FROM], view.count[SCOPE_TO]):
        if not worth_a_look(view, s, c):
            continue
        candidates, n = gather(view, search, candidates, s, c, 0, found)
        gpu = view.servers.gpu[s]
        for m in range(n):
            gpu += candidates_gpu(view, candidates, m)
        if best_n and rule != LARGEST_JOBS and (gpu > fewest or (gpu == fewest and rule == FIRST_SERVER)):
            continue
        reset_trial(search)
        if n == 0 or trial_fits(view, search, s, c, True) or not all_evicted_fits(view, search, candidates, n, s, c, True):
            continue
        found[SERVERS_SCANNED] += 1
        order, evicted = dearest_first(view, candidates, n, rule), np.zeros(n, np.bool_)
        if rule == LEAST_WASTE:
            from_both_ends(view, search, candidates, s, c, order, evicted, found)
        else:
            until_it_fits(view, search, candidates, s, c, order, evicted, found)
        cost = cost_of(view, own, candidates, s, evicted, rule)
        if best_n and cost >= least and (rule == LARGEST_JOBS or gpu == fewest):
            continue
        best_n, fewest, least = 0, gpu, cost
        found[SERVER_FOUND] = s
        for m in range(n):
            if evicted[m]:
                found[FIRST_VICTIM + best_n] = candidates.of.job[m]
                best_n += 1
    return best_n


@kernel
def candidates_gpu(view, candidates, m):
    """GPU thousandths that candidate ``m`` holds on its server."""
    mask, gpu = candidates.of.gpus[m], 0
    while mask:
        g = lowest(mask)
        gpu += MILLI if candidates.of.whole[m] >> g & 1 else candidates.shared[m, g]
        mask &= mask - 1
    return gpu


@inlined
def waste(view, job):
    """GFS: GPU seconds since the start of the attempt."""
    return gpus_of(view, job) * (view.clock[NOW] - view.jobs.start[job])


@inlined
def _measure(view, job, rule):
    """What the order of victims goes by, the dearest highest."""
    if rule == LEAST_WASTE:
        return waste(view, job)
    return -view.jobs.start[job] if rule == FIRST_SERVER else -gpus_of(view, job)


@allocating
def dearest_first(view, candidates, n, rule):
    """Candidates by descending measure; ties: lowest index."""
    order = np.arange(n)
    for i in range(1, n):
        j = i
        while j > 0 and _measure(view, candidates.of.job[order[j - 1]], rule) < _measure(view, candidates.of.job[i], rule):
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    return order


@kernel
def from_both_ends(view, search, candidates, s, c, order, evicted, found):
    """GFS: all are out; spare from the dear end while the request fits and evict the next, then so from the cheap end, and so on."""
    dear, cheap = 0, len(order) - 1
    from_dear = True
    while dear <= cheap:
        m = order[dear if from_dear else cheap]
        if from_dear:
            dear += 1
        else:
            cheap -= 1
        reprieve_in_trial(search, candidates, m)
        found[SETS_TRIED] += 1
        if not trial_fits(view, search, s, c, True):
            evict_in_trial(search, candidates, m)
            evicted[m] = True
            from_dear = not from_dear


@kernel
def until_it_fits(view, search, candidates, s, c, order, evicted, found):
    """The cheapest first, until the request fits."""
    reset_trial(search)
    cheap = len(order) - 1
    while not trial_fits(view, search, s, c, True):
        evict_in_trial(search, candidates, order[cheap])
        evicted[order[cheap]] = True
        found[SETS_TRIED] += 1
        cheap -= 1


@kernel
def cost_of(view, own, candidates, s, evicted, rule):
    """GFS: (F + n) / (F + S + n) + 5 sum(waste) / (C T), F and S being the hours that failed and were kept in the last T = 4 h. Lyra: the
    sum of 1 / (workers * GPUs). YARN-CS: 0."""
    row = own.table[pool_of(view, own, s)]
    n, wasted, per_gpu = 0, 0.0, 0.0
    for m in range(len(evicted)):
        if evicted[m]:
            job = candidates.of.job[m]
            n += 1
            wasted += waste(view, job)
            per_gpu += 1.0 / max(gpus_of(view, job), 1e-9)
    if rule != LEAST_WASTE:
        return per_gpu if rule == LARGEST_JOBS else 0.0
    usage = 0.0
    if row[CAPACITY] > 0:  # jobs without GPUs waste none
        usage = wasted / (row[CAPACITY] / MILLI * (WINDOW * own.params[PERIOD]))
    return (row[WINDOW_FAILED] + n) / (row[WINDOW_FAILED] + row[WINDOW_KEPT] + n) + 5.0 * usage
