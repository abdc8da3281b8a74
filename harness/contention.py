"""Training jobs that share links: who progresses how fast under three rules of sharing. LEVELLER is a RECONSTRUCTION from its abstract.

``python -m harness.contention`` compares the rules on random instances, and the greedy choice of paths with the optimum.

Alone, a job of iteration time T sends for a share s of it at its line rate R: b = s R on average. At progress rate rho (time alone / time
shared) it needs rho b on every link of its path, and at most b; links carry averages, so bursts are taken to interleave. Each rule raises
all jobs together in its own measure and freezes those that cross a saturated link (progressive filling), which makes the measure
max-min fair:

- ``leveller``: the progress rate itself.
- ``fifo``: iterations per second. Messages are served in the order in which they come, so that on a full link every job sends one in each
  round, and those with short iterations wait for the others.
- ``max_min``: bytes per second of each flow.

specs/cluster-policies.md, Communication fairness; the rules, FIFO's among them, are our reading.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

RULES = ("leveller", "fifo", "max_min")


@dataclass(frozen=True)
class Job:
    """``period_s``: iteration time alone (s); ``share`` of it that communicates, 0 to 1; ``rate``: line rate; ``paths``: the sets of links
    among which it may choose, as indices; ``work_s``: time to finish alone (s)."""

    period_s: float
    share: float
    rate: float
    paths: tuple[tuple[int, ...], ...]
    work_s: float = 1.0

    @property
    def demand(self) -> float:
        """Average rate alone."""
        return self.share * self.rate


class Measured(NamedTuple):
    """Least progress, Jain's index of the progress rates, and the time until all jobs have finished (s)."""

    least: float
    jain: float
    makespan_s: float


def progress(jobs: Sequence[Job], paths: Sequence[tuple[int, ...]], capacity: Sequence[float], rule: str) -> np.ndarray:
    """Progress rate of each job, (jobs,) in (0, 1], when job i takes ``paths[i]`` over links of these capacities."""
    demand = np.array([job.demand for job in jobs])
    weight = {"leveller": demand, "fifo": demand * [job.period_s for job in jobs], "max_min": np.ones(len(jobs))}[rule]
    rates = fill(demand, np.where(demand > 0, weight, 1.0), paths, capacity)
    return np.divide(rates, demand, out=np.ones(len(jobs)), where=demand > 0)


def fill(most: np.ndarray, weight: np.ndarray, paths: Sequence[tuple[int, ...]], capacity: Sequence[float]) -> np.ndarray:
    """Progressive filling: rates min(most, level x weight) with one rising level, each job frozen when a link of its path is full.

    ``most`` and ``weight`` (jobs,); returns rates (jobs,).
    """
    rates, frozen = np.zeros(len(most)), most <= 0
    crosses = np.array([[link in path for link in range(len(capacity))] for path in paths]).reshape(len(most), len(capacity))
    full = np.array(capacity, float)
    while not frozen.all():
        rising = ~frozen
        ends = np.where(rising, most / weight, np.inf)
        climbing = (weight * rising) @ crosses
        room = np.maximum(full - (rates * frozen) @ crosses, 0.0)
        level = min(ends.min(), np.divide(room, climbing, out=np.full(len(full), np.inf), where=climbing > 0).min())
        rates[rising] = np.minimum(most[rising], level * weight[rising])
        used = rates @ crosses
        saturated = used >= full * (1 - 1e-12)
        frozen = frozen | (rates >= most * (1 - 1e-12)) | crosses[:, saturated].any(axis=1)
    return rates


def jain(values: np.ndarray) -> float:
    """Jain's fairness index, 1 / n to 1."""
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def measure(jobs: Sequence[Job], paths: Sequence[tuple[int, ...]], capacity: Sequence[float], rule: str) -> Measured:
    """What a rule gives while all jobs run, and how long it takes until the last has finished; whoever finishes frees its share."""
    rates = progress(jobs, paths, capacity, rule)
    left, now, now_rates = np.array([job.work_s for job in jobs]), 0.0, rates
    alive = np.arange(len(jobs))
    while len(alive):
        step = float((left[alive] / now_rates).min())
        now += step
        left[alive] -= now_rates * step
        alive = alive[left[alive] > 1e-9 * step]
        now_rates = progress([jobs[i] for i in alive], [paths[i] for i in alive], capacity, rule) if len(alive) else now_rates
    return Measured(float(rates.min()), jain(rates), now)


def greedy(jobs: Sequence[Job], capacity: Sequence[float]) -> list[tuple[int, ...]]:
    """Each job in turn takes the path on which it would progress fastest beside those before it. Ties: the first.

    On equal parallel links this is list scheduling, so the least progress is at least 1 / (2 - 1 / links) of the largest possible.
    """
    chosen: list[tuple[int, ...]] = []
    for n, job in enumerate(jobs):
        found = [progress(jobs[: n + 1], [*chosen, path], capacity, "leveller")[-1] for path in job.paths]
        load = [_load(jobs[:n], chosen, path, capacity) for path in job.paths]
        chosen.append(job.paths[min(range(len(found)), key=lambda i: (-round(found[i], 12), load[i], i))])
    return chosen


def _load(jobs: Sequence[Job], paths: Sequence[tuple[int, ...]], path: tuple[int, ...], capacity: Sequence[float]) -> float:
    """Largest share of a link of ``path`` that these jobs want: tells paths apart on which nobody is held up yet."""
    return max(sum(job.demand for job, taken in zip(jobs, paths, strict=True) if link in taken) / capacity[link] for link in path)


def optimum(jobs: Sequence[Job], capacity: Sequence[float]) -> float:
    """The largest least progress of any choice of paths: all are tried. The least is where the first link fills: capacity / demand."""
    wanted = np.zeros((1, len(capacity)))
    for job in jobs:
        options = [[job.demand * (link in path) for link in range(len(capacity))] for path in job.paths]
        wanted = (wanted[:, None, :] + np.array(options)[None, :, :]).reshape(-1, len(capacity))
    return float(min(1.0, 1.0 / (wanted / np.array(capacity)).max(axis=1).min()))


RACKS, SPINES = 6, 2


def instance(seed: int, n: int) -> tuple[list[Job], list[float]]:
    """``n`` jobs, each over two of RACKS racks that reach each other through one of SPINES spines, and the capacities of the uplinks.

    Shares of communication are uniform in 0.1 to 0.7, iterations log-uniform in 0.05 to 2 s, durations log-normal with a median of an hour.
    All of it is assumed.
    """
    rng = np.random.default_rng([seed, n])
    jobs = []
    for _ in range(n):
        a, b = rng.choice(RACKS, 2, replace=False)
        paths = tuple((int(a) * SPINES + s, int(b) * SPINES + s) for s in range(SPINES))
        jobs.append(Job(float(np.exp(rng.uniform(np.log(0.05), np.log(2.0)))), float(rng.uniform(0.1, 0.7)), 1.0, paths,
                        float(rng.lognormal(np.log(3600.0), 1.0))))
    return jobs, [1.0] * (RACKS * SPINES)


def compare(seeds: Sequence[int], n: int) -> dict[str, list[Measured]]:
    """Each rule on the same instances of ``n`` jobs and the same paths, those of ``greedy``; one entry for each seed."""
    found: dict[str, list[Measured]] = {rule: [] for rule in RULES}
    for seed in seeds:
        jobs, capacity = instance(seed, n)
        paths = greedy(jobs, capacity)
        for rule in RULES:
            found[rule].append(measure(jobs, paths, capacity, rule))
    return found


def table(seeds: Sequence[int] = range(10), sizes: Sequence[int] = (6, 12, 24, 36, 48)) -> pd.DataFrame:
    """jobs, rule and the fields of Measured of every comparison, one row for each instance."""
    rows = [{"jobs": n, "rule": rule, **one._asdict()} for n in sizes for rule, found in compare(seeds, n).items() for one in found]
    return pd.DataFrame(rows)


def ratios(seeds: Sequence[int], most: int = 7) -> np.ndarray:
    """Least progress of the greedy choice over the optimum's, on small instances: (seeds,); parallel equal links, 2 or 3 of them."""
    found = []
    for seed in seeds:
        rng = np.random.default_rng([seed, most])
        links = int(rng.integers(2, 4))
        paths = tuple((link,) for link in range(links))
        jobs = [Job(1.0, float(rng.uniform(0.1, 1.0)), 1.0, paths) for _ in range(int(rng.integers(links, most + 1)))]
        capacity = [1.0] * links
        found.append(progress(jobs, greedy(jobs, capacity), capacity, "leveller").min() / optimum(jobs, capacity))
    return np.array(found)


def main() -> int:
    print("leveller is a reconstruction from an abstract")
    print(f"{'jobs':>4} {'rule':<9} {'least progress':>15} {'Jain':>6} {'makespan (h)':>13}")
    for n in (6, 12, 24, 48):
        for rule, found in compare(range(10), n).items():
            least, fair, end = np.mean(found, axis=0)
            print(f"{n:>4} {rule:<9} {least:>15.3f} {fair:>6.3f} {end / 3600:>13.2f}")
    found = ratios(range(500))
    print(f"greedy over optimum, 500 small instances: least {found.min():.3f}, mean {found.mean():.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
