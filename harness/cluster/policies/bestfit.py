"""BestFit (as FGD's authors compare with it) [code]: the server with least left of cores and GPUs after the placement.

Both count as shares of what the largest server has."""

from harness.cluster.packing import CLASS_SERVER_STATE as CLASS_SERVER_STATE
from harness.cluster.packing import MAX_CPU, MAX_GPU, asked_gpu, highest, largest_server
from harness.jit import inlined

prepare = largest_server


@inlined
def score(view, own, s, c):
    cpu = (view.servers.cpu[s] - view.classes.cpu[c]) / own.table[0, MAX_CPU]
    gpu = (view.servers.gpu[s] - asked_gpu(view, c)) / own.table[0, MAX_GPU]
    return int(100.0 * (1.0 - cpu / 2.0 - gpu / 2.0)), -1


def place(view, own, job):
    return highest(view, own, job, score)
