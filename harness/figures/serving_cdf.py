"""Distributions of the time to first token and of the time between tokens."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.figures.labels import number
from harness.figures.settings import NotDrawn
from harness.figures.style import canvas, curve_handle, in_order, legend_below, log_axis, looks, styled

CAPTION = """Cumulative distributions over all requests of all seeds that made a first token, and of the 99th percentile of each request's
times between tokens. Curves get thinner in the order of the legend, so that equal ones stay visible."""
INSIDE: tuple[str, ...] = ()
COLUMNS = ("ttft_s", "tbt_p99_s")
TEXTS = {"ttft_s": "time to first token (s)", "tbt_p99_s": "p99 time between tokens (s)"}
POINTS = np.unique(np.concatenate([np.linspace(0, 1, 141), 1 - np.logspace(-2, -4, 15)]))


def draw(requests: pd.DataFrame, note: str = "") -> Figure:
    """CDFs by policy, from the requests of one setting."""
    policies = in_order(list(requests["policy"].astype(str)))
    columns = [c for c in COLUMNS if (requests[c] > 0).any()]
    if not columns:
        raise NotDrawn("no request made a token")
    look = looks(policies)
    width = dict(zip(policies, np.linspace(max(1.5, min(3.6, 1.2 + 0.5 * len(policies))), 1.2, len(policies)), strict=True))
    with styled():
        figure = canvas(2.7, message(requests), note)
        panels = figure.subplots(1, len(columns), squeeze=False, sharey=True)[0]
        for axes, column in zip(panels, columns, strict=True):
            low, high = np.inf, 0.0
            for policy in policies:
                values = requests.loc[requests["policy"] == policy, column].dropna().to_numpy(dtype=float)
                values = values[values > 0]
                if len(values):
                    at = np.quantile(values, POINTS)
                    axes.plot(at, POINTS, color=look[policy].colour, linestyle=look[policy].line, linewidth=width[policy])
                    low, high = min(low, at[0]), max(high, at[-1])
            log_axis(axes, low / 1.2, high * 1.2)
            axes.set_ylim(0, 1.02)
            axes.set_xlabel(TEXTS[column])
        panels[0].set_ylabel("share of requests")
        legend_below(figure, [curve_handle(p, look[p], mark=False, width=width[p]) for p in policies])
    return figure


def message(requests: pd.DataFrame) -> str:
    """The headline: the 99th percentile of the time to first token."""
    p99 = requests.groupby("policy", observed=True)["ttft_s"].quantile(0.99).dropna()
    if p99.empty:
        return "No request made a token"
    least, most = p99.idxmin(), p99.idxmax()
    told = f"99\N{NO-BREAK SPACE}% of requests have their first token within {number(p99[least])} s under {least}"
    return told if least == most else f"{told}, {number(p99[most])} s under {most}"
