"""Preemption efficiency, part by part."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.figures.intervals import across_seeds
from harness.figures.labels import label
from harness.figures.settings import NotDrawn
from harness.figures.style import canvas, in_order, interval_mark, log_axis, looks, rows_axis, styled

CAPTION = """Preemption efficiency is not one number. Means over seeds with bootstrap 95 % intervals; the arrow says which way
is better. GPUs that were free count as placed too. Lost work is what the victims of all decisions lost, over the GPUs of the
preemptors that ran."""
INSIDE: tuple[str, ...] = ()
PARTS = {
    "hit_rate_victims": "hit rate,\nvictims (%)",
    "hit_rate_assigned": "hit rate,\nassigned (%)",
    "useful_share": "GPUs placed per\nGPU freed (%)",
    "ran_share": "decisions\nthat ran (%)",
    "lost_gpu_s_per_gpu_placed": "lost work per GPU\nplaced (GPU h)",
    "victims_per_placement": "victims\nper placement",
    "subsets_tried_mean": "subsets tried,\nmean",
    "search_wall_us_p50": "search time,\nmedian (µs)",
}
LOGARITHMIC = ("subsets_tried_mean", "search_wall_us_p50")


def draw(summary: pd.DataFrame, note: str = "") -> Figure:
    """The parts of preemption efficiency as small multiples by policy, from the cells of one setting."""
    found = {part: across_seeds(summary, part).set_index("policy") for part in PARTS if part in summary}
    rates = {part: rows for part, rows in found.items() if len(rows)}
    policies = in_order([str(p) for rows in rates.values() for p in rows.index])
    if not policies:
        raise NotDrawn("no policy took a preemption decision")
    look = looks(policies)
    down = -(-len(rates) // 4)
    with styled():
        figure = canvas((0.21 * len(policies) + 0.9) * down + 0.1, message(rates, policies), note)
        panels = figure.subplots(down, 4, squeeze=False, sharey=True)
        for axes in panels.flat[len(rates) :]:
            axes.set_axis_off()
        for axes, (part, rows) in zip(panels.flat, rates.items(), strict=False):
            told = label(part)
            rows_axis(axes, policies)
            for policy, row in rows.iterrows():
                ends = told.scale * row[["mean", "ci_low", "ci_high"]].to_numpy(dtype=float)
                interval_mark(axes, policies.index(str(policy)), ends, look[str(policy)], size=4.5)
            axes.set_title(f"{PARTS[part]} {'→' if told.better > 0 else '←'}", fontsize=8, loc="left", x=-0.02)
            if part in LOGARITHMIC and rows["mean"].min() > 0:
                log_axis(axes, rows["mean"].min() / 1.6, rows["mean"].max() * 1.6, most=3)
                axes.minorticks_off()
            elif told.unit == "%":
                axes.set_xlim(0, max(104, 104 * float(rows[["mean", "ci_high"]].max().max())))
                axes.set_xticks([0, 50, 100])
            else:
                axes.set_xlim(0, 1.15 * (told.scale * float(rows[["mean", "ci_high"]].max().max()) or 1.0))
                axes.locator_params(axis="x", nbins=3)
    return figure


def message(rates: dict[str, pd.DataFrame], policies: list[str]) -> str:
    """The headline: who is best in how many parts."""
    if len(policies) == 1:
        return f"Preemption efficiency of {policies[0]}, part by part"
    best = {p: 0 for p in policies}
    for part, rows in rates.items():
        signed = label(part).better * rows["mean"]
        for policy in signed.index[np.isclose(signed, signed.max(), rtol=1e-9)]:
            best[str(policy)] += 1
    leader = max(policies, key=lambda p: best[p])
    return f"{leader} is best, or level with the best, in {best[leader]} of {len(rates)} parts of preemption efficiency"
