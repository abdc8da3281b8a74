"""Users against batch owners: objectives met by requests, and goodput of offline work, by policy."""

import pandas as pd
from matplotlib.figure import Figure

from harness.figures.intervals import across_seeds
from harness.figures.labels import label
from harness.figures.settings import NotDrawn
from harness.figures.style import canvas, curve_handle, in_order, legend_below, looks, percent, styled

CAPTION = """Each mark is a policy: means over seeds with bootstrap 95 % intervals. Up and to the right is better for both. A request
misses its objectives when its first token, or the 99th percentile of the times between its tokens, is late, or it never finishes."""
INSIDE: tuple[str, ...] = ()
ONLINE, OFFLINE = "slo_met_share", "goodput_gpu_s_offline"
ENDS = ("mean", "ci_low", "ci_high")
NEAR = 0.5
"""A second panel shows the policies that have at least so much of the best share of objectives met."""


def draw(summary: pd.DataFrame, note: str = "") -> Figure:
    """One panel from the summary of one setting of co-located cells."""
    if not {ONLINE, OFFLINE} <= set(summary) or not summary[OFFLINE].notna().any() or not summary[ONLINE].notna().any():
        raise NotDrawn("no cell has both requests with objectives and offline work")
    x, y = (across_seeds(summary, metric).set_index("policy")[list(ENDS)].astype(float) for metric in (OFFLINE, ONLINE))
    policies = [policy for policy in in_order(list(x.index)) if policy in y.index]
    look = looks(policies)
    near = [policy for policy in policies if y.loc[policy, "mean"] >= NEAR * y["mean"].max()]
    with styled():
        figure = canvas(3.2, message(*(found.loc[near if len(near) > 1 else policies, "mean"] for found in (y, x))), note)
        panels = figure.subplots(1, 1 + (len(near) < len(policies)), squeeze=False)[0]
        for axes, shown in zip(panels, (policies, near), strict=False):
            for policy in shown:
                across, up = x.loc[policy] * label(OFFLINE).scale, y.loc[policy] * label(ONLINE).scale
                axes.plot([across["ci_low"], across["ci_high"]], [up["mean"]] * 2, color=look[policy].colour)
                axes.plot([across["mean"]] * 2, [up["ci_low"], up["ci_high"]], color=look[policy].colour)
                axes.plot(across["mean"], up["mean"], look[policy].mark, color=look[policy].colour, markersize=7)
            axes.set_xlabel(label(OFFLINE).axis)
            axes.margins(0.12)
        panels[0].set_ylabel("requests that meet their\nobjectives (%)")
        if len(panels) > 1:
            panels[0].set_title("all policies")
            panels[1].set_title("those near the best for users")
        legend_below(figure, [curve_handle(policy, look[policy]._replace(line="")) for policy in policies])
    return figure


def message(online: pd.Series, offline: pd.Series) -> str:
    """The headline: the best and the worst for users of these policies, and what batch owners get under both."""
    best, worst = online.idxmax(), online.idxmin()
    if best == worst:
        return f"{percent(online[best])} of the requests meet their objectives under {best}"
    hours = label(OFFLINE).scale
    return (f"{percent(online[best])} of the requests meet their objectives under {best}, {percent(online[worst])} under {worst}; offline "
            f"work gets {offline[best] * hours:,.0f} and {offline[worst] * hours:,.0f} GPU h done")
