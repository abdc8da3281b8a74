"""FlexTopo (arXiv 2411.11560) with IMP sourcing [code]: per server sets of size 1, 2, ... until a size has a feasible one.

Ranking and parameters are those of flextopo_exhaustive.
"""

from harness.cluster.sourcing import IMP, search_all_sets

PARAMS = {"alpha": 0.0, "rank_by": ("victims", "assigned")}
ALPHA, RANK_BY = 0, 1


def key(view, own, job):
    return -view.classes.priority[view.jobs.klass[job]]


def victims(view, own, job, found):
    return search_all_sets(view, job, found, IMP, own.params[ALPHA], own.params[RANK_BY] == 1)
