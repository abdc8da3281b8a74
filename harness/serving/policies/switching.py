"""Several models on one GPU (arXiv 2605.19593, secondary notes): when to put another one in the place of the one that is loaded.

Another model is loaded when the loaded one has nothing to do, or when a request of another has waited for ``patience_s``, or with
``rule=penalty`` for ``patience_penalties`` times what loading its model costs, so that a slow switch is made more rarely. With
pool.offload the models stay loaded, partly on the host, and take turns of ``turn_s``.
"""

from harness.serving.state import NOBODY, NOW, OFFLOADED

PARAMS = {"rule": ("patience", "penalty", "drain"), "patience_s": 10.0, "patience_penalties": 3.0, "turn_s": 0.2}
RULE, PATIENCE_S, PENALTIES, TURN_S = 0, 1, 2, 3
PATIENCE, PENALTY, DRAIN = 0, 1, 2
REPLICA_STATE = 1
SINCE = 0
PERIOD_S = 0.2


def key(view, own, q):
    return view.requests.arrival[q]


def switch(view, own, r):
    requests, replicas = view.requests, view.replicas
    loaded, now, other, mine = replicas.model[r], view.clock[NOW], NOBODY, replicas.batch[r] + replicas.filling[r]
    q = view.queues.head[r]
    while q >= 0:
        if requests.service[q] == loaded:
            mine += 1
        elif other < 0:
            other = q
        q = requests.behind[q]
    if other < 0:
        return loaded
    patience = own.params[PATIENCE_S]
    if view.count[OFFLOADED]:
        patience = own.params[TURN_S]
    elif own.params[RULE] == PENALTY:
        patience = own.params[PENALTIES] * view.models.switch_s[requests.service[other]]
    elif own.params[RULE] == DRAIN:
        patience = 1e18
    waited = now - max(requests.arrival[other], own.replica_state[r, SINCE])
    if mine == 0 or waited >= patience:
        own.replica_state[r, SINCE] = now
        return requests.service[other]
    return loaded
