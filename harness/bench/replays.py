"""Replays in this process: referee values, the event loop, its growth, and its distance to a bare loop and to the disk."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import yaml

from harness.bench.bare import fifo_by_count
from harness.bench.rows import Row
from harness.bench.sizes import Sizes
from harness.cache import PACKAGE
from harness.cluster import engine
from harness.cluster.build import Rules
from harness.cluster.build import build as build_replay
from harness.cluster.hooks import load_policy
from harness.cluster.log import doubled
from harness.cluster.replay import replay
from harness.cluster.state import Array, read_only
from harness.metrics import jobs_table
from harness.tables import read_trace, write_table
from harness.topology import Cluster, build, parse
from harness.workload import load

REFEREES = {"T1": (10_000, 64, 430.7464, 226_840.0), "T3": (100_000, 256, 10.80288, 535_934.0)}
"""Jobs and servers of the common workload, seed 1, and what Helios, Lucid and an independent replay agree on under FIFO: mean wait and
makespan in s (specs, peers)."""

SHAPES = {"flat": "flat", "dgx_a100": "8 NUMA nodes (DGX A100)"}
SEED = 1
FIFO_EVENTS_PER_S = 5_000_000
LARGEST_GROWTH_BY_JOBS, LARGEST_GROWTH_BY_SERVERS = 11.0, 6.0
"""Time ratio for ten times as many."""

SIDE_BY_SIDE = "processor time, side by side in this run"


class Timed(NamedTuple):
    """Events of a replay; seconds to build its state, seconds in its event loop, and seconds of processor time there."""

    events: int
    build_s: float
    run_s: float
    run_cpu_s: float


@lru_cache
def cluster_of(name: str, servers: int) -> Cluster:
    """The shipped cluster ``name`` with so many servers."""
    folder = next(folder for folder in (PACKAGE.parent / "conf", PACKAGE / "conf") if (folder / "config.yaml").is_file())
    return build(parse({**yaml.safe_load((folder / f"cluster/{name}.yaml").read_text(encoding="utf-8")), "servers": servers}))


@lru_cache(maxsize=3)
def common_trace(jobs: int, servers: int, shape: str = "flat") -> pa.Table:
    """The common workload of the referees for so many servers."""
    return load("common_workload", {"jobs": jobs}, cluster_of(shape, servers), SEED)


def timed(trace: pa.Table, cluster: Cluster, policy_name: str = "fifo", rules: Rules | None = None) -> Timed:
    """One replay, its event loop timed apart from the rest."""
    policy = load_policy(policy_name)
    began = time.perf_counter()
    state, _, requests = build_replay(trace, cluster, rules or Rules())
    view, outcome, run_s, cpu_s = read_only(state), engine.FULL, 0.0, 0.0
    own = policy.own(view, requests, cluster)
    queue, pending, log, where = engine.fresh(state)
    rest: tuple[Any, ...] = (*policy.hooks, np.array(policy.defined), policy.dynamic, policy.period_s, 2**62)
    build_s = time.perf_counter() - began
    while outcome == engine.FULL:
        began, used = time.perf_counter(), time.process_time()
        outcome = engine.run(state, view, own, queue, pending, log, where, *rest)
        run_s += time.perf_counter() - began
        cpu_s += time.process_time() - used
        if outcome == engine.FULL:
            log = doubled(log)
    return Timed(int(where.tally[engine.EVENTS]), build_s, run_s, cpu_s)


def _least(repeats: int, work: Callable[[], Any]) -> tuple[float, float]:
    """The least s of wall clock and of processor time that ``work`` takes in so many runs."""
    taken = []
    for _ in range(repeats):
        began, used = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - began, time.process_time() - used))
    return min(wall for wall, _ in taken), min(used for _, used in taken)


def referees(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Mean wait and makespan of the common workload, to every digit, on servers without and with inner topology."""
    for name in sizes.referees:
        jobs, servers, wait, makespan = REFEREES[name]
        for shape, words in SHAPES.items():
            cluster = cluster_of(shape, servers)
            table = jobs_table(replay(common_trace(jobs, servers), cluster, load_policy("fifo"), Rules()))
            label = f"{name}: {jobs:,} jobs, {servers:,} servers, {words}"
            yield Row(f"{label}: mean wait", float(table["wait_s"].to_numpy().mean()), "s", wait, "==")
            yield Row(f"{label}: makespan", float(table["finish_time"].to_numpy().max()), "s", makespan, "==")


def fifo(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Events per second of the compiled loop, beside a bare loop and the reading of the trace."""
    loop: dict[str, float] = {}
    for shape, words in SHAPES.items():
        trace, cluster = common_trace(sizes.jobs, sizes.servers), cluster_of(shape, sizes.servers)
        runs = [timed(trace, cluster) for _ in range(sizes.repeats)]
        wall, loop[shape] = min(run.run_s for run in runs), min(run.run_cpu_s for run in runs)
        yield Row(f"FIFO, {sizes.jobs:,} jobs, {sizes.servers:,} servers, {words}: the loop", runs[0].events / wall, "events/s",
                  FIFO_EVENTS_PER_S, ">=", True, f"{wall:.3f} s, of processor time {loop[shape]:.3f} s; "
                  f"state built in {min(run.build_s for run in runs):.3f} s")
    trace, capacity, start = common_trace(sizes.jobs, sizes.servers), cluster_of("flat", sizes.servers).gpus, np.empty(sizes.jobs)
    submit, duration, gpus = columns(trace)
    fifo_by_count(submit[:1], duration[:1], gpus[:1], capacity, start)
    bare, bare_cpu = _least(sizes.repeats, lambda: fifo_by_count(submit, duration, gpus, capacity, start))
    path = folder / "fifo.parquet"
    write_table(trace, path)
    read, read_cpu = _least(sizes.repeats, lambda: read_trace(path))
    yield Row("the same by a bare compiled loop that only counts free GPUs", 2 * trace.num_rows / bare, "events/s", of_machine=True,
              detail=f"{bare:.4f} s, of processor time {bare_cpu:.4f} s")
    for shape, words in SHAPES.items():
        yield Row(f"the loop's time over the bare loop's, {words}", loop[shape] / bare_cpu, "x", detail=SIDE_BY_SIDE)
    yield Row("reading and checking its trace", read, "s", of_machine=True,
              detail=f"{path.stat().st_size / 2**20:.1f} MiB Parquet; of processor time {read_cpu:.4f} s")
    yield Row("the loop's time over reading the trace, flat", loop["flat"] / read_cpu, "x", detail=SIDE_BY_SIDE)


def columns(trace: pa.Table) -> tuple[Array, Array, Array]:
    """submit_time and duration in s, f8, and the GPUs of all instances together, i8: each (jobs,)."""
    gpus = trace["gpus"].to_numpy().astype(np.int64) * trace["instances"].to_numpy()
    return trace["submit_time"].to_numpy(), trace["duration"].to_numpy(), gpus


def growth(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Time ratios for ten times the jobs, and ten times the servers."""
    few, many, servers = sizes.jobs // 10, sizes.jobs, sizes.servers
    cases = [
        (f"10 x the jobs: {few:,} to {many:,} on {servers:,} servers, FIFO", (few, servers), (many, servers), LARGEST_GROWTH_BY_JOBS),
        *((f"10 x the servers: {small:,} to {10 * small:,} for {few:,} jobs, FIFO", (few, small), (few, 10 * small),
           LARGEST_GROWTH_BY_SERVERS) for small in (servers // 10, servers)),
    ]
    for what, small, large, target in cases:
        pair = [(common_trace(*case), cluster_of("flat", case[1])) for case in (small, large)]
        yield growth_of(what, pair, "fifo", sizes.repeats, target)


def growth_of(what: str, pair: Sequence[tuple[pa.Table, Cluster]], policy: str, repeats: int, target: float) -> Row:
    """Time in the event loop for the second trace and cluster of ``pair`` over that for the first.

    Processor time, medians of runs that take turns: what else the machine does then falls on both alike.
    """
    taken = [[timed(trace, cluster, policy) for trace, cluster in pair] for _ in range(max(3, repeats))]
    before, after = (median(run.run_cpu_s for run in runs) for runs in zip(*taken, strict=True))
    return Row(what, after / before, "x", target, "<=", False,
               f"{before:.4f} s to {after:.4f} s, {taken[0][0].events:,} to {taken[0][1].events:,} events")
