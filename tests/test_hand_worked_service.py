"""Schedules worked by hand of the policies that go by service, by a score that changes or by a plan."""

from builders import job, play, server


def batch(name: str, at: float, runs: float, gpus: int = 1, **columns):
    return job(name, at, runs, gpus, **{"preemptible": True, **columns})


def test_the_shortest_remaining_work_evicts_its_equals():
    # One GPU. At 10 a needs 90 s more, b 5: a goes, and loses its 10 s. At 12 b needs 3 s, c 4: c waits. At 15 c (4) comes before a (100).
    jobs = [batch("a", 0, 100), batch("b", 10, 5), batch("c", 12, 4)]
    played = play(jobs, [server()], "srgt")
    assert played.starts == [(0, "a"), (10, "b"), (15, "c"), (19, "a")]
    assert (played.jobs["a"]["lost_gpu_s"], played.jobs["a"]["finish_time"], played.outcome.decisions) == (10, 119, 1)
    # Neither a higher priority nor a job that is not preemptible gives way.
    for protected in ({"priority": 1}, {"preemptible": False}):
        assert play([batch("a", 0, 100, **protected), *jobs[1:]], [server()], "srgt").starts[1:] == [(100, "c"), (104, "b")]


def test_work_is_counted_in_gpu_seconds_and_by_estimate():
    # At 1 a (2 GPUs, 10 s) needs 18 GPU s, b (1 GPU, 17 s) needs 17: b evicts it. Had a said 9 s, it would need 16.
    jobs = [batch("a", 0, 10, 2), batch("b", 1, 17)]
    assert play(jobs, [server(2)], "srgt").starts == [(0, "a"), (1, "b"), (18, "a")]
    jobs[0]["duration_estimate_s"] = 9.0
    assert play(jobs, [server(2)], "srgt").starts == [(0, "a"), (10, "b")]


def test_who_is_furthest_behind_goes_and_the_others_are_put_back():
    # d on server 1 needs 40 s more at 10, a on server 0 90: a goes.
    assert play([batch("a", 0, 100), batch("d", 0, 50), batch("b", 10, 5)], [server()] * 2, "srgt").rows[0]["victims"] == ["a"]
    # Three GPUs: at 0 x (2 GPUs, 10 s) needs 20 and y (1 GPU, 30 s) 30. z wants 2: y goes, x goes; with x back one GPU is left, with y
    # back two. So x alone: two removals and two tests of putting back.
    jobs = [batch("x", 0, 10, 2), batch("y", 0, 30), batch("z", 1, 3, 2)]
    row = play(jobs, [server(3)], "srgt").rows[0]
    assert (row["victims"], row["subsets_tried"]) == (["x"], 4)


def test_two_dimensional_las_moves_jobs_through_its_queues():
    # One GPU, queues end at 10 and 30 GPU s, looked at every 5 s; continuous checkpoints. b (35 s) comes at 3, when a (100 s) has had 3:
    # same queue, b waits. At 10 a falls into the second queue and b evicts it. At 20 b falls too: equals do not evict. At 40 b has had 30
    # and falls into the third, a (10) evicts it; at 60 a has had 30 as well. a [40, 130), b the last 5 s.
    limits = {"limit_1_gpu_s": 10.0, "limit_2_gpu_s": 30.0, "period_s": 5.0}
    jobs = [batch("a", 0, 100, checkpoint_interval_s=0.0), batch("b", 3, 35, checkpoint_interval_s=0.0)]
    played = play(jobs, [server()], "tiresias", **limits, horizon_s=200.0)
    assert played.starts == [(0, "a"), (10, "b"), (40, "a"), (130, "b")]
    assert [played.jobs[name]["finish_time"] for name in "ab"] == [130, 135]
    # Two GPUs count twice: a falls at 5.
    jobs = [batch("a", 0, 100, 2, checkpoint_interval_s=0.0), batch("b", 3, 1)]
    assert play(jobs, [server(2)], "tiresias", **limits, horizon_s=200.0).starts == [(0, "a"), (5, "b"), (6, "a")]


def test_waiting_changes_the_order_of_hps():
    # Score: 1 / (1 + hours) * aging / (1 + 1/4). a (1 h) from 100, b (1.5 h) from 650; the GPU is x's until 700 or 1100.
    # At 700: a has waited 600 s: 0.5 * 2 * 600/1800 * 0.8 = 0.267; b 50 s: 0.4 * 1 * 0.8 = 0.32. So b, though a led when both had joined.
    jobs = [job("x", 0, 700), job("a", 100, 3600), job("b", 650, 5400)]
    assert play(jobs, [server()], "hps").starts == [(0, "x"), (700, "b"), (6100, "a")]
    # At 1100: a 1000 s: 0.5 * 1.111 * 0.8 = 0.444; b 450 s: 0.4 * 0.5 * 0.8 = 0.16.
    jobs[0] = job("x", 0, 1100)
    assert play(jobs, [server()], "hps").starts == [(0, "x"), (1100, "a"), (4700, "b")]
    # Few GPUs first: 0.5 / 1.25 = 0.4 against 0.5 / 1.5 = 0.333.
    jobs = [job("x", 0, 10, 2), job("two", 1, 3600, 2), job("one", 2, 3600)]
    assert play(jobs, [server(2)], "hps").starts == [(0, "x"), (10, "one"), (3610, "two")]


def test_the_groups_of_pbs():
    # 16 GPUs, x's until 10. GPUs per iteration: b 1, a 2, both below 10 and first. c (12 GPUs, 50 s) and e (14, 20 s) need less than an
    # hour: fewest GPUs first; d (11 GPUs, 4000 s) is last. At 10: b, a and c (15 GPUs). At 60 one GPU is b's: e (14). At 80: d.
    jobs = [job("x", 0, 10, 16), job("d", 1, 4000, 11), job("e", 2, 20, 14), job("c", 3, 50, 12), job("a", 4, 5, 2), job("b", 5, 100)]
    assert play(jobs, [server(16)], "pbs").starts == [(0, "x"), (10, "a"), (10, "b"), (10, "c"), (60, "e"), (80, "d")]


def test_conservative_backfill_keeps_every_reservation():
    # 4 GPUs, a (3) until 10. b (4 GPUs, 5 s) is booked for 10, c (2 GPUs, 4 s) for 15. d (1 GPU) could run beside a until 10 and beside c
    # from 15 on: 8 s fit now; 9 s would run into b. e (1 GPU, 2 s): the one GPU is d's until 10 or, when d waits, its own.
    jobs = [job("a", 0, 10, 3), job("b", 1, 5, 4), job("c", 2, 4, 2), job("d", 2, 8), job("e", 3, 2)]
    assert play(jobs, [server(4)], "conservative_backfill").starts == [(0, "a"), (2, "d"), (10, "b"), (15, "c"), (15, "e")]
    jobs[3] = job("d", 2, 9)
    assert play(jobs, [server(4)], "conservative_backfill").starts == [(0, "a"), (3, "e"), (10, "b"), (15, "c"), (15, "d")]


def test_easy_delays_the_second_in_line_where_conservative_does_not():
    # 2 GPUs on one server, 1 on another for model B. a holds both until 10; b (2 GPUs, 10 s) is promised 10 by both rules, c (3 GPUs in
    # all, 5 s) 20. d (1 GPU, 18 s) may run on B from 3 to 21: EASY lets it, for b does not need B, and c starts at 21.
    jobs = [job("a", 0, 10, 2), job("b", 1, 10, 2), job("c", 2, 5, 1, instances=3), job("d", 3, 18)]
    servers = [server(2), server(1, gpu_model="B")]
    assert play(jobs, servers, "easy_backfill").starts == [(0, "a"), (3, "d"), (10, "b"), (21, "c")]
    assert play(jobs, servers, "conservative_backfill").starts == [(0, "a"), (10, "b"), (20, "c"), (25, "d")]


def test_sbs_puts_a_batch_of_like_jobs_first():
    # Two GPUs, x's until 10. a, b, c (1 GPU, 50 s each) are alike: efficiency 1, no variance, score 1. With d (2 GPUs, 20 s) in the window
    # efficiency is less and GPUs vary. So a and b start. At 60 no window of three is left and d, the shortest, goes before c.
    jobs = [job("x", 0, 10, 2), job("d", 1, 20, 2), job("a", 2, 50), job("b", 3, 50), job("c", 4, 50)]
    assert play(jobs, [server(2)], "sbs").starts == [(0, "x"), (10, "a"), (10, "b"), (60, "d"), (80, "c")]
    # With the tenants apart there is no window of three, and the shortest goes first.
    jobs[2]["tenant"] = "another"
    assert play(jobs, [server(2)], "sbs").starts == [(0, "x"), (10, "d"), (30, "a"), (30, "b"), (80, "c")]
