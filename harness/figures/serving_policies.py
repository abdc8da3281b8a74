"""Short and long requests by policy: queueing, throughput and completion, with intervals over seeds."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.figures.intervals import across_seeds
from harness.figures.labels import number
from harness.figures.settings import NotDrawn
from harness.figures.style import canvas, in_order, interval_mark, log_axis, looks, rows_axis, styled

CAPTION = """Means over seeds with bootstrap 95 % intervals. Queueing delay runs from arrival to the first prefill and hides the wait for
decode; throughput is short requests over the time at which the last of them completes; both are drain times where the system is
overloaded. Absolute values, never ratios alone."""
INSIDE: tuple[str, ...] = ()
PANELS = (
    ("queue_s_p99_short", "p99 queueing delay\nof short requests (s)", True),
    ("drain_rps_short", "short requests\nper second", False),
    ("e2e_s_mean_long", "mean completion time\nof long requests (s)", True),
)


def draw(summary: pd.DataFrame, note: str = "") -> Figure:
    """Three panels from the summary of one setting whose requests are short or long."""
    absent = [metric for metric, _, _ in PANELS if metric not in summary or not summary[metric].notna().any()]
    if absent:
        raise NotDrawn("no requests are told apart as short and long")
    found = {metric: across_seeds(summary, metric).set_index("policy") for metric, _, _ in PANELS}
    policies = in_order(list(found[PANELS[0][0]].index))
    look = looks(policies)
    with styled():
        figure = canvas(0.3 * len(policies) + 1.1, message(found[PANELS[0][0]]["mean"], found[PANELS[1][0]]["mean"]), note)
        panels = figure.subplots(1, len(PANELS), sharey=True)
        for axes, (metric, text, logarithmic) in zip(panels, PANELS, strict=True):
            rows_axis(axes, policies)
            values = found[metric]
            for y, policy in enumerate(policies):
                if policy in values.index:
                    interval_mark(axes, y, values.loc[policy, ["mean", "ci_low", "ci_high"]].to_numpy(dtype=float), look[policy])
            ends = values[["mean", "ci_low", "ci_high"]].to_numpy(dtype=float)
            ends = ends[np.isfinite(ends) & (ends > 0)]
            if logarithmic and len(ends) and ends.max() > 20 * ends.min():
                log_axis(axes, float(ends.min()) / 1.5, float(ends.max()) * 1.5)
            else:
                axes.set_xlim(0, 1.2 * float(ends.max()) if len(ends) else 1)
            axes.set_xlabel(text)
    return figure


def message(wait: pd.Series, rate: pd.Series) -> str:
    """The headline: the least and the most p99 queueing delay."""
    least, most = wait.idxmin(), wait.idxmax()
    if least == most:
        return f"Short requests wait {number(wait[least])} s at p99 under {least}"
    return (f"Short requests wait {number(wait[least])} s at p99 under {least}, {number(wait[most])} s under {most}; "
            f"{number(rate[least])} against {number(rate[most])} of them complete per second")
