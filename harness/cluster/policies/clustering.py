"""Clustering (as FGD's authors compare with it) [code]: like with like, by the number of GPUs that an instance asks for.

Instances with a share of a GPU are one group. The fuller server goes first among equals."""

from harness.cluster.packing import CLASS_SERVER_STATE as CLASS_SERVER_STATE
from harness.cluster.packing import MAX_GPU, highest, largest_server
from harness.jit import inlined
from harness.schema import MILLI

prepare = largest_server


@inlined
def group(view, c):
    """0 for a share of a GPU, else the number of GPUs."""
    return view.classes.gpus[c] if view.classes.milli[c] == MILLI else 0


@inlined
def score(view, own, s, c):
    if view.classes.gpus[c] == 0:
        return 0, -1
    mine, others = False, False
    i = view.servers.first[s]
    while i >= 0:
        d = view.jobs.klass[view.instances.job[i]]
        if view.classes.gpus[d] > 0:
            same = group(view, d) == group(view, c)
            mine, others = mine or same, others or not same
        i = view.instances.next[i]
    alike = 75 if mine and not others else 50 if mine else 0 if others else 25
    used = own.table[0, MAX_GPU] - view.servers.gpu[s]
    return int(25.0 * used / own.table[0, MAX_GPU]) + alike, -1


def place(view, own, job):
    return highest(view, own, job, score)
