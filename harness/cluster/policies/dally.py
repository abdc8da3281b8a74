"""Dally (arXiv 2401.16492), a RECONSTRUCTION from its abstract: delay timers for consolidation, and preemption for it.

A gang waits for one server until it has waited ``machine_s``, then for one rack for ``rack_s`` more, then takes any servers; levels that
could never hold it are left out. With ``preempt=consolidate`` it may evict, as domain_first_gang does, inside the domains it still waits
for: jobs of higher priority stand for the network-sensitive ones. Timers count from submission [ours], are fixed (the published auto-tuner
is not described), and wake nobody: the next event does. High priority first.
"""

from harness.cluster.fit import HOLD, NO_FIT, best_fit
from harness.cluster.gang_search import JOB_STATE as JOB_STATE
from harness.cluster.gang_search import SERVER_STATE as SERVER_STATE
from harness.cluster.gang_search import STATE as GANG_STATE
from harness.cluster.gang_search import gang_victims, largest_level, place_planned
from harness.cluster.rollup import CLASS_SERVER_STATE as CLASS_SERVER_STATE
from harness.cluster.rollup import CLUSTER, RACKS, SERVERS, is_planned, keep_plan, next_server, plan_closest, smallest_levels
from harness.cluster.state import EVICTING, NOW
from harness.jit import inlined

PARAMS = {"machine_s": 600.0, "rack_s": 1200.0, "preempt": ("consolidate", "never")}
MACHINE_S, RACK_S, PREEMPT = 0, 1, 2
STATE = GANG_STATE + 1
CLOSEST = GANG_STATE  # level of the plan without evictions, -1: none


prepare = smallest_levels


@inlined
def waits_for(view, own, job):
    """The largest level that the gang accepts by now."""
    waited = view.clock[NOW] - view.jobs.submit[job]
    level = SERVERS if waited < own.params[MACHINE_S] else RACKS if waited < own.params[MACHINE_S] + own.params[RACK_S] else CLUSTER
    return max(level, int(own.table[view.jobs.klass[job], 0]))


def key(view, own, job):
    return -view.classes.priority[view.jobs.klass[job]]


def place(view, own, job):
    c = view.jobs.klass[job]
    if view.classes.instances[c] == 1:
        return best_fit(view, job)
    if view.count[EVICTING]:
        return place_planned(view, own, job)
    if not is_planned(view, own, job):
        own.state[CLOSEST] = plan_closest(view, own, job)
        keep_plan(view, own, job, own.state[CLOSEST] >= 0)
    s = next_server(view, own)
    if s >= 0 and own.state[CLOSEST] > waits_for(view, own, job):
        return NO_FIT if own.params[PREEMPT] == 0.0 and view.classes.rank[c] > 0 else HOLD
    return s


def victims(view, own, job, found):
    if view.classes.instances[view.jobs.klass[job]] == 1 or own.params[PREEMPT] != 0.0:
        return 0
    n = gang_victims(view, own, job, min(waits_for(view, own, job), largest_level(view, job)), found)
    return HOLD if n == 0 and own.state[CLOSEST] >= 0 else n
