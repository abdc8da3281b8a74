"""The published saving of PWR + FGD (arXiv 2412.17484) beside what was measured. specs/cluster-policies.md, PWR."""

from pathlib import Path

import pandas as pd

from harness.claims.claim import Claim, Section, claim
from harness.figures.intervals import Interval, interval
from harness.figures.packing_curve import by_load
from harness.figures.power_curve import COLUMNS, MODERATE, savings
from harness.figures.results import open_results
from harness.report_tables import Grid

RECIPE = "pwr"
WEIGHTS = (500, 200, 100, 50)
SAVED = (10.0, 20.0)
"""Percent of the power that FGD alone draws, published for moderate load."""

END = 100
"""Percent of arrived load at which allocation is compared."""


def steps_of(folder: Path) -> pd.DataFrame:
    """Means over steps of 1 % of arrived load, by policy and seed."""
    results = open_results(folder)
    return by_load(results.table("arrivals", COLUMNS, results.summary))


def name(weight: int) -> str:
    return f"pwr_fgd, power {weight}"


def saved(steps: pd.DataFrame, weight: int) -> Interval:
    """Percent of FGD's power saved, means over the moderate loads of each seed."""
    rows = savings(steps)
    mine = rows[(rows["policy"] == name(weight)) & rows["load"].between(*MODERATE)]
    return interval(mine.groupby("seed")["saved"].mean())


def lost(steps: pd.DataFrame, weight: int) -> Interval:
    """Points of all GPUs that FGD alone allocates more at END % of arrived load."""
    at_end = steps[steps["load"] == END].set_index("seed")
    base, mine = (at_end[at_end["policy"] == name(w)]["allocated"] for w in (0, weight))
    return interval(base - mine)


def claims(done: dict[str, Path]) -> list[Claim]:
    steps = steps_of(done[RECIPE]) if RECIPE in done else None
    setup = (f"openb default, orders of our own; moderate load is {MODERATE[0]} to {MODERATE[1]} % arrived; the undisclosed GPU models G2 "
             "and G3 are taken for A10 and A100, all CPUs for one Xeon.")
    return [
        claim(f"pwr-saved-{weight}", "pwr", f"power saved against FGD at moderate load, weights {weight}:{1000 - weight}", "%", SAVED,
              None if steps is None else saved(steps, weight), command=f"harness -m +experiment={RECIPE}", setup_difference=setup)
        for weight in WEIGHTS
    ]


def sections(done: dict[str, Path]) -> list[Section]:
    """Saving and loss by weight."""
    if RECIPE not in done:
        return []
    steps = steps_of(done[RECIPE])
    grid = Grid(["weights (PWR:FGD)", "power saved at moderate load (%)", f"GPUs allocated less at {END} % arrived (points)"], [], (0,))
    for weight in (1000, *WEIGHTS):
        grid.rows.append([f"{weight}:{1000 - weight}", f"{saved(steps, weight).mean:.2f}", f"{lost(steps, weight).mean:.2f}"])
    return [Section("Power against fragmentation", "\n".join([
        "Placement that weighs the watts a server would draw more against FGD's score, on the openb trace as a packing list",
        f"(`harness -m +experiment={RECIPE}`). Against FGD alone, means over seeds.", "", grid.markdown(),
    ]))]
