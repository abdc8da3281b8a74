"""GFS (arXiv 2509.11134) [code]: forecast spot quotas, with feedback, and preemption that weighs failures and waste.

HP jobs first, large instances first; a spot job starts only within the quota of its virtual cluster; only HP jobs evict, and only
spot jobs. After a failure at a size, instances of that size and above are passed over for the rest of the pass, HP and spot apart.
``without`` takes one part out: first in, first out instead of the order, random victims, or best fit.
"""

from harness.cluster.fit import PASS_OVER
from harness.cluster.preempt import draw
from harness.cluster.quota import JOB_STATE as JOB_STATE
from harness.cluster.quota import NEEDS_TRACE as NEEDS_TRACE
from harness.cluster.quota import PARAMS as QUOTA_PARAMS
from harness.cluster.quota import REPORTS as REPORTS
from harness.cluster.quota import STATE as QUOTA_STATE
from harness.cluster.quota import TICKS, account, is_spot, misses_quota, next_quota, note_waiting, prepare
from harness.cluster.sourcing import search_at_random
from harness.cluster.spot import LEAST_WASTE, best_server, forget_evictions, note_eviction, search_spot
from harness.cluster.spot import SERVER_STATE as SERVER_STATE
from harness.cluster.state import PASS, WAITING
from harness.jit import inlined
from harness.schema import MILLI

__all__ = ["prepare"]

PARAMS = {**QUOTA_PARAMS, "without": ("nothing", "order", "victims", "placement"), "retry_s": 60.0}
WITHOUT = len(QUOTA_PARAMS)
ORDER, VICTIMS, PLACEMENT = 1, 2, 3
STATE = QUOTA_STATE + 4
FAILED_IN, FAILED_SIZE = QUOTA_STATE, QUOTA_STATE + 2
"""Columns of Own.state, each for HP and spot: the pass of the last failure, and its least size."""


@inlined
def size(view, job):
    c = view.jobs.klass[job]
    return view.classes.gpus[c] * view.classes.milli[c] / MILLI


@inlined
def passed_over(view, own, job):
    kind = view.classes.preemptible[view.jobs.klass[job]]
    failed = own.state[FAILED_IN + kind] == view.count[PASS] and size(view, job) >= own.state[FAILED_SIZE + kind]
    return failed and own.params[WITHOUT] != ORDER


def key(view, own, job):
    spot = is_spot(view, job)
    if own.params[WITHOUT] == ORDER:
        return 1.0 if spot else 0.0
    return 1e12 - 1e9 * size(view, job) + view.classes.instances[view.jobs.klass[job]] if spot else -size(view, job)


def place(view, own, job):
    if passed_over(view, own, job) or misses_quota(view, own, job):
        return PASS_OVER
    return best_server(view, own, job, own.params[WITHOUT] != PLACEMENT)


def victims(view, own, job, found):
    if is_spot(view, job):
        return 0
    if own.params[WITHOUT] == VICTIMS:
        return search_at_random(view, job, found, draw(view))
    return search_spot(view, own, job, found, LEAST_WASTE)


def blocked(view, own, job):
    kind = view.classes.preemptible[view.jobs.klass[job]]
    note_waiting(view, own, job)
    if own.state[FAILED_IN + kind] != view.count[PASS] or size(view, job) < own.state[FAILED_SIZE + kind]:
        own.state[FAILED_SIZE + kind] = size(view, job)
    own.state[FAILED_IN + kind] = view.count[PASS]
    return False


def changed(view, own, job):
    account(view, own, job)
    if view.jobs.status[job] == WAITING:
        note_eviction(view, own, job, int(own.state[TICKS]))


def tick(view, own):
    next_quota(view, own)
    forget_evictions(view, own, int(own.state[TICKS]))
