"""Gangs across servers worked by hand: Kueue's topology-aware placement, whole-gang preemption, and timers for consolidation."""

from typing import Any

import pytest

from builders import job, play, server

PREFERRED: dict[str, Any] = {"network_domain": "rack", "network_mode": "preferred"}
REQUIRED: dict[str, Any] = {"network_domain": "rack", "network_mode": "required"}


def servers_with_free(*free: int, racks: tuple[int, ...] = ()) -> tuple[list[dict], list[dict]]:
    """Servers of 4 GPUs, in one rack each unless ``racks`` says otherwise, and the jobs that leave so many of them free.

    Best fit would put the fillers elsewhere: each fits only its own server, by its model.
    """
    racks = racks or tuple(range(len(free)))
    servers = [server(4, gpu_model=f"m{s}", rack=racks[s]) for s in range(len(free))]
    fillers = [job(f"f{s}", 0, 100, 4 - n, gpu_model=f"m{s}") for s, n in enumerate(free) if n < 4]
    return servers, fillers


def seats(name: str, jobs: list[dict], servers: list[dict], policy: str = "kueue_tas", **options: Any) -> list[int]:
    return play(jobs, servers, policy, **options).jobs[name]["servers"]


# Kueue


@pytest.mark.parametrize(("profile", "expected"), [
    ("best_fit", [0, 0, 0, 1, 1, 1, 3]),
    ("least_free", [3, 2, 2, 0, 0, 0, 1]),
    ("mixed", [3, 2, 2, 0, 0, 0, 1]),
])
def test_the_example_of_kueue(profile: str, expected: list[int]):
    # 3, 3, 2, 1 GPUs free and 7 pods without a wish. BestFit: 3 + 3, and of those that hold the last one the tightest: 3 + 3 + 1.
    # LeastFreeCapacity from the tightest up: 1 + 2 + 3, and 1 of the next. The mixed profile has it where there is no wish.
    servers, fillers = servers_with_free(3, 3, 2, 1)
    assert seats("g", [*fillers, job("g", 1, 5, instances=7)], servers, profile=profile) == expected


def test_pods_are_counted_where_they_fit_not_by_free_gpus():
    # Instances of 2 GPUs: 3 free hold one, 3 one, 2 one, 4 two. A gang of 3 without a wish, least free: servers 0, 1, 2 (ties by index).
    servers, fillers = servers_with_free(3, 3, 2, 4)
    assert seats("g", [*fillers, job("g", 1, 5, 2, instances=3)], servers) == [0, 1, 2]
    # Best fit: the roomiest (3, which takes two) first, then of those that take the last one the lowest index.
    assert seats("g", [*fillers, job("g", 1, 5, 2, instances=3)], servers, profile="best_fit") == [3, 3, 0]


def test_the_tightest_rack_that_takes_the_gang():
    # Racks {0, 1} with 4 + 1 free, {2, 3} with 2 + 2, {4} with 4. A gang of 4: racks take 5, 4, 4. The tightest, lowest index: 2 + 2.
    servers, fillers = servers_with_free(4, 1, 2, 2, 4, racks=(0, 0, 1, 1, 2))
    for wish in (PREFERRED, REQUIRED):
        assert seats("g", [*fillers, job("g", 1, 5, instances=4, **wish)], servers) == [2, 2, 3, 3]
    # Of 5 only the first rack takes them: 4 + 1.
    assert seats("g", [*fillers, job("g", 1, 5, instances=5, **REQUIRED)], servers) == [0, 0, 0, 0, 1]


def test_preferred_goes_up_to_the_spine_and_then_over_several():
    # Racks of one server, 3, 2, 3, 1 free; spines {0, 1} (5 free) and {2, 3} (4 free). A gang of 4 fits no rack: the tighter spine, 1,
    # takes it exactly: 3 + 1. Of 5: spine 0. Of 7: the roomier spine first, 5, and the rest in the other: the tightest rack for 2 is
    # the one with 3. In racks pooled: 3 (rack 0) + 3 (rack 2) + the tightest for 1: rack 1 has 2 and rack 3 has 1, so rack 3.
    servers, fillers = servers_with_free(3, 2, 3, 1)
    for s, row in enumerate(servers):
        row["spine"] = s // 2
    def gang(n: int) -> list[int]:
        return seats("g", [*fillers, job("g", 1, 5, instances=n, **PREFERRED)], servers)
    assert gang(4) == [2, 2, 2, 3]
    assert gang(5) == [0, 0, 0, 1, 1]
    assert gang(7) == [0, 0, 0, 2, 2, 2, 3]
    # Required, it waits until the fillers end at 100: server 0 is then empty, and a rack takes 4.
    played = play([*fillers, job("g", 1, 5, instances=4, **REQUIRED)], servers, "kueue_tas")
    assert (played.runs("g"), played.jobs["g"]["servers"]) == ([(100, 105)], [0, 0, 0, 0])
