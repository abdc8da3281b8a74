"""The claims on GFS from results that are made up, and the figure of what spot jobs pay."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from harness.claims import gfs
from harness.claims.claim import HOLDS, NOT, NOT_MEASURABLE, PARTLY, SKIPPED
from harness.figures import spot_costs
from harness.figures.settings import NotDrawn
from harness.tables import write_table

SEEDS = range(10)


def results(folder: Path, cells: list[dict]) -> Path:
    """A results folder whose cells have these policies and, over the seeds, these means of the three metrics with a little spread."""
    folder.mkdir(parents=True)
    rows = []
    for cell in cells:
        failed, queued, lost = cell.pop("means")
        for seed in SEEDS:
            spread = 1 + 0.001 * (seed - 4.5)
            rows.append({"cluster": "spot", "workload": "spot", "policy": cell["policy"], "pinning": "packed", "seed": seed, **cell,
                         "jobs": 1, "guarantee_failed_share": failed * spread, "queue_s_mean_batch": queued * spread,
                         "lost_gpu_s": 3600 * lost * spread,
                         "quota_mean": 0.15, "gpu_busy_mean": 0.8, "wait_s_mean_training": 3.0, "status": "ok", "error": "",
                         "cell": f"c{len(rows)}"})
    write_table(pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False), folder / "summary.parquet")
    return folder


def main_recipe(folder: Path) -> Path:
    """GFS fails 2 % with 3600 s of queueing; the baselines 67 % more, twice as much, or as much with other quotas."""
    cells = [{"policy": policy, "policy.quota": quota, "means": means} for policy, quota, means in (
        ("gfs", "forecast", (0.02, 3600, 10)), ("gfs", "none", (0.1, 600, 50)), ("gfs", "constant", (0.03, 4000, 20)),
        ("yarn_cs", "none", (0.02 / 0.67, 3600 / 0.559, 30)), ("yarn_cs", "forecast", (0.02, 1800, 10)),
        ("yarn_cs", "constant", (0.04, 5000, 10)),
        ("lyra", "none", (0.04, 7200, 30)), ("lyra", "forecast", (0.02, 3600, 10)), ("lyra", "constant", (0.025, 4500, 10)))]
    return results(folder, cells)


def test_changes_are_judged_per_baseline_and_quota(tmp_path: Path):
    found = {claim.claim_id: claim for claim in gfs.claims({gfs.RECIPE: main_recipe(tmp_path / "a")})}
    assert len(found) == 2 * 9 + 4 + 1
    assert found["gfs-eviction-yarn_cs-none"].measured == pytest.approx(-33.0, abs=0.01)
    assert found["gfs-queueing-yarn_cs-none"].measured == pytest.approx(-44.1, abs=0.01)
    verdicts = {name: claim.verdict for name, claim in found.items()}
    assert verdicts["gfs-eviction-yarn_cs-none"] == verdicts["gfs-queueing-yarn_cs-none"] == HOLDS
    # Queueing twice that of YARN-CS with the same quota: the other sign. Lyra with a constant quota: -20 %, over half of 33, under half
    # of 44.1.
    assert found["gfs-queueing-yarn_cs-forecast"].measured == pytest.approx(100) and verdicts["gfs-queueing-yarn_cs-forecast"] == NOT
    assert (verdicts["gfs-eviction-lyra-constant"], verdicts["gfs-queueing-lyra-constant"]) == (PARTLY, NOT)
    # chronus was not run, nor were other loads.
    assert verdicts["gfs-eviction-chronus-none"] == verdicts["gfs-queueing-load-0.9"] == SKIPPED
    assert verdicts["gfs-allocation"] == NOT_MEASURABLE
    assert found["gfs-eviction-chronus-none"].reconstruction and not found["gfs-eviction-lyra-none"].reconstruction


def test_loads_are_told_apart(tmp_path: Path):
    cells = [{"policy": policy, "policy.quota": quota, "workload.hp_load": load, "means": (failed, 100 * load, 1)}
             for load in (0.7, 0.9)
             for policy, quota, failed in (("gfs", "forecast", 0.02), ("gfs", "none", 0.5), ("yarn_cs", "none", 0.02 + load / 10),
                                           ("yarn_cs", "forecast", 0.5))]
    done = {gfs.LOADS: results(tmp_path / "a", cells), gfs.RECIPE: main_recipe(tmp_path / "b")}
    found = {claim.claim_id: claim for claim in gfs.claims(done)}
    assert found["gfs-eviction-load-0.7"].measured == pytest.approx(100 * (0.02 / 0.09 - 1), abs=0.1)
    assert found["gfs-eviction-load-0.9"].measured == pytest.approx(100 * (0.02 / 0.11 - 1), abs=0.1)
    text = gfs.sections(done)[0].text
    assert "| gfs, quota forecast | 2.00 | 1.00 | 10 | 15.0 | 80.0 | 3.0 |" in text and "HP load 0.9" in text


def test_nothing_is_claimed_without_results():
    found = gfs.claims({})
    assert {claim.verdict for claim in found} == {SKIPPED, NOT_MEASURABLE}
    assert gfs.sections({}) == [] and gfs.parts({}).empty


def test_parts_are_drawn_together(tmp_path: Path):
    done = {gfs.RECIPE: main_recipe(tmp_path / "a")}
    for name, key, values in ((gfs.PARTS, "without", ("nothing", "order", "victims", "placement")),
                              (gfs.FORECASTERS, "forecaster", ("last", "seasonal", "oracle"))):
        done[name] = results(tmp_path / name, [{"policy": "gfs", f"policy.{key}": value, "means": (0.03, 3000, 20)} for value in values])
    cells = gfs.parts(done)
    assert set(cells["policy"]) == set(gfs.ORDER) and len(cells) == 9 * len(SEEDS)
    figure = spot_costs.draw(cells, order=gfs.ORDER)
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert tuple(labels) == gfs.ORDER
    headline = " ".join(text.get_text().replace("\n", " ") for text in figure.texts)
    # gfs fails least (2 %) at 3600 / 600 times the queueing of the one without a quota.
    headline = headline.replace("\N{NO-BREAK SPACE}", " ")
    assert headline.startswith("gfs fails 2.0 % of the guaranteed hours, at 6.0 times the queueing of gfs, no quota")


def test_a_figure_of_spot_jobs_needs_some():
    with pytest.raises(NotDrawn, match="guaranteed hours"):
        spot_costs.draw(pd.DataFrame({"policy": ["fifo"], "seed": [0]}))
    one = pd.DataFrame({"policy": ["gfs"] * 2, "seed": [0, 1], "guarantee_failed_share": [0.1, 0.2], "queue_s_mean_batch": [1.0, 2.0],
                        "lost_gpu_s": [np.nan, 3600.0]})
    assert "15.0" in " ".join(text.get_text() for text in spot_costs.draw(one).texts)
    two = pd.concat([one, one.assign(policy="lyra", guarantee_failed_share=0.5, queue_s_mean_batch=9.0)])
    assert "queues spot jobs least" in " ".join(text.get_text().replace("\n", " ") for text in spot_costs.draw(two).texts)
