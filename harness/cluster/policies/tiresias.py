"""Tiresias' discretised 2D-LAS (NSDI'19) [code]: least attained GPU time first, in three queues; first in, first out within a queue.

A job moves from queue to queue when its GPU time passes a limit, and may evict running preemptible jobs of lower queues, of its own
priority too (never of a higher one). The limits are those of the public simulator. Left out: promotion of starved jobs, which is off there.
"""

from harness.cluster.service import JOB_STATE as JOB_STATE
from harness.cluster.service import MEASURE, RANK, attained, search_behind
from harness.jit import inlined

PARAMS = {"limit_1_gpu_s": 3250.0, "limit_2_gpu_s": 7200.0, "period_s": 300.0}
LIMIT_1, LIMIT_2 = 0, 1


@inlined
def level(view, own, job):
    had = attained(view, job)
    return 0 if had < own.params[LIMIT_1] else 1 if had < own.params[LIMIT_2] else 2


def key(view, own, job):
    return level(view, own, job)


def victims(view, own, job, found):
    for s in range(len(view.servers)):
        i = view.servers.first[s]
        while i >= 0:
            other = view.instances.job[i]
            own.job_state[other, RANK], own.job_state[other, MEASURE] = level(view, own, other), attained(view, other)
            i = view.instances.next[i]
    return search_behind(view, own, job, found, level(view, own, job))


def outranks(view, own, job, victim):
    return level(view, own, victim) > level(view, own, job)


def tick(view, own):
    """It only wakes the scheduler: running jobs may have changed queues."""
