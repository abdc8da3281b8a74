"""Where topology-aware preemption pays."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.figures.intervals import COSTS, FEW, MIN_SEEDS, PAYS, SAME, UNDEFINED, paired
from harness.figures.settings import NotDrawn, key_columns, setting_text, varying
from harness.figures.style import (
    BLUE,
    GREY,
    VERMILLION,
    Look,
    base_policy,
    canvas,
    interval_mark,
    legend_below,
    rows_axis,
    styled,
)

CAPTION = f"""Differences between two policies under the same seed, with bootstrap 95 % intervals. A setting counts as 'pays'
or 'costs' when the interval leaves zero out and there are at least {MIN_SEEDS} seeds. Lost work and goodput are set against
the baseline's goodput in the same cell, so that clusters of any size compare. Grey bands: the side on which it pays."""
INSIDE = None
"""All settings in one figure."""

VERDICTS = {PAYS: Look(BLUE, "-", "o"), COSTS: Look(VERMILLION, "-", "X"), SAME: Look(GREY, "-", "s"), FEW: Look(GREY, "-", "o")}
CANDIDATES = ("domain_first", "flextopo_imp", "flextopo_exhaustive", "domain_first_cost")
BASELINES = ("godel", "kubernetes", "priority")


def draw(summary: pd.DataFrame, note: str = "", policy: str | None = None, baseline: str | None = None) -> Figure:
    """Paired differences in online wait, lost work and batch goodput for each setting of ``summary``.

    ``policy`` and ``baseline`` default to the first topology-aware and the first blind policy that are there.
    """
    there = list(dict.fromkeys(summary["policy"]))
    policy = policy or choose(there, CANDIDATES)
    baseline = baseline or choose(there, BASELINES)
    rows = answer(summary, policy, baseline)
    keys = key_columns(summary)
    shown = varying(rows, keys) or ["cluster", "workload"]
    settings = list(dict.fromkeys(setting_text(row, shown) for _, row in rows.iterrows()))
    metrics = list(dict.fromkeys(rows["metric"]))
    with styled():
        figure = canvas(0.2 * len(settings) + 1.1, message(rows, policy, baseline), note)
        panels = np.atleast_1d(figure.subplots(1, len(metrics), sharey=True))
        for axes, metric in zip(panels, metrics, strict=True):
            mine = rows[rows["metric"] == metric]
            rows_axis(axes, settings)
            axes.tick_params(axis="y", labelsize=7)
            for _, row in mine.iterrows():
                y, verdict = settings.index(setting_text(row, shown)), str(row["verdict"])
                if verdict != UNDEFINED:
                    ends = row[["difference", "ci_low", "ci_high"]].to_numpy(dtype=float)
                    interval_mark(axes, y, ends, VERDICTS[verdict], filled=verdict != FEW, size=5)
            difference_axis(axes, mine)
            better = mine["better"].iloc[0]
            left, right = axes.get_xlim()
            axes.axvspan(0 if better > 0 else left, right if better > 0 else 0, color="#F2F2F2", zorder=0, linewidth=0)
            axes.axvline(0, color="black", linewidth=0.8, zorder=2)
            axes.set_xlabel(mine["axis"].iloc[0], fontsize=8)
        used = {verdict: look for verdict, look in VERDICTS.items() if (rows["verdict"] == verdict).any()}
        legend_below(
            figure,
            [
                Line2D(
                    [],
                    [],
                    color=look.colour,
                    marker=look.mark,
                    markerfacecolor="white" if verdict == FEW else look.colour,
                    label=verdict,
                )
                for verdict, look in used.items()
            ],
        )
    return figure


def answer(summary: pd.DataFrame, policy: str, baseline: str) -> pd.DataFrame:
    """Paired differences of the three questions for each setting: columns as of ``intervals.paired``, then axis and better.

    Online wait in seconds; lost work and batch goodput as percent of the baseline's goodput. Raises NotDrawn when no setting has both.
    """
    keys = key_columns(summary)
    goodput = "goodput_gpu_s_batch" if "goodput_gpu_s_batch" in summary else "goodput_gpu_s"
    name = "batch goodput" if goodput == "goodput_gpu_s_batch" else "goodput"
    parts = []
    for metric, axis, relative, better in (
        ("wait_s_mean_online", "online mean wait (s)", None, -1),
        ("lost_gpu_s", f"lost work\n(% of {name})", goodput, -1),
        (goodput, f"{name}\n(% of the baseline's)", goodput, 1),
    ):
        if {metric, relative or metric} <= set(summary) and summary[metric].notna().any():
            rows = paired(summary, metric, policy, baseline, keys, relative)
            scale = 100 if relative else 1
            rows[["difference", "ci_low", "ci_high"]] *= scale
            parts.append(rows.assign(axis=axis, better=better))
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if found.empty:
        raise NotDrawn(f"no setting was run with both {policy} and {baseline} under the same seed")
    return found


def choose(there: list[str], wanted: tuple[str, ...]) -> str:
    """The first of ``wanted`` that is among the policies. Raises NotDrawn when none is."""
    for name in wanted:
        for policy in there:
            if base_policy(policy) == name:
                return policy
    raise NotDrawn(f"none of {', '.join(wanted)} was run")


def difference_axis(axes, rows: pd.DataFrame) -> None:
    """Limits around all intervals and zero; logarithmic away from zero when the differences span orders of magnitude."""
    ends = rows[["difference", "ci_low", "ci_high"]].to_numpy(dtype=float)
    size = np.abs(ends[np.isfinite(ends) & (ends != 0)])
    reach = float(size.max()) if len(size) else 1.0
    if len(size) and reach > 200 * np.median(size):
        axes.set_xscale("symlog", linthresh=10.0 ** np.floor(np.log10(np.median(size))), linscale=0.6)
    low, high = min(0.0, float(np.nanmin(ends, initial=0.0))), max(0.0, float(np.nanmax(ends, initial=0.0)))
    axes.set_xlim(low * 1.15 - 0.1 * reach, high * 1.15 + 0.1 * reach)
    axes.locator_params(axis="x", nbins=4) if axes.get_xscale() == "linear" else None


def message(rows: pd.DataFrame, policy: str, baseline: str) -> str:
    """The headline: how often it pays, for each question."""
    parts = []
    for axis, mine in rows.groupby("axis", sort=False):
        counts = mine["verdict"].value_counts()
        few = counts.get(FEW, 0) + counts.get(UNDEFINED, 0)
        if few == len(mine):
            return f"{policy} against {baseline}: fewer than {MIN_SEEDS} seeds, too few to say where it pays"
        name = str(axis).split("\n")[0].split(" (")[0]
        parts.append(f"{name} in {counts.get(PAYS, 0)} (costs in {counts.get(COSTS, 0)})")
    total = int(rows.groupby("axis").size().max())
    if total == 1:
        told = [f"{str(a).split(chr(10))[0].split(' (')[0]}: {v}" for a, v in zip(rows["axis"], rows["verdict"], strict=True)]
        return f"{policy} instead of {baseline}: {'; '.join(told)}"
    return f"Of {total} settings, {policy} instead of {baseline} pays in {', '.join(parts)}"
