"""Throughput against externality of batch formation rules."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from harness.figures.labels import number
from harness.figures.settings import NotDrawn
from harness.figures.style import BLUE, GREY, VERMILLION, Look, canvas, curve_handle, legend_below, styled

CAPTION = """Means over seeds. Externality: how much larger the caches are that requests are batched with than their own, summed over
steps, against their own. ISJL is a reconstruction from its abstract; its delta goes from 0 (LJF) to none."""
RECONSTRUCTED = {"ISJL": "ISJL (reconstruction)"}
LOOKS = {"LJF": Look(GREY, "", "s"), "ISJL": Look(BLUE, "-", "o"), "FCFS": Look(VERMILLION, "", "^")}


def draw(frontier: pd.DataFrame, note: str = "") -> Figure:
    """Columns of ``frontier``: rule, delta, throughput (against LJF), externality."""
    if frontier.empty:
        raise NotDrawn("there is no frontier")
    best = frontier.loc[frontier["throughput"].idxmax()]
    with styled():
        name = RECONSTRUCTED.get(str(best["rule"]), best["rule"])
        figure = canvas(2.9, f"{name} gains {100 * best['throughput']:.0f} % throughput over LJF at an externality of "
                             f"{number(float(best['externality']))}", note)
        axes = figure.add_subplot()
        for rule, points in frontier.groupby("rule", sort=False):
            look = LOOKS[str(rule)]
            points = points.sort_values("externality")
            axes.plot(points["externality"], points["throughput"], color=look.colour, linestyle=look.line, marker=look.mark)
            if rule == "ISJL":
                for i, (_, row) in enumerate(points.iterrows()):
                    text = "no limit" if row["delta"] == float("inf") else f"delta {row['delta']:g}"
                    above = i % 2 == 0
                    axes.annotate(text, (row["externality"], row["throughput"]), (0, 8 if above else -14), textcoords="offset points",
                                  ha="center", fontsize=8)
        axes.set_xlabel("externality (larger caches met, over own)")
        axes.set_ylabel("throughput against LJF")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        legend_below(figure, [curve_handle(RECONSTRUCTED.get(name, name), look) for name, look in LOOKS.items()])
    return figure
