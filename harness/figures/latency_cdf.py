"""Distributions of waiting time and job completion time."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.figures.labels import number
from harness.figures.settings import NotDrawn
from harness.figures.style import KINDS, Look, canvas, curve_handle, in_order, legend_below, looks, styled

CAPTION = """Cumulative distributions over all jobs of all seeds. Waiting time (first start minus submission) covers every job
that was not rejected, with the waiting so far of those that never started; its axis is linear below 1 s and logarithmic
above. Job completion time (JCT) covers finished jobs. Curves get thinner in the order of the legend, so that equal ones stay
visible."""
INSIDE: tuple[str, ...] = ()
COLUMNS = ("kind", "status", "wait_s", "jct_s")
WAITED = ("finished", "running", "waiting")
POINTS = np.unique(np.concatenate([np.linspace(0, 1, 141), 1 - np.logspace(-2, -4, 15)]))


def draw(jobs: pd.DataFrame, note: str = "") -> Figure:
    """CDFs of wait_s and jct_s for each kind by policy, from the jobs of one setting."""
    kinds = [k for k in ("online", "batch", "training") if (jobs["kind"] == k).any()]
    policies = in_order(list(jobs["policy"].astype(str)))
    if not kinds:
        raise NotDrawn("there are no jobs")
    look, width = (
        looks(policies),
        dict(zip(policies, np.linspace(max(1.5, min(3.6, 1.2 + 0.5 * len(policies))), 1.2, len(policies)), strict=True)),
    )
    with styled():
        figure = canvas(4.3, message(jobs, policies), note)
        panels = figure.subplots(2, len(kinds), squeeze=False, sharey=True)
        rows = (("wait_s", "waiting time (s)", WAITED), ("jct_s", "job completion time (s)", ("finished",)))
        for i, (column, text, statuses) in enumerate(rows):
            for k, kind in enumerate(kinds):
                axes = panels[i, k]
                chosen = jobs[(jobs["kind"] == kind) & jobs["status"].isin(statuses)]
                drawn = [cdf(axes, chosen.loc[chosen["policy"] == p, column], look[p], width[p]) for p in policies]
                time_axis(axes, [values for values in drawn if len(values)], from_zero=column == "wait_s")
                axes.set_xlabel(text)
                axes.set_ylim(0, 1.02)
                if i == 0:
                    axes.set_title(kind)
                if k == 0:
                    axes.set_ylabel("share of jobs")
        legend_below(figure, [curve_handle(p, look[p], mark=False, width=width[p]) for p in policies])
    return figure


def cdf(axes: Axes, values: pd.Series, look: Look, width: float) -> np.ndarray:
    """Draws the distribution of ``values`` and returns its quantiles at POINTS; nothing when there are none."""
    values = values.dropna()
    if values.empty:
        return np.zeros(0)
    at = np.quantile(values.to_numpy(dtype=float), POINTS)
    axes.plot(at, POINTS, color=look.colour, linestyle=look.line, linewidth=width, drawstyle="steps-post")
    return at


def time_axis(axes: Axes, quantiles: list[np.ndarray], from_zero: bool) -> None:
    """A logarithmic time axis around all ``quantiles``; with ``from_zero`` it starts with a linear part from 0 to 1 s."""
    top = max((q[-1] for q in quantiles), default=10.0)
    last = max(1, int(np.ceil(np.log10(max(top, 10.0)))))
    first = 0
    if from_zero:
        axes.set_xscale("symlog", linthresh=1.0, linscale=0.5)
    else:
        axes.set_xscale("log")
        low = min((np.interp(0.005, POINTS, q) for q in quantiles), default=1.0)
        first = min(last - 1, int(np.floor(np.log10(max(low, 1.0)))))
    axes.set_xlim(-0.2 if from_zero else 10.0**first, 10.0**last)
    powers = range(first, last + 1, 1 + (last - first) // 5)
    texts = [f"$10^{{{d}}}$" if d > 1 else str(10**d) for d in powers]
    axes.set_xticks([*([0.0] if from_zero else []), *(10.0**d for d in powers)], [*(["0"] if from_zero else []), *texts])
    axes.minorticks_off()


def message(jobs: pd.DataFrame, policies: list[str]) -> str:
    """The headline: the 99th percentile of waiting of the first class that is there."""
    kind = next(k for k in KINDS if (jobs["kind"] == k).any())
    waited = jobs[(jobs["kind"] == kind) & jobs["status"].isin(WAITED)]
    p99 = waited.groupby("policy", observed=True)["wait_s"].quantile(0.99).dropna()
    if p99.empty:
        return f"No {kind} job ever waited"
    least, most = p99.idxmin(), p99.idxmax()
    within = {policy: "at once" if value == 0 else f"within {number(value)} s" for policy, value in p99.items()}
    if within[least] == within[most]:
        return f"99\N{NO-BREAK SPACE}% of {kind} jobs start {within[most]}" + (" under every policy" if len(policies) > 1 else "")
    return f"99\N{NO-BREAK SPACE}% of {kind} jobs start {within[least]} under {least}, {within[most]} under {most}"
