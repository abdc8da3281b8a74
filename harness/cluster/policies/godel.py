"""Goedel's standard preemption [code], the baseline of the FlexTopo paper: reprieve on every server, blind to topology."""

import numpy as np

from harness.cluster.sourcing import search_by_reprieve
from harness.cluster.state import SCOPE_FROM, SCOPE_TO

PARAMS = {"retry_s": 60.0}


def key(view, own, job):
    return -view.classes.priority[view.jobs.klass[job]]


def victims(view, own, job, found):
    every_server = view.count[SCOPE_TO] - view.count[SCOPE_FROM]
    return search_by_reprieve(view, job, found, False, False, np.int64(0), every_server)
