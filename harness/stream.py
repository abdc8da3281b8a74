"""A cell whose trace is larger than memory: read, replayed and written block by block."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.cluster.build import Requests, Rules
from harness.cluster.hooks import Policy
from harness.cluster.outcome import Outcome
from harness.cluster.window import replay_in_window
from harness.errors import BadInput
from harness.metrics.serving_stream import RequestWriter
from harness.metrics.stream import CellWriter
from harness.metrics.summary import Value
from harness.serving.hooks import Policy as ServingPolicy
from harness.serving.outcome import Outcome as ServingOutcome
from harness.serving.pool import Pool
from harness.serving.window import replay_in_window as serve_in_window
from harness.tables import TraceFile
from harness.topology import Cluster

BYTES_PER_JOB = 100
"""Free space that a streamed cell wants for each job of the trace: its tables, and the spans of its jobs until the end."""

BYTES_PER_REQUEST = 900
"""The same for each request: the table of requests until the end, with all that the loop and the policy know of one, and its steps."""


class Streamed(NamedTuple):
    """What is left to write of a streamed cell; ``replay_s`` is the time of the replay with the reading and writing it takes."""

    outcome: Outcome | ServingOutcome
    utilization: pa.Table
    metrics: dict[str, Value]
    replay_s: float


def replay_to_files(source: TraceFile, cluster: Cluster, policy: Policy, rules: Rules, folder: Path, warmup_s: float,
                    interval_s: float | None, progress: Callable[[int, int], None] | None = None) -> Streamed:
    """Replays the trace and writes jobs.parquet and preemptions.parquet into ``folder``.

    The trace is read three times: to check it and find its classes, to replay it, and to write its columns beside the results.
    Raises BadInput for a trace that is not sound, and when the disk is too small; InvalidIntention as ``replay`` does.
    """
    _check_disk(folder, source, BYTES_PER_JOB)
    requests = Requests()
    for block in source.checked_blocks():
        requests.number(block)
    scratch = folder / ".scratch"
    scratch.mkdir()
    with CellWriter(folder, scratch, source.blocks(), warmup_s) as writer:
        began = time.perf_counter()
        outcome = replay_in_window(source.blocks(), requests, cluster, policy, rules, writer, progress)
        replay_s = time.perf_counter() - began
        utilization, metrics = writer.finish(outcome, cluster, interval_s)
    shutil.rmtree(scratch)
    return Streamed(outcome, utilization, metrics, replay_s)


def serve_to_files(source: TraceFile, pool: Pool, policy: ServingPolicy, folder: Path, seed: int, horizon_s: float, warmup_s: float,
                   interval_s: float | None, progress: Callable[[int, int], None] | None = None) -> Streamed:
    """The same for requests: writes requests.parquet into ``folder``."""
    _check_disk(folder, source, BYTES_PER_REQUEST)
    tenants: dict[str, None] = {}
    firsts, rows = [], 0
    for block in source.checked_blocks():
        tenants |= dict.fromkeys(pc.drop_null(pc.unique(block["tenant"])).to_pylist())
        firsts.append(rows)
        rows += block.num_rows
    scratch = folder / ".scratch"
    scratch.mkdir()

    def name(row: int) -> str:
        b = int(np.searchsorted(firsts, row, "right")) - 1
        return str(next(block for i, block in enumerate(source.blocks()) if i == b)["request_id"][row - firsts[b]])

    with RequestWriter(folder, scratch, source.blocks(), np.array(firsts), pool.replicas) as writer:
        began = time.perf_counter()
        outcome = serve_in_window(source.blocks(), rows, list(tenants), pool, policy, writer, scratch, name, seed, horizon_s, progress)
        replay_s = time.perf_counter() - began
        utilization, metrics = writer.finish(outcome, interval_s, warmup_s)
    shutil.rmtree(scratch)
    return Streamed(outcome, utilization, metrics, replay_s)


def _check_disk(folder: Path, source: TraceFile, bytes_per_row: int) -> None:
    free, wanted = shutil.disk_usage(folder).free, bytes_per_row * source.rows
    if free < wanted:
        raise BadInput(f"{folder.parent}: has {free / 2**30:.1f} GiB free; to stream {source.rows:,} {source.kind} takes "
                       f"{wanted / 2**30:.1f} GiB")
