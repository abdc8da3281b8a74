"""Long requests on gangs of replicas: what PecSched and the policies it is compared with share (arXiv 2409.15104). All are read-only."""

from harness.jit import inlined, kernel
from harness.serving.lifecycle import blocks_for
from harness.serving.routing import pending_tokens
from harness.serving.state import DECODE

KV_SHARE = 0.8
"""Of a replica's KV blocks, the most that one long request may reserve, so that short ones still find room."""


@inlined
def is_long(view, q, long_tokens):
    """Whether the prompt is long; those are prefilled by gangs."""
    return view.requests.prompt[q] >= long_tokens


@inlined
def per_replica(view, tokens_per_gpu):
    """Prompt tokens for which a gang has one replica."""
    return tokens_per_gpu * view.replicas.gpus[0]


@kernel
def gang_size(view, q, tokens_per_replica, most):
    """Replicas for a long request: enough for its KV cache, and one for each ``tokens_per_replica`` of its prompt; ``most`` at most."""
    prompt = view.requests.prompt[q]
    k = int((prompt + tokens_per_replica - 1) // tokens_per_replica)
    while k < most and blocks_for(view, (prompt + k - 1) // k) > KV_SHARE * view.replicas.blocks[0]:
        k += 1
    return min(max(k, 1), most)


@kernel
def nearest(view, k, found, first, last, share_replicas):
    """Fills ``found`` with ``k`` of the replicas first .. last - 1, on few servers, the least loaded first; the number found.

    ``share_replicas``: replicas with another gang before it count too, by the tokens that wait there; else only those whose gangs are all
    prefilled do. Servers with more of them come first, then those with fewer waiting tokens.
    """
    replicas = view.replicas
    n = 0
    while n < k:
        best, best_free, best_tokens = -1, 0, 0
        for r in range(first, last):
            if not _open(view, found, n, r, share_replicas) or (best >= 0 and replicas.server[r] == replicas.server[best]):
                continue
            free, tokens = 0, 0
            for m in range(first, last):
                if replicas.server[m] == replicas.server[r] and _open(view, found, n, m, share_replicas):
                    free += 1
                    tokens += waiting_tokens(view, m)
            free = min(free, k - n)
            if best < 0 or free > best_free or (free == best_free and tokens < best_tokens):
                best, best_free, best_tokens = r, free, tokens
        if best < 0:
            break
        server = replicas.server[best]
        for _ in range(best_free):
            least, tokens = -1, 0
            for m in range(first, last):
                if replicas.server[m] == server and _open(view, found, n, m, share_replicas):
                    if least < 0 or waiting_tokens(view, m) < tokens:
                        least, tokens = m, waiting_tokens(view, m)
            found[n] = least
            n += 1
    return n


@inlined
def _open(view, found, n, r, share_replicas):
    """Whether replica ``r`` can still be taken."""
    if view.replicas.role[r] == DECODE or (view.replicas.long[r] >= 0 and not share_replicas):
        return False
    for i in range(n):
        if found[i] == r:
            return False
    return True


@inlined
def waiting_tokens(view, r):
    """Tokens to prefill on replica ``r``, the shares of its gangs included."""
    return pending_tokens(view, r) + view.replicas.long_tokens[r]


@inlined
def has_short_work(view, r):
    """Whether replica ``r`` has short requests waiting or in prefill."""
    op = view.replicas.op[r]
    return view.queues.waiting[r] > 0 or (op >= 0 and not view.requests.in_place[op])


@kernel
def shortest(view, first, last):
    """The replica among first .. last - 1 with the fewest tokens to prefill; the lowest of equals."""
    best, least = -1, 0
    for r in range(first, last):
        if view.replicas.role[r] != DECODE and (best < 0 or waiting_tokens(view, r) < least):
            best, least = r, waiting_tokens(view, r)
    return best


@kernel
def prefill_replicas(view):
    """Number of the replicas that prefill; they come first."""
    n = 0
    for r in range(len(view.replicas)):
        n += view.replicas.role[r] != DECODE
    return n
