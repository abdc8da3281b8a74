"""Simulation libraries on the same jobs, where they are installed. The models here only count GPUs, which is less than the harness does."""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from harness.bench.bare import fifo_by_count
from harness.bench.replays import best, cluster_of, columns, common_trace, seconds, timed
from harness.bench.rows import Row
from harness.bench.sizes import Sizes
from harness.cluster.state import Array

SERVERS = 64
"""Of T1."""


def simpy_fifo(submit: Array, duration: Array, gpus: Array, capacity: int) -> Array:
    """Waits (jobs,) in s under strict FIFO: a process for each job, a Container of GPUs, whose first getter blocks the others."""
    simpy = import_module("simpy")
    env = simpy.Environment()
    pool = simpy.Container(env, capacity, init=capacity)
    wait = np.zeros(len(submit))

    def job(i: int, runs: float, needs: int):
        came = env.now
        yield pool.get(needs)
        wait[i] = env.now - came
        yield env.timeout(runs)
        yield pool.put(needs)

    def arrivals():
        for i, (at, runs, needs) in enumerate(zip(submit.tolist(), duration.tolist(), gpus.tolist(), strict=True)):
            if at > env.now:
                yield env.timeout(at - env.now)
            env.process(job(i, runs, needs))

    env.process(arrivals())
    env.run()
    return wait


def ciw_fifo(submit: Array, duration: Array, capacity: int) -> Array:
    """Waits (jobs,) in s, in order of arrival, when every job takes one of ``capacity`` servers: Ciw has no larger customers."""
    ciw = import_module("ciw")
    gaps = np.diff(submit, prepend=0.0).tolist()
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*gaps, float("inf")])],
        service_distributions=[ciw.dists.Sequential(duration.tolist())],
        number_of_servers=[capacity])
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(len(submit))
    records = sorted(simulation.get_all_records(), key=lambda record: record.id_number)
    return np.array([record.waiting_time for record in records])


def bare_fifo(submit: Array, duration: Array, gpus: Array, capacity: int) -> Array:
    """Waits (jobs,) in s of the bare compiled loop."""
    start = np.empty(len(submit))
    fifo_by_count(submit, duration, gpus, capacity, start)
    return start - submit


def peers(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Jobs per second on T1: the harness with its topology state, then each library that can be imported."""
    trace, cluster = common_trace(sizes.peer_jobs, SERVERS), cluster_of("flat", SERVERS)
    runs = [timed(trace, cluster) for _ in range(sizes.repeats)]
    ours = trace.num_rows / min(run.build_s + run.run_s for run in runs)
    what = f"T1, {trace.num_rows:,} jobs, {SERVERS} servers"
    yield Row(f"{what}: the harness, state built and replayed", ours, "jobs/s", of_machine=True)
    submit, duration, gpus = columns(trace)
    one, alike = np.ones(len(gpus), np.int64), max(1, round(cluster.gpus / gpus.mean()))
    models = {
        "simpy": ("GPU count only", lambda: simpy_fifo(submit, duration, gpus, cluster.gpus),
                  lambda: bare_fifo(submit, duration, gpus, cluster.gpus)),
        "ciw": (f"one of {alike} servers for each job", lambda: ciw_fifo(submit, duration, alike),
                lambda: bare_fifo(submit, duration, one, alike)),
    }
    for name, (model, run, bare) in models.items():
        if find_spec(name) is None:
            yield Row(f"{what}: {name}", None, detail="not installed")
            continue
        waits = run()
        rate = trace.num_rows / best(sizes.repeats, lambda run=run: seconds(run))
        yield Row(f"{what}: {name}, {model}", rate, "jobs/s", of_machine=True)
        yield Row(f"{what}: the harness over {name}", ours / rate, "x", detail="jobs/s, side by side in this run")
        agree = bool(np.allclose(waits, bare(), rtol=0, atol=1e-6))
        yield Row(f"{what}: waits of {name} and of the bare loop agree", agree, "", True, "==", detail=model)
