"""Lyra as GFS compares with it (arXiv 2509.11134) [code]: first in, first out, HP before spot, best fit; victims of least cost per GPU.

A spot job costs 1 / (workers * GPUs): the largest go first (the public code takes the dearest), on the server where they cost least. Spot
jobs keep within a quota like that of GFS.
"""

from harness.cluster.fit import PASS_OVER
from harness.cluster.quota import JOB_STATE as JOB_STATE
from harness.cluster.quota import NEEDS_TRACE as NEEDS_TRACE
from harness.cluster.quota import PARAMS as PARAMS
from harness.cluster.quota import REPORTS as REPORTS
from harness.cluster.quota import STATE as STATE
from harness.cluster.quota import account, is_spot, misses_quota, next_quota, note_waiting, prepare
from harness.cluster.spot import LARGEST_JOBS, best_server, search_spot

__all__ = ["prepare"]


def key(view, own, job):
    return 1.0 if is_spot(view, job) else 0.0


def place(view, own, job):
    return PASS_OVER if misses_quota(view, own, job) else best_server(view, own, job, False)


def victims(view, own, job, found):
    return 0 if is_spot(view, job) else search_spot(view, own, job, found, LARGEST_JOBS)


def blocked(view, own, job):
    note_waiting(view, own, job)
    return False


def changed(view, own, job):
    account(view, own, job)


def tick(view, own):
    next_quota(view, own)
