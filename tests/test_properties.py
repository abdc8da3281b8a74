"""What holds in every replay, whatever the policy: resources, gangs, guarantees, times, and how results follow from the trace."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numba import njit

import audit
from builders import Played, job, play, server
from harness.cluster import engine
from harness.cluster import run as running
from harness.cluster.hooks import HOOKS, Policy, load_policy, policy_names, signatures
from harness.cluster.log import new_log
from harness.jit import JIT
from naive import DEFAULTS
from worlds import World, literal, world

POLICY = pytest.mark.parametrize("policy", policy_names())
WORLDS = 25 if JIT else 4
"""Interpreted, as for coverage, a replay takes a hundred times as long."""

TIMES = ("submit_time", "duration", "duration_estimate_s", "end_time", "checkpoint_interval_s", "restart_cost_s")
SCALED = ("first_start", "finish_time", "wait_s", "queue_s", "jct_s", "goodput_gpu_s", "lost_gpu_s", "restart_gpu_s", "shortfall_gpu_s",
          "time")
"""Columns of jobs and preemptions in seconds or GPU seconds."""

EXPECTED = {
    "fifo_backfill": audit.NO_VICTIMS, "sjf": audit.NO_VICTIMS, "priority": audit.NO_VICTIMS, "godel": audit.COUNTS_ONLY,
    "kubernetes": audit.COUNTS_ONLY, "random_victim": audit.COUNTS_ONLY, "volcano_topology": audit.GUARANTEES,
    "flextopo_exhaustive": audit.GUARANTEES, "flextopo_imp": audit.GUARANTEES, "domain_first": audit.GUARANTEES,
    "domain_first_cost": audit.GUARANTEES, **dict.fromkeys(("hps", "pbs", "sbs", "srgt", "tiresias"), audit.NO_VICTIMS),
}
"""Policies that must find a place, or victims, wherever there are any; with scan=all they look at every server."""


def replayed(case: World, policy: str | Policy) -> Played:
    """Without comparing with the twin, which tests/test_twin.py does."""
    jobs, servers, options = case
    if isinstance(policy, str):
        policy = loaded(policy, options)
    return play(jobs, servers, policy, **options)


def loaded(policy: str, options: dict[str, Any]) -> Policy:
    has = load_policy(policy).params
    return load_policy(policy, params={name: value for name, value in {**DEFAULTS, **options}.items() if name in has})


@cache
def watching() -> Policy:
    return load_policy(file=str(Path(audit.__file__)))


def audited(policy: Policy, expected: int) -> Policy:
    """The same policy, watched by tests/audit.py."""
    watch = watching()
    hooks, defined = list(policy.hooks), list(policy.defined)
    admit, blocked = HOOKS.index("admit"), HOOKS.index("blocked")
    look, theirs = watch.hooks[admit], policy.hooks[admit]

    def both(view, own, job):
        return look(view, own, job) and theirs(view, own, job)

    hooks[admit] = look if not defined[admit] else njit(signatures()["admit"])(both) if JIT else both
    defined[admit] = True
    if not defined[blocked]:
        hooks[blocked], defined[blocked] = watch.hooks[blocked], True
    return replace(policy, hooks=tuple(hooks), defined=tuple(defined), state=policy.state + audit.NOTES,
                   values=np.append(policy.values, float(expected)))


def tables(played: Played) -> tuple[list[dict], list[dict], int, int]:
    """All that is compared between two replays; wall-clock time is not."""
    rows = [{name: value for name, value in row.items() if name != "search_wall_us"} for row in played.rows]
    return list(played.jobs.values()), rows, played.outcome.events, played.outcome.decisions


@POLICY
def test_nothing_is_held_twice_and_nobody_waits_in_vain(policy: str):
    """No GPU, core or MiB is held twice, aggregates are true, gangs whole, guarantees kept, at every turn of every job; and no job of
    one instance fails that could have been placed, or admitted by evicting allowed victims. Looking changes nothing."""
    for seed in range(WORLDS):
        jobs, servers, options = world(seed)
        case = jobs, servers, {**options, "scan": "all", "max_evictable": 16}
        watched = replayed(case, audited(loaded(policy, case[2]), EXPECTED.get(policy, audit.NOTHING)))
        fault, who, s, time = watched.own.state[-audit.NOTES:]
        where = f"world {seed}, server {s:g}, job {who:g}, {time:g} s"
        assert fault == audit.SOUND, f"{where}: {audit.FAULTS[int(fault)]}\n{literal(*case)}"
        assert tables(watched) == tables(replayed(case, policy)), f"world {seed}"


@POLICY
def test_times_add_up(policy: str):
    """Completion time = waited + ran + lost + restarted at speed 1, from the tables alone; gangs have a server for each instance."""
    for seed in range(WORLDS):
        jobs, servers, options = world(seed)
        for row in replayed((jobs, servers, {**options, "speed": {}}), policy).jobs.values():
            gpus = row["instances"] * row["gpus"] * row["gpu_milli"] / 1000
            assert len(row["servers"]) in ((row["instances"],) if row["first_start"] is not None else (0,))
            if row["status"] in ("finished", "expired") and gpus:
                ran = (row["goodput_gpu_s"] + row["lost_gpu_s"] + row["restart_gpu_s"]) / gpus
                assert row["jct_s"] == pytest.approx(row["queue_s"] + ran, rel=1e-12, abs=1e-12)
                assert row["finish_time"] == pytest.approx(row["submit_time"] + row["jct_s"], rel=1e-15)
            if row["status"] == "finished" and row["end_time"] is None and gpus:
                assert row["goodput_gpu_s"] == gpus * row["duration"]
            if row["first_start"] is not None:
                assert row["wait_s"] == row["first_start"] - row["submit_time"] <= row["queue_s"] + 1e-12
            elif row["status"] == "waiting":
                assert row["wait_s"] == row["queue_s"]


@POLICY
def test_names_do_not_matter(policy: str):
    for seed in range(WORLDS):
        jobs, servers, options = world(seed)
        new = {row["job_id"]: f"{i * 7919 % 1000:03}-{row['job_id'][::-1]}" for i, row in enumerate(jobs)}
        jobs_a, rows_a, *counts_a = tables(replayed((jobs, servers, options), policy))
        renamed = [{**row, "job_id": new[row["job_id"]]} for row in jobs]
        jobs_b, rows_b, *counts_b = tables(replayed((renamed, servers, options), policy))
        assert [{**row, "job_id": new[row["job_id"]]} for row in jobs_a] == jobs_b
        for row in rows_a:
            row["job_id"], row["victims"] = new[row["job_id"]], [new[name] for name in row["victims"]]
        assert (rows_a, counts_a) == (rows_b, counts_b)


@POLICY
def test_rows_may_come_in_any_order(policy: str):
    """Only the order of rows that are submitted at the same time matters."""
    for seed in range(WORLDS):
        jobs, servers, options = world(seed)
        mixed = Random(seed).sample(jobs, len(jobs))
        place = {row["job_id"]: i for i, row in enumerate(jobs)}
        for time in {row["submit_time"] for row in jobs}:
            at = [i for i, row in enumerate(mixed) if row["submit_time"] == time]
            for i, row in zip(at, sorted((mixed[i] for i in at), key=lambda row: place[row["job_id"]]), strict=True):
                mixed[i] = row
        jobs_a, *others_a = tables(replayed((jobs, servers, options), policy))
        jobs_b, *others_b = tables(replayed((mixed, servers, options), policy))
        assert [row["job_id"] for row in jobs_b] == [row["job_id"] for row in mixed]
        assert sorted(jobs_b, key=lambda row: place[row["job_id"]]) == jobs_a
        assert others_a == others_b


OWN_TIMES = {"hps", "pbs", "sbs", "tiresias", "gfs", "yarn_cs", "chronus", "lyra", "dally"}
"""Policies whose rules name times of their own, which do not scale."""


@pytest.mark.parametrize("factor", [2.0, 0.5])
@pytest.mark.parametrize("policy", [name for name in policy_names() if name not in OWN_TIMES])
def test_scaling_all_times_scales_all_times(policy: str, factor: float):
    """By a power of two every float64 operation scales exactly. The 10 s of bounded_slowdown do not scale."""
    def scaled(row: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        times = {name: row[name] * factor for name in names if row.get(name) is not None}
        return {name: value for name, value in (row | times).items() if name != "bounded_slowdown"}

    for seed in range(WORLDS):
        jobs, servers, options = world(seed)
        options = {**options, "speed": {}} if seed % 2 else options
        jobs_a, rows_a, *counts_a = tables(replayed((jobs, servers, options), policy))
        slow = [scaled(row, TIMES) for row in jobs], servers, scaled(options, ("grace_s", "min_runtime_s", "horizon_s", "retry_s"))
        jobs_b, rows_b, *counts_b = tables(replayed(slow, policy))
        assert [scaled(row, TIMES + SCALED) for row in jobs_a] == [scaled(row, ()) for row in jobs_b]
        assert ([scaled(row, SCALED) for row in rows_a], counts_a) == (rows_b, counts_b)


@pytest.mark.parametrize("policy", [name for name in policy_names() if name not in ("easy_backfill", "sbs")])
def test_a_job_that_asks_for_nothing_changes_nothing(policy: str):
    """Last in the queue and never evicted, it adds no more than instants at which nothing else happens.

    easy_backfill is left out: with overdue estimates its shadow times move with every such instant; so is sbs, in whose batches the job
    takes a place. Jobs that never start wait until the end, which may be that of this job.
    """
    def began(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if row["first_start"] is not None]

    for seed in range(WORLDS):
        jobs, servers, options = world(seed)
        options = {**options, "min_runtime_s": 0.0, "retry_s": 1e9}
        before = tables(replayed((jobs, servers, options), policy))
        idle = job("nothing", max(row["submit_time"] for row in jobs), 0.5**20, 0, priority=-9, tenant=jobs[0]["tenant"])
        after = tables(replayed(([*jobs, idle], servers, options), policy))
        assert began(after[0][:-1]) == began(before[0]) and after[1] == before[1], f"world {seed}"


@POLICY
def test_where_the_loop_is_left_does_not_matter(policy: str, monkeypatch: pytest.MonkeyPatch):
    """The same tables when the loop is left after every third event, and when the log has to grow from a single row."""
    for seed in range(0, WORLDS, 5):
        whole = tables(replayed(world(seed), policy))
        with monkeypatch.context() as patch:
            patch.setattr(running, "SLICE", 3)
            patch.setattr(engine, "new_log", lambda: new_log(1))
            assert tables(replayed(world(seed), policy)) == whole


@pytest.mark.parametrize("policy", ["fifo_backfill", "sjf", "priority"])
def test_jobs_of_one_size_are_served_without_idling(policy: str):
    """With single GPUs and no preemption, n GPUs are busy whenever n jobs are there: the busy time follows from arrivals alone."""
    rng = np.random.default_rng(1)
    submit, runs = np.cumsum(rng.integers(0, 4, 300)), rng.integers(1, 12, 300)
    jobs = [job(str(i), t, d, priority=i % 3) for i, (t, d) in enumerate(zip(submit, runs, strict=True))]
    played = replayed((jobs, [server(2), server(2)], {}), policy)
    attempts = [span for name in played.jobs for span in played.runs(name)]
    for t in range(int(played.outcome.end)):
        present = sum(row["submit_time"] <= t < row["finish_time"] for row in played.jobs.values())
        assert sum(a <= t < b for a, b in attempts) == min(present, 4), t
