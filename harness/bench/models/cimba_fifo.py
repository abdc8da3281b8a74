"""Cimba: arrivals join a queue, one scheduler takes GPUs for its head, and a process for each job gives them back.

The scheduler is there because processes that wait for a Resource themselves can be overtaken at the instant at which GPUs are freed.
"""
# Cimba reads its models off annotations, so it is imported where a type checker without it complains.
# pyright: reportMissingImports=false

from pathlib import Path

import cimba as cb
import numpy as np

from harness.bench.models import Jobs, Prepared


class Pool(cb.Model):
    free: cb.Container


class Running(cb.Model):
    pool: cb.Ref[Pool]
    duration: float
    gpus: int

    @cb.process
    def run(self):
        cb.hold(self.duration)
        self.pool.free.put(self.gpus)


class Cluster(cb.Model):
    jobs: int = 0
    gap: cb.Input[float]
    duration: cb.Input[float]
    gpus: cb.Input[int]
    pool: Pool
    queue: cb.Store[float]
    waits: cb.Dataset

    def __init__(self, jobs: Jobs):
        self.jobs = len(jobs.submit)
        self.gap = cb.inputs.trace(np.diff(jobs.submit, prepend=0.0))
        self.duration = cb.inputs.trace(jobs.duration)
        self.gpus = cb.inputs.trace(jobs.gpus)
        self.pool = Pool()
        self.pool.free = cb.Container(initial=jobs.capacity)
        self.waits = cb.Dataset()
        self.waits.capture()

    @cb.process
    def arrivals(self):
        for _ in range(self.jobs):
            cb.hold(self.gap.next())
            self.queue.put(cb.now())

    @cb.process
    def scheduler(self):
        for _ in range(self.jobs):
            came = self.queue.get()
            gpus = self.gpus.next()
            self.pool.free.get(gpus)
            self.waits.record(cb.now() - came)
            cb.spawn(Running, pool=self.pool, duration=self.duration.next(), gpus=gpus)


def prepare(jobs: Jobs, folder: Path, place: Path | None) -> Prepared:
    """Compiles the model by a run of its first job."""
    _replay(Cluster(Jobs(jobs.submit[:1], jobs.duration[:1], jobs.gpus[:1], jobs.servers)))
    cluster, waits = Cluster(jobs), []
    return Prepared(lambda: waits.append(_replay(cluster)), lambda: jobs.submit + waits[-1])


def _replay(cluster: Cluster) -> np.ndarray:
    """Waits (jobs,) in s, in order of start, which under FIFO is that of arrival."""
    results = cb.Experiment(cluster, window=cb.Window.until_idle()).run(workers=1)
    if results.failed.any():
        raise RuntimeError(f"Cimba: {results.failure_reasons[results.failed][0]}")
    return results[cluster].waits.trial(0, 0)[1]
