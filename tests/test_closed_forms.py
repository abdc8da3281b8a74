"""Queues whose answers are known: Erlang-C, Pollaczek-Khinchine, Cobham, Little's law and the utilization law.

A mean is accepted when the closed form lies within the interval of the run: the mean of ``BATCHES`` batch means of the jobs after
the first tenth, give or take Student's quantile for 99.9 % times the standard error of the batch means. So a right replay fails one
seed in a thousand, and seeds are fixed. ``NARROW`` says how wide the interval may be, so that a wrong one would be seen.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from builders import server
from engine_run import cluster_of
from harness import schema
from harness.cluster.build import Rules
from harness.cluster.hooks import load_policy
from harness.cluster.outcome import Outcome
from harness.cluster.replay import replay
from harness.jit import JIT
from harness.metrics import check_identities, jobs_table, utilization_table
from harness.metrics.utilization import means, queue_spans, running_spans
from harness.tables import fill_defaults

JOBS = 500_000 if JIT else 3_000
BATCHES = 30
CONFIDENCE = 0.999
NARROW = 0.1
"""Half width by mean. At the loads below some 1 to 8 % with 500,000 jobs, by trial; forgetting a factor (1 - rho) is far outside."""

EXACT = 1e-9


def queue(submit: np.ndarray, duration: np.ndarray, servers: list[dict], policy: str, **columns: pa.Array) -> Outcome:
    """The replay of jobs of one GPU each."""
    n = len(submit)
    trace = pa.table({
        "job_id": pa.array(map(str, range(n)), pa.string()), "submit_time": submit, "duration": duration, "gpus": np.ones(n, np.int16),
        **columns})
    outcome = replay(fill_defaults(trace, schema.JOBS), cluster_of(servers), load_policy(policy), Rules())
    check_identities(outcome)
    return outcome


def poisson(rng: np.random.Generator, rate: float, n: int) -> np.ndarray:
    return np.cumsum(rng.exponential(1 / rate, n))


def waits(outcome: Outcome) -> np.ndarray:
    return jobs_table(outcome)["wait_s"].to_numpy()


def holds(what: str, expected: float, values: np.ndarray) -> None:
    """The closed form lies within the batch-means interval of ``values`` (n,), in order of submission, and that is narrow."""
    kept = values[len(values) // 10:]
    batches = kept[: len(kept) // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    half = stats.t.ppf((1 + CONFIDENCE) / 2, BATCHES - 1) * batches.std(ddof=1) / np.sqrt(BATCHES)
    print(f"{what}: {expected:.5g} expected, {batches.mean():.5g} +- {half:.2g} measured")
    assert abs(batches.mean() - expected) <= half, f"{what}: {expected} is outside {batches.mean()} +- {half}"
    assert half <= NARROW * expected or not JIT, f"{what}: +- {half} says nothing about {expected}"


def erlang_c(k: int, load: float) -> float:
    """Probability of waiting in M/M/k with ``load`` = arrival rate x mean service."""
    terms = np.cumprod([1.0, *(load / i for i in range(1, k + 1))])
    waiting = terms[-1] * k / (k - load)
    return float(waiting / (terms[:-1].sum() + waiting))


@pytest.mark.compiled
@pytest.mark.parametrize(("k", "load"), [(1, 0.7), (4, 3.2), (8, 6.0)])
def test_mmk_waits_as_erlang_says(k: int, load: float):
    """Mean wait = C(k, a) E[S] / (k - a), probability of waiting C(k, a). GPUs of one server and servers of one GPU are the same."""
    rng = np.random.default_rng(100 + k)
    submit, duration = poisson(rng, load, JOBS), rng.exponential(1.0, JOBS)
    wait = waits(queue(submit, duration, [server(k)], "fifo"))
    holds(f"M/M/{k} wait", erlang_c(k, load) / (k - load), wait)
    holds(f"M/M/{k} share that waits", erlang_c(k, load), (wait > 0).astype(float))
    assert (wait == waits(queue(submit, duration, [server()] * k, "fifo"))).all()


@pytest.mark.parametrize("law", ["deterministic", "Erlang-2", "hyperexponential"])
def test_mg1_waits_as_pollaczek_and_khinchine_say(law: str):
    """Mean wait = rate E[S^2] / 2 (1 - rho), with E[S] = 1 and E[S^2] = 1, 1.5 and 3."""
    rng, rho = np.random.default_rng(7), 0.75
    second = {"deterministic": 1.0, "Erlang-2": 1.5, "hyperexponential": 3.0}[law]
    if law == "deterministic":
        duration = np.ones(JOBS)
    elif law == "Erlang-2":
        duration = rng.gamma(2, 0.5, JOBS)
    else:
        # Means 1 - r and 1 + r, evenly: E[S^2] = ((1 - r)^2 + (1 + r)^2) * 2 / 2 = 2 + 2 r^2, which is 3 for r^2 = 1/2.
        duration = rng.exponential(1.0, JOBS) * (1 + rng.choice([-1, 1], JOBS) * np.sqrt(0.5))
    wait = waits(queue(poisson(rng, rho, JOBS), duration, [server()], "fifo"))
    holds(f"M/G/1, {law} wait", rho * second / 2 / (1 - rho), wait)


def classes(rng: np.random.Generator, rates: Sequence[float], mean_s: Sequence[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Submission, duration and class of jobs of a merged Poisson stream; durations are exponential."""
    submit = poisson(rng, sum(rates), JOBS)
    kind = rng.choice(len(rates), JOBS, p=np.array(rates) / sum(rates))
    return submit, rng.exponential(np.array(mean_s)[kind]), kind


RATES, MEANS = (0.25, 0.3, 0.1), (1.0, 0.7, 2.0)
"""Per class, most important first: rho = 0.25 + 0.21 + 0.2 = 0.66."""


def test_priorities_without_preemption_wait_as_cobham_says():
    """Mean wait of class k = R / (1 - s_{k-1}) (1 - s_k), R = sum of rate E[S^2] / 2, s_k = sum of rho up to k; E[S^2] = 2 E[S]^2."""
    submit, duration, kind = classes(np.random.default_rng(11), RATES, MEANS)
    outcome = queue(submit, duration, [server()], "priority", priority=pa.array((-kind).astype(np.int32)))
    wait, residual = waits(outcome), sum(r * m**2 for r, m in zip(RATES, MEANS, strict=True))
    before = 0.0
    for k, (rate, mean) in enumerate(zip(RATES, MEANS, strict=True)):
        after = before + rate * mean
        holds(f"class {k} wait", residual / (1 - before) / (1 - after), wait[kind == k])
        before = after


@pytest.mark.parametrize("policy", ["godel", "flextopo_imp"])
def test_preemptive_resume_priorities_take_as_long_as_the_textbook_says(policy: str):
    """Mean time in system of class k = E[S] / (1 - s_{k-1}) + R_k / (1 - s_{k-1}) (1 - s_k), R_k = sum of rate E[S^2] / 2 up to k.

    checkpoint_interval_s = 0 loses nothing at an eviction, which is preemptive resume.
    """
    submit, duration, kind = classes(np.random.default_rng(13), RATES, MEANS)
    n = len(submit)
    outcome = queue(submit, duration, [server()], policy, priority=pa.array((-kind).astype(np.int32)),
                    preemptible=pa.array(np.ones(n, bool)), checkpoint_interval_s=pa.array(np.zeros(n)))
    jct = jobs_table(outcome)["jct_s"].to_numpy()
    assert outcome.decisions > n / 10
    before, residual = 0.0, 0.0
    for k, (rate, mean) in enumerate(zip(RATES, MEANS, strict=True)):
        after, residual = before + rate * mean, residual + rate * mean**2
        holds(f"class {k} time in system", mean / (1 - before) + residual / (1 - before) / (1 - after), jct[kind == k])
        before = after


@pytest.mark.parametrize(("policy", "grace_s"), [("fifo", 0.0), ("sjf", 0.0), ("godel", 0.0), ("flextopo_imp", 0.7)])
def test_littles_law_and_the_utilization_law_hold_exactly(policy: str, grace_s: float):
    """By kind and in all: integral of the queue = sum of queue_s, integral of running jobs and GPUs = sum of time run, GPUs run."""
    rng, n = np.random.default_rng(17), 20_000 if JIT else 1_000
    kind = rng.integers(0, 3, n)
    gpus = rng.choice([1, 2, 4], n).astype(np.int16)
    trace = pa.table({
        "job_id": pa.array(map(str, range(n)), pa.string()), "submit_time": poisson(rng, 1.0, n),
        "duration": rng.exponential(3.0, n), "gpus": gpus, "kind": pa.array(np.array(schema.KINDS)[kind]),
        "priority": pa.array(rng.integers(0, 3, n).astype(np.int32)), "preemptible": pa.array(rng.random(n) < 0.7),
        "restart_cost_s": pa.array(rng.choice([0.0, 0.3], n))})
    outcome = replay(fill_defaults(trace, schema.JOBS), cluster_of([server(4)] * 2), load_policy(policy), Rules(grace_s=grace_s))
    assert (outcome.decisions > 0) == (policy in ("godel", "flextopo_imp"))
    jobs = jobs_table(outcome)
    queued, jct = (jobs[name].to_numpy() for name in ("queue_s", "jct_s"))
    edges, running = np.array([0.0, outcome.end]), running_spans(outcome)
    waiting = queue_spans(outcome, running)
    for k in range(3):
        mine = kind == k
        length = means(edges, waiting, mine[waiting.job])[2, 0] * outcome.end
        assert length == pytest.approx(queued[mine].sum(), rel=EXACT)
        busy = means(edges, running, mine[running.job])[[0, 2], 0] * outcome.end
        ran = (jct - queued)[mine]
        assert busy == pytest.approx([gpus[mine] @ ran, ran.sum()], rel=EXACT)
    # The same from the utilization table, and the utilization law: busy GPUs = rate x mean GPU seconds of a job.
    table = utilization_table(outcome)
    width = table["t_end"].to_numpy() - table["t_start"].to_numpy()
    integral = {name: float(width @ table[name].to_numpy()) for name in ("queue_len", "running_jobs", "gpu_busy", "gpu_alloc")}
    assert integral["queue_len"] == pytest.approx(queued.sum(), rel=EXACT)
    assert integral["running_jobs"] == pytest.approx((jct - queued).sum(), rel=EXACT)
    work = sum(jobs[name].to_numpy().sum() for name in ("goodput_gpu_s", "lost_gpu_s", "restart_gpu_s"))
    assert integral["gpu_busy"] == pytest.approx(work, rel=EXACT)
    assert integral["gpu_alloc"] >= integral["gpu_busy"] * (1 - EXACT)
