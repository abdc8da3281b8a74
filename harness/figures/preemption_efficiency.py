"""Preemption efficiency, part by part."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.figures.intervals import across_seeds
from harness.figures.labels import Label, label
from harness.figures.settings import NotDrawn
from harness.figures.style import canvas, in_order, looks, rows_axis, styled

CAPTION = """Preemption efficiency is not one number. Means over seeds with bootstrap 95 % intervals; the arrow says which way is better. Lost work is set
against the GPUs that preemptors took from victims in decisions that ran."""
INSIDE: tuple[str, ...] = ()
COLUMNS = ("gpus_needed", "lost_gpu_s", "ran")
LOST = "lost_gpu_h_per_gpu"
PARTS = ("hit_rate_victims", "hit_rate_assigned", "useful_share", "ran_share", LOST, "victims_per_placement", "subsets_tried_mean",
         "search_wall_us_p50")
SHORT = {
    "hit_rate_victims": "hit rate,\nvictims (%)", "hit_rate_assigned": "hit rate,\nassigned (%)", "useful_share": "freed GPUs\nthat are used (%)",
    "ran_share": "decisions\nthat ran (%)", LOST: "lost work per GPU\nplaced (GPU h)", "victims_per_placement": "victims\nper placement",
    "subsets_tried_mean": "subsets tried,\nmean", "search_wall_us_p50": "search time,\nmedian (µs)",
}
LOGARITHMIC = ("subsets_tried_mean", "search_wall_us_p50")


def draw(summary: pd.DataFrame, preemptions: pd.DataFrame, note: str = "") -> Figure:
    """The parts of preemption efficiency as small multiples by policy, from the summary and the preemptions of one setting."""
    cells = summary.assign(**{LOST: summary["cell"].astype(str).map(lost_per_gpu(preemptions))})
    rates = {part: across_seeds(cells, part).set_index("policy") for part in PARTS if part in cells}
    policies = in_order([p for rows in rates.values() for p in rows.index])
    rates = {part: rows for part, rows in rates.items() if len(rows)}
    if not policies or not rates:
        raise NotDrawn("no policy took a preemption decision")
    look = looks(policies)
    down = -(-len(rates) // 4)
    with styled():
        figure = canvas((0.21 * len(policies) + 0.9) * down + 0.1, message(rates, policies), note)
        panels = figure.subplots(down, 4, squeeze=False, sharey=True)
        for i, axes in enumerate(panels.flat):
            if i >= len(rates):
                axes.set_axis_off()
                continue
            part, rows = list(rates.items())[i]
            told = describe(part)
            rows_axis(axes, policies)
            for policy, row in rows.iterrows():
                y, scaled = policies.index(str(policy)), told.scale * row[["mean", "ci_low", "ci_high"]].astype(float)
                axes.plot([scaled["ci_low"], scaled["ci_high"]], [y, y], color=look[str(policy)].colour, linewidth=2, solid_capstyle="butt")
                axes.plot(scaled["mean"], y, look[str(policy)].mark, color=look[str(policy)].colour, markersize=4.5, clip_on=False, zorder=4)
            axes.set_title(f"{SHORT[part]} {'→' if told.better > 0 else '←'}", fontsize=8, loc="left", x=-0.02)
            if part in LOGARITHMIC and rows["mean"].min() > 0:
                axes.set_xscale("log")
                axes.minorticks_off()
            elif told.unit == "%":
                axes.set_xlim(0, 104)
                axes.set_xticks([0, 50, 100])
            else:
                axes.set_xlim(0, 1.15 * float(np.nanmax([told.scale * rows[["mean", "ci_high"]].max().max(), 1e-9])))
                axes.locator_params(axis="x", nbins=3)
    return figure


def lost_per_gpu(preemptions: pd.DataFrame) -> dict[str, float]:
    """Cell -> GPU hours that victims lost for each GPU that preemptors took from them in decisions that ran."""
    placed = (preemptions["gpus_needed"] * preemptions["ran"]).groupby(preemptions["cell"], observed=True).sum()
    lost = preemptions.groupby("cell", observed=True)["lost_gpu_s"].sum()
    return {str(cell): lost[cell] / 3600 / placed[cell] for cell in placed.index if placed[cell] > 0}


def describe(part: str) -> Label:
    return Label("lost work per GPU placed", "GPU h", -1) if part == LOST else label(part)


def message(rates: dict[str, pd.DataFrame], policies: list[str]) -> str:
    """The headline: who is best in how many parts."""
    if len(policies) == 1:
        return f"Preemption efficiency of {policies[0]}, part by part"
    best = {p: 0 for p in policies}
    for part, rows in rates.items():
        signed = describe(part).better * rows["mean"]
        for policy in signed.index[np.isclose(signed, signed.max(), rtol=1e-9)]:
            best[str(policy)] += 1
    leader = max(policies, key=lambda p: best[p])
    return f"{leader} is best, or level with the best, in {best[leader]} of {len(rates)} parts of preemption efficiency"
