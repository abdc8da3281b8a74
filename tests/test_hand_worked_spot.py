"""Schedules of GFS and its baselines worked by hand: quota, feedback, order, places and victims."""

from typing import Any

import numpy as np
import pytest

from builders import job, play, server
from harness.cluster.forecast import RING, TERMS, WORK, fit, linear, naive, normal_quantile
from harness.jit import JIT

HALF = {"quota": "constant", "quota_share": 0.5}
FREE: dict[str, Any] = {"quota": "none"}


def spot(name: str, at: float, runs: float, gpus: int = 1, **columns: Any) -> dict[str, Any]:
    return job(name, at, runs, gpus, preemptible=True, **columns)


def high(name: str, at: float, runs: float, gpus: int = 1, **columns: Any) -> dict[str, Any]:
    return job(name, at, runs, gpus, priority=1, **columns)


def test_spot_jobs_keep_within_the_quota_and_large_ones_go_first():
    # Half of 8 GPUs is 4. By size: a (3) starts, b (2) would make 5 and is skipped, c (1) makes 4. b starts when a ends. d is HP: no quota.
    jobs = [spot("c", 0, 900), spot("b", 0, 500, 2), spot("a", 0, 400, 3), high("d", 0, 100, 4)]
    assert play(jobs, [server(4)] * 2, "gfs", **HALF, horizon_s=3000.0).starts == [(0, "a"), (0, "c"), (0, "d"), (400, "b")]
    # First in, first out: c, b (3 in all), and a would make 6; it starts when b ends.
    assert play(jobs, [server(4)] * 2, "yarn_cs", **HALF, horizon_s=3000.0).starts == [(0, "b"), (0, "c"), (0, "d"), (500, "a")]


def test_the_quota_counts_all_instances():
    jobs = [spot("gang", 0, 100, 2, instances=3), spot("a", 0, 50, 4)]
    assert play(jobs, [server(4)] * 2, "gfs", **HALF, horizon_s=3000.0).starts == [(0, "a")]


def test_the_quota_is_what_the_forecast_leaves_and_waiting_raises_it():
    # 16 GPUs. HP jobs hold 6 until 600. No quota before the first period ends at 300; then the most of this hour, 6, is forecast: 10. a (8)
    # starts; b (3) would make 11. From 3600 on the hour before counts: 6 again. At 3900 b has waited over an hour and no hour has failed:
    # eta = 1.5, bounded by 1.2: 12, and b starts.
    jobs = [high("h", 0, 600, 6), spot("a", 0, 10_000, 8), spot("b", 0, 100, 3)]
    played = play(jobs, [server(8)] * 2, "gfs", forecaster="last", horizon_s=8000.0)
    assert played.starts == [(0, "h"), (300, "a"), (3900, "b")]
    # A constant quota has no memory.
    assert (0, "a") in play(jobs, [server(8)] * 2, "gfs", **HALF, horizon_s=8000.0).starts


def test_failed_hours_lower_the_quota():
    # 8 GPUs, no HP job until 1000: the quota is 8. At 1000 h evicts a: 1 hour failed, none kept, so at 1200 eta = 0.1, bounded by 0.2. The
    # demand of this hour is 4, so that 0.8 GPUs are left for spot jobs, and a waits though 8 GPUs are free from 1300 on.
    # The eviction is in the fourth period and forgotten 48 later, at 15600: as a waits, eta goes up by 1.5 in each: 0.3, 0.45, 0.675,
    # 1.0125. By then the hourly maxima are 4, 0, 0, 0;
    # sigma = sqrt(16 / 3) = 2.31, 1.2816 of it is 2.96, and 8 - 2 = 6 GPUs are left: 1.8, 2.7,
    # 4.05, 6.08. So a starts in the fourth of these, at 16500.
    jobs = [spot("a", 0, 5000, 5), high("h", 1000, 300, 4)]
    played = play(jobs, [server(8)], "gfs", forecaster="last", horizon_s=20_000.0)
    assert played.starts == [(300, "a"), (1000, "h"), (16_500, "a")]


def test_gfs_spares_from_both_ends():
    # Four GPUs at 10: b (2 GPUs since 2) has wasted 16, a (1 since 0) 10, c (1 since 6) 4. h wants 2. b may stay (a and c are 2 GPUs), a
    # may not, and then c from the cheap end may not.
    jobs = [spot("a", 0, 99), spot("b", 2, 99, 2), spot("c", 6, 99), high("h", 10, 5, 2)]
    row = play(jobs, [server(4)], "gfs", **FREE, horizon_s=50.0).rows[0]
    assert (row["victims"], row["subsets_tried"]) == (["a", "c"], 3)
    # YARN-CS: the newest first: c, then b, which makes 3.
    assert play(jobs, [server(4)], "yarn_cs", **FREE, horizon_s=50.0).rows[0]["victims"] == ["b", "c"]
    # Lyra: the largest first: b, which is enough.
    assert play(jobs, [server(4)], "lyra", **FREE, horizon_s=50.0).rows[0]["victims"] == ["b"]


def test_gfs_weighs_failures_and_waste_over_servers():
    # Each server has 2 GPUs. Server 0: a and b of 1 GPU since 0; server 1: c of 2 GPUs since 5. h wants 2 at 10. Failed shares: two victims
    # 2/2, one 1/1: equal; waste 20 against 10: server 1.
    jobs = [spot("a", 0, 99), spot("b", 0, 99), spot("c", 5, 99, 2), high("h", 10, 5, 2)]
    assert play(jobs, [server(2)] * 2, "gfs", **FREE, horizon_s=50.0).rows[0]["server"] == 1
    # Fewest GPUs that are free or evictable come first: with a server 0 of 3 GPUs server 1 is the only candidate whatever its waste.
    jobs[2] = spot("c", 0, 99, 2)
    jobs.insert(2, high("n", 0, 99, 1))
    assert play(jobs, [server(4), server(2)], "gfs", **FREE, horizon_s=50.0).starts[:4] == [(0, "a"), (0, "b"), (0, "c"), (0, "n")]


def test_like_jobs_sit_together():
    # h0 (HP) holds 3 of the 4 GPUs of server 0, s0 (spot) 3 of server 1.
    jobs = [high("h0", 0, 99, 3), spot("s0", 1, 99, 3, gpu_model="B"), spot("s1", 2, 99), high("h1", 3, 99)]
    played = play(jobs, [server(4), server(4, gpu_model="B")], "gfs", **FREE, horizon_s=50.0)
    # Both have one free GPU: s1 goes to the spot job, h1 then to the HP one.
    assert [played.jobs[name]["servers"] for name in ("h0", "s0", "s1", "h1")] == [[0], [1], [1], [0]]
    # Best fit takes the lowest index, and so s1 sits with the HP job.
    played = play(jobs, [server(4), server(4, gpu_model="B")], "gfs", **FREE, without="placement", horizon_s=50.0)
    assert [played.jobs[name]["servers"] for name in ("s1", "h1")] == [[0], [1]]


def test_a_blind_yarn_evicts_beside_free_gpus():
    # Server 0 has a spot job on one of its 2 GPUs, server 1 is empty: both have 2 GPUs that are free or of spot jobs.
    jobs = [spot("s", 0, 99), high("h", 10, 5, 2)]
    assert play(jobs, [server(2)] * 2, "yarn_cs", **FREE, blind="true", horizon_s=50.0).rows[0]["victims"] == ["s"]
    assert play(jobs, [server(2)] * 2, "yarn_cs", **FREE, horizon_s=50.0).jobs["h"]["servers"] == [1]


def test_chronus_starts_at_rounds_and_evicts_when_leases_end():
    # Rounds at 300, 600, ...; leases end at 1200. h comes at 310 and finds the GPU leased until 1200.
    jobs = [spot("s", 10, 5000), high("h", 310, 50)]
    played = play(jobs, [server()], "chronus", **FREE, horizon_s=2000.0)
    assert played.starts == [(300, "s"), (1200, "h"), (1500, "s")]


def test_models_are_clusters_of_their_own():
    # Half of 2 GPUs of A and half of 4 of B: one spot GPU on A, two on B.
    jobs = [spot(name, 0, 100, gpu_model=model) for name, model in (("a", "A"), ("b", "A"), ("c", "B"), ("d", "B"), ("e", "B"))]
    started = play(jobs, [server(2), server(4, gpu_model="B")], "lyra", **HALF, horizon_s=50.0).starts
    assert [name for _, name in started] == ["a", "c", "d"]


def test_what_is_reported():
    # a runs [0, 4000): one full hour, and at its end the second counts as well. b is evicted after 100 s. One of three hours failed.
    jobs = [spot("a", 0, 4000), spot("b", 0, 5000), high("h", 100, 6000, gpu_model="B")]
    played = play(jobs, [server(), server(gpu_model="B")], "yarn_cs", **FREE, horizon_s=5000.0)
    assert played.outcome.reports["guarantee_failed_share"] == pytest.approx(1 / 3)
    assert played.summary["guarantee_failed_share"] == pytest.approx(1 / 3)


@pytest.mark.skipif(JIT, reason="kernels have no entry from Python")
def test_the_linear_forecast_is_least_squares():
    rng = np.random.default_rng(3)
    n, day, week, history = 700, 24, 168, 672
    y = 300 + 40 * np.sin(np.arange(n) * 2 * np.pi / 24) + np.cumsum(rng.normal(0, 3, n))
    series = np.zeros(RING)
    for j in range(n):
        series[j % RING] = y[j]
    coefficients = np.zeros(TERMS)
    sigma = fit(series, n, day, week, history, coefficients, np.zeros(WORK))
    rows = np.arange(n - history + week, n)
    x = np.column_stack([np.ones(len(rows)), y[rows - 1], y[rows - day], y[rows - week]])
    line = np.linalg.lstsq(x, y[rows], rcond=None)[0]
    assert coefficients == pytest.approx(line, rel=1e-6)
    assert sigma == pytest.approx(np.sqrt(np.mean((y[rows] - x @ line) ** 2)), rel=1e-9)
    assert linear(series, n, day, week, coefficients) == pytest.approx(line @ [1, y[n - 1], y[n - day], y[n - week]])
    assert naive(series, n, 1, history)[0] == y[n - 1]


@pytest.mark.skipif(JIT, reason="kernels have no entry from Python")
def test_normal_quantiles():
    assert [normal_quantile(p) for p in (0.5, 0.9, 0.99)] == pytest.approx([0, 1.2815515655446004, 2.3263478740408408], abs=1e-12)
