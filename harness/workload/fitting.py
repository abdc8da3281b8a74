"""From a trace to the parameters of `harness.workload.fitted`: a few hundred numbers, no rows.

Long gaps become silences where the process would have none such. Moments are matched one scale after the other: means by hour and
weekday, then the variance and lag-1 covariance of what is left by day, then by bin (minutes and some seconds in a trace of hours),
corrected for what estimating the mean takes from them; short gaps beyond those of a Poisson process become batches.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.schema import MILLI
from harness.tables import TIME_COLUMN, kind_of
from harness.workload import arrivals
from harness.workload.common import DAY_S, HOUR_S
from harness.workload.fitted import SETTABLE, SHARES, SIZE, ClassFit, Params, arrival_times

MINUTE_S = 60.0
MOST_SIZES, MOST_TENANTS = 40, 20
BUCKETS = (0.0, 0.001, 1.0, 2.0, 8.0, 9.0)
"""Sizes (GPUs of a job) from which on durations are fitted apart: none, part of one, 1, several, a server, more."""

LEAST_ROWS = 100
"""Rows below which a bucket of sizes is fitted together with the next smaller one."""

SHORT_GAP = 0.05
"""Gaps below this part of the mean gap may be those of a batch."""

SILENCE, BEYOND = 50.0, 6.0
"""A gap in which so many arrivals are to be expected at the mean rate, and so many times the 99.9 % quantile of gaps, is a silence."""
SHORT_OF = 0.8
"""Silences are fitted when the process without them has less than this part of the coefficient of variation of the gaps."""

SHORT_BINS = (2.0, 5.0, 15.0)
"""Bins of a trace of less than two days: the first with FEWEST arrivals on average, and minutes that have factors; else minutes alone."""
FEWEST = 5.0

CLASSES = {"jobs": ("kind", "priority", "preemptible"), "requests": ("service",)}


def fit(table: pa.Table, about: str, week_s: float | None = None, by: Sequence[str] | None = None) -> dict[str, Any]:
    """The parameters of ``fitted`` for a jobs or requests trace, ready for YAML; its key ``days`` is the length of the trace.

    ``week_s``: seconds from a Monday's midnight to time 0 of the trace (None: taken as 0, so that hours count from time 0). ``by``:
    columns that tell classes apart, by default kind, priority and preemptible of jobs, and the service of requests.
    Raises BadInput for services, fewer than 2 rows, and unknown columns.
    """
    kind = kind_of(table, "trace")
    if kind == "services":
        raise BadInput("a services trace says what was wanted, not what arrived: fit jobs or requests")
    by = tuple(by or CLASSES[kind])
    for name in by:
        if name not in table.column_names:
            raise BadInput(f"--by {name}: the trace has no such column; it has {', '.join(table.column_names)}")
    times = table[TIME_COLUMN[kind]].to_numpy()
    if len(times) < 2 or not times.max() > times.min():
        raise BadInput("the trace has no span: a fit needs arrivals at two instants at least")
    first, span = float(times.min()), float(times.max() - times.min())
    week, ordered, nothing = (week_s or 0.0) + first, np.sort(times) - first, np.empty((0, 2))
    silent, plain = _silences(ordered, span), _parameters(table, kind, by, about, week, first, span, nothing)
    if not len(silent):
        return plain
    params = Params(**{key: value for key, value in plain.items() if key != "generator"})
    drawn = [_gap_cv(arrival_times(params, seed)) for seed in range(5)]
    return plain if np.median(drawn) > SHORT_OF * _gap_cv(ordered) else _parameters(table, kind, by, about, week, first, span, silent)


def _gap_cv(times: np.ndarray) -> float:
    gaps = np.diff(times)
    return float(gaps.std() / gaps.mean())


def _parameters(table: pa.Table, kind: str, by: Sequence[str], about: str, week: float, first: float, span: float, silent: np.ndarray
                ) -> dict[str, Any]:
    """The parameters of a trace from ``first`` on, ``week`` s after a Monday's midnight, with these silences (n, 2)."""
    bin_s, period_s = _scales(table.num_rows, span)
    parts = {name: table.filter(pa.array(mask)) for name, mask in _classes(table, by).items()}
    times = {name: np.sort(part[TIME_COLUMN[kind]].to_numpy()) - first for name, part in parts.items()}
    shared = _shared(list(times.values()), span, period_s, silent) if bin_s < period_s <= MINUTE_S else [0.0, 0.0]
    classes = []
    for name, part in parts.items():
        process = _process(times[name], span, bin_s, period_s, silent, week % arrivals.WEEK_S, shared[0])
        marks = _job_marks(part) if kind == "jobs" else _request_marks(part)
        classes.append(_plain(asdict(ClassFit(name=name, **process, **marks, tenants=_tenants(part)))))
    defaults = asdict(ClassFit("", 0.0))
    kept = [{key: value for key, value in c.items() if value != defaults[key] or key in ("name", "per_hour")} for c in classes]
    params = asdict(Params(about=about, kind=kind, days=_round(span / DAY_S, 4), start_hour=_round(week % arrivals.WEEK_S / HOUR_S, 4),
                           bin_s=bin_s, period_s=period_s, shared=[_round(v, 3) for v in shared], classes=kept,
                           silent=[_round(len(silent) * DAY_S / span), _round(float(np.diff(silent).mean()))] if len(silent) else [0, 0]))
    return {"generator": "fitted", **params}


def _scales(rows: int, span: float) -> tuple[float, float]:
    """The bins, and the longer periods that have factors too, s."""
    if span >= 2 * DAY_S:
        return HOUR_S, DAY_S
    return next((bin_s for bin_s in SHORT_BINS if rows * bin_s / span >= FEWEST and span >= 20 * MINUTE_S), MINUTE_S), MINUTE_S


def _silences(times: np.ndarray, span: float) -> np.ndarray:
    """Begin and end of each silence: f64 (n, 2)."""
    gaps = np.diff(times)
    at = np.flatnonzero(gaps > max(SILENCE * span / len(times), BEYOND * float(np.quantile(gaps, 0.999))))
    return np.column_stack([times[at], times[at + 1]])


def _seen(silent: np.ndarray, bins: int, bin_s: float) -> np.ndarray:
    """The share of each bin that is in no silence: f64 (bins,)."""
    begin, end = np.arange(bins) * bin_s, np.arange(1, bins + 1) * bin_s
    hidden = np.zeros(bins)
    for since, until in silent:
        hidden += np.clip(np.minimum(end, until) - np.maximum(begin, since), 0.0, None)
    return 1.0 - hidden / bin_s


def _classes(table: pa.Table, by: Sequence[str]) -> dict[str, np.ndarray]:
    """Name of each class, its values in turn, -> mask of its rows, the most frequent first."""
    parts = []
    for name in by:
        column = table[name]
        if pa.types.is_boolean(column.type):
            words = pc.if_else(column, name, f"not-{name}")
        else:
            words = pc.fill_null(column.cast(pa.string()), "")
            words = words if pa.types.is_string(column.type) else pc.binary_join_element_wise(name, words, "-")
        if len(pc.unique(words)) > 1:
            parts.append(words)
    if not parts:
        return {(table[by[0]][0].as_py() or "all") if pa.types.is_string(table[by[0]].type) else "all": np.ones(table.num_rows, bool)}
    joined = pc.binary_join_element_wise(*parts, "-") if len(parts) > 1 else parts[0]
    coded = joined.combine_chunks().dictionary_encode()
    codes, names = coded.indices.to_numpy(), coded.dictionary.to_pylist()
    order = np.argsort(-np.bincount(codes), kind="stable")
    return {names[i] or "none": codes == i for i in order}


def _process(times: np.ndarray, span: float, bin_s: float, period_s: float, silent: np.ndarray, week: float, shared: float
             ) -> dict[str, Any]:
    """The arrival process of one class beside the ``shared`` sigma of all; ``times`` ascend from 0 to at most ``span``."""
    heard = span - float(np.diff(silent).sum())
    mean_gap = heard / len(times)
    gaps = np.diff(times)
    short = gaps <= SHORT_GAP * mean_gap
    batch = [1.0, 0.0]
    if len(gaps) > 100:
        by_chance = 1.0 - np.exp(-SHORT_GAP)
        together = (short.mean() - by_chance) / (1.0 - by_chance)
        if together > 0.05:
            batch = [1.0 / (1.0 - min(together, 0.95)), float(gaps[short].mean())]
    bins = max(int(span // bin_s), 1)
    counts = np.bincount(np.minimum(np.floor_divide(times, bin_s).astype(np.int64), bins), minlength=bins + 1)[:bins].astype(np.float64)
    seen = _seen(silent, bins, bin_s)
    kept = seen > 0.5
    counts, seen, middle = counts[kept], seen[kept], (week + (np.arange(bins) + 0.5) * bin_s)[kept]
    hour, weekday, day_of = (np.floor_divide(middle, HOUR_S).astype(np.int64) % 24, np.floor_divide(middle, DAY_S).astype(np.int64) % 7,
                             np.unique(np.floor_divide(middle, period_s), return_inverse=True)[1])
    rate = len(times) * bin_s / heard
    by_hour = _factors(counts / rate / seen, hour, 24) if span >= 2 * DAY_S else np.ones(24)
    by_weekday = _factors(counts / rate / seen / np.maximum(by_hour[hour], 1e-9), weekday, 7) if span >= 7 * DAY_S else np.ones(7)
    expected = np.maximum(rate * by_hour[hour] * by_weekday[weekday] * seen, 1e-9)
    noise = 2.0 * batch[0] - 1.0
    if span >= 7 * DAY_S:
        day, within = _two_scales(counts, expected, day_of, noise)
    elif bin_s < period_s <= MINUTE_S:
        day, within = _slow_and_fast(counts, expected, day_of, noise, shared)
    else:
        day, within = [0.0, 0.0], _modulation(*_unbiased(*_moments(counts, expected, noise), len(counts)))
    return {"per_hour": _round(len(times) * HOUR_S / heard), "hour": [_round(f, 3) for f in by_hour] if span >= 2 * DAY_S else [],
            "weekday": [_round(f, 3) for f in by_weekday] if span >= 7 * DAY_S else [], "day": [_round(v, 3) for v in day],
            "bin": [_round(v, 3) for v in within], "batch": [_round(batch[0], 3), _round(batch[1])]}


def _factors(relative: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """Mean of ``relative`` in each group over the mean of all; 1 where a group has no bin."""
    number = np.bincount(group, minlength=groups)
    total = np.bincount(group, weights=relative, minlength=groups)
    mean = np.divide(total, number, out=np.full(groups, np.nan), where=number > 0)
    return np.where(np.isnan(mean), 1.0, mean / max(relative.mean(), 1e-12))


def _moments(counts: np.ndarray, expected: np.ndarray, noise: float) -> tuple[float, float]:
    """Variance and lag-1 covariance of the factor of mean 1 behind ``counts``.

    Given the factor, the variance of a count is ``noise`` times its mean (2 m - 1 for batches of geometric size with mean m).
    """
    rest = counts - expected
    variance = float(((rest * rest).sum() - noise * expected.sum()) / (expected * expected).sum())
    covariance = float((rest[1:] * rest[:-1]).sum() / (expected[1:] * expected[:-1]).sum()) if len(counts) > 2 else 0.0
    return max(variance, 0.0), covariance


def _unbiased(variance: float, covariance: float, n: int) -> tuple[float, float]:
    """The moments of a factor behind those found in ``n`` bins whose mean was estimated too: that takes the variance of the mean from both,
    2 / n sum (1 - k / n) rho^k and so on of an AR(1), found by iteration."""
    found, lag = (variance, covariance), np.arange(1, max(n, 2))
    for _ in range(50):
        rho = min(max(covariance / variance, 0.0), 0.95) if variance > 0 else 0.0
        of_mean = variance / n * (1.0 + 2.0 * float(((1.0 - lag / n) * rho**lag).sum()))
        variance, covariance = found[0] + of_mean, found[1] + of_mean
    variance = min(variance, 3.0 * found[0])
    return variance, min(covariance, 0.95 * variance)


def _shared(times: Sequence[np.ndarray], span: float, period_s: float, silent: np.ndarray) -> list[float]:
    """Sigma and rho of the factor that periods have in all classes at once.

    What classes have in common from one period to the next is its covariance; the steadiest class, which cannot vary less, bounds its
    variance and says how long it lasts.
    """
    periods = int(span // period_s)
    kept = _seen(silent, periods, period_s) > 0.5
    if len(times) < 2 or kept.sum() < 5:
        return [0.0, 0.0]
    counts = [np.bincount(np.floor_divide(mine, period_s).astype(np.int64), minlength=periods + 1)[:periods][kept] for mine in times]
    rest = [mine / max(float(mine.mean()), 1e-9) - 1.0 for mine in counts]
    variances = [max(float(mine.var()) - 1.0 / max(float(n.mean()), 1e-9), 0.0) for mine, n in zip(rest, counts, strict=True)]
    steady = rest[int(np.argmin(variances))]
    common = float(np.mean([(a[1:] * b[:-1]).mean() for a in rest for b in rest if a is not b]))
    next_one, second = (float((steady[lag:] * steady[:-lag]).mean()) for lag in (1, 2))
    variance, rho = _slow(min(variances), common, common * second / max(next_one, 1e-9), len(steady))
    return [arrivals.sigma_of(variance), rho]


def _slow(variance: float, covariance: float, second: float, n: int) -> tuple[float, float]:
    """Variance and rho of the factor that has all that goes on from one of ``n`` periods to the next and to the ``second`` next."""
    rho = min(max(second / covariance, 0.0), 0.95) if covariance > 0 else 0.0
    return (_unbiased(min(covariance / rho, variance), covariance, n)[0], rho) if rho > 0.05 else (0.0, 0.0)


def _slow_and_fast(counts: np.ndarray, expected: np.ndarray, period_of: np.ndarray, noise: float, shared: float
                   ) -> tuple[list[float], list[float]]:
    """Sigma and rho of the factors of periods and of bins in a trace of hours, beside the ``shared`` sigma that all classes have.

    What periods share with the next is the slow factor's alone, which has all of it that goes on from one to the second next. The fast one
    has the rest of the variance of bins, and the rho with which it leaves in periods what they have beyond the slow one, by bisection.
    """
    sums = np.bincount(period_of, weights=counts), np.maximum(np.bincount(period_of, weights=expected), 1e-9)
    rest = sums[0] - sums[1]
    second = float((rest[2:] * rest[:-2]).sum() / (sums[1][2:] * sums[1][:-2]).sum()) if len(rest) > 4 else 0.0
    variance, covariance = _moments(*sums, noise)
    of_all = float(np.expm1(shared**2))
    slow, rho = _slow(variance, covariance, second, len(rest))
    own, slow = max((1.0 + slow) / (1.0 + of_all) - 1.0, 0.0), max(slow, of_all)
    within = _modulation(*((1.0 + moment) / (1.0 + slow) - 1.0 for moment in _moments(counts, expected, noise)))
    return [arrivals.sigma_of(own), rho if own else 0.0], within


def _mean_of_bins(sigma: float, rho: float, size: int) -> float:
    """Variance of the mean of ``size`` successive factors of a log-normal AR(1)."""
    weights = 2.0 * (size - np.arange(size)) / size**2
    weights[0] /= 2.0
    return float((weights * np.expm1(sigma**2 * rho ** np.arange(size))).sum())


def _modulation(variance: float, covariance: float) -> list[float]:
    """Sigma and rho of the log-normal AR(1) factor with these moments."""
    sigma = arrivals.sigma_of(variance)
    return [sigma, arrivals.correlation_of(covariance, sigma)]


def _two_scales(counts: np.ndarray, expected: np.ndarray, day_of: np.ndarray, noise: float) -> tuple[list[float], list[float]]:
    """Sigma and rho of the factors of days and of bins.

    Counts in bins have the product of both, counts of days the day's times the mean of its bins, whose variance m follows from the
    bins' own factor: three equations, solved by iteration.
    """
    total, next_total = _moments(counts, expected, noise)
    daily, next_daily = _unbiased(*_moments(np.bincount(day_of, weights=counts), np.maximum(np.bincount(day_of, weights=expected), 1e-9),
                                            noise), int(day_of.max()) + 1)
    size = max(int(np.median(np.bincount(day_of))), 1)
    between, within = daily, [0.0, 0.0]
    for _ in range(100):
        within = _modulation((1.0 + total) / (1.0 + between) - 1.0, (1.0 + next_total) / (1.0 + between) - 1.0)
        mean = _mean_of_bins(*within, size)
        between = min(max((daily - mean) / (1.0 + mean), 0.0), total)
    return _modulation(between, next_daily), within


def _job_marks(part: pa.Table) -> dict[str, Any]:
    sizes = np.column_stack([part[name].to_numpy().astype(np.float64) for name in SIZE])
    distinct, which, counts = np.unique(sizes, axis=0, return_inverse=True, return_counts=True)
    total = distinct[:, 0] * distinct[:, 1] * distinct[:, 2] / MILLI
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_SIZES])
    scale = np.maximum(distinct[kept].std(0), 1e-9)
    weight = np.zeros(len(kept))
    for i, row in enumerate(distinct):
        far = np.abs(np.log1p(total[kept]) - np.log1p(total[i])) * 10.0 + (np.abs(distinct[kept] - row) / scale).sum(1)
        weight[int(np.argmin(far))] += counts[i]
    order = np.argsort(-weight, kind="stable")
    entries = [[_round(weight[i] / weight.sum()), *(_round(v, 6) for v in distinct[kept[i]])] for i in order if weight[i] > 0]
    gpus, duration = total[which.ravel()], part["duration"].to_numpy()
    buckets: list[dict[str, Any]] = []
    starts = [start for start in BUCKETS if (gpus >= start).any()]
    mine = np.searchsorted(starts, gpus, side="right") - 1
    held = np.zeros(len(gpus), bool)
    for i, start in enumerate(starts):
        held |= mine == i
        if held.sum() >= LEAST_ROWS or (i == len(starts) - 1 and not buckets):
            buckets.append({"from_gpus": start if buckets else 0.0, "quantiles": _quantiles(duration[held])})
            held = np.zeros(len(gpus), bool)
    constant = {name: part[name][0].as_py() for name in SETTABLE if len(pc.unique(part[name])) == 1}
    defaults = {"priority": 0, "preemptible": False, "affinity": "none", "affinity_domain": "auto", "gpu_model": None, "kind": "batch",
                "checkpoint_interval_s": None, "restart_cost_s": 0.0, "network_domain": "none", "network_mode": "none"}
    return {"sizes": entries, "durations": buckets, "set": {name: value for name, value in constant.items() if value != defaults[name]}}


def _request_marks(part: pa.Table) -> dict[str, Any]:
    from scipy.stats import spearmanr

    prompt, output = part["prompt_tokens"].to_numpy(), part["output_tokens"].to_numpy()
    varied = len(prompt) > 2 and prompt.std() > 0 and output.std() > 0
    correlation = float(spearmanr(prompt, output).statistic) if varied else 0.0
    return {"prompt": _quantiles(prompt), "output": _quantiles(output), "rank_correlation": _round(correlation, 3)}


def _quantiles(values: np.ndarray) -> list[float]:
    return [_round(float(value)) for value in np.quantile(values, SHARES)]


def _tenants(part: pa.Table) -> dict[str, float]:
    """Shares of the largest tenants, the rest together as ``others``; {} when there is one only."""
    pairs = sorted(((v["counts"].as_py(), v["values"].as_py() or "") for v in pc.value_counts(part["tenant"].combine_chunks())),
                   key=lambda pair: (-pair[0], pair[1]))
    if len(pairs) < 2:
        return {pairs[0][1]: 1.0} if pairs[0][1] else {}
    shares = {name: _round(count / part.num_rows) for count, name in pairs[:MOST_TENANTS]}
    rest = sum(count for count, _ in pairs[MOST_TENANTS:])
    return shares | ({"others": _round(rest / part.num_rows)} if rest else {})


def _round(value: float, digits: int = 5) -> float:
    """``value`` with so many significant digits."""
    return float(f"{value:.{digits}g}")


def _plain(value: Any) -> Any:
    """Whole numbers as int, so that YAML shows them so."""
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value
