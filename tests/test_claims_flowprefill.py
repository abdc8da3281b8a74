"""The claims on FlowPrefill from results that are made up."""

from pathlib import Path

import pandas as pd
import pytest

from harness.claims import flowprefill
from harness.claims.claim import HOLDS, NOT, PARTLY
from harness.claims.flowprefill import KINDS, knee
from harness.figures import goodput_load
from synthetic_results import write_summary

SEEDS, RATES = range(10), (1.0, 2.0, 3.0)
SHARES = {"fcfs": (0.45, 0.3, 0.2), "edf": (0.9, 0.5, 0.4), "flowprefill": (1.0, 0.95, 0.85)}
WAITS = {"fcfs": 9.0, "edf": 4.0, "flowprefill": 1.0}


def recipes(tmp_path: Path) -> dict[str, Path]:
    """FCFS meets 90 % up to 0.5/s, EDF up to 1/s, FlowPrefill up to 2.5/s. With chunks FCFS meets them up to 0.5/s, EDF up to 1/s, with
    those of 512 tokens up to 2.5/s; EDF's heads then wait 1.5 s. A pause comes after 2 ms between layers, 1 ms between operators."""
    def rows(policy: str, shares: tuple[float, ...], wait: float, **keys: object) -> list[dict]:
        return [{"policy": policy, "seed": seed, **keys, "workload.rate": rate, "slo_met_share": share, "queue_s_mean_text": wait}
                for seed in SEEDS for rate, share in zip(RATES, shares, strict=True)]

    whole = [row for policy in SHARES for row in rows(policy, SHARES[policy], WAITS[policy])]
    chunks = [row for policy in ("fcfs", "edf") for chunk in (512, 2048, 8192)
              for row in rows(policy, SHARES["flowprefill" if (policy, chunk) == ("edf", 512) else policy], 1.5, **{"pool.chunk": chunk})]
    layers = [{"policy": "flowprefill", "seed": seed, "pool.boundaries": n, "blocking_s_mean": 0.064 / n}
              for seed in SEEDS for n in (64, 32)]
    return {name: write_summary(tmp_path / name, found)
            for name, found in (("flowprefill", whole), ("flowprefill_chunks", chunks), ("flowprefill_layers", layers))}


@pytest.mark.parametrize(("shares", "expected"), [
    ((1.0, 0.95, 0.85), 2.5),  # half way from 0.95 down to 0.85
    ((1.0, 0.8, 0.7), 1.5),  # half way from 1.0 to 0.8
    ((0.45, 0.3, 0.2), 0.5),  # half of what is asked for at the lowest load
    ((1.0, 1.0, 0.9), 3.0),  # never below
])
def test_the_knee_is_linear_between_loads(shares: tuple[float, ...], expected: float):
    cells = pd.DataFrame({"workload.rate": [3.0, 1.0, 2.0], "slo_met_share": [shares[2], shares[0], shares[1]]})
    assert knee(cells) == pytest.approx(expected)


def test_flowprefill_is_judged_against_each_of_its_baselines(tmp_path: Path):
    # 2.5 over 0.5 is 5 x, at least half of 5.6 x; over 1 it is 2.5 x, which is less; over itself 1 x.
    found = {claim.claim_id.removeprefix("flowprefill-"): claim for claim in flowprefill.claims(recipes(tmp_path))}
    assert len(found) == len(KINDS) + 4 + 1
    goodput = {name: (claim.measured, claim.verdict) for name, claim in found.items() if name.startswith("goodput")}
    assert goodput["goodput"] == goodput["goodput-fcfs-512"] == (pytest.approx(5.0), PARTLY)
    assert goodput["goodput-edf"] == goodput["goodput-edf-2048"] == (pytest.approx(2.5), NOT)
    assert goodput["goodput-edf-512"] == (pytest.approx(1.0), NOT)
    assert (found["blocking"].measured, found["blocking"].verdict) == (pytest.approx(4.0), HOLDS)
    assert (found["blocking-edf-8192"].measured, found["blocking-edf-8192"].verdict) == (pytest.approx(1.5), NOT)
    assert (found["blocking-layers"].measured, found["blocking-layers"].verdict) == (pytest.approx(2.0), PARTLY)
    assert "chunks of 8,192 tokens, paused" in found["goodput-edf-8192"].quantity and found["goodput-edf-8192"].command.endswith("_chunks")


def test_without_chunks_and_layers_only_whole_prompts_are_judged(tmp_path: Path):
    done = {"flowprefill": recipes(tmp_path)["flowprefill"]}
    assert [claim.claim_id for claim in flowprefill.claims(done)] == [
        "flowprefill-goodput", "flowprefill-goodput-edf", "flowprefill-blocking"]
    assert list(flowprefill.claims({})) == [] and flowprefill.sections({}) == []
    assert "between layers" not in flowprefill.sections(done)[0].text


def test_a_chunk_takes_its_operations():
    """2,048 tokens of 16.1 GFLOP and 2,048^2 / 2 pairs of 0.52 MFLOP at 0.38 x 312 TFLOP/s, 32 x 32 us + 126 us, and 4.4 us."""
    seconds = (2048 * 16.1e9 + 0.5 * 2048**2 * 0.52e6) / (0.38 * 312e12) + 32 * 32e-6 + 126e-6 + 4.4e-6
    assert flowprefill.chunk_s(2048) == pytest.approx(seconds) and 0.28 < seconds < 0.29


def test_the_table_has_absolute_values(tmp_path: Path):
    (section,) = flowprefill.sections(recipes(tmp_path))
    assert "| FlowPrefill | 2.5 | 1 |" in section.text and "| EDF, chunks of 2,048 tokens, paused between them | 1 | 1.5 |" in section.text
    assert "1.00 ms after it is asked to, between operators, and 2.00 ms after, between layers" in section.text


def test_the_baselines_are_policies_of_one_figure(tmp_path: Path):
    merged = flowprefill.merged(recipes(tmp_path))
    assert set(merged["policy"]) == {"flowprefill", "fcfs", "edf", *(f"edf, {chunk} a chunk" for chunk in (512, 2048, 8192))}
    said = goodput_load.draw(merged).texts[0].get_text().replace("\n", " ")
    assert said == "90 % of requests meet their objectives up to 2.50 requests per second under edf, 512 a chunk, 1 under edf"
