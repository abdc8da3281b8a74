"""Shortest remaining GPU time first, by the users' estimates, with preemption of running jobs that need more.

A job may evict running preemptible jobs of its own or a lower priority that still need more GPU time than it does.
"""

from harness.cluster.service import JOB_STATE as JOB_STATE
from harness.cluster.service import MEASURE, RANK, gpus_of, remaining, search_behind
from harness.jit import inlined


@inlined
def need(view, job):
    return gpus_of(view, job) * remaining(view, job)


def key(view, own, job):
    return need(view, job)


def victims(view, own, job, found):
    for s in range(len(view.servers)):
        i = view.servers.first[s]
        while i >= 0:
            other = view.instances.job[i]
            own.job_state[other, RANK] = own.job_state[other, MEASURE] = need(view, other)
            i = view.instances.next[i]
    return search_behind(view, own, job, found, need(view, job))


def outranks(view, own, job, victim):
    return need(view, victim) > need(view, job)
