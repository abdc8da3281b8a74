"""The tables of a cell whose trace is replayed in a window: written row group by row group, with the bytes they would have at once.

The jobs of a block of the trace are collected in a file, because some of them may live long after the others have ended. When the last
one has, and the blocks before are written, the block's part of the jobs table is made and its spans are kept for the utilization
table, whose intervals are known only at the end.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.cluster.log import new_log
from harness.cluster.outcome import Outcome
from harness.cluster.state import JOB, Array, Table, View
from harness.metrics.columns import Columns, FilePieces
from harness.metrics.jobs import jobs_table
from harness.metrics.preemptions import preemptions_table
from harness.metrics.summary import Decided, Value, summary_of
from harness.metrics.utilization import Spans, held_spans, running_spans, utilization_of, waits_after, waits_before
from harness.tables import TableWriter
from harness.topology import Cluster

SPAN = np.dtype([("since", "f8"), ("until", "f8"), ("klass", "i4"), ("kind", "i4")])
HELD_SPAN = np.dtype([("since", "f8"), ("until", "f8"), ("gpu", "f8"), ("cpu", "f8"), ("kind", "i8")])
RAN_ON = np.dtype([("ran_on", "i8")])

READ_AT_ONCE = 262_144
"""Spans."""


@dataclass
class Block:
    """Rows [first, first + n) of the trace; ``missing`` of its jobs are still in the window. Its files begin with ``stem``."""

    first: int
    n: int
    missing: int
    stem: Path

    @property
    def jobs(self) -> Path:
        return self.stem.with_suffix(".jobs")

    @property
    def ran_on(self) -> Path:
        return self.stem.with_suffix(".ran_on")

    @property
    def attempts(self) -> Path:
        return self.stem.with_suffix(".attempts")


class CellWriter:
    """The sink of a replay in a window that writes jobs.parquet and preemptions.parquet into ``folder``.

    ``trace``: the blocks of the trace once more, with all columns. Files of its own go to ``scratch``, 200 bytes for each job of the
    blocks that wait and 24 for each attempt. One block at a time is written while the replay goes on.
    """

    def __init__(self, folder: Path, scratch: Path, trace: Iterator[pa.Table], warmup_s: float):
        self.folder, self.scratch, self.trace, self.warmup_s = folder, scratch, trace, warmup_s
        self.blocks: list[Block] = []
        self.first_open = 0
        self.jobs, self.preemptions = TableWriter(folder / "jobs.parquet"), TableWriter(folder / "preemptions.parquet")
        self.decided: list[Decided] = []
        self.state: View | None = None
        self.reasons: dict[int, str] = {}
        self.thread, self.writing = ThreadPoolExecutor(1), Future()
        self.writing.set_result(None)

    def opened(self, first_row: int, jobs: Table) -> None:
        block = Block(first_row, len(jobs), len(jobs), self.scratch / f"{len(self.blocks)}")
        self.blocks.append(block)
        jobs.tofile(block.jobs)
        np.full(int(jobs.end_instance[-1]), -1, np.int64).tofile(block.ran_on)

    def logged(self, piece: Outcome, rows: Array) -> None:
        self.state = piece.state._replace(jobs=piece.state.jobs[:0].copy(), instances=piece.state.instances[:0].copy())
        self.reasons = piece.reasons
        self.preemptions.write(preemptions_table(piece))
        self.decided.append(Decided(piece, self.warmup_s))
        kind, held = piece.state.jobs.kind, held_spans(piece)
        self._keep("held", HELD_SPAN, held.since, held.until, held.gpu, held.cpu, kind[held.job])
        attempts = piece.log.attempts[:piece.log.size[2]].copy()
        if len(attempts):
            attempts[:, 0] = rows[attempts[:, 0].astype(np.int64)]
            of_block = self._blocks_of(attempts[:, 0])
            for b in np.unique(of_block):
                with self.blocks[b].attempts.open("ab") as file:
                    attempts[of_block == b].tofile(file)

    def left(self, rows: Array, jobs: Table, ran_on: Array, end: float) -> None:
        of_block, ends = self._blocks_of(rows), np.cumsum(jobs.end_instance - jobs.first_instance)
        cuts = [0, *(np.flatnonzero(np.diff(of_block)) + 1), len(rows)] if len(rows) else []
        for low, high in zip(cuts[:-1], cuts[1:], strict=True):
            before = int(ends[low - 1]) if low else 0
            self._put(self.blocks[of_block[low]], rows[low:high], jobs[low:high], ran_on[before:int(ends[high - 1])])
        while self.first_open < len(self.blocks) and not self.blocks[self.first_open].missing:
            self.writing.result()
            self.writing = self.thread.submit(self._write, self.blocks[self.first_open], end)
            self.first_open += 1

    def _blocks_of(self, rows: Array) -> Array:
        return np.searchsorted([block.first for block in self.blocks], rows, "right") - 1

    def _put(self, block: Block, rows: Array, jobs: Any, ran_on: Array) -> None:
        """Puts the results of jobs, whose instances it renumbers, to their places in the files of their block."""
        places = rows - block.first
        records = np.memmap(block.jobs, JOB, "r+", shape=(block.n,))
        length, first = jobs.end_instance - jobs.first_instance, records["first_instance"][places]
        jobs.first_instance, jobs.end_instance = first, first + length
        records[places] = jobs
        servers = np.memmap(block.ran_on, np.int64, "r+")
        servers[np.repeat(first - np.cumsum(length) + length, length) + np.arange(len(ran_on))] = ran_on
        block.missing -= len(rows)

    def _write(self, block: Block, end: float) -> None:
        """Writes the rows of a block, all of whose jobs are there, keeps their spans, and removes its files."""
        assert self.state is not None
        jobs = np.fromfile(block.jobs, JOB).view(np.recarray)
        instances = np.fromfile(block.ran_on, RAN_ON).view(np.recarray)
        attempts = np.fromfile(block.attempts).reshape(-1, 3) if block.attempts.exists() else np.zeros((0, 3))
        attempts[:, 0] -= block.first
        log = new_log(0)._replace(attempts=attempts, size=np.array([0, 0, len(attempts), 0]))
        outcome = Outcome(next(self.trace), np.arange(block.n), self.state._replace(jobs=jobs, instances=instances), log, self.reasons,
                          0, 0, end, 0)
        self.jobs.write(jobs_table(outcome))
        running = running_spans(outcome)
        for name, spans in (("running", running), ("before", waits_before(outcome, running)), ("after", waits_after(outcome, running))):
            some = np.flatnonzero(spans.until > spans.since)
            job = spans.job[some]
            self._keep(name, SPAN, spans.since[some], spans.until[some], jobs.klass[job], jobs.kind[job])
        for path in (block.jobs, block.ran_on, block.attempts):
            path.unlink(missing_ok=True)

    def _keep(self, name: str, kind: np.dtype, *columns: Array) -> None:
        records = np.empty(len(columns[0]), kind)
        for field, column in zip(kind.names or (), columns, strict=True):
            records[field] = column
        with (self.scratch / name).open("ab") as file:
            records.tofile(file)

    def _kept(self, name: str, kind: np.dtype) -> Iterator[Array]:
        with (self.scratch / name).open("rb") as file:
            while len(records := np.fromfile(file, kind, READ_AT_ONCE)):
                yield records

    def finish(self, outcome: Outcome, cluster: Cluster, interval_s: float | None) -> tuple[pa.Table, dict[str, Value]]:
        """Closes the files; returns the utilization table and the summary. ``outcome`` has the counts and the end of the replay."""
        self.writing.result()
        self.thread.shutdown()
        self.jobs.close()
        self.preemptions.close()
        classes = outcome.state.classes
        gpu, cpu = classes.instances * classes.gpus * classes.milli, classes.instances * classes.cpu

        def spans(name: str) -> Iterator[tuple[Spans, Array]]:
            for part in self._kept(name, SPAN):
                klass = part["klass"]
                yield Spans(klass, part["since"], part["until"], gpu[klass], cpu[klass]), part["kind"]

        held = ((Spans(part["kind"], part["since"], part["until"], part["gpu"], part["cpu"]), part["kind"])
                for part in self._kept("held", HELD_SPAN))
        queue = (part for name in ("before", "after") for part, _ in spans(name))
        utilization = utilization_of(outcome.end, interval_s, self.warmup_s, spans("running"), queue, held)
        jobs = Columns(FilePieces(self.folder / "jobs.parquet"))
        return utilization, summary_of(outcome, cluster, jobs, utilization, self.decided, self.warmup_s)
