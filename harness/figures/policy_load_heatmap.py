"""One metric over policy and load."""

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from harness.figures.labels import label, number
from harness.figures.settings import LOADS, NotDrawn, load_column, short, value_text
from harness.figures.style import canvas, in_order, styled

CAPTION = """Means over seeds. Darker is worse; the best policy for each load is set in bold."""
INSIDE = tuple(LOADS)
METRIC = "wait_s_p99_online"


def draw(summary: pd.DataFrame, note: str = "", metric: str = METRIC) -> Figure:
    """``metric`` by policy and load, annotated, from the summary of one setting."""
    column = load_column(summary)
    if metric not in summary or summary[metric].notna().sum() == 0:
        raise NotDrawn(f"{metric} has no values")
    told = label(metric)
    means = told.scale * summary.groupby(["policy", column], observed=True)[metric].mean().unstack(column)
    means = means.loc[in_order(list(means.index))].dropna(how="all")
    values = means.to_numpy(dtype=float)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    scale = LogNorm(max(low, high / 1e4), high) if low >= 0 and high > 20 * max(low, high / 1e4) else Normalize(min(low, 0), high or 1.0)
    bold = leading(values, told.better)
    with styled():
        figure = canvas(0.34 * len(means) + 0.95, message(means, told.better, told.text), note)
        axes = figure.add_subplot()
        shown = np.where(np.isnan(values), np.nan, np.clip(values, scale.vmin, scale.vmax))
        mesh = axes.pcolormesh(shown, cmap="cividis_r" if told.better <= 0 else "cividis", norm=scale, edgecolors="white", linewidth=1.0)
        for (row, col), value in np.ndenumerate(values):
            shade = mesh.to_rgba(shown[row, col])[:3]
            dark = float(np.dot(shade, (0.299, 0.587, 0.114))) < 0.5
            axes.text(
                col + 0.5,
                row + 0.5,
                number(value),
                ha="center",
                va="center",
                fontsize=8,
                color="white" if dark and np.isfinite(value) else "black",
                fontweight="bold" if bold[row, col] else "normal",
            )
        axes.set_yticks(np.arange(len(means)) + 0.5, list(means.index))
        axes.set_xticks(np.arange(means.shape[1]) + 0.5, [value_text(v) for v in means.columns])
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel(LOADS[short(column)])
        figure.colorbar(mesh, ax=axes, label=told.axis, aspect=max(6, 5 * len(means)), pad=0.02)
    return figure


def message(means: pd.DataFrame, better: int, text: str) -> str:
    """The headline: who is best at how many of the loads."""
    if len(means) == 1:
        return f"{text.capitalize()} of {means.index[0]} over the load"
    lead = leading(means.to_numpy(dtype=float), better)
    wins = lead.sum(axis=1)
    first = wins == wins.max()
    leaders = means.index[first]
    words = "lowest" if better <= 0 else "highest"
    if (lead[first].any(axis=0) & lead[~first].any(axis=0)).any():
        words += ", or as low," if better <= 0 else ", or as high,"
    others = f" and {len(leaders) - 1} others" if len(leaders) > 2 else f" and {leaders[1]}" if len(leaders) == 2 else ""
    return f"{text.capitalize()} is {words} under {leaders[0]}{others} at {wins.max()} of {means.shape[1]} loads"


def leading(values: np.ndarray, better: int) -> np.ndarray:
    """Which of ``values`` (policies, loads) are the best of their load, equal ones included."""
    best = np.nanmin(values, axis=0) if better <= 0 else np.nanmax(values, axis=0)
    return np.isclose(values, best, rtol=1e-9, atol=0)
