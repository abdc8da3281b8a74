"""The time of tensor-parallel all-reduces beside the published points of the serving spec."""

import numpy as np
import pytest

from harness.serving.models import all_reduce_s
from harness.serving.pool import Pool
from harness.serving.speed import FEATURES, HAS_PREFILL, LARGEST, ONE, PAIRS, PROMPTS, TOKENS
from serving_worlds import pool


def prompt_s(where: Pool, tokens: int) -> float:
    """Seconds to prefill one prompt."""
    coef, _, row, _ = where.tables()
    x = np.zeros(FEATURES)
    x[[ONE, HAS_PREFILL, PROMPTS, TOKENS, PAIRS, LARGEST]] = 1, 1, 1, tokens, tokens**2 / 2, tokens
    larger, other, rest = coef[row[0, 1], 0] @ x
    return max(larger, other) + rest


@pytest.mark.parametrize(("tokens", "published_ms"), [(1024, 161), (2048, 283), (4096, 708), (8192, 1781)])
def test_prompts_of_llama2_70b_on_eight_a100(tokens: int, published_ms: float):
    """Splitwise measured them over NVLink. The roofline with its all-reduces is within 25 % (it is +5, +19, -3 and -21 %; the MFU is the
    field's, not fitted to these); the all-reduces are 7 to 11 % of the published times. H100 prompts come out at 0.51 to 0.78 of the
    published ones: there the field's MFU of 0.45 is what is off, and no statement about links follows."""
    where = pool("llama2_70b", "a100", tp=8)
    assert prompt_s(where, tokens) * 1e3 == pytest.approx(published_ms, rel=0.25)
    assert 0.06 < all_reduce_s(where.model, 8, 300.0) * tokens * 1e3 / published_ms < 0.12


def test_the_all_reduce_that_two_published_fits_imply():
    """DistServe on A100s: OPT-13B alone takes 0.1019 ms a token, OPT-66B on four 0.1514. If the arithmetic scales with parameters per GPU,
    13B's time x 66 / 13 / 4 = 0.1293 ms, and 22.1 us a token are left for all-reduces and what else four GPUs cost. The model says 11.8 us
    at 300 GB/s: it is the least that links cost, about half of what is implied."""
    implied = 0.1514e-3 - 0.1019e-3 * 66 / 13 / 4
    assert implied == pytest.approx(22.1e-6, rel=0.01)
    assert 0.4 < all_reduce_s(pool("opt_66b", "a100", tp=4).model, 4, 300.0) / implied < 1.0


def test_penalties_grow_as_the_link_between_sockets_gets_slower():
    """Yi-34B on four RTX 4090: prompts of 1,000 tokens, seconds against those over PCIe in one socket (24 GB/s)."""
    def seconds(gbs: float) -> float:
        return prompt_s(pool("yi_34b", "rtx4090", tp=4, links={"numa": {"gbs": gbs, "latency_us": 3.0}}), 1000)

    ratios = [seconds(gbs) / seconds(24.0) for gbs in (24.0, 16.0, 10.0, 5.0)]
    assert ratios[0] == 1.0 and ratios == sorted(ratios)
    assert ratios[2] == pytest.approx(1.38, abs=0.03)
