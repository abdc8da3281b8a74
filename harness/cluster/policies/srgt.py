"""Shortest remaining GPU time first, by the users' estimates, with preemption of running jobs that need more.

A job may evict running preemptible jobs of its own or a lower priority that still need more GPU time than it does.
"""

from harness.cluster.service import gpus_of, remaining, search_behind
from harness.jit import inlined


@inlined
def need(view, job):
    return gpus_of(view, job) * remaining(view, job)


@inlined
def behind(view, own, job, victim):
    return need(view, victim) > need(view, job)


def key(view, own, job):
    return need(view, job)


def victims(view, own, job, found):
    return search_behind(view, own, job, found, behind, need)


def outranks(view, own, job, victim):
    return behind(view, own, job, victim)
