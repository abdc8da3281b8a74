"""Priority, a baseline of PecSched (arXiv 2409.15104): long requests come last and are not preempted.

A long request starts only when its replicas have no queue, no prefill and no decode of short ones; short ones that come later wait for it.
"""

from harness.serving.gangs import gang_size, has_short_work, is_long, nearest, per_replica, prefill_replicas, shortest
from harness.serving.state import ADMIT, STOP

PARAMS = {"long_tokens": 50_000.0, "tokens_per_gpu": 20_000.0}
LONG_TOKENS, PER_GPU = 0, 1
COUPLED = True


def route(view, own, q):
    return shortest(view, 0, prefill_replicas(view))


def gang(view, own, q, found):
    if not is_long(view, q, own.params[LONG_TOKENS]):
        return 0
    n = prefill_replicas(view)
    return nearest(view, gang_size(view, q, per_replica(view, own.params[PER_GPU]), n), found, 0, n, True)


def admit(view, own, q, r):
    if view.requests.in_place[q]:
        for m in range(len(view.replicas)):
            busy = has_short_work(view, m) or view.replicas.batch[m] > view.replicas.long_decodes[m]
            if (view.requests.gang_mask[q] >> m) & 1 and busy:
                return STOP
    return ADMIT
