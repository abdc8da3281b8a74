"""A day of co-location: load, replicas wanted and ready, GPUs by class, evictions, and time to first token, by policy."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from harness.figures.labels import number
from harness.figures.settings import NotDrawn
from harness.figures.style import BLUE, INK, KINDS, ORANGE, SKY, VERMILLION, Look, canvas, curve_handle, in_order, legend_below, styled

CAPTION = """One seed (the lowest), means over each interval. Replicas: load at full throughput, what the autoscaler wants, and what is
there with its model loaded. GPUs: held by replicas and by batch and training. Evictions of offline jobs in each interval. Time to first
token: 99th percentile of the requests that arrive in the interval; gaps: more than 1 % never got one."""
INSIDE: tuple[str, ...] = ()
COLUMNS = ("t_start", "t_end", "load", "wanted", "ready", "gpu_online", "gpu_offline", "victims", "ttft_p99_s")
ACROSS = 3
"""Policies side by side; more are left out."""
LOAD, WANTED, READY = Look(INK, "-", ""), Look(ORANGE, "-", ""), Look(BLUE, "--", "")


def draw(timeline: pd.DataFrame, note: str = "") -> Figure:
    """Four panels for each policy, from the timelines of one setting."""
    first = timeline[timeline["seed"] == timeline["seed"].min()]
    policies = in_order(list(first["policy"].astype(str)))
    if not policies:
        raise NotDrawn("there are no intervals")
    shown = policies if len(policies) <= ACROSS else [*policies[: ACROSS - 1], policies[-1]]
    first = first[first["policy"].isin(shown)]
    unit, seconds = ("hours", 3600.0) if np.ptp(first["t_end"]) > 7200 else ("minutes", 60.0)
    begin = float(first["t_start"].min())
    finite = first["ttft_p99_s"].replace(np.inf, np.nan)
    with styled():
        figure = canvas(6.0, message(first), note)
        panels = figure.subplots(4, len(shown), sharex=True, sharey="row", squeeze=False, height_ratios=[1.6, 1.3, 0.8, 1.2])
        for column, policy in zip(panels.T, shown, strict=True):
            rows = first[first["policy"] == policy].sort_values("t_start")
            edges = (np.append(rows["t_start"], rows["t_end"].iloc[-1]) - begin) / seconds
            for name, look, width in (("load", LOAD, 0.8), ("wanted", WANTED, 1.4), ("ready", READY, 1.2)):
                column[0].stairs(rows[name], edges, baseline=None, color=look.colour, linestyle=look.line, linewidth=width)
            column[1].stairs(rows["gpu_offline"], edges, fill=True, color=SKY)
            both = rows["gpu_offline"] + rows["gpu_online"]
            column[1].stairs(both, edges, baseline=rows["gpu_offline"], fill=True, color=KINDS["online"])
            column[2].stairs(rows["victims"], edges, fill=True, color=VERMILLION)
            middle = 0.5 * (edges[1:] + edges[:-1])
            column[3].plot(middle, rows["ttft_p99_s"].replace(np.inf, np.nan), color=INK, linewidth=1.0)
            column[3].set_yscale("log")
            column[0].set_title(policy)
            column[0].set_xlim(0, edges[-1])
            column[3].set_xlabel(f"time ({unit})")
        for axes in panels[:3, 0]:
            axes.set_ylim(0, None)
        if finite.notna().any():
            panels[3, 0].set_ylim(0.8 * float(finite[finite > 0].min()), 1.5 * float(finite.max()))
        for axes, text in zip(panels[:, 0], ("replicas", "GPUs", "evictions", "TTFT p99 (s)"), strict=True):
            axes.set_ylabel(text, fontsize=8)
        figure.align_ylabels(panels[:, 0])
        legend_below(figure, [
            curve_handle("load", LOAD, False, 0.8), curve_handle("replicas wanted", WANTED, False),
            curve_handle("replicas ready", READY, False),
            Patch(color=KINDS["online"], label="GPUs of replicas"), Patch(color=SKY, label="GPUs of offline work"),
            Patch(color=VERMILLION, label="offline jobs evicted"),
        ], columns=3)
    return figure


def message(rows: pd.DataFrame) -> str:
    """The headline: time to first token in the median interval, and evictions, by policy."""
    policies = in_order(list(rows["policy"].astype(str).unique()))
    mine = {policy: rows[rows["policy"] == policy] for policy in policies}
    waits = ", ".join(f"{number(float(mine[policy]['ttft_p99_s'].median()))}\N{NO-BREAK SPACE}s under {policy}" for policy in policies)
    evicted = ", ".join(f"{int(mine[policy]['victims'].sum()):,}" for policy in policies)
    return f"The p99 time to first token of the median interval is {waits}; offline jobs evicted: {evicted}"
