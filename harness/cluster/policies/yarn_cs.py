"""YARN's capacity scheduler as GFS compares with it (arXiv 2509.11134) [code]: first in, first out, HP before spot, best fit.

An HP job that fits nowhere evicts spot jobs, the newest first (our reading), on the first server by best fit. ``blind=true``, as in the
public code, never asks for free GPUs first: those of spot jobs count as free, and the best fitting server may be one where it must evict.
Spot jobs keep within a quota like that of GFS.
"""

from harness.cluster.fit import NO_FIT, PASS_OVER, fits_server
from harness.cluster.quota import JOB_STATE as JOB_STATE
from harness.cluster.quota import NEEDS_TRACE as NEEDS_TRACE
from harness.cluster.quota import PARAMS as QUOTA_PARAMS
from harness.cluster.quota import REPORTS as REPORTS
from harness.cluster.quota import STATE as STATE
from harness.cluster.quota import account, is_spot, misses_quota, next_quota, note_waiting, prepare
from harness.cluster.spot import FIRST_SERVER, best_server, blind_server, search_spot

__all__ = ["prepare"]

PARAMS = {**QUOTA_PARAMS, "blind": ("false", "true")}
BLIND = len(QUOTA_PARAMS)


def key(view, own, job):
    return 1.0 if is_spot(view, job) else 0.0


def place(view, own, job):
    if own.params[BLIND] == 1 and not is_spot(view, job):
        s = blind_server(view, job)
        return s if s >= 0 and fits_server(view, s, view.jobs.klass[job]) else NO_FIT
    return PASS_OVER if misses_quota(view, own, job) else best_server(view, own, job, False)


def victims(view, own, job, found):
    return 0 if is_spot(view, job) else search_spot(view, own, job, found, FIRST_SERVER)


def blocked(view, own, job):
    note_waiting(view, own, job)
    return False


def changed(view, own, job):
    account(view, own, job)


def tick(view, own):
    next_quota(view, own)
