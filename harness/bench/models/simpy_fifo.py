"""SimPy: a process for each job, and a Container of GPUs, whose first getter blocks the others."""

from importlib import import_module
from pathlib import Path

import numpy as np

from harness.bench.models import Jobs, Prepared


def prepare(jobs: Jobs, folder: Path, place: Path | None) -> Prepared:
    simpy = import_module("simpy")
    env = simpy.Environment()
    pool = simpy.Container(env, jobs.capacity, init=jobs.capacity)
    starts = np.zeros(len(jobs.submit))

    def job(i: int, runs: float, needs: int):
        yield pool.get(needs)
        starts[i] = env.now
        yield env.timeout(runs)
        yield pool.put(needs)

    def arrivals():
        for i, (at, runs, needs) in enumerate(zip(jobs.submit.tolist(), jobs.duration.tolist(), jobs.gpus.tolist(), strict=True)):
            if at > env.now:
                yield env.timeout(at - env.now)
            env.process(job(i, runs, needs))

    env.process(arrivals())
    return Prepared(env.run, lambda: starts)
