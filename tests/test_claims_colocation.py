"""The sections on co-location from results that are made up."""

from pathlib import Path

from harness.claims import colocation
from synthetic_results import write_summary

SEEDS = range(10)
VIOLATIONS = {"godel": 300.0, "domain_first": 200.0, "domain_first_cost": 210.0}


def answers(policy: str, seed: int, cards: int = 4, **more: float) -> dict:
    """Means of a cell: 100 violations fewer under domain_first, whose offline work loses an hour more; both vary alike by seed."""
    lost = 3600.0 * (7 if policy == "domain_first" else 6)
    found = {metric: 1.0 + seed for metric in colocation.ANSWERS}
    return {"policy": policy, "seed": seed, "pool.tp": cards, **found, "slo_violations": VIOLATIONS[policy] + seed,
            "lost_gpu_s_offline": lost, "slo_met_share": 1 - VIOLATIONS[policy] / 1000, **more}


def test_policies_stand_beside_each_other_and_are_paired(tmp_path: Path):
    rows = [answers(policy, seed) for policy in VIOLATIONS for seed in SEEDS]
    (section,) = colocation.sections({"colocation_azure": write_summary(tmp_path / "azure", rows)})
    head = next(line for line in section.text.splitlines() if line.startswith("|"))
    assert [cell.strip() for cell in head.strip("|").split("|")][1:] == ["godel", "domain_first", "domain_first_cost"]
    text = section.text.replace("\N{MINUS SIGN}", "-")
    assert "-100.0 [-100, -100], pays" in text and "+1.0 [1, 1], costs" in text


def test_settings_tell_where_it_pays_and_where_there_is_nothing_to_choose(tmp_path: Path):
    rows = [answers(policy, seed, cards, **({"slo_met_share": 0.9, "lost_gpu_s_offline": 0.0} if cards == 2 else {}))
            for policy in ("godel", "domain_first") for seed in SEEDS for cards in (2, 4)]
    (section,) = colocation.sections({"colocation_pays": write_summary(tmp_path / "pays", rows)})
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.text.splitlines() if line.startswith("|")]
    assert table[0][0] == "cards of a replica" and [row[0] for row in table[2:]] == ["2", "4"]
    assert table[2][1] == "0" and table[3][1] == "+10 (pays)"


def test_without_recipes_there_is_nothing_to_say():
    assert colocation.sections({}) == []
