"""Sums over intervals of what lasts from one time to another."""

from collections.abc import Sequence

import numpy as np

Array = np.ndarray


class Integrals:
    """Integrals over each [edges[i], edges[i + 1]) of ``n`` weights of spans, which may come in pieces: the pieces give the same, to the
    bit, as their spans at once."""

    def __init__(self, edges: Array, n: int):
        self.edges, bins = edges, len(edges) - 1
        self.heads, self.tails = np.zeros((2, n, bins))
        self.risen, self.fallen = np.zeros((2, n, bins + 1))

    def add(self, since: Array, until: Array, weights: Sequence[Array | None]) -> None:
        """Adds spans [since, until) (m,) with their weights (m,) (None: 1). They may reach beyond the edges; m spans cost O(m log bins)."""
        edges, bins = self.edges, len(self.edges) - 1
        since, until = np.maximum(since, edges[0]), np.minimum(until, edges[-1])
        counts = until > since
        if not bins or not counts.any():
            return
        since, until = since[counts], until[counts]
        first, last = np.searchsorted(edges, since, "right") - 1, np.searchsorted(edges, until, "left") - 1
        head = np.where(first == last, until, edges[first + 1]) - since
        tail = np.where(first == last, 0.0, until - edges[last])
        inner = np.maximum(last, first + 1)
        for i, weight in enumerate(weights):
            w = np.ones(len(since)) if weight is None else weight[counts].astype(float)
            for sums, at, value in ((self.heads, first, head * w), (self.tails, last, tail * w), (self.risen, first + 1, w),
                                    (self.fallen, inner, w)):
                np.add.at(sums[i], at, value)

    def result(self) -> Array:
        """(n, bins)."""
        whole = np.cumsum(self.risen - self.fallen, axis=1)[:, :-1]
        return self.heads + self.tails + whole * np.diff(self.edges)
