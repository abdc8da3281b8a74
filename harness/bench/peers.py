"""Other simulators on the common workload, each in a process of its own, beside the harness on the same jobs."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from harness import __version__
from harness.bench.bare import fifo_by_count
from harness.bench.commands import harness_cell
from harness.bench.machine import version_of
from harness.bench.models import PEERS, PLACES, Jobs
from harness.bench.models.helios_fifo import INSIDE, NEEDED, simulator_in
from harness.bench.processes import CommandFailed, Cost, TooLong, cost
from harness.bench.replays import REFEREES, SIDE_BY_SIDE, Timed, cluster_of, columns, common_trace, timed
from harness.bench.rows import Row
from harness.bench.sizes import Sizes
from harness.cluster.build import Rules
from harness.cluster.hooks import load_policy
from harness.cluster.replay import replay
from harness.cluster.state import Array
from harness.errors import BadInput
from harness.metrics import jobs_table
from harness.tables import write_table

TRACES = {"T1": (10_000, 64), "T3": (100_000, 256), "T4": (100_000, 1_024)}
"""Jobs and servers of the common workload. The published list has a T2 too, but not its size."""

LIMIT_S = 120.0
"""Of a simulator on a trace."""

COMMAND_TARGET_S, HELIOS_TARGET = 1.5, 1_000.0
"""On T4: the whole command of the harness in s, and its replay over that of Helios."""

HARNESS = "the harness"
EVENTS_PER_JOB = 2
"""Its arrival and its end, whatever a simulator does besides."""


class Trace(NamedTuple):
    """A trace on disk for both sides, the waits (jobs,) in s that every way of placing must give, and the makespan."""

    name: str
    jobs: Jobs
    parquet: Path
    arrays: Path
    waits: dict[str, Array]
    makespan: float


@dataclass(frozen=True)
class Measured:
    """One program on one trace. What could not be measured is None, and ``remark`` says why.

    ``whole_s`` is the command from its start to its end, ``prepare_s`` of it what comes before the replay, ``replay_s`` the replay
    alone; each ``_cpu_s`` is the same as processor time. ``whole_ratio`` and ``replay_ratio`` say how many times as much processor time
    this took as the harness did just before and just after it. ``agrees``: every job waits as long as it must when placed so.
    """

    trace: str
    jobs: int
    servers: int
    program: str
    version: str | None
    places: str
    remark: str = ""
    whole_s: float | None = None
    whole_cpu_s: float | None = None
    prepare_s: float | None = None
    replay_s: float | None = None
    replay_cpu_s: float | None = None
    jobs_per_s: float | None = None
    events_per_s: float | None = None
    peak_mib: float | None = None
    whole_ratio: float | None = None
    replay_ratio: float | None = None
    wait_mean_s: float | None = None
    makespan_s: float | None = None
    agrees: bool | None = None

    def plain(self) -> dict[str, Any]:
        """The same as JSON holds it."""
        return asdict(self)


def checked_place(helios: Path | None) -> Path | None:
    """The folder of Helios' simulator. Raises BadInput when it is not in the one that was named."""
    if helios is None:
        return None
    found = simulator_in(helios)
    if found is None:
        raise BadInput(f"--helios {helios}: no Helios there; must be its artifact, or in it '{INSIDE}' with {', '.join(NEEDED)}")
    return found.resolve()


def compare(name: str, jobs: int, servers: int, peers: Sequence[str], place: Path | None, limit_s: float, folder: Path) -> list[Measured]:
    """The harness, then each of ``peers``, on so many jobs and servers; ``folder`` is for files."""
    trace = _written(name, jobs, servers, folder)
    ours, theirs = Ours(trace, folder), []
    for peer in peers:
        theirs.append(_peer(peer, trace, ours, place, limit_s, folder))
        print(f"bench: {name}: {_in_short(theirs[-1])}", file=sys.stderr, flush=True)
    return [ours.measured(), *theirs]


def _in_short(one: Measured) -> str:
    return f"{one.program}: {one.remark if one.whole_s is None else f'{one.whole_s:.1f} s, its replay {one.replay_ratio:.3g} x as long'}"


class Ours:
    """The harness on a trace, measured again whenever a peer is."""

    def __init__(self, trace: Trace, folder: Path):
        self.trace, self.folder = trace, folder
        self.commands: list[Cost] = []
        self.replays: list[Timed] = []
        self.run(warm=True)

    def run(self, warm: bool = False) -> tuple[Cost, Timed]:
        """A whole command and the fastest of three replays."""
        servers = self.trace.jobs.servers
        words = ("workload=trace", f"workload.path={self.trace.parquet}", f"cluster.servers={servers}")
        whole, _ = harness_cell(self.folder, 1, *words, warm=warm)
        runs = [timed(common_trace(len(self.trace.jobs.submit), servers), cluster_of("flat", servers)) for _ in range(3)]
        self.commands.append(whole)
        self.replays += runs
        return whole, min(runs, key=lambda run: run.run_cpu_s)

    def measured(self) -> Measured:
        """The fastest of all."""
        whole, run = min(self.commands, key=lambda c: c.wall_s), min(self.replays, key=lambda r: r.run_s)
        waits = self.trace.waits["servers"]
        return Measured(
            self.trace.name, len(waits), self.trace.jobs.servers, HARNESS, __version__, PLACES["servers"],
            f"the fastest of {len(self.commands)} commands and {len(self.replays)} replays", whole.wall_s, whole.cpu_s, run.build_s,
            run.run_s, min(r.run_cpu_s for r in self.replays), len(waits) / run.run_s, run.events / run.run_s, whole.peak_mib,
            wait_mean_s=float(waits.mean()), makespan_s=self.trace.makespan)


def _peer(name: str, trace: Trace, ours: Ours, place: Path | None, limit_s: float, folder: Path) -> Measured:
    peer, jobs = PEERS[name], trace.jobs
    version = version_of(peer.package) if peer.package else None
    about = (trace.name, len(jobs.submit), jobs.servers, peer.name, version, PLACES[peer.places])
    if peer.package is None and place is None:
        return Measured(*about, "no folder was named")
    if peer.package and not find_spec(peer.package):
        return Measured(*about, "not installed")
    result = folder / "result.npz"
    where = place if peer.package is None else None
    try:
        _warm(name, where, limit_s)
        before = ours.run()
        whole = cost(_model(name, trace.arrays, result, where), limit_s=limit_s)
    except TooLong as error:
        return Measured(*about, f"{error}{f'; {peer.remark}' if peer.remark else ''}")
    except CommandFailed as error:
        return Measured(*about, f"failed: {error.words}")
    after = ours.run()
    with np.load(result) as found:
        starts, prepare_s, replay_s, replay_cpu_s = found["starts"], *(float(found[k]) for k in ("prepare_s", "replay_s", "replay_cpu_s"))
    waits = starts - jobs.submit
    return Measured(
        *about, peer.remark, whole.wall_s, whole.cpu_s, prepare_s, replay_s, replay_cpu_s, len(waits) / replay_s,
        EVENTS_PER_JOB * len(waits) / replay_s, whole.peak_mib, whole.cpu_s / mean(run[0].cpu_s for run in (before, after)),
        replay_cpu_s / mean(run[1].run_cpu_s for run in (before, after)), float(waits.mean()), float((starts + jobs.duration).max()),
        bool(np.allclose(waits, trace.waits[peer.places], rtol=0, atol=1e-6)))


def _model(name: str, arrays: Path, result: Path, place: Path | None) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "harness.bench.models", name, str(arrays), str(result), *([str(place)] if place else [])]


@lru_cache
def _warm(name: str, place: Path | None, limit_s: float) -> None:
    """Runs a model on a few jobs, so that the byte code of its libraries is there. Raises what ``cost`` raises."""
    with TemporaryDirectory() as folder:
        trace = _written("warm", 20, 4, Path(folder))
        cost(_model(name, trace.arrays, Path(folder) / "result.npz", place), limit_s=limit_s)


def _written(name: str, jobs: int, servers: int, folder: Path) -> Trace:
    table, cluster = common_trace(jobs, servers), cluster_of("flat", servers)
    parquet, arrays = folder / f"{name}.parquet", folder / f"{name}.npz"
    write_table(table, parquet)
    submit, duration, gpus = columns(table)
    np.savez(arrays, submit=submit, duration=duration, gpus=gpus, servers=servers)
    common = Jobs(submit, duration, gpus, servers)
    done = jobs_table(replay(table, cluster, load_policy("fifo"), Rules()))
    waits = {"servers": done["wait_s"].to_numpy(), "gpus": bare_fifo(submit, duration, gpus, common.capacity),
             "slots": bare_fifo(submit, duration, np.ones_like(gpus), common.slots)}
    return Trace(name, common, parquet, arrays, waits, float(done["finish_time"].to_numpy().max()))


def bare_fifo(submit: Array, duration: Array, gpus: Array, capacity: int) -> Array:
    """Waits (jobs,) in s of the bare compiled loop."""
    start = np.empty(len(submit))
    fifo_by_count(submit, duration, gpus, capacity, start)
    return start - submit


def rows(measured: Sequence[Measured]) -> Iterator[Row]:
    """What ``compare`` measured, beside the targets."""
    for one in measured:
        what = f"{one.trace}, {one.jobs:,} jobs, {one.servers:,} servers: {one.program}"
        yield Row(f"{what}, {one.places}", one.jobs_per_s, "jobs/s", of_machine=True, detail=one.remark)
        if one.program == HARNESS:
            yield from _referees(what, one)
        if one.replay_ratio is not None:
            target = HELIOS_TARGET if (one.trace, one.program) == ("T4", PEERS["helios"].name) else None
            yield Row(f"{what}, its replay over the harness's", one.replay_ratio, "x", target, ">=", True, SIDE_BY_SIDE)
            yield Row(f"{what}, its whole command over the harness's", one.whole_ratio, "x", of_machine=True, detail=SIDE_BY_SIDE)
            yield Row(f"{what}, every wait as it must be", one.agrees, "", True, "==", detail=one.places)


def _referees(what: str, one: Measured) -> Iterator[Row]:
    jobs, servers, wait, makespan = REFEREES.get(one.trace, (0, 0, 0.0, 0.0))
    if (one.jobs, one.servers) == (jobs, servers):
        yield Row(f"{what}, mean wait", one.wait_mean_s, "s", wait, "==")
        yield Row(f"{what}, makespan", one.makespan_s, "s", makespan, "==")
    target = COMMAND_TARGET_S if one.trace == "T4" else None
    yield Row(f"{what}, whole command", one.whole_s, "s", target, "<=", True, f"{one.whole_cpu_s:.2f} s of processor time")


def peers(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """The harness and every library that can be imported, on T1 or on as many of its jobs as ``sizes`` says."""
    libraries = [name for name, peer in PEERS.items() if peer.package]
    yield from rows(compare("T1", sizes.peer_jobs, TRACES["T1"][1], libraries, None, LIMIT_S, folder))
