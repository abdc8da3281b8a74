"""Philly (Microsoft, 2017): a flat CSV of one job per row, or the job log of msr-fiddle/philly-traces (CC BY 4.0), Jeon et al., ATC'19.

The CSV has timestamp (submission, wall clock without zone), duration (s), num_gpus, gpu_time (GPU s, optional), cluster (virtual
cluster, optional). The log (JSON) lists jobs with status, vc, jobid, attempts, submitted_time, user. Oddities, and the rule for each:

- Rows are not sorted: sorted by submission, ties in file order. Time 0 is the earliest submission of the file.
- The zone is not stated, and the data span the end of summer time: the wall clock is taken as it is, without any change of
  clocks, unless ``tz`` names the zone.
- No job id in the CSV: philly-N, N the row in the file from 0 (counted on through several files).
- Exact repetitions of a row: kept (two equal jobs are possible), ``duplicates=drop`` leaves them out.
- More GPUs than a server has: a gang of n / ``gpus_per_instance`` instances, rounded up, of equally many GPUs each; where that
  does not divide, the GPUs of an instance are rounded up.
- No cores or memory: 0. The CSV has no status, user, queueing delay or attempts: killed and failed jobs look like any other.
- Everything is training work; the virtual cluster becomes the tenant. Status and user of the log are carried along.
- gpu_time is not used; rows where it is not duration x num_gpus are counted.
- A job of the log has attempts: its duration is the sum of theirs (``attempts=last``: that of the last one), and its GPUs are the
  most that an attempt held, over as many servers where those divide evenly.
- An attempt without a start, or one before the last without an end, is a logging error: counted, no running time.
- No end of the last attempt: the job was still running at the end of the log. ``running=keep`` ends it at the latest time of the log,
  ``drop`` leaves it out.
- The log is one JSON value and is held whole: measured, 3 kB of memory a job, 0.5 GiB for all 117,325. The CSV is read in chunks.
- No attempt that ran: the job has no duration and no GPUs, dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.readers import _philly_log as log
from harness.readers._csv import read_chunks
from harness.readers._jobs import JobRows
from harness.readers._options import option
from harness.readers._rules import INT16, JobOptions, Tally, at_least_one, gangs, numbers, positive_runs, words
from harness.readers._spool import Spool
from harness.readers._times import TZ_HELP, Clock
from harness.readers._units import OWN, TIME_UNIT_HELP, TIME_UNITS, TimeUnit

REQUIRED = ("timestamp", "duration", "num_gpus")
COLUMNS = {
    "timestamp": pa.string(),
    "duration": pa.float64(),
    "num_gpus": pa.float64(),
    "gpu_time": pa.float64(),
    "cluster": pa.string(),
}


@dataclass(frozen=True)
class Options(JobOptions):
    tz: str = option("none", TZ_HELP)
    time_unit: str = option(OWN, TIME_UNIT_HELP, TIME_UNITS)
    attempts: str = option("sum", "duration of a job of the log: the sum of its attempts, or the last one", ("sum", "last"))
    running: str = option("keep", "jobs of the log that had not ended: keep them until its end, or drop them", ("keep", "drop"))
    gpus_per_instance: int = option(8, "GPUs of a server: larger jobs become gangs")
    priority: int = option(0, "priority of every job")
    preemptible: bool = option(False, "whether jobs may be evicted")


def read(paths: Sequence[Path], options: Options) -> tuple[Spool, list[str]]:
    """Jobs and the report. Raises BadInput."""
    at_least_one("gpus_per_instance", options.gpus_per_instance)
    tally = Tally()
    clock = Clock(options.tz, tally)
    if log.is_log(paths[0]):
        spool = log.read(paths, options, clock, tally)
    else:
        spool = _read_csv(paths, options, clock, tally)
    tally.say(f"assumed: every job is training, priority {options.priority}, "
              f"{'preemptible' if options.preemptible else 'not preemptible'}, without cores and memory")
    return spool, tally.lines()


def _read_csv(paths: Sequence[Path], options: Options, clock: Clock, tally: Tally) -> Spool:
    jobs = JobRows(paths, tally, options, names="made")
    unit = TimeUnit(options.time_unit, "s", tally)
    for chunk in read_chunks(paths, COLUMNS, REQUIRED):
        tally.file(chunk)
        table, source = chunk.table, chunk.source
        submit, _ = clock.read(table, "timestamp", source)
        clock.see(submit)
        duration = numbers(table, "duration", source)
        gpus = numbers(table, "num_gpus", source, low=0, high=INT16, whole=True)
        if "gpu_time" in chunk:
            differs = ~np.isclose(table["gpu_time"].to_numpy(), duration * gpus)
            tally.add("gpu_time, which is not used, differs from duration x num_gpus in {:,} rows", differs.sum(), always=True)
        unit.judge(duration, source)
        duration, keep = positive_runs(duration * unit.seconds, options.nonpositive, source, tally)
        instances, each = gangs(gpus, keep, options.gpus_per_instance, tally)
        number = pc.cast(pa.array(np.arange(chunk.number, chunk.number + chunk.rows)), pa.string())
        jobs.add_chunk(chunk, {
            "job_id": pc.binary_join_element_wise("philly", number, "-"),
            "submit_time": submit,
            "duration": duration,
            "instances": instances,
            "gpus": each,
            "priority": np.full(chunk.rows, options.priority),
            "preemptible": np.full(chunk.rows, options.preemptible),
            "kind": pa.repeat("training", chunk.rows),
            "tenant": words(table, "cluster"),
        }, keep)
    clock.report()
    return jobs.done(origin=clock.first)
