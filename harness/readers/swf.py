"""Standard Workload Format (Parallel Workloads Archive): 18 numbers per job, ``;`` before the lines of the header, -1 for unknown.

Fields: 1 job, 2 submit (s), 3 wait (s), 4 run (s), 5 processors used, 6 CPU time, 7 memory used (KB per processor), 8 processors
requested, 9 time requested (s), 10 memory requested (KB per processor), 11 status, 12 user, 13 group, 14 executable, 15 queue,
16 partition, 17 preceding job, 18 think time. Oddities, and the rule for each:

- Numbers may be padded with several blanks, lines with blanks at either end.
- Processors are those requested; where they are unknown, those used, counted. ``size=used`` turns that round. Rows where
  the two differ are counted; neither known, or 0: dropped.
- Processors are cores, not GPUs: ``resource=gpus`` makes each a GPU. Servers have MaxProcs / MaxNodes of the header, or
  ``per_instance``; larger jobs become gangs, rounded up where they do not divide.
- Run time unknown: dropped. Zero: ``nonpositive``. Time requested becomes duration_estimate_s, the run where it is unknown; runs beyond
  it are real, kept and counted.
- Memory requested, else used, else 0; ``memory=ignore`` takes none.
- status 1 completed, 0 failed, 5 cancelled: kept if they ran (``cancelled=drop`` leaves those out), as they held their processors;
  2, 3, 4 are the parts of a job that has a line of its own: dropped.
- Wait is carried along as logged_wait_s, queue and partition too; status as state. The user becomes the tenant.
- Everything is batch work. Time 0 is the log's own; UnixStartTime and TimeZoneString of the header are said, not applied.
- Preceding job and think time are not used: rows that have them are counted. Unsorted rows are sorted, ties in file order.
- A job number that comes again (exact repetitions among them, ``duplicates``) gets # and the row's number behind it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.readers._csv import Chunk, Dialect, read_chunks
from harness.readers._jobs import JobRows
from harness.readers._options import option
from harness.readers._rules import JobOptions, Tally, bare_name, gangs, numbers, positive_runs
from harness.readers._spool import Spool
from harness.readers._stream import raw_head
from harness.readers._times import iso
from harness.tables import one_line

FIELDS = ("job", "submit", "wait", "run", "used_procs", "cpu", "used_memory", "procs", "time", "memory", "status", "user", "group",
          "executable", "queue", "partition", "preceding", "think")
COLUMNS: dict[str, pa.DataType] = {name: pa.float64() for name in FIELDS}
STATES = {-1: "UNKNOWN", 0: "FAILED", 1: "COMPLETED", 2: "PART", 3: "LAST_PART_COMPLETED", 4: "LAST_PART_FAILED", 5: "CANCELLED"}
PARTS, CANCELLED = (2, 3, 4), 5
KNOWN_KEYS = ("UnixStartTime", "TimeZoneString", "MaxNodes", "MaxProcs", "MaxJobs")
MOST = 2.0**53
HEADER_BYTES = 1 << 16


@dataclass(frozen=True)
class Options(JobOptions):
    size: str = option("requested", "processors of a job: requested or used, the other where it is unknown", ("requested", "used"))
    resource: str = option("cpus", "what a processor is", ("cpus", "gpus"))
    per_instance: int = option(0, "processors of a server: larger jobs become gangs; 0: MaxProcs / MaxNodes of the header, or 1")
    memory: str = option("take", "memory: take what was requested, else used; or ignore it", ("take", "ignore"))
    cancelled: str = option("keep", "cancelled jobs that ran", ("keep", "drop"))
    priority: int = option(0, "priority of every job")
    preemptible: bool = option(False, "whether jobs may be evicted")


def read(paths: Sequence[Path], options: Options) -> tuple[Spool, list[str]]:
    """Jobs and the report. Raises BadInput."""
    tally = Tally()
    headers = {path: header(path, tally) for path in paths}
    jobs = JobRows(paths, tally, options, names="reused")
    for chunk in read_chunks(paths, COLUMNS, FIELDS, Dialect("SWF", " ", False, FIELDS, squeezed)):
        tally.file(chunk)
        columns, keep = _convert(chunk, _per_instance(headers[chunk.path], options), options, tally)
        if len(paths) > 1:
            columns["job_id"] = pc.binary_join_element_wise(bare_name(chunk.path), columns["job_id"], "/")
        jobs.add_chunk(chunk, columns, keep)
    tally.say(f"assumed: a processor is a {options.resource[:-1].upper()}, every job is batch, priority {options.priority}, "
              f"{'preemptible' if options.preemptible else 'not preemptible'}")
    return jobs.done(), tally.lines()


def squeezed(lines: bytes) -> bytes:
    """Whole lines without comments, and with single blanks only."""
    return b"".join(b" ".join(line.split()) + b"\n" for line in lines.splitlines() if not line.lstrip().startswith(b";"))


def header(path: Path, tally: Tally) -> dict[str, str]:
    """Keys and values of the header, in whatever encoding it is; what matters of it is said. Raises BadInput."""
    text = raw_head(path, HEADER_BYTES).decode("latin-1")
    found = {match[1]: match[2].strip() for match in re.finditer(r"(?m)^\s*;\s*(\w+):[ \t]*(.*)$", text)}
    said = [f"{key} {one_line(found[key], 40)}" for key in KNOWN_KEYS if found.get(key)]
    tally.say(f"{path.name}: the header says {', '.join(said) or 'nothing of clocks and sizes'}")
    if found.get("UnixStartTime", "").isdigit():
        tally.say(f"{path.name}: time 0 is {iso(int(found['UnixStartTime']), 'UTC')}")
    return found


def _per_instance(found: Mapping[str, str], options: Options) -> int:
    if options.per_instance > 0:
        return options.per_instance
    nodes, procs = (int(found[key]) if found.get(key, "").isdigit() else 0 for key in ("MaxNodes", "MaxProcs"))
    return max(1, procs // nodes) if nodes else 1


def _convert(chunk: Chunk, most: int, options: Options, tally: Tally) -> tuple[dict[str, Any], np.ndarray]:
    """The columns of a trace, and the rows to keep."""
    table, source = chunk.table, chunk.source
    value = {name: numbers(table, name, source, low=-MOST, high=MOST) for name in (
        "wait", "run", "used_procs", "procs", "time", "memory", "used_memory", "status", "user", "queue", "partition", "preceding")}
    run, status = value["run"], value["status"]
    codes = pc.cast(pa.array(status.astype(np.int64)), pa.string())
    tally.each("status", codes, lambda code: f" jobs, {STATES.get(int(code), 'UNKNOWN').lower().replace('_', ' ')}")
    parts, cancelled = np.isin(status, PARTS), status == CANCELLED
    tally.add("parts of jobs (status 2, 3, 4): {:,} dropped", parts.sum())
    tally.add("run time unknown: {:,} dropped", (run < 0).sum())
    keep = (run >= 0) & ~parts
    if options.cancelled == "drop":
        tally.add("cancelled jobs: {:,} dropped", cancelled.sum())
        keep &= ~cancelled
    procs, sized = _processors(value["procs"], value["used_procs"], options, tally)
    keep &= sized
    duration, positive = positive_runs(np.where(keep, run, 1.0), options.nonpositive, source, tally)
    keep &= positive
    instances, each = gangs(procs, keep, most, tally, "processors")
    asked = value["time"] > 0
    tally.add("requested time unknown: {:,} jobs, for which the run is the estimate", (~asked).sum())
    tally.add("runs beyond their requested time: {:,} kept as they are", (asked & (run > value["time"])).sum())
    tally.add("after a preceding job: {:,} rows, which the replay does not make wait", (value["preceding"] > 0).sum())
    kilobytes = np.where(value["memory"] > 0, value["memory"], np.maximum(value["used_memory"], 0))
    waited = value["wait"] >= 0
    return {
        "job_id": pc.cast(pa.array(numbers(table, "job", source, low=0, high=MOST, whole=True).astype(np.int64)), pa.string()),
        "submit_time": numbers(table, "submit", source, low=0),
        "duration": duration,
        "duration_estimate_s": np.where(asked, value["time"], duration),
        "instances": instances,
        "gpus": each if options.resource == "gpus" else np.zeros(chunk.rows, np.int16),
        "cpus": each.astype(np.float64) if options.resource == "cpus" else np.zeros(chunk.rows),
        "memory_mib": np.ceil(kilobytes * each / 1024) if options.memory == "take" else np.zeros(chunk.rows),
        "priority": np.full(chunk.rows, options.priority),
        "preemptible": np.full(chunk.rows, options.preemptible),
        "tenant": _names(value["user"], "u"),
        "state": pa.array([STATES.get(int(code), "UNKNOWN") for code in status]),
        "queue": _names(value["queue"], ""),
        "partition": _names(value["partition"], ""),
        "logged_wait_s": pa.array(value["wait"], mask=~waited),
    }, keep


def _processors(requested: np.ndarray, used: np.ndarray, options: Options, tally: Tally) -> tuple[np.ndarray, np.ndarray]:
    """Processors of each job, and whether they are known."""
    tally.add("processors used differ from those requested: {:,} rows", (requested != used).sum())
    first, second = (requested, used) if options.size == "requested" else (used, requested)
    fallback = (first <= 0) & (second > 0)
    other = "used" if options.size == "requested" else "requested"
    tally.add(f"processors {options.size} unknown: {{:,}} jobs, for which those {other} count", fallback.sum())
    procs = np.where(first > 0, first, second)
    tally.add("processors unknown: {:,} dropped", (procs <= 0).sum())
    return np.maximum(procs, 1), procs > 0


def _names(numbered: np.ndarray, prefix: str) -> pa.Array:
    """Numbers as names, null where they are unknown."""
    text = pc.cast(pa.array(numbered.astype(np.int64), mask=numbered < 0), pa.string())
    return pc.binary_join_element_wise(prefix, text, "") if prefix else text
