"""Share of requests that meet their objectives over the load, with the knee of each policy."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.figures.intervals import across_seeds
from harness.figures.labels import number
from harness.figures.settings import NotDrawn, short
from harness.figures.style import INK, canvas, curve_handle, in_order, legend_below, looks, styled

CAPTION = """Means over seeds with bootstrap 95 % intervals (bands). The knee is the highest load at which 90 % of the requests meet their
objectives for the time to first token and between tokens: the goodput of the policy."""
RATES = ("rate", "load_scale")
INSIDE = RATES
ATTAINMENT = 0.9


def draw(summary: pd.DataFrame, note: str = "") -> Figure:
    """Attainment by load, from the summary of one setting in which a load varies."""
    column = next((c for c in summary.columns if short(c) in RATES and summary[c].nunique() > 1), None)
    if column is None or "slo_met_share" not in summary or not summary["slo_met_share"].notna().any():
        raise NotDrawn("no load of requests with objectives varies")
    found = across_seeds(summary, "slo_met_share", ("policy", column))
    policies = in_order(list(found["policy"].astype(str)))
    look, knees = looks(policies), {}
    with styled():
        axes_label = "requests per second" if short(column) == "rate" else "load scale"
        for policy in policies:
            curve = found[found["policy"] == policy].sort_values(column)
            knees[policy] = knee(curve[column].to_numpy(dtype=float), curve["mean"].to_numpy(dtype=float))
        figure = canvas(3.0, message(knees, axes_label), note)
        axes = figure.add_subplot()
        for policy in policies:
            curve = found[found["policy"] == policy].sort_values(column)
            at = curve[column].to_numpy(dtype=float)
            colour, line, mark = look[policy]
            axes.plot(at, 100 * curve["mean"], color=colour, linestyle=line, marker=mark, clip_on=False)
            ends = [100 * curve[end].to_numpy(dtype=float) for end in ("ci_low", "ci_high")]
            axes.fill_between(at, *ends, color=colour, alpha=0.15, linewidth=0)
        axes.axhline(100 * ATTAINMENT, color=INK, linewidth=0.9, linestyle="--", zorder=1)
        axes.text(axes.get_xlim()[1], 100 * ATTAINMENT + 1, "90 % ", ha="right", va="bottom", fontsize=8)
        axes.set_ylim(0, 102)
        axes.set_xlabel(axes_label)
        axes.set_ylabel("requests within their objectives (%)")
        legend_below(figure, [curve_handle(p, look[p]) for p in policies])
    return figure


def knee(at: np.ndarray, share: np.ndarray) -> float:
    """Load at which ``share`` falls below ATTAINMENT, linear between points; nan when it always, or never, is."""
    below = np.flatnonzero(share < ATTAINMENT)
    if not len(below) or below[0] == 0:
        return float("nan")
    i = int(below[0])
    return float(at[i - 1] + (share[i - 1] - ATTAINMENT) / (share[i - 1] - share[i]) * (at[i] - at[i - 1]))


def message(knees: dict[str, float], unit: str) -> str:
    """The headline: the best and the worst knee."""
    known = {policy: value for policy, value in knees.items() if value == value}
    if len(known) < 2:
        return "Requests within their objectives over the load"
    best, worst = max(known, key=lambda p: known[p]), min(known, key=lambda p: known[p])
    most = f"{unit} {number(known[best])}" if unit == "load scale" else f"{number(known[best])} {unit}"
    return f"90 % of requests meet their objectives up to {most} under {best}, {number(known[worst])} under {worst}"
