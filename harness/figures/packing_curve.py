"""Allocation and fragmentation against the load that has arrived."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.figures.settings import NotDrawn
from harness.figures.style import canvas, curve_handle, in_order, legend_below, looks, percent, styled

CAPTION = """Instances come one after another and none leaves. Left: GPUs that instances hold; right: GPUs that the typical instance
could not use (FGD's measure F), both as shares of all GPUs of the cluster, against what the instances so far ask for. Means over seeds
of the means over steps of 1 %; the legend gives the last step. The dotted line is what a perfect placement would hold."""
INSIDE: tuple[str, ...] = ()
COLUMNS = ("arrived", "allocated", "fragmented")
FROM = 70
"""Percent of arrived load from which allocation is drawn: before, every policy places nearly all."""


def draw(arrivals: pd.DataFrame, note: str = "") -> Figure:
    """Two panels, one curve for each policy, from the arrivals of one setting."""
    steps = by_load(arrivals)
    mean = steps.groupby(["policy", "load"], observed=True)[["allocated", "fragmented"]].mean().reset_index()
    policies = in_order(list(mean["policy"].astype(str)))
    if not policies or mean["load"].max() <= FROM:
        raise NotDrawn(f"the load that arrives does not reach {FROM} % of the cluster's GPUs")
    look = looks(policies)
    last = mean[mean["load"] == mean["load"].max()].set_index("policy")
    with styled():
        figure = canvas(3.1, message(last), note)
        left, right = figure.subplots(1, 2)
        for policy in policies:
            mine = mean[mean["policy"] == policy]
            late = mine[mine["load"] >= FROM]
            for axes, rows, column in ((left, late, "allocated"), (right, mine, "fragmented")):
                axes.plot(rows["load"], rows[column], color=look[policy].colour, linestyle=look[policy].line, marker=look[policy].mark,
                          markevery=(3, 10), markersize=4)
        end = float(mean["load"].max())
        left.plot([FROM, 100, end], [FROM, 100, 100], color="black", linewidth=0.8, linestyle=":", zorder=1)
        left.set_ylabel("GPUs allocated (%)")
        right.set_ylabel("GPUs fragmented (%)")
        left.set_xlim(FROM, end)
        right.set_xlim(0, end)
        right.set_ylim(0, None)
        for axes in (left, right):
            axes.set_xlabel("load arrived (% of the cluster's GPUs)")
        names = [f"{p}  {last.loc[p, 'allocated']:.2f} / {last.loc[p, 'fragmented']:.2f} %" for p in policies]
        legend_below(figure, [curve_handle(name, look[p]) for name, p in zip(names, policies, strict=True)], columns=3)
    return figure


def by_load(arrivals: pd.DataFrame) -> pd.DataFrame:
    """policy, seed, load, allocated and fragmented (percent), and watts where there: means over the arrivals whose load rounds to each
    whole percent. As FGD's authors do, single percentages are rounded to two decimals before.
    """
    steps = (100 * arrivals[list(COLUMNS)]).assign(policy=arrivals["policy"].astype(str), seed=arrivals["seed"])
    steps["load"] = np.rint(steps.pop("arrived")).astype(int)
    steps[["allocated", "fragmented"]] = steps[["allocated", "fragmented"]].round(2)
    values = ["allocated", "fragmented"]
    if "watts" in arrivals:
        steps["watts"] = arrivals["watts"]
        values.append("watts")
    return steps.groupby(["policy", "seed", "load"], observed=True)[values].mean().reset_index()


def message(last: pd.DataFrame) -> str:
    """The headline, from the last step by policy."""
    best, worst = last["allocated"].idxmax(), last["allocated"].idxmin()
    if best == worst:
        return f"{best} holds {percent(last.loc[best, 'allocated'] / 100)} of the GPUs in the end"
    return (f"{best} holds {percent(last.loc[best, 'allocated'] / 100)} of the GPUs in the end, {worst} "
            f"{percent(last.loc[worst, 'allocated'] / 100)}: the rest is fragmented")
