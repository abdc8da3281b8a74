"""Head-to-head: ranks, who wins where, the Pareto front, and the recipe from end to end."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from harness.app import conf_dir, job_policies, main
from harness.cluster.hooks import POLICIES, policy_names
from harness.figures import league_pareto, league_table, league_winners
from harness.figures.intervals import Interval
from harness.figures.settings import NotDrawn
from harness.figures.standings import field, is_league, ranks, relative, standings, winners
from harness.figures.style import RECONSTRUCTED, starred
from harness.report import build_report
from harness.topology import build, parse
from harness.workload import load
from synthetic_results import write_summary

QUEUE = {"godel": 10.0, "domain_first": 10.0, "fifo": 40.0}
GOODPUT = {"godel": 100.0, "domain_first": 90.0, "fifo": 120.0}


def rows(seeds: int = 10) -> list[dict]:
    """Two workloads, two loads: in paper_mix godel and domain_first queue alike; philly has no batch jobs, and domain_first is ahead."""
    made = []
    for workload in ("paper_mix", "philly_fitted"):
        for level in (0.7, 0.9):
            for policy in QUEUE:
                for seed in range(seeds):
                    ahead = 5.0 * (workload == "philly_fitted" and policy == "domain_first")
                    made.append({
                        "workload": workload, "load": level, "policy": policy, "seed": seed,
                        "queue_s_mean_online": level * (QUEUE[policy] + seed - ahead),
                        "goodput_gpu_s_batch": 3600.0 * GOODPUT[policy] * (1 + seed) if workload == "paper_mix" else None,
                    })
    return made


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = write_summary(tmp_path_factory.mktemp("made") / "up", rows())
    return pq.read_table(folder / "summary.parquet").to_pandas()


def test_a_league_is_several_policies_in_several_workloads_at_levels_of_load(summary: pd.DataFrame) -> None:
    assert is_league(summary)
    assert not is_league(summary[summary["policy"] == "fifo"]) and not is_league(summary[summary["workload"] == "paper_mix"])
    assert not is_league(summary.drop(columns="load"))


def test_equal_values_share_their_mean_rank(summary: pd.DataFrame) -> None:
    found = field(summary, "online")
    assert found.policies == ["fifo", "godel", "domain_first"]  # as in figures
    # paper_mix: godel and domain_first share ranks 1 and 2, hence 1.5; philly: 2 and 1. Over two settings of each: 1.75 and 1.25.
    np.testing.assert_allclose(ranks(found), np.repeat([[3.0], [1.75], [1.25]], 10, axis=1))


def test_goodput_is_set_against_the_baseline_of_the_same_cell_and_more_is_better(summary: pd.DataFrame) -> None:
    found = field(summary, "batch")
    assert len(found.settings) == 2 and set(found.settings["workload"]) == {"paper_mix"}  # philly has no batch jobs
    np.testing.assert_allclose(relative(found, "godel"), np.repeat([[1.2], [1.0], [0.9]], 10, axis=1))
    np.testing.assert_allclose(ranks(found)[:, 0], [1, 2, 3])
    with pytest.raises(NotDrawn, match="no cell has training jobs"):
        field(summary, "training")


def test_a_missing_cell_takes_no_rank_and_gives_none_to_others(summary: pd.DataFrame) -> None:
    lost = summary[~((summary["policy"] == "fifo") & (summary["load"] == 0.7) & (summary["workload"] == "paper_mix"))]
    found = field(lost, "batch")
    np.testing.assert_allclose(ranks(found)[:, 0], [1, 1.5, 2.5])  # fifo: 1; godel: 2 and 1; domain_first: 3 and 2


def test_the_table_orders_policies_by_their_mean_rank_over_classes(summary: pd.DataFrame) -> None:
    table = standings(summary, "godel")
    # (1.75 + 2) / 2 for godel, (3 + 1) / 2 for fifo, (1.25 + 3) / 2 for domain_first
    means = table[table["measure"] == "rank"].groupby("policy")["mean"].mean()
    assert means.to_dict() == {"godel": 1.875, "fifo": 2.0, "domain_first": 2.125}
    assert list(dict.fromkeys(table["policy"])) == ["godel", "fifo", "domain_first"]
    cell = table.set_index(["policy", "kind", "measure"]).loc[("godel", "online", "value")]
    # mean of load x (10 + seed) over loads 0.7 and 0.9 and seeds 0 to 9: 0.8 x 14.5
    assert cell["mean"] == pytest.approx(11.6) and cell["ci_low"] < 11.6 < cell["ci_high"] and cell["seeds"] == 10


def test_a_lead_is_clear_only_where_the_paired_interval_says_so(summary: pd.DataFrame) -> None:
    won = winners(summary).set_index(["kind", "workload", "load"])
    even, ahead = won.loc[("online", "paper_mix", 0.7)], won.loc[("online", "philly_fitted", 0.7)]
    assert even["winner"] == "godel" and even["level"] == "domain_first" and even["difference"] == 0  # equal: in the order of figures
    assert ahead["winner"] == "domain_first" and ahead["level"] == "" and ahead["runner_up"] == "godel"
    assert ahead["difference"] == pytest.approx(-3.5) and ahead["ci_high"] < 0  # 0.7 x 5 s in every seed, however much seeds differ
    assert won.loc[("batch", "paper_mix", 0.9), "winner"] == "fifo" and won.loc[("batch", "paper_mix", 0.9), "level"] == ""


def test_with_too_few_seeds_no_lead_is_clear(summary: pd.DataFrame) -> None:
    won = winners(summary[summary["seed"] < 9])
    assert (won["level"].str.split().str.len() == 2).all()


def test_the_front_holds_who_is_not_beaten_in_both() -> None:
    def at(delay: float, share: float) -> tuple[Interval, Interval]:
        return Interval(delay, delay, delay, 10), Interval(share, share, share, 10)

    found = {"slow": at(50, 1.2), "middle": at(9, 1.0), "beaten": at(9, 0.9), "quick": at(0.2, 0.8), "worse": at(0.9, 0.7),
             "twin": at(9, 1.0)}
    assert league_pareto.front(found) == ["quick", "middle", "twin", "slow"]  # below 1 s, "worse" is as quick as "quick"


def test_figures_name_who_wins(summary: pd.DataFrame) -> None:
    headlines = [module.draw(summary).texts[0].get_text().replace("\n", " ") for module in (league_table, league_pareto, league_winners)]
    assert headlines[0] == "Best mean rank: for online jobs domain_first (1.2), for batch jobs fifo (1.0)"
    assert headlines[1].startswith("Policies that nobody beats for online and batch at once: 2 for paper_mix")
    assert "batch: fifo in 2 of 2 settings (2 clearly)" in headlines[2]
    alone = summary[summary["policy"] == "fifo"]
    for module in (league_table, league_pareto):
        with pytest.raises(NotDrawn, match="single policy"):
            module.draw(alone)
    with pytest.raises(NotDrawn, match="no workload has both"):
        league_pareto.draw(summary[summary["workload"] == "philly_fitted"])


def test_the_page_of_a_league_has_its_table_and_its_figures(tmp_path: Path) -> None:
    folder = write_summary(tmp_path / "made", rows(3))
    build_report(folder)
    page = (folder / "report.html").read_text()
    assert all(f'<figure id="{name}">' in page for name in ("league_table", "league_pareto", "league_winners"))
    assert "<h3>League table</h3>" in page and "<h3>Which policy wins where</h3>" in page and "Results by policy" not in page
    assert "| godel |" in (folder / "tables" / "league.md").read_text()
    assert len(pd.read_csv(folder / "tables" / "winners.csv")) == 6  # online in four settings, batch in two
    assert not (folder / "tables" / "by_policy.csv").exists()


def test_reconstructions_carry_a_star() -> None:
    told = [name for name in policy_names() if "reconstruction" in (POLICIES / f"{name}.py").read_text().split('"""')[1].lower()]
    assert tuple(told) == RECONSTRUCTED
    assert starred("pbs") == "pbs*" and starred("dally, machine_s 0") == "dally, machine_s 0*" and starred("godel") == "godel"


def test_every_policy_of_the_folder_takes_part() -> None:
    assert job_policies().split(",") == policy_names()


def test_a_cut_league_runs_from_the_recipe_to_its_page_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "league"
    words = ["-m", "+experiment=league", "policy=priority,domain_first", "cluster=dgx_a100", "load=0.7", "seed=0", "horizon_s=9000",
             f"out={out}", "progress=false"]
    assert main([*words, "league=paper_mix"]) == 0
    kept = {path: path.stat().st_mtime_ns for path in out.glob("*/manifest.json")}
    assert len(kept) == 2
    assert main([*words, "league=paper_mix,spot"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out / "report.html")
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    summary = pq.read_table(out / "summary.parquet").to_pandas()
    assert sorted(zip(summary["workload"], summary["policy"], summary["load"], strict=True)) == [
        (workload, policy, 0.7) for workload in ("paper_mix", "spot") for policy in ("domain_first", "priority")]
    assert "league" not in summary and "report" not in summary
    assert summary["goodput_gpu_s_batch"].notna().all() and summary["goodput_gpu_s_online"].notna().sum() == 2
    assert '<figure id="league_table">' in (out / "report.html").read_text()


@pytest.mark.parametrize("league", sorted(path.stem for path in (Path(conf_dir()) / "league").glob("*.yaml")))
def test_every_job_of_a_league_fits_an_empty_cluster(league: str) -> None:
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        config = OmegaConf.to_container(compose("config", ["+experiment=league", f"league={league}", "load=1.1"]), resolve=True)
    assert isinstance(config, dict)
    for name in ("rtx4090_x41", "dgx_h100", "dgx_a100"):
        section = yaml.safe_load((Path(conf_dir()) / "cluster" / f"{name}.yaml").read_text()) | {"servers": config["cluster"]["servers"]}
        cluster = build(parse(section))
        assert all(shape.gpus == 8 for shape in cluster.shapes)
        cores = min(shape.cores for shape in cluster.shapes)
        workload = dict(config["workload"])
        jobs = load(workload.pop("generator"), workload, cluster, 0).to_pandas()
        assert len(jobs) > 100 and jobs["gpus"].max() <= 8 and jobs["cpus"].max() <= cores
        assert (jobs["instances"] * jobs["gpus"]).max() <= cluster.gpus
