"""PecSched (arXiv 2409.15104): short requests preempt the prefill of long ones in place, and decode elsewhere.

A short request goes, in order, to a replica without a long one that is empty or stays within ``theta1`` tokens; to one where a long one
only
decodes, within ``theta2``; to one whose long prefill it preempts, the one whose gang then holds the fewest tokens. Else it waits in the
global queue, of which ``lookahead`` requests are tried at an instant (ours), so that a large prompt does not hold up small ones. A long
one runs while none of its replicas has short work.

Ablations: ``preemption=no``: short ones queue behind the long prefill instead; ``colocation=no``: no replica with a long decode takes short
ones; no disaggregation is ``pool.decode_replicas=0``, no fast sequence parallelism ``pool.sp=ring``.
"""

from harness.jit import kernel
from harness.serving.gangs import gang_size, has_short_work, is_long, nearest, per_replica, prefill_replicas
from harness.serving.routing import pending_tokens
from harness.serving.state import ADMIT, BLOCK, DECODE, HOLD, NOW, STOP

PARAMS = {"long_tokens": 50_000.0, "tokens_per_gpu": 20_000.0, "theta1": 4096.0, "theta2": 4096.0, "lookahead": 32.0,
          "preemption": ("yes", "no"), "colocation": ("yes", "no"), "decode_share": 0.125}
LONG_TOKENS, PER_GPU, THETA1, THETA2, LOOKAHEAD, PREEMPTION, COLOCATION = range(7)
STATE = 2
INSTANT, HELD_BACK = 0, 1
COUPLED = True


def key(view, own, q):
    return -1.0 if is_long(view, q, own.params[LONG_TOKENS]) else 1.0 * q


def gang(view, own, q, found):
    if not is_long(view, q, own.params[LONG_TOKENS]):
        return 0
    n = prefill_replicas(view)
    k = gang_size(view, q, per_replica(view, own.params[PER_GPU]), n)
    return k if nearest(view, k, found, 0, n, False) == k else HOLD


@kernel
def load(view, r):
    """Tokens waiting or in prefill on replica ``r``, without its gangs."""
    op = view.replicas.op[r]
    return pending_tokens(view, r) + (view.requests.prompt[op] if op >= 0 and not view.requests.in_place[op] else 0)


@kernel
def best_of(view, own, q, decoding, theta):
    """The least loaded replica without a long prefill that is empty or stays within ``theta``, with (or without) long decodes; else -1."""
    best, least = -1, 0
    for r in range(len(view.replicas)):
        if view.replicas.role[r] == DECODE or view.replicas.long[r] >= 0 or (view.replicas.long_decodes[r] > 0) != decoding:
            continue
        tokens = load(view, r)
        if (tokens == 0 or tokens + view.requests.prompt[q] <= theta) and (best < 0 or tokens < least):
            best, least = r, tokens
    return best


def route(view, own, q):
    r = best_of(view, own, q, False, own.params[THETA1])
    if r < 0 and own.params[COLOCATION] == 0:
        r = best_of(view, own, q, True, own.params[THETA2])
    if r >= 0:
        return r
    best, least = -1, 0
    for m in range(len(view.replicas)):
        long = view.replicas.long[m]
        if view.replicas.role[m] == DECODE or long < 0:
            continue
        tokens = load(view, m)
        if tokens > 0 and tokens + view.requests.prompt[q] > own.params[THETA1]:
            continue
        gang_tokens = 0
        for other in range(len(view.replicas)):
            if view.replicas.long[other] == long:
                gang_tokens += load(view, other)
        if best < 0 or gang_tokens < least:
            best, least = m, gang_tokens
    if best >= 0:
        return best
    if own.state[INSTANT] != view.clock[NOW]:
        own.state[INSTANT], own.state[HELD_BACK] = view.clock[NOW], 0.0
    own.state[HELD_BACK] += 1.0
    return HOLD if own.state[HELD_BACK] < own.params[LOOKAHEAD] else BLOCK


def interrupt(view, own, r, q):
    op = view.replicas.op[r]
    return own.params[PREEMPTION] == 0 and view.requests.in_place[op] == 1


def admit(view, own, q, r):
    requests = view.requests
    if requests.in_place[q]:
        for m in range(len(view.replicas)):
            if (requests.gang_mask[q] >> m) & 1 and has_short_work(view, m):
                return STOP
    return ADMIT
