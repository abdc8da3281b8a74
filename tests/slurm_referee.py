"""A real Slurm as a referee for the order of starts: the same jobs through Slurm and through a replay.

``python tests/slurm_referee.py`` runs the worlds below in Slurm and writes what happened to tests/slurm_referee.json.
"""

import json
import math
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from builders import job, server
from engine_run import run
from harness.metrics import jobs_table
from slurm_cluster import Slurm, missing, version

RECORD = Path(__file__).with_suffix(".json")
GPUS, JOBS = 8, 20
GATE_S = 3
"""The first job of a world holds the whole cluster while the first of the others are submitted."""

LINE = re.compile(r"^\[(?P<time>\S+)\] (?P<what>_slurm_rpc_submit_batch_job: |sched: Allocate |sched/backfill: _start_job: Started "
                  r"|_job_complete: )JobId=(?P<job>\d+) (?P<rest>.*)$", re.MULTILINE)
"""What the controller logs of a job that is submitted, starts, or has ended."""

SCHEDULERS = {
    "fifo": ("sched/builtin", "batch_sched_delay=0,defer"),
    # By default Slurm gives a reservation to every job that has to wait, EASY to the first. The main loop, which starts the head of
    # the queue between two cycles of backfill, is off: backfill starts heads too, and so everything happens in its cycles.
    "easy_backfill": ("sched/backfill", "sched_interval=-1,bf_interval=1,bf_resolution=1,bf_job_part_count_reserve=1"),
}
"""Policy of this project -> scheduler and parameters of Slurm with the same rules. Either looks at its queue once in a second."""


@dataclass(frozen=True)
class Ask:
    """One job: s after the start at which it is submitted, s for which it sleeps, its time limit, and what it holds."""

    at: float
    sleeps: int
    limit_min: int
    instances: int
    gpus: int


@dataclass(frozen=True)
class Ran:
    """What Slurm's controller logged of one job, s since the start of the first, and the servers it ran on."""

    submit: float
    start: float
    end: float
    servers: list[int]


@dataclass(frozen=True)
class World:
    """Jobs drawn from a seed: gangs of whole servers, single instances of 1 to 8 GPUs on one server, or a mix on several; or a tie."""

    policy: str
    kind: str
    seed: int = 1

    @property
    def name(self) -> str:
        return f"{self.policy}, {self.kind} {self.seed}"

    @property
    def servers(self) -> int:
        return {"one server": 1, "tie": 2}.get(self.kind, 4)

    def asks(self) -> list[Ask]:
        """A gate, then a burst, then one job every few seconds. No two time limits are equal."""
        if self.kind == "tie":
            return [Ask(0.0, GATE_S, 1, 2, GPUS), Ask(0.5, 4, 5, 1, GPUS), Ask(0.5, 2, 1, 2, GPUS), Ask(0.5, 2, 5, 1, GPUS)]
        rng = np.random.default_rng(self.seed)
        limits = rng.permutation(np.arange(2, JOBS + 2))
        asks = [Ask(0.0, GATE_S, 1, self.servers, GPUS)]
        for number in range(1, JOBS):
            at = 0.5 if number < JOBS * 2 // 3 else asks[-1].at + int(rng.integers(1, 4))
            gang = {"whole servers": 1.0, "one server": 0.0, "mix": 0.3}[self.kind] > rng.random()
            instances, gpus = int(rng.choice([1, 2, 3, 4], p=[0.4, 0.3, 0.2, 0.1])), int(rng.integers(1, GPUS + 1))
            asks.append(Ask(at, int(rng.integers(1, 5)), int(limits[number]), instances if gang else 1, GPUS if gang else gpus))
        return asks


AGREE = (
    World("fifo", "whole servers"), World("fifo", "one server"), World("fifo", "mix", 2),
    World("easy_backfill", "whole servers"), World("easy_backfill", "one server"), World("easy_backfill", "mix", 3),
    World("easy_backfill", "mix", 4),
)
"""Worlds in which Slurm's rules and ours are the same."""

PLACEMENT = World("easy_backfill", "mix", 1)
"""Where several partly used servers would do, ours takes the one with fewest free GPUs. Slurm takes the run of neighbouring servers
that has fewest free processors, and of it the first."""

TIE = World("easy_backfill", "tie")
"""A job that would end just when the reservation begins: EASY starts it, Slurm does not."""

WORLDS = (*AGREE, PLACEMENT, TIE)


def through_slurm(worlds: Sequence[World]) -> list[list[Ran]]:
    """Runs the worlds at the same time, each in a Slurm of its own."""
    with ThreadPoolExecutor(len(worlds)) as threads:
        return list(threads.map(_through_slurm, worlds))


def _through_slurm(world: World) -> list[Ran]:
    def submit(ask: Ask) -> None:
        cluster.tell("sbatch", "--output=/dev/null", f"--time={ask.limit_min}", f"--nodes={ask.instances}", f"--gres=gpu:{ask.gpus}",
                     f"--wrap=sleep {ask.sleeps}")

    gate, *others = world.asks()
    with Slurm(world.servers, GPUS, 64, *SCHEDULERS[world.policy]) as cluster:
        submit(gate)
        cluster.wait_until(lambda: started(cluster.log()) is not None, 20, "the first job does not start")
        began = started(cluster.log())
        assert began
        for ask in others:
            time.sleep(max(0.0, ask.at - (datetime.now() - began).total_seconds()))
            submit(ask)
        cluster.wait_until(lambda: not cluster.tell("squeue", "-h"), 300, "jobs did not end")
        return read_log(cluster.log(), len(others) + 1)


def started(log: str) -> datetime | None:
    """When the first job started."""
    return next((datetime.fromisoformat(match["time"]) for match in LINE.finditer(log) if match["what"].startswith("sched")), None)


def read_log(log: str, jobs: int) -> list[Ran]:
    """What the controller's log says of jobs 1 to ``jobs``."""
    submit: dict[int, datetime] = {}
    start: dict[int, datetime] = {}
    end: dict[int, datetime] = {}
    servers: dict[int, list[int]] = {}
    for match in LINE.finditer(log):
        number, at = int(match["job"]), datetime.fromisoformat(match["time"])
        if "submit" in match["what"]:
            submit[number] = at
        elif "complete" in match["what"]:
            end[number] = at
        else:
            assert number not in start, f"job {number} started twice"
            names = re.search(r"(?:NodeList=| on )(\S+)", match["rest"])
            assert names, match[0]
            start[number], servers[number] = at, numbers(names[1])
    since = [[round((times[number] - start[1]).total_seconds(), 3) for number in range(1, jobs + 1)] for times in (submit, start, end)]
    return [Ran(*times, servers[number]) for number, times in enumerate(zip(*since, strict=True), 1)]


def numbers(nodes: str) -> list[int]:
    """Numbers of the servers that Slurm writes as n2 or n[0-1,3]."""
    found: list[int] = []
    for part in nodes.strip("n[]").split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def cycles(ran: Sequence[Ran]) -> list[int]:
    """In which of the scheduler's cycles (about 1 s) each job started, counted from the first start."""
    found = [0] * len(ran)
    before, cycle = 0.0, 0
    for number in sorted(range(len(ran)), key=lambda number: ran[number].start):
        cycle += round(ran[number].start - before)
        before, found[number] = ran[number].start, cycle
    return found


def replayed(world: World, ran: Sequence[Ran]) -> tuple[list[int], list[list[int]]]:
    """Cycle of the start and servers of each job in a replay of what Slurm saw.

    Slurm looks once in a cycle. So a job comes in the cycle after its submission, and holds its servers up to the cycle after its end.
    """
    rows = [
        job(f"{number}", max(0, math.ceil(one.submit)), math.ceil(one.end - one.start), ask.gpus, instances=ask.instances,
            duration_estimate_s=60.0 * ask.limit_min)
        for number, (ask, one) in enumerate(zip(world.asks(), ran, strict=True))
    ]
    table = jobs_table(run(rows, [server(GPUS)] * world.servers, world.policy))
    return [int(start) for start in table["first_start"].to_pylist()], [sorted(servers) for servers in table["servers"].to_pylist()]


def main() -> int:
    reason = missing()
    if reason:
        print(reason, file=sys.stderr)
        return 2
    outcomes = through_slurm(WORLDS)
    record = {
        "slurm": version(), "recorded": datetime.now(UTC).date().isoformat(), "gpus": GPUS,
        "worlds": {world.name: [vars(ran) for ran in outcome] for world, outcome in zip(WORLDS, outcomes, strict=True)},
    }
    lines = json.dumps(record, separators=(",", ":")).replace("[{", "[\n{").replace("},{", "},\n{").replace("],\"", "],\n\"")
    RECORD.write_text(lines + "\n")
    print(f"{RECORD}: Slurm {record['slurm']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
