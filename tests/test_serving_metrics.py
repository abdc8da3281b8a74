"""The summary of a serving cell, worked out by hand. A step takes 1 s whatever is in it, so that times are whole."""

import numpy as np
import pytest

from harness.metrics.requests import requests_table
from harness.metrics.serving import serving_summary, serving_utilization
from serving_worlds import play, pool

SECOND = {"name": "second", "kind": "max_kv", "c0_s": 1.0}


def outcome_of(rows, horizon_s=np.inf, policy="fcfs", columns=None, **keys):
    return play(rows, pool(step_time=SECOND, **{"replicas": 1, "batch": 2, **keys}), policy, horizon_s=horizon_s, **(columns or {}))


def summary(rows, warmup_s=0.0, **more):
    outcome = outcome_of(rows, **more)
    return serving_summary(outcome, serving_utilization(outcome, 1.0, warmup_s), warmup_s)


def test_two_tenants():
    """Two places. a0 makes tokens at 1, 2, 3, 4 s and b0 at 1, 2. b1 waits for its place until 2 and makes tokens at 3, 4, 5; a1 comes at
    4, at once makes its token, at 5. Service: a 10 + 2 x 4 + 30 + 2 x 1 = 50, b 20 + 2 x 2 + 40 + 2 x 3 = 70; both are present for 5 s."""
    rows = [(0, 10, 4), (0, 20, 2), (0, 40, 3), (4, 30, 1)]
    found = summary(rows, columns={"tenant": ["a", "b", "b", "a"], "ttft_slo_s": [2.0, 2.0, 2.0, None]})
    expected = {
        "requests": 4, "requests_finished": 4, "requests_a": 2, "requests_b": 2, "makespan_s": 5.0, "drain_ratio": 5 / 4,
        "unstable": False, "throughput_rps": 4 / 5, "output_tokens_s": 10 / 5, "preemptions": 0, "switches": 0,
        "queue_s_mean": 0.5, "queue_s_p50": 0.0, "queue_s_mean_b": 1.0, "queue_s_p95_b": 1.9, "ttft_s_mean": (1 + 1 + 3 + 1) / 4,
        "ttft_s_p50_b": 2.0, "e2e_s_mean_a": (4 + 1) / 2, "e2e_s_mean_b": (2 + 5) / 2, "tbt_mean_s_mean": 1.0,
        "drain_rps_a": 2 / 5, "drain_rps_b": 2 / 5, "starved_share_a": 0.0, "starved_share_b": 0.0,
        "slo_met_share": 2 / 3, "goodput_rps": 2 / 5, "slo_met_share_a": 1.0, "slo_met_share_b": 0.5,
        "busy_mean": 1.0, "batch_mean": (0 + 2 + 1 + 2 + 1) / 5, "prefill_share": 3 / 5, "decode_share": 4 / 5,
        "fairness_jain": (10 + 14) ** 2 / (2 * (10**2 + 14**2)), "service_gap": 20 / 60,
        "busy_s_per_token": 5 / 10,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_what_never_starts_waits_until_the_end_and_starves():
    """One place, horizon 6 s. The request of ``a`` makes 9 tokens and is cut off; that of ``b`` waits for 5 s so far; that of ``c``, which
    comes at 7 s, is not submitted; ``d`` asks for 26 blocks of 16 tokens of which there are 20. Tokens are made at 1, 2, .. 5 s;
    nothing finishes."""
    found = summary([(0, 10, 9), (1, 10, 1), (7, 10, 1), (2, 400, 1)], horizon_s=6.0, batch=1, kv_blocks=20,
                    columns={"tenant": ["a", "b", "c", "d"]})
    expected = {"requests": 4, "requests_running": 1, "requests_waiting": 1, "requests_not_submitted": 1, "requests_rejected": 1,
                "requests_finished": 0, "queue_s_mean_b": 5.0, "queue_s_mean_a": 0.0, "throughput_rps": 0.0, "starved_share_a": 0.0,
                "starved_share_b": 1.0, "output_tokens_s": 5 / 6, "requests_c": 0}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["makespan_s"] is None and found["e2e_s_mean"] is None and found["goodput_rps"] is None and found["ttft_s_p99_b"] is None


def test_one_starves_when_the_last_of_the_others_finishes_first():
    """One place, by size: the request of b is done at 1 s, those of a start at 1 and at 4 s: the second has starved."""
    found = summary([(0, 10, 9), (0, 10, 3), (0, 10, 1)], policy="sjf", batch=1, columns={"tenant": ["a", "a", "b"]})
    assert found["starved_share_a"] == 0.5 and found["starved_share_b"] == 0.0


def test_one_tenant_has_no_fairness_and_nine_no_columns():
    assert summary([(0, 1, 1), (0, 1, 1)], columns={"tenant": ["a", "a"]})["fairness_jain"] is None
    many = summary([(0, 1, 1)] * 9, columns={"tenant": [f"t{i}" for i in range(9)]})
    assert "requests_t0" not in many and many["fairness_jain"] is not None


def test_the_warmup_is_left_out():
    """Requests of the first 3 s do not count, nor does what is made before; the second comes at 4 s and is done at 6."""
    found = summary([(0, 10, 2), (4, 10, 2)], warmup_s=3.0)
    expected = {"requests": 1, "throughput_rps": 1 / 3, "output_tokens_s": 2 / 3, "busy_mean": 2 / 3, "queue_s_mean": 0.0,
                "e2e_s_mean": 2.0, "busy_s_per_token": 2 / 2}
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_utilization_by_the_second():
    """Prefill of 10 and 20 tokens in the first second; two members make tokens in the second, one in the third; 16-token blocks: 1 + 2,
    then the caches of 11, 21 and 12 tokens need no more."""
    outcome = outcome_of([(0, 10, 3), (0, 20, 2)], kv_blocks=10)
    table = serving_utilization(outcome, 1.0)
    found = {name: table[name].to_pylist() for name in table.column_names[2:] if name != "kv_used"}
    assert found == {"busy": [1, 1, 1], "prefill": [1, 0, 0], "decode": [0, 1, 1], "batch": [0, 2, 1], "prefill_tokens": [30, 0, 0],
                     "output_tokens": [0, 2, 1], "present": [2, 2, 1], "queue_len": [0, 0, 0]}
    assert table["kv_used"].to_pylist() == pytest.approx([0.3, 0.3, 0.1])


def test_statuses_and_objectives_of_the_requests_table():
    """Horizon 4 s: done late (objective .5 s), done in time, cut off while it decodes, waiting, not there yet."""
    outcome = outcome_of([(0, 10, 2), (0, 10, 1), (1, 10, 9), (3, 10, 1), (3, 10, 1), (9, 1, 1)], horizon_s=4.0, batch=2,
                         columns={"ttft_slo_s": [0.5, 1.5, 1.5, 9.0, 9.0, 9.0]})
    table = requests_table(outcome)
    assert table["status"].to_pylist() == ["finished", "finished", "running", "running", "waiting", "not_submitted"]
    assert table["slo_met"].to_pylist() == [False, True, False, False, False, None]
    assert table["queue_s"].to_pylist() == [0.0, 0.0, 0.0, 0.0, 1.0, None]
    assert table["tbt_p99_s"].to_pylist() == [1.0, None, 1.0, None, None, None]
