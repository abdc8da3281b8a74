"""A replay of a trace of requests of any length in bounded memory: only the requests that have not finished are in it.

The tables of requests are as long as the trace, but in files that are mapped: a request has its number for good, so the loop and the
policies are those of a replay of the whole trace, and so are their answers (tests/test_serving_stream.py). The loop stops when all
requests that it knows have arrived. Then the log is handed out, the blocks whose requests have all ended too, and the pages
go back to the system, which has them in the files; the next block of the trace is filled in behind.
"""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from harness.errors import BadInput, InvalidIntention
from harness.serving import engine
from harness.serving.build import add_requests, build_empty, predictor
from harness.serving.hooks import Policy
from harness.serving.log import Log, new_log
from harness.serving.outcome import Outcome
from harness.serving.pool import Pool
from harness.serving.queue import EVENT, new_calendar
from harness.serving.replay import pool_for
from harness.serving.run import Run
from harness.serving.state import DROPPED, FINISHED, REJECTED, Table


class Sink(Protocol):
    """Takes what a replay in a window leaves behind, piece by piece."""

    def logged(self, log: Log) -> None:
        """The next part of the log."""

    def ended(self, first: int, requests: Table, outcome: Outcome) -> None:
        """The requests first .. of the next block are final, as of the ``outcome``, whose own tables are empty."""


class Mapped:
    """Zeroed arrays in files of ``folder``, which the system may take out of memory."""

    def __init__(self, folder: Path):
        self.folder, self.maps = folder, []

    def zeros(self, shape: Any, kind: Any) -> np.ndarray:
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        if not size:
            return np.zeros(shape, kind)
        path = self.folder / f"table{len(self.maps)}"
        with path.open("w+b") as file:
            file.truncate(size)
            self.maps.append(mmap.mmap(file.fileno(), size))
        return np.frombuffer(self.maps[-1], kind).reshape(shape)

    def let_go(self) -> None:
        """Takes all pages out of this process."""
        for mapped in self.maps if hasattr(mmap, "MADV_DONTNEED") else ():
            mapped.madvise(mmap.MADV_DONTNEED)


class Window(Run):
    """A replay that knows its trace up to ``loaded`` rows."""

    def __init__(self, rows: int, tenants: list[str], pool: Pool, policy: Policy, sink: Sink, folder: Path, seed: int, horizon_s: float):
        mapped, gangs = Mapped(folder), policy.defines("gang")
        state = build_empty(rows, len(tenants), pool, seed, horizon_s, gangs, zeros=mapped.zeros)
        events = mapped.zeros(4 * rows + 64, EVENT).view(np.recarray)
        super().__init__(state, pool, policy, new_calendar(0, pool.replicas)._replace(event=events), mapped.zeros)
        self.mapped, self.pool, self.tenants, self.sink, self.gangs, self.errors = mapped, pool, tenants, sink, gangs, predictor(seed)
        self.loaded, self.last_arrival = 0, -np.inf
        self.open: list[tuple[int, int]] = []  # first row and rows of the blocks that are not handed out
        self.where.tally[engine.KNOWN] = 0

    def add(self, block: pa.Table) -> None:
        """Loads the next block of the trace."""
        n, first, tally = block.num_rows, self.loaded, self.where.tally
        add_requests(self.state, first, block, np.arange(n), self.tenants, self.pool, self.errors, self.gangs)
        arrival = block["arrival_time"].to_numpy()
        self.loaded += n
        self.open.append((first, n))
        # Requests that may share their instant with the next block wait for it.
        before = int(np.searchsorted(arrival, arrival[-1]))
        if self.loaded == len(self.state.shown.requests):
            tally[engine.KNOWN] = self.loaded
        elif before or arrival[0] > self.last_arrival:
            tally[engine.KNOWN] = first + before
        self.last_arrival = float(arrival[-1])

    def full(self) -> None:
        self.sink.logged(self.log)
        self.log.size[:] = 0

    def outcome(self, end: float) -> Outcome:
        """The counts and the replicas as they are."""
        state = self.state._replace(shown=self.state.shown._replace(requests=self.state.shown.requests[:0]), work=self.state.work[:0])
        none = np.zeros(0)
        return Outcome(pa.table({}), none.astype(int), state, new_log(0), none, none, self.tenants, self.pool.gpus, self.instants, end)

    def hand_out(self, end: float = np.inf) -> None:
        """Gives the sink the log, and the first blocks whose requests are all final: at the ``end`` (s) of the replay all are."""
        self.full()
        requests, outcome = self.state.shown.requests, self.outcome(end)
        while self.open:
            first, n = self.open[0]
            status = requests.status[first:first + n]
            if end == np.inf and not np.isin(status, (FINISHED, REJECTED, DROPPED)).all():
                break
            final: Any = requests[first:first + n].copy()
            self.sink.ended(first, final, outcome)
            del self.open[0]
        self.mapped.let_go()


def replay_in_window(blocks: Iterator[pa.Table], rows: int, tenants: list[str], pool: Pool, policy: Policy, sink: Sink, folder: Path,
                     name: Callable[[int], str], seed: int = 0, horizon_s: float = np.inf,
                     progress: Callable[[int, int], None] | None = None) -> Outcome:
    """Replays a trace of ``rows`` requests that comes in ``blocks`` (schema.REQUESTS, sorted by arrival_time), with these ``tenants``.

    ``sink`` is given the whole log, and all requests by block. Files of its own go to ``folder``. ``name`` gives the request_id of a row.
    Returns the counts and the end of the replay, with an empty log and no requests. Raises InvalidIntention as ``replay`` does, and
    BadInput for a pool with prefix stores.
    """
    if pool.prefix_blocks:
        raise BadInput(f"pool.prefix_cache_gb={pool.prefix_cache_gb:g}: prefixes are reused where the whole trace is loaded; "
                       "workload.stream=false does that")
    window = Window(rows, tenants, pool_for(policy, pool), policy, sink, folder, seed, horizon_s)
    answer = engine.STARVED
    while answer == engine.STARVED:
        window.add(next(blocks))
        answer = window.go(progress)
        if answer == engine.BROKEN:
            raise InvalidIntention(window.complaint(name))
        window.hand_out()
    end = window.close()
    for block in blocks:  # the horizon came before them
        window.add(block)
        window.hand_out(end)
    window.hand_out(end)
    return window.outcome(end)
