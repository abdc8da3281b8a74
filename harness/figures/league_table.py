"""The league table: mean rank of every policy in each class of workload."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.figures.comparisons import default_baseline
from harness.figures.settings import NotDrawn
from harness.figures.standings import CLASSES, standings
from harness.figures.style import KINDS, Look, canvas, interval_mark, rows_axis, starred, styled

CAPTION = """Rank among all policies in the same setting under the same seed, 1 being the best, as mean over settings, with bootstrap 95 %
intervals over seeds; best mean over the classes first. Online jobs are ranked by how long they queue, batch and training jobs by the
work they get done until the horizon. * a reconstruction."""
INSIDE = None


def draw(summary: pd.DataFrame, note: str = "") -> Figure:
    """One panel for each class, from the summary of a league."""
    baseline = default_baseline(summary)
    if baseline is None:
        raise NotDrawn("a single policy has no rank")
    rows = standings(summary, baseline)
    rows = rows[rows["measure"] == "rank"]
    policies, kinds = list(dict.fromkeys(rows["policy"])), [kind for kind in CLASSES if (rows["kind"] == kind).any()]
    with styled():
        figure = canvas(0.17 * len(policies) + 0.75, message(rows), note)
        panels = np.atleast_1d(figure.subplots(1, len(kinds), sharey=True))
        for axes, kind in zip(panels, kinds, strict=True):
            mine = rows[rows["kind"] == kind].set_index("policy")
            rows_axis(axes, [starred(policy) for policy in policies])
            axes.tick_params(axis="y", labelsize=7)
            axes.grid(axis="y", visible=True)
            for y, policy in enumerate(policies):
                if policy in mine.index:
                    ends = mine.loc[policy, ["mean", "ci_low", "ci_high"]].to_numpy(dtype=float)
                    interval_mark(axes, y, ends, Look(KINDS[kind], "-", "o"), size=5)
            axes.set_xlim(0, len(policies) + 1)
            axes.set_title(kind)
            axes.set_xlabel(f"mean rank of {len(policies)}")
    return figure


def message(rows: pd.DataFrame) -> str:
    """The headline: the best of each class."""
    best = {str(kind): mine.loc[mine["mean"].idxmin()] for kind, mine in rows.groupby("kind", sort=False)}
    told = [f"{kind} jobs {starred(str(row['policy']))} ({row['mean']:.1f})" for kind, row in best.items()]
    return f"Best mean rank: for {', for '.join(told)}"
