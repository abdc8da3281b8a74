"""FlexTopo (arXiv 2411.11560) with exhaustive sourcing [code]: every set of evictable jobs on every server, ranked by S.

S = alpha / sum(priority + 2^31) + (1 - alpha) T, T by the level of the victims, or with ``rank_by=assigned`` of what the preemptor is
given. Placement is best fit, as everywhere; topology ranks victims, not servers.
"""

from harness.cluster.sourcing import EXHAUSTIVE, search_all_sets

PARAMS = {"alpha": 0.0, "rank_by": ("victims", "assigned")}
ALPHA, RANK_BY = 0, 1


def key(view, own, job):
    return -view.classes.priority[view.jobs.klass[job]]


def victims(view, own, job, found):
    return search_all_sets(view, job, found, EXHAUSTIVE, own.params[ALPHA], own.params[RANK_BY] == 1)
