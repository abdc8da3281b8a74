"""Topology hit rate by policy."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import blended_transform_factory

from harness.figures.intervals import across_seeds
from harness.figures.settings import NotDrawn
from harness.figures.style import (
    GREY,
    INK,
    TOPOLOGY_AWARE,
    base_policy,
    canvas,
    in_order,
    interval_mark,
    legend_below,
    looks,
    percent,
    rows_axis,
    styled,
)

CAPTION = """A preemption hits when one socket holds what it is about: its victims (filled), or what the preemptor was given,
free resources included (hollow). Marks are means over seeds with bootstrap 95 % intervals. On a full server of the paper's
shape, two random 1-card victims share a socket with probability 3/7; 44.5 % is published for Gödel."""
INSIDE: tuple[str, ...] = ()
CLOSED_FORM, PUBLISHED = 3 / 7, 0.445


def draw(summary: pd.DataFrame, note: str = "") -> Figure:
    """Hit rates of the policies of one setting, which make preemption decisions."""
    rates = {
        metric: across_seeds(summary, metric).set_index("policy")
        for metric in ("hit_rate_victims", "hit_rate_assigned")
        if metric in summary
    }
    victims = rates.get("hit_rate_victims", pd.DataFrame())
    policies = in_order(list(victims.index))
    if not policies:
        raise NotDrawn("no policy took a preemption decision")
    look = looks(policies)
    with styled():
        figure = canvas(0.34 * len(policies) + 1.25, message(victims["mean"]), note)
        axes = figure.add_subplot()
        rows_axis(axes, policies)
        for metric, shift, filled in (("hit_rate_victims", -0.14, True), ("hit_rate_assigned", 0.14, False)):
            for y, policy in enumerate(policies):
                if policy in rates.get(metric, pd.DataFrame()).index:
                    ends = 100 * rates[metric].loc[policy, ["mean", "ci_low", "ci_high"]].to_numpy(dtype=float)
                    interval_mark(axes, y + shift, ends, look[policy], filled)
        for value, text, side in ((CLOSED_FORM, "3/7, closed form ", "right"), (PUBLISHED, " 44.5 %, published", "left")):
            axes.axvline(100 * value, color=INK, linewidth=0.9, linestyle="--" if side == "right" else ":", zorder=1)
            axes.text(
                100 * value,
                1.01,
                text,
                ha=side,
                va="bottom",
                fontsize=8,
                transform=blended_transform_factory(axes.transData, axes.transAxes),
            )
        axes.set_xlim(0, 102)
        axes.set_xticks(np.arange(0, 101, 20))
        axes.set_xlabel("decisions that hit (%)")
        legend_below(
            figure,
            [
                Line2D([], [], marker="o", linestyle="", color=GREY, label="victims in one socket"),
                Line2D([], [], marker="o", linestyle="", color=GREY, markerfacecolor="white", label="preemptor in one socket"),
            ],
        )
    return figure


def message(means: pd.Series) -> str:
    """The headline, from the hit rate of victims by policy."""
    aware = means[[p for p in means.index if base_policy(p) in TOPOLOGY_AWARE]]
    if aware.empty or "godel" not in means.index:
        best = means.idxmax()
        return f"{best}'s victims share a socket in {percent(means[best])} of its preemptions"
    return f"Victims share a socket in {percent(aware.min())} of topology-aware preemptions, in {percent(means['godel'])} of Gödel's"
