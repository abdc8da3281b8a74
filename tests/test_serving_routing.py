"""Where requests go, worked out by hand for every rule of routing. A step costs C0 + C1 x the largest KV cache of the batch."""

from pathlib import Path

import numpy as np
import pytest

from harness.errors import BadInput
from harness.serving.hooks import DEFAULTS, HOOKS, load_policy
from serving_worlds import EXACT, facts, play, pool, world

C0, C1 = 2.0**-6, 2.0**-12
TWO = {"step_time": EXACT, "replicas": 2}


def replicas(rows, policy: str = "fcfs", params=None, columns=None, **keys) -> list[int]:
    return play(rows, pool(**{**TWO, **keys}), policy, params=params, **(columns or {})).state.shown.requests.replica.tolist()


def predicted(rows, tmp_path: Path, replica: int = 0, **keys):
    """The requests of a replay on one replica in which the key of each is what predicted_ttft said on its arrival."""
    file = tmp_path / "predicts.py"
    file.write_text("from harness.serving.routing import predicted_ttft\n\n\ndef key(view, own, q):\n"
                    f"    return predicted_ttft(view, {replica}, q)\n")
    return play(rows, pool(step_time=EXACT, replicas=1, **keys), file=file).state.shown.requests


def test_shortest_queue_counts_requests_and_round_robin_does_not():
    """At 0.5 s the first is done and the second, of 50 tokens and 1.1 s, is not: the third goes to the empty replica 0. Then each
    has one request, and equals go to the lowest."""
    rows = [(0, 4, 1), (0, 4, 50), (0.5, 4, 50), (0.5, 4, 50)]
    assert replicas(rows, routing="shortest_queue") == [0, 1, 0, 0]
    assert replicas(rows, routing="round_robin") == [0, 1, 0, 1]


def test_fewest_tokens_counts_the_prompts_that_wait():
    """100 tokens on replica 0; 10, then 15, then 20 on replica 1. By requests the third and fourth would alternate."""
    rows = [(0, 100, 1), (0, 10, 1), (0, 5, 1), (0, 5, 1)]
    assert replicas(rows, routing="fewest_tokens") == [0, 1, 1, 1]
    assert replicas(rows, routing="shortest_queue") == [0, 1, 0, 1]


def test_least_kv_counts_blocks_in_use_and_blocks_divides_them_by_the_batch():
    """Replica 0 has 160 tokens in 11 blocks for one member, replica 1 first 16 in 2. The third, of 256 tokens, goes there: 18 blocks for 2
    members. For the fourth that is more KV cache than replica 0 has, but 9 blocks a member against 11."""
    rows = [(0, 160, 90), (0.05, 16, 90), (0.1, 256, 90), (0.4, 16, 1)]
    assert replicas(rows, routing="least_kv") == [0, 1, 1, 0]
    assert replicas(rows, routing="blocks") == [0, 1, 1, 1]


def test_predictive_routing_sends_a_request_where_its_first_token_comes_first():
    """Both replicas have one request, but on replica 0 its step of 500 tokens takes C0 + 500 C1 = .14 s, on replica 1 of 10 .02 s."""
    rows = [(0, 500, 1), (0.001, 10, 1), (0.002, 10, 1)]
    assert replicas(rows, routing="predictive") == [0, 1, 1]
    assert replicas(rows, routing="shortest_queue") == [0, 1, 0]


def test_a_replica_that_has_the_model_loaded_comes_before_a_less_loaded_one():
    names = ["llama3_8b", "qwen_3b"]
    keys = {"models": [facts("model", name) for name in names], "gpu": "a6000"}
    asked = [0, 1, 1, 1, 0, 1]
    rows = [(0, 10, 5)] * 6
    assert replicas(rows, columns={"service": [names[i] for i in asked]}, **keys) == asked


def test_prompts_go_to_no_decode_replica_and_decoders_fill_by_their_kv_cache():
    """Two replicas prefill in turn. The first prompt, of 160 tokens, decodes on replica 2; the second of 16 on replica 3, and the third
    too, where fewer blocks are in use."""
    rows = [(0, 160, 90), (0.2, 16, 90), (0.4, 16, 90)]
    q = play(rows, pool(step_time=EXACT, replicas=4, decode_replicas=2, routing="round_robin")).state.shown.requests
    assert q.replica.tolist() == [2, 3, 3]
    assert (q.first_token < q.decode_start).all()


def test_the_prediction_for_whole_prompts_is_exact(tmp_path: Path):
    """The third comes while the first is prefilled and the second waits: the rest of the first, C0 + 60 C1, and its own C0 + 30 C1."""
    q = predicted([(0, 100, 1), (0.005, 60, 1), (0.01, 30, 1)], tmp_path, prefill="whole", chunk=1)
    ttft = q.first_token - q.arrival
    assert q.key[0] == C0 + 100 * C1 == ttft[0]
    assert q.key[2] == pytest.approx((C0 + 100 * C1 - 0.01) + (C0 + 60 * C1) + (C0 + 30 * C1), rel=1e-12)
    np.testing.assert_allclose(q.key, ttft, rtol=1e-12)


def test_the_prediction_for_chunks_is_exact_when_one_step_takes_the_prompt(tmp_path: Path):
    """Alone, 100 tokens take C0 + 100 C1. 1,000 take two steps of at most 512, each of which is predicted with the largest cache."""
    q = predicted([(0, 100, 1), (1.0, 1000, 1)], tmp_path)
    assert q.key[0] == C0 + 100 * C1 == q.first_token[0]
    assert q.key[1] == 2 * (C0 + 1000 * C1)
    assert q.first_token[1] - 1.0 == 2 * C0 + 1512 * C1


def test_a_full_replica_is_predicted_ten_times_as_slow(tmp_path: Path):
    """One place, taken by a member with 45 tokens to make: what is left of its step, then ten times a step."""
    q = predicted([(0, 4, 50), (C0 + 4 * C1 + 0.001, 8, 1)], tmp_path, batch=1)
    rest = C0 + 5 * C1 - 0.001
    assert q.key[1] == pytest.approx(rest + 10 * (C0 + 8 * C1), rel=1e-9)


def test_a_held_request_lets_others_pass_and_a_blocking_one_does_not(tmp_path: Path):
    """The large prompt is kept in the global queue until 1 s, when a third request comes: the small one behind it starts at once or
    waits too."""
    for answer, started in (("HOLD", 0.0), ("BLOCK", 1.0)):
        file = tmp_path / f"{answer.lower()}.py"
        file.write_text(f"from harness.serving.state import {answer}, NOW\n\n\ndef route(view, own, q):\n"
                        f"    return {answer} if view.requests.prompt[q] > 50 and view.clock[NOW] < 1.0 else 0\n")
        q = play([(0, 100, 1), (0, 10, 1), (1.0, 10, 1)], pool(step_time=EXACT, replicas=1), file=file).state.shown.requests
        assert q.start.tolist() == [1.0, started, 1.0]


def test_a_policy_of_defaults_alone_is_first_come_first_served(tmp_path: Path):
    file = tmp_path / "plain.py"
    file.write_text("from harness.serving.hooks import DEFAULTS\n\n" + "".join(f"{hook} = DEFAULTS['{hook}']\n" for hook in HOOKS))
    for keys in ({}, {"prefill": "whole", "chunk": 1}):
        where = pool(step_time=EXACT, replicas=2, batch=3, kv_blocks=80, **keys)
        mine, usual = (play(world(6), where, **which).state.shown.requests for which in ({"file": file}, {"policy": "fcfs"}))
        for column in ("start", "first_token", "finish", "replica"):
            np.testing.assert_array_equal(mine[column], usual[column])
    assert set(DEFAULTS) == set(HOOKS)


def test_a_file_without_a_hook_is_refused(tmp_path: Path):
    file = tmp_path / "empty.py"
    file.write_text("PARAMS = {}\n")
    with pytest.raises(BadInput, match="defines no hook; a serving policy defines one or more of route, hand, key"):
        load_policy(file=str(file))
