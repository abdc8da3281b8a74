"""Kubernetes' default preemption [k8s]: reprieve, blind to topology, on a tenth of the servers from a random offset.

Disruption budgets have no trace column, so that step is left out. ``scan=all`` looks at every server from the first on.
"""

from harness.cluster.preempt import draw
from harness.cluster.sourcing import search_by_reprieve
from harness.cluster.state import SCOPE_FROM, SCOPE_TO

PARAMS = {"scan": ("sampled", "all"), "retry_s": 60.0}
SCAN, ALL = 0, 1


def key(view, own, job):
    return -view.classes.priority[view.jobs.klass[job]]


def victims(view, own, job, found):
    servers = view.count[SCOPE_TO] - view.count[SCOPE_FROM]
    if own.params[SCAN] == ALL:
        return search_by_reprieve(view, job, found, False, False, 0, servers)
    wanted = min(servers, max(servers // 10, 100))
    return search_by_reprieve(view, job, found, False, False, draw(view) % servers, wanted)
