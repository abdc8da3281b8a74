"""What switching models and keeping them partly on the host costs, from replays of a few requests and from the facts of the pool."""

from pathlib import Path

import pandas as pd
import pytest

from harness.claims import switching
from harness.claims.claim import CALIBRATED, HOLDS
from harness.claims.switching import MODELS, PUBLISHED, cache_share, curve, offloads, penalty, switching_costs, token_s
from harness.figures import offload_curve, switching_cost
from harness.figures.settings import NotDrawn
from synthetic_results import write_summary
from test_serving_figures import fits


def recipe(folder: Path, off: float = 1.0) -> Path:
    """The recipe ``offloading`` whose tokens take ``off`` times what the formula says; two seeds, a thousandth apart."""
    return write_summary(folder, [
        {"policy": "fcfs", "seed": seed, "pool/model": model, "pool.offload": share,
         "busy_s_per_token": off * (1 + 0.001 * (2 * seed - 1)) * token_s("a6000", model, share)}
        for model in MODELS for share in (0.0, 0.5, 1.0) for seed in (0, 1)])


def test_a_switch_adds_the_fit_to_the_first_token():
    """3.1 x 2 GB at 0.18 s/GB after 2 s: 3.116 s, to the first token of a request that finds another model loaded."""
    assert penalty("rtx5000_ada", "qwen_3b") == pytest.approx(2.0 + 0.18 * 6.2)
    assert penalty("a6000", "qwen_14b") == pytest.approx(1.8 + 0.13 * 29.4)


def test_an_interrupted_cache_crosses_pcie_twice():
    """About 5,000 tokens of 131,072 bytes at 32 GB/s, there and back: 41 ms beside 4.89 s. Fewer bytes a token, a smaller share."""
    cost = 2 * 5000 * 131_072 / 32e9
    assert cache_share("rtx5000_ada", "llama3_8b") == pytest.approx(cost / (cost + 2.0 + 0.18 * 16.06), rel=0.02)
    assert cache_share("rtx5000_ada", "qwen_3b") < cache_share("rtx5000_ada", "llama3_8b")


def test_the_published_penalties_and_the_share_of_the_model(tmp_path: Path):
    found = {claim.claim_id: claim for claim in switching.claims({"switching": tmp_path})}
    assert found.pop("switching-model-share").verdict == HOLDS
    assert len(found) == 6 and {claim.verdict for claim in found.values()} == {CALIBRATED}
    assert list(switching.claims({})) == [] and switching.sections({}) == []


def test_a_token_of_a_model_on_the_host_takes_its_weights_over_the_link():
    """Llama-3-8B: 16.06 GB at 25 GB/s, or at 0.768 TB/s x 0.8; a straight line between, plus 32 x 32 us + 126 us + 4.4 us and the cache of
    300 tokens x 131,072 bytes."""
    fixed = 32 * 32e-6 + 126e-6 + 4.4e-6 + 300 * 131_072 / (0.768e12 * 0.8)
    on_host, on_gpu = 16.06 / 25, 16.06e9 / (0.768e12 * 0.8)
    assert token_s("a6000", "llama3_8b", 0.0) == pytest.approx(on_host + fixed)
    assert token_s("a6000", "llama3_8b", 1.0) == pytest.approx(on_gpu + fixed)
    assert token_s("a6000", "llama3_8b", 0.75) == pytest.approx(0.25 * on_host + 0.75 * on_gpu + fixed)
    assert len(curve()) == 101 * len(MODELS)


def test_offloading_is_judged_by_its_largest_distance_from_the_formula(tmp_path: Path):
    (near,) = switching.claims({"offloading": recipe(tmp_path / "near", 1.004)})
    (far,) = switching.claims({"offloading": recipe(tmp_path / "far", 0.97)})
    assert (near.verdict, near.measured) == (CALIBRATED, pytest.approx(0.4))
    assert (far.verdict, far.measured) == ("not", pytest.approx(3.0))
    (section,) = switching.sections({"offloading": tmp_path / "near"})
    seconds = 1.004 * token_s("a6000", "llama3_8b", 0.5)
    assert f"| llama3_8b | 50 % | {1e3 * seconds:.1f} | {1 / seconds:.2f} |" in section.text


def test_the_curve_of_offloading_is_drawn_with_what_was_replayed(tmp_path: Path):
    replayed = offloads(recipe(tmp_path / "r"))
    figure = offload_curve.draw(curve(), replayed)
    times = token_s("a6000", "qwen_14b", 0.9) / token_s("a6000", "qwen_14b", 1.0)
    assert figure.texts[0].get_text().replace("\n", " ").replace("\xa0", " ") == (
        f"With 10 % of the weights on the host a token of qwen_14b takes {times:.1f} times as long")
    assert fits(figure)
    left, right = figure.axes
    assert sum(line.get_marker() == "o" for line in left.lines) == 1 and len(right.lines) == 2 * len(MODELS)
    assert offload_curve.message(curve().iloc[:1]) == "Time of a token over the share of the weights on the GPU"
    with pytest.raises(NotDrawn, match="no share of the weights"):
        offload_curve.draw(curve(), replayed.iloc[:0])


def test_switching_costs_are_drawn_beside_what_is_published():
    costs = pd.DataFrame([{"gpu": gpu, "model": model, "weights_gb": size, "published": seconds, "measured": seconds + 0.1,
                           "fixed_s": fixed, "s_per_gb": slope}
                          for gpu, fixed, slope in (("rtx5000_ada", 2.0, 0.18), ("a6000", 1.8, 0.13))
                          for model, size, seconds in zip(MODELS, (6.2, 16.1, 29.4), PUBLISHED[gpu], strict=True)])
    figure = switching_cost.draw(costs)
    assert figure.texts[0].get_text().replace("\n", " ").replace("\xa0", " ") == (
        "A model switch costs 2 s + 0.18 s/GB on an RTX 5000 Ada and 1.8 s + 0.13 s/GB on an RTX A6000")
    assert fits(figure)
    with pytest.raises(NotDrawn, match="no switch was measured"):
        switching_cost.draw(costs.iloc[:0])


def test_costs_of_switching_are_published_and_measured():
    costs = switching_costs()
    assert len(costs) == 6 and (abs(costs["measured"] / costs["published"] - 1) < 0.08).all()


def test_the_costs_are_printed(capsys: pytest.CaptureFixture[str]):
    assert switching.main() == 0
    assert "rtx5000_ada qwen_14b" in " ".join(capsys.readouterr().out.split())
