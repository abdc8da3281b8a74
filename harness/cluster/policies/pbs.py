"""PBS, predictive backfilling (arXiv 2512.10980): a reconstruction from a description of its choice.

Jobs of efficiency above 0.1 first, the most efficient before all; then the shortest of 2 GPUs at most, then the fewest GPUs among those of
less than an hour, then the shortest. Efficiency is iterations / (GPUs * remaining time); traces have no iterations: we take one for each
second that the job is said to run.
"""

from harness.cluster.service import gpus_of, remaining

LATER = 1e12
"""Apart so far are the four groups in the order of the queue."""


def key(view, own, job):
    gpus, left = gpus_of(view, job), remaining(view, job)
    per_iteration = gpus * left / view.jobs.estimate[job]
    if per_iteration < 10.0:
        return per_iteration
    if gpus <= 2.0:
        return LATER + left
    return 2.0 * LATER + gpus if left < 3600.0 else 3.0 * LATER + left
