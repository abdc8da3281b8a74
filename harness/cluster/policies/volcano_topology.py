"""Volcano's topology-aware preemption [volcano]: on a tenth of the servers, evict from the lowest priority up until the request,
guarantee included, fits; then reprieve in reverse. ``scan=all`` looks at every server from the first on."""

from harness.cluster.preempt import draw
from harness.cluster.sourcing import search_by_reprieve
from harness.cluster.state import SCOPE_FROM, SCOPE_TO

PARAMS = {"scan": ("sampled", "all")}
SCAN, ALL = 0, 1


def key(view, own, job):
    return -view.classes.priority[view.jobs.klass[job]]


def victims(view, own, job, found):
    servers = view.count[SCOPE_TO] - view.count[SCOPE_FROM]
    if own.params[SCAN] == ALL:
        return search_by_reprieve(view, job, found, True, True, 0, servers)
    wanted = min(max(servers // 10, 1), 100)
    return search_by_reprieve(view, job, found, True, True, draw(view) % servers, wanted)
