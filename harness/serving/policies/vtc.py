"""Fair serving by a virtual token counter: the backlogged tenant with the least weighted service comes first.

Service is prompt tokens + ``output_weight`` x output tokens, counted as they are made. A tenant that comes back after having nothing to
do is lifted to the least counter of those that are active, so that idling earns nothing.
"""

from harness.jit import kernel
from harness.serving.routing import routed
from harness.serving.state import ENTERED, ROUTING

PARAMS = {"output_weight": 2.0}
OUTPUT_WEIGHT = 0
STATE = 1
COUNTED_AT = 0
TENANT_STATE = 2
LIFT, SERVED = 0, 1
DYNAMIC = True
COUPLED = True


@kernel
def count(view, own):
    """Counts the service of every tenant so far, that of requests still on a replica included."""
    tenants, requests, weight = view.tenants, view.requests, own.params[OUTPUT_WEIGHT]
    for t in range(len(tenants)):
        own.tenant_state[t, SERVED] = tenants.prompt[t] + weight * tenants.output[t]
    for r in range(len(view.replicas)):
        for i in range(view.replicas.batch[r]):
            q = view.members[r, i]
            own.tenant_state[requests.tenant[q], SERVED] += weight * (view.replicas.ordinal[r] - requests.since[q])
        for i in range(view.replicas.filling[r]):
            q = view.prefills[r, i]
            own.tenant_state[requests.tenant[q], SERVED] += requests.prompt[q]
    own.state[COUNTED_AT] = view.count[ENTERED] + 1


def route(view, own, q):
    mine = view.requests.tenant[q]
    if view.tenants.waiting[mine] == 1:
        count(view, own)
        least = -1.0
        for t in range(len(view.tenants)):
            counter = own.tenant_state[t, LIFT] + own.tenant_state[t, SERVED]
            if t != mine and view.tenants.waiting[t] and (least < 0.0 or counter < least):
                least = counter
        own.tenant_state[mine, LIFT] += max(0.0, least - own.tenant_state[mine, LIFT] - own.tenant_state[mine, SERVED])
    return routed(view, q, view.count[ROUTING])


def plan(view, own, r):
    count(view, own)


def key(view, own, q):
    if own.state[COUNTED_AT] != view.count[ENTERED] + 1:
        count(view, own)
    t = view.requests.tenant[q]
    return own.tenant_state[t, LIFT] + own.tenant_state[t, SERVED]
