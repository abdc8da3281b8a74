"""EASY backfill: the first blocked job gets a reservation on actual servers, and others may not delay it.

Its shadow time is when, by the users' estimates, enough running jobs have ended for it to be placed. A later job starts when it ends
by then, or on servers outside the reservation.
"""

from harness.cluster.fit import HOLD, best_fit, best_fit_among
from harness.cluster.reservation import expected_run, reserve
from harness.cluster.state import GO_ON, NOW, PASS

STATE = 2
IN_PASS, SHADOW = 0, 1
SERVER_STATE = 1
RESERVED = 0


def place(view, own, job):
    reservation = own.state[IN_PASS] == view.count[PASS]
    if not reservation or view.clock[NOW] + expected_run(view, job) <= own.state[SHADOW]:
        return best_fit(view, job)
    s = best_fit_among(view, job, own.server_state[:, RESERVED])
    return s if s >= 0 else HOLD


def blocked(view, own, job):
    if own.state[IN_PASS] != view.count[PASS]:
        own.state[IN_PASS] = view.count[PASS]
        own.state[SHADOW] = reserve(view, job, own.server_state[:, RESERVED])
    return GO_ON
