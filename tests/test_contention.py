"""Links shared by training jobs, by hand: the three rules, paths, makespan, and the bound of the greedy choice."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from harness.contention import RULES, Job, fill, greedy, instance, jain, main, measure, optimum, progress, ratios

ONE = ((0,),)


def rho(jobs: list[Job], capacity: list[float], rule: str) -> list[float]:
    return progress(jobs, [job.paths[0] for job in jobs], capacity, rule).tolist()


def test_one_link():
    # A link of 1. a: T 1 s, share 0.8, b: T 0.25 s, share 0.4; line rate 1. They want 0.8 and 0.4 of 1.
    a, b = Job(1.0, 0.8, 1.0, ONE), Job(0.25, 0.4, 1.0, ONE)
    # The progress rate: rho (0.8 + 0.4) = 1, both 5/6.
    assert rho([a, b], [1.0], "leveller") == pytest.approx([5 / 6, 5 / 6])
    # Flows: 0.5 each, but b wants 0.4 only: 0.6 and 0.4, progress 0.75 and 1.
    assert rho([a, b], [1.0], "max_min") == pytest.approx([0.75, 1.0])
    # Messages of 0.8 and 0.1 (share x period). a sends one a second at full progress, 0.8, which leaves 0.2: two of b's, of four.
    assert rho([a, b], [1.0], "fifo") == pytest.approx([1.0, 0.5])
    # A longer burst of the same job, T 4 s: messages of 3.2 every 4 s, 0.8 again; b has 0.2 still.
    assert rho([Job(4.0, 0.8, 1.0, ONE), b], [1.0], "fifo") == pytest.approx([1.0, 0.5])
    # Alone, or on a link that is wide enough, nobody is slowed.
    for rule in RULES:
        assert rho([a], [1.0], rule) == [1.0] and rho([a, b], [1.2], rule) == pytest.approx([1.0, 1.0])


def test_what_a_frozen_job_leaves_goes_to_the_others():
    # Links 0 (capacity 1) and 1 (capacity 1). x crosses both and wants 0.5, y on 0 wants 1, z on 1 wants 0.25. On link 0: rho 1.5 = 1,
    # 2/3 for x and y. z then needs 0.25 of the 1 - 1/3 left: 1.
    jobs = [Job(1.0, 0.5, 1.0, ((0, 1),)), Job(1.0, 1.0, 1.0, ((0,),)), Job(1.0, 0.25, 1.0, ((1,),))]
    assert rho(jobs, [1.0, 1.0], "leveller") == pytest.approx([2 / 3, 2 / 3, 1.0])
    # A job that does not communicate is never slowed.
    assert rho([*jobs, Job(1.0, 0.0, 1.0, ((0, 1),))], [1.0, 1.0], "leveller")[3] == 1.0


def test_measures_in_time():
    # Two equal jobs that want 1 of a link of 1 each: both at 1/2. Work 10 and 30: the first ends at 20, the second has 20 left, alone: 40.
    jobs = [Job(1.0, 1.0, 1.0, ONE, 10.0), Job(1.0, 1.0, 1.0, ONE, 30.0)]
    for rule in RULES:
        assert measure(jobs, [(0,), (0,)], [1.0], rule) == pytest.approx((0.5, 1.0, 40.0))
    assert jain(np.array([1.0, 0.5])) == pytest.approx(1.5**2 / (2 * 1.25))


def test_greedy_is_list_scheduling_and_can_miss_the_optimum():
    # Three jobs that want 0.6, 0.6 and 1.0 on two links of 1. In turn: link 0, link 1 (nobody is held up, but it is emptier), then link 0
    # with 1.6: progress 0.625. Best: the small ones together, 1.2: 0.8333.
    paths = ((0,), (1,))
    jobs = [Job(1.0, share, 1.0, paths) for share in (0.6, 0.6, 1.0)]
    assert greedy(jobs, [1.0, 1.0]) == [(0,), (1,), (0,)]
    assert optimum(jobs, [1.0, 1.0]) == pytest.approx(1 / 1.2)
    assert progress(jobs, greedy(jobs, [1.0, 1.0]), [1.0, 1.0], "leveller").min() == pytest.approx(1 / 1.6)
    # Graham's worst case for two links: 1, 1 and 2 (in units of half a link): 3 against 2, the bound 1 / (2 - 1/2) = 2/3 itself.
    worst = [Job(1.0, share, 1.0, paths) for share in (0.5, 0.5, 1.0)]
    wide = [Job(1.0, share, 2.0, paths) for share in (0.5, 0.5, 1.0)]
    assert progress(wide, greedy(wide, [1.0, 1.0]), [1.0, 1.0], "leveller").min() / optimum(wide, [1.0, 1.0]) == pytest.approx(2 / 3)
    assert progress(worst, greedy(worst, [1.0, 1.0]), [1.0, 1.0], "leveller").min() / optimum(worst, [1.0, 1.0]) == pytest.approx(2 / 3)


def test_greedy_is_within_a_half_of_the_optimum():
    found = ratios(range(150))
    assert 0.5 <= found.min() < 1.0 and found.max() <= 1 + 1e-12


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(RULES))
def test_a_filling_is_feasible_and_max_min_fair(seed: int, rule: str):
    """No link carries more than it can; whoever is held up crosses a full link on which nobody has more in the rule's own measure."""
    jobs, capacity = instance(seed, 2 + seed % 9)
    paths = [job.paths[seed % 2] for job in jobs]
    rates = progress(jobs, paths, capacity, rule)
    used = np.zeros(len(capacity))
    for job, path, rate in zip(jobs, paths, rates, strict=True):
        used[list(path)] += rate * job.demand
    assert (rates > 0).all() and (rates <= 1 + 1e-9).all() and (used <= np.array(capacity) + 1e-9).all()
    measures = {"leveller": lambda i: rates[i], "fifo": lambda i: rates[i] / jobs[i].period_s,
                "max_min": lambda i: rates[i] * jobs[i].demand}
    for i, path in enumerate(paths):
        if rates[i] < 1 - 1e-9:
            full = [link for link in path if used[link] >= capacity[link] - 1e-9]
            assert any(all(measures[rule](j) <= measures[rule](i) + 1e-9 for j in range(len(jobs)) if link in paths[j]) for link in full)


def test_the_least_progress_is_that_of_the_linear_programme():
    """max t with t b_i <= x_i <= b_i and links within capacity: an independent solver finds the same least progress."""
    for seed in range(10):
        jobs, capacity = instance(seed, 8)
        paths, demand = [job.paths[0] for job in jobs], np.array([job.demand for job in jobs])
        n = len(jobs)
        links = [[float(link in path) for path in paths] + [0.0] for link in range(len(capacity))]
        least = [[-float(i == j) for j in range(n)] + [demand[i]] for i in range(n)]
        solved = linprog([0.0] * n + [-1.0], links + least, capacity + [0.0] * n, bounds=[*((0, d) for d in demand), (0, 1)])
        assert progress(jobs, paths, capacity, "leveller").min() == pytest.approx(-solved.fun)


def test_filling_by_hand_with_caps():
    # Rates rise together with weights 1 and 2 to caps 0.1 and 10 on a link of 1: the first stops at 0.1, the second takes 0.9.
    assert fill(np.array([0.1, 10.0]), np.array([1.0, 2.0]), [(0,), (0,)], [1.0]).tolist() == pytest.approx([0.1, 0.9])


def test_the_command_prints_every_rule(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harness.contention.ratios", lambda seeds: np.array([0.75, 1.0]))
    monkeypatch.setattr("harness.contention.compare", lambda seeds, n: {rule: [measure(*_small(), rule)] for rule in RULES})
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[2:5]] == list(RULES) and "least 0.750, mean 0.875" in lines[-1]
    assert all(len(a) and len(b) for a, b in pairwise(lines))


def _small() -> tuple[list[Job], list[tuple[int, ...]], list[float]]:
    return [Job(1.0, 0.5, 1.0, ONE, 10.0)], [(0,)], [1.0]
