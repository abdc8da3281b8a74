"""Schedules worked by hand: events of one instant, order of the queue, block rules, ends, and what a policy may decide of them.

Every case with a policy of the folder is also held against the naive twin by ``play``.
"""

from pathlib import Path

import pytest

from builders import job, play, policy_file, server
from harness.cluster.state import FINISHED, RUNNING, UNSUBMITTED, WAITING


def test_all_events_of_an_instant_come_before_its_passes():
    # One GPU. a [0, 4). At 4 a finishes and b and c arrive: b [4, 7), c [7, 9). Three arrivals and three finishes.
    played = play([job("a", 0, 4), job("b", 4, 3), job("c", 4, 2)], [server()], "fifo")
    assert played.starts == [(0, "a"), (4, "b"), (7, "c")]
    assert (played.jobs["b"]["wait_s"], played.jobs["c"]["wait_s"], played.jobs["c"]["jct_s"]) == (0, 3, 5)
    assert (played.outcome.events, played.outcome.end) == (6, 9)
    # With priority 1 c goes first though its row comes after b's: no pass comes between two arrivals of one instant.
    played = play([job("a", 0, 4), job("b", 4, 3), job("c", 4, 2, priority=1)], [server()], "priority")
    assert played.starts == [(0, "a"), (4, "c"), (6, "b")]
    # Nor between two ends: x (2 GPUs) is before y (1 GPU) in the queue, and at 4 both GPUs come free at once.
    played = play([job("a", 0, 4), job("b", 0, 4), job("x", 1, 3, 2), job("y", 1, 2)], [server(2)])
    assert played.starts == [(0, "a"), (0, "b"), (4, "x"), (7, "y")]


def test_a_finish_comes_before_the_end_of_grace():
    # One GPU, grace 5. p evicts v at 3 and would start at 8, but at 8 its own end_time comes first: expired, never run.
    # v lets go at 8 and starts again, having lost its 3 s: [8, 18). Events: 2 arrivals, p's end, the end of grace, v's finish.
    jobs = [job("v", 0, 10, preemptible=True), job("p", 3, 1, priority=1, end_time=8.0)]
    played = play(jobs, [server()], "godel", grace_s=5.0)
    assert played.starts == [(0, "v"), (8, "v")]
    assert (played.jobs["p"]["status"], played.jobs["p"]["finish_time"], played.jobs["v"]["finish_time"]) == ("expired", 8, 18)
    assert [row["ran"] for row in played.rows] == [False]
    assert played.outcome.events == 5


def test_a_tick_comes_after_ends_of_grace_and_before_arrivals(tmp_path: Path):
    # Two GPUs. f [0, 10) holds one. p evicts v at 5 with 5 s of grace. At 10: f finishes, p starts, the tick, q arrives.
    policy = policy_file(tmp_path, "notes", """
        from harness.cluster.preempt import FIRST_VICTIM, SERVER_FOUND

        PERIOD_S = 10.0
        STATE = 5

        def key(view, own, job):
            return -view.classes.priority[view.jobs.klass[job]]

        def victims(view, own, job, found):
            found[SERVER_FOUND], found[FIRST_VICTIM] = 0, 1
            return 1 if view.jobs.status[1] == 2 and job == 2 else 0

        def tick(view, own):
            own.state[4] += 1
            for j in range(4 if own.state[4] == 1 else 0):
                own.state[j] = view.jobs.status[j]
        """)
    jobs = [job("f", 0, 10), job("v", 0, 100, preemptible=True), job("p", 5, 3, priority=1), job("q", 10, 5)]
    played = play(jobs, [server(2)], policy, grace_s=5.0, horizon_s=25.0)
    assert list(played.own.state) == [FINISHED, WAITING, RUNNING, UNSUBMITTED, 2]
    # v before q (submitted earlier): v [10, 25), q when p ends at 13. Ticks at 10 and 20.
    assert played.starts == [(0, "f"), (0, "v"), (10, "p"), (10, "v"), (13, "q")]
    # Arrivals 0, 0, 5, 10; finishes 10, 13, 18; the end of grace; two ticks.
    assert played.outcome.events == 10


def test_an_evicted_job_joins_the_next_pass_of_the_instant():
    # Server 0 is the only A, server 1 the only B. v (priority 2) is on A, u (priority 1) on B. p wants A at 5 and evicts v; in
    # the next pass, still at 5, v evicts u. Nothing is left for u until v ends at 25 or p at 8: u accepts any model, so 8.
    jobs = [job("v", 0, 20, priority=2, preemptible=True), job("u", 0, 30, priority=1, preemptible=True, gpu_model="B|A"),
            job("p", 5, 3, priority=3, gpu_model="A")]
    played = play(jobs, [server(), server(gpu_model="B")], "godel")
    assert [(row["time"], row["job_id"], row["victims"]) for row in played.rows] == [(5, "p", ["v"]), (5, "v", ["u"])]
    assert played.starts == [(0, "u"), (0, "v"), (5, "p"), (5, "v"), (8, "u")]
    # Both lost 5 s without checkpoints: v [5, 25), u [8, 38).
    assert (played.jobs["v"]["finish_time"], played.jobs["u"]["finish_time"]) == (25, 38)


def test_the_queue_is_ordered_by_key_then_submit_then_row():
    # One GPU, x until 10. The rows are not sorted: c came at 2, a and b at 1, a's row before b's.
    jobs = [job("x", 0, 10), job("c", 2, 4), job("a", 1, 5), job("b", 1, 5)]
    assert play(jobs, [server()], "fifo_backfill").starts == [(0, "x"), (10, "a"), (15, "b"), (20, "c")]
    # sjf: c asks for 4 s, a and b for 5 s each.
    assert play(jobs, [server()], "sjf").starts == [(0, "x"), (10, "c"), (14, "a"), (19, "b")]
    # priority: b first, then a and c by submission. fifo takes no notice.
    jobs[3]["priority"] = 1
    assert play(jobs, [server()], "priority").starts == [(0, "x"), (10, "b"), (15, "a"), (20, "c")]
    assert play(jobs, [server()], "fifo").starts == [(0, "x"), (10, "a"), (15, "b"), (20, "c")]
    # Rows come back in the order given: c waited 20 - 2, a 10 - 1, b 15 - 1.
    waits = [row["wait_s"] for row in play(jobs, [server()], "fifo").jobs.values()]
    assert waits == [0, 18, 9, 14]


def test_fifo_blocks_where_backfill_goes_on_and_easy_keeps_a_reservation():
    # 4 GPUs. a (3 GPUs) [0, 10). b (4) comes at 1; c (1 GPU, 9 s) and d (1 GPU, 8 s) at 2.
    jobs = [job("a", 0, 10, 3), job("b", 1, 5, 4), job("c", 2, 9), job("d", 2, 8)]
    # fifo: b blocks. b [10, 15), then c and d at 15.
    assert play(jobs, [server(4)], "fifo").starts == [(0, "a"), (10, "b"), (15, "c"), (15, "d")]
    # Backfill: c [2, 11). At 10 b finds 3 free GPUs, d takes one [10, 18), and b starts at 18.
    assert play(jobs, [server(4)], "fifo_backfill").starts == [(0, "a"), (2, "c"), (10, "d"), (18, "b")]
    # EASY: b is promised 10. c would end at 11: no. d ends at 10, not after it: yes. b [10, 15), c at 15.
    assert play(jobs, [server(4)], "easy_backfill").starts == [(0, "a"), (2, "d"), (10, "b"), (15, "c")]
    # If a says 6 s, b is promised 6, and d (until 10) is held too. b still starts when a really ends.
    jobs[0]["duration_estimate_s"] = 6.0
    assert play(jobs, [server(4)], "easy_backfill").starts == [(0, "a"), (10, "b"), (15, "c"), (15, "d")]


def test_easy_reserves_actual_servers():
    # Server 0 (2 GPUs) is a's until 10, server 1 (1 GPU) x's until 3. b (2 GPUs) is promised server 0 at 10. c (100 s) ends
    # long after that but takes server 1 at 3, which b does not need.
    jobs = [job("a", 0, 10, 2), job("x", 0, 3), job("b", 1, 5, 2), job("c", 1, 100)]
    played = play(jobs, [server(2), server(1)], "easy_backfill")
    assert played.starts == [(0, "a"), (0, "x"), (3, "c"), (10, "b")]
    assert [played.jobs[name]["servers"] for name in "axbc"] == [[0], [1], [0], [1]]
    # fifo would have kept c behind b.
    assert (10, "c") in play(jobs, [server(2), server(1)], "fifo").starts


def test_the_horizon_cuts_what_runs_and_what_waits():
    # One GPU, horizon 10. a [0, 10): its finish, at the horizon, does not happen. b waits from 4 on, c comes at the horizon.
    played = play([job("a", 0, 10), job("b", 4, 1), job("c", 10, 1), job("d", 12, 1)], [server()], "fifo", horizon_s=10.0)
    assert [row["status"] for row in played.jobs.values()] == ["running", "waiting", "not_submitted", "not_submitted"]
    a, b, c = (played.jobs[name] for name in "abc")
    assert (a["finish_time"], a["jct_s"], a["goodput_gpu_s"], a["wait_s"], a["queue_s"]) == (None, None, 10, 0, 0)
    assert (b["finish_time"], b["first_start"], b["wait_s"], b["queue_s"], b["servers"]) == (None, None, 6, 6, [])
    assert (c["wait_s"], c["queue_s"], c["jct_s"]) == (None, None, None)
    assert (played.outcome.events, played.outcome.end) == (2, 10)
    assert (played.summary["makespan_s"], played.summary["wait_s_censored"], played.summary["wait_s_mean"]) == (None, 1, 3)


def test_a_decision_is_cut_by_the_horizon_too():
    # One GPU, grace 5, horizon 10: p evicts v at 8 and would start at 13. v has lost 8 s and waited 2, p has waited 2.
    jobs = [job("v", 0, 20, preemptible=True), job("p", 8, 1, priority=1)]
    played = play(jobs, [server()], "flextopo_imp", grace_s=5.0, horizon_s=10.0)
    v, p = played.jobs["v"], played.jobs["p"]
    assert (v["status"], v["lost_gpu_s"], v["queue_s"], v["wait_s"], v["evictions"]) == ("waiting", 8, 2, 0, 1)
    assert (p["status"], p["wait_s"], p["queue_s"], p["level"], p["servers"]) == ("waiting", 2, 2, None, [])
    assert [row["ran"] for row in played.rows] == [False]
    # Held for 8 s by the running v and for 2 s in grace: the GPU was never free.
    assert (played.summary["grace_gpu_s"], played.summary["gpu_alloc_mean"], played.summary["gpu_busy_mean"]) == (2, 1, 0.8)


def test_end_times_end_jobs_whatever_their_progress():
    # One GPU. a [0, 6) has done 6 of its 10 s when it ends. b (until 5) never starts. c starts at 6, is done after 3 s, at 9,
    # 11 s before its end_time: the part of [2, 20) in which it did not run is 18 - 3 = 15.
    jobs = [job("a", 0, 10, end_time=6.0), job("b", 1, 2, end_time=5.0), job("c", 2, 3, end_time=20.0)]
    played = play(jobs, [server()], "fifo")
    a, b, c = played.jobs.values()
    assert (a["status"], a["finish_time"], a["goodput_gpu_s"], a["shortfall_gpu_s"]) == ("finished", 6, 6, 0)
    assert (b["status"], b["finish_time"], b["jct_s"], b["wait_s"], b["shortfall_gpu_s"]) == ("expired", 5, 4, 4, 4)
    assert (c["status"], c["finish_time"], c["goodput_gpu_s"], c["shortfall_gpu_s"]) == ("finished", 9, 3, 15)
    # Latencies leave the expired job out: a and c waited 0 and 4.
    assert (played.summary["wait_s_mean"], played.summary["jobs_expired"]) == (2, 1)


def test_an_end_time_also_ends_an_evicted_job():
    # p takes v's GPU over [3, 13). v, which must end at 8, has run 3 s, lost them, and missed the 5 s after.
    jobs = [job("v", 0, 10, preemptible=True, end_time=8.0), job("p", 3, 10, priority=1)]
    v = play(jobs, [server()], "godel").jobs["v"]
    assert (v["status"], v["finish_time"], v["jct_s"], v["queue_s"]) == ("finished", 8, 8, 5)
    assert (v["goodput_gpu_s"], v["lost_gpu_s"], v["shortfall_gpu_s"]) == (0, 3, 5)


IMPOSSIBLE = [
    ({"gpus": 3}, "gpus: an instance wants 3, a server has 2"), ({"gpu_model": "B|C"}, "gpu_model"),
    ({"memory_mib": 101}, "memory_mib: an instance wants 101, a server has 100"), ({"cpus": 8.5}, "cpus: an instance wants 8.5"),
    ({"gpus": 2, "affinity": "guaranteed"}, "affinity: no socket domain"),
    ({"gpus": 2, "affinity": "guaranteed", "affinity_domain": "numa"}, "affinity: no numa domain"),
    ({"gpu_milli": 500, "cpus": 5.0, "affinity": "best_effort"}, "cpus: no NUMA node"), ({"instances": 5}, "more than the cluster"),
    ({"gpus": 2, "instances": 2, "network_domain": "rack", "network_mode": "required"}, "more than one rack"),
]


@pytest.mark.parametrize(("columns", "reason"), IMPOSSIBLE)
def test_jobs_that_no_empty_cluster_could_hold_are_rejected(columns: dict, reason: str):
    # Two servers, each alone in its rack, of two NUMA nodes in two sockets: 1 GPU and 4 cores each, 100 MiB.
    servers = [server(2, numa=2, sockets=2, cores=4), server(2, numa=2, sockets=2, cores=4, rack=1)]
    asked = job("x", 1, 1, **columns)
    played = play([job("a", 0, 5, 2), asked], servers)
    x = played.jobs["x"]
    assert x["status"] == "rejected" and reason in x["reason"], x["reason"]
    assert (x["wait_s"], x["queue_s"], x["finish_time"], played.outcome.events) == (None, None, None, 3)
    # The same without the one thing too many is held: a waiting job is never rejected.
    less = {"gpus": 2, "memory_mib": 100, "cpus": 8.0, "instances": 2} if columns != IMPOSSIBLE[-1][0] else {
        **columns, "network_mode": "preferred"}
    within = {name: less[name] for name in columns if name in less}
    played = play([job("a", 0, 5, 2), job("x", 1, 1, **within)], servers)
    assert played.jobs["x"]["status"] == "finished"


def test_admission_holds_back_one_job_and_blocks_nobody(tmp_path: Path):
    # Two GPUs under a policy that blocks like fifo. a, a batch job, is admitted from 10 on; b, online and behind it, starts at 1.
    # Nothing wakes the scheduler at 10: a starts when b ends, at 12.
    policy = policy_file(tmp_path, "curfew", """
        from harness.cluster.state import NOW, STOP

        def admit(view, own, job):
            return view.jobs.kind[job] != 0 or view.clock[NOW] >= 10.0

        def blocked(view, own, job):
            return STOP
        """)
    played = play([job("a", 0, 5), job("b", 1, 11, kind="online")], [server(2)], policy)
    assert played.starts == [(1, "b"), (12, "a")]


def test_a_job_on_hold_does_not_speak_for_its_class(tmp_path: Path):
    # Two GPUs; a and b ask for the same. The policy holds a (index 0) until 4: b starts at 0 all the same, a when b ends.
    policy = policy_file(tmp_path, "holds", """
        from harness.cluster.fit import HOLD, best_fit
        from harness.cluster.state import NOW

        def place(view, own, job):
            return HOLD if job == 0 and view.clock[NOW] < 4.0 else best_fit(view, job)
        """)
    assert play([job("a", 0, 5), job("b", 0, 4)], [server(2)], policy).starts == [(0, "b"), (4, "a")]


HOURLY = """
    PERIOD_S = 3600.0
    STATE = 1
    PARAMS = {"ticks": 3}

    def admit(view, own, job):
        return own.state[0] >= own.params[0]

    def tick(view, own):
        own.state[0] += 1
    """


def test_ticks_wake_the_scheduler_and_end_after_a_day_without_a_start(tmp_path: Path):
    # Admitted from the third tick on: a starts at 3 * 3600.
    policy = policy_file(tmp_path, "hourly", HOURLY)
    played = play([job("a", 0, 100)], [server()], policy)
    assert (played.starts, played.jobs["a"]["wait_s"]) == ([(10800, "a")], 10800)
    # Never admitted: 24 ticks, the last at 86,400 s, then nobody expects anything any more. The arrival is an event too.
    played = play([job("a", 0, 100)], [server()], policy, ticks=100)
    assert (played.jobs["a"]["status"], played.outcome.events, played.outcome.end) == ("waiting", 25, 86400)
