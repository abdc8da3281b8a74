"""Domain-first victim search that weighs lost work (ours): rank by T, then by the GPU seconds that the eviction loses, restarts
included, then by the ordinary tie rules."""

from harness.cluster.domain_search import KEPT, search_domain_first

PARAMS = {"rank_by": ("victims", "assigned")}
RANK_BY = 0
CLASS_SERVER_STATE = KEPT


def key(view, own, job):
    return -view.classes.priority[view.jobs.klass[job]]


def victims(view, own, job, found):
    return search_domain_first(view, own, job, found, 0.0, own.params[RANK_BY] == 1, True)
