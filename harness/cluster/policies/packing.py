"""Packing (as FGD's authors compare with it) [code]: partly used GPUs, then free ones of servers in use, then unused servers."""

from harness.cluster.fit import free_share
from harness.cluster.packing import CLASS_SERVER_STATE as CLASS_SERVER_STATE
from harness.cluster.packing import free_gpu, highest
from harness.jit import inlined
from harness.schema import MILLI


@inlined
def score(view, own, s, c):
    gpus, free = view.shapes.gpus[view.servers.shape_id[s]], free_gpu(view, s)
    if view.classes.gpus[c] == 0:
        return 0, -1
    if free == gpus:
        return max(33 - gpus, gpus), -1
    tightest = MILLI
    if view.classes.milli[c] < MILLI:
        for g in range(gpus):
            share = free_share(view, s, g)
            if view.classes.milli[c] <= share < tightest:
                tightest = share
    if tightest == MILLI:
        return max(50 - view.classes.gpus[c], 33), -1
    return max(100 - 100 * tightest // MILLI // 10, 50), -1


def place(view, own, job):
    return highest(view, own, job, score)
