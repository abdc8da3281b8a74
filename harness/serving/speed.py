"""Seconds of a step, or of an operation, from a table of coefficients: every step-time model is rows of it (see models.py).

A step has ten features: one, whether it prefills, whether it decodes, prompts in it, prompt tokens, pairs of a prompt token and a token
it attends to, tokens prefilled in earlier chunks, decode members, tokens in their KV caches, and the largest KV cache in the batch.
Its time is max(first . features, second . features) + third . features, with other coefficients from a decode batch of ``limit`` on.
"""

from harness.jit import inlined

ONE, HAS_PREFILL, HAS_DECODE, PROMPTS, TOKENS, PAIRS, PAST, MEMBERS, CONTEXT, LARGEST = range(10)
FEATURES = 10


@inlined
def step_s(coef, limit, row, prompts, tokens, pairs, past, members, context, largest):
    """Seconds of a step with these features."""
    h = 1 if members >= limit[row] else 0
    prefills, decodes = 1.0 if prompts else 0.0, 1.0 if members else 0.0
    most, sum_ = 0.0, 0.0
    for part in range(3):
        sum_ = (coef[row, h, part, ONE] + coef[row, h, part, HAS_PREFILL] * prefills + coef[row, h, part, HAS_DECODE] * decodes
                + coef[row, h, part, PROMPTS] * prompts + coef[row, h, part, TOKENS] * tokens + coef[row, h, part, PAIRS] * pairs
                + coef[row, h, part, PAST] * past + coef[row, h, part, MEMBERS] * members + coef[row, h, part, CONTEXT] * context
                + coef[row, h, part, LARGEST] * largest)
        if part < 2:
            most = max(most, sum_)
    return most + sum_


@inlined
def prefill_s(view, model, gang, tokens):
    """Seconds to prefill a whole prompt of ``tokens`` on ``gang`` replicas, on the fastest links, with nothing beside it."""
    return step_s(view.coef, view.limit, view.row[model, gang], 1, tokens, 0.5 * tokens * tokens, 0, 0, 0, tokens)
