"""The claims on FGD and PWR from results that are made up: what holds, what does not, and what is skipped."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from harness import schema
from harness.claims import fgd, pwr
from harness.claims.claim import HOLDS, NOT, PARTLY, SKIPPED
from harness.figures import packing_curve, power_curve
from harness.figures.settings import NotDrawn
from harness.tables import write_table
from synthetic_results import write_summary


def results(folder: Path, cells: list[dict], arrivals: list[pa.Table]) -> Path:
    """A results folder with these rows of the summary and tables of arrivals."""
    same = {"cluster": "openb", "workload": "packing", "pinning": "first_free"}
    write_summary(folder, [{**same, **cell} for cell in cells])
    for i, table in enumerate(arrivals):
        (folder / f"c{i}").mkdir()
        write_table(table, folder / f"c{i}/arrivals.parquet")
    return folder


def arrivals(allocated: float, fragmented: float, watts: float = 1.0) -> pa.Table:
    """Loads 50, 100 and 130 %, twice each, with these percentages and watts throughout."""
    load = np.repeat([0.5, 1.0, 1.3], 2)
    columns = (load, np.full(6, allocated / 100), np.full(6, fragmented / 100), np.full(6, watts))
    return pa.table([pa.array(column) for column in columns], schema=schema.arrow_schema(schema.ARRIVALS))


def published(folder: Path, seeds: int, off: float = 0.0, spread: float = 0.01) -> Path:
    """The published table, ``off`` points away, with a little spread over the seeds."""
    cells, tables = [], []
    for variant, found in fgd.TABLE.items():
        for p, policy in enumerate(fgd.POLICIES):
            for n in range(seeds):
                cells.append({"policy": policy, "seed": 42 + n, "workload.variant": variant})
                single = fgd.BY_SEED.get((variant, policy))
                allocated = single[n] if single else found.allocated[p] + spread * (1 if n % 2 else -1)
                tables.append(arrivals(allocated + off, found.fragmented[p]))
    return results(folder, cells, tables)


def test_the_published_table_holds(tmp_path: Path):
    done = {fgd.ORDERS: published(tmp_path / "a", 10), fgd.OWN: published(tmp_path / "b", 10)}
    found = {claim.claim_id: claim for claim in fgd.claims(done)}
    assert {claim.verdict for claim in found.values()} == {HOLDS}
    assert [found[f"fgd-{name}"].measured for name in ("allocation-digits", "fragmentation-digits", "seed-digits")] == [10, 10, 30]
    assert found["fgd-own-orders"].measured == pytest.approx(0, abs=0.05)
    assert "95.39 (4.57)" in fgd.sections(done)[0].text


def test_a_hundredth_is_too_much_for_the_digits(tmp_path: Path):
    found = {claim.claim_id: claim for claim in fgd.claims({fgd.ORDERS: published(tmp_path / "a", 10, off=0.02)})}
    assert (found["fgd-allocation-digits"].measured, found["fgd-seed-digits"].measured) == (0, 0)
    assert found["fgd-allocation-digits"].verdict == NOT and found["fgd-fragmentation-digits"].verdict == HOLDS
    assert found["fgd-own-orders"].verdict == SKIPPED


def test_own_orders_may_be_off_by_their_spread(tmp_path: Path):
    # fgd on default: sd 0.12, so that 3 sd sqrt(2 / 10) = 0.161; half a point is 3.1 times as much.
    found = {claim.claim_id: claim for claim in fgd.claims({fgd.OWN: published(tmp_path / "a", 10, off=0.5)})}
    assert found["fgd-own-orders"].measured == pytest.approx(0.5 / (3 * 0.12 * np.sqrt(0.2)), rel=0.01)
    assert found["fgd-own-orders"].verdict == NOT


def test_too_few_seeds_and_absent_data_are_skipped(tmp_path: Path):
    for done in ({}, {fgd.ORDERS: published(tmp_path / "a", 2), fgd.OWN: published(tmp_path / "b", 2)}):
        found = fgd.claims(done)
        assert len(found) == 16 and {claim.verdict for claim in found} == {SKIPPED}
    assert fgd.sections({}) == []
    assert [claim.verdict for claim in pwr.claims({})] == [SKIPPED] * 4 and pwr.sections({}) == []


def weights(folder: Path, saved: dict[int, float]) -> Path:
    """PWR + FGD at each weight, drawing that many percent less than 1,000 W."""
    cells = [{"policy": "pwr_fgd", "seed": seed, "policy.power": weight} for weight in saved for seed in range(10)]
    tables = [arrivals(95 - weight / 500, 5, (1000 + cell["seed"]) * (1 - percent / 100)) for weight, percent in saved.items()
              for cell in cells[:10]]
    return results(folder, cells, tables)


def test_power_saved_at_moderate_load(tmp_path: Path):
    done = {pwr.RECIPE: weights(tmp_path / "a", {0: 0, 50: 5, 100: 11, 200: 15, 500: 25, 1000: 30})}
    found = {claim.claim_id: claim for claim in pwr.claims(done)}
    assert [found[f"pwr-saved-{w}"].measured for w in pwr.WEIGHTS] == pytest.approx([25, 15, 11, 5])
    assert [found[f"pwr-saved-{w}"].verdict for w in pwr.WEIGHTS] == [PARTLY, HOLDS, HOLDS, PARTLY]
    # Allocated at 100 %: 95 - w / 500 against 95.
    assert "| 500:500 | 25.00 | 1.00 |" in pwr.sections(done)[0].text


def test_curves_are_drawn_from_arrivals():
    rows = [arrivals(90, 5, 900.0).to_pandas().assign(policy=policy, seed=seed)
            for policy in ("pwr_fgd, power 0", "pwr_fgd, power 500") for seed in (0, 1)]
    frame = pd.concat(rows, ignore_index=True)
    steps = packing_curve.by_load(frame)
    assert steps[["load", "allocated", "watts"]].drop_duplicates().values.tolist() == [[50, 90, 900], [100, 90, 900], [130, 90, 900]]
    assert "90.0" in " ".join(text.get_text() for text in packing_curve.draw(frame).texts)
    assert "saves 0.0 %" in " ".join(text.get_text() for text in power_curve.draw(frame).texts)
    with pytest.raises(NotDrawn, match="needs one of"):
        power_curve.draw(frame.assign(policy="fgd"))
    with pytest.raises(NotDrawn, match="only"):
        power_curve.draw(frame[frame["policy"] == "pwr_fgd, power 0"])
    with pytest.raises(NotDrawn, match="does not reach"):
        packing_curve.draw(frame[frame["arrived"] < 0.6])
