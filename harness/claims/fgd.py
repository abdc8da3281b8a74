"""The published table of FGD (ATC'23) beside what was measured. specs/cluster-policies.md, FGD and the packing family."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from harness.claims.claim import Claim, Section, claim
from harness.figures.intervals import interval
from harness.figures.packing_curve import COLUMNS, by_load
from harness.figures.results import open_results
from harness.report_tables import Grid

ORDERS, OWN = "fgd", "fgd_own_orders"
"""Recipes: in the authors' orders of arrival, and in our own."""

POLICIES = ("random_fit", "dotprod", "clustering", "packing", "bestfit", "fgd")
TO_THE_DIGIT = POLICIES[1:]
"""Policies whose every figure must be the published one: random draws cannot be replayed."""

LOAD, SEEDS = 130, 10


class Published(NamedTuple):
    """Percent of all GPUs at LOAD % of arrived load, in the order of POLICIES: allocated and fragmented as published, and the standard
    deviation of one run over 40 orders (spec)."""

    allocated: tuple[float, ...]
    fragmented: tuple[float, ...]
    deviation: tuple[float, ...]


TABLE = {
    "default": Published((87.47, 90.85, 91.88, 92.00, 93.08, 95.39), (12.43, 9.08, 8.00, 7.91, 6.85, 4.57),
                         (0.30, 0.34, 0.44, 0.42, 0.19, 0.12)),
    "gpuspec33": Published((86.46, 89.14, 92.12, 93.22, 93.09, 94.55), (13.44, 10.79, 7.74, 6.70, 6.84, 5.39),
                           (0.44, 0.30, 0.62, 0.57, 0.20, 0.27)),
}
BY_SEED = {
    ("default", "fgd"): (95.29, 95.32, 95.44, 95.48, 95.49, 95.27, 95.37, 95.47, 95.35, 95.43),
    ("default", "packing"): (91.57, 92.06, 92.10, 92.79, 91.30, 91.29, 92.78, 92.06, 91.69, 92.38),
    ("gpuspec33", "fgd"): (94.39, 94.52, 94.59, 94.79, 94.43, 94.53, 94.66, 94.61, 94.30, 94.65),
}
"""Percent of all GPUs allocated in single runs, seeds 42 to 51."""

FIRST_SEED = 42


def last_step(folder: Path) -> pd.DataFrame:
    """variant, policy, seed, allocated and fragmented (percent of all GPUs) at LOAD % of arrived load, one row for each cell."""
    results = open_results(folder)
    parts = []
    for variant, cells in results.summary.groupby("workload.variant"):
        steps = by_load(results.table("arrivals", COLUMNS, cells))
        parts.append(steps[steps["load"] == LOAD].assign(variant=variant))
    return pd.concat(parts, ignore_index=True)


def claims(done: dict[str, Path]) -> list[Claim]:
    """Every figure of the table, how many agree to the digit, and how far our own orders are off; skipped where a recipe was not run."""
    found = last_step(done[ORDERS]) if ORDERS in done else None
    own = last_step(done[OWN]) if OWN in done else None
    command, setup = f"harness -m +experiment={ORDERS}", "The authors' orders of arrival and ranks of nodes (fgd_orders.npz)."
    rows = []
    for variant, published in TABLE.items():
        for policy, value in zip(POLICIES, published.allocated, strict=True):
            more = "" if policy in TO_THE_DIGIT else " The authors' random draws cannot be replayed."
            measured = None if found is None else interval(one(found, variant, policy)["allocated"])
            rows.append(claim(f"fgd-{variant}-{policy}", "fgd", f"GPUs allocated at {LOAD} % of arrived load, {variant}, {policy}", "%",
                              value, measured, command=command, setup_difference=setup + more))
    rows += [
        claim("fgd-allocation-digits", "fgd", "means of the five deterministic policies equal to two decimals, allocation", "of 10", 10,
              agreeing(found, "allocated"), command=command, setup_difference=setup),
        claim("fgd-fragmentation-digits", "fgd", "means of the five deterministic policies equal to two decimals, fragmentation", "of 10",
              10, agreeing(found, "fragmented"), command=command, setup_difference=setup),
        claim("fgd-seed-digits", "fgd", "single runs equal to two decimals (fgd and packing)", "of 30", 30, agreeing_runs(found),
              command=command, setup_difference=setup),
        claim("fgd-own-orders", "fgd", "largest distance of a mean over 10 own orders, over 3 sd sqrt(2/10)", "", (None, 1.0),
              largest_distance(own), command=f"harness -m +experiment={OWN}",
              setup_difference="Orders drawn from our seeds; sd of one run over 40 orders."),
    ]
    return rows


def one(found: pd.DataFrame, variant: str, policy: str) -> pd.DataFrame:
    return found[(found["variant"] == variant) & (found["policy"] == policy)].sort_values("seed")


def means(found: pd.DataFrame | None) -> pd.DataFrame | None:
    """Means over the seeds by variant and policy; None unless there are SEEDS of each."""
    if found is None or (found.groupby(["variant", "policy"]).size() < SEEDS).any():
        return None
    return found.groupby(["variant", "policy"])[["allocated", "fragmented"]].mean()


def agreeing(found: pd.DataFrame | None, column: str) -> float | None:
    """Published means of the deterministic policies that ours equal when rounded like them."""
    ours = means(found)
    if ours is None:
        return None
    return float(sum(round(float(ours.loc[(variant, policy), column]), 2) == value for variant, published in TABLE.items()
                     for policy, value in zip(POLICIES, getattr(published, column), strict=True) if policy in TO_THE_DIGIT))


def agreeing_runs(found: pd.DataFrame | None) -> float | None:
    if means(found) is None or found is None:
        return None
    return float(sum(int((one(found, *key)["allocated"].round(2).to_numpy() == np.array(values)).sum()) for key, values in BY_SEED.items()))


def largest_distance(own: pd.DataFrame | None) -> float | None:
    ours = means(own)
    if ours is None:
        return None
    return max(abs(float(ours.loc[(variant, policy), "allocated"]) - value) / (3 * deviation * np.sqrt(2 / SEEDS))
               for variant, published in TABLE.items()
               for policy, value, deviation in zip(POLICIES, published.allocated, published.deviation, strict=True))


def sections(done: dict[str, Path]) -> list[Section]:
    """The table: published, in the authors' orders, in our own."""
    names = {"published": None, "the authors' orders": done.get(ORDERS), "our own orders": done.get(OWN)}
    grid = Grid(["variant", "", *POLICIES], [], (0, 1))
    for variant, published in TABLE.items():
        for name, folder in names.items():
            if name == "published":
                pairs = list(zip(published.allocated, published.fragmented, strict=True))
            elif folder is None:
                continue
            else:
                found = last_step(folder)
                pairs = [tuple(one(found, variant, policy)[["allocated", "fragmented"]].mean()) for policy in POLICIES]
            grid.rows.append([variant, name, *(f"{allocated:.2f} ({fragmented:.2f})" for allocated, fragmented in pairs)])
    if len(grid.rows) == len(TABLE):
        return []
    return [Section("FGD and the packing family on the real openb trace", "\n".join([
        f"Percent of the 6,212 GPUs allocated when pods that ask for {LOAD} % of them have come (and fragmented, by FGD's measure): pods",
        f"come one after another and none leaves (`harness -m +experiment={ORDERS}`, `+experiment={OWN}`). Means over seeds.", "",
        grid.markdown(),
    ]))]
