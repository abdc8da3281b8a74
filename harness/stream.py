"""A cell whose trace is larger than memory: read, replayed and written block by block."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from harness.cluster.build import Requests, Rules
from harness.cluster.hooks import Policy
from harness.cluster.outcome import Outcome
from harness.cluster.window import replay_in_window
from harness.errors import BadInput
from harness.metrics.stream import CellWriter
from harness.metrics.summary import Value
from harness.tables import TraceFile
from harness.topology import Cluster

BYTES_PER_JOB = 100
"""Free space that a streamed cell wants for each job of the trace: its tables, and the spans of its jobs until the end."""


class Streamed(NamedTuple):
    """What is left to write of a streamed cell; ``replay_s`` is the time of the replay with the reading and writing it takes."""

    outcome: Outcome
    utilization: pa.Table
    metrics: dict[str, Value]
    replay_s: float


def replay_to_files(source: TraceFile, cluster: Cluster, policy: Policy, rules: Rules, folder: Path, warmup_s: float,
                    interval_s: float | None, progress: Callable[[int, int], None] | None = None) -> Streamed:
    """Replays the trace and writes jobs.parquet and preemptions.parquet into ``folder``.

    The trace is read three times: to check it and find its classes, to replay it, and to write its columns beside the results.
    Raises BadInput for a trace that is not sound, and when the disk is too small; InvalidIntention as ``replay`` does.
    """
    free, wanted = shutil.disk_usage(folder).free, BYTES_PER_JOB * source.rows
    if free < wanted:
        raise BadInput(f"{folder.parent}: has {free / 2**30:.1f} GiB free; to stream {source.rows:,} jobs takes {wanted / 2**30:.1f} GiB")
    requests = Requests()
    for block in source.checked_blocks():
        requests.number(block)
    scratch = folder / ".scratch"
    scratch.mkdir()
    writer, began = CellWriter(folder, scratch, source.blocks(), warmup_s), time.perf_counter()
    outcome = replay_in_window(source.blocks(), requests, cluster, policy, rules, writer, progress)
    replay_s = time.perf_counter() - began
    utilization, metrics = writer.finish(outcome, cluster, interval_s)
    shutil.rmtree(scratch)
    return Streamed(outcome, utilization, metrics, replay_s)
