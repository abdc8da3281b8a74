"""The identities that every outcome obeys, whatever the policy. specs/replay-semantics.md, "Accounting"."""

import numpy as np

from harness.cluster.outcome import Outcome
from harness.cluster.state import REJECTED, UNSUBMITTED, Array
from harness.metrics.jobs import gpus_of, jobs_table, running_time
from harness.metrics.utilization import Spans, held_spans, means, queue_spans, running_spans
from harness.schema import MILLI
from harness.topology import UNBOUNDED

TOLERANCE = 1e-9
"""Relative to the largest time or sum at hand: float64 sums of up to some millions of terms."""


def check_identities(outcome: Outcome) -> None:
    """Raises AssertionError naming the first identity that does not hold, and a job that breaks it.

    Per job: jct = queue + running, where the state's sums also equal those of the spans in the log; running = restart + progress +
    lost at speed 1, and within the bounds of the speeds of its kind otherwise. In sum: the integral of allocated GPUs = GPUs x
    running + grace + claims. At every instant: what is held is within the capacity of the cluster.
    """
    state, end = outcome.state, outcome.end
    jobs, gpus, ran = state.jobs, gpus_of(state), running_time(outcome)
    table = jobs_table(outcome)
    jct, queued, goodput, lost, restart = (
        table[name].to_numpy()[outcome.order] for name in ("jct_s", "queue_s", "goodput_gpu_s", "lost_gpu_s", "restart_gpu_s"))
    running = running_spans(outcome)
    queue, held = queue_spans(outcome, running), held_spans(outcome)

    slack = TOLERANCE * max(end, 1.0)
    present = (jobs.status != REJECTED) & (jobs.status != UNSUBMITTED)
    _holds("jct = queue + running", np.isnan(jct) | (np.abs(jct - queued - ran) <= slack))
    _holds("running time of the log", np.abs(_seconds(running, len(jobs)) - ran) <= slack)
    _holds("queueing delay of the log", ~present | (np.abs(_seconds(queue, len(jobs)) - queued) <= slack))

    speed = state.speed.reshape(len(state.speed), -1)
    work, moving = goodput + lost, gpus * ran - restart
    _holds("running = progress + slow + lost + restart",
           (work >= speed.min(axis=1)[jobs.kind] * moving - slack * gpus) & (work <= speed.max(axis=1)[jobs.kind] * moving + slack * gpus))

    parts = gpus @ ran + (held.until - held.since) @ held.gpu / MILLI
    integral = sum(float(means(np.array([0.0, end]), spans)[0, 0]) for spans in (running, held)) * end if end > 0 else 0.0
    assert abs(integral - parts) <= TOLERANCE * max(parts, 1.0), f"integral of allocated GPUs: {integral} is not {parts}"

    most_gpu, most_cpu = _most(running, held)
    has_gpu = MILLI * int(state.shapes.gpus[state.servers.shape_id].sum())
    has_cpu = MILLI * int(state.shape_cores[state.servers.shape_id].sum())
    assert most_gpu <= has_gpu, f"GPUs held: {most_gpu} thousandths of {has_gpu}"
    assert most_cpu <= has_cpu or state.shape_cores.max() >= UNBOUNDED, f"cores held: {most_cpu} thousandths of {has_cpu}"


def _holds(identity: str, good: Array) -> None:
    assert good.all(), f"{identity}: broken by job {int(np.argmin(good))}"


def _seconds(spans: Spans, jobs: int) -> Array:
    """Seconds of the spans of each job."""
    return np.bincount(spans.job, spans.until - spans.since, jobs)


def _most(*parts: Spans) -> tuple[int, int]:
    """The most GPU and core thousandths held at one instant."""
    times = np.concatenate([time for spans in parts for time in (spans.since, spans.until)])
    if not len(times):
        return 0, 0
    at = np.unique(times, return_inverse=True)[1]
    changes = (np.concatenate([x for spans in parts for x in (held(spans), -held(spans))]) for held in (_gpu, _cpu))
    most_gpu, most_cpu = (int(np.bincount(at, change).cumsum().max()) for change in changes)
    return most_gpu, most_cpu


def _gpu(spans: Spans) -> Array:
    return spans.gpu


def _cpu(spans: Spans) -> Array:
    return spans.cpu
