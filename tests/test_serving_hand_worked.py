"""Replays worked out by hand. A step costs C0 + C1 x the largest KV cache of the batch, in binary fractions, so that sums are exact."""

import numpy as np
import pytest

from harness.metrics.serving import serving_summary, serving_utilization
from serving_worlds import EXACT, play, pool

C0, C1 = 2.0**-6, 2.0**-12


def steps(*largest: int) -> float:
    """Time of steps with these largest caches."""
    return sum(C0 + C1 * n for n in largest)


def exact(**keys):
    return pool(step_time=EXACT, replicas=1, **keys)


def requests(rows, where, *args, **kwargs):
    return play(rows, where, *args, **kwargs).state.shown.requests


def test_two_requests_in_one_batch():
    """Step 1 prefills 4 and 2 tokens: 4. Step 2 makes a token each, caches 5 and 3: 5, and the second is done. Step 3: 6."""
    q = requests([(0, 4, 3), (0, 2, 2)], exact())
    assert list(q.first_token) == [steps(4)] * 2
    assert list(q.finish) == [steps(4, 5, 6), steps(4, 5)]


def test_one_output_token_is_done_at_the_end_of_its_prefill():
    q = requests([(0, 4, 1)], exact())
    assert q.finish[0] == q.first_token[0] == steps(4)


def test_a_prompt_is_prefilled_in_chunks_beside_decode():
    """Budget 4: the prompt of 10 takes chunks 4, 4, 2. The other came first: prefill 2, then it decodes beside the chunks of 3 tokens
    that the
    budget leaves: caches 3 and 3, 4 and 6, 5 and 9, 6 and 10 (its fifth token, and the other's first)."""
    alone = requests([(0, 10, 1)], exact(chunk=4, batch=2))
    assert alone.first_token[0] == steps(4, 8, 10)
    q = requests([(0, 2, 5), (C0 / 2, 10, 1)], exact(chunk=4, batch=2))
    assert q.first_token[1] == q.finish[0] == steps(2, 3, 6, 9, 10)


def test_a_request_that_comes_during_a_step_joins_the_next():
    q = requests([(0, 4, 9), (steps(4, 5) + C0 / 2, 1, 1)], exact())
    assert q.start[1] == steps(4, 5, 6) and q.first_token[1] == steps(4, 5, 6, 7)


def test_preemption_by_recompute():
    """Blocks of 4, three of them. Step 1 prefills 4 + 4 tokens: two blocks. In step 2 both need another: the second, last to enter, is
    dropped with
    one token made. The first goes on alone, caches 5 to 8, and is done. Then the second prefills its prompt and its token, 5 tokens, and
    makes its second; caches 6 and 7 for the last two."""
    q = requests([(0, 4, 5), (0, 4, 4)], exact(block=4, kv_blocks=3, batch=2))
    assert list(q.finish) == [steps(4, 5, 6, 7, 8), steps(4, 5, 6, 7, 8, 5, 6, 7)]
    assert list(q.preemptions) == [0, 1]


def test_preemption_by_swap():
    """The same, but the cache of 4 tokens is copied out before step 2 and back before step 6, which makes the second token: no prefill."""
    q = requests([(0, 4, 5), (0, 4, 4)], exact(block=4, kv_blocks=3, batch=2, preemption="swap"))
    copy = 4 * 131072 / 32e9
    assert q.finish[1] == pytest.approx(steps(4, 5, 6, 7, 8, 5, 6, 7) + 2 * copy, rel=1e-12)


def test_a_request_that_never_fits_is_rejected():
    outcome = play([(0, 40, 9), (0, 4, 1)], exact(block=4, kv_blocks=12))
    assert list(outcome.state.shown.requests.status) == [8, 7]


def test_pause_in_place_between_operators():
    """FlowPrefill: a prompt of 100 runs from 0; at half of its time one of 10 with a close deadline comes and runs at once; the first
    goes on where it was. With two boundaries in the whole operation and an arrival at a quarter, the second waits for the half."""
    whole, small = C0 + 100 * C1, C0 + 10 * C1
    rows = [(0, 100, 1), (whole / 2, 10, 1)]
    where = {"prefill": "whole", "chunk": 2048}
    q = requests(rows, exact(boundaries=0, **where), "flowprefill", ttft_slo_s=[9.0, small * 1.5])
    assert q.first_token[1] == pytest.approx(whole / 2 + small, rel=1e-12) and q.first_token[0] == pytest.approx(whole + small, rel=1e-12)
    assert list(q.preemptions) == [1, 0]
    q = requests([(0, 100, 1), (whole / 4, 10, 1)], exact(boundaries=2, **where), "flowprefill", ttft_slo_s=[9.0, whole])
    assert q.first_token[1] == pytest.approx(whole / 2 + small, rel=1e-12)


def test_how_long_an_interruption_takes_to_pause():
    """Two boundaries and an arrival at a quarter of the whole operation: a quarter, to the half. With one, and an arrival at half: to its
    end. Nothing is interrupted: no mean."""
    whole = C0 + 100 * C1
    where = {"prefill": "whole", "chunk": 2048}
    for boundaries, at, blocked in ((2, 0.25, 0.25), (1, 0.5, 0.5), (0, 0.5, 0.0)):
        rows = [(0, 100, 1), (at * whole, 10, 1)]
        outcome = play(rows, exact(boundaries=boundaries, **where), "flowprefill", ttft_slo_s=[9.0, whole])
        found = serving_summary(outcome, serving_utilization(outcome))["blocking_s_mean"]
        assert found == pytest.approx(blocked * whole, rel=1e-12, abs=1e-15)
    outcome = play([(0, 100, 1)], exact(**where), "flowprefill")
    assert serving_summary(outcome, serving_utilization(outcome))["blocking_s_mean"] is None


def test_a_chunk_goes_to_the_most_urgent_prompt():
    """Steps of 1 s, chunks of 4. The prompt of 12 has a chunk at 0; at 0.5 come one of 4 that is due first and one that is due last. By key
    the urgent one has the chunk at 1, the long one those at 2 and 3, and the last one that at 4, when it starts. In the order of admission
    the long one has those at 0, 1 and 2."""
    second = {"name": "second", "kind": "max_kv", "c0_s": 1.0}
    rows, slo = [(0, 12, 1), (0.5, 4, 1), (0.5, 4, 1)], [50.0, 2.0, 90.0]
    for order, first, start in (("key", [4.0, 2.0, 5.0], [0.0, 1.0, 4.0]), ("admission", [3.0, 4.0, 5.0], [0.0, 3.0, 4.0])):
        where = pool(step_time=second, replicas=1, batch=3, chunk=4, chunk_order=order)
        q = requests(rows, where, "edf", ttft_slo_s=slo)
        assert (q.first_token.tolist(), q.start.tolist()) == (first, start)
        assert (q.preemptions == 0).all()


def test_prefill_and_decode_pools():
    """Prefill of 4 on replica 0, the whole cache of 4 tokens moves, and replica 1 makes the other two tokens: caches 5 and 6."""
    where = pool(step_time=EXACT, replicas=2, decode_replicas=1, transfer="whole")
    q = requests([(0, 4, 3)], where)
    assert q.finish[0] == pytest.approx(steps(4) + 4 * 131072 / 300e9 + steps(5, 6), rel=1e-12)
    assert q.replica[0] == 1


def test_a_gang_divides_a_prompt_and_a_short_request_pauses_it():
    """PecSched, two replicas, 70B on A100s: a prompt of 100,000 takes ceil(100,000 / 80,000) = 2 replicas. A short one comes after 1 s,
    runs at once, and the long one is delayed by just that prefill; then it decodes on its first replica."""
    keys = {"model": "llama3_70b", "tp": 4, "replicas": 2, "prefill": "whole", "chunk": 1, "boundaries": 0}
    params = {"decode_share": 0.0}
    alone = requests([(0, 100_000, 2)], pool(**keys), "pecsched", params=params)
    q = requests([(0, 100_000, 2), (1.0, 1000, 1)], pool(**keys), "pecsched", params=params)
    short = requests([(0, 1000, 1)], pool(**keys), "pecsched", params=params).first_token[0]
    assert alone.gang[0] == q.gang[0] == 2
    assert q.start[1] == 1.0 and q.first_token[1] == pytest.approx(1.0 + short)
    assert q.first_token[0] == pytest.approx(alone.first_token[0] + short) and list(q.preemptions) == [1, 0]


def test_fifo_keeps_short_requests_behind_a_long_prefill():
    keys = {"model": "llama3_70b", "tp": 4, "replicas": 2, "prefill": "whole", "chunk": 1}
    q = requests([(0, 100_000, 2), (1.0, 1000, 1)], pool(**keys), "long_fifo")
    assert q.start[1] >= q.first_token[0]


@pytest.mark.parametrize("delta, cost", [(0, 4), (1, 3)])
def test_isjl_inserts_a_short_job_beside_the_leader(delta: int, cost: int):
    """Pinned: lengths 2, 1, 1 in two places. LJF: {2, 1} costs 1 + 2 and {1} costs 1. ISJL puts both short ones beside the 2: 3."""
    where = pool(step_time={"name": "max", "kind": "max_kv", "c1_s": 1.0}, replicas=1, batch=2, chunk=8)
    assert play([(0, 1, 2), (0, 1, 1), (0, 1, 1)], where, "isjl", params={"delta": float(delta)}).end == cost


def test_times_between_tokens():
    """Three tokens after the first: gaps C0 + 5 C1, C0 + 6 C1, C0 + 7 C1; the 99th percentile is at 1.98 of 2."""
    outcome = play([(0, 4, 4)], exact())
    assert outcome.tbt_mean[0] == pytest.approx(C0 + 6 * C1)
    assert outcome.tbt_p99[0] == pytest.approx(np.quantile([C0 + 5 * C1, C0 + 6 * C1, C0 + 7 * C1], 0.99))


def test_switching_models_costs_the_penalty():
    """One request for each of two models, the second's waits until the first is idle, then 1.8 s + 0.13 s/GB x 16.06 GB."""
    from serving_worlds import facts

    where = pool(gpu="a6000", replicas=1, models=[facts("model", "qwen_3b"), facts("model", "llama3_8b")])
    outcome = play([(0, 100, 5), (0.001, 100, 1)], where, "switching", service=["qwen_3b", "llama3_8b"])
    q = outcome.state.shown.requests
    alone = pool(gpu="a6000", replicas=1, models=[facts("model", "llama3_8b")])
    own = play([(0, 100, 1)], alone, service=["llama3_8b"]).state.shown.requests
    assert q.first_token[1] - q.finish[0] == pytest.approx(1.8 + 0.13 * 16.06 + own.first_token[0])
