"""Forecasts of the next hour's demand from the maxima of the hours before. specs/cluster-policies.md, GFS.

A series is a row of hourly maxima in GPUs: hour ``j`` stands at ``j % RING`` of it. Forecasts are a mean and a standard deviation.
"""

import math

from harness.jit import fill, inlined, kernel

RING = 672
"""Hours that are kept: four weeks."""

LIN, LAST, SEASONAL, ORACLE = 0, 1, 2, 3
FORECASTERS = ("lin", "last", "seasonal", "oracle")

TERMS, WORK = 4, 32
"""Terms of the linear forecast; scratch numbers that it needs."""


@kernel
def naive(series, n, lag, history):
    """Hour ``n`` is taken to be like hour n - lag; sigma is the root mean square of such differences in the last ``history`` hours."""
    squares, pairs = 0.0, 0
    for j in range(max(lag, n - history), n):
        difference = series[j % RING] - series[(j - lag) % RING]
        if j - lag >= n - RING:
            squares += difference * difference
            pairs += 1
    return series[(n - lag) % RING], math.sqrt(squares / pairs) if pairs else 0.0


@inlined
def _term(series, j, term, day, week):
    """Term of hour ``j``: 1, and the values an hour, a day and a week before."""
    if term == 0:
        return 1.0
    return series[(j - (1 if term == 1 else day if term == 2 else week)) % RING]


@kernel
def fit(series, n, day, week, history, coefficients, work):
    """Least squares of y[h] on 1, y[h-1], y[h-day], y[h-week] over the last ``history`` hours before ``n``; writes TERMS coefficients.

    Returns the standard deviation of the residuals, or -1 when there are no more hours than terms, or the terms are not independent.
    """
    first = max(week, n - min(history, RING) + week)
    if n - first <= TERMS:
        return -1.0
    width = TERMS + 1
    fill(work, 0.0)
    for j in range(first, n):
        for a in range(TERMS):
            x = _term(series, j, a, day, week)
            for b in range(TERMS):
                work[a * width + b] += x * _term(series, j, b, day, week)
            work[a * width + TERMS] += x * series[j % RING]
    for a in range(TERMS):
        pivot = a
        for b in range(a + 1, TERMS):
            if abs(work[b * width + a]) > abs(work[pivot * width + a]):
                pivot = b
        if abs(work[pivot * width + a]) < 1e-9:
            return -1.0
        for b in range(width):
            work[a * width + b], work[pivot * width + b] = work[pivot * width + b], work[a * width + b]
        for row in range(TERMS):
            if row != a:
                factor = work[row * width + a] / work[a * width + a]
                for b in range(a, width):
                    work[row * width + b] -= factor * work[a * width + b]
    for a in range(TERMS):
        coefficients[a] = work[a * width + TERMS] / work[a * width + a]
    squares = 0.0
    for j in range(first, n):
        residual = series[j % RING] - linear(series, j, day, week, coefficients)
        squares += residual * residual
    return math.sqrt(squares / (n - first))


@kernel
def linear(series, n, day, week, coefficients):
    """What the fitted line gives for hour ``n``."""
    mean = 0.0
    for term in range(TERMS):
        mean += coefficients[term] * _term(series, n, term, day, week)
    return mean


@kernel
def normal_quantile(p):
    """z with P(Z <= z) = p for a standard normal Z, by bisection."""
    low, high = -40.0, 40.0
    for _ in range(100):
        middle = (low + high) / 2.0
        if math.erfc(-middle / math.sqrt(2.0)) / 2.0 < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
