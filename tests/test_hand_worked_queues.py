"""Kueue's admission worked by hand: quotas, borrowing, reclaim, preemption in a queue, and fair sharing."""

from typing import Any

from builders import Played, job, play, server


def of(tenant: str, name: str, at: float, runs: float, gpus: int = 1, **columns: Any) -> dict[str, Any]:
    return job(name, at, runs, gpus, tenant=tenant, preemptible=True, **columns)


def admitted(jobs: list[dict], gpus: int = 8, **options: Any) -> Played:
    """One server; tenants a, b, ... share the quota equally."""
    return play(jobs, [server(gpus)], "kueue", **options)


def test_a_queue_borrows_what_its_cohort_does_not_use():
    # 8 GPUs, tenants a and b: 4 each. a's three jobs of 2 hold 6: 4 of its own and 2 lent. b's first job of 2 fits the 2 left, the
    # second must wait for a finish at 10: nothing is reclaimed.
    jobs = [of("a", f"a{i}", 0, 10, 2) for i in range(3)] + [of("b", "b0", 1, 20, 2), of("b", "b1", 2, 5, 2)]
    assert admitted(jobs).starts == [(0, "a0"), (0, "a1"), (0, "a2"), (1, "b0"), (10, "b1")]
    # Alone (cohorts of one) a has its 4, and so has b.
    assert admitted(jobs, queues_per_cohort=1.0).starts == [(0, "a0"), (0, "a1"), (1, "b0"), (2, "b1"), (10, "a2")]
    # With half of the quota as the limit a may borrow 2 and no more: a fourth job waits though 2 GPUs are free.
    limited = admitted([*jobs[:3], of("a", "a3", 0, 10, 2), of("b", "b0", 50, 1)], borrowing_limit=0.5)
    assert limited.starts == [(0, "a0"), (0, "a1"), (0, "a2"), (10, "a3"), (50, "b0")]


def test_quota_by_demand():
    # a asks for 6 x 10 and b for 2 x 10 GPU seconds: of 8 GPUs a has 6 and b 2. With cohorts of one all start at once.
    jobs = [of("a", "a0", 0, 10, 6), of("b", "b0", 0, 10, 2)]
    assert admitted(jobs, quota_by="demand", queues_per_cohort=1.0).starts == [(0, "a0"), (0, "b0")]
    assert admitted(jobs, queues_per_cohort=1.0).starts == [(0, "b0")]  # 4 each: a0 never fits its own quota


def test_who_borrows_less_goes_first():
    # a holds its 4 until 10; then a1 (borrowing: 4 + 2 > 4 while a0 runs on) has waited longest, but b's job is within quota: b first.
    jobs = [of("a", "a0", 0, 30, 4), of("b", "x", 0, 10, 4), of("a", "a1", 1, 5, 4), of("b", "b1", 2, 5, 4)]
    assert admitted(jobs).starts == [(0, "a0"), (0, "x"), (10, "b1"), (15, "a1")]
    # Inside a queue priority goes before waiting.
    jobs = [of("a", "a0", 0, 10, 8), of("b", "b0", 1, 5, 8), of("b", "b1", 2, 5, 8, priority=1)]
    assert admitted(jobs).starts == [(0, "a0"), (10, "b1"), (15, "b0")]


def test_reclaim_takes_what_was_lent_and_no_more():
    # a holds all 8, 4 of them lent, in jobs of 2 started at 0, 1, 2, 3. b asks for 2, then for 4: within its quota both times but the
    # latter (6 > 4). The first reclaims from the latest, a3; the second would borrow: it may not reclaim, and waits for a's finish at 100.
    jobs = [of("a", f"a{i}", i, 100, 2) for i in range(4)]
    for reclaim in ("any", "lower_priority", "never"):
        played = admitted([*jobs, of("b", "b0", 10, 100, 2), of("b", "b1", 11, 5, 4)], reclaim=reclaim, horizon_s=50.0)
        rows = [(row["time"], row["job_id"], row["victims"]) for row in played.rows]
        assert rows == ([(10, "b0", ["a3"])] if reclaim == "any" else []), reclaim  # a's priority is not lower
    # The second alone, of 4, is within b's quota. It reclaims two: a3 and a2, and a keeps its own 4.
    played = admitted([*jobs, of("b", "b1", 11, 5, 4)], reclaim="any", horizon_s=50.0)
    assert [(row["victims"], row["gpus_freed"]) for row in played.rows] == [(["a2", "a3"], 4)]
    # Lower priority among what was lent goes first, whenever it started.
    jobs = [of("a", f"a{i}", i, 100, 2, priority=-(i == 1)) for i in range(4)]
    assert admitted([*jobs, of("b", "b0", 10, 5, 2)], reclaim="any", horizon_s=50.0).rows[0]["victims"] == ["a1"]


def test_preemption_within_a_queue():
    # b's job at 99 is only there to halve the quota. a holds its 4 (limit 0: no borrowing) in jobs of priority 0 and 1. A new one of
    # priority 1 evicts the lower; with lower_or_newer_equal one submitted earlier may also evict an equal that came later.
    jobs = [of("a", "low", 0, 50, 2), of("a", "high", 1, 50, 2, priority=1), of("b", "b0", 99, 1)]
    new = of("a", "new", 10, 5, 2, priority=1)
    for within, victims in (("never", []), ("lower_priority", [["low"]]), ("lower_or_newer_equal", [["low"]])):
        played = admitted([*jobs, new], within_queue=within, borrowing_limit=0.0)
        assert [row["victims"] for row in played.rows] == victims, within
    # first (submitted at 1, needs 4) waits for x; late (at 2, needs 2) fits beside x and runs. x ends at 20: first needs all 4 and
    # may take late, which is of equal priority and newer.
    jobs = [of("a", "x", 0, 20, 2), of("a", "first", 1, 5, 4), of("a", "late", 2, 60, 2), of("b", "b0", 99, 1)]
    for within, start in (("lower_priority", 62), ("lower_or_newer_equal", 20)):
        assert admitted(jobs, within_queue=within, borrowing_limit=0.0).runs("first") == [(start, start + 5)], within


def test_victims_are_put_back_where_the_job_still_fits():
    # 8 GPUs on two servers of 4; a holds 2 + 2 on server 0 and 3 on server 1 (1 free there). b asks for 4, its quota. Latest first: a2 (3)
    # goes, server 1 has 4: enough. Had it been the other way round (a2 first in time), a1, a0 go first, then it fits: a1's return is tried.
    jobs = [of("a", "a0", 0, 100, 2), of("a", "a1", 1, 100, 2), of("a", "a2", 2, 100, 3)]
    played = play([*jobs, of("b", "b0", 10, 5, 4)], [server(4), server(4)], "kueue", reclaim="any", horizon_s=50.0)
    assert [row["victims"] for row in played.rows] == [["a2"]]
    # Lowest priority first: a1, then a0 of those that borrow (7 - 2 = 5 > 4, then 3: below its quota, a gives no more). Both go and
    # server 0 is free; a1 put back: 2 are missing, so both stay out.
    jobs = [of("a", "a0", 0, 100, 2), of("a", "a1", 1, 100, 2, priority=-1), of("a", "a2", 2, 100, 3, priority=1)]
    played = play([*jobs, of("b", "b0", 10, 5, 4)], [server(4), server(4)], "kueue", reclaim="any", horizon_s=50.0)
    assert [row["victims"] for row in played.rows] == [["a0", "a1"]]


def test_quota_may_be_freed_on_servers_that_the_job_does_not_use():
    # Two servers of 4, quota of half of them: a and b 2 each. a runs a0 and a1 (1 GPU each) on server 0 and lent a2 (2) on server 0. b asks
    # for 1: the cohort's 4 are used. a2 goes, and b sits where best fit puts it: server 0 has 2 free then, server 1 4: server 0.
    jobs = [of("a", "a0", 0, 100), of("a", "a1", 1, 100), of("a", "a2", 2, 100, 2)]
    played = play([*jobs, of("b", "b0", 10, 5, 3)], [server(4), server(4)], "kueue", reclaim="any", nominal_share=0.5, horizon_s=50.0)
    assert played.rows == [] and played.runs("b0") == []  # 3 > 2, it would borrow
    played = play([*jobs, of("b", "b0", 10, 5, 1)], [server(4), server(4)], "kueue", reclaim="any", nominal_share=0.5, horizon_s=50.0)
    assert [(row["server"], row["victims"]) for row in played.rows] == [(0, ["a2"])]
    # b wants 2 GPUs of a model that server 1 has. a2's 2 GPUs of quota are freed on server 0, b sits on server 1; the row of its
    # lowest server names the victim, which frees nothing there.
    wants = of("b", "b0", 10, 5, 2, gpu_model="B")
    played = play([*jobs, wants], [server(4), server(4, gpu_model="B")], "kueue", reclaim="any", nominal_share=0.5, horizon_s=50.0)
    row = played.rows[0]
    assert (row["server"], row["victims"], row["gpus_freed"], row["gpus_freed_elsewhere"], row["level_victims"]) == (1, ["a2"], 0, 2, None)
    assert played.runs("b0") == [(10, 15)]


def test_fair_sharing_orders_by_dominant_share_and_reclaims_from_the_largest():
    # 12 GPUs, tenants a, b, c: 4 each. a holds 6 and b 6 (each borrows 2). Both want 2 more, a first. x, of b, frees 2 at 10: a's share
    # with its job would be (8 - 4)/12 = 333, b's (it has 4 by then) (6 - 4)/12 = 166: b first.
    jobs = [of("a", "a0", 0, 100, 6), of("b", "b0", 0, 100, 4), of("b", "x", 0, 10, 2), of("a", "a1", 1, 5, 2), of("b", "b1", 2, 5, 2),
            of("c", "c0", 99, 1)]
    assert admitted(jobs, gpus=12, fair_sharing="on").runs("b1") == [(10, 15)]
    # Without fair sharing both borrow alike, and a came first.
    assert admitted(jobs, gpus=12).runs("a1") == [(10, 15)]
    # c asks for 2: a borrows 4 (8), b none (4). The largest share gives: a's latest job. c's share 0 is at most a's after it, 166.
    jobs = [of("a", f"a{i}", i, 100, 2) for i in range(4)] + [of("b", "b0", 0, 100, 4), of("c", "c0", 10, 5, 2)]
    assert admitted(jobs, gpus=12, fair_sharing="on", reclaim="any", horizon_s=50.0).rows[0]["victims"] == ["a3"]
