"""Where a request goes: the rules a policy's ``route`` and ``hand`` may use. All are read-only; ties go to the lowest replica.

Replicas that only decode, are not there or drain are never chosen by a rule for prompts, and those with another model loaded only if no
other is left.

``prefix`` takes the replica with the fewest tokens to compute before the first one of the request: those pending there, and its own that
the prefix store of the replica has not. It is the cache-aware dispatch of Mooncake's conductor (FAST'25), in tokens instead of seconds;
the most cached blocks alone would send all prompts that share a first block to one replica. Pending requests count whole, here and
in every other rule: what the store will spare them is known when they begin.
"""

from harness.jit import inlined, kernel
from harness.serving.lifecycle import blocks_for, cached
from harness.serving.prefix import stored
from harness.serving.speed import prefill_s, step_s
from harness.serving.state import BATCH, CHUNK, DECODE, HOLD, NOW, WHOLE

SHORTEST_QUEUE, ROUND_ROBIN, FEWEST_TOKENS, LEAST_KV, BLOCKS, PREDICTIVE, PREFIX = range(7)
ROUTING = ("shortest_queue", "round_robin", "fewest_tokens", "least_kv", "blocks", "predictive", "prefix")
"""Words of a policy's parameter ``routing``; the first is the default. ``routed`` takes the index into this tuple."""


@inlined
def pending_tokens(view, r):
    """Tokens of replica ``r`` still to be prefilled: those in its queue, and those of its prefill members."""
    return view.queues.tokens[r] + view.replicas.filling_tokens[r]


@inlined
def present(view, r):
    """Requests on replica ``r``: waiting, in prefill or in the decode batch."""
    replicas = view.replicas
    return view.queues.waiting[r] + replicas.filling[r] + replicas.batch[r] + (replicas.op[r] >= 0)


@kernel
def predicted_ttft(view, r, q):
    """Seconds until request ``q`` would make its first token on replica ``r``, from a snapshot: the prompts before it are prefilled in
    order, in chunks beside the present decode batch (or whole), after the present step or operation.

    Block-style predictive dispatch simulates the same on each replica.
    """
    replicas, now = view.replicas, view.clock[NOW]
    model, prompt = view.requests.service[q], view.requests.prompt[q]
    ahead = pending_tokens(view, r)
    wait = max(view.due[r] - now, 0.0) if replicas.busy[r] else 0.0
    op = replicas.op[r]
    if op >= 0:
        wait += max(view.requests.due[op] - now, 0.0)
    if view.count[WHOLE]:
        return wait + (prefill_s(view, model, 1, ahead) if ahead else 0.0) + prefill_s(view, model, 1, prompt)
    batch = replicas.batch[r]
    steps = (ahead + prompt + view.count[CHUNK] - batch - 1) // (view.count[CHUNK] - batch)
    chunk = (ahead + prompt) / steps
    one = step_s(view.coef, view.limit, view.row[model, 1] + replicas.link[r], 1, chunk, chunk * 0.5 * prompt, 0.5 * prompt, batch,
                 replicas.context[r] + batch, prompt)
    spare = replicas.blocks[r] - replicas.used[r] - blocks_for(view, ahead + prompt)
    full = replicas.batch[r] + view.queues.waiting[r] >= view.count[BATCH] or spare < 0
    return wait + steps * one * (10.0 if full else 1.0)


@inlined
def score(view, r, q, rule):
    """What the rule wants least of."""
    replicas = view.replicas
    if rule == SHORTEST_QUEUE:
        return 1.0 * present(view, r)
    if rule == FEWEST_TOKENS:
        return 1.0 * pending_tokens(view, r)
    if rule == PREFIX:
        return 1.0 * (pending_tokens(view, r) - stored(view, r, q))
    if rule == LEAST_KV:
        return replicas.used[r] / replicas.blocks[r]
    if rule == BLOCKS:
        return (replicas.used[r] + blocks_for(view, pending_tokens(view, r))) / max(1, replicas.batch[r])
    return predicted_ttft(view, r, q)


@kernel
def routed(view, q, rule):
    """Replica for the prompt of request ``q`` by the rule, an index into ROUTING; HOLD when there is none."""
    replicas = view.replicas
    able = 0
    for r in range(len(replicas)):
        able += (replicas.role[r] != DECODE) * replicas.accepts[r]
    turn = q % max(1, able)
    best, least, matches = HOLD, 0.0, False
    for r in range(len(replicas)):
        if replicas.role[r] == DECODE or not replicas.accepts[r]:
            continue
        if rule == ROUND_ROBIN:
            if turn == 0:
                return r
            turn -= 1
            continue
        same = replicas.model[r] == view.requests.service[q]
        value = score(view, r, q, rule)
        if best < 0 or (same and not matches) or (same == matches and value < least):
            best, least, matches = r, value, same
    return best


@kernel
def decoder(view, q):
    """Decode replica for a prefilled request: the fewest KV blocks in use, with as many as it needs itself for each request that waits
    there. Caches on the way are not counted until they arrive."""
    replicas = view.replicas
    best, least = -1, 0
    for r in range(len(replicas)):
        if replicas.role[r] == DECODE:
            load = replicas.used[r] + view.queues.waiting[r] * blocks_for(view, cached(view, q))
            if best < 0 or load < least:
                best, least = r, load
    return best
