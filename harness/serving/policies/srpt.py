"""Shortest remaining processing time on predicted output, with limited preemption.

A waiting request takes the place of the member with the most predicted tokens left when that has ``factor`` times what the waiting one has,
and has made less than ``limit`` of its predicted output: one that is nearly done keeps its KV cache.
"""

from harness.jit import inlined
from harness.serving.state import DECODING, NOBODY

PARAMS = {"factor": 2.0, "limit": 0.8}
FACTOR, LIMIT = 0, 1
DYNAMIC = True


@inlined
def left(view, q):
    """Predicted tokens that ``q`` still has to make, at least one."""
    requests = view.requests
    made = requests.decoded[q]
    if requests.status[q] == DECODING:
        made += view.replicas.ordinal[requests.replica[q]] - requests.since[q]
    return max(1.0, requests.predicted[q] - made)


def key(view, own, q):
    return left(view, q)


def victim(view, own, r, q):
    worst, most = NOBODY, own.params[FACTOR] * left(view, q)
    for i in range(view.replicas.batch[r]):
        other = view.members[r, i]
        rest = left(view, other)
        if rest > most and rest > (1.0 - own.params[LIMIT]) * view.requests.predicted[other]:
            worst, most = other, rest
    return worst
