"""``make reproduce`` on a recipe cut to a few decisions, on results that are made up, and on what may be missing."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from harness import reproduce
from harness.claims import flextopo, real_traces
from harness.claims.claim import HOLDS, PARTLY, SKIPPED, read_claims, write_expected
from harness.reproduce import Recipe
from synthetic_results import make_sweep

FEW = Recipe("hit_rate", ("workload.preemptors=4", "cluster.servers=4", "seed=0,1", "policy=godel,flextopo_exhaustive,flextopo_imp"),
             ("hit_rate",))
HERE = Path(__file__).resolve().parent


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *recipes: Recipe, words: tuple[str, ...] = ("--quick",)) -> int:
    monkeypatch.setattr(reproduce, "RECIPES", recipes)
    return reproduce.main(["--results", str(folder), *words])


def test_a_recipe_is_swept_judged_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert run(tmp_path, monkeypatch, FEW) == 0
    summary = pd.read_parquet(tmp_path / "runs/hit_rate/summary.parquet")
    assert len(summary) == 6 and set(summary["status"]) == {"ok"} and set(summary["decisions"]) == {4}
    claims = {claim.claim_id: claim for claim in read_claims(tmp_path / "reproduction.csv")}
    assert {"flextopo-hit-rate", "flextopo-hit-rate-baseline", "flextopo-gain", "flextopo-imp-time"} <= set(claims)
    # Two seeds are too few for a verdict, but what was measured stands beside what is published.
    assert (claims["flextopo-hit-rate"].verdict, claims["flextopo-hit-rate"].measured) == (SKIPPED, 100.0)
    page = (tmp_path / "REPRODUCTION.md").read_text()
    figures = sorted(path.stem for path in (tmp_path / "figures").glob("*.png"))
    assert figures and all(f"figures/{name}.png" in page and (tmp_path / f"figures/{name}.svg").is_file() for name in figures)
    assert "skipped  flextopo-hit-rate: published 100 %, measured 100 %" in capsys.readouterr().out


def test_a_sweep_that_fails_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert run(tmp_path, monkeypatch, Recipe("hit_rate", (*FEW.quick, "preemption.grace_s=-1"))) == 1
    assert not (tmp_path / "REPRODUCTION.md").exists()


def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policies: tuple[str, ...]) -> None:
    """Results that are made up stand in for sweeps, and no figures are drawn of them."""
    monkeypatch.setattr(reproduce, "build_report", lambda folder: None)
    monkeypatch.setattr(reproduce, "sweep", lambda recipe, out, quick: bool(make_sweep(out, policies)))
    monkeypatch.setattr(reproduce, "REPOSITORY", tmp_path)
    (tmp_path / "results").mkdir()


def test_a_verdict_worse_than_expected_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    made_up(tmp_path, monkeypatch, ("godel", "flextopo_exhaustive", "flextopo_imp"))
    recipe, results = Recipe("hit_rate", ()), tmp_path / "results"
    assert run(results, monkeypatch, recipe, words=("--accept",)) == 0
    claims = read_claims(results / "reproduction.csv")
    found = {claim.claim_id: claim.verdict for claim in claims}
    assert (found["flextopo-hit-rate"], found["flextopo-imp-time"]) == (HOLDS, PARTLY)  # a search time far below what is published
    write_expected([replace(claim, verdict=HOLDS) for claim in claims], results / "expected_verdicts.csv")
    capsys.readouterr()
    assert run(results, monkeypatch, recipe, words=()) == 1
    assert "regression: flextopo-imp-time: was holds, is partly" in capsys.readouterr().err
    assert run(results, monkeypatch, recipe) == 0  # a quick run is not held to them


def test_a_recipe_without_its_public_trace_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    made_up(tmp_path, monkeypatch, ("godel", "flextopo_exhaustive", "flextopo_imp"))
    monkeypatch.setattr(reproduce, "PUBLIC_TRACES", tmp_path / "absent")
    assert run(tmp_path / "results", monkeypatch, Recipe("hit_rate", ()), Recipe("philly", (), (), ("philly.parquet",))) == 0
    assert "philly: skipped, the public trace philly/philly.csv.gz is not beside this checkout" in capsys.readouterr().out


def test_public_traces_are_imported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reproduce, "REPOSITORY", tmp_path)
    monkeypatch.setattr(reproduce, "PUBLIC_TRACES", tmp_path / "public")
    monkeypatch.setenv("PYTHONPATH", str(HERE.parent))
    (tmp_path / "public" / reproduce.OPENB).mkdir(parents=True)
    (tmp_path / "public" / reproduce.OPENB / "fgd_orders.npz").write_bytes(b"orders")
    pods = tmp_path / "public" / reproduce.OPENB / "openb_pod_list_default.csv"
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
                    "openb-pod-0000,12000,16384,1,1000,,LS,Running,0,100,5\n")
    assert reproduce.import_trace("fgd_orders.npz") is None and reproduce.import_trace("openb.parquet") is None
    assert (tmp_path / "traces/imported/fgd_orders.npz").read_bytes() == b"orders"
    trace = pd.read_parquet(tmp_path / "traces/imported/openb.parquet")
    assert trace["gpus"].tolist() == [1]
    pods.write_text("<html>")
    assert reproduce.import_trace("openb.parquet") is None  # it was there
    assert "seems to be" in str(reproduce.import_trace("openb_default.parquet"))


def test_the_answers_say_where_it_pays_what_a_guarantee_costs_and_what_real_traces_show(tmp_path: Path):
    pair = ("godel", "domain_first")
    settings = [{"cluster": cluster, "workload": "diurnal", "workload.load": load}
                for cluster in ("flat", "dgx_h100") for load in (0.8, 1.2)]
    done = {"pays": make_sweep(tmp_path / "pays", pair, settings=settings),
            "guarantees": make_sweep(tmp_path / "guarantees", pair, settings=[{"workload.guaranteed_share": 0.5}]),
            "openb": make_sweep(tmp_path / "openb", pair), "philly": make_sweep(tmp_path / "philly", ("godel", "kubernetes"))}
    texts = {section.title: section.text for module in (flextopo, real_traces) for section in module.sections(done)}
    assert texts["Where topology-aware preemption pays"].count("\n| dgx_h100 |") >= 2
    means = pd.read_parquet(tmp_path / "guarantees/summary.parquet").groupby("policy")["hit_rate_victims"].mean()
    assert f"| {100 * means['godel']:.1f} |" in texts["What a guarantee costs a blind policy"]
    assert "Online mean wait, domain_first against Gödel: -" in texts["The real openb trace"]
    assert "Online mean wait" not in texts["The real philly trace"]  # domain_first did not run


def test_bad_input_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    made_up(tmp_path, monkeypatch, ("godel", "flextopo_exhaustive", "flextopo_imp"))
    (tmp_path / "results/expected_verdicts.csv").write_text("nonsense\n1\n")
    assert run(tmp_path / "results", monkeypatch, Recipe("hit_rate", ()), words=()) == 2
    assert capsys.readouterr().err.startswith("reproduce: ")
