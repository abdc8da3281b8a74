"""The published gains of GFS (arXiv 2509.11134) beside what was measured. specs/cluster-policies.md, GFS."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.claims.claim import Claim, Section, claim
from harness.figures import spot_costs
from harness.figures.intervals import Interval, interval
from harness.figures.results import open_results
from harness.report_tables import Grid

RECIPE, LOADS, PARTS, FORECASTERS = "gfs", "gfs_loads", "gfs_parts", "gfs_forecasters"
EVICTION, QUEUEING, ALLOCATION = -33.0, -44.1, 22.8
"""Percent, published; for which baseline and load is not said. Allocation is of the production cluster."""

METRICS = {"eviction": ("guarantee_failed_share", EVICTION, "guaranteed hours of spot jobs that fail"),
           "queueing": ("queue_s_mean_batch", QUEUEING, "mean queueing of spot jobs")}
BASELINES = ("yarn_cs", "chronus", "lyra")
QUOTAS = {"none": "without a quota", "forecast": "with the same quota", "constant": "with a constant quota of equal mean"}
LOAD = "workload.hp_load"
SYNTHETIC = ("Synthetic workload, fitted to aggregates of the trace (its job file is not at hand), 432 x 8 A100 of its node list; changes "
             "of means over seeds. The abstract names neither baseline nor load. ")


def cells_of(folder: Path) -> pd.DataFrame:
    return open_results(folder).summary


def change(cells: pd.DataFrame, metric: str, baseline: str, quota: str) -> Interval | None:
    """GFS against a baseline with a quota rule, in shares of the baseline's mean, paired by seed."""
    gfs, base = (cells[cells["policy"] == f"{policy}, quota {rule}"].set_index("seed")[metric].astype(float)
                 for policy, rule in (("gfs", "forecast"), (baseline, quota)))
    if gfs.empty or base.empty:
        return None
    difference = (gfs - base).dropna()
    return interval(difference / base[difference.index].mean())


def claims(done: dict[str, Path]) -> list[Claim]:
    """Per baseline and quota at the central load, then per load against YARN-CS; the allocation claim cannot be replayed."""
    found = cells_of(done[RECIPE]) if RECIPE in done else None
    rows = []
    for name, (metric, published, words) in METRICS.items():
        for baseline in BASELINES:
            for quota, text in QUOTAS.items():
                rows.append(claim(
                    f"gfs-{name}-{baseline}-{quota}", "gfs", f"{words}, GFS against {baseline} {text}", "%", published,
                    None if found is None else change(found, metric, baseline, quota), scale=100, reconstruction=baseline == "chronus",
                    setup_difference=f"{SYNTHETIC}HP load 0.8, spot 0.1.", command=f"harness -m +experiment={RECIPE}"))
    by_load = cells_of(done[LOADS]) if LOADS in done else None
    for load in (0.7, 0.9):
        for name, (metric, published, words) in METRICS.items():
            cells = None if by_load is None else by_load[np.isclose(by_load[LOAD].astype(float), load)]
            rows.append(claim(
                f"gfs-{name}-load-{load:g}", "gfs", f"{words}, GFS against yarn_cs without a quota, HP load {load:g}", "%", published,
                None if cells is None else change(cells, metric, "yarn_cs", "none"), scale=100,
                setup_difference=f"{SYNTHETIC}Spot load 0.1.", command=f"harness -m +experiment={LOADS}"))
    rows.append(claim("gfs-allocation", "gfs", "GPUs allocated in production, largest gain", "%", (None, ALLOCATION), None,
                      measurable=False, setup_difference="A figure of the production cluster before and after; not a replay.", command="-"))
    return rows


def parts(done: dict[str, Path]) -> pd.DataFrame:
    """The cells of GFS whole and with one part changed, policies named by what was changed; empty unless all three recipes were run."""
    if not all(name in done for name in (RECIPE, PARTS, FORECASTERS)):
        return pd.DataFrame(columns=pd.Index(["policy"]))
    whole, without, forecasts = (cells_of(done[name]) for name in (RECIPE, PARTS, FORECASTERS))
    names = {"gfs, quota forecast": WHOLE, "gfs, quota none": "gfs, no quota", "gfs, quota constant": "gfs, constant quota",
             "gfs, without order": "gfs, first in first out", "gfs, without victims": "gfs, random victims",
             "gfs, without placement": "gfs, best fit", "gfs, forecaster last": "gfs, forecast: last hour",
             "gfs, forecaster seasonal": "gfs, forecast: last week", "gfs, forecaster oracle": "gfs, forecast: oracle"}
    cells = pd.concat([whole, without, forecasts], ignore_index=True)
    return cells[cells["policy"].isin(names)].assign(policy=lambda rows: rows["policy"].map(names))


WHOLE = "gfs"
ORDER = (WHOLE, "gfs, no quota", "gfs, constant quota", "gfs, first in first out", "gfs, random victims", "gfs, best fit",
         "gfs, forecast: last hour", "gfs, forecast: last week", "gfs, forecast: oracle")


def figures(done: dict[str, Path]) -> dict[str, Figure]:
    """What spot jobs pay when one part of GFS is changed."""
    cells = parts(done)
    return {} if cells.empty else {"gfs-parts": spot_costs.draw(cells, order=ORDER)}


def sections(done: dict[str, Path]) -> list[Section]:
    """What each policy gives, with each quota rule and at each load."""
    if RECIPE not in done:
        return []
    grid = Grid(["policy", "guaranteed hours that failed (%)", "mean queueing of spot jobs (h)", "lost work (GPU h)", "quota (% of GPUs)",
                 "GPUs busy (%)", "mean wait of HP jobs (s)"], [], (0,))
    tables = [("", cells_of(done[RECIPE]))]
    if LOADS in done:
        cells = cells_of(done[LOADS])
        tables += [(f", HP load {load:g}", rows) for load, rows in cells.groupby(cells[LOAD].astype(float))]
    for text, cells in tables:
        for policy, rows in cells.groupby("policy", sort=False):
            quota = rows["quota_mean"].mean() if str(policy).endswith("quota forecast") else np.nan
            grid.rows.append([
                f"{policy}{text}", f"{100 * rows['guarantee_failed_share'].mean():.2f}", f"{rows['queue_s_mean_batch'].mean() / 3600:.2f}",
                f"{rows['lost_gpu_s'].mean() / 3600:,.0f}", f"{100 * quota:.1f}" if quota == quota else "-",
                f"{100 * rows['gpu_busy_mean'].mean():.1f}", f"{rows['wait_s_mean_training'].mean():.1f}"])
    return [Section("Spot quotas: GFS and its baselines", "\n".join([
        "High-priority and spot jobs on 432 x 8 A100 for 49 days, spot jobs in the last three weeks; synthetic, fitted to aggregates of",
        f"the spot trace (`harness -m +experiment={RECIPE}`, `+experiment={LOADS}`). chronus is a reconstruction. Means over seeds.", "",
        grid.markdown(),
    ]))]
