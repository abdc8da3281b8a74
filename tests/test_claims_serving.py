"""The claims on serving policies from results that are made up, and the searches behind ISJL's from instances worked by hand."""

from pathlib import Path

import pandas as pd
import pytest

from harness.claims import serving
from harness.claims.claim import HOLDS, PARTLY, SKIPPED
from harness.claims.serving import Instances, Worst, frontier, profit, worst_ratios
from harness.figures import isjl_frontier, isjl_profit
from harness.figures.settings import NotDrawn
from synthetic_results import write_summary

SEEDS = range(10)
TINY = Instances(2, 3, 3)


def of(found: list) -> dict:
    return {claim.claim_id: claim for claim in found}


@pytest.fixture
def few_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SMALL", TINY)


def pecsched(tmp_path: Path, seeds: range = SEEDS, stretch: float = 1.0) -> dict[str, Path]:
    """PecSched waits 8 s where FIFO waits 40 s (0.2) and Reservation 80 s (0.1); without long requests FIFO waits 10 s (4 x) and serves
    10/s instead of 5 (0.5); PecSched serves 15/s, 3 x FIFO's and 5 x Reservation's; its long ones take 105 s instead of 100."""
    drain = [
        {"policy": policy, "seed": seed, "workload.load_scale": 4.5, "queue_s_p99_short": stretch * wait, "drain_rps_short": rate,
         "e2e_s_mean_long": long, "starved_share_long": starved, "busy_mean": busy, "policy.long": 1.0}
        for seed in seeds for policy, wait, rate, long, starved, busy in (
            ("pecsched", 8.0, 15.0, 105.0, 0.0, 0.9), ("long_fifo", 40.0, 5.0, 100.0, 0.0, 0.9),
            ("reservation", 80.0, 3.0, 90.0, 0.0, 0.7), ("long_priority", 6.0, 12.0, 300.0, 0.95, 0.9))]
    without = [{"policy": "fcfs", "seed": seed, "workload.load_scale": scale, "queue_s_p99": 10.0 * scale / 4.5, "throughput_rps": 10.0}
               for seed in seeds for scale in (1.0, 4.5)]
    return {"pecsched_drain": write_summary(tmp_path / "drain", drain), "pecsched_without": write_summary(tmp_path / "without", without)}


def test_what_is_published_of_pecsched_holds_when_it_is_measured(tmp_path: Path):
    found = of(serving.claims(pecsched(tmp_path)))
    assert {claim.verdict for claim in found.values()} == {HOLDS}
    assert {name.removeprefix("pecsched-"): claim.measured for name, claim in found.items()} == pytest.approx({
        "fifo-longs-p99": 4.0, "fifo-longs-throughput": 0.5, "fifo-p99": 0.2, "fifo-throughput": 3.0, "long-jct": 1.05,
        "reservation-p99": 0.1, "reservation-throughput": 5.0, "priority-starves": 0.95, "reservation-idle": 0.3})


def test_a_ratio_is_taken_seed_by_seed_and_few_seeds_are_not_enough(tmp_path: Path):
    found = of(serving.claims(pecsched(tmp_path, range(3))))
    assert {claim.verdict for claim in found.values()} == {SKIPPED}


def test_ten_times_the_waits_leave_ratios_between_policies_alone(tmp_path: Path):
    found = of(serving.claims(pecsched(tmp_path, stretch=10.0)))
    assert found["pecsched-fifo-p99"].measured == pytest.approx(0.2)
    assert found["pecsched-fifo-longs-p99"].measured == pytest.approx(40.0)
    assert found["pecsched-fifo-longs-p99"].verdict == PARTLY  # same sign, far above the published range


def test_nothing_is_claimed_of_recipes_that_did_not_run(tmp_path: Path):
    done = pecsched(tmp_path)
    assert serving.claims({}) == []
    assert serving.claims({"pecsched_drain": done["pecsched_drain"]}) == []
    assert serving.sections({}) == []


def test_the_worst_ratio_of_ljf_is_three_quarters():
    # Lengths 1, 1, 2 on two places, pure-max steps. LJF: (2, 1) then (1): 1 + 2 + 1 = 4. With delta 1 the second 1 may enter after the
    # first, beside the 2: 1 + 2 = 3.
    found = worst_ratios(TINY)
    assert found["LJF"] == Worst(0.75, (1, 1, 2), 1)
    assert found["ISJL, head insertion"].ratio == pytest.approx(8 / 9)
    assert all(worst.ratio <= 1 for worst in found.values())


def test_isjl_keeps_three_quarters_and_fcfs_does_not(few_instances: None, tmp_path: Path):
    rows = [{"policy": "isjl", "policy.delta": delta, "seed": seed, "makespan_s": makespan, "e2e_s_mean": mean}
            for seed in SEEDS for delta, makespan, mean in ((0.0, 120.0, 50.0), (215.0, 110.0, 45.0), (1e9, 100.0, 35.0))]
    found = of(serving.claims({"isjl": write_summary(tmp_path / "isjl", rows)}))
    assert found["isjl-ratio"].verdict == HOLDS and "up to 3 lengths up to 3" in found["isjl-ratio"].setup_difference
    assert (found["isjl-throughput"].measured, found["isjl-latency"].measured) == (pytest.approx(20.0), pytest.approx(-30.0))
    assert all(claim.reconstruction for claim in found.values())
    (section,) = serving.sections({"isjl": tmp_path / "isjl"})
    assert "reconstruction" in section.title and "| FCFS, worst order of two | 0.583 | [1, 3, 3] | 0 |" in section.text
    assert "| LJF | 0 | 1.000 | +0.0 % | +33.3 % | +60.0 % |" in section.text


def test_the_frontier_starts_at_ljf_and_ends_where_delta_binds_no_more():
    found = frontier(seeds=1).set_index(["rule", "delta"])
    assert found.columns.tolist() == ["throughput", "latency", "price", "externality", "alignment"]
    assert found.loc[("LJF", 0.0)].tolist() == pytest.approx([0.0, 0.0, 1.0, 0.0, 1.0])
    isjl = found.loc["ISJL"]
    assert isjl["throughput"].is_monotonic_increasing and isjl["externality"].is_monotonic_increasing
    assert isjl["throughput"].iloc[-1] > 0.1 > 0 > found.loc[("FCFS", float("inf")), "throughput"]
    assert isjl["price"].is_monotonic_decreasing and (isjl["price"] < 1).all() and found.loc[("FCFS", float("inf")), "price"] > 1.5


def test_profit_is_nothing_where_a_rule_breaks_even():
    # Sold at 1.5 times LJF's price, what costs LJF's price leaves a third of the revenue, and what costs 2.25 times it loses a half.
    assert profit(1.0, 1.0) == 0.0 and profit(1.0, 1.5) == pytest.approx(1 / 3) and profit(2.25, 1.5) == pytest.approx(-0.5)


def test_the_frontier_is_drawn_with_its_best_rule_on_top():
    figure = isjl_frontier.draw(frontier(seeds=1))
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["delta 64", "delta 215", "delta 512", "no limit"]
    assert any("ISJL (reconstruction) gains" in text.get_text() for text in figure.texts)
    with pytest.raises(NotDrawn, match="no frontier"):
        isjl_frontier.draw(frontier(seeds=1).iloc[:0])


def test_profit_is_drawn_with_the_prices_at_which_rules_break_even():
    found = pd.DataFrame({"rule": ["LJF", "FCFS", "ISJL", "ISJL"], "delta": [0.0, float("inf"), 64.0, 215.0],
                          "price": [1.0, 2.0, 0.95, 0.8]})
    figure = isjl_profit.draw(found)
    assert figure.texts[0].get_text().replace("\n", " ") == (
        "ISJL (reconstruction) breaks even at 0.800 of the price per token that LJF needs, FCFS at 2")
    marks = sorted(float(x) for line in figure.axes[0].lines if line.get_linestyle() == "None" for x in line.get_xdata())  # type: ignore
    assert marks == [0.8, 0.95, 1.0, 2.0]
    fcfs = figure.axes[0].lines[2]
    assert [float(y) for y in fcfs.get_ydata()] == pytest.approx([1 - 2.0 / float(x) for x in fcfs.get_xdata()])  # type: ignore
    with pytest.raises(NotDrawn, match="no frontier"):
        isjl_profit.draw(found.iloc[:0])


def test_the_sections_show_means_over_seeds_and_whether_the_ranking_changes(tmp_path: Path):
    done = pecsched(tmp_path)
    rows = [{"policy": policy, "seed": seed, "pool/step_time": model, "e2e_s_mean": mean + seed}
            for seed in (0, 2) for model, policy, mean in (("roofline", "fcfs", 4.0), ("roofline", "sjf", 2.0), ("max_kv", "fcfs", 3.0),
                                                           ("max_kv", "sjf", 5.0))]
    done["step_models"] = write_summary(tmp_path / "models", rows)
    ablations = [{"policy": "pecsched", "pool.sp": sp, "seed": 0, "queue_s_p99_short": wait} for sp, wait in ((1, 7.0), (4, 3.0))]
    done["pecsched_ablations"] = write_summary(tmp_path / "ablations", ablations)
    rates = [{"policy": "switching", "workload.rate": rate, "seed": 0, "ttft_s_mean": rate * 2} for rate in (1.0, 3.0)]
    done["switching"] = write_summary(tmp_path / "switching", rates)
    texts = {section.title: section.text for section in serving.sections(done)}
    assert "| reservation | 80 | 3 | 90 | 0 | 0.7 |" in texts["PecSched and its rivals, overloaded"]
    assert "| pecsched | 4 | 3 |" in texts["PecSched's ablations, overloaded"]
    assert "| switching | 3.0 | 6 |" in texts["Two models on one GPU"]
    ranking = texts["Whether the step-time model changes the ranking"]
    assert ranking.startswith("The ranking is NOT the same") and "| roofline | sjf 3, fcfs 5 |" in ranking
    same = write_summary(tmp_path / "same", [{**row, "e2e_s_mean": 1.0 if row["policy"] == "sjf" else 2.0} for row in rows])
    (section,) = serving.sections({"step_models": same})
    assert section.text.startswith("The ranking is the same under all of them.")


def test_the_tables_of_isjl_are_printed(few_instances: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving, "frontier", lambda: frontier(seeds=1))
    assert serving.main() == 0
    assert "| LJF | 0.750 | [1, 1, 2] | 1 |" in capsys.readouterr().out
