"""Profit of batch formation rules over the price of a token."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from harness.figures.isjl_frontier import LOOKS, RECONSTRUCTED
from harness.figures.labels import number
from harness.figures.settings import NotDrawn
from harness.figures.style import INK, canvas, curve_handle, legend_below, styled

CAPTION = """Means over seeds. Profit: price x tokens - sum of step costs, as a share of revenue. The unit of price is the one at which LJF
breaks even; marks show where the other rules do. Every rule makes the same tokens. ISJL is a reconstruction from its abstract; the band
is its delta from 64 to none."""
DEAREST = 3.0


def draw(frontier: pd.DataFrame, note: str = "") -> Figure:
    """Columns of ``frontier``: rule, delta and price, at which the rule breaks even, over that of LJF."""
    if frontier.empty:
        raise NotDrawn("there is no frontier")
    at = np.linspace(0.75, DEAREST, 200)
    cheapest, dearest = (frontier.loc[index] for index in (frontier["price"].idxmin(), frontier["price"].idxmax()))
    with styled():
        name = RECONSTRUCTED.get(str(cheapest["rule"]), cheapest["rule"])
        figure = canvas(2.7, f"{name} breaks even at {number(float(cheapest['price']))} of the price per token that LJF needs, "
                             f"{dearest['rule']} at {number(float(dearest['price']))}", note)
        axes = figure.add_subplot()
        for rule, rows in frontier.groupby("rule", sort=False):
            look, prices = LOOKS[str(rule)], rows["price"].to_numpy(dtype=float)
            ends = [1 - price / at for price in (prices.min(), prices.max())]
            axes.fill_between(at, *ends, color=look.colour, alpha=0.25, linewidth=0)
            axes.plot(at, ends[0], color=look.colour)
            axes.plot(prices, np.zeros(len(prices)), look.mark, color=look.colour, zorder=3)
        axes.axhline(0.0, color=INK, linewidth=0.9, linestyle="--", zorder=1)
        axes.set_xlim(at[0], at[-1])
        axes.set_ylim(-1.0, 1.0)
        axes.set_xlabel("price of a token (1: LJF breaks even)")
        axes.set_ylabel("profit (share of revenue)")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        legend_below(figure, [curve_handle(RECONSTRUCTED.get(rule, rule), look._replace(line="-")) for rule, look in LOOKS.items()])
    return figure
