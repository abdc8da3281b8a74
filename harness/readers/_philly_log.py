"""The job log of msr-fiddle/philly-traces, cluster_job_log: see ``harness.readers.philly`` for its rules."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.readers._jobs import START, JobRows
from harness.readers._json import field, is_json, read_json
from harness.readers._rules import Tally, gangs, positive_runs
from harness.readers._spool import Spool
from harness.readers._times import NONE_WORDS, Clock


class Job(NamedTuple):
    """A job of the log; ``gpus`` of the attempt that held most, over ``servers``; ``first`` and ``last`` bound its attempts."""

    name: str
    status: str | None
    vc: str
    user: str | None
    submitted: str
    gpus: int
    servers: int
    first: int
    last: int


def is_log(path: Path) -> bool:
    """Whether ``path`` is JSON, as the log is."""
    return is_json(path)


def read(paths: Sequence[Path], options: Any, clock: Clock, tally: Tally) -> Spool:
    """Its jobs. Raises BadInput."""
    jobs = JobRows(paths, tally, options, names="given")
    for path in paths:
        listed = read_json(path)
        if not isinstance(listed, list) or not listed:
            raise BadInput(f"{path}: must be a list of jobs, the cluster_job_log of philly-traces")
        tally.rows(path, len(listed), "jobs")
        _add(jobs, listed, path, options, clock, tally)
    tally.say(f"the latest time of the log is {clock.last - clock.first:,.0f} s after time 0")
    clock.report()
    return jobs.done(origin=clock.first, until=clock.last)


def _add(jobs: JobRows, listed: list[Any], path: Path, options: Any, clock: Clock, tally: Tally) -> None:
    source = str(path)
    starts: list[str | None] = []
    ends: list[str | None] = []
    rows = [_job(item, f"{source}: job {i}", starts, ends) for i, item in enumerate(listed)]
    submit, _ = clock.read(pa.table({"submitted_time": [row.submitted for row in rows]}), "submitted_time", source)
    start, start_later = clock.read(pa.table({"start_time": pa.array(starts, pa.string())}), "start_time", source, none=True)
    end, end_later = clock.read(pa.table({"end_time": pa.array(ends, pa.string())}), "end_time", source, none=True)
    first, last = np.array([row.first for row in rows]), np.array([row.last for row in rows])
    start = clock.in_order(np.repeat(submit, last - first), start, start_later)
    end = clock.in_order(start, end, end_later)
    clock.see(submit, start, end)
    ran = np.isfinite(start) & np.isfinite(end)
    final = np.zeros(len(start), bool)
    final[last[last > first] - 1] = True
    running = final & np.isfinite(start) & ~np.isfinite(end)
    tally.add("attempts without a start or an end, other than the last one's end: {:,}, no running time", (~ran & ~running).sum())
    length = np.where(ran, np.nan_to_num(end - start), 0.0)
    tally.add("attempts that end before they start: {:,}, no running time", (length < 0).sum())
    summed = np.concatenate([[0.0], np.cumsum(np.maximum(length, 0.0))])
    duration = summed[last] - summed[first]
    has = last > first
    if options.attempts == "last":
        duration[has] = np.maximum(length, 0.0)[last[has] - 1]
    still = np.zeros(len(rows), bool)
    still[has] = running[last[has] - 1]
    tally.add("jobs without an attempt: {:,} dropped", (~has).sum())
    done = "run to the latest time of the log" if options.running == "keep" else "dropped"
    tally.add(f"still running at the end of the log: {{:,}} {done}", still.sum())
    tally.add("jobs of several attempts: {:,}, " + ("whose running times were added" if options.attempts == "sum" else
              "of which the last counts"), (last - first > 1).sum())
    keep = has & (~still | (options.running == "keep"))
    fixed, positive = positive_runs(np.where(keep & ~still, duration, 1.0), options.nonpositive, source, tally)
    gpus, servers = np.array([row.gpus for row in rows]), np.array([row.servers for row in rows])
    instances, each = gangs(gpus, keep, options.gpus_per_instance, tally)
    even = (servers > 0) & (gpus > 0) & (gpus % np.maximum(servers, 1) == 0) & (gpus // np.maximum(servers, 1) <= options.gpus_per_instance)
    instances, each = np.where(even, servers, instances), np.where(even, gpus // np.maximum(servers, 1), each)
    begun = np.full(len(rows), np.nan)
    begun[still] = start[last[still] - 1] - (duration[still] if options.attempts == "sum" else 0.0)
    plain = {
        "job_id": pa.array([row.name for row in rows]),
        "state": pa.array([row.status for row in rows], pa.string()),
        "user": pa.array([row.user for row in rows], pa.string()),
        "tenant": pa.array([row.vc for row in rows]),
    }
    jobs.add(source, plain | {
        "submit_time": submit,
        "duration": fixed,
        "instances": instances,
        "gpus": each,
        "priority": np.full(len(rows), options.priority),
        "preemptible": np.full(len(rows), options.preemptible),
        "kind": pa.repeat("training", len(rows)),
        START: begun,
    }, keep & positive, [*plain.values(), pa.array(submit), pa.array(duration), pa.array(gpus)])


def _job(item: Any, where: str, starts: list[str | None], ends: list[str | None]) -> Job:
    """One job; the times of its attempts are appended to ``starts`` and ``ends``. Raises BadInput."""
    name = field(item, "jobid", str, where)
    submitted = field(item, "submitted_time", str, where)
    for key, value in (("jobid", name), ("submitted_time", submitted)):
        if value is None:
            raise BadInput(f"{where}: {key} is missing; jobs have status, vc, jobid, attempts, submitted_time, user")
    first, gpus, servers = len(starts), 0, 0
    for attempt in field(item, "attempts", list, where, []):
        held = field(attempt, "detail", list, where, [])
        count = sum(len(field(server, "gpus", list, where, [])) for server in held)
        if count > gpus:
            gpus, servers = count, len(held)
        for times, key in ((starts, "start_time"), (ends, "end_time")):
            word = field(attempt, key, str, where)
            times.append(None if word is None or word in NONE_WORDS else word)
    return Job(name, field(item, "status", str, where), field(item, "vc", str, where, ""), field(item, "user", str, where), submitted,
               gpus, servers, first, len(starts))
