"""Domain-first victim search (ours): the winner of flextopo_exhaustive for every input, found without enumerating sets."""

from harness.cluster.domain_search import KEPT, search_domain_first

PARAMS = {"alpha": 0.0, "rank_by": ("victims", "assigned")}
ALPHA, RANK_BY = 0, 1
CLASS_SERVER_STATE = KEPT


def key(view, own, job):
    return -view.classes.priority[view.jobs.klass[job]]


def victims(view, own, job, found):
    return search_domain_first(view, own, job, found, own.params[ALPHA], own.params[RANK_BY] == 1, False)
