"""Preemptions worked by hand: who is evicted and why, what it costs, and what happens while victims let go."""

from typing import Any

import pytest

from builders import job, play, server

HALVES = server(4, numa=2, sockets=2)
"""GPUs 0, 1 in one NUMA node and socket, 2, 3 in another."""

PREEMPTIVE = ("godel", "kubernetes", "volcano_topology", "flextopo_exhaustive", "flextopo_imp", "domain_first", "domain_first_cost",
              "random_victim")


def batch(name: str, at: float = 0, runs: float = 100, gpus: int = 1, **columns: Any) -> dict[str, Any]:
    return job(name, at, runs, gpus, preemptible=True, **columns)


def first_row(jobs: list[dict], servers: list[dict], policy: str = "godel", **options: Any) -> dict[str, Any]:
    """The first row of preemptions up to time 50."""
    return play(jobs, servers, policy, horizon_s=50.0, **options).rows[0]


# Who


@pytest.mark.parametrize("policy", PREEMPTIVE)
def test_only_preemptible_jobs_of_lower_priority_are_evicted(policy: str):
    # Three servers of 1 GPU: e has p's own priority, n is not preemptible, v alone may go.
    jobs = [batch("e", priority=1), job("n", 0, 100), batch("v"), job("p", 5, 5, priority=1)]
    played = play(jobs, [server()] * 3, policy, horizon_s=50.0)
    assert [(row["victims"], row["server"], row["ran"]) for row in played.rows] == [(["v"], 2, True)]
    assert played.runs("p") == [(5, 10)] and played.runs("v") == [(0, 5), (10, 50)]
    # Without v nobody is evicted, and p waits.
    assert play([*jobs[:2], jobs[3]], [server()] * 2, policy, horizon_s=50.0).outcome.decisions == 0


@pytest.mark.parametrize("policy", PREEMPTIVE)
def test_a_job_is_protected_while_it_is_young(policy: str):
    # min_runtime 5, v from 0. p comes at 3 and waits; an event at 4 changes nothing, one at 5 finds that v has run 5 s.
    noise = [job("o4", 4, 1, 9), job("o5", 5, 1, 9), job("o6", 6, 1, 9)]
    jobs = [batch("v"), job("p", 3, 5, priority=1), *noise]
    assert play(jobs, [server()], policy, min_runtime_s=5.0, horizon_s=50.0).runs("p") == [(5, 10)]
    # Nothing wakes the scheduler when protection runs out: without the events at 5 and 6 p starts when v ends.
    assert play([*jobs[:2], noise[0]], [server()], policy, min_runtime_s=5.0).runs("p") == [(100, 105)]


def test_reprieve_spares_high_priority_then_the_longest_running():
    # Four GPUs: a and b have priority 1 (a is older), c 2, d 0. p needs 2 GPUs. Put back in the order c, a, b, d: c yes (3 left),
    # a yes (2 left), b no, d no. One test each.
    jobs = [batch("a", 0, priority=1), batch("b", 1, priority=1), batch("c", 2, priority=2), batch("d", 3)]
    row = first_row([*jobs, job("p", 10, 5, 2, priority=5)], [server(4)])
    assert (row["victims"], row["victims_n"], row["victim_priority_sum"], row["subsets_tried"]) == (["b", "d"], 2, 1, 4)
    # Equal in priority and start: the lower index is put back first, so the higher indices go.
    jobs = [batch(name) for name in "abcd"]
    assert first_row([*jobs, job("p", 10, 5, 2, priority=5)], [server(4)])["victims"] == ["c", "d"]


def test_reprieve_goes_on_past_a_job_that_may_not_stay():
    # Three GPUs: a holds 1 (priority 0), b 2 (priority 1). p needs 2: b first, and with b back only 1 is left: it goes. a may
    # stay. So the victim is the more important b, alone.
    jobs = [batch("a"), batch("b", gpus=2, priority=1), job("p", 10, 5, 2, priority=5)]
    assert first_row(jobs, [server(3)])["victims"] == ["b"]
    # All subsets: {a, b} and {b}; both have highest priority 1; the sum decides (one victim less).
    assert first_row(jobs, [server(3)], "flextopo_exhaustive")["victims"] == ["b"]


SERVER_TIES = [
    # (victims on server 0, victims on server 1, GPUs wanted, server chosen): each victim is (start, priority, GPUs).
    ([(0, 2, 1)], [(0, 1, 1)], 1, 1, "lowest highest priority"),
    ([(0, 1, 1), (0, 1, 1)], [(0, 1, 1), (0, 0, 1)], 2, 1, "lowest priority sum"),
    ([(0, 1, 1), (0, -5, 1)], [(0, 1, 2)], 2, 1, "fewest victims, though -4 < 1: the sum adds 2^31 for each"),
    ([(0, 1, 1)], [(1, 1, 1)], 1, 1, "latest start"),
    ([(1, 1, 1), (2, 0, 1)], [(0, 0, 1), (2, 1, 1)], 2, 1, "latest start among the victims of highest priority only"),
    ([(0, 1, 1), (3, 1, 1)], [(1, 1, 1), (2, 1, 1)], 2, 1, "latest earliest start"),
    ([(0, 1, 1)], [(0, 1, 1)], 1, 0, "lowest server"),
]


@pytest.mark.parametrize(("left", "right", "wanted", "chosen", "rule"), SERVER_TIES, ids=[tie[-1] for tie in SERVER_TIES])
@pytest.mark.parametrize("policy", ["godel", "flextopo_exhaustive", "flextopo_imp", "domain_first"])
def test_servers_are_ranked_rule_by_rule(left: list, right: list, wanted: int, chosen: int, rule: str, policy: str):
    # The model of a victim is that of its server, so that each lands where it should; p accepts both.
    jobs = [batch(f"{model}{i}", at, gpus=gpus, priority=priority, gpu_model=model)
            for model, victims in (("L", left), ("R", right)) for i, (at, priority, gpus) in enumerate(victims)]
    servers = [server(sum(v[2] for v in victims), gpu_model=model) for model, victims in (("L", left), ("R", right))]
    row = first_row([*jobs, job("p", 10, 5, wanted, priority=5)], servers, policy)
    assert (row["server"], row["victims_n"]) == (chosen, len((left, right)[chosen])), rule


def test_the_last_tie_goes_to_the_smallest_indices():
    # Four victims alike in every respect. One GPU: {a}; two: {a, b}; the twin's sets are compared as sorted lists of indices.
    jobs = [batch(name) for name in "abcd"]
    for policy in ("flextopo_exhaustive", "flextopo_imp", "domain_first", "domain_first_cost"):
        for wanted, victims in ((1, ["a"]), (2, ["a", "b"]), (3, ["a", "b", "c"])):
            assert first_row([*jobs, job("p", 10, 5, wanted, priority=5)], [server(4)], policy)["victims"] == victims
    # b and c are a pair of GPUs each; {a, d} and {b} and {c}: fewest victims first, then {b} before {c}.
    jobs = [batch("a"), batch("b", gpus=2), batch("c", gpus=2), batch("d")]
    for policy in ("flextopo_exhaustive", "domain_first"):
        assert first_row([*jobs, job("p", 10, 5, 2, priority=5)], [server(6)], policy)["victims"] == ["b"]


def test_indices_are_compared_as_sorted_lists():
    # a takes GPU 0, x GPU 1, b and c GPUs 2 and 3; x ends at 1 and d takes GPU 1 at 2. p wants a whole node: {a, d} or {b, c}. Both
    # have earliest start 0 and are alike in all else: [0, 4] comes before [2, 3].
    jobs = [batch("a"), job("x", 0, 1), batch("b"), batch("c"), batch("d", 2), job("p", 10, 5, 2, priority=5, affinity="guaranteed")]
    for policy in ("flextopo_exhaustive", "flextopo_imp", "domain_first"):
        assert first_row(jobs, [HALVES], policy)["victims"] == ["a", "d"]


def eight(odd_may_go: bool = True) -> list[dict[str, Any]]:
    """b0 to b7, started at 0 to 7, on GPUs 0 to 7 of four NUMA nodes in two sockets; b0 and b7 have priority 0, the others 1."""
    return [job(f"b{i}", i, 100, priority=int(0 < i < 7), preemptible=odd_may_go or i % 2 == 0) for i in range(8)]


def test_tiers_prefer_victims_of_one_node():
    # p wants 2 GPUs anywhere. Blind reprieve leaves the two of priority 0: GPUs 0 and 7, two sockets (T = 7, no hit).
    paper, p = [server(8, numa=4, sockets=2)], job("p", 10, 5, 2, priority=5)
    row = first_row([*eight(), p], paper)
    assert (row["victims"], row["level_victims"], row["hit_victims"], row["level_assigned"]) == (["b0", "b7"], "server", False, "server")
    # T = 15 have {b0, b1}, {b2, b3}, {b4, b5}, {b6, b7}. Highest priority 1 in all; {b0, b1} and {b6, b7} have the least sum, 1;
    # of their priority 1 victims b6 started later (6 against 1).
    for policy in ("flextopo_exhaustive", "flextopo_imp", "domain_first"):
        row = first_row([*eight(), p], paper, policy)
        assert (row["victims"], row["level_victims"], row["hit_victims"], row["hit_assigned"]) == (["b6", "b7"], "numa", True, True)
    # Only b0, b2, b4, b6 may go, each alone in its node: {b0, b2} and {b4, b6} are in one socket (T = 12), others in none (7).
    # Highest priority 1 in both, sums 1 and 2: {b0, b2}.
    for policy in ("flextopo_exhaustive", "flextopo_imp", "domain_first"):
        row = first_row([*eight(odd_may_go=False), p], paper, policy)
        assert (row["victims"], row["level_victims"], row["hit_victims"]) == (["b0", "b2"], "socket", True)


@pytest.mark.parametrize("policy", ["flextopo_exhaustive", "domain_first"])
def test_the_later_pair_wins_though_an_earlier_one_is_met_first(policy: str):
    # p wants 2 GPUs and 8 cores of a full server. From the latest start back a, b, c, d hold 1, 4, 4, 7 cores: {a, b} and {a, c} have too
    # few, {a, d} has 8 and is the first pair that does, {b, c} has 8 too. Equal priorities and numbers; c started after d.
    cores = {"d": 7, "c": 4, "b": 4, "a": 1}
    jobs = [batch(name, at, cpus=float(cores[name])) for at, name in enumerate(cores)]
    row = first_row([*jobs, job("p", 10, 5, 2, cpus=8.0, priority=1)], [server(4, cores=16)], policy)
    assert row["victims"] == ["c", "b"]


def test_alpha_weighs_priorities_against_tiers():
    # alpha = 1: S = 1 / sum, so the least sum wins whatever its tier: {b0, b7}, sum 0 + 2 * 2^31.
    paper, p = [server(8, numa=4, sockets=2)], job("p", 10, 5, 2, priority=5)
    for policy in ("flextopo_exhaustive", "flextopo_imp", "domain_first"):
        assert first_row([*eight(), p], paper, policy, alpha=1.0)["victims"] == ["b0", "b7"]
        # alpha = 0.5: 1 / sum is some 1e-10, far less than the 4 between tiers: as with 0.
        assert first_row([*eight(), p], paper, policy, alpha=0.5)["victims"] == ["b6", "b7"]


def test_rank_by_assigned_looks_at_what_is_given():
    # GPU 0 is free since f ended at 5; GPU 3 belongs to n, which stays. p wants 2: without b1 it gets GPUs 0 and 1 (one node),
    # without b2 GPUs 0 and 2 (two sockets). As victims each is in one node (T = 15) and b2 has the lower priority.
    jobs = [job("f", 0, 5), batch("b1", priority=1), batch("b2"), job("n", 0, 100), job("p", 10, 5, 2, priority=5)]
    for policy in ("flextopo_exhaustive", "flextopo_imp", "domain_first", "domain_first_cost"):
        row = first_row(jobs, [HALVES], policy)
        assert (row["victims"], row["hit_victims"], row["level_assigned"], row["hit_assigned"]) == (["b2"], True, "server", False)
        row = first_row(jobs, [HALVES], policy, rank_by="assigned")
        assert (row["victims"], row["level_assigned"], row["hit_assigned"]) == (["b1"], "numa", True)


def test_a_server_offers_its_most_evictable_jobs_only():
    # Three victims; the FlexTopo family may consider 2: the lowest priority (c), then the latest start among a (0) and b (1): b.
    jobs = [batch("a", 0, priority=1), batch("b", 1, priority=1), batch("c", 2)]
    for policy in ("flextopo_exhaustive", "flextopo_imp", "domain_first", "domain_first_cost"):
        row = first_row([*jobs, job("p", 10, 5, 2, priority=5)], [server(3)], policy, max_evictable=2)
        assert row["victims"] == ["b", "c"]
        # For 3 GPUs all three would have to go: not considered. The reprieve policies have no such limit.
        played = play([*jobs, job("p", 10, 5, 3, priority=5)], [server(3)], policy, max_evictable=2, horizon_s=50.0)
        assert played.outcome.decisions == 0 and played.outcome.capped > 0
    assert first_row([*jobs, job("p", 10, 5, 3, priority=5)], [server(3)], max_evictable=2)["victims"] == ["a", "b", "c"]


def test_lost_work_decides_when_it_is_the_cost():
    # At 10, a (from 0, checkpoints always, restart 2 s) would cost 0 + 2; b (from 5, no checkpoints) 5; c (from 0, every 4 s): 10 -
    # 8 = 2 and no restart, but on 2 GPUs: 4. domain_first takes the latest start instead.
    jobs = [batch("a", checkpoint_interval_s=0.0, restart_cost_s=2.0), batch("c", gpus=2, checkpoint_interval_s=4.0), batch("b", 5),
            job("p", 10, 5, priority=5)]
    assert first_row(jobs, [server(4)], "domain_first_cost")["victims"] == ["a"]
    assert first_row(jobs, [server(4)], "domain_first")["victims"] == ["b"]
    # With 5 s of restart a costs 5 as b does; c costs 4.
    jobs[0]["restart_cost_s"] = 5.0
    assert first_row(jobs, [server(4)], "domain_first_cost")["victims"] == ["c"]


def test_all_sharers_of_a_gpu_must_go():
    # GPU 0 is shared by a and b (priority 0), GPU 1 is c's (priority 1). p wants a whole GPU: c is put back first and may stay, then
    # neither a nor b may. Two victims of priority 0 rank before one of priority 1 elsewhere, too.
    jobs = [batch("a", gpu_milli=500), batch("b", gpu_milli=500), batch("c", priority=1), job("p", 10, 5, priority=5)]
    for policy in ("godel", "flextopo_exhaustive", "domain_first"):
        row = first_row(jobs, [server(2)], policy)
        assert (row["victims"], row["gpus_freed"], row["gpus_needed"]) == (["a", "b"], 1, 1)
    # A share of 500 needs one of them only; 501 needs both.
    for milli, victims in ((500, ["a"]), (501, ["a", "b"])):
        row = first_row([*jobs[:3], jobs[3] | {"gpu_milli": milli}], [server(2)], "flextopo_exhaustive")
        assert (row["victims"], row["gpus_needed"]) == (victims, milli / 1000)


# What it costs


@pytest.mark.parametrize(("interval", "kept"), [(None, 0), (0.0, 7), (2.0, 6), (2.5, 5), (7.0, 7), (8.0, 0)])
def test_an_eviction_keeps_work_up_to_the_last_checkpoint(interval: float | None, kept: float):
    # v works at half speed. p takes its GPU over [7, 10): of 7 s, kept are interval * floor(7 / interval), half of them as
    # progress. The rest takes (20 - kept / 2) / 0.5 seconds from 10 on.
    jobs = [batch("v", 0, 20, checkpoint_interval_s=interval), job("p", 7, 3, priority=1, kind="online")]
    v = play(jobs, [server()], "godel", speed={("batch", "numa", "server"): 0.5}).jobs["v"]
    assert (v["lost_gpu_s"], v["goodput_gpu_s"], v["restart_gpu_s"]) == ((7 - kept) / 2, 20, 0)
    assert (v["finish_time"], v["queue_s"]) == (10 + (20 - kept / 2) / 0.5, 3)


def test_restarts_cost_from_the_second_attempt_on():
    # v: 10 s of work, nothing lost at evictions, 2 s of restart. [0, 4) works 4 s. p takes [4, 5). [5, 6) is all restart. q takes
    # [6, 7). Then from 7: 2 s of restart, 6 s of work: 15. Restart 1 + 2, queue 1 + 1.
    jobs = [batch("v", 0, 10, checkpoint_interval_s=0.0, restart_cost_s=2.0), job("p", 4, 1, priority=1), job("q", 6, 1, priority=1)]
    played = play(jobs, [server()], "flextopo_imp")
    v = played.jobs["v"]
    assert played.runs("v") == [(0, 4), (5, 6), (7, 15)]
    assert (v["restart_gpu_s"], v["lost_gpu_s"], v["goodput_gpu_s"], v["queue_s"], v["jct_s"]) == (3, 0, 10, 2, 15)
    assert (v["evictions"], v["slowdown"], v["bounded_slowdown"]) == (2, 1.5, 1.5)
    # Without checkpoints the 4 s are lost too: 7 + 2 + 10.
    jobs[0]["checkpoint_interval_s"] = None
    v = play(jobs, [server()], "flextopo_imp").jobs["v"]
    assert (v["finish_time"], v["lost_gpu_s"]) == (19, 4)


def test_a_gang_is_evicted_on_all_its_servers():
    # v has an instance on each server. p wants the GPU of server 0 (model A); that of server 1 is freed as well and goes to w at
    # once. 10 s of two GPUs are lost. v needs both again: p ends at 15, w at 30.
    servers = [server(), server(gpu_model="B")]
    jobs = [batch("v", 0, 20, instances=2), job("p", 10, 5, priority=1, gpu_model="A"), job("w", 10, 20)]
    played = play(jobs, servers, "godel")
    assert played.starts == [(0, "v"), (10, "p"), (10, "w"), (30, "v")]
    (row,) = played.rows
    assert (row["server"], row["gpus_needed"], row["gpus_freed"], row["gpus_freed_elsewhere"], row["lost_gpu_s"]) == (0, 1, 1, 1, 20)
    assert (played.summary["useful_share"], played.summary["preempted"], played.summary["victims_per_placement"]) == (0.5, 1, 1)


def test_a_gang_evicts_whole_or_not_at_all():
    # Two servers of 2 GPUs, a pair of victims on each: a, b from 0 on server 0; c, d of priority 1 from 1 on server 1. p wants 2
    # instances of 2 GPUs: server 0 first (priorities 0), then server 1. One decision, two rows, the lost work on the first alone:
    # 2 * 10 + 2 * 9 GPU seconds.
    jobs = [batch("a"), batch("b"), batch("c", 1, priority=1), batch("d", 1, priority=1)]
    jobs += [job("p", 10, 5, 2, instances=2, priority=5)]
    played = play(jobs, [server(2), server(2)], "godel", horizon_s=50.0)
    assert [(row["decision_id"], row["server"], row["victims"], row["lost_gpu_s"]) for row in played.rows] == [
        (0, 0, ["a", "b"], 38), (0, 1, ["c", "d"], 0)]
    # Reprieve tests: 2 on each server for the first instance, 2 on server 1 for the second.
    assert [row["subsets_tried"] for row in played.rows] == [6, 6]
    assert (played.summary["preempted"], played.summary["decisions"], played.summary["useful_share"]) == (4, 1, 1)
    # One of them may not be evicted: nobody is.
    jobs[3]["preemptible"] = False
    assert play(jobs, [server(2), server(2)], "godel", horizon_s=50.0).outcome.decisions == 0


# While victims let go


def test_what_is_not_claimed_is_invisible_until_grace_ends():
    # 3 GPUs: v holds 0 and 1, n holds 2. p (1 GPU) evicts v at 10 with 5 s of grace and claims GPU 0. q comes at 11: GPU 1 is
    # v's until 15. At 15 v needs 2 GPUs and finds 1; q takes it [15, 17). v starts when p ends, at 19.
    jobs = [batch("v", gpus=2, runs=20), job("n", 0, 100), job("p", 10, 4, priority=1), job("q", 11, 2)]
    played = play(jobs, [server(3)], "flextopo_imp", grace_s=5.0, horizon_s=60.0)
    assert played.starts == [(0, "n"), (0, "v"), (15, "p"), (15, "q"), (19, "v")]
    assert (played.jobs["p"]["wait_s"], played.jobs["q"]["wait_s"], played.jobs["v"]["queue_s"]) == (5, 4, 9)
    # v holds 2 GPUs for 5 s; nothing is claimed beyond them.
    assert (played.summary["grace_gpu_s"], played.summary["claim_gpu_s"]) == (10, 0)
    # With 0 s of grace it is free at once: q [11, 13).
    assert play(jobs, [server(3)], "flextopo_imp", horizon_s=60.0).starts[2:4] == [(10, "p"), (11, "q")]


def test_what_a_claim_takes_of_free_resources_is_taken_at_once():
    # 2 GPUs: v holds GPU 0, GPU 1 is free. p (2 GPUs) evicts v at 10 and claims both: q (at 11) finds nothing. p [15, 18).
    # At 18 v comes before q, and both find a GPU.
    jobs = [batch("v", runs=30), job("p", 10, 3, 2, priority=1), job("q", 11, 2)]
    played = play(jobs, [server(2)], "flextopo_imp", grace_s=5.0)
    assert played.starts == [(0, "v"), (15, "p"), (18, "q"), (18, "v")]
    assert (played.summary["grace_gpu_s"], played.summary["claim_gpu_s"]) == (5, 5)
    # Held over [0, 48): v 10, its grace 5, the claim 5, p 2 * 3, q 2, v 30.
    assert played.summary["gpu_alloc_mean"] * 2 * 48 == pytest.approx(58, rel=1e-12)


def test_of_fungible_pools_the_larger_part_is_withheld():
    # 8 cores. v shares 4, p wants 6 at 10: 4 from v, 2 from the 4 free ones. Others see max(4, 6) = 6 taken: q (2) starts at 11,
    # r (1) does not before v and p are through: p [15, 18). At 18 6 are free: v 4, r 1.
    jobs = [batch("v", gpus=0, cpus=4.0, runs=20), job("p", 10, 3, 0, cpus=6.0, priority=1), job("q", 11, 30, 0, cpus=2.0),
            job("r", 12, 1, 0, cpus=1.0)]
    played = play(jobs, [server()], "flextopo_imp", grace_s=5.0)
    assert played.starts == [(0, "v"), (11, "q"), (15, "p"), (18, "r"), (18, "v")]
    # The other way round, v 6 and p 4, p fits beside n: 3 free, so v must go; 6 are withheld until 15, then 4.
    jobs = [batch("v", gpus=0, cpus=5.0, runs=20), job("p", 10, 9, 0, cpus=4.0, priority=1), job("q", 11, 30, 0, cpus=3.0),
            job("r", 12, 30, 0, cpus=1.0)]
    played = play(jobs, [server()], "flextopo_imp", grace_s=5.0, horizon_s=60.0)
    # q takes the 3 free cores at 11; at 15 1 core is left: v (5) no, r yes.
    assert played.starts == [(0, "v"), (11, "q"), (15, "p"), (15, "r"), (41, "v")]


def test_a_shared_gpu_is_withheld_whole_once_it_is_claimed():
    # v has 500 of the only GPU, p wants all of it: others see max(500, 1000) taken. w (300) comes at 11 and waits until p ends.
    jobs = [batch("v", gpu_milli=500, runs=20), job("p", 10, 3, priority=1), job("w", 11, 1, gpu_milli=300)]
    played = play(jobs, [server()], "godel", grace_s=5.0)
    assert played.starts == [(0, "v"), (15, "p"), (18, "v"), (18, "w")]
    assert (played.summary["grace_gpu_s"], played.summary["claim_gpu_s"]) == (2.5, 2.5)


def test_a_claim_is_final_and_victims_come_back_when_grace_ends():
    # Two GPUs: n ends at 12, in the middle of v's grace. p's claim stays on v's GPU; q, of lower priority, takes n's at 12.
    # v may start again from 15 on, when p takes its GPU; it finds q's at 16.
    jobs = [batch("v", runs=20), job("n", 0, 12), job("p", 10, 9, priority=1), job("q", 11, 4)]
    played = play(jobs, [server(2)], "flextopo_imp", grace_s=5.0)
    assert played.starts == [(0, "n"), (0, "v"), (12, "q"), (15, "p"), (16, "v")]
    assert played.jobs["v"]["queue_s"] == 6
    # With n's GPU free from 12 and nobody else, v itself may not have it before 15.
    played = play(jobs[:3], [server(2)], "flextopo_imp", grace_s=5.0)
    assert played.starts == [(0, "n"), (0, "v"), (15, "p"), (15, "v")]


def test_a_blind_claim_that_breaks_the_guarantee_is_released():
    # b0 to b3 on GPUs 0 to 3 with priorities 0, 1, 0, 1. p, guaranteed, wants a node. Goedel puts b1 and b3 back and evicts b0 and
    # b2: GPUs 0 and 2. When grace ends at 12 the guarantee fails: ran = false, b0 and b2 start again, p waits. It may evict
    # again from 12 + 4 = 16, but only an event lets it: o, rejected at 20. Same victims, failing at 22.
    jobs = [batch(f"b{i}", i, priority=i % 2) for i in range(4)]
    jobs += [job("p", 10, 5, 2, priority=5, affinity="guaranteed"), job("o15", 15, 1, 9), job("o", 20, 1, 9)]
    played = play(jobs, [HALVES], "godel", grace_s=2.0, retry_s=4.0, horizon_s=30.0)
    assert [(row["time"], row["victims"], row["ran"], row["level_assigned"]) for row in played.rows] == [
        (10, ["b0", "b2"], False, "server"), (20, ["b0", "b2"], False, "server")]
    assert played.starts[4:] == [(12, "b0"), (12, "b2"), (22, "b0"), (22, "b2")]
    assert (played.jobs["p"]["status"], played.jobs["p"]["wait_s"]) == ("waiting", 20)
    assert (played.summary["ran_share"], played.summary["useful_share"], played.summary["hit_rate_victims"]) == (0, None, 0)
    # At 16 sharp it may: an event then is enough.
    jobs[5]["submit_time"] = 16.0
    played = play(jobs, [HALVES], "godel", grace_s=2.0, retry_s=4.0, horizon_s=30.0)
    assert [row["time"] for row in played.rows] == [10, 16]
    # The policies that know the guarantee evict a node's pair: b2 and b3, started later.
    row = first_row(jobs[:5], [HALVES], "volcano_topology", grace_s=2.0)
    assert (row["victims"], row["ran"], row["level_assigned"]) == (["b2", "b3"], True, "numa")


def test_the_summary_counts_what_was_useful_and_what_hit():
    # Server 0 (one node): v (2 GPUs). Server 1 (two sockets of one GPU): w and x. p (1 GPU, model A) frees 2 and uses 1; q (2 GPUs,
    # model B) frees 2 on two sockets. useful 3 / 4. p hits, q does not, but could not on any server of that shape: left out.
    servers = [server(2), server(2, numa=2, sockets=2, gpu_model="B")]
    jobs = [batch("v", gpus=2), batch("w", gpu_model="B"), batch("x", gpu_model="B"), job("p", 10, 5, priority=1, gpu_model="A"),
            job("q", 20, 5, 2, priority=1, gpu_model="B")]
    played = play(jobs, servers, "godel", horizon_s=50.0)
    assert [row["hit_victims"] for row in played.rows] == [True, False]
    summary = played.summary
    assert (summary["useful_share"], summary["ran_share"], summary["hit_rate_victims"], summary["hit_rate_assigned"]) == (0.75, 1, 1, 1)
    # Lost: 2 GPUs x 10 s, 2 x 20 s; placed: 3 GPUs by 2 decisions with 3 victims.
    assert (summary["lost_gpu_s_per_gpu_placed"], summary["victims_per_placement"], summary["preempted"]) == (20, 1.5, 3)
    # On 4 GPUs in the same two sockets q could have hit: 1 of 2.
    servers[1] = server(4, numa=2, sockets=2, gpu_model="B")
    jobs[1:1] = [batch("y", gpu_model="B", priority=0), job("n", 0, 100, gpu_model="B")]
    played = play(jobs, servers, "godel", horizon_s=50.0)
    # y, n on GPUs 0, 1; w, x on 2, 3. Reprieve by index: y may stay (2 of w and x are left), w and x go: one node. Both hit.
    assert ([row["victims"] for row in played.rows], played.summary["hit_rate_victims"]) == ([["v"], ["w", "x"]], 1)
    jobs[4]["priority"] = 1
    jobs[6]["priority"] = 2
    played = play(jobs, servers, "godel", horizon_s=50.0)
    # x has priority 1: x and w in the order x, y, w: x may stay, y and w go: GPUs 0 and 2.
    assert ([row["victims"] for row in played.rows], played.summary["hit_rate_victims"]) == ([["v"], ["y", "w"]], 0.5)


def test_freed_cores_are_counted_with_gpus():
    # v and w hold a GPU each, v with 3.5 shared cores, w with ceil(2.2) = 3 exclusive ones of node 1's.
    jobs = [batch("v", cpus=3.5), batch("w", cpus=2.2, affinity="best_effort"), job("p", 10, 5, 2, cpus=1.0, priority=1)]
    row = first_row(jobs, [server(2, numa=2)])
    assert (row["victims"], row["gpus_freed"], row["cpus_freed"], row["level_victims"]) == (["v", "w"], 2, 6.5, "socket")
