"""Shortest job first by the user's estimate, going on past jobs that do not fit. Best fit."""


def key(view, own, job):
    return view.jobs.estimate[job]
