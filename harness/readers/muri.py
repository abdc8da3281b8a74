"""Muri (SIGCOMM'22) traces: virtual clusters of Philly with model labels, one job per row, all times in milliseconds.

Columns: job_id, num_gpu, submit_time, duration, and optionally iterations, model_name, batch_size, interval, iteration_time,
resource_time_0 to _2, priority. Oddities, and the rule for each:

- All times are in milliseconds: converted to seconds. A file whose runs look like seconds is refused; ``time_unit`` says otherwise.
- Values up to 1.1e10 do not fit 32 bits: read as float64.
- priority is a random label of 0 or 1, not production: carried along as priority_label and not used; ``priority=file`` uses it.
- model_name, batch_size, iterations and resource times were made up; only arrival, num_gpu and duration are Philly. model_name is
  carried along, the others are not read.
- interval is the time since the job before, in another order of the jobs: not used.
- More GPUs than a server has: a gang of n / ``gpus_per_instance`` instances, rounded up.
- Jobs of more than 50 days are real: kept, counted.
- No virtual cluster, user, status, cores or memory. job_id is the row's number in the file: with several files it is FILE/ID.
- Everything is training work. Unsorted rows are sorted, ties in file order.
- Exact repetitions of a row: kept, under the name with # and the row's number behind it; ``duplicates=drop`` leaves them out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.readers._csv import read_chunks
from harness.readers._jobs import JobRows
from harness.readers._options import option
from harness.readers._rules import INT16, JobOptions, Tally, at_least_one, bare_name, gangs, named, numbers, positive_runs
from harness.readers._spool import Spool
from harness.readers._units import OWN, TIME_UNIT_HELP, TIME_UNITS, TimeUnit

REQUIRED = ("job_id", "num_gpu", "submit_time", "duration")
NUMBER = pa.float64()
COLUMNS = {
    "job_id": pa.string(), "num_gpu": NUMBER, "submit_time": NUMBER, "duration": NUMBER, "model_name": pa.string(), "priority": NUMBER,
}
MOST_PRIORITY = np.iinfo(np.int32).max
SHORTEST_S, LONG_S = 60.0, 50 * 86400.0


@dataclass(frozen=True)
class Options(JobOptions):
    priority: str = option("none", "priority of a job: none (0), or the file's random label", ("none", "file"))
    time_unit: str = option(OWN, TIME_UNIT_HELP, TIME_UNITS)
    gpus_per_instance: int = option(8, "GPUs of a server: larger jobs become gangs")
    preemptible: bool = option(False, "whether jobs may be evicted")


def read(paths: Sequence[Path], options: Options) -> tuple[Spool, list[str]]:
    """Jobs and the report. Raises BadInput."""
    at_least_one("gpus_per_instance", options.gpus_per_instance)
    tally = Tally()
    jobs = JobRows(paths, tally, options, names="given")
    unit = TimeUnit(options.time_unit, "ms", tally, SHORTEST_S)
    for chunk in read_chunks(paths, COLUMNS, REQUIRED):
        tally.file(chunk)
        table, source = chunk.table, chunk.source
        submit, duration = (numbers(table, name, source) for name in ("submit_time", "duration"))
        unit.judge(duration, source)
        duration, keep = positive_runs(duration * unit.seconds, options.nonpositive, source, tally)
        tally.add("jobs of more than 50 days: {:,} kept", (duration > LONG_S).sum())
        gpus = numbers(table, "num_gpu", source, low=0, high=INT16, whole=True)
        instances, each = gangs(gpus, keep, options.gpus_per_instance, tally)
        names = named(table, "job_id", source, "the name of a job")
        if len(paths) > 1:
            names = pc.binary_join_element_wise(bare_name(chunk.path), names, "/")
        columns: dict[str, Any] = {
            "job_id": names, "submit_time": submit * unit.seconds, "duration": duration, "instances": instances, "gpus": each,
            "preemptible": np.full(chunk.rows, options.preemptible), "kind": pa.repeat("training", chunk.rows),
        }
        if "model_name" in chunk:
            columns["model_name"] = table["model_name"]
        if "priority" in chunk:
            columns["priority_label"] = numbers(table, "priority", source, low=-MOST_PRIORITY, high=MOST_PRIORITY, whole=True)
            if options.priority == "file":
                columns["priority"] = columns["priority_label"]
        jobs.add_chunk(chunk, columns, keep)
    tally.say(f"times are in {unit.own if options.time_unit == OWN else options.time_unit}, converted to s")
    tally.say("assumed: every job is training; the file's priority, a random label, is " +
              ("used" if options.priority == "file" else "carried along but not used"))
    return jobs.done(), tally.lines()
