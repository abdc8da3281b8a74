"""Topology hit rate over the mix of card counts."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.figures.hit_rate import CLOSED_FORM, PUBLISHED
from harness.figures.intervals import across_seeds
from harness.figures.settings import CARDS, NotDrawn, mix_columns, mix_of, mix_text, random_hit_rate
from harness.figures.style import (
    BLIND,
    INK,
    PALE,
    TOPOLOGY_AWARE,
    base_policy,
    canvas,
    curve_handle,
    in_order,
    legend_below,
    looks,
    percent,
    styled,
)

CAPTION = """Share of decisions whose victims share a socket, over the cards that preemptors ask for. Left: mixes of two sizes
as a curve; right: other mixes. Bars are bootstrap 95 % intervals over seeds. The closed form is that of random 1-card victims
on full servers of 2 sockets with 4 GPUs each; preemptors that no socket can hold do not count."""
INSIDE = CARDS
METRIC = "hit_rate_victims"


def draw(summary: pd.DataFrame, note: str = "") -> Figure:
    """Hit rate of victims by policy over the card mixes of one setting."""
    if METRIC not in summary or summary[METRIC].notna().sum() == 0:
        raise NotDrawn("no policy took a preemption decision")
    rates = across_seeds(summary, METRIC, ["policy", *mix_columns(summary)])
    rates["online"] = [mix_of(row) for _, row in rates.iterrows()]
    rates["text"] = [mix_text(row) for _, row in rates.iterrows()]
    batch = {tuple(mix_of(row, "batch")) for _, row in rates.iterrows()}
    pair = two_sizes(list(rates["online"])) if len({t.partition("batch")[2] for t in rates["text"]}) == 1 else None
    on_curve = np.array([pair is not None and set(mix) <= set(pair) for mix in rates["online"]])
    policies = in_order(list(rates["policy"]))
    look = looks(policies)
    with styled():
        figure = canvas(3.6, message(rates), note)
        widths = [w for w in (2.2 if on_curve.any() else 0, 0.5 + 0.35 * rates.loc[~on_curve, "text"].nunique()) if w > 0.5]
        panels = np.atleast_1d(figure.subplots(1, len(widths), sharey=True, width_ratios=widths))
        if on_curve.any() and pair:
            x = np.array([100 * mix.get(pair[1], 0.0) for mix in rates["online"]])
            plot(panels[0], rates[on_curve], x[on_curve], policies)
            panels[0].set_xlabel(f"preemptors with {pair[1]} cards, the others {pair[0]} (%)")
            panels[0].set_xlim(-4, 104)
            if batch == {(1,)}:
                shares = np.linspace(0, 1, 101)
                curve = [random_hit_rate({pair[0]: 1 - s, pair[1]: s}) for s in shares]
                panels[0].plot(100 * shares, 100 * np.array(curve), color=PALE, linewidth=6, zorder=1)
        rest = rates[~on_curve]
        if len(rest):
            names = sorted(set(rest["text"]), key=lambda t: -rest.loc[rest["text"] == t, "mean"].min())
            plot(panels[-1], rest, np.array([names.index(t) for t in rest["text"]], dtype=float), policies, join=False)
            panels[-1].set_xticks(
                range(len(names)),
                [n.replace(", ", "\n").replace(" cards ", " cards\n") for n in names],
                rotation=90 if len(names) > 4 else 0,
            )
            panels[-1].set_xlim(-0.6, len(names) - 0.4)
            panels[-1].set_xlabel("other mixes")
        for panel in panels:
            panel.axhline(100 * CLOSED_FORM, color=INK, linewidth=0.8, linestyle="--", zorder=0)
            panel.axhline(100 * PUBLISHED, color=INK, linewidth=0.8, linestyle=":", zorder=0)
            panel.set_ylim(0, 104)
        panels[0].set_ylabel("decisions that hit (%)")
        handles: list[Line2D] = [curve_handle(p, look[p]) for p in policies]
        handles += [
            Line2D([], [], color=INK, linewidth=0.8, linestyle=":", label="44.5 %, published"),
            Line2D([], [], color=INK, linewidth=0.8, linestyle="--", label="3/7, closed form for 2 cards"),
        ]
        if on_curve.any() and batch == {(1,)}:
            handles.append(Line2D([], [], color=PALE, linewidth=6, label="closed form of the mix"))
        legend_below(figure, handles)
    return figure


def two_sizes(mixes: list[dict[int, float]]) -> tuple[int, int] | None:
    """The pair of card counts of which most of ``mixes`` are made, at least three different ones; None when there is none."""
    best, most = None, 2
    for pair in sorted({tuple(mix) for mix in mixes if len(mix) == 2}):
        shares = {mix.get(pair[1], 0.0) for mix in mixes if set(mix) <= set(pair)}
        if len(shares) > most:
            best, most = (pair[0], pair[1]), len(shares)
    return best


def plot(axes: Axes, rates: pd.DataFrame, x: np.ndarray, policies: list[str], join: bool = True) -> None:
    """One curve (or row of marks) for each policy, set slightly apart in x so that equal ones stay visible."""
    look = looks(policies)
    apart = 0.008 * float(np.ptp(axes.get_xlim() if len(set(x)) < 2 else x) or 1.0)
    if not join:
        apart = 0.5 / max(len(policies), 1)
    for k, policy in enumerate(policies):
        mine = (rates["policy"] == policy).to_numpy()
        order = np.argsort(x[mine])
        rows, at = rates[mine].iloc[order], x[mine][order] + apart * (k - (len(policies) - 1) / 2)
        axes.plot(
            at,
            100 * rows["mean"],
            marker=look[policy].mark,
            color=look[policy].colour,
            markersize=4.5,
            linestyle=look[policy].line if join else "",
            zorder=3,
            clip_on=False,
        )
        axes.vlines(at, 100 * rows["ci_low"], 100 * rows["ci_high"], color=look[policy].colour, linewidth=1.8, zorder=3)


def message(rates: pd.DataFrame) -> str:
    """The headline, from means by policy and mix."""
    groups = {
        name: rates.loc[[base_policy(p) in members for p in rates["policy"]], "mean"]
        for name, members in (("aware", TOPOLOGY_AWARE), ("blind", BLIND))
    }
    if groups["aware"].empty or groups["blind"].empty:
        return f"The hit rate moves between {100 * rates['mean'].min():.0f} and {100 * rates['mean'].max():.0f} % over the card mixes"
    least, blind = groups["aware"].min(), groups["blind"]
    aware = "always hits" if least == 1 else f"hits in at least {percent(least)}"
    return f"Topology-aware search {aware} whatever the card mix, blind search in {100 * blind.min():.0f} to {percent(blind.max(), 0)}"
