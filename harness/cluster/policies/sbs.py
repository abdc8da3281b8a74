"""SBS, smart batch scheduling (arXiv 2512.10980): a reconstruction from a description of its choice.

Before each pass the waiting jobs of each model family are looked at in order of submission: of all windows of 3 to 5 neighbours that ask
for 8 GPUs at most together, the one of highest efficiency / (1 + var(remaining hours) + var(GPUs)) goes first; the others follow, the
shortest first. Efficiency is the mean of iterations / (GPUs * remaining time), with an iteration for each second that a job is said to
run; the family is the tenant, for traces do not name models.
"""

import numpy as np

from harness.cluster.service import gpus_of, remaining
from harness.cluster.state import PASS, WAITING
from harness.jit import allocating, kernel

DYNAMIC = True
STATE = 1
IN_PASS = 0
JOB_STATE = 1
CHOSEN_IN = 0

SMALLEST, LARGEST, MOST_GPUS = 3, 5, 8.0


@kernel
def score(view, family, first, n):
    """Of the window of ``n`` jobs; -1 when it asks for too much."""
    gpus, hours, squares, gpu_squares, efficiency = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(first, first + n):
        job = family[i]
        held, left = gpus_of(view, job), remaining(view, job) / 3600.0
        gpus, hours = gpus + held, hours + left
        squares, gpu_squares = squares + left * left, gpu_squares + held * held
        efficiency += view.jobs.estimate[job] / (max(held, 0.001) * remaining(view, job))
    if gpus > MOST_GPUS:
        return -1.0
    apart = squares / n - (hours / n) ** 2 + gpu_squares / n - (gpus / n) ** 2
    return efficiency / n / (1.0 + apart)


@allocating
def choose(view, own):
    """Marks the jobs of the best window with the number of this pass. Ties: the lowest tenant, the first window, the smallest."""
    own.state[IN_PASS] = view.count[PASS]
    family, best, chosen, n_chosen = np.zeros(len(view.jobs), np.int64), -1.0, np.zeros(LARGEST, np.int64), 0
    for tenant in range(view.jobs.tenant.max() + 1):
        n = 0
        for job in range(len(view.jobs)):
            if view.jobs.status[job] == WAITING and view.jobs.tenant[job] == tenant:
                family[n] = job
                n += 1
        for first in range(n - SMALLEST + 1):
            for size in range(SMALLEST, min(LARGEST, n - first) + 1):
                value = score(view, family, first, size)
                if value > best:
                    best, n_chosen = value, size
                    for i in range(size):
                        chosen[i] = family[first + i]
    for i in range(n_chosen):
        own.job_state[chosen[i], CHOSEN_IN] = view.count[PASS]


def key(view, own, job):
    if own.state[IN_PASS] != view.count[PASS]:
        choose(view, own)
    return -1e12 if own.job_state[job, CHOSEN_IN] == view.count[PASS] else remaining(view, job)
