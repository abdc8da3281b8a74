"""Step-time models against their published points, and against the facts of the specification."""

import numpy as np
import pytest

from harness.errors import BadInput
from harness.serving.pool import parse
from harness.serving.speed import step_s
from serving_worlds import EXACT, facts, play, pool

SPLITWISE = {"splitwise_a100": {1024: 161, 2048: 283, 4096: 708, 8192: 1781}, "splitwise_h100": {1024: 78, 2048: 134, 4096: 376, 8192: 832}}
"""Measured prompts of Llama-2-70B on 8 GPUs, ms."""


class Rows:
    """The part of a view that step times need."""

    def __init__(self, where):
        self.coef, self.limit, self.row, _ = where.tables()


def ms(where, prompts=0, tokens=0, pairs=0.0, members=0, context=0, largest=0, gang=1) -> float:
    view = Rows(where)
    return 1e3 * step(view, view.row[0, gang], prompts, tokens, pairs, members, context, largest)


def step(view, row, prompts, tokens, pairs, members, context, largest):
    return plain(step_s)(view.coef, view.limit, row, prompts, tokens, pairs, 0, members, context, largest)


def plain(function):
    return getattr(function, "py_func", function)


def prompt_ms(where, n, gang=1) -> float:
    return ms(where, 1, n, 0.5 * n * n, gang=gang, largest=n)


def big(step_time, **keys):
    return pool("llama2_70b", "h100" if "h100" in step_time else "a100", step_time, tp=8, **keys)


def test_splitwise_fits_give_their_published_lines():
    h100, a100 = big("splitwise_h100"), big("splitwise_a100")
    assert prompt_ms(h100, 2000) == pytest.approx(10.6 + 0.0906 * 2000)
    assert ms(h100, members=32, context=40_000) == pytest.approx(29.9 + 0.223 * 32 + 1.6e-4 * 40_000)
    assert ms(a100, members=32, context=40_000) == pytest.approx(44.2 + 0.237 * 32 + 3.0e-4 * 40_000)


def test_splitwise_prefill_is_near_its_measured_points():
    """A100: our fit, within 6 %. H100: the published line is 46 % above the measured 2K prompt and within 10 % from 4K on (spec: both
    are published), so only the upper points are held to it."""
    for n, measured in SPLITWISE["splitwise_a100"].items():
        assert prompt_ms(big("splitwise_a100"), n) == pytest.approx(measured, rel=0.06)
    for n in (4096, 8192):
        assert prompt_ms(big("splitwise_h100"), n) == pytest.approx(SPLITWISE["splitwise_h100"][n], rel=0.10)


def test_distserve_fits_give_their_published_curves_on_both_sides_of_the_large_batch():
    small = pool("opt_13b", "a100", "distserve_opt13b")
    assert prompt_ms(small, 2048) == pytest.approx(18.10 + 0.1019 * 2048 + 7.12e-6 * 2048**2)
    assert ms(small, members=94, context=50_000) == pytest.approx(19.93 + 6.27e-4 * 50_000 + 0.0385 * 94)
    assert ms(small, members=95, context=50_000) == pytest.approx(7.17 + 5.80e-4 * 50_000 + 0.158 * 95)
    large = pool("opt_66b", "a100", "distserve_opt66b", tp=4)
    assert prompt_ms(large, 1000) == pytest.approx(29.44 + 0.1514 * 1000 + 8.32e-6 * 1000**2)
    assert ms(large, members=100, context=10_000) == pytest.approx(30.76 + 4.52e-4 * 10_000 + 0.0633 * 100)


def test_max_kv_counts_the_largest_cache_alone():
    where = pool(step_time=EXACT)
    assert ms(where, members=7, context=900, largest=300) == 1e3 * (2.0**-6 + 300 * 2.0**-12)


@pytest.mark.parametrize("gang, ring, fast", [(1, 338, 338), (3, 154, 140), (8, 66, 61)])
def test_roofline_prefills_300k_tokens_as_long_as_the_specification_says(gang: int, ring: float, fast: float):
    """70B on A100s with TP4 at MFU 0.38, two replicas a server; the specification rounds to seconds and leaves all-reduce out (1 to 5
    %)."""
    for sp, seconds in (("ring", ring), ("fast", fast)):
        where = pool("llama3_70b", "a100", tp=4, replicas=8, sp=sp)
        assert prompt_ms(where, 300_000, gang) / 1e3 == pytest.approx(seconds, rel=0.07)


def test_roofline_decode_reads_the_weights_once():
    """Llama-3-8B on an A100, one member with 1,000 tokens: 16.06 GB + 0.13 GB at 0.8 x 2.039 TB/s = 9.93 ms, and 1.15 ms + 4.4 us of
    overhead."""
    assert ms(pool(), members=1, context=1000) == pytest.approx(16.06e9 / 1.6312e9 + 131072e3 / 1.6312e9 + 1.15 + 0.0044, rel=1e-3)


@pytest.mark.parametrize("gpu, model, seconds", [
    ("rtx5000_ada", "qwen_3b", 3.0), ("rtx5000_ada", "llama3_8b", 5.2), ("rtx5000_ada", "qwen_14b", 7.3),
    ("a6000", "qwen_3b", 2.6), ("a6000", "llama3_8b", 4.1), ("a6000", "qwen_14b", 5.7)])
def test_switching_takes_the_published_seconds(gpu: str, model: str, seconds: float):
    """The fits over all sizes of a GPU are within 8 % of its points."""
    assert pool(model, gpu, memory_share=0.99).tables()[3][0] == pytest.approx(seconds, rel=0.08)


def test_offloading_is_hyperbolic_and_steepest_near_the_whole_model_on_the_gpu():
    """Tokens per second over the share on the GPU: 1 / (W [f / BW_gpu + (1 - f) / BW_cpu] + c) is convex and rises."""
    models = [facts("model", "llama3_8b")]
    rate = np.array([1 / ms(pool(gpu="a6000", models=models, offload=f), members=1, context=1) for f in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)])
    assert (np.diff(rate) > 0).all() and (np.diff(rate, 2) > 0).all()


def test_a_lone_prompt_takes_the_seconds_of_its_step():
    where = pool(prefill="whole")
    requests = play([(0, 700, 1)], where).state.shown.requests
    assert requests.first_token[0] == pytest.approx(prompt_ms(where, 700) / 1e3, rel=1e-12)


@pytest.mark.parametrize("keys, message", [
    ({"replicas": 0}, "pool.replicas=0: must be at least 1"), ({"tp": 2.5}, "must be a whole number"),
    ({"prefill": "eager"}, "must be one of"),
    ({"decode_replicas": 4}, "must be fewer"), ({"chunk": 100}, "must be more than pool.batch"), ({"nope": 1}, "there is no such key"),
    ({"offload": 1.5}, "must be a share")])
def test_bad_pools_are_refused_in_one_line(keys: dict, message: str):
    with pytest.raises(BadInput, match=message) as found:
        pool(**keys)
    assert "\n" not in str(found.value)


def test_a_model_that_does_not_fit_is_refused():
    with pytest.raises(BadInput, match="leave no room for a KV cache"):
        pool("llama3_70b", "rtx4090")


def test_missing_and_unknown_facts_are_named():
    section = {"model": facts("model", "llama3_8b"), "gpu": facts("gpu", "a100"), "step_time": facts("step_time", "roofline")}
    with pytest.raises(BadInput, match="pool.gpu.tflops: is missing"):
        parse({**section, "gpu": {k: v for k, v in section["gpu"].items() if k != "tflops"}})
    with pytest.raises(BadInput, match="pool.model.size: there is no such fact"):
        parse({**section, "model": {**section["model"], "size": 1}})
