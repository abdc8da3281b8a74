"""The engine equals the naive twin, table for table, on random worlds, for every policy in the folder."""

import os
import sys
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from builders import job, server
from harness.cluster.hooks import policy_names
from harness.jit import JIT
from twin import complaint, report, shrunk
from worlds import World, world, world_for, worlds

POLICY = pytest.mark.parametrize("policy", policy_names())
IN_DEFAULT_RUN, IN_LONG_RUN = 60 if JIT else 6, 1000


def agree(policy: str, seeds: range) -> None:
    """Fails with the shrunk form of the first of the worlds on which the two differ."""
    for seed in seeds:
        if complaint(world_for(policy, seed), policy):
            pytest.fail(f"world {seed}, {report(world_for(policy, seed), policy)}", pytrace=False)


def test_every_policy_has_a_twin():
    assert set(policy_names()) == set(naive.POLICIES)


NAMED = [("godel", 27), ("kubernetes", 35), ("volcano_topology", 90), ("random_victim", 6), ("flextopo_exhaustive", 11),
         ("flextopo_imp", 41), ("domain_first", 45), ("domain_first", 4), ("domain_first_cost", 37), ("easy_backfill", 8),
         ("fifo_backfill", 3)]
"""Worlds with many decisions, failed claims, grace, end times, shares, gangs and racks, for tests/test_sabotage.py."""


@pytest.mark.parametrize(("policy", "seed"), NAMED)
def test_equal_on_named_worlds(policy: str, seed: int):
    assert complaint(world(seed), policy) == ""


@POLICY
def test_equal_on_seeded_worlds(policy: str):
    agree(policy, range(IN_DEFAULT_RUN))


@pytest.mark.slow
@POLICY
def test_equal_on_thousands_of_worlds(policy: str):
    agree(policy, range(IN_DEFAULT_RUN, IN_LONG_RUN))


def test_equal_when_what_a_search_keeps_spans_many_blocks():
    """Blocks are of 64 servers, more than a world has; interpreted, their size can be changed."""
    script = Path(__file__).with_name("twin_in_blocks.py")
    done = run([sys.executable, str(script), "domain_first", "domain_first_cost"], env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
               cwd=script.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@settings(max_examples=100)
@given(worlds(), st.sampled_from(policy_names()))
def test_equal_on_drawn_worlds(drawn: World, policy: str):
    if complaint(drawn, policy):
        pytest.fail(report(drawn, policy), pytrace=False)


def test_equal_where_spot_jobs_and_servers_have_no_gpus():
    """Three cores, all held when the last job comes: it evicts the spot job, which wastes nothing of no GPUs."""
    jobs = [job("a", 1, 21, 0, cpus=1.0), job("spot", 3, 40, 0, cpus=1.0, priority=-1, preemptible=True), job("b", 7, 2, 0, cpus=1.0),
            job("c", 8, 13, 0, cpus=1.0)]
    without = {**server(numa=2, sockets=2), "gpu_numa": [], "numa_cores": [1, 2]}
    assert complaint((jobs, [without], world(0)[2] | {"grace_s": 0.0, "min_runtime_s": 0.0, "horizon_s": float("inf")}), "gfs") == ""


def test_a_failing_world_is_shrunk_to_what_it_takes():
    """Pretend that the engine fails wherever a job of two instances meets a grace period on two servers."""

    def fails(candidate: World) -> bool:
        jobs, servers, options = candidate
        return any(job["instances"] == 2 for job in jobs) and len(servers) > 1 and options["grace_s"] > 0

    jobs, servers, options = shrunk(next(w for w in map(world, range(1000)) if fails(w) and len(w[0]) > 10), fails)
    assert (len(jobs), len(servers), jobs[0]["instances"]) == (1, 2, 2)
    assert {name for name, value in options.items() if value != naive.DEFAULTS[name]} == {"grace_s"}
    assert (jobs[0]["priority"], jobs[0]["end_time"], jobs[0]["duration_estimate_s"]) == (0, None, jobs[0]["duration"])


def test_a_difference_is_found_and_printed(monkeypatch: pytest.MonkeyPatch):
    """A twin whose restarts are free of charge differs, and the report names job, column and both values."""
    victim = job("v", 0, 20, preemptible=True, restart_cost_s=1.5)
    case: World = [victim, job("p", 7, 3, priority=1)], [server(1)], dict(naive.DEFAULTS)
    assert complaint(case, "godel") == ""
    replay = naive.replay

    def free_of_charge(jobs: list[dict], *others: Any) -> dict[str, Any]:
        return replay([{**job, "restart_cost_s": 0.0} for job in jobs], *others)

    monkeypatch.setattr(naive, "replay", free_of_charge)
    text = report(case, "godel")
    # v runs [0, 7), loses it all, waits for p's 3 s and runs [10, 30), or until 31.5 with the restart.
    assert "job v, finish_time: the twin says 30.0, the engine 31.5" in text
    assert "[0] v: at 0 for 20: gpus=1, cpus=0.0, preemptible=True, restart_cost_s=1.5" in text
    assert "jobs = [" in text and "servers = [" in text
