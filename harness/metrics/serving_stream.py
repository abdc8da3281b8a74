"""The tables of a serving cell whose trace is replayed in a window: written row group by row group, with the bytes they would have at once.

The requests of a block are written when all of them have ended, and the blocks before are written. The log is kept in files until
then: stays by block, and the ends of the steps that made tokens by replica; and all spans for the utilization table, whose intervals are
known only at the end. What the summary needs of each request is kept too, each column in a file.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from harness.metrics.requests import requests_table
from harness.metrics.serving import Value, serving_summary, utilization_of
from harness.serving.log import SPAN, STAY, Log, new_log, spans_of, stays_of
from harness.serving.outcome import Outcome
from harness.serving.state import Array, Table
from harness.serving.tokens import between_tokens, ends_of_tokens
from harness.tables import TableWriter

READ_AT_ONCE = 262_144
"""Spans, or requests."""

KEPT = {"arrival": "f8", "start": "f8", "first_token": "f8", "decode_start": "f8", "finish": "f8", "status": "i1", "tenant": "i4",
        "prompt": "i4", "decoded": "i4", "preemptions": "i4", "ttft_slo": "f8", "tbt_slo": "f8", "tbt_mean": "f8", "tbt_p99": "f8"}
"""Columns of requests that the summary and the utilization table are made of."""


class RequestWriter:
    """The sink of a replay in a window that writes requests.parquet into ``folder``.

    ``trace``: the blocks of the trace, with all columns; ``firsts``: the first row of each. Files of its own go to ``scratch``. One block
    at a time is written while the replay goes on.
    """

    def __init__(self, folder: Path, scratch: Path, trace: Iterator[pa.Table], firsts: Array, replicas: int):
        self.scratch, self.trace, self.firsts, self.replicas = scratch, trace, firsts, replicas
        self.requests = TableWriter(folder / "requests.parquet")
        self.spans = 0
        self.thread, self.writing = ThreadPoolExecutor(1), Future()
        self.writing.set_result(None)
        for name in ("spans", *KEPT, *(f"ends{r}" for r in range(replicas))):
            (scratch / name).touch()

    def __enter__(self) -> "RequestWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self.thread.shutdown()

    def logged(self, log: Log) -> None:
        spans, stays = spans_of(log), stays_of(log)
        self._keep("spans", spans)
        self.spans += len(spans)
        ends, first = ends_of_tokens(spans, self.replicas)
        for r in range(self.replicas):
            if first[r + 1] > first[r]:
                self._keep(f"ends{r}", ends[first[r]:first[r + 1]])
        block = np.searchsorted(self.firsts, stays.request, "right") - 1
        for b in np.unique(block):
            self._keep(f"stays{b}", stays[block == b])

    def ended(self, first: int, requests: Table, outcome: Outcome) -> None:
        self.writing.result()
        self.writing = self.thread.submit(self._write, first, requests, outcome)

    def _write(self, first: int, requests: Table, outcome: Outcome) -> None:
        """Writes the rows of a block, keeps their columns, and removes the file of their stays."""
        path = self.scratch / f"stays{np.searchsorted(self.firsts, first)}"
        stays: Any = (np.fromfile(path, STAY) if path.exists() else np.zeros(0, STAY)).view(np.recarray)
        path.unlink(missing_ok=True)
        stays.request -= first
        ends, base = self._ends(stays)
        mean, high = between_tokens(stays, ends, base, requests)
        shown = outcome.state.shown._replace(requests=requests)
        block = replace(outcome, trace=next(self.trace), order=np.arange(len(requests)), state=outcome.state._replace(shown=shown),
                        tbt_mean=mean, tbt_p99=high)
        self.requests.write(requests_table(block))
        between = {"tbt_mean": mean, "tbt_p99": high}
        for name, kind in KEPT.items():
            self._keep(name, (between[name] if name in between else requests[name]).astype(kind))

    def _ends(self, stays: Any) -> tuple[Array, Array]:
        """The ends of the steps in which these stays made their tokens, and where those of each replica would begin (M,)."""
        steps = stays[np.isnan(stays.time)]
        parts, base, n = [np.zeros(0)], np.zeros(self.replicas, np.int64), 0
        for r in range(self.replicas):
            mine = steps[steps.replica == r]
            if len(mine):
                low, high = int(mine.since.min()), int(mine.until.max())
                parts.append(np.fromfile(self.scratch / f"ends{r}", "f8", high - low, offset=8 * low))
                base[r] = n - low
                n += high - low
        return np.concatenate(parts), base

    def _keep(self, name: str, records: Array) -> None:
        with (self.scratch / name).open("ab") as file:
            records.tofile(file)

    def _column(self, name: str) -> Array:
        return np.memmap(self.scratch / name, KEPT[name], "r") if (self.scratch / name).stat().st_size else np.zeros(0, KEPT[name])

    def finish(self, outcome: Outcome, interval_s: float | None, warmup_s: float) -> tuple[pa.Table, dict[str, Value]]:
        """Closes the file; returns the utilization table and the summary. ``outcome`` has the counts and the end of the replay."""
        self.writing.result()
        self.requests.close()
        utilization = utilization_of(outcome, self._spans(), self._pieces(), interval_s, warmup_s)
        log = new_log(0)._replace(size=np.array([self.spans, 0]))
        state = outcome.state._replace(shown=outcome.state.shown._replace(requests=_Columns(self._column)))  # pyright: ignore
        mean: Any = _Column(lambda: self._column("tbt_mean"))
        high: Any = _Column(lambda: self._column("tbt_p99"))
        whole = replace(outcome, log=log, state=state, tbt_mean=mean, tbt_p99=high)
        return utilization, serving_summary(whole, utilization, warmup_s)

    def _spans(self) -> Iterator[Any]:
        with (self.scratch / "spans").open("rb") as file:
            while len(part := np.fromfile(file, SPAN, READ_AT_ONCE)):
                yield part.view(np.recarray)

    def _pieces(self) -> Iterator[Any]:
        for low in range(0, len(self._column("arrival")), READ_AT_ONCE):
            yield SimpleNamespace(**{name: np.array(self._column(name)[low:low + READ_AT_ONCE])
                                     for name in ("arrival", "start", "finish", "status")})


class _Column:
    """A column that is in memory only while something is made of it."""

    def __init__(self, read: Callable[[], Array]):
        self.read = read

    def __getitem__(self, rows: slice) -> Array:
        return self.read()[rows]

    def __gt__(self, other: Array) -> Array:
        return self.read() > other


class _Columns:
    """A table of requests whose columns are read from files when they are asked for."""

    def __init__(self, column: Any):
        self.column = column

    def __getattr__(self, name: str) -> Array:
        return self.column(name)

    def __len__(self) -> int:
        return len(self.column("arrival"))
