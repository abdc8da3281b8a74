"""Chronus as GFS compares with it (arXiv 2509.11134): a reconstruction from a description of its rounds and leases.

Jobs start only at rounds of a period (300 s), HP before spot, first in, first out, best fit. Spot jobs run on leases of four rounds: HP
jobs evict, like those of YARN-CS, only when leases end. Give spot jobs a restart cost of 120 s (workload.spot_restart_cost_s) for the
price of a flushed lease. Spot jobs keep within a quota like that of GFS.
"""

from harness.cluster.fit import PASS_OVER
from harness.cluster.quota import JOB_STATE as JOB_STATE
from harness.cluster.quota import NEEDS_TRACE as NEEDS_TRACE
from harness.cluster.quota import PARAMS as PARAMS
from harness.cluster.quota import PERIOD, TICKS, account, is_spot, misses_quota, next_quota, note_waiting, prepare
from harness.cluster.quota import REPORTS as REPORTS
from harness.cluster.quota import STATE as STATE
from harness.cluster.spot import FIRST_SERVER, best_server, search_spot
from harness.cluster.state import NOW

__all__ = ["prepare"]

LEASE = 4
"""Rounds."""


def key(view, own, job):
    return 1.0 if is_spot(view, job) else 0.0


def place(view, own, job):
    if view.clock[NOW] != own.state[TICKS] * own.params[PERIOD]:
        note_waiting(view, own, job)
        return PASS_OVER
    return PASS_OVER if misses_quota(view, own, job) else best_server(view, own, job, False)


def victims(view, own, job, found):
    return 0 if is_spot(view, job) or own.state[TICKS] % LEASE != 0.0 else search_spot(view, own, job, found, FIRST_SERVER)


def blocked(view, own, job):
    note_waiting(view, own, job)
    return False


def changed(view, own, job):
    account(view, own, job)


def tick(view, own):
    next_quota(view, own)
