"""Cost of the search for victims."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.figures.labels import number
from harness.figures.settings import NotDrawn
from harness.figures.style import GREY, canvas, in_order, legend_below, log_axis, looks, percent, rows_axis, styled

CAPTION = """Distribution over all decisions of all seeds. Subsets tried are victim sets whose feasibility was tested, the
same on every machine; search time is wall-clock time on the machine that ran it. Bars span the middle 50, 90 and 98 % of the
decisions, the tick and the number are the median."""
INSIDE: tuple[str, ...] = ()
COLUMNS = ("decision_id", "subsets_tried", "search_wall_us")
BANDS = ((1, 99, 0.25), (5, 95, 0.5), (25, 75, 1.0))


def draw(preemptions: pd.DataFrame, note: str = "") -> Figure:
    """Subsets tried and search time for each decision by policy, from the preemptions of one setting."""
    decisions = preemptions.drop_duplicates(["cell", "decision_id"])
    policies = in_order(list(decisions["policy"].astype(str)))
    panels = [
        (c, text)
        for c, text in (("subsets_tried", "subsets tried per decision"), ("search_wall_us", "search time per decision (µs)"))
        if (decisions[c] > 0).any()
    ]
    if not policies or not panels:
        raise NotDrawn("no preemption decision was taken")
    medians = decisions.groupby("policy", observed=True)["subsets_tried"].median()
    with styled():
        figure = canvas(0.36 * len(policies) + 1.1, message(medians), note)
        for axes, (column, text) in zip(np.atleast_1d(figure.subplots(1, len(panels), sharey=True)), panels, strict=True):
            rows_axis(axes, policies)
            bands(axes, decisions, column, policies)
            axes.set_xlabel(text)
        shades = [Patch(facecolor=GREY, alpha=alpha, label=f"middle {high - low} %") for low, high, alpha in reversed(BANDS)]
        legend_below(figure, [*shades, Line2D([], [], color="white", marker="|", markeredgecolor="black", markersize=9, label="median")])
    return figure


def bands(axes: Axes, decisions: pd.DataFrame, column: str, policies: list[str]) -> None:
    """Nested bars of the middle shares of ``column`` on a log axis, one row for each policy, medians in numbers."""
    look, right = looks(policies), 0.0
    lefts = []
    for y, policy in enumerate(policies):
        values = decisions.loc[decisions["policy"] == policy, column].to_numpy(dtype=float)
        values = values[values > 0]
        if len(values) == 0:
            axes.text(0.02, y, "none", transform=axes.get_yaxis_transform(), va="center", fontsize=8)
            continue
        for low, high, alpha in BANDS:
            start, end = np.percentile(values, [low, high])
            axes.plot([start, end], [y, y], color=look[policy].colour, alpha=alpha, linewidth=9, solid_capstyle="butt")
        median, top = np.median(values), np.percentile(values, 99)
        axes.plot([median] * 2, [y - 0.27, y + 0.27], color="black", linewidth=1.6, zorder=5)
        axes.annotate(number(median), (top, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8)
        lefts.append(np.percentile(values, 1))
        right = max(right, top)
    left = min(lefts)
    span = max(np.log10(right / left), 1.0)
    log_axis(axes, left / 10 ** (0.08 * span), right * 10 ** (0.28 * span))


def message(medians: pd.Series) -> str:
    """The headline, from the median number of subsets by policy."""
    least = medians.idxmin()
    if {"domain_first", "flextopo_exhaustive"} <= set(medians.index):
        part = medians["domain_first"] / medians["flextopo_exhaustive"]
        return f"domain_first finds its victims with {percent(part)} of the subsets that exhaustive search tries (medians)"
    if len(medians) == 1:
        return f"{least} tries {number(medians[least])} subsets in the median decision"
    return f"{least} tries the fewest subsets: {number(medians[least])} in the median decision, at most {number(medians.max())} elsewhere"
