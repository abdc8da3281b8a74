"""The engine against the naive twin on one world, and how a world on which they differ is made small enough to read."""

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import naive
from engine_run import cluster_of, run
from harness import schema
from harness.cluster.outcome import Outcome
from harness.metrics import check_identities, jobs_table, preemptions_table, summary, utilization_table
from harness.metrics.utilization import running_spans
from worlds import World, literal, show

CLOSE = 1e-12
"""Relative margin of sums of GPU seconds, which the two add up in different orders: some tens of roundings of 2^-53."""

SUMS = ("goodput_gpu_s", "lost_gpu_s", "restart_gpu_s", "shortfall_gpu_s", "grace_gpu_s", "claim_gpu_s", "alloc_gpu_s")
OUTSIDE = ("search_wall_us", "servers_scanned", "reason")
"""Columns that the twin does not have: wall-clock time, the cost of the engine's own search, and the wording of a reason."""

OTHER_SETS = ("domain_first", "domain_first_cost", "domain_first_gang", "dally")
"""Policies whose point is to try other sets than the exhaustive search that stands for them in the twin."""


def differences(jobs: list[dict], servers: list[dict], options: dict[str, Any], policy: str) -> list[str]:
    """What differs between engine and twin, one line each; [] when all tables agree. The identities are checked on the way.

    Times, counts, levels and names must be equal to the bit, and sums of GPU seconds within ``CLOSE``.
    """
    expected = naive.replay(jobs, servers, policy, options)
    outcome = run(jobs, servers, policy, options)
    check_identities(outcome)
    found = list(_unequal("events", expected["events"], outcome.events))
    found += _unequal("decisions", expected["decisions"], outcome.decisions)
    found += _unequal("starts", sorted(expected["starts"]), starts(outcome))
    for job, theirs, ours in zip(jobs, expected["jobs"], jobs_table(outcome).to_pylist(), strict=True):
        for column in theirs:
            found += _unequal(f"job {job['job_id']}, {column}", theirs[column], ours[column], column)
        found += _unequal(f"job {job['job_id']} has a reason", theirs["reason"] is not None, ours["reason"] is not None)
    rows = preemptions_table(outcome).to_pylist()
    found += _unequal("rows of preemptions", len(expected["preemptions"]), len(rows))
    for theirs, ours in zip(expected["preemptions"], rows, strict=False):
        where = f"decision {theirs['decision_id']}, server {theirs['server']}"
        for column in theirs:
            if column != "subsets_tried" or policy not in OTHER_SETS:
                found += _unequal(f"{where}, {column}", theirs[column], ours[column], column)
    found += _sums(expected, outcome, servers)
    return found


def starts(outcome: Outcome) -> list[tuple[float, str]]:
    """(time, job_id) of every attempt, sorted."""
    spans = running_spans(outcome)
    names = outcome.trace["job_id"].to_pylist()
    return sorted((float(since), names[outcome.order[job]]) for job, since in zip(spans.job, spans.since, strict=True))


def _sums(expected: dict[str, Any], outcome: Outcome, servers: list[dict]) -> Iterator[str]:
    """Integrals over the whole replay."""
    utilization = utilization_table(outcome)
    metrics = summary(outcome, cluster_of(servers), jobs_table(outcome), utilization)
    widths = utilization["t_end"].to_numpy() - utilization["t_start"].to_numpy()
    metrics["alloc_gpu_s"] = float(widths @ utilization["gpu_alloc"].to_numpy())
    expected = expected | {"alloc_gpu_s": expected["alloc_integral"]}
    for name in ("grace_gpu_s", "claim_gpu_s", "alloc_gpu_s"):
        yield from _unequal(name, expected[name], metrics[name], name, margin=1e-9 if name == "alloc_gpu_s" else CLOSE)


def _unequal(what: str, theirs: Any, ours: Any, column: str = "", margin: float = CLOSE) -> list[str]:
    if column in OUTSIDE or theirs == ours:
        return []
    if column in SUMS and None not in (theirs, ours) and np.isclose(theirs, ours, rtol=margin, atol=margin):
        return []
    return [f"{what}: the twin says {theirs!r}, the engine {ours!r}"]


def complaint(world: World, policy: str) -> str:
    """Why the engine and the twin do not agree on this world: differences, a failed identity or an error; "" when they agree."""
    jobs, servers, options = world
    try:
        found = differences(jobs, servers, options, policy)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "\n".join(found)


def shrunk(world: World, fails: Callable[[World], Any]) -> World:
    """A world that still fails and of which no single job, server, option or column can be taken away or made ordinary."""
    smaller = True
    while smaller:
        smaller = next((candidate for candidate in _smaller(world) if fails(candidate)), None)
        world = smaller or world
    return world


def _smaller(world: World) -> Iterator[World]:
    """One thing less: half of the jobs, a job, a server, an option, then a column of one job."""
    jobs, servers, options = world
    half = len(jobs) // 2
    if half > 1:
        yield jobs[:half], servers, options
        yield jobs[half:], servers, options
    for i in range(len(jobs) if len(jobs) > 1 else 0):
        yield jobs[:i] + jobs[i + 1:], servers, options
    for i in range(len(servers) if len(servers) > 1 else 0):
        yield jobs, servers[:i] + servers[i + 1:], options
    for name, value in options.items():
        if value != naive.DEFAULTS[name]:
            yield jobs, servers, {**options, name: naive.DEFAULTS[name]}
    plain = {c.name: c.default for c in schema.JOBS if c.name not in ("job_id", "submit_time", "duration", "gpus")}
    for i, job in enumerate(jobs):
        for name, default in plain.items():
            default = job["duration"] if name == "duration_estimate_s" else default
            if job[name] != default:
                yield [*jobs[:i], {**job, name: default}, *jobs[i + 1:]], servers, options


def report(world: World, policy: str) -> str:
    """The shrunk world in words and as Python, and what differs on it."""
    world = shrunk(world, lambda candidate: complaint(candidate, policy))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        show(*world)
    return f"{policy}:\n{out.getvalue()}{complaint(world, policy)}\n{literal(*world)}"
