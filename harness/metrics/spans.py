"""Sums over intervals of what lasts from one time to another."""

from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def integrals(edges: Array, since: Array, until: Array, weights: Sequence[Array | None]) -> list[Array]:
    """For each of ``weights`` (n,) (None: 1) the integral over each [edges[i], edges[i + 1]) of the weights of the spans
    [since, until) (n,) that cover it. Spans may reach beyond the edges. n spans and m intervals cost O(n log m)."""
    bins = len(edges) - 1
    since, until = np.maximum(since, edges[0]), np.minimum(until, edges[-1])
    counts = until > since
    if not bins or not counts.any():
        return [np.zeros(bins) for _ in weights]
    since, until = since[counts], until[counts]
    first, last = np.searchsorted(edges, since, "right") - 1, np.searchsorted(edges, until, "left") - 1
    head = np.where(first == last, until, edges[first + 1]) - since
    tail = np.where(first == last, 0.0, until - edges[last])
    inner, width = np.maximum(last, first + 1), np.diff(edges)
    found = []
    for weight in weights:
        w = np.ones(len(since)) if weight is None else weight[counts].astype(float)
        whole = np.cumsum(np.bincount(first + 1, w, bins + 1) - np.bincount(inner, w, bins + 1))[:bins]
        found.append(np.bincount(first, head * w, bins) + np.bincount(last, tail * w, bins) + whole * width)
    return found
