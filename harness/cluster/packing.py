"""What the packing policies share: the server with the highest integer score. specs/cluster-policies.md, FGD and the packing family.

A score is a function ``score(view, own, s, c)`` of a server ``s`` that fits an instance of class ``c``: it returns the score, and the GPU
for a fractional instance or -1. It may depend on what sits on the server and what the class asks for, and on nothing else: scores are
kept until the server changes, and servers of one shape on which nothing ever changed share them.
"""

import numpy as np

from harness.cluster.fit import NO_FIT, fits_server, on_gpu
from harness.cluster.preempt import next_draw
from harness.cluster.state import INSTANCE, SCOPE_FROM, SCOPE_TO, SEED, Array
from harness.jit import inlined, kernel, popcount
from harness.schema import MILLI

CLASS_SERVER_STATE = 3
VERSION, SCORE, GPU = 0, 1, 2
"""Columns of Own.class_server: 1 + the version of the server that it holds for, the score (-inf: does not fit), and the GPU."""

MAX_CPU, MAX_GPU = 0, 1
"""Columns of what ``largest_server`` returns."""


def largest_server(view, requests, cluster) -> Array:
    """Most core and GPU thousandths of one server, at least 1: f8 (1, 2)."""
    return np.array([[max(1, MILLI * view.shape_cores.sum(axis=1).max()), MILLI * max(1, view.shapes.gpus.max())]], float)


@inlined
def highest(view, own, job, score):
    """The server in scope with the highest ``score`` that fits an instance of ``job``, as ``place`` returns it. Ties: lowest index."""
    c = view.jobs.klass[job]
    known = own.class_server[c]
    best, most = NO_FIT, -np.inf
    for s in range(view.count[SCOPE_FROM], view.count[SCOPE_TO]):
        version = view.version[s] + 1.0
        if known[s, VERSION] != version:
            at = s if view.version[s] else len(view.servers) + view.servers.shape_id[s]
            if known[at, VERSION] != version:
                known[at, VERSION], known[at, SCORE] = version, -np.inf
                if fits_server(view, s, c):
                    known[at, SCORE], known[at, GPU] = score(view, own, s, c)
            known[s, VERSION], known[s, SCORE], known[s, GPU] = version, known[at, SCORE], known[at, GPU]
        if known[s, SCORE] > most:
            best, most = s, known[s, SCORE]
    if best >= 0 and view.classes.milli[c] < MILLI and known[best, GPU] >= 0.0:
        return on_gpu(best, int(known[best, GPU]))
    return best


@inlined
def free_gpu(view, s):
    """Wholly free GPUs of server ``s``."""
    return popcount(view.servers.free[s])


@inlined
def asked_gpu(view, c):
    """GPU thousandths that an instance of class ``c`` asks for."""
    return view.classes.gpus[c] * view.classes.milli[c]


@kernel
def draw_for(view, number):
    """State of the generator of a random placement: a pure function of the seed, the instance, and a number that tells jobs apart."""
    x = (1000003 * view.count[SEED] + 7919 * number + 104729 * view.count[INSTANCE] + 12345) % 2147483647
    return next_draw(x * x % 2147483646 + 1)
