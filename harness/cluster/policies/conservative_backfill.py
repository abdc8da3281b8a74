"""Conservative backfill: every waiting job has a reservation, and nobody may delay one that stands before.

In each pass the plan is made anew in the order of submission: each job gets the earliest time from which, by the users' estimates, the
cluster has enough free GPUs for as long as it runs. Whose time is now starts, by best fit. The plan counts the GPUs of the whole
cluster, as simulators of this rule do: on which servers they are free, and cores, it does not see. A job that does not fit after all waits,
and keeps its place in the plan of this pass.
"""

import numpy as np

from harness.cluster.fit import HOLD, best_fit
from harness.cluster.reservation import expected_end, expected_run
from harness.cluster.state import INSTANCE, NOW, PASS, RUNNING
from harness.jit import inlined, kernel

STATE = 2
IN_PASS, STEPS = 0, 1
JOB_STATE = 2
BOOKED_IN, NOT_NOW = 0, 1
"""The pass in which the job was last booked, and whether it was for later."""

TIME, FREE = 0, 1
"""Rows of Own.table: from when on (s), so many GPU thousandths are free."""


def prepare(view, requests, cluster):
    """Room for the plan: two steps for each job of the trace."""
    return np.zeros((2, 2 * max(int(requests.jobs.sum()), len(view.jobs)) + 2))


@inlined
def gpu_of(view, job):
    """GPU thousandths of all instances."""
    c = view.jobs.klass[job]
    return view.classes.instances[c] * view.classes.gpus[c] * view.classes.milli[c]


@kernel
def step_at(own, time):
    """The step that begins at ``time``, made if there is none."""
    n, plan = int(own.state[STEPS]), own.table
    at = n
    while plan[TIME, at - 1] > time:
        at -= 1
    if plan[TIME, at - 1] == time:
        return at - 1
    for later in range(n, at, -1):
        plan[TIME, later], plan[FREE, later] = plan[TIME, later - 1], plan[FREE, later - 1]
    plan[TIME, at], plan[FREE, at] = time, plan[FREE, at - 1]
    own.state[STEPS] += 1.0
    return at


@kernel
def plan_running(view, own):
    """The plan of a new pass: what is free now, and what the running jobs give back at their expected ends."""
    own.state[IN_PASS], own.state[STEPS] = view.count[PASS], 1.0
    own.table[TIME, 0], own.table[FREE, 0] = view.clock[NOW], 0.0
    for s in range(len(view.servers)):
        own.table[FREE, 0] += view.servers.gpu[s]
    for s in range(len(view.servers)):
        i = view.servers.first[s]
        while i >= 0:
            job = view.instances.job[i]
            if view.jobs.status[job] == RUNNING and i == view.jobs.first_instance[job]:
                for step in range(step_at(own, expected_end(view, job)), int(own.state[STEPS])):
                    own.table[FREE, step] += gpu_of(view, job)
            i = view.instances.next[i]


@kernel
def book(view, own, job):
    """Books the job at the earliest step from which enough GPUs are free as long as it runs; returns the step."""
    gpu, runs, plan = gpu_of(view, job), expected_run(view, job), own.table
    at, step = 0, 0
    while step < own.state[STEPS] and plan[TIME, step] < plan[TIME, at] + runs:
        if plan[FREE, step] < gpu:
            at = step + 1
        step += 1
    for step in range(at, step_at(own, plan[TIME, at] + runs)):
        plan[FREE, step] -= gpu
    return at


def place(view, own, job):
    if own.state[IN_PASS] != view.count[PASS]:
        plan_running(view, own)
    booked = own.job_state[job]
    if view.count[INSTANCE] == 0 and booked[BOOKED_IN] != view.count[PASS]:
        booked[BOOKED_IN] = view.count[PASS]
        booked[NOT_NOW] = 1.0 if book(view, own, job) > 0 else 0.0
    s = HOLD if booked[NOT_NOW] else best_fit(view, job)
    return s if s >= 0 else HOLD
