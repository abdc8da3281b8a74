"""The claims on HPS, PBS and SBS from results that are made up."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from harness.claims import hps
from harness.claims.claim import HOLDS, NOT, SKIPPED
from harness.tables import write_table


def results(folder: Path, busy: dict[str, float], starved: int) -> Path:
    """Ten seeds of each policy with this share of busy GPUs; so many of four jobs wait for 2,000 s, the others for 1,800."""
    folder.mkdir(parents=True)
    rows = []
    for policy, share in busy.items():
        for seed in range(10):
            cell = f"c{len(rows)}"
            (folder / cell).mkdir()
            waits = [2000.0] * starved + [1800.0] * (4 - starved)
            write_table(pa.table({"submit_time": [0.0] * 4, "wait_s": waits}), folder / cell / "jobs.parquet")
            rows.append({"cluster": "flat", "workload": "common_workload", "policy": policy, "pinning": "packed", "seed": seed, "jobs": 4,
                         "gpu_busy_mean": share + 0.001 * (seed - 4.5), "wait_s_mean": 900.0, "makespan_s": 7200.0, "status": "ok",
                         "error": "", "cell": cell})
    write_table(pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False), folder / "summary.parquet")
    return folder


def test_utilisation_and_starving_are_judged(tmp_path: Path):
    done = {hps.RECIPE: results(tmp_path / "a", {"fifo": 0.6, "hps": 0.782, "pbs": 0.5, "sbs": 0.746}, 3)}
    found = {claim.claim_id: claim for claim in hps.claims(done)}
    assert found["hps-utilisation-hps"].measured == pytest.approx(78.2) and found["hps-starved"].measured == 3
    assert {name: claim.verdict for name, claim in found.items() if claim.verdict == HOLDS}.keys() == {
        "hps-utilisation-hps", "hps-utilisation-sbs", "hps-utilisation-static"}
    # 3 of 12: the right sign, but less than half.
    assert found["hps-starved"].verdict == NOT
    assert [name for name, claim in found.items() if claim.reconstruction] == ["hps-utilisation-pbs", "hps-utilisation-sbs"]
    assert "| hps | 78.2 | 3 | 900 | 2.0 |" in hps.sections(done)[0].text


def test_nothing_is_claimed_without_results():
    assert {claim.verdict for claim in hps.claims({})} == {SKIPPED} and hps.sections({}) == []
