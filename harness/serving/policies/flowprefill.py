"""FlowPrefill (arXiv 2602.16603) [code]: slack-aware earliest deadline first, with prefill paused in place between operators.

Needs pool.prefill=whole. slack = deadline - now - what is left of the prefill; requests with slack >= 0 by deadline, then the others. A new
head is alone when its prompt is ``alone_tokens`` or more or less than ``margin`` of its objective is left; else others join it in order,
without those that are too big, while that margin is kept. Decisions at arrivals and completions only. ``preemption=no`` is its ablation.
"""

from harness.jit import inlined, kernel
from harness.serving.speed import prefill_s
from harness.serving.state import ADMIT, NOW, PREFILLING, SKIP, STOP

PARAMS = {"alone_tokens": 2048.0, "margin": 0.1, "preemption": ("yes", "no")}
ALONE_TOKENS, MARGIN, PREEMPTION = 0, 1, 2
DYNAMIC = True
LATE = 1e12


@inlined
def remaining_s(view, q):
    """Seconds of prefill that ``q``, or the operation it heads, still needs."""
    requests = view.requests
    if requests.left[q] > 0.0:
        ran = view.clock[NOW] - requests.began[q] if requests.status[q] == PREFILLING else 0.0
        return max(requests.left[q] - ran, 0.0)
    return prefill_s(view, requests.service[q], 1, requests.target[q])


@kernel
def urgency(view, q):
    deadline = view.requests.arrival[q] + view.requests.ttft_slo[q]
    return deadline if deadline - view.clock[NOW] >= remaining_s(view, q) else LATE + deadline


def key(view, own, q):
    return urgency(view, q)


def interrupt(view, own, r, q):
    return own.params[PREEMPTION] == 0 and urgency(view, q) < urgency(view, view.replicas.op[r])


def admit(view, own, q, r):
    head = view.replicas.forming[r]
    if head < 0:
        return ADMIT
    requests, tokens = view.requests, view.replicas.forming_tokens[r]
    left = requests.arrival[head] + requests.ttft_slo[head] - view.clock[NOW]
    margin = own.params[MARGIN] * requests.ttft_slo[head]
    if requests.prompt[head] >= own.params[ALONE_TOKENS] or left < margin:
        return STOP
    if tokens + requests.prompt[q] > own.params[ALONE_TOKENS]:
        return SKIP
    if left - prefill_s(view, requests.service[q], 1, tokens + requests.prompt[q]) < margin:
        return STOP
    return ADMIT
