"""FIFO, the baseline of PecSched (arXiv 2409.15104): every request goes to the shortest queue, counted in tokens, and is served in order.

A long request joins the queues of its gang and starts when all of them have come to it; short ones behind it wait for its prefill.
"""

from harness.serving.gangs import gang_size, is_long, nearest, per_replica, prefill_replicas, shortest
from harness.serving.state import ADMIT, STOP

PARAMS = {"long_tokens": 50_000.0, "tokens_per_gpu": 20_000.0}
LONG_TOKENS, PER_GPU = 0, 1


def route(view, own, q):
    return shortest(view, 0, prefill_replicas(view))


def gang(view, own, q, found):
    if not is_long(view, q, own.params[LONG_TOKENS]):
        return 0
    n = prefill_replicas(view)
    return nearest(view, gang_size(view, q, per_replica(view, own.params[PER_GPU]), n), found, 0, n, True)


def admit(view, own, q, r):
    requests, replicas = view.requests, view.replicas
    if requests.in_place[q]:
        for m in range(len(replicas)):
            head = view.queues.head[m]
            if (requests.gang_mask[q] >> m) & 1 and head >= 0 and head < q:
                return STOP
        return ADMIT
    long = replicas.long[r]
    return STOP if 0 <= long < q else ADMIT
