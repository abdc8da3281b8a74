"""Domain-first preemption for gangs across servers (ours): all of it in the smallest network domain where victims make room, or nothing.

A job of one instance is domain_first's, parameters included. Placement without evictions is best fit, as everywhere. The search is in
harness/cluster/gang_search.py.
"""

from harness.cluster.domain_search import KEPT, search_domain_first
from harness.cluster.fit import best_fit
from harness.cluster.gang_search import JOB_STATE as JOB_STATE
from harness.cluster.gang_search import SERVER_STATE as SERVER_STATE
from harness.cluster.gang_search import STATE as STATE
from harness.cluster.gang_search import gang_victims, largest_level, place_planned
from harness.cluster.state import EVICTING

PARAMS = {"alpha": 0.0, "rank_by": ("victims", "assigned")}
ALPHA, RANK_BY = 0, 1
CLASS_SERVER_STATE = KEPT


def key(view, own, job):
    return -view.classes.priority[view.jobs.klass[job]]


def place(view, own, job):
    if view.count[EVICTING] and view.classes.instances[view.jobs.klass[job]] > 1:
        return place_planned(view, own, job)
    return best_fit(view, job)


def victims(view, own, job, found):
    if view.classes.instances[view.jobs.klass[job]] == 1:
        return search_domain_first(view, own, job, found, own.params[ALPHA], own.params[RANK_BY] == 1, False)
    return gang_victims(view, own, job, largest_level(view, job), found)
