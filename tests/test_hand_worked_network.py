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


# Whole-gang preemption


def crowded(*priorities: tuple[int, ...], racks: tuple[int, ...], gpus: int = 1) -> tuple[list[dict], list[dict]]:
    """Servers full of preemptible one-GPU jobs of these priorities, named after server and place: v01 sits on server 0."""
    servers = [server(len(row), gpu_model=f"m{s}", rack=racks[s]) for s, row in enumerate(priorities)]
    jobs = [job(f"v{s}{i}", 0, 100, preemptible=True, priority=p, gpu_model=f"m{s}")
            for s, row in enumerate(priorities) for i, p in enumerate(row)]
    return servers, jobs


def decided(jobs: list[dict], servers: list[dict], policy: str = "domain_first_gang", **options: Any) -> dict[int, list[str]]:
    """Victims by server of the first decision."""
    return {row["server"]: row["victims"] for row in play(jobs, servers, policy, horizon_s=50.0, **options).rows if row["decision_id"] == 0}


def test_the_smallest_domain_comes_before_the_cheapest_victims():
    # Two racks of two 2-GPU servers. A gang of 2 single GPUs: server 0 could host both (priorities 3 + 3); one on each of servers 2 and 3
    # would cost 0 + 0, but a server is smaller than a rack: of the servers, 2 and 3 cost 0 + 3, the lower is 2.
    servers, jobs = crowded((3, 3), (3, 3), (0, 3), (0, 3), racks=(0, 0, 1, 1))
    assert decided([*jobs, job("g", 5, 10, instances=2, priority=5)], servers) == {2: ["v20", "v21"]}


def test_the_cheapest_rack_not_the_first_that_will_do():
    # A gang of 3 fits no server of 2. Rack 0 would cost three victims of priority 1 (3), rack 1 1 + 0 + 0 (1). The split of least
    # cost in rack 1 (1, 2 | 0, 0): one instance on server 2, two on server 3, whatever order racks are tried in.
    servers, jobs = crowded((1, 1), (1, 1), (1, 2), (0, 0), racks=(0, 0, 1, 1))
    gang = job("g", 5, 10, instances=3, priority=5)
    assert decided([*jobs, gang], servers) == {2: ["v20"], 3: ["v30", "v31"]}
    assert decided([*jobs, gang | REQUIRED], servers) == {2: ["v20"], 3: ["v30", "v31"]}
    # Instance by instance, domain_first takes the cheapest victim anywhere each time: with the wish it starts with rack 0, the first of
    # two with nothing free.
    assert decided([*jobs, gang | REQUIRED], servers, "domain_first") == {0: ["v00", "v01"], 1: ["v10"]}


def test_free_room_in_the_domain_is_used_and_counts_nothing():
    # Rack 0: server 0 has one GPU free and one victim of priority 4; rack 1 is full of priority 1. A gang of 2: server 0 alone hosts it
    # for one victim (2^31 + 4); server 1 would need two (2 (2^31 + 1)).
    servers, jobs = crowded((4, 4), (1, 1), racks=(0, 1))
    assert decided([*jobs[1:], job("g", 5, 10, instances=2, priority=5)], servers) == {0: ["v01"]}


def test_whole_gang_or_nothing():
    # A gang of 3 in one rack: each rack has 2 GPUs. Required, it is rejected; preferred, it takes the cluster: all of server 0
    # (the most instances on the lowest server) and one of server 1, equal in cost to any other way.
    servers, jobs = crowded((1, 1), (1, 1), racks=(0, 1))
    rejected = play([*jobs, job("g", 5, 10, instances=3, priority=5, **REQUIRED)], servers, "domain_first_gang")
    assert (rejected.jobs["g"]["status"], rejected.outcome.decisions) == ("rejected", 0)
    assert decided([*jobs, job("g", 5, 10, instances=3, priority=5, **PREFERRED)], servers) == {0: ["v00", "v01"], 1: ["v10"]}
    # Three racks of 2, the third held by jobs that may not be evicted: a gang of 5 finds room for 4, and nobody is evicted for it.
    servers, jobs = crowded((1, 1), (1, 1), (1, 1), racks=(0, 1, 2))
    jobs = [row | {"preemptible": row["job_id"][1] != "2"} for row in jobs]
    played = play([*jobs, job("g", 5, 10, instances=5, priority=5)], servers, "domain_first_gang")
    assert (played.outcome.decisions, played.runs("g")) == (0, [(100, 110)])


def test_a_gang_that_was_evicted_is_placed_again():
    # Two servers of 2. g (2 x 2, priority 0) fills them; p (priority 1) evicts it at 5 and runs until 8; g is no preemptor and starts at 8.
    gang = job("g", 0, 10, 2, instances=2, preemptible=True)
    for policy in ("domain_first_gang", "dally"):
        pair = job("p", 5, 3, instances=2, priority=1)
        assert play([gang, pair], [server(2), server(2)], policy).runs("g") == [(0, 5), (8, 18)]


def test_victims_on_a_server_keep_together():
    # A server of 2 NUMA nodes x 2 GPUs, one socket each, full of one-GPU jobs: 1 0 | 1 0. A gang of 2 single GPUs: the cheapest pair
    # (0 + 0) spans sockets (15 - 7 = 8); a pair inside a NUMA node costs 1 + 0 and T 15: it comes first.
    servers = [server(4, numa=2, sockets=2)]
    jobs = [job(f"v{i}", i, 100, preemptible=True, priority=p, affinity="best_effort", cpus=1.0) for i, p in enumerate((1, 0, 1, 0))]
    assert decided([*jobs, job("g", 5, 10, instances=2, priority=5)], servers) == {0: ["v0", "v1"]}


# Timers


def test_a_gang_waits_for_a_server_then_a_rack_then_takes_anything():
    # Three racks of one 2-GPU server, each with a GPU held until 30. A gang of 2 comes at 1: no server has 2 free. With machine_s 10 and
    # rack_s 5 it takes any servers from 16 on; the events at 9, 13 and 20 ask again, and at 20 it starts on servers 0 and 1.
    servers, jobs = crowded((0, 0), (0, 0), (0, 0), racks=(0, 1, 2))
    jobs = [row | {"duration": 30.0, "preemptible": False} for row in jobs if row["job_id"].endswith("0")]
    noise = [job(f"o{t}", t, 1, 9) for t in (9, 13, 20)]
    gang = job("g", 1, 5, instances=2)
    played = play([*jobs, gang, *noise], servers, "dally", machine_s=10.0, rack_s=5.0)
    assert (played.runs("g"), played.jobs["g"]["servers"]) == ([(20, 25)], [0, 1])
    # In one rack, the event at 13 is late enough.
    together = [row | {"rack": 0} for row in servers]
    assert play([*jobs, gang, *noise], together, "dally", machine_s=10.0, rack_s=5.0).runs("g") == [(13, 18)]
    # Patient, it waits until a server is empty at 30.
    played = play([*jobs, gang, *noise], servers, "dally", machine_s=600.0)
    assert (played.runs("g"), played.jobs["g"]["servers"]) == ([(30, 35)], [0, 0])
    # A gang of 3 can never sit on a server: the timer for machines does not hold it, that for racks does.
    wide = job("g", 1, 5, instances=3)
    assert play([*jobs, wide, *noise], together, "dally", machine_s=10.0, rack_s=5.0).runs("g") == [(1, 6)]


def test_a_sensitive_gang_evicts_to_sit_closer_rather_than_take_what_is_free():
    # Two racks of one 2-GPU server, each with a victim of priority 0 and a free GPU. A gang of 2, priority 1, could start on both; while it
    # waits for a server it evicts v00 and sits on server 0 alone. With preempt=never it waits 10 s, then (rack_s 0) takes both.
    servers, jobs = crowded((0, 0), (0, 0), racks=(0, 1))
    jobs = [row for row in jobs if row["job_id"].endswith("0")]
    gang = job("g", 1, 5, instances=2, priority=1)
    played = play([*jobs, gang], servers, "dally", machine_s=10.0, rack_s=0.0, horizon_s=50.0)
    assert (played.runs("g"), played.jobs["g"]["servers"]) == ([(1, 6)], [0, 0])
    assert [row["victims"] for row in played.rows] == [["v00"]]
    played = play([*jobs, gang, job("o", 12, 1, 9)], servers, "dally", machine_s=10.0, rack_s=0.0, preempt="never", horizon_s=50.0)
    assert (played.runs("g"), played.jobs["g"]["servers"], played.rows) == ([(12, 17)], [0, 1], [])
