"""Arrivals of calibrated workloads: Poisson within bins whose rate follows hour, weekday and random factors, alone or in batches.

Every draw goes forward in time, so that a longer trace begins with the shorter one.
"""

from math import exp, log, sqrt

import numpy as np

from harness.errors import BadInput
from harness.workload.common import DAY_S, HOUR_S, MOST_JOBS, milliseconds

WEEK_S = 7 * DAY_S


def calendar(hour: np.ndarray, weekday: np.ndarray, bins: int, bin_s: float, week_s: float) -> np.ndarray:
    """Factor of each bin, f64 (bins,), from those of the hours (24,) and weekdays (7,). Time 0 is ``week_s`` after a Monday's midnight."""
    middle = week_s + (np.arange(bins) + 0.5) * bin_s
    return hour[np.floor_divide(middle, HOUR_S).astype(np.int64) % 24] * weekday[np.floor_divide(middle, DAY_S).astype(np.int64) % 7]


def lognormal_ar1(rng: np.random.Generator, sigma: float, rho: float, size: int) -> np.ndarray:
    """Factors of mean 1 whose logarithm is a stationary AR(1) with standard deviation ``sigma``: f64 (size,)."""
    draws = rng.standard_normal(size)
    for i in range(1, size):
        draws[i] = rho * draws[i - 1] + sqrt(1.0 - rho * rho) * draws[i]
    return np.exp(sigma * draws - sigma * sigma / 2.0)


def gamma_factors(rng: np.random.Generator, cv: float, size: int) -> np.ndarray:
    """Independent Gamma factors of mean 1 and this coefficient of variation: f64 (size,)."""
    return rng.gamma(1.0 / (cv * cv), cv * cv, size) if cv > 0 else np.ones(size)


def per_day(factors: np.ndarray, bins: int, bin_s: float, week_s: float, period_s: float = DAY_S) -> np.ndarray:
    """The factor of the calendar day, or other period, of each bin: f64 (bins,)."""
    day = np.floor_divide(week_s + (np.arange(bins) + 0.5) * bin_s, period_s).astype(np.int64)
    return factors[day - int(week_s // period_s)]


def days_touched(end_s: float, week_s: float, period_s: float = DAY_S) -> int:
    """Calendar days, or other periods, that [0, end_s) touches."""
    return int((week_s + end_s) // period_s) - int(week_s // period_s) + 1


def silences(rng: np.random.Generator, per_day: float, mean_s: float, end_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Begins and ends, s, of the times in which nothing arrives: they begin as a Poisson process, last exponentially, and may
    overlap."""
    found, at = [], rng.exponential(DAY_S / per_day) if per_day > 0.0 else end_s
    while at < end_s:
        found.append((at, at + rng.exponential(mean_s)))
        at += rng.exponential(DAY_S / per_day)
    begin, end = np.array(found).reshape(-1, 2).T
    return begin, end


def outside(times: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """``times`` (any order) that are in no interval [begin, end), begins ascending."""
    before = np.searchsorted(begin, times, side="right")
    latest = np.append(-np.inf, np.maximum.accumulate(end))
    return times[latest[before] <= times]


def place(counts: np.random.Generator, places: np.random.Generator, expected: np.ndarray, bin_s: float, end_s: float) -> np.ndarray:
    """Poisson arrivals with these expected numbers in each bin, uniform within it: f64 s, ascending, in [0, end_s).

    Raises BadInput when more than `MOST_JOBS` are to be expected.
    """
    if not expected.sum() <= MOST_JOBS:
        raise BadInput(f"workload: its parameters come to {expected.sum():.3g} arrivals, more than {MOST_JOBS:,}; shorten the trace or "
                       "lower the load")
    numbers = counts.poisson(expected)
    which = np.repeat(np.arange(len(expected)), numbers)
    times = (which + places.random(len(which))) * bin_s
    return times[np.lexsort((times, which))][: int((times < end_s).sum())]


def in_batches(sizes_rng: np.random.Generator, gaps_rng: np.random.Generator, starts: np.ndarray, mean: float,
               gap_s: float) -> np.ndarray:
    """Each start becomes a batch: a geometric number of arrivals of this mean, exponential gaps of mean ``gap_s``; s, as drawn."""
    if mean <= 1.0:
        return starts
    sizes = sizes_rng.geometric(1.0 / mean, len(starts))
    first = np.cumsum(sizes) - sizes
    gaps = gaps_rng.exponential(gap_s, int(sizes.sum()))
    total = np.cumsum(gaps)
    return np.repeat(starts, sizes) + total - np.repeat(total[first], sizes)


def rounded(times: np.ndarray, end_s: float) -> np.ndarray:
    """The times before ``end_s``, in milliseconds, in the order given."""
    return milliseconds(times[times < end_s])


def sigma_of(cv2: float) -> float:
    """Standard deviation of the logarithm of a log-normal with this squared coefficient of variation."""
    return sqrt(log(1.0 + max(cv2, 0.0)))


def correlation_of(covariance: float, sigma: float) -> float:
    """Correlation of the logarithms of two log-normals of mean 1, from the covariance of their values; 0 to 0.99."""
    return min(max(log(1.0 + max(covariance, 0.0)) / (sigma * sigma), 0.0), 0.99) if sigma > 1e-6 else 0.0


def loguniform(uniform: np.ndarray, low: float, high: float) -> np.ndarray:
    """Quantiles of the log-uniform distribution on [low, high]."""
    return low * np.exp(uniform * log(high / low))


def loguniform_mean(low: float, high: float) -> float:
    """Mean of the log-uniform distribution on [low, high]."""
    return (high - low) / log(high / low)


def lognormal_capped_mean(mu: float, sigma: float, cap: float) -> float:
    """Mean of min(X, cap), X log-normal: Phi from the error function."""
    from math import erf

    def below(x: float) -> float:
        return 0.5 * (1.0 + erf(x / sqrt(2.0)))

    at = (log(cap) - mu) / sigma
    return exp(mu + sigma * sigma / 2.0) * below(at - sigma) + cap * (1.0 - below(at))
