"""Seconds of a model switch over the size of the model: published, replayed, and the fit that is the input."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.figures.labels import number
from harness.figures.settings import NotDrawn
from harness.figures.style import BLUE, INK, VERMILLION, Look, canvas, curve_handle, legend_below, styled

CAPTION = """What putting a model in the place of another adds to the first token of a request. Lines: the published fit over the weights
(fp16), which is an input; filled marks: published; open marks: replayed."""
LOOKS = (Look(VERMILLION, "-", "s"), Look(BLUE, "-", "o"))
NAMES = {"rtx5000_ada": "RTX\N{NO-BREAK SPACE}5000\N{NO-BREAK SPACE}Ada", "a6000": "RTX\N{NO-BREAK SPACE}A6000"}


def draw(costs: pd.DataFrame, note: str = "") -> Figure:
    """Columns of ``costs``: gpu, model, weights_gb, published, measured (s), fixed_s, s_per_gb."""
    if costs.empty:
        raise NotDrawn("no switch was measured")
    fits = {str(gpu): rows.iloc[0] for gpu, rows in costs.groupby("gpu", sort=False)}
    with styled():
        said = [f"{number(float(fit['fixed_s']), 2)} s + {number(float(fit['s_per_gb']), 2)} s/GB on an {NAMES.get(gpu, gpu)}"
                for gpu, fit in fits.items()]
        figure = canvas(2.7, f"A model switch costs {' and '.join(said)}", note)
        axes = figure.add_subplot()
        largest = 1.1 * float(costs["weights_gb"].max())
        at = np.array([0.0, largest])
        handles = []
        for (gpu, fit), look in zip(fits.items(), LOOKS, strict=False):
            rows = costs[costs["gpu"] == gpu]
            axes.plot(at, fit["fixed_s"] + fit["s_per_gb"] * at, color=look.colour, linewidth=1)
            axes.plot(rows["weights_gb"], rows["published"], look.mark, color=look.colour)
            axes.plot(rows["weights_gb"], rows["measured"], look.mark, color=look.colour, markerfacecolor="none", markersize=10)
            handles.append(curve_handle(NAMES.get(gpu, gpu), look))
        sizes = costs.drop_duplicates("model")
        for _, row in sizes.iterrows():
            axes.annotate(str(row["model"]), (row["weights_gb"], 0.2), ha="center", fontsize=8)
        axes.set_xlim(0, largest)
        axes.set_ylim(0, None)
        axes.set_xlabel("weights of the model switched to (GB)")
        axes.set_ylabel("penalty (s)")
        kinds = [curve_handle("published", Look(INK, "", "o")), curve_handle("replayed", Look(INK, "", "o"))]
        kinds[1].set_markerfacecolor("none")
        kinds[1].set_markersize(10)
        legend_below(figure, [*handles, *kinds])
    return figure
