"""Online jobs against batch owners: queueing delay and goodput of every policy, for each workload that has both."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.figures.comparisons import default_baseline
from harness.figures.intervals import Interval, interval
from harness.figures.settings import NotDrawn
from harness.figures.standings import field, relative
from harness.figures.style import GREY, canvas, curve_handle, in_order, legend_below, log_axis, looks, starred, styled

CAPTION = """Means over clusters and loads, with bootstrap 95 % intervals over seeds; mean goodput over the baseline's. Up and to the
left is better for both. Coloured policies are those that no other beats in both means (the Pareto front, joined by a line); the others are
grey. Delays below 1 s count as 1 s. * a reconstruction."""
INSIDE = None
LEAST_S = 1.0


def draw(summary: pd.DataFrame, note: str = "") -> Figure:
    """One panel for each workload with online and batch jobs, from the summary of a league."""
    panels, baseline = {}, default_baseline(summary)
    if baseline is None:
        raise NotDrawn("a single policy is not compared")
    for workload, cells in summary.groupby("workload", sort=False, observed=True):
        try:
            panels[str(workload)] = points(cells, baseline)
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
                across, up = np.maximum(x[:3], LEAST_S), 100 * np.array(y[:3])
                axes.plot(across[1:], [up[0]] * 2, color=colour, linewidth=0.8, zorder=depth)
                axes.plot([across[0]] * 2, up[1:], color=colour, linewidth=0.8, zorder=depth)
                axes.plot(across[0], up[0], mark.mark if mark else "o", color=colour, markersize=6 if mark else 3, zorder=depth + 1)
            best = np.array([[max(found[p][0].mean, LEAST_S), 100 * found[p][1].mean] for p in fronts[workload]])
            axes.plot(best[:, 0], best[:, 1], color=GREY, linewidth=0.8, linestyle=":", zorder=1)
            ends = np.maximum([end for x, _ in found.values() for end in x[:3] if np.isfinite(end)], LEAST_S)
            log_axis(axes, float(ends.min()) / 1.5, float(ends.max()) * 1.5, most=4)
            axes.margins(y=0.08)
            axes.set_title(workload)
            axes.set_xlabel("online queueing delay (s)")
        grid[0].set_ylabel(f"batch goodput (% of {baseline}'s)")
        legend_below(figure, [curve_handle(starred(policy), look[policy]._replace(line="")) for policy in named])
    return figure


def points(cells: pd.DataFrame, baseline: str) -> dict[str, tuple[Interval, Interval]]:
    """Delay (s), and goodput over that of ``baseline``, of each policy, means over settings, for policies that have both.

    Raises NotDrawn where one of the classes is absent or nobody has both.
    """
    delay, goodput = field(cells, "online"), field(cells, "batch")
    shares = relative(goodput, baseline) if baseline in goodput.policies else np.full(goodput.values.shape[1:], np.nan)
    pairs = {policy: (interval(delay.values[:, i].mean(axis=0)), interval(shares[i])) for i, policy in enumerate(delay.policies)}
    found = {policy: (x, y) for policy, (x, y) in pairs.items() if x.n and y.n}
    if not found:
        raise NotDrawn("no policy has both in all settings")
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
    told = f"{', '.join(map(starred, always))} {'is' if len(always) == 1 else 'are'} on all of them" if always else "none is on all of them"
    return f"Policies that nobody beats for online and batch at once: {sizes}; {told}"
