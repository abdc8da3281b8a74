"""Sand, pebbles and rocks (RPS / TCM-Serve [code]): classes by estimated prefill time, whose priority grows with age at different speeds.

priority = -ln(w [1 - exp(-k boost age^p) + offset]), smaller first, with (p, k, offset) = 3.5, .05, .1 / 2.5, .003, .05 / 1.1, .00075, 0.
Where the classes begin (``pebbles_s``, ``rocks_s``) is ours.
"""

import numpy as np

from harness.serving.speed import prefill_s
from harness.serving.state import NOW

PARAMS = {"pebbles_s": 0.25, "rocks_s": 1.0, "boost": 1.0, "w": 1.0}
PEBBLES_S, ROCKS_S, BOOST, W = 0, 1, 2, 3
DYNAMIC = True


def key(view, own, q):
    seconds = prefill_s(view, view.requests.service[q], 1, view.requests.prompt[q])
    p, k, offset = 3.5, 0.05, 0.1
    if seconds >= own.params[ROCKS_S]:
        p, k, offset = 1.1, 0.00075, 0.0
    elif seconds >= own.params[PEBBLES_S]:
        p, k, offset = 2.5, 0.003, 0.05
    age = view.clock[NOW] - view.requests.arrival[q]
    return -np.log(own.params[W] * (1.0 - np.exp(-k * own.params[BOOST] * age**p) + offset))
