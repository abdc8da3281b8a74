"""Highest priority first: of the trace's column ``priority``, 0 without it; ties by arrival."""


def key(view, own, q):
    return -1.0 * view.requests.priority[q]
