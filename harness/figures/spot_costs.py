"""What spot jobs pay under each policy: hours that failed, queueing, lost work."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from harness.figures.intervals import across_seeds
from harness.figures.labels import HOURS
from harness.figures.settings import NotDrawn
from harness.figures.style import base_policy, canvas, in_order, interval_mark, looks, percent, rows_axis, styled

CAPTION = """Spot jobs (preemptible) by policy; means over seeds with bootstrap 95 % intervals, less is better everywhere. An hour that is
guaranteed fails when the attempt is evicted; queueing is all time not running; lost work is what evictions threw away. The quota is a
forecast, a constant or none. The workload is synthetic, fitted to aggregates of the trace."""
INSIDE: tuple[str, ...] = ()
PARTS = {
    "guarantee_failed_share": ("guaranteed hours\nthat failed (%)", 100.0),
    "queue_s_mean_batch": ("mean queueing of\nspot jobs (h)", HOURS),
    "lost_gpu_s": ("lost work\n(thousand GPU h)", HOURS / 1000),
}


def draw(summary: pd.DataFrame, note: str = "", order: Sequence[str] = ()) -> Figure:
    """Three panels, one row for each policy, from the cells of one setting; policies of ``order`` come first."""
    if "guarantee_failed_share" not in summary or summary["guarantee_failed_share"].isna().all():
        raise NotDrawn("no policy with guaranteed hours for spot jobs was run")
    summary = summary[summary["guarantee_failed_share"].notna()]
    found = {part: across_seeds(summary, part).set_index("policy") for part in PARTS}
    there = in_order([str(p) for p in summary["policy"]])
    policies = [*(p for p in order if p in there), *(p for p in there if p not in order)]
    kind = {p: base_policy(p) for p in policies}
    look = looks(list(dict.fromkeys(kind.values())))
    with styled():
        figure = canvas(0.2 * len(policies) + 0.8, message(found["guarantee_failed_share"], found["queue_s_mean_batch"], policies), note)
        panels = figure.subplots(1, len(PARTS), sharey=True)
        for axes, (part, (title, scale)) in zip(panels, PARTS.items(), strict=True):
            rows_axis(axes, policies)
            for policy, row in found[part].iterrows():
                ends = scale * row[["mean", "ci_low", "ci_high"]].to_numpy(dtype=float)
                interval_mark(axes, policies.index(str(policy)), ends, look[kind[str(policy)]], size=4.5)
            axes.set_title(title, fontsize=8, loc="left", x=-0.02)
            axes.set_xlim(0, 1.1 * scale * float(found[part][["mean", "ci_high"]].max().max()) or 1.0)
            axes.locator_params(axis="x", nbins=4)
    return figure


def message(failed: pd.DataFrame, queued: pd.DataFrame, policies: Sequence[str]) -> str:
    """The headline: who fails least, and what queueing that takes."""
    least = str(failed["mean"].idxmin())
    if len(policies) == 1:
        return f"{least}: {percent(failed.loc[least, 'mean'])} of the guaranteed hours fail"
    quick = str(queued["mean"].idxmin())
    text = f"{least} fails {percent(failed.loc[least, 'mean'])} of the guaranteed hours"
    if quick == least:
        return f"{text} and queues spot jobs least"
    ratio = queued.loc[least, "mean"] / queued.loc[quick, "mean"]
    return f"{text}, at {ratio:.1f} times the queueing of {quick}, which fails {percent(failed.loc[quick, 'mean'])}"
