"""The published figures of HPS, PBS and SBS (arXiv 2512.10980) beside what was measured. specs/cluster-policies.md."""

from pathlib import Path

import pandas as pd

from harness.claims.claim import Claim, Section, claim
from harness.figures.intervals import Interval, interval
from harness.figures.results import open_results
from harness.report_tables import Grid

RECIPE = "hps"
UTILISATION = {"hps": 78.2, "pbs": 76.1, "sbs": 74.6}
STATIC = (45.0, 67.0)
"""Percent of the GPU time, published."""

STARVED, STARVED_S = 12.0, 1800.0
"""Jobs of 1,000 under HPS that wait for more than half an hour, published; up to 156 under static orders."""

RECONSTRUCTIONS = ("pbs", "sbs")
SETUP = ("Their 1,000 jobs are not published, and the report in the public code is empty: 1,000 jobs of the common workload, which ask "
         "for as much as 64 GPUs have. ")


def starved(folder: Path) -> pd.Series:
    """Jobs that waited for more than STARVED_S, by policy and seed."""
    results = open_results(folder)
    jobs = results.table("jobs", ("wait_s",), results.summary)
    return (jobs["wait_s"] > STARVED_S).groupby([jobs["policy"], jobs["seed"]], observed=True).sum()


def busy(cells: pd.DataFrame, policy: str) -> Interval:
    return interval(cells[cells["policy"] == policy]["gpu_busy_mean"])


def claims(done: dict[str, Path]) -> list[Claim]:
    cells = open_results(done[RECIPE]).summary if RECIPE in done else None
    waited = starved(done[RECIPE]) if RECIPE in done else None
    command = f"harness -m +experiment={RECIPE}"
    rows = [claim(f"hps-utilisation-{policy}", "hps", f"GPU utilisation under {policy}", "%", published,
                  None if cells is None else busy(cells, policy), scale=100, setup_difference=SETUP, command=command,
                  reconstruction=policy in RECONSTRUCTIONS)
            for policy, published in UTILISATION.items()]
    rows.append(claim("hps-utilisation-static", "hps", "GPU utilisation under first in, first out", "%", STATIC,
                      None if cells is None else busy(cells, "fifo"), scale=100, setup_difference=SETUP, command=command))
    rows.append(claim("hps-starved", "hps", "jobs of 1,000 that wait for more than 30 minutes under hps", "jobs", STARVED,
                      None if waited is None else interval(waited["hps"].to_numpy()), setup_difference=SETUP, command=command))
    return rows


def sections(done: dict[str, Path]) -> list[Section]:
    """Utilisation and starving by policy."""
    if RECIPE not in done:
        return []
    cells, waited = open_results(done[RECIPE]).summary, starved(done[RECIPE])
    grid = Grid(["policy", "GPUs busy (%)", "wait more than 30 minutes (of 1,000)", "mean wait (s)", "makespan (h)"], [], (0,))
    for policy, rows in cells.groupby("policy", sort=False):
        grid.rows.append([str(policy), f"{100 * rows['gpu_busy_mean'].mean():.1f}", f"{waited[policy].mean():.0f}",
                          f"{rows['wait_s_mean'].mean():,.0f}", f"{rows['makespan_s'].mean() / 3600:.1f}"])
    return [Section("Orders by score", "\n".join([
        "1,000 jobs of the common workload on 8 servers of 8 GPUs, from the first arrival to the last finish",
        f"(`harness -m +experiment={RECIPE}`). pbs and sbs are reconstructions. Means over seeds.", "", grid.markdown(),
    ]))]
