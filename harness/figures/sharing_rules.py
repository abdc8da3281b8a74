"""Least progress and fairness of jobs that share links, under three rules of sharing."""

import pandas as pd
from matplotlib.figure import Figure

from harness.figures.settings import NotDrawn
from harness.figures.style import BLUE, GREEN, VERMILLION, Look, canvas, curve_handle, legend_below, percent, styled

CAPTION = """Random jobs between six racks under two spines. Progress rate: time of an iteration alone over its time when links are
shared. Means over instances; LEVELLER is a reconstruction."""
LOOKS = {"leveller": Look(BLUE, "-", "o"), "max_min": Look(GREEN, "--", "s"), "fifo": Look(VERMILLION, ":", "^")}
NAMES = {"leveller": "LEVELLER (reconstruction)", "max_min": "max-min per flow", "fifo": "FIFO"}


def draw(measured: pd.DataFrame, note: str = "") -> Figure:
    """Columns of ``measured``: jobs, rule, least and jain, one row for each instance."""
    if measured.empty:
        raise NotDrawn("there are no instances")
    mean = measured.groupby(["rule", "jobs"])[["least", "jain"]].mean().reset_index()
    most = mean[mean["jobs"] == mean["jobs"].max()].set_index("rule")["least"]
    with styled():
        figure = canvas(2.9, f"With {mean['jobs'].max()} jobs the slowest runs at {percent(most['leveller'])} of its speed under LEVELLER, "
                             f"at {percent(most['max_min'])} under max-min per flow", note)
        left, right = figure.subplots(1, 2)
        for rule, look in LOOKS.items():
            rows = mean[mean["rule"] == rule]
            for axes, column in ((left, "least"), (right, "jain")):
                axes.plot(rows["jobs"], rows[column], color=look.colour, linestyle=look.line, marker=look.mark, clip_on=False)
        for axes, text in ((left, "least progress rate"), (right, "Jain's index of progress rates")):
            axes.set_xlabel("jobs")
            axes.set_ylabel(text)
            axes.set_ylim(0, 1)
        legend_below(figure, [curve_handle(NAMES[rule], look) for rule, look in LOOKS.items()])
    return figure
