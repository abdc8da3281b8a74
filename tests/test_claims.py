"""Verdicts exactly as the design words them, the table they are kept in, and the check that none gets worse."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from harness.claims.claim import (
    Claim,
    Section,
    claim,
    read_claims,
    regressions,
    verdict,
    write_claims,
    write_expected,
    write_markdown,
)
from harness.errors import BadInput
from harness.figures.intervals import Interval


def made(name: str = "hits", measured: Interval | float | None = None, published: tuple | float = (44.5, 44.5), **given) -> Claim:
    settings = {"setup_difference": "the mix is ours", "command": "harness -m"} | given
    return claim(name, "godel", "hit rate", "%", published, measured, **settings)


@pytest.mark.parametrize(("published", "interval", "expected"), [
    ((44.5, 44.5), (44.0, 45.0), "holds"),  # the range is a point inside the interval
    ((44.5, 44.5), (44.5, 44.5), "holds"),
    ((30.0, 40.0), (40.0, 50.0), "holds"),  # they touch
    ((30.0, 40.0), (10.0, 90.0), "holds"),
    ((30.0, 40.0), (41.0, 50.0), "partly"),  # beyond it, same sign
    ((30.0, 40.0), (15.0, 15.0), "partly"),  # exactly half of the end nearest to zero
    ((30.0, 40.0), (14.0, 15.8), "not"),
    ((30.0, 40.0), (-40.0, -30.0), "not"),
    ((-33.9, -32.8), (-20.0, -15.0), "partly"),
    ((-33.9, -32.8), (-16.0, -15.0), "not"),
    ((-33.9, -32.8), (1.0, 2.0), "not"),
    ((2.0, None), (5.0, 6.0), "holds"),  # "at least twice"
    ((2.0, None), (1.2, 1.4), "partly"),
    ((None, -10.0), (-50.0, -40.0), "holds"),
    ((0.0, 0.0), (1.0, 2.0), "not"),  # zero has no sign
    ((-1.0, 1.0), (2.0, 3.0), "not"),
])
def test_a_verdict_is_where_the_interval_lies(published: tuple, interval: tuple[float, float], expected: str):
    assert verdict(*published, *interval) == expected


def test_the_measured_value_decides_between_partly_and_not():
    assert verdict(30.0, 40.0, 10.0, 20.0, 15.1) == "partly"
    assert verdict(30.0, 40.0, 10.0, 20.0, 14.9) == "not"


def test_a_calibrated_claim_must_still_meet_what_it_was_chosen_for():
    assert verdict(1.0, 2.0, 1.5, 1.6, calibrated=True) == "calibrated"
    assert verdict(1.0, 2.0, 5.0, 6.0, calibrated=True) == "partly"


def test_what_cannot_be_measured_or_was_not_is_not_judged():
    assert verdict(1.0, 2.0, None, None, measurable=False) == "not_measurable"
    assert verdict(1.0, 2.0, 1.0, 1.0, skipped=True) == "skipped"
    assert verdict(1.0, 2.0, None, None) == "skipped"
    with pytest.raises(ValueError, match="needs a published value"):
        verdict(None, None, 1.0, 2.0)


def test_a_claim_is_scaled_and_judged():
    found = made(measured=Interval(0.44, 0.43, 0.45, 10), scale=100)
    assert (found.measured, found.measured_ci_low, found.measured_ci_high, found.verdict) == (44.0, 43.0, 45.0, "holds")
    assert (found.published_text, found.measured_text) == ("44.5 %", "44 % [43, 45]")
    assert made(measured=Interval(0.2, 0.1, 0.3, 10), scale=-1).measured_ci_low == -0.3


def test_an_interval_over_few_seeds_is_skipped_and_says_so():
    found = made(measured=Interval(44.0, 43.0, 45.0, 9))
    assert (found.verdict, found.measured, found.measured_ci_low) == ("skipped", 44.0, None)
    assert found.setup_difference == "the mix is ours Only 9 of at least 10 seeds were run."
    assert made(measured=Interval(float("nan"), float("nan"), float("nan"), 0)).measured is None
    assert made(measured=None).verdict == "skipped"
    assert made(measured=None, measurable=False).verdict == "not_measurable"
    assert made(measured=44.5).verdict == "holds"


def test_claims_survive_the_file(tmp_path: Path):
    claims = [made(measured=Interval(44.1234567890123, 43, 45, 10), setup_difference='a, "b"\nc'), made("open", 3, (2, None)),
              made("absent"), made("ours", 1.0, 1.0, reconstruction=True)]
    path = tmp_path / "results/reproduction.csv"
    write_claims(claims, path)
    assert read_claims(path) == claims
    assert path.read_text().splitlines()[0] == (
        "claim_id,system,quantity,unit,published_low,published_high,measured,measured_ci_low,measured_ci_high,verdict,reconstruction,"
        "setup_difference,command")
    assert [f.name for f in fields(Claim)] == path.read_text().splitlines()[0].split(",")


def test_the_markdown_has_every_claim_and_what_differs(tmp_path: Path):
    claims = [made(measured=Interval(44, 43, 45, 10)), made("slow|er", -20.0, (-33.9, -32.8), setup_difference="")]
    given = ([Section("Where it pays", "Mostly.")], {"harness": "0.1"}, [("Hits", "figures/hit_rate.png")])
    write_markdown(claims, tmp_path / "R.md", *given)
    text = (tmp_path / "R.md").read_text()
    assert "1 holds, 1 partly of 2 claims." in text
    assert "| hit rate | godel | 44.5 % | 44 % [43, 45] | **holds** |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 4 and len({row.replace("\\|", "").count("|") for row in rows}) == 1
    for part in ("the mix is ours", "Nothing that we know of.", "```\nharness -m\n```", "## Where it pays\n\nMostly.",
                 "![Hits](figures/hit_rate.png)", "- harness: 0.1"):
        assert part in text
    write_markdown(claims, tmp_path / "again.md", *given)
    assert (tmp_path / "again.md").read_text() == text


@pytest.mark.parametrize(("before", "now", "worse"), [
    ("holds", "holds", False), ("holds", "partly", True), ("holds", "calibrated", True), ("holds", "not_measurable", True),
    ("holds", "skipped", False), ("skipped", "not", False), ("partly", "not", True), ("partly", "holds", False),
    ("calibrated", "not", True), ("calibrated", "holds", False), ("not", "not", False), ("not_measurable", "not", False)])
def test_only_a_worse_verdict_is_a_regression(before: str, now: str, worse: bool, tmp_path: Path):
    path = tmp_path / "expected_verdicts.csv"
    write_expected([replace(made(), verdict=before)], path)
    found = regressions([replace(made(measured=1.0), verdict=now)], path)
    assert found == ([f"hits: was {before}, is {now} (published 44.5 %, measured 1 %)"] if worse else [])


def test_a_claim_that_is_gone_is_a_regression_and_a_new_one_is_not(tmp_path: Path):
    path = tmp_path / "expected_verdicts.csv"
    write_expected([made("old")], path)
    assert regressions([made("new")], path) == ["old: was skipped, is gone"]


@pytest.mark.parametrize(("text", "expected"), [
    (None, "cannot be read"), ("claim_id,verdict\nhits,great\n", "line 2: verdict 'great', must be one of holds"),
    ("claim_id\nhits\n", "must have the columns claim_id, verdict")])
def test_a_bad_file_of_expectations_is_one_line(text: str | None, expected: str, tmp_path: Path):
    path = tmp_path / "expected_verdicts.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput, match=expected):
        regressions([], path)


def test_a_table_that_is_no_reproduction_is_one_line(tmp_path: Path):
    path = tmp_path / "reproduction.csv"
    write_claims([made(measured=1.0)], path)
    path.write_text(path.read_text().replace("44.5", "much"))
    with pytest.raises(BadInput, match="line 2"):
        read_claims(path)
