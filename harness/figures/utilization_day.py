"""Allocation by class and queue length over time."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MultipleLocator

from harness.figures.labels import number
from harness.figures.settings import NotDrawn
from harness.figures.style import INK, KINDS, canvas, in_order, legend_below, styled

CAPTION = """Means over each interval of one seed (the lowest). Stacked: GPUs held by each class, claims and grace periods
included; the line is what running jobs hold. Below: jobs that wait."""
INSIDE: tuple[str, ...] = ()
COLUMNS = ("t_start", "t_end", "gpu_busy", *(f"gpu_alloc_{k}" for k in KINDS), "queue_len")
ACROSS = 3
"""Policies side by side."""


def draw(utilization: pd.DataFrame, note: str = "") -> Figure:
    """GPUs by class over time with the queue below, one pair of panels for each policy, from the utilization of one setting."""
    first = utilization[utilization["seed"] == utilization["seed"].min()]
    policies = in_order(list(first["policy"].astype(str)))
    if not policies:
        raise NotDrawn("there are no intervals")
    end = float(first["t_end"].max())
    unit, seconds = ("days", 86400.0) if end > 4 * 86400 else ("hours", 3600.0) if end > 7200 else ("minutes", 60.0)
    kinds = [k for k in KINDS if (first[f"gpu_alloc_{k}"] > 0).any()]
    across = min(ACROSS, len(policies))
    down = -(-len(policies) // across)
    with styled():
        figure = canvas(2.75 * down + 0.6, message(first), note)
        panels = figure.subplots(2 * down, across, sharex=True, sharey=False, squeeze=False, height_ratios=[2.4, 1.0] * down)
        top = 1.06 * float(first[[f"gpu_alloc_{k}" for k in KINDS]].sum(axis=1).max() or 1.0)
        longest = 1.08 * float(max(first["queue_len"].max(), 1.0))
        for i in range(down * across):
            upper, lower = panels[2 * (i // across), i % across], panels[2 * (i // across) + 1, i % across]
            if i >= len(policies):
                upper.set_axis_off()
                lower.set_axis_off()
                continue
            rows = first[first["policy"] == policies[i]].sort_values("t_start")
            edges = np.append(rows["t_start"], rows["t_end"].iloc[-1]) / seconds
            floor = np.zeros(len(rows))
            for kind in kinds:
                ceiling = floor + rows[f"gpu_alloc_{kind}"].to_numpy()
                upper.stairs(ceiling, edges, baseline=floor, fill=True, color=KINDS[kind])
                floor = ceiling
            upper.stairs(rows["gpu_busy"], edges, baseline=None, color=INK, linewidth=0.8)
            lower.stairs(rows["queue_len"], edges, baseline=None, color=INK, linewidth=1.0)
            upper.set_title(policies[i])
            upper.set_ylim(0, top)
            lower.set_ylim(0, longest)
            lower.set_xlim(0, end / seconds)
            if unit == "hours" and end > 6 * 3600:
                lower.xaxis.set_major_locator(MultipleLocator(6 if end <= 30 * 3600 else 12 if end <= 60 * 3600 else 24))
            for axes, text in ((upper, "GPUs"), (lower, "queue (jobs)")):
                axes.set_ylabel(text if i % across == 0 else "", fontsize=8)
                axes.tick_params(labelleft=i % across == 0)
            below = i + across >= len(policies)
            lower.tick_params(labelbottom=below)
            lower.set_xlabel(f"time ({unit})" if below else "")
        figure.align_ylabels(panels[:, 0])
        legend_below(
            figure,
            [
                *(Patch(color=KINDS[k], label=f"held by {k}") for k in kinds),
                Line2D([], [], color=INK, linewidth=0.8, label="held by running jobs"),
            ],
        )
    return figure


def message(rows: pd.DataFrame) -> str:
    """The headline: how full the cluster was and how long the queue grew."""
    weight = rows["t_end"] - rows["t_start"]
    held = (rows[[f"gpu_alloc_{k}" for k in KINDS]].sum(axis=1) * weight).groupby(rows["policy"], observed=True).sum()
    mean = held / weight.groupby(rows["policy"], observed=True).sum()
    queue = rows.groupby("policy", observed=True)["queue_len"].max()
    if len(mean) == 1:
        policy = mean.index[0]
        return f"{policy} holds {number(mean[policy])} GPUs on average while up to {number(queue[policy])} jobs wait"
    held_text = f"{number(mean.max())} GPUs are held on average under {mean.idxmax()}, {number(mean.min())} under {mean.idxmin()}"
    if number(mean.max()) == number(mean.min()):
        held_text = f"{number(mean.max())} GPUs are held on average under every policy"
    queue_text = f"{number(queue.min())} jobs under {queue.idxmin()}, {number(queue.max())} under {queue.idxmax()}"
    if number(queue.max()) == number(queue.min()):
        queue_text = f"{number(queue.max())} jobs"
    return f"{held_text}; the queue peaks at {queue_text}"
