"""The claims on placement above the server, on queues and on links, from results that are made up."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from harness import contention
from harness.claims import network, queues
from harness.claims.claim import HOLDS, NOT, PARTLY, SKIPPED
from harness.figures import sharing_rules
from harness.figures.settings import NotDrawn
from harness.tables import write_table

ALWAYS = network.ALWAYS


def results(folder: Path, cells: list[dict], overheads: list[float]) -> Path:
    """A results folder; each cell has one job of 10 GPUs and 100 s, whose gang ran so much longer as its overhead says."""
    folder.mkdir(parents=True)
    rows = []
    for i, (cell, overhead) in enumerate(zip(cells, overheads, strict=True)):
        (folder / f"c{i}").mkdir()
        policy = {"name": cell["policy"], "machine_s": cell.get("machine_s"), "preempt": cell.get("preempt")}
        config = {"policy": policy, "workload": {"network_mode": cell.get("mode", "none")}}
        (folder / f"c{i}/manifest.json").write_text(json.dumps({"config": config}))
        # Waited 50 s, lost 20 s and restarted 10 s of its 10 GPUs' time.
        job = {"submit_time": 0.0, "instances": 5, "gpus": 2, "gpu_milli": 1000, "duration": 100.0, "jct_s": 180.0 + 100 * overhead,
               "queue_s": 50.0, "lost_gpu_s": 200.0, "restart_gpu_s": 100.0, "status": "finished"}
        write_table(pa.Table.from_pylist([job]), folder / f"c{i}/jobs.parquet")
        rows.append({"cluster": "flat", "workload": "gangs", "policy": cell["policy"], "pinning": "packed", "seed": cell["seed"],
                     **{key: cell[key] for key in cell if key.startswith("workload.")}, "cell": f"c{i}", "jobs": 1,
                     **{key: cell[key] for key in cell if key.endswith(("_mean", "makespan_s", "share", "p95", "max", "_training", "_batch",
                                                                       "placement", "lost_gpu_s"))}, "status": "ok", "error": ""})
    write_table(pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False), folder / "summary.parquet")
    return folder


def timers(folder: Path, makespan: float, jct: float, overhead: float) -> Path:
    """The recipe dally where the better timer has these ratios to always waiting, whose makespan is 100 s and JCT 10 s."""
    cells, overheads = [], []
    for seed in range(10):
        for wait, preempt, m, j in ((600, "consolidate", makespan, jct), (3600, "consolidate", 0.95, 0.95), (ALWAYS, "never", 1.0, 1.0)):
            cells.append({"policy": "dally", "machine_s": wait, "preempt": preempt, "seed": seed, "makespan_s": (100.0 + seed) * m,
                          "jct_s_mean": (10.0 + seed) * j})
            overheads.append(overhead if wait == 600 else 0.4)
    return results(folder, cells, overheads)


def rivals(folder: Path) -> Path:
    cells = [{"policy": policy, "mode": mode, "seed": seed, "makespan_s": 90.0, "jct_s_mean": 9.0}
             for policy, mode in (("fifo_backfill", "none"), ("kueue_tas", "required")) for seed in range(10)]
    return results(folder, cells, [0.5] * 20)


def test_dally_against_what_is_published(tmp_path: Path):
    done = {"dally": timers(tmp_path / "a", 0.31, 0.5, 0.01), "dally_rivals": rivals(tmp_path / "b")}
    found = {claim.claim_id: claim for claim in network.claims(done)}
    # Makespan 0.31 of the other: -69 %. JCT -50 %, more than half of -83. Overhead 0.01 against 0.5: -98 %.
    assert [found[f"dally-{name}"].measured for name in ("makespan", "jct", "communication")] == pytest.approx([-69, -50, -98])
    assert [found[f"dally-{name}"].verdict for name in ("makespan", "jct", "communication")] == [HOLDS, PARTLY, HOLDS]
    # The longer timer's makespan is 95 + 0.95 seed against 90: +10 % on average.
    assert "blind to the network: +10 %." in found["dally-makespan"].setup_difference
    assert all(found[name].reconstruction for name in found if name.startswith("dally"))
    text = network.sections(done)[0].text
    assert "| dally (reconstruction), always waits | no |" in text and "waits 600 s for a server, then for a rack | yes |" in text
    assert "kueue_tas, rack required" in text and "| fifo_backfill |" in text


def test_kueues_example_and_what_was_not_run():
    assert (network.example("best_fit"), network.example("least_free")) == ([3, 3, 1], [1, 2, 3, 1])
    found = network.claims({})
    assert [claim.verdict for claim in found] == [HOLDS, HOLDS, SKIPPED, SKIPPED, SKIPPED] and network.sections({}) == []


def test_gangs_are_tabled_by_policy(tmp_path: Path):
    cells = [{"policy": policy, "seed": seed, "jct_s_mean_training": 3600.0, "jct_s_mean_batch": 7200.0, "victims_per_placement": 2.5,
              "lost_gpu_s": 36000.0, "subsets_tried_mean": 40.0} for policy in ("godel", "domain_first_gang") for seed in (0, 1)]
    text = network.sections({"gang_preemption": results(tmp_path / "a", cells, [0.0] * 4)})[0].text
    assert "| godel | 1.00 | 2.00 | 2.50 | 10 | 40 |" in text


def quoted(folder: Path, safe: float, gap: float) -> Path:
    cells = [{"policy": "kueue", "workload.load": 0.8, "seed": seed, "quote_s_mean": 7200.0, "quote_wait_s_mean": 3600.0,
              "quote_covered_p95": 0.97, "quote_unfeasible_share": 0.1, "quote_safe_share": safe, "little_gap_max": gap}
             for seed in range(10)]
    return results(folder, cells, [0.0] * 10)


def test_quotes_and_links_against_what_is_published(tmp_path: Path):
    found = {c.claim_id: c for c in queues.claims({"quotes": quoted(tmp_path / "a", 1.0, 1e-12)}, range(10), range(40))}
    assert found["quotes-little"].verdict == found["quotes-safe"].verdict == found["leveller-approximation"].verdict == HOLDS
    assert found["leveller-min-progress"].measured > 20 and found["leveller-fairness"].measured > 0
    found = {c.claim_id: c for c in queues.claims({"quotes": quoted(tmp_path / "b", 0.25, 0.1)}, range(2), range(5))}
    assert (found["quotes-little"].verdict, found["quotes-safe"].verdict, found["leveller-fairness"].verdict) == (NOT, NOT, SKIPPED)
    assert {c.claim_id: c.verdict for c in queues.claims({}, range(2), range(5))}["quotes-little"] == SKIPPED


def test_the_tables_and_the_figure_of_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one = [contention.Measured(0.5, 0.9, 7200.0)]
    monkeypatch.setattr(contention, "compare", lambda seeds, n: dict.fromkeys(contention.RULES, one))
    sections = queues.sections({"quotes": quoted(tmp_path / "a", 1.0, 0.0)})
    assert "| 12 | leveller (reconstruction) | 0.500 | 0.900 | 2.00 |" in sections[0].text
    assert "| kueue | 0.8 | 2.00 | 1.00 | 97.0 | 10.0 | 100.0 |" in sections[1].text
    frame = contention.table(range(2), (6, 12))
    assert "at 50.0" in " ".join(text.get_text() for text in sharing_rules.draw(frame).texts)
    with pytest.raises(NotDrawn):
        sharing_rules.draw(frame[:0])
