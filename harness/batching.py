"""Batches of jobs with known decode lengths, in the abstract: what ISJL and its rivals cost beside the optimum (arXiv 2608.02244).

The model is the one in which the published competitive ratio can hold: at most ``places`` jobs are active, none is preempted, one may
enter only while every active job has made at most ``delta`` tokens, and a step costs c0 + c1 x the largest progress in it. ISJL itself is a
RECONSTRUCTION from the abstract, the same as harness/serving/policies/isjl.py, which the tests hold equal to this.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

Length = int


class Schedule(NamedTuple):
    """Entry step of each job (in the order given, steps from 0), and its length."""

    entries: tuple[int, ...]
    lengths: tuple[Length, ...]

    @property
    def makespan(self) -> int:
        return max(e + s for e, s in zip(self.entries, self.lengths, strict=True))

    def leaders(self) -> list[int]:
        """The largest progress of each step; 0 where nobody is active."""
        most = [0] * self.makespan
        for entry, length in zip(self.entries, self.lengths, strict=True):
            for k in range(length):
                most[entry + k] = max(most[entry + k], k + 1)
        return most

    def cost(self, c0: float = 0.0, c1: float = 1.0) -> float:
        """Sum of step times."""
        return sum(c0 + c1 * most for most in self.leaders() if most)

    def finishes(self, c0: float = 0.0, c1: float = 1.0) -> list[float]:
        """Time at which each job ends."""
        at, clock = [], 0.0
        for most in self.leaders():
            clock += c0 + c1 * most
            at.append(clock)
        return [at[e + s - 1] for e, s in zip(self.entries, self.lengths, strict=True)]

    def own(self) -> list[int]:
        """Sum of each job's own progress over its steps: what it would cost alone."""
        return [s * (s + 1) // 2 for s in self.lengths]

    def caused(self) -> list[int]:
        """Sum of the largest progress over each job's steps: the cost of the steps that it is in."""
        leaders = self.leaders()
        return [sum(leaders[e:e + s]) for e, s in zip(self.entries, self.lengths, strict=True)]

    def externality(self) -> float:
        """Sum over jobs and steps of (largest progress - own), over the sum of own progress."""
        return sum(self.caused()) / sum(self.own()) - 1

    def alignment(self) -> float:
        """Cost alignment: correlation over jobs of the cost of the steps that a job is in with its own; nan where all are alike."""
        caused, own = np.array(self.caused(), float), np.array(self.own(), float)
        return float(np.corrcoef(caused, own)[0, 1]) if np.ptp(own) and np.ptp(caused) else float("nan")

    def profit(self, price: float, c0: float = 0.0, c1: float = 1.0) -> float:
        """Price of a token times the tokens, minus the sum of step costs."""
        return price * sum(self.lengths) - self.cost(c0, c1)

    def disparity(self) -> int:
        """The largest progress that another job had made when one entered."""
        worst = 0
        for e in self.entries:
            for other, length in zip(self.entries, self.lengths, strict=True):
                if other < e < other + length:
                    worst = max(worst, e - other)
        return worst


def ljf(lengths: Sequence[Length], places: int) -> Schedule:
    """Batches of the longest jobs left; the next begins when all of one have ended."""
    return isjl(lengths, places, 0)


def isjl(lengths: Sequence[Length], places: int, delta: float, inserts: float = float("inf")) -> Schedule:
    """Head insertion: see harness/serving/policies/isjl.py for the steps."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    entries, start = [0] * len(lengths), 0
    while order:
        mains, rest = order[:places], order[places:]
        horizon = lengths[mains[0]]
        slots = [[i] for i in mains]
        loads, left, inserted = [lengths[i] for i in mains], [], 0
        for i in rest:
            s = lengths[i]
            fits = [p for p in range(len(slots)) if loads[p] + s <= horizon and loads[p] + s - lengths[slots[p][0]] <= delta]
            if inserted < inserts and fits:
                p = min(fits, key=lambda p: (loads[p], p))
                slots[p].append(i)
                loads[p] += s
                inserted += 1
            else:
                left.append(i)
        for slot in slots:
            at = start
            for i in reversed(slot):  # the shortest first, the main last
                entries[i] = at
                at += lengths[i]
        order, start = left, start + horizon
    return Schedule(tuple(entries), tuple(lengths))


def isjl_tail(lengths: Sequence[Length], places: int, delta: float) -> Schedule:
    """Tail insertion: a freed place takes the longest job left that ends by the horizon, while at most ``delta`` tokens have been made."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    entries, start = [0] * len(lengths), 0
    while order:
        horizon = lengths[order[0]]
        ends = []
        for i in order[:places]:
            entries[i] = start
            ends.append(lengths[i])
        order = order[places:]
        for elapsed in range(1, horizon):
            if elapsed > delta:
                break
            for p, end in enumerate(ends):
                fits = [i for i in order if elapsed + lengths[i] <= horizon] if end <= elapsed else []
                if fits:
                    entries[fits[0]] = start + elapsed
                    ends[p] = elapsed + lengths[fits[0]]
                    order.remove(fits[0])
        start += horizon
    return Schedule(tuple(entries), tuple(lengths))


def fcfs(lengths: Sequence[Length], places: int, delta: float = float("inf")) -> Schedule:
    """In the order given: the next enters as soon as there is a place and every active progress is at most ``delta``."""
    entries: list[int] = []
    active: list[tuple[int, int]] = []  # entry, end
    at = 0
    for length in lengths:
        while True:
            active = [(e, end) for e, end in active if end > at]
            if len(active) < places and all(at - e <= delta for e, _ in active):
                break
            at += 1
        entries.append(at)
        active.append((at, at + length))
    return Schedule(tuple(entries), tuple(lengths))


def optimum(lengths: Sequence[Length], places: int, delta: int) -> int:
    """Least pure-max cost of any schedule that keeps disparity within ``delta``: exhaustive, for small instances.

    A state is the progress and length of every active job and the lengths that wait. It is never better to idle a step.
    """

    @cache
    def best(active: tuple[tuple[int, int], ...], waiting: tuple[int, ...]) -> int:
        if not active and not waiting:
            return 0
        found = None
        may_enter = all(made <= delta for made, _ in active)
        for joiners in _choices(waiting, places - len(active) if may_enter else 0):
            now = tuple(sorted([*active, *((0, s) for s in joiners)]))
            if not now:
                continue
            rest = list(waiting)
            for s in joiners:
                rest.remove(s)
            most = max(made + 1 for made, _ in now)
            then = tuple(sorted((made + 1, s) for made, s in now if made + 1 < s))
            cost = most + best(then, tuple(rest))
            found = cost if found is None else min(found, cost)
        assert found is not None
        return found

    return best((), tuple(sorted(lengths)))


@cache
def _choices(waiting: tuple[int, ...], most: int) -> tuple[tuple[int, ...], ...]:
    """Every multiset of at most ``most`` of the waiting lengths."""
    found = {()}
    for s in waiting:
        found |= {tuple(sorted((*chosen, s))) for chosen in found if len(chosen) < most}
    return tuple(found)
