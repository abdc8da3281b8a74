"""The engine against its plain twin, and runs of steps advanced at once against steps one by one."""

import numpy as np
import pytest

import naive_serving
from harness.metrics.requests import requests_table
from harness.serving.hooks import policy_names
from serving_worlds import EXACT, GANGS, play, pool, suited, world

KEYS = {"fcfs": lambda a, p, o: a, "sjf": lambda a, p, o: o, "ljf": lambda a, p, o: -o}

SHAPES = {
    "roomy": {},
    "tight": {"kv_blocks": 60, "batch": 6, "chunk": 64},
    "tight, swap": {"kv_blocks": 60, "batch": 6, "chunk": 64, "preemption": "swap"},
    "tight, by key": {"kv_blocks": 60, "batch": 6, "chunk": 16, "chunk_order": "key"},
    "two pools": {"decode_replicas": 1, "replicas": 3, "kv_blocks": 80},
    "whole": {"prefill": "whole", "chunk": 1, "batch": 8},
    "whole, two pools": {"prefill": "whole", "chunk": 1, "replicas": 3, "decode_replicas": 2, "kv_blocks": 80},
}


def exact(chunks, caches):
    return 2.0**-6 + 2.0**-12 * max([done + n for done, n in chunks] + caches)


def roofline(where):
    """Seconds of a step from the facts of the pool, written as the spec reads."""
    model, gpu = where.model, where.gpu
    peak, bandwidth = gpu.tflops * 1e12, gpu.hbm_tbs * 1e12 * gpu.mbu

    def step_s(chunks, caches):
        tokens = sum(n for _, n in chunks)
        pairs = sum(n * done + n * n / 2 for done, n in chunks)
        flops = (model.gflop * 1e9 * tokens + model.attention_mflop * 1e6 * pairs) / gpu.mfu_prefill
        flops += (model.gflop * 1e9 * len(caches) + model.attention_mflop * 1e6 * sum(caches)) / gpu.mfu_decode
        moved = 2e9 * model.parameters_b + model.kv_bytes * (sum(caches) + sum(done for done, _ in chunks))
        return 32e-6 * model.layers + 126e-6 + 4.4e-6 * (len(chunks) + len(caches)) + max(flops / peak, moved / bandwidth)

    return step_s


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("policy", KEYS)
def test_the_engine_equals_its_twin(policy: str, shape: str):
    for seed in range(3):
        where = pool(step_time=EXACT, transfer="whole", **({"replicas": 2, "batch": 16} | SHAPES[shape]))
        rows = world(seed)
        outcome = play(rows, where, policy)
        requests = outcome.state.shown.requests
        twins = naive_serving.replay(
            rows, where.replicas, where.blocks, 16, where.batch, where.chunk, exact, KEYS[policy], where.prefill == "whole",
            where.decode_replicas, where.model.kv_bytes / 32e9 if where.preemption == "swap" else None, where.move_s()[1],
            by_key=where.chunk_order == "key")
        got = [(q.start, q.first_token, q.finish, q.preemptions, q.replica) for q in requests]
        want = [(q.start, q.times[0], q.times[-1], q.preemptions, q.replica) for q in twins]
        np.testing.assert_allclose(got, want, err_msg=f"seed {seed}",
                                   rtol=0 if shape in ("roomy", "tight", "tight, by key", "whole") else 1e-12)
        gaps = [np.diff(q.times) if len(q.times) > 1 else np.array([np.nan]) for q in twins]
        np.testing.assert_allclose(outcome.tbt_p99, [np.quantile(gap, 0.99) for gap in gaps], rtol=1e-9)
        assert sum(q.preemptions for q in twins) > 0 or not shape.startswith("tight")


def test_the_roofline_is_the_formula_of_its_facts():
    where = pool(replicas=2, batch=32)
    rows = world(3, n=80, span=4.0, longest=1500)
    requests = play(rows, where).state.shown.requests
    twins = naive_serving.replay(rows, 2, where.blocks, 16, 32, where.chunk, roofline(where), KEYS["fcfs"])
    np.testing.assert_allclose(requests.finish, [q.times[-1] for q in twins], rtol=1e-9)


@pytest.mark.parametrize("policy", policy_names())
def test_runs_of_steps_give_the_same_bits_as_single_steps(policy: str):
    for seed in range(2):
        rows = world(seed, n=60, span=5.0)
        keys: dict = {"kv_blocks": 90, "batch": 12, "replicas": 3}
        slo = (0.25, 0.5, 4.0, 6.0)
        columns: dict = {"tenant": [f"t{i % 3}" for i in range(len(rows))], "ttft_slo_s": [slo[i % 4] for i in range(len(rows))]}
        rows, keys, columns = suited(policy, rows, keys, columns)
        if policy in GANGS:
            keys |= {"replicas": 4, "decode_replicas": int(policy == "pecsched")}
        one, other = (play(rows, pool(**keys, skip_ahead=skip), policy, **columns) for skip in (True, False))
        assert other.events > one.events
        assert requests_table(one).equals(requests_table(other))
        for field in ("used_s", "ordinal", "used", "context"):
            assert (one.state.shown.replicas[field] == other.state.shown.replicas[field]).all()
        assert one.state.shown.requests.tobytes() == other.state.shown.requests.tobytes()


@pytest.mark.parametrize("skip", [True, False])
def test_what_comes_at_the_end_of_a_step_is_in_the_next(skip: bool):
    """Steps of 1 s. The request of 3 s finds a place, since the step that ends then is the second request's last."""
    where = pool(step_time={"name": "second", "kind": "max_kv", "c0_s": 1.0}, replicas=1, batch=2, skip_ahead=skip)
    requests = play([(0, 10, 2), (1, 10, 9), (3, 10, 1), (3, 10, 1)], where).state.shown.requests
    assert requests.start.tolist() == [0.0, 1.0, 3.0, 4.0]
