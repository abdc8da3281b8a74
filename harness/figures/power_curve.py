"""Power saved, and what it costs in fragmentation, against the load that has arrived."""

import re

import pandas as pd
from matplotlib.figure import Figure

from harness.figures.packing_curve import by_load
from harness.figures.settings import NotDrawn
from harness.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    Look,
    canvas,
    curve_handle,
    legend_below,
    styled,
)

CAPTION = """Instances come one after another and none leaves. Left: power that the servers' GPUs and sockets draw less than under
FGD alone; right: GPUs that the typical instance could not use (FGD's measure F), against what the instances so far ask for. The weight of
the watts is out of 1,000. Means over seeds."""
INSIDE: tuple[str, ...] = ()
COLUMNS = ("arrived", "allocated", "fragmented", "watts")
BASELINES = ("pwr_fgd, power 0", "pwr_fgd, power 0.0")
MODERATE = (30, 70)
"""Percent of arrived load between which a load is called moderate."""


LOOKS = (Look(BLACK, "-", ""), Look(SKY, "-", "o"), Look(BLUE, "--", "s"), Look(GREEN, "-", "^"), Look(ORANGE, "--", "D"),
         Look(VERMILLION, "-", "v"), Look(PURPLE, ":", "P"))
"""By weight of the watts, the baseline first."""


def draw(arrivals: pd.DataFrame, note: str = "") -> Figure:
    """Two panels, one curve for each weight, from the arrivals of one setting."""
    steps = by_load(arrivals)
    gain = savings(steps).groupby(["policy", "load"], observed=True)["saved"].mean().reset_index()
    mean = steps.groupby(["policy", "load"], observed=True)["fragmented"].mean().reset_index()
    policies = sorted(mean["policy"].unique(), key=weight)
    look = dict(zip(policies, LOOKS * (1 + len(policies) // len(LOOKS)), strict=False))
    with styled():
        figure = canvas(3.1, message(gain), note)
        left, right = figure.subplots(1, 2)
        for axes, rows, column in ((left, gain, "saved"), (right, mean, "fragmented")):
            for i, policy in enumerate(policies):
                mine = rows[rows["policy"] == policy]
                if len(mine):
                    axes.plot(mine["load"], mine[column], color=look[policy].colour, linestyle=look[policy].line,
                              marker=look[policy].mark, markevery=(3 * i, 20), markersize=4)
            axes.set_xlabel("load arrived (% of the cluster's GPUs)")
            axes.set_xlim(0, float(rows["load"].max()))
        left.axvspan(*MODERATE, color="#F2F2F2", zorder=0, linewidth=0)
        left.set_ylim(min(0.0, float(gain["saved"].min())), None)
        left.set_ylabel("power saved against FGD (%)")
        right.set_ylabel("GPUs fragmented (%)")
        right.set_ylim(0, None)
        legend_below(figure, [curve_handle(named(policy), look[policy]) for policy in policies], columns=3)
    return figure


def weight(policy: str) -> float:
    """Of the watts, out of 1,000."""
    found = re.search(r"power (\d+(\.\d+)?)", policy)
    return float(found[1]) if found else 0.0


def named(policy: str) -> str:
    """A variant by its weights."""
    w = weight(policy)
    return "FGD alone" if w == 0 else "PWR alone" if w == 1000 else f"PWR:FGD = {w:g}:{1000 - w:g}"


def savings(steps: pd.DataFrame) -> pd.DataFrame:
    """policy, seed, load and saved: percent of the baseline's watts under the same seed. Raises NotDrawn without a baseline."""
    there = [name for name in BASELINES if (steps["policy"] == name).any()]
    if not there or "watts" not in steps:
        raise NotDrawn(f"needs one of the policies {', '.join(BASELINES)} beside others, and their watts")
    base = steps[steps["policy"] == there[0]].set_index(["seed", "load"])["watts"].rename("base")
    rows = steps[steps["policy"] != there[0]].join(base, on=["seed", "load"])
    if rows.empty:
        raise NotDrawn(f"only {there[0]} was run")
    return rows.assign(saved=100 * (1 - rows["watts"] / rows["base"]))[["policy", "seed", "load", "saved"]]


def message(gain: pd.DataFrame) -> str:
    """The headline: the saving at moderate load."""
    middle = gain[gain["load"].between(*MODERATE)].groupby("policy")["saved"].mean()
    if middle.empty:
        return "Power saved against FGD"
    low, high = (f"{value:.1f}" for value in (middle.min(), middle.max()))
    return f"Weighing the watts saves {low if low == high else f'{low} to {high}'} % of FGD's power at moderate load"
