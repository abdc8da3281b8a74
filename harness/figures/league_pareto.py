"""Online jobs against batch owners: queueing delay and goodput of every policy, for each workload that has both."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.figures.intervals import Interval, interval
from harness.figures.labels import label
from harness.figures.settings import NotDrawn
from harness.figures.standings import CLASSES, field
from harness.figures.style import GREY, canvas, curve_handle, in_order, legend_below, log_axis, looks, styled

CAPTION = """Means over clusters, loads and seeds with bootstrap 95 % intervals over seeds. Up and to the left is better for both. Coloured
policies are those that no other beats in both means (the Pareto front, joined by a line); the others are grey. Delays below 1 s are drawn
at 1 s."""
INSIDE = None
X, Y = CLASSES["online"], CLASSES["batch"]
LEAST_S = 1.0


def draw(summary: pd.DataFrame, note: str = "") -> Figure:
    """One panel for each workload with online and batch jobs, from the summary of a league."""
    panels = {}
    for workload, cells in summary.groupby("workload", sort=False, observed=True):
        try:
            panels[str(workload)] = points(cells)
        except NotDrawn:
            continue
    if not panels:
        raise NotDrawn("no workload has both online and batch jobs")
    fronts = {workload: front(found) for workload, found in panels.items()}
    named = in_order([policy for names in fronts.values() for policy in names])
    look = looks(named)
    with styled():
        figure = canvas(2.9 + 0.17 * -(-len(named) // 4), message(fronts), note)
        grid = np.atleast_1d(figure.subplots(1, len(panels)))
        for axes, (workload, found) in zip(grid, panels.items(), strict=True):
            for policy, (x, y) in found.items():
                mark = look[policy] if policy in fronts[workload] else None
                colour, depth = (mark.colour, 4) if mark else (GREY, 2)
                across, up = np.maximum(x[:3], LEAST_S), np.array(y[:3]) * label(Y).scale
                axes.plot(across[1:], [up[0]] * 2, color=colour, linewidth=0.8, zorder=depth)
                axes.plot([across[0]] * 2, up[1:], color=colour, linewidth=0.8, zorder=depth)
                axes.plot(across[0], up[0], mark.mark if mark else "o", color=colour, markersize=6 if mark else 3, zorder=depth + 1)
            best = np.array([[max(found[p][0].mean, LEAST_S), found[p][1].mean * label(Y).scale] for p in fronts[workload]])
            axes.plot(best[:, 0], best[:, 1], color=GREY, linewidth=0.8, linestyle=":", zorder=1)
            ends = np.maximum([end for x, _ in found.values() for end in x[:3] if np.isfinite(end)], LEAST_S)
            log_axis(axes, float(ends.min()) / 1.5, float(ends.max()) * 1.5, most=4)
            axes.margins(y=0.08)
            axes.set_title(workload)
            axes.set_xlabel("online queueing delay (s)")
        grid[0].set_ylabel(label(Y).axis)
        legend_below(figure, [curve_handle(policy, look[policy]._replace(line="")) for policy in named])
    return figure


def points(cells: pd.DataFrame) -> dict[str, tuple[Interval, Interval]]:
    """Delay (s) and goodput (GPU s) of each policy, means over settings. Raises NotDrawn where one of the classes is absent."""
    x, y = (field(cells, kind) for kind in ("online", "batch"))
    found = {}
    for i, policy in enumerate(x.policies):
        pair = tuple(interval(one.values[:, i].mean(axis=0)) for one in (x, y))
        if all(one.n for one in pair):
            found[policy] = pair
    return found


def front(found: dict[str, tuple[Interval, Interval]]) -> list[str]:
    """Policies that no other is at least as good as in both means and better in one, by rising delay; of equal ones all."""
    means = {policy: (max(x.mean, LEAST_S), -y.mean) for policy, (x, y) in found.items()}
    kept = [policy for policy, mine in means.items()
            if not any(other != mine and other[0] <= mine[0] and other[1] <= mine[1] for other in means.values())]
    return sorted(kept, key=lambda policy: means[policy])


def message(fronts: dict[str, list[str]]) -> str:
    """The headline: who is on the front everywhere."""
    always = [policy for policy in in_order([p for names in fronts.values() for p in names])
              if all(policy in names for names in fronts.values())]
    sizes = ", ".join(f"{len(names)} for {workload}" for workload, names in fronts.items())
    told = f"{', '.join(always)} {'is' if len(always) == 1 else 'are'} on all of them" if always else "none is on all of them"
    return f"Policies that nobody beats for online and batch at once: {sizes}; {told}"
