"""Bootstrap intervals over seeds, of means and of paired differences.

A seed is one independent draw of the workload, so it is what gets resampled: never jobs, which depend on each other. Two
policies meet the same draw under the same seed, so they are compared seed by seed.
"""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from harness.figures.labels import label

CONFIDENCE = 0.95
RESAMPLES = 9_999
MIN_SEEDS = 10
"""With fewer, an interval says too little to judge by."""

PAYS, COSTS, SAME, FEW, UNDEFINED = "pays", "costs", "no difference", "too few seeds", "undefined"


class Interval(NamedTuple):
    """Mean of ``n`` values and its 95 % interval; nan where there are too few values."""

    mean: float
    low: float
    high: float
    n: int


def interval(values: Sequence[float] | np.ndarray | pd.Series, seed: int = 0) -> Interval:
    """BCa bootstrap interval of the mean of ``values`` (one for each seed), from resamples drawn by ``seed``. nan are left out.

    Equal values give an interval of no width, a single one gives none; the percentile interval stands in where BCa has no answer.
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[np.isfinite(x)]
    if len(x) == 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    mean = float(x.mean())
    if len(x) == 1:
        return Interval(mean, np.nan, np.nan, 1)
    if np.all(x == x[0]):
        return Interval(float(x[0]), float(x[0]), float(x[0]), len(x))
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = stats.bootstrap(
                (x,), np.mean, confidence_level=CONFIDENCE, n_resamples=RESAMPLES, method=method, rng=np.random.default_rng(seed)
            ).confidence_interval
        if np.isfinite(found.low) and np.isfinite(found.high):
            return Interval(mean, float(found.low), float(found.high), len(x))
    return Interval(mean, np.nan, np.nan, len(x))


def across_seeds(summary: pd.DataFrame, metric: str, by: Sequence[str] = ("policy",)) -> pd.DataFrame:
    """Mean of ``metric`` over seeds for each combination of ``by``: columns ``by``, metric, mean, ci_low, ci_high, seeds.

    Combinations without any value are left out. The unit is that of ``summary``.
    """
    rows = []
    for names, cells in summary.groupby(list(by), dropna=False, sort=False, observed=True):
        found = interval(cells[metric].to_numpy(dtype=np.float64, na_value=np.nan))
        if found.n:
            rows.append((*names, metric, *found))
    return pd.DataFrame(rows, columns=pd.Index([*by, "metric", "mean", "ci_low", "ci_high", "seeds"]))


def paired(
    summary: pd.DataFrame, metric: str, policy: str, baseline: str, by: Sequence[str] = (), relative_to: str | None = None
) -> pd.DataFrame:
    """``policy`` minus ``baseline`` in ``metric``, seed by seed, for each combination of ``by``.

    Columns: ``by``, metric, policy, baseline, policy_mean, baseline_mean, difference, ci_low, ci_high, seeds, verdict. With
    ``relative_to`` the difference is a share of the baseline's value of that metric under the same seed. The verdict is by the
    side of zero on which the interval lies and which way the metric is better. Raises ValueError when ``by`` leaves several
    cells of one policy and seed.
    """
    columns = list(dict.fromkeys([metric, relative_to or metric]))
    arms = []
    for name in (policy, baseline):
        arm = summary.loc[summary["policy"] == name, [*by, "seed", *columns]]
        if arm.duplicated([*by, "seed"]).any():
            raise ValueError(f"{name}: several cells for one seed; `by` must name every column that tells them apart")
        arms.append(arm)
    both = arms[0].merge(arms[1], on=[*by, "seed"], suffixes=("", "_baseline"))
    rows = []
    for names, cells in both.groupby(list(by), dropna=False, sort=False, observed=True) if by else [((), both)] if len(both) else []:
        ours, theirs = (cells[c].to_numpy(dtype=np.float64, na_value=np.nan) for c in (metric, f"{metric}_baseline"))
        change = ours - theirs
        if relative_to:
            change = share(change, cells[f"{relative_to}_baseline"].to_numpy(dtype=np.float64, na_value=np.nan))
        rows.append((*names, *compared(metric, policy, baseline, ours, theirs, change)))
    return pd.DataFrame(rows, columns=pd.Index([*by, *PAIRED]))


PAIRED = ("metric", "policy", "baseline", "policy_mean", "baseline_mean", "difference", "ci_low", "ci_high", "seeds", "verdict")


def compared(metric: str, policy: str, baseline: str, ours: np.ndarray, theirs: np.ndarray, change: np.ndarray) -> tuple:
    """One row of PAIRED from the values under each seed, arrays (seeds,)."""
    found = interval(change)
    use = np.isfinite(change)
    means = (float(values[use].mean()) if use.any() else np.nan for values in (ours, theirs))
    return metric, policy, baseline, *means, *found, judge(found, label(metric).better)


def share(change: np.ndarray, of: np.ndarray) -> np.ndarray:
    """change / of, 0 for 0 / 0 and nan for anything else over 0."""
    safe = np.where(of == 0, 1.0, of)
    return np.where(of == 0, np.where(change == 0, 0.0, np.nan), change / safe)


def judge(found: Interval, better: int, min_seeds: int = MIN_SEEDS) -> str:
    """pays, costs or no difference: whether the interval of a difference lies on the better, the worse or no side of zero."""
    if found.n == 0:
        return UNDEFINED
    if found.n < min_seeds:
        return FEW
    if found.low <= 0 <= found.high or better == 0:
        return SAME
    return PAYS if (found.low > 0) == (better > 0) else COSTS
