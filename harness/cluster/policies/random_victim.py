"""The floor: a random feasible set of victims on a random server, counts only."""

from harness.cluster.preempt import draw
from harness.cluster.sourcing import search_at_random

PARAMS = {"retry_s": 60.0}


def key(view, own, job):
    return -view.classes.priority[view.jobs.klass[job]]


def victims(view, own, job, found):
    return search_at_random(view, job, found, draw(view))
