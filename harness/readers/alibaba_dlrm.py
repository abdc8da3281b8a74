"""Alibaba cluster-trace-gpu-v2025 (GPU-disaggregated DLRM serving, NSDI'25): one instance of a service per row.

Columns: instance_sn, role (CN: CPU node, HN: one GPU), app_name, cpu_request (cores), gpu_request, memory_request (GiB),
rdma_request (% of one NIC), disk_request (GiB), max_instance_per_node (-1: any number), the limits beside the requests, and
creation_time, scheduled_time, deletion_time (s). Oddities, and the rule for each:

- creation_time is empty: the instance was there before the trace began. It is submitted at 0.
- deletion_time is empty: the instance outlives the trace. It lasts to the latest time of the trace (at least 1 s), counted;
  ``unfinished=drop`` leaves it out. An instance without any time is there throughout.
- A deleted instance is scaled in: it leaves at its deletion_time however long it waited (end_time); ``ends=progress`` lets it run
  its full duration instead.
- duration is deletion_time - scheduled_time (- creation_time where it was never scheduled; from 0 where it was there before).
- Runs of zero length: ``nonpositive``.
- Times carry noise of a float representation (475.00000000000006): rounded to microseconds, counted.
- Rows are not sorted by time: sorted, ties in file order.
- app_name is a group for spreading, not a gang: it becomes the tenant, and every row is a job of one instance. rdma_request,
  disk_request and max_instance_per_node are carried along: the harness has no NIC density and no anti-affinity.
- Requests count, limits do not; rows where they differ are counted.
- All of it is latency-sensitive serving: online, ``priority``, not preemptible. There is no node list.
- Exact repetitions of a row: kept, under the name with # and the row's number behind it; ``duplicates=drop`` leaves them out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.readers._csv import Chunk, read_chunks
from harness.readers._jobs import START, JobRows
from harness.readers._options import option
from harness.readers._rules import INT16, JobOptions, Tally, named, numbers, positive_runs
from harness.readers._spool import Spool
from harness.readers._units import (
    CORES,
    CPU_UNIT_HELP,
    CPU_UNITS,
    MEMORY_UNIT_HELP,
    MEMORY_UNITS,
    MIB,
    OWN,
    PLAUSIBLE_CORES,
    PLAUSIBLE_MIB,
    TIME_UNIT_HELP,
    TIME_UNITS,
    TimeUnit,
    sizes,
)

NUMBER, WORD = pa.float64(), pa.string()
TIMES = ("creation_time", "scheduled_time", "deletion_time")
REQUIRED = ("instance_sn", "role", "app_name", "cpu_request", "gpu_request", "memory_request", *TIMES)
LIMITED = ("cpu", "gpu", "rdma", "memory", "disk")
CARRIED = ("rdma_request", "disk_request", "max_instance_per_node")
COLUMNS = {
    "instance_sn": WORD, "role": WORD, "app_name": WORD, **{f"{what}_{word}": NUMBER for what in LIMITED for word in ("request", "limit")},
    "max_instance_per_node": NUMBER, **dict.fromkeys(TIMES, NUMBER),
}


@dataclass(frozen=True)
class Options(JobOptions):
    unfinished: str = option("keep", "instances without deletion_time: keep them to the end of the trace, or drop them", ("keep", "drop"))
    ends: str = option("clock", "deleted instances: leave at deletion_time (clock), or after their full duration (progress)",
                       ("clock", "progress"))
    time_unit: str = option(OWN, TIME_UNIT_HELP, TIME_UNITS)
    cpu_unit: str = option(OWN, CPU_UNIT_HELP, CPU_UNITS)
    memory_unit: str = option(OWN, MEMORY_UNIT_HELP, MEMORY_UNITS)
    priority: int = option(0, "priority of every instance")


def read(paths: Sequence[Path], options: Options) -> tuple[Spool, list[str]]:
    """Jobs and the report. Raises BadInput."""
    tally = Tally()
    jobs = JobRows(paths, tally, options, names="given")
    unit = TimeUnit(options.time_unit, "s", tally)
    last = 0.0
    for chunk in read_chunks(paths, COLUMNS, REQUIRED):
        tally.file(chunk)
        times, keep, latest = _times(chunk, options, unit, tally)
        last = max(last, latest)
        jobs.add_chunk(chunk, _sizes(chunk, options, tally) | times, keep)
    tally.say(f"the latest time of the trace is {last:.0f} s")
    tally.say(f"assumed: every instance is online, priority {options.priority}, not preemptible; NIC shares and anti-affinity do not count")
    return jobs.done(until=last), tally.lines()


def _times(chunk: Chunk, options: Options, unit: TimeUnit, tally: Tally) -> tuple[dict[str, Any], np.ndarray, float]:
    """submit_time, duration, end_time and open ends of a chunk; the rows to keep; its latest time."""
    table, source = chunk.table, chunk.source
    raw = [numbers(table, name, source, low=0, empty=np.nan) * unit.seconds for name in TIMES]
    created, scheduled, deleted = (np.round(values, 6) for values in raw)
    noisy = np.logical_or.reduce([np.isfinite(a) & (a != np.round(a, 6)) for a in raw])
    tally.add("times with the noise of a float representation: {:,} rows rounded to microseconds", noisy.sum())
    begun, gone = np.isfinite(created), np.isfinite(deleted)
    unit.judge((deleted - scheduled) / unit.seconds, source)
    for words, here in (("created and deleted in the trace", begun & gone), ("created, not deleted", begun & ~gone),
                        ("deleted, there before the trace", ~begun & gone), ("there throughout", ~begun & ~gone)):
        tally.add(f"instances {words}: {{:,}}", here.sum(), always=True)
    done = "last to the end of the trace" if options.unfinished == "keep" else "dropped"
    tally.add(f"without deletion_time: {{:,}} {done}", (~gone).sum())
    submit = np.where(begun, created, 0.0)
    start = np.where(np.isfinite(scheduled), scheduled, submit)
    keep = gone | (options.unfinished == "keep")
    duration, positive = positive_runs(np.where(gone, deleted - start, 1.0), options.nonpositive, source, tally)
    columns: dict[str, Any] = {"submit_time": submit, "duration": duration, START: np.where(gone, np.nan, start)}
    if options.ends == "clock":
        columns["end_time"] = pa.array(np.maximum(deleted, submit + duration), mask=~gone)
    columns["scheduled_time"] = pa.array(scheduled, mask=np.isnan(scheduled))
    latest = np.nanmax(np.concatenate([created, scheduled, deleted]), initial=0.0)
    return columns, keep & positive, float(latest)


def _sizes(chunk: Chunk, options: Options, tally: Tally) -> dict[str, Any]:
    """Name, class and resources of each instance."""
    table, source = chunk.table, chunk.source
    pairs = [(f"{what}_request", f"{what}_limit") for what in LIMITED]
    differs = [table[a].to_numpy() != table[b].to_numpy() for a, b in pairs if a in chunk and b in chunk]
    if differs:
        tally.add("limits differ from requests, which count: {:,} rows", np.logical_or.reduce(differs).sum())
    tally.each("role", named(table, "role", source, "CN or HN"), lambda word: " instances")
    carried = {name: table[name] for name in ("role", *CARRIED) if name in chunk}
    return carried | {
        "job_id": named(table, "instance_sn", source, "the name of an instance"),
        "cpus": sizes(table, "cpu_request", source, "cpu_unit", options.cpu_unit, "cores", CORES, PLAUSIBLE_CORES),
        "memory_mib": np.ceil(sizes(table, "memory_request", source, "memory_unit", options.memory_unit, "gib", MIB, PLAUSIBLE_MIB)),
        "gpus": numbers(table, "gpu_request", source, low=0, high=INT16, whole=True),
        "priority": np.full(chunk.rows, options.priority),
        "kind": pa.repeat("online", chunk.rows),
        "tenant": named(table, "app_name", source, "the name of an application"),
    }
