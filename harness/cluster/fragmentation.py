"""FGD's fragmentation measure (ATC'23): free GPUs that the typical instance could not use. specs/cluster-policies.md, FGD.

For a server with T free GPU thousandths, F = sum over the typical classes m of share_m * frag_m. frag_m is T when the server cannot hold an
instance of m: m has no GPU, the model is not allowed, fewer than its GPUs have the share it asks for, or cores are short. Else it is the
sum of the free parts of GPUs that are smaller than that share.
"""

from math import exp

import numpy as np
import pyarrow as pa

from harness.cluster.build import Requests
from harness.cluster.fit import free_share, share_fits
from harness.cluster.power import cpu_watts
from harness.cluster.state import Array, View
from harness.jit import entry, inlined, kernel
from harness.schema import MILLI
from harness.topology import Cluster

TYPICAL = 0.95
"""Share of the instances that the typical classes cover."""

STATE, SERVER_STATE = 64, 2
"""What a policy that calls ``least_growth`` must have: scratch for the free thousandths of each GPU; and by server:"""

KNOWN, BEFORE = 0, 1
"""the version for which F is known, plus 1, and F."""

SHARE, CPU, GPUS, REQUEST, LIMIT, FITTING, SMALL, ALLOWED = 0, 1, 2, 3, 4, 5, 6, 7
"""Rows of a table of typical classes: share of the instances, core thousandths, GPUs, column of the share of a GPU it asks for in LIMIT;
the distinct shares in thousandths, ascending, then inf, and scratch for each: GPUs that have it, and thousandths of those that do not;
from ALLOWED on, for each shape, whether its model is allowed."""


def typical_classes(view: View, requests: Requests, cluster: Cluster | None = None) -> Array:
    """The table (ALLOWED + K, M) of the M typical classes of a trace, of which ``requests`` are the classes.

    Typical classes agree in cores, GPUs, share of each GPU and allow-list. The most frequent are taken until they cover TYPICAL of all
    instances; ties by cores, share, GPUs and list, the larger first.
    """
    asks, counts = requests.columns(), {}
    for c, key in enumerate(zip(asks["cpus"], asks["gpu_milli"], asks["gpus"], asks["gpu_model"], strict=True)):
        cpus, milli, gpus, models = key
        found = counts.setdefault((cpus, milli if gpus else 0, gpus, models or ""), [0, c])
        found[0] += int(requests.jobs[c]) * asks["instances"][c]
    ranked = sorted(((n, *key, c) for key, (n, c) in counts.items() if n), reverse=True)
    covered = np.cumsum([row[0] for row in ranked])
    ranked = ranked[:int(np.searchsorted(covered, TYPICAL * covered[-1])) + 1] if ranked else []
    limits = sorted({row[2] for row in ranked})
    table, klass = np.zeros((ALLOWED + len(view.shapes), len(ranked))), np.array([row[5] for row in ranked], np.int64)
    table[SHARE] = np.array([row[0] for row in ranked]) / sum(row[0] for row in ranked)
    table[GPUS] = [row[3] for row in ranked]
    table[REQUEST] = [limits.index(row[2]) for row in ranked]
    table[LIMIT] = np.inf
    table[LIMIT, :len(limits)] = limits
    table[CPU] = view.classes.cpu[klass]
    table[ALLOWED:] = view.on_shape.allowed[klass].T
    return table


def typical_of(view: View, trace: pa.Table) -> Array:
    """``typical_classes`` of ``trace``, whose rows are in the order of the jobs of ``view``."""
    requests = Requests()
    requests.number(trace)
    return typical_classes(view, requests)


@kernel
def fragments(table, k, cpu, gpu, gpus):
    """F, in GPU thousandths, of a server of shape ``k`` with ``cpu`` core thousandths free and gpu[:gpus] thousandths of each GPU.

    ``table`` is that of ``typical_classes``. Parts are summed by what is short, in the order of the classes, as the authors' code does:
    which of two equal scores wins can depend on the last bit.
    """
    free = 0.0
    for g in range(gpus):
        free += gpu[g]
    limit = 0
    while limit < table.shape[1] and table[LIMIT, limit] <= MILLI:
        fitting, small = 0.0, 0.0
        for g in range(gpus):
            if gpu[g] >= table[LIMIT, limit]:
                fitting += 1.0
            else:
                small += gpu[g]
        table[FITTING, limit], table[SMALL, limit] = fitting, small
        limit += 1
    no_both, no_gpu, no_cpu, gpuless, gpuless_no_cpu, no_access = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for m in range(table.shape[1]):
        part = table[SHARE, m] * free
        has_cpu = cpu >= table[CPU, m]
        if table[GPUS, m] == 0.0:
            if has_cpu:
                gpuless += part
            else:
                gpuless_no_cpu += part
        elif table[ALLOWED + k, m] == 0.0:
            no_access += part
        else:
            limit = int(table[REQUEST, m])
            if table[FITTING, limit] >= table[GPUS, m]:
                if has_cpu:
                    no_gpu += table[SHARE, m] * table[SMALL, limit]
                else:
                    no_cpu += part
            elif has_cpu:
                no_gpu += part
            else:
                no_both += part
    return no_both + no_gpu + no_cpu + gpuless + gpuless_no_cpu + no_access


@inlined
def rating(decrease):
    return int(100.0 * (1.0 / (1.0 + exp(-decrease / MILLI))))


@inlined
def is_equal_to_an_earlier(view, s, g, c, gpu):
    for earlier in range(g):
        if gpu[earlier] == gpu[g] and share_fits(view, s, earlier, c):
            return True
    return False


@inlined
def least_growth(view, own, s, c):
    """A score of harness.cluster.packing: of server ``s`` for an instance of class ``c`` that fits it, and the GPU for a share, else -1.

    100 times the sigmoid of the decrease of F in GPUs, truncated; of the GPUs the one with the highest score, lowest index on ties.
    ``own.table`` is that of ``typical_classes``.
    """
    k, gpu, milli = view.servers.shape_id[s], own.state, view.classes.milli[c]
    gpus, cpu = view.shapes.gpus[k], view.servers.cpu[s]
    for g in range(gpus):
        gpu[g] = free_share(view, s, g)
    if own.server_state[s, KNOWN] != view.version[s] + 1:
        own.server_state[s, KNOWN] = view.version[s] + 1
        own.server_state[s, BEFORE] = fragments(own.table, k, cpu, gpu, gpus)
    before, after_cpu = own.server_state[s, BEFORE], cpu - view.classes.cpu[c]
    if milli == MILLI:
        left = view.classes.gpus[c]
        for g in range(gpus):
            if left > 0 and gpu[g] == MILLI:
                gpu[g] = 0
                left -= 1
        return rating(before - fragments(own.table, k, after_cpu, gpu, gpus)), -1
    best, chosen = -1, -1
    for g in range(gpus):
        if not share_fits(view, s, g, c) or is_equal_to_an_earlier(view, s, g, c, gpu):
            continue
        gpu[g] -= milli
        rated = rating(before - fragments(own.table, k, after_cpu, gpu, gpus))
        gpu[g] += milli
        if rated > best:
            best, chosen = rated, g
    return best, chosen


@entry
def walk(table, shape_of, shape_gpus, watts, cpu, server, gpus, milli, cores, fragmented, power):
    """Carries out n changes of who holds what on an empty cluster; writes F of all servers after each, in GPU thousandths, to
    ``fragmented`` (n,), and their watts to ``power`` (n,).

    ``shape_of`` (S,), ``shape_gpus`` (K,), ``watts`` (K, 2): shape of each server; GPUs, and idle and full watts of one, of each shape;
    ``cpu`` (S,): core thousandths of each server. Change i takes ``milli[i]`` of each GPU in the mask ``gpus[i]`` and ``cores[i]`` core
    thousandths of server ``server[i]``, or gives them back where these are negative; -1 changes nothing. All (n,).
    """
    gpu = np.full((len(shape_of), max(1, shape_gpus.max())), float(MILLI))
    free, of_server, watts_of_server = cpu.copy(), np.zeros(len(shape_of)), np.zeros(len(shape_of))
    whole, whole_watts = 0.0, 0.0
    for i in range(-len(shape_of), len(server)):
        s = i + len(shape_of) if i < 0 else server[i]
        if s >= 0:
            k = shape_of[s]
            if i >= 0:
                free[s] -= cores[i]
            draws = cpu_watts(cpu[s] - free[s], free[s])
            for g in range(shape_gpus[k]):
                if i >= 0 and gpus[i] >> g & 1:
                    gpu[s, g] -= milli[i]
                draws += watts[k, 0] if gpu[s, g] == MILLI else watts[k, 1]
            whole -= of_server[s]
            whole_watts += draws - watts_of_server[s]
            of_server[s], watts_of_server[s] = fragments(table, k, free[s], gpu[s], shape_gpus[k]), draws
            whole += of_server[s]
        if i >= 0:
            fragmented[i], power[i] = whole, whole_watts
