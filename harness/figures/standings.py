"""What a league says: ranks of the policies by class of workload, and which of them wins where.

A league runs every policy in the same settings (cluster, workload, load) under the same seeds. Each class of workload is judged by one
number: online jobs by how long they queue, batch and training jobs by the work they get done until the horizon.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from harness.figures.intervals import MIN_SEEDS, Interval, interval
from harness.figures.labels import label
from harness.figures.settings import NotDrawn, key_columns
from harness.figures.style import in_order

CLASSES = {"online": "queue_s_mean_online", "batch": "goodput_gpu_s_batch", "training": "goodput_gpu_s_training"}
"""The metric that each class is judged by."""

LOAD = "load"
FIELDS = ("mean", "ci_low", "ci_high", "seeds")


class Field(NamedTuple):
    """One metric of a league: ``values`` (settings, policies, seeds), nan where a cell is missing; what the rows are."""

    values: np.ndarray
    settings: pd.DataFrame
    policies: list[str]
    better: int


def is_league(summary: pd.DataFrame) -> bool:
    """Whether several policies met in several workloads and at levels of ``load``."""
    return LOAD in key_columns(summary) and summary["policy"].nunique() > 1 and summary["workload"].nunique() > 1


def field(summary: pd.DataFrame, kind: str) -> Field:
    """The metric of class ``kind`` in every setting that has such jobs. Raises NotDrawn when none has, or cells are not told apart."""
    metric, keys = CLASSES[kind], key_columns(summary)
    if metric not in summary or summary[metric].notna().sum() == 0:
        raise NotDrawn(f"no cell has {kind} jobs")
    if summary.duplicated([*keys, "policy", "seed"]).any():
        raise NotDrawn("several cells have the same setting, policy and seed")
    policies, seeds = in_order(list(summary["policy"])), sorted(summary["seed"].unique())
    groups = list(summary.groupby(keys, dropna=False, sort=False, observed=True))
    values = np.full((len(groups), len(policies), len(seeds)), np.nan)
    for at, (_, cells) in enumerate(groups):
        values[at] = cells.pivot(index="policy", columns="seed", values=metric).reindex(policies, columns=seeds).to_numpy(dtype=float)
    there = np.isfinite(values).any(axis=(1, 2))
    settings = pd.DataFrame([cells.iloc[0][keys] for _, cells in groups]).reset_index(drop=True)
    return Field(values[there], settings[there].reset_index(drop=True), policies, label(metric).better)


def ranks(found: Field) -> np.ndarray:
    """Mean rank over settings of each policy under each seed, (policies, seeds): 1 is the best, equal values share their mean rank."""
    n = len(found.policies)
    signed = np.moveaxis(-found.better * found.values, 1, 2).reshape(-1, n)
    each = pd.DataFrame(signed).rank(axis=1, method="average").to_numpy()
    return _mean(each.reshape(len(found.values), -1, n), 0).T


def relative(found: Field, baseline: str) -> np.ndarray:
    """Mean over settings over that of ``baseline`` under the same seed, (policies, seeds); nan where the baseline has 0.

    Not the mean of ratios: where the baseline hardly gets anything done, one ratio of thousands would hide all others.
    """
    mean = _mean(found.values, 0)
    base = mean[[found.policies.index(baseline)], :]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(base > 0, mean / base, np.nan)


def standings(summary: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """The league table: one row for each policy and class, best mean rank over all classes first.

    Columns: policy, kind, measure (rank; value: of the metric in its unit, mean over settings; relative: to the baseline), mean, ci_low,
    ci_high, seeds. Intervals are over seeds.
    """
    rows = []
    for kind, metric in CLASSES.items():
        try:
            found = field(summary, kind)
        except NotDrawn:
            continue
        measures = {"rank": ranks(found), "value": _mean(found.values, 0)}
        if label(metric).better > 0:
            measures["relative"] = relative(found, baseline)
        for measure, values in measures.items():
            rows += [(policy, kind, measure, *interval(values[i])) for i, policy in enumerate(found.policies)]
    table = pd.DataFrame(rows, columns=pd.Index(["policy", "kind", "measure", *FIELDS]))
    if table.empty:
        raise NotDrawn("no cell has online, batch or training jobs that ran")
    order = table[table["measure"] == "rank"].groupby("policy", observed=True)["mean"].mean().sort_values(kind="stable")
    place = {policy: i for i, policy in enumerate(order.index)}
    return table.sort_values("policy", key=lambda names: names.map(place), kind="stable", ignore_index=True)


def winners(summary: pd.DataFrame) -> pd.DataFrame:
    """Who wins where: one row for each class and setting, in the order of ``summary``.

    Columns: kind, the keys of the setting, metric, winner (best mean over seeds), mean, runner_up, difference (winner minus runner-up,
    paired by seed) with ci_low, ci_high and seeds, and level: the others whose paired interval to the winner does not leave zero out, or
    has fewer than MIN_SEEDS seeds, joined by blanks. A lead is clear when nobody is level.
    """
    rows = []
    for kind, metric in CLASSES.items():
        try:
            found = field(summary, kind)
        except NotDrawn:
            continue
        for at, setting in found.settings.iterrows():
            rows.append({"kind": kind, **setting, "metric": metric, **_won(found, int(str(at)))})
    return pd.DataFrame(rows)


def _won(found: Field, at: int) -> dict[str, object]:
    """The winner of one setting, and who keeps level. Policies with equal means rank in the order of figures."""
    values = found.values[at]
    means = _mean(values, 1)
    order = [i for i in np.argsort(-found.better * means, kind="stable") if np.isfinite(means[i])]
    first, rest = order[0], order[1:]
    gaps: dict[int, Interval] = {i: interval(values[first] - values[i]) for i in rest}
    even = [found.policies[i] for i in rest if gaps[i].n < MIN_SEEDS or gaps[i].low <= 0 <= gaps[i].high]
    after = gaps[rest[0]] if rest else Interval(np.nan, np.nan, np.nan, 0)
    return {"winner": found.policies[first], "mean": means[first], "runner_up": found.policies[rest[0]] if rest else "",
            "difference": after.mean, "ci_low": after.low, "ci_high": after.high, "seeds": after.n, "level": " ".join(even)}


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean of what is there; nan where nothing is."""
    there = np.isfinite(values)
    count = there.sum(axis=axis)
    return np.where(count, np.where(there, values, 0.0).sum(axis=axis) / np.maximum(count, 1), np.nan)
