"""Kueue's admission [code]: queues with quotas that lend to their cohort, reclaim what they lent, and preempt within and across queues.

A tenant is a queue. Order: less borrowing (with fair sharing: the smaller dominant share), priority, first in, first out; a job that cannot
be admitted steps aside. Placement is best fit. harness/cluster/admission.py has the quotas and the search; each parameter is Kueue's.
"""

from harness.cluster.admission import PARAMS as PARAMS
from harness.cluster.admission import STATE as STATE
from harness.cluster.admission import USED, asked, count_used, queue_key, search_admission, within_quota
from harness.cluster.admission import prepare as prepare
from harness.cluster.fit import HOLD, NO_FIT, best_fit
from harness.cluster.state import EVICTING, INSTANCE

UNBOUND_VICTIMS = NEEDS_TRACE = True


def key(view, own, job):
    return queue_key(view, own, job)


def place(view, own, job):
    if view.count[INSTANCE] == 0:
        count_used(view, own)
        if view.count[EVICTING] or not within_quota(own, own.table[:, USED], view.jobs.tenant[job], asked(view, job)):
            return NO_FIT
    return best_fit(view, job)


def victims(view, own, job, found):
    return HOLD if view.count[INSTANCE] else search_admission(view, own, job, found)
