"""Fragmentation and power over time, and against the load that has arrived. specs/cluster-policies.md, FGD and PWR."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from harness import schema
from harness.cluster.fragmentation import typical_of, walk
from harness.cluster.outcome import Outcome
from harness.cluster.power import gpu_watts
from harness.cluster.state import Array
from harness.metrics.jobs import gpus_of
from harness.metrics.utilization import last_attempts
from harness.schema import MILLI
from harness.topology import Cluster

BEGIN, FINISH, START, LOOK = 0, 1, 2, 3
JOULES_PER_KWH = 3.6e6


class History(NamedTuple):
    """What happened to single instances, and when: arrays (n,) in order of time.

    ``change`` is BEGIN (the empty cluster at 0), FINISH, START, or LOOK: the arrival of a job, once nothing more happens to it at that
    instant. After it, of the whole cluster: ``gpu`` thousandths in use, ``fragments`` (F, in the same), and ``watts``.
    """

    time: Array
    change: Array
    gpu: Array
    fragments: Array
    watts: Array


def history(outcome: Outcome, cluster: Cluster) -> History:
    """What running jobs hold is in use; what is held in grace, or claimed, counts as free. At one instant finishes come first."""
    state, log = outcome.state, outcome.log
    jobs, classes, instances = state.jobs, state.classes, state.instances
    evicted, (last, stop) = log.attempts[:log.size[2]], last_attempts(outcome)
    job = np.append(evicted[:, 0].astype(np.int64), last)
    since, until = np.append(evicted[:, 1], jobs.start[last]), np.append(evicted[:, 2], stop)
    sits = np.repeat(jobs.first_instance[last], classes.instances[jobs.klass[last]])
    sits += np.arange(len(sits)) - np.repeat(*_offsets(classes.instances[jobs.klass[last]]))
    server = np.append(log.seats[:log.size[4], 0], instances.server[sits])
    gpus = np.append(log.seats[:log.size[4], 1], instances.gpus[sits])
    klass = np.repeat(jobs.klass[job], classes.instances[jobs.klass[job]])
    since, until = (np.repeat(times, classes.instances[jobs.klass[job]]) for times in (since, until))

    n, looks = len(klass), len(jobs)
    time = np.concatenate([until, since, jobs.submit, [0.0]])
    change = np.repeat([FINISH, START, LOOK, BEGIN], [n, n, looks, 1])
    order = np.lexsort((change, time))
    none = np.zeros(looks + 1, np.int64)
    server = np.concatenate([server, server, none - 1])[order]
    gpus = np.concatenate([gpus, gpus, none])[order]
    sign = np.where(change == FINISH, -1, 1)[order]
    milli = np.concatenate([classes.milli[klass], classes.milli[klass], none])[order] * sign
    cores = np.concatenate([classes.cpu[klass], classes.cpu[klass], none])[order] * sign
    fragments, watts = np.zeros(len(order)), np.zeros(len(order))
    table = typical_of(state, outcome.trace.take(pa.array(outcome.order)))
    cpu = MILLI * state.shape_cores.sum(axis=1)[state.servers.shape_id]
    walk(table, np.ascontiguousarray(state.servers.shape_id), np.ascontiguousarray(state.shapes.gpus), gpu_watts(cluster), cpu, server,
         gpus, milli, cores, fragments, watts)
    held = np.concatenate([classes.gpus[klass], classes.gpus[klass], none])[order] * milli
    return History(time[order], change[order], np.cumsum(held), fragments, watts)


def arrivals_table(outcome: Outcome, found: History) -> pa.Table:
    """schema.ARRIVALS: one row for each job in order of arrival."""
    looks = found.change == LOOK
    total = max(1, int(outcome.state.shapes.gpus[outcome.state.servers.shape_id].sum()))
    shares = np.cumsum(gpus_of(outcome.state)), found.gpu[looks] / MILLI, found.fragments[looks] / MILLI
    columns = [*(pa.array(share / total) for share in shares), pa.array(found.watts[looks])]
    return pa.table(columns, schema=schema.arrow_schema(schema.ARRIVALS))


def with_fragmentation(utilization: pa.Table, outcome: Outcome, found: History) -> pa.Table:
    """The utilization table with the mean over each interval of F / free GPUs, 0 where none is free, as a further column."""
    free = MILLI * int(outcome.state.shapes.gpus[outcome.state.servers.shape_id].sum()) - found.gpu
    share = np.divide(found.fragments, free, out=np.zeros(len(free)), where=free > 0)
    width = utilization["t_end"].to_numpy() - utilization["t_start"].to_numpy()
    return utilization.append_column(schema.arrow_schema(schema.FRAGMENTATION)[0], pa.array(_areas(utilization, found, share) / width))


def with_energy(utilization: pa.Table, found: History) -> pa.Table:
    """The utilization table with the energy of each interval as a further column."""
    joules = _areas(utilization, found, found.watts)
    return utilization.append_column(schema.arrow_schema(schema.ENERGY)[0], pa.array(joules / JOULES_PER_KWH))


def _areas(utilization: pa.Table, found: History, values: Array) -> Array:
    """Integrals of ``values``, one after each change, over the intervals of the table."""
    area = np.append(0.0, np.cumsum(values[:-1] * np.diff(found.time)))

    def until(name: str) -> Array:
        time = utilization[name].to_numpy()
        at = np.searchsorted(found.time, time, side="right") - 1
        return area[at] + values[at] * (time - found.time[at])

    return until("t_end") - until("t_start")


def _offsets(lengths: Array) -> tuple[Array, Array]:
    """Where each of consecutive runs of these lengths begins, and the lengths."""
    return np.cumsum(lengths) - lengths, lengths
