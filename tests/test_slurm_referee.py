"""A real Slurm as a referee: which job starts when and where, against what Slurm did when it was recorded, and does now.

Whatever a seed draws, both sides are given the same jobs. The differences between Slurm's rules and ours are tests too.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict

import pytest

from slurm_cluster import missing
from slurm_referee import AGREE, PLACEMENT, RECORD, TIE, WORLDS, Ran, World, cycles, numbers, replayed, through_slurm


def recorded(world: World) -> list[Ran]:
    return [Ran(**ran) for ran in json.loads(RECORD.read_text())["worlds"][world.name]]


def check_agreement(world: World, ran: Sequence[Ran]) -> None:
    """Every job starts in the same cycle, on the same servers, and after the same jobs."""
    for ask, one in zip(world.asks(), ran, strict=True):
        assert ask.sleeps < one.end - one.start, "a job of Slurm ended before its sleep"
        assert len(one.servers) == ask.instances
    starts, servers = replayed(world, ran)
    assert starts == cycles(ran)
    assert servers == [one.servers for one in ran]
    jobs = range(len(ran))
    assert sorted(jobs, key=lambda job: starts[job]) == sorted(jobs, key=lambda job: (ran[job].start, job))


@pytest.mark.parametrize("world", AGREE, ids=lambda world: world.name)
def test_a_replay_starts_every_job_as_slurm_did(world: World):
    check_agreement(world, recorded(world))


@pytest.mark.parametrize("world", AGREE, ids=lambda world: world.name)
def test_no_other_policy_would_have_passed_for_slurm(world: World):
    """Jobs wait, under backfill some overtake, and the reservation keeps others from it."""
    ran = recorded(world)
    starts = cycles(ran)
    assert (starts != sorted(starts)) == (world.policy == "easy_backfill")
    assert sum(one.start - one.submit > 5 for one in ran) > len(ran) // 2
    for policy in {"fifo", "easy_backfill", "fifo_backfill"} - {world.policy}:
        assert replayed(World(policy, world.kind, world.seed), ran)[0] != starts


def check_placement(ran: Sequence[Ran]) -> None:
    """Up to the first job that is placed differently all is equal; that one could go to either server, and ours had fewer free GPUs."""
    starts, servers = replayed(PLACEMENT, ran)
    asks, theirs = PLACEMENT.asks(), cycles(ran)
    first = min((job for job in range(len(ran)) if servers[job] != ran[job].servers), key=lambda job: (theirs[job], job))
    before = [job for job in range(len(ran)) if (theirs[job], job) < (theirs[first], first)]
    assert [starts[job] for job in [*before, first]] == [theirs[job] for job in [*before, first]]
    free = [8] * PLACEMENT.servers
    for job in before:
        if ran[job].end > ran[first].start:
            for server in ran[job].servers:
                free[server] -= asks[job].gpus
    (ours,), (chosen,) = servers[first], ran[first].servers
    assert asks[first].gpus <= free[ours] < free[chosen]
    assert free[ours] == min(one for one in free if one >= asks[first].gpus)


def test_slurm_does_not_place_by_best_fit_over_all_servers():
    check_placement(recorded(PLACEMENT))


def check_tie(ran: Sequence[Ran]) -> None:
    """Two servers. Job 1 holds one until 300 s after its start in cycle 4, by its limit; job 2 needs both. Job 3, of 300 s, fits beside
    job 1 and would end just then: at 304 <= 304 EASY starts it at once, and job 2 starts when jobs 1 and 3 have ended, as without it.
    Slurm starts job 2 in cycle 9, when job 1 has ended after its 4 s, and job 3 in cycle 12."""
    assert replayed(TIE, ran)[0] == [0, 4, 9, 4]
    assert cycles(ran) == [0, 4, 9, 12]


def test_slurm_does_not_start_a_job_that_would_end_when_the_reservation_begins():
    check_tie(recorded(TIE))


@pytest.mark.slow
def test_slurm_does_the_same_today():
    reason = missing()
    if reason:
        pytest.skip(reason)
    outcomes = dict(zip(WORLDS, through_slurm(WORLDS), strict=True))
    for world in AGREE:
        check_agreement(world, outcomes[world])
    check_placement(outcomes[PLACEMENT])
    check_tie(outcomes[TIE])


def test_the_record_is_of_these_worlds():
    record = json.loads(RECORD.read_text())
    assert list(record["worlds"]) == [world.name for world in WORLDS]
    assert record["slurm"] and record["recorded"]
    for world in WORLDS:
        assert [list(asdict(one)) for one in recorded(world)] == [["submit", "start", "end", "servers"]] * len(world.asks())


def test_slurms_names_of_servers_are_read():
    assert numbers("n2") == [2] and numbers("n[0-1,3]") == [0, 1, 3]
