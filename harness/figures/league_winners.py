"""Which policy wins where: the best of each class in every setting of a league."""

from collections import Counter

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from harness.figures.intervals import MIN_SEEDS
from harness.figures.labels import label
from harness.figures.settings import NotDrawn, value_text
from harness.figures.standings import CLASSES, LOAD, winners
from harness.figures.style import INK, PALE, canvas, legend_below, starred, styled

CAPTION = f"""The policy with the best mean over seeds, by class, workload, cluster and load. '+n': so many others keep level, their
paired bootstrap 95 % interval to the winner does not leave zero out, or there are fewer than {MIN_SEEDS} seeds. Intervals are not
corrected for the number of comparisons. * a reconstruction."""
INSIDE = None
CLEAR, LEVEL = "#BFD9EC", "#F2F2F2"


def draw(summary: pd.DataFrame, note: str = "") -> Figure:
    """One panel for each class, workloads by clusters and loads, from the summary of a league."""
    won = winners(summary)
    if won.empty:
        raise NotDrawn("no cell has online, batch or training jobs that ran")
    clusters, loads = list(dict.fromkeys(won["cluster"])), sorted(won[LOAD].unique())
    kinds = {kind: list(dict.fromkeys(won.loc[won["kind"] == kind, "workload"])) for kind in CLASSES if (won["kind"] == kind).any()}
    columns, policies = [(cluster, load) for cluster in clusters for load in loads], summary["policy"].nunique()
    with styled():
        figure = canvas(0.3 * sum(map(len, kinds.values())) + 0.12 * len(kinds) + 1.1, message(won), note)
        grid = figure.subplots(len(kinds), 1, squeeze=False, height_ratios=[len(rows) for rows in kinds.values()])[:, 0]
        for axes, (kind, workloads) in zip(grid, kinds.items(), strict=True):
            mine = won[won["kind"] == kind]
            for row in mine.itertuples():
                x, y = columns.index((row.cluster, getattr(row, LOAD))), workloads.index(str(row.workload))
                others = len(str(row.level).split())
                axes.add_patch(Rectangle((x, y), 1, 1, facecolor=LEVEL if others else CLEAR, edgecolor="white"))
                text = "all level" if 0 < others == policies - 1 else wrapped(starred(str(row.winner))) + (f" +{others}" if others else "")
                axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=5.5, color=INK, linespacing=1.0)
            axes.set_xlim(0, len(columns))
            axes.set_ylim(len(workloads), 0)
            axes.set_yticks([i + 0.5 for i in range(len(workloads))], workloads, fontsize=7)
            axes.set_xticks([])
            for edge in range(len(loads), len(columns), len(loads)):
                axes.axvline(edge, color=INK, linewidth=0.8)
            axes.grid(visible=False)
            axes.tick_params(length=0)
            axes.spines[:].set_color(PALE)
            axes.set_ylabel(label(CLASSES[kind]).text, fontsize=8)
        for i, cluster in enumerate(clusters):
            grid[0].text((i + 0.5) * len(loads), -0.12, cluster, ha="center", fontsize=8)
        grid[-1].set_xticks([i + 0.5 for i in range(len(columns))], [value_text(load) for _, load in columns], fontsize=7)
        grid[-1].set_xlabel("load")
        legend_below(figure, [Patch(color=CLEAR, label="clear lead"), Patch(color=LEVEL, label="others keep level")])
    return figure


def wrapped(name: str) -> str:
    """A policy's name in two lines where it is long."""
    if len(name) <= 10 or "_" not in name:
        return name
    cut = min((i for i, letter in enumerate(name) if letter == "_"), key=lambda i: abs(2 * i - len(name)))
    return f"{name[:cut + 1]}\n{name[cut + 1:]}"


def message(won: pd.DataFrame) -> str:
    """The headline: who is best, and how often clearly, in each class."""
    parts = []
    for kind, mine in won.groupby("kind", sort=False):
        ((name, times),) = Counter(mine["winner"]).most_common(1)
        clear = int(((mine["winner"] == name) & (mine["level"] == "")).sum())
        parts.append(f"{kind}: {starred(str(name))} in {times} of {len(mine)} settings ({clear} clearly)")
    return f"Most wins, {'; '.join(parts)}"
