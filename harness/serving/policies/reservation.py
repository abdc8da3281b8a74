"""Reservation, a baseline of PecSched (arXiv 2409.15104): replicas for one longest input are set aside, and only long requests use them."""

from harness.jit import inlined
from harness.serving.gangs import gang_size, is_long, nearest, per_replica, prefill_replicas, shortest
from harness.serving.state import ADMIT, STOP

PARAMS = {"long_tokens": 50_000.0, "tokens_per_gpu": 20_000.0, "longest_tokens": 500_000.0}
LONG_TOKENS, PER_GPU, LONGEST = 0, 1, 2


@inlined
def reserved(view, own, n):
    """Replicas set aside: those of a prompt of ``longest_tokens``, all but one at most."""
    one = per_replica(view, own.params[PER_GPU])
    return min(n - 1, int((own.params[LONGEST] + one - 1) // one))


def route(view, own, q):
    n = prefill_replicas(view)
    return shortest(view, 0, n - reserved(view, own, n))


def gang(view, own, q, found):
    if not is_long(view, q, own.params[LONG_TOKENS]):
        return 0
    n = prefill_replicas(view)
    k = reserved(view, own, n)
    return nearest(view, gang_size(view, q, per_replica(view, own.params[PER_GPU]), k), found, n - k, n, True)


def admit(view, own, q, r):
    long = view.replicas.long[r]
    return STOP if not view.requests.in_place[q] and 0 <= long < q else ADMIT
