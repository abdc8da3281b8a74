"""PWR + FGD (arXiv 2412.17484) [code]: the server that draws least more watts, weighed against the one on which fragmentation grows least.

Watts before minus after are scaled to 0 (worst) .. 100 (best) over the servers that fit; power : 1000 - power are the weights. 1000 is PWR,
0 is FGD. FGD chooses the GPU for a share, PWR alone takes the first that draws least (a reading: the paper does not say).
"""

import numpy as np

from harness.cluster.fit import NO_FIT, fits_server, free_share, on_gpu, share_fits
from harness.cluster.fragmentation import ALLOWED, least_growth, typical_classes
from harness.cluster.fragmentation import SERVER_STATE as SERVER_STATE
from harness.cluster.fragmentation import STATE as STATE
from harness.cluster.power import cpu_watts, gpu_watts
from harness.cluster.state import SCOPE_FROM, SCOPE_TO
from harness.jit import inlined, total
from harness.schema import MILLI

PARAMS = {"power": 100.0}
POWER = 0
CLASS_SERVER_STATE = 5
VERSION, WATTS, GROWTH, FGD_GPU, PWR_GPU = 0, 1, 2, 3, 4


def prepare(view, requests, cluster):
    """The table of FGD, and below it, for each shape, what a GPU draws more in use (in every column)."""
    typical, more = typical_classes(view, requests), np.diff(gpu_watts(cluster))
    return np.vstack([typical, np.repeat(more, typical.shape[1], axis=1)])


@inlined
def saving(view, own, s, c):
    """Watts before minus after, and the first GPU for a share that draws least more, else -1."""
    k = view.servers.shape_id[s]
    more = own.table[ALLOWED + len(view.shapes) + k, 0]
    free, chosen = view.servers.cpu[s], -1
    busy = MILLI * total(view.shape_cores[k]) - free
    gpu = view.classes.gpus[c] * more
    if view.classes.milli[c] < MILLI:
        for g in range(view.shapes.gpus[k]):
            if share_fits(view, s, g, c) and (chosen < 0 or (gpu > 0.0 and free_share(view, s, g) < MILLI)):
                chosen, gpu = g, 0.0 if free_share(view, s, g) < MILLI else more
    need = view.classes.cpu[c]
    return cpu_watts(busy, free) - cpu_watts(busy + need, free - need) - gpu, chosen


def place(view, own, job):
    c = view.jobs.klass[job]
    known = own.class_server[c]
    low, high = view.count[SCOPE_FROM], view.count[SCOPE_TO]
    least, most = np.inf, -np.inf
    for s in range(low, high):
        if known[s, VERSION] != view.version[s] + 1.0:
            known[s, VERSION], known[s, WATTS] = view.version[s] + 1.0, np.nan
            if fits_server(view, s, c):
                known[s, WATTS], known[s, PWR_GPU] = saving(view, own, s, c)
                known[s, GROWTH], known[s, FGD_GPU] = least_growth(view, own, s, c)
        if not np.isnan(known[s, WATTS]):
            least, most = min(least, known[s, WATTS]), max(most, known[s, WATTS])
    best, highest = NO_FIT, -1.0
    power = own.params[POWER]
    for s in range(low, high):
        if not np.isnan(known[s, WATTS]):
            scaled = 100.0 if least == most else float(int((known[s, WATTS] - least) * 100.0 / (most - least)))
            score = power * scaled + (1000.0 - power) * known[s, GROWTH]
            if score > highest:
                best, highest = s, score
    if best < 0 or view.classes.milli[c] == MILLI:
        return best
    return on_gpu(best, int(known[best, PWR_GPU if power == 1000.0 else FGD_GPU]))
