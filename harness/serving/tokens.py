"""Times between the tokens of each request, from the log: gathered after the replay, so that a step costs no work per request."""


import numpy as np

from harness.jit import entry
from harness.serving.log import STEP, Log, spans_of, stays_of
from harness.serving.state import Array, Table

QUANTILE = 0.99


def times_between_tokens(log: Log, requests: Table, replicas: int) -> tuple[Array, Array]:
    """Mean and 99th percentile (linear) of the times between the tokens of each request (Q,), s; nan with fewer than two tokens."""
    return between_tokens(stays_of(log), *ends_of_tokens(spans_of(log), replicas), requests)


def ends_of_tokens(spans: Table, replicas: int) -> tuple[Array, Array]:
    """The ends, s, of the steps that made tokens, by replica and in order (n,); and where those of each replica begin (M + 1,)."""
    tokens = np.flatnonzero((spans.kind == STEP) & (spans.batch > 0))
    replica = spans.replica[tokens]
    ends = spans.end[tokens][np.argsort(replica, kind="stable")]
    return ends, np.concatenate([[0], np.cumsum(np.bincount(replica, minlength=replicas))])


def between_tokens(stays: Table, ends: Array, first: Array, requests: Table) -> tuple[Array, Array]:
    """The same from the stays of these requests, numbered from 0, and the ends of steps; that of ordinal o of replica r is
    ends[first[r] + o - 1]."""
    by_request = np.argsort(stays.request, kind="stable")
    bounds = np.searchsorted(stays.request[by_request], np.arange(len(requests) + 1))
    mean, high = np.full(len(requests), np.nan), np.full(len(requests), np.nan)
    _gather(ends, first, stays.replica, stays.since, stays.until, stays.time, by_request, bounds,
            np.ascontiguousarray(requests.first_token), mean, high)
    return mean, high


@entry
def _gather(ends, first, replica, since, until, time, by_request, bounds, first_token, mean, high):
    gaps, largest = np.empty(1024), np.empty(64)
    for q in range(len(mean)):
        n, last = 0, first_token[q]
        for i in range(bounds[q], bounds[q + 1]):
            stay = by_request[i]
            extra = not np.isnan(time[stay])
            start, count = first[replica[stay]] + since[stay], 1 if extra else until[stay] - since[stay]
            if n + count > len(gaps):
                larger = np.empty(2 * (n + count))
                larger[:n] = gaps[:n]
                gaps, largest = larger, np.empty(len(larger) // 64 + 64)
            for j in range(count):
                now = time[stay] if extra else ends[start + j]
                gaps[n] = now - last
                last = now
                n += 1
        if n:
            at = QUANTILE * (n - 1)
            k = int(at)
            kept = 0  # the n - k largest gaps so far, ascending at the front of ``largest``
            for j in range(n):
                if kept == n - k and gaps[j] <= largest[0]:
                    continue
                if kept < n - k:
                    place = kept
                    kept += 1
                    while place > 0 and largest[place - 1] > gaps[j]:
                        largest[place] = largest[place - 1]
                        place -= 1
                else:
                    place = 0
                    while place + 1 < kept and largest[place + 1] < gaps[j]:
                        largest[place] = largest[place + 1]
                        place += 1
                largest[place] = gaps[j]
            mean[q] = (last - first_token[q]) / n
            high[q] = largest[0] + (at - k) * (largest[min(1, kept - 1)] - largest[0])
