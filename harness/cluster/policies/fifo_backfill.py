"""First in, first out, going on past jobs that do not fit. Best fit."""

from harness.cluster.fit import best_fit


def place(view, own, job):
    return best_fit(view, job)
