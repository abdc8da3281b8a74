"""What waits were quoted at submission, against what was waited."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.figures.settings import LOADS, NotDrawn
from harness.figures.style import INK, Look, canvas, curve_handle, in_order, legend_below, log_axis, looks, percent, styled

CAPTION = """Jobs with a quote, in tenths by the quoted mean wait (a reconstruction: M/G/k by Erlang-C on each queue's quota, from the jobs
that came before). Left: mean wait of each tenth against the mean quote; on the dotted line they agree, below it the quote is on the safe
side. Right: share of each tenth that waited at most the quoted 95th percentile. Jobs called unfeasible have no quote and are left out."""
INSIDE = tuple(LOADS)
COLUMNS = ("quote_s", "quote_p95_s", "wait_s")
TENTHS = 10
LEAST_S = 1.0
"""Waits below this are drawn here: the axes are logarithmic."""


def draw(jobs: pd.DataFrame, note: str = "") -> Figure:
    """Two panels, one curve for each policy, from the jobs of one setting at all its loads."""
    told = jobs[jobs["quote_s"].notna()]
    found = {p: calibration(told[told["policy"].astype(str) == p]) for p in in_order(list(told["policy"].astype(str)))}
    found = {policy: rows for policy, rows in found.items() if len(rows)}
    if not found:
        raise NotDrawn("no job has a quote")
    look = looks(list(found))
    with styled():
        figure = canvas(3.0, message(found), note)
        left, right = figure.subplots(1, 2)
        waits = np.concatenate([rows[["quoted", "waited"]].to_numpy().ravel() for rows in found.values()])
        low, high = LEAST_S, max(10.0, 1.5 * float(waits.max()))
        for policy, rows in found.items():
            style = {"color": look[policy].colour, "linestyle": look[policy].line, "marker": look[policy].mark}
            at = np.maximum(rows["quoted"], LEAST_S)
            left.plot(at, np.maximum(rows["waited"], LEAST_S), **style)
            right.plot(at, 100 * rows["covered"], **style)
        left.plot([low, high], [low, high], color=INK, linewidth=0.9, linestyle=":", zorder=1)
        left.set_yscale("log")
        left.set_ylim(low, high)
        left.set_ylabel("mean wait (s)")
        right.axhline(95, color=INK, linewidth=0.9, linestyle=":", zorder=1)
        right.set_ylim(min(80.0, 100 * min(float(rows["covered"].min()) for rows in found.values()) - 5), 100.5)
        right.set_ylabel("waited at most the quoted p95 (%)")
        for axes in (left, right):
            log_axis(axes, low, high)
            axes.set_xlabel("quoted mean wait (s)")
        line = Look(INK, ":", "")
        legend_below(figure, [*(curve_handle(p, look[p]) for p in found), curve_handle("quote = wait; 95 %", line, width=0.9)])
    return figure


def calibration(told: pd.DataFrame) -> pd.DataFrame:
    """quoted and waited (means, s), covered (share within the quoted p95) and jobs, for each tenth by the quoted mean wait."""
    if told.empty:
        return pd.DataFrame(columns=pd.Index(["quoted", "waited", "covered", "jobs"]))
    tenth = np.minimum(told["quote_s"].rank(method="first").sub(1).floordiv(max(len(told) / TENTHS, 1)), TENTHS - 1)
    parts = told.assign(covered=told["wait_s"] <= told["quote_p95_s"]).groupby(tenth)
    return pd.DataFrame({"quoted": parts["quote_s"].mean(), "waited": parts["wait_s"].mean(), "covered": parts["covered"].mean(),
                         "jobs": parts.size()})


def message(found: dict[str, pd.DataFrame]) -> str:
    """The headline: coverage of all quoted jobs."""
    texts = [f"{percent(float(np.average(rows['covered'], weights=rows['jobs'])))} under {policy}" for policy, rows in found.items()]
    return "Waits are within the quoted 95th percentile (a reconstruction) for " + ", ".join(texts)
