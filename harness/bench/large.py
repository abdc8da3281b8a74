"""Traces that do not fit into memory, streamed: the common workload with a hundred million jobs on ten thousand servers, and requests."""

import json
import shutil
import sys
from collections.abc import Iterator
from math import log
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.bench.processes import cost
from harness.bench.rows import Row
from harness.bench.sizes import Sizes
from harness.errors import BadInput
from harness.schema import REQUESTS
from harness.tables import TableWriter, checked
from harness.tables.parquet import ROW_GROUP
from harness.workload.common import draw_mix, jobs
from harness.workload.common_workload import LONGEST_S, MEDIAN_S, SERVER_GPUS, SHARES, SHORTEST_S, SIGMA, SIZES

EVENTS_PER_S, PEAK_MIB = 500_000, 2_048.0
LOAD, SEED = 0.85, 1
REQUESTS_PER_S, SERVING_PEAK_MIB = 60_000, 1_536.0
SERVING_REPLICAS, REQUEST_RATE = 8, 240.0
"""Replicas, and requests per second, of which they serve about twice as many."""

BYTES_PER_JOB = 150
"""Of disk: the trace, the tables of the cell, and what streaming keeps until its end."""


def large(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Events per second and peak memory of one cell under fifo. Raises BadInput when the disk of ``folder`` is too small."""
    n, servers = sizes.large_jobs, sizes.large_servers
    free, wanted = shutil.disk_usage(folder).free, BYTES_PER_JOB * n
    if free < wanted:
        raise BadInput(f"{folder.parent}: has {free / 2**30:.1f} GiB free; {n:,} jobs take about {wanted / 2**30:.1f} GiB (TMPDIR names "
                       "another folder)")
    path, out = folder / "large.parquet", folder / "large"
    write_common_trace(path, n, servers)
    command = [sys.executable, "-m", "harness", "policy=fifo", "cluster=flat", "workload=trace", "workload.stream=true", "progress=false",
               f"cluster.servers={servers}", f"workload.path={path}", f"out={out}"]
    whole = cost(command)
    manifest = json.loads(next(out.glob("*/manifest.json")).read_text(encoding="utf-8"))
    events, replay_s = manifest["events"], manifest["replay_wall_s"]
    what = f"{n:,} jobs streamed, {servers:,} servers, FIFO"
    yield Row(f"{what}: replay with reading and writing", events / replay_s, "events/s", EVENTS_PER_S, ">=", True,
              f"{events:,} events in {replay_s:.1f} s")
    yield Row(f"{what}: whole command", events / whole.wall_s, "events/s", EVENTS_PER_S, ">=", True,
              f"{whole.wall_s:.1f} s, of processor time {whole.cpu_s:.1f} s; the trace is checked first, and the metrics are exact")
    yield Row(f"{what}: peak memory", whole.peak_mib, "MiB", PEAK_MIB)
    size = sum(file.stat().st_size for file in out.rglob("*.parquet"))
    yield Row("its trace and its tables on disk", (path.stat().st_size + size) / 2**30, "GiB", detail=f"tables {size / 2**30:.2f} GiB")


def large_served(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Requests per second and peak memory of one cell of small requests under fcfs on ``SERVING_REPLICAS`` replicas."""
    n = sizes.large_served
    path, out = folder / "large_requests.parquet", folder / "large_served"
    write_requests(path, n)
    whole = cost([sys.executable, "-m", "harness", "policy=fcfs", "workload=requests", "workload.stream=true", "progress=false",
                  f"pool.replicas={SERVING_REPLICAS}", f"workload.path={path}", f"out={out}"])
    manifest = json.loads(next(out.glob("*/manifest.json")).read_text(encoding="utf-8"))
    steps = json.loads(next(out.glob("*/summary.json")).read_text(encoding="utf-8"))["steps"]
    what = f"{n:,} requests streamed, {SERVING_REPLICAS} replicas, FCFS"
    yield Row(f"{what}: replay with reading and writing", n / manifest["replay_wall_s"], "requests/s", REQUESTS_PER_S, ">=", True,
              f"{steps:,} steps in {manifest['replay_wall_s']:.1f} s")
    yield Row(f"{what}: whole command", n / whole.wall_s, "requests/s", REQUESTS_PER_S, ">=", True,
              f"{whole.wall_s:.1f} s, of processor time {whole.cpu_s:.1f} s; the trace is checked first, and the metrics are exact")
    yield Row(f"{what}: peak memory", whole.peak_mib, "MiB", SERVING_PEAK_MIB)


def write_requests(path: Path, n: int) -> None:
    """Writes ``n`` Poisson requests with log-normal prompts (median 100 tokens) and geometric outputs (mean 10), block by block."""
    now, writer = 0.0, TableWriter(path)
    for number, first in enumerate(range(0, n, ROW_GROUP)):
        rows, rng = min(ROW_GROUP, n - first), np.random.default_rng([SEED, number])
        arrival = now + np.cumsum(rng.exponential(1 / REQUEST_RATE, rows))
        now = float(arrival[-1])
        writer.write(checked(pa.table({
            "request_id": pc.binary_join_element_wise("request", pa.array(np.arange(first, first + rows)).cast(pa.string()), "-"),
            "arrival_time": arrival, "prompt_tokens": np.clip(rng.lognormal(log(100), 1.0, rows), 1, 4000).astype(np.int32),
            "output_tokens": rng.geometric(0.1, rows).astype(np.int32)}), REQUESTS, str(path)))
    writer.close()


def write_common_trace(path: Path, n: int, servers: int) -> None:
    """Writes ``n`` jobs with the distributions of the common workload, block by block, each from a seed of its own."""
    rng = np.random.default_rng(SEED)
    gpus, duration = _draw(rng, 1_000_000)
    gap, now, writer = float((gpus * duration).mean()) / (LOAD * servers * SERVER_GPUS), 0.0, TableWriter(path)
    for number, first in enumerate(range(0, n, ROW_GROUP)):
        rows = min(ROW_GROUP, n - first)
        rng = np.random.default_rng([SEED, number])
        gpus, duration = _draw(rng, rows)
        arrival = now + np.cumsum(rng.exponential(gap, rows))
        now = float(arrival[-1])
        writer.write(jobs(rows, {
            "job_id": pc.binary_join_element_wise("job", pa.array(np.arange(first, first + rows)).cast(pa.string()), "-"),
            "submit_time": np.floor(arrival), "duration": duration, "instances": np.maximum(gpus // SERVER_GPUS, 1),
            "gpus": np.minimum(gpus, SERVER_GPUS),
        }))
    writer.close()


def _draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """GPUs of each job, all instances together, and its duration in s."""
    gpus = draw_mix(rng, SIZES, SHARES, rows)
    return gpus, np.clip(np.rint(rng.lognormal(log(MEDIAN_S), SIGMA, rows)), SHORTEST_S, LONGEST_S)
