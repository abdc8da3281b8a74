"""A replay that holds a window of its trace is the replay of the whole trace: bit for bit, for every policy and window."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine_run import RULES, cluster_of, trace_of
from harness.cluster.build import Requests, Rules
from harness.cluster.hooks import load_policy, policy_names
from harness.cluster.log import HOLDER, PREEMPTOR, VICTIM_FROM, WALL
from harness.cluster.outcome import Outcome
from harness.cluster.replay import replay
from harness.cluster.state import Array, Table
from harness.cluster.window import replay_in_window
from naive import DEFAULTS
from worlds import World, world

OF_WINDOW = ("first_instance", "end_instance")
"""Fields of a job that say where it is in the tables."""


class Collected:
    """A sink that keeps everything, by rows of the trace."""

    def __init__(self):
        self.jobs: dict[int, Any] = {}
        self.servers: dict[int, list[int]] = {}
        self.log: dict[str, list] = {name: [] for name in ("rows", "numbers", "victims", "attempts", "held")}
        self.windows = 0

    def opened(self, first_row: int, jobs: Table) -> None:
        self.windows += 1

    def logged(self, piece: Outcome, rows: Array) -> None:
        log, size = piece.log, piece.log.size
        named, held, attempts = log.rows[:size[0]].copy(), log.held[:size[3]].copy(), log.attempts[:size[2]].copy()
        named[:, PREEMPTOR] = rows[named[:, PREEMPTOR]]
        named[:, VICTIM_FROM] += len(self.log["victims"])
        held[:, HOLDER] = rows[held[:, HOLDER].astype(int)]
        attempts[:, 0] = rows[attempts[:, 0].astype(int)]
        for name, part in (("rows", named), ("numbers", log.numbers[:size[0]]), ("victims", rows[log.victims[:size[1]]]),
                           ("attempts", attempts), ("held", held)):
            self.log[name] += part.tolist()

    def left(self, rows: Array, jobs: Table, ran_on: Array) -> None:
        at = 0
        for row, job in zip(rows.tolist(), jobs, strict=True):
            assert row not in self.jobs
            self.jobs[row] = job
            self.servers[row] = ran_on[at:at + job.end_instance - job.first_instance].tolist()
            at += job.end_instance - job.first_instance
        assert at == len(ran_on)


def sorted_trace(jobs: list[dict[str, Any]]) -> pa.Table:
    return trace_of(sorted(jobs, key=lambda job: job["submit_time"]))


def setting(drawn: World, policy: str) -> tuple[pa.Table, Any, Any, Rules]:
    """Trace in order of arrival, cluster, policy and rules of a world."""
    jobs, servers, options = drawn
    chosen = {**DEFAULTS, **options}
    rules = Rules(**{name: chosen.pop(name) for name in RULES})
    params = {name: value for name, value in chosen.items() if name in load_policy(policy).params}
    return sorted_trace(jobs), cluster_of(servers), load_policy(policy, params=params), rules


def differences(drawn: World, policy: str, rows: int) -> list[str]:
    """What differs between the replay of the whole trace and one that is given ``rows`` rows at a time."""
    trace, cluster, chosen, rules = setting(drawn, policy)
    whole = replay(trace, cluster, chosen, rules)
    requests, found = Requests(), Collected()
    for at in range(0, trace.num_rows, rows):
        requests.number(trace.slice(at, rows))
    last = replay_in_window((trace.slice(at, rows) for at in range(0, trace.num_rows, rows)), requests, cluster, chosen, rules, found)
    unlike = [name for name in ("events", "decisions", "end", "capped", "reasons") if getattr(whole, name) != getattr(last, name)]
    for row, job in found.jobs.items():
        theirs = whole.state.jobs[row]
        unlike += [f"job {row}, {name}: {theirs[name]} is not {job[name]}" for name in job.dtype.names
                   if name not in OF_WINDOW and not np.array_equal(theirs[name], job[name], equal_nan=True)]
        servers = whole.state.instances.ran_on[theirs.first_instance:theirs.end_instance].tolist()
        unlike += [f"job {row}, servers: {servers} is not {found.servers[row]}"] if servers != found.servers[row] else []
    never = sorted(set(range(trace.num_rows)) - set(found.jobs))
    unlike += [f"job {row} is missing" for row in never if whole.state.jobs.first_start[row] == whole.state.jobs.first_start[row]]
    log = whole.log
    for kind, name in enumerate(("rows", "victims", "attempts", "held")):
        theirs = getattr(log, name)[:log.size[kind]].tolist()
        unlike += [f"log, {name}"] if theirs != found.log[name] else []
    numbers = np.array(found.log["numbers"]).reshape(-1, 3)
    unlike += ["log, numbers"] if not np.array_equal(np.delete(numbers, WALL, 1), np.delete(log.numbers[:log.size[0]], WALL, 1)) else []
    return unlike


@pytest.mark.parametrize("policy", policy_names())
def test_any_window_gives_the_same_replay(policy: str):
    for seed in range(40):
        for rows in (1, 2, 5, 13):
            assert differences(world(seed), policy, rows) == [], f"world {seed}, {rows} rows at a time"
