"""Philly (Microsoft, 2017) as one flat CSV: one job per row, upstream msr-fiddle/philly-traces (CC BY 4.0), Jeon et al., ATC'19.

Columns: timestamp (submission, wall clock without zone), duration (s), num_gpus, gpu_time (GPU s, optional), cluster (virtual
cluster, optional). Oddities, and the rule for each:

- Rows are not sorted: sorted by submission, ties in file order. Time 0 is the earliest submission of the file.
- The zone is not stated, and the data span the end of summer time: the wall clock is taken as it is, without any change of
  clocks, unless ``tz`` names the zone.
- No job id: philly-N, N the row in the file from 0 (counted on through several files).
- Exact repetitions of a row: kept (two equal jobs are possible), ``duplicates=drop`` leaves them out.
- More GPUs than a server has: a gang of n / ``gpus_per_instance`` instances, rounded up, of equally many GPUs each; where that
  does not divide, the GPUs of an instance are rounded up.
- No status, user, queueing delay, attempts, cores or memory: killed and failed jobs look like any other; cores and memory are 0.
- Everything is training work; the virtual cluster becomes the tenant.
- gpu_time is not used; rows where it is not duration x num_gpus are counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.readers._csv import read_csv
from harness.readers._options import option
from harness.readers._rules import (
    NONPOSITIVE,
    NONPOSITIVE_HELP,
    iso,
    numbers,
    positive_runs,
    repeated_rows,
    seconds_of,
    to_utc,
    trace_table,
)
from harness.schema import JOBS
from harness.tables import rows_text

REQUIRED = ("timestamp", "duration", "num_gpus")
COLUMNS = {
    "timestamp": pa.timestamp("us"),
    "duration": pa.float64(),
    "num_gpus": pa.float64(),
    "gpu_time": pa.float64(),
    "cluster": pa.string(),
}


@dataclass(frozen=True)
class Options:
    tz: str = option("none", "time zone of the wall clock, an IANA name such as America/Los_Angeles; none: taken as it is")
    duplicates: str = option("keep", "exact repetitions of a row", ("keep", "drop"))
    nonpositive: str = option("drop", NONPOSITIVE_HELP, NONPOSITIVE)
    gpus_per_instance: int = option(8, "GPUs of a server: larger jobs become gangs")
    priority: int = option(0, "priority of every job")
    preemptible: bool = option(False, "whether jobs may be evicted")


def read(paths: Sequence[Path], options: Options) -> tuple[pa.Table, list[str]]:
    """A jobs table and the report. Raises BadInput."""
    if options.gpus_per_instance < 1:
        raise BadInput(f"--gpus_per_instance {options.gpus_per_instance}: must be at least 1")
    report: list[str] = []
    parts = [_read_file(path, options, report) for path in paths]
    wall, duration, gpus, keep = (np.concatenate([part[i] for part in parts]) for i in range(4))
    tenant = pa.concat_arrays([part[4] for part in parts])
    if (np.diff(wall) < 0).any():
        report.append("not sorted by submission: sorted, ties in file order")
    start = wall.min()
    if options.tz == "none":
        report.append("time zone: none given, so the wall clock is taken as it is, without changes of clocks")
        report.append(f"time 0 is {iso(start)} on it")
        clock = wall
    else:
        clock = to_utc(wall, options.tz, report)
        start = clock.min()
        report.append(f"time 0 is {iso(start, 'UTC')}")
    instances, per_instance = _gangs(gpus, keep, options.gpus_per_instance, report)
    table = trace_table({
        "job_id": pa.array([f"philly-{row}" for row in range(len(wall))]),
        "submit_time": clock - start,
        "duration": duration,
        "instances": instances,
        "gpus": per_instance,
        "priority": np.full(len(wall), options.priority),
        "preemptible": np.full(len(wall), options.preemptible),
        "kind": pa.repeat("training", len(wall)),
        "tenant": tenant,
    }, JOBS, keep, "submit_time", paths)
    report.append(f"assumed: every job is training, priority {options.priority}, "
                  f"{'preemptible' if options.preemptible else 'not preemptible'}, without cores and memory")
    return table, report


def _read_file(path: Path, options: Options, report: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray,
                                                                         pa.Array]:
    """Wall clock (s), duration (s), GPUs, rows to keep, and tenant of each row of one file."""
    table, ignored = read_csv(path, COLUMNS, REQUIRED)
    source = str(path)
    report.append(f"{path.name}: {table.num_rows:,} rows")
    if ignored:
        report.append(f"columns ignored: {', '.join(ignored)}")
    empty = table["timestamp"].is_null().to_numpy()
    if empty.any():
        raise BadInput(f"{source}: column timestamp, {rows_text(empty)}: empty, must be a time such as 2017-10-09 07:01:55")
    duration = numbers(table, "duration", source)
    gpus = numbers(table, "num_gpus", source, low=0, high=np.iinfo(np.int16).max, whole=True)
    if "gpu_time" in table.column_names:
        stated = table["gpu_time"].to_numpy()
        differs = int((~np.isclose(stated, duration * gpus)).sum())
        report.append(f"gpu_time, which is not used, differs from duration x num_gpus in {differs:,} rows")
    repeated = repeated_rows(table)
    if repeated.any():
        done = "kept" if options.duplicates == "keep" else "dropped"
        report.append(f"exact repetitions of an earlier row: {repeated.sum():,} {done}")
    duration, keep = positive_runs(duration, options.nonpositive, source, report)
    if options.duplicates == "drop":
        keep &= ~repeated
    tenant = table["cluster"].combine_chunks().fill_null("") if "cluster" in table.column_names else pa.repeat("", table.num_rows)
    return seconds_of(table["timestamp"]), duration, gpus, keep, tenant


def _gangs(gpus: np.ndarray, keep: np.ndarray, most: int, report: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Instances and GPUs of each of them, for jobs of ``gpus`` GPUs on servers with ``most``."""
    instances = np.maximum(np.ceil(gpus / most), 1).astype(np.int64)
    each = np.ceil(gpus / instances).astype(np.int64)
    large = keep & (gpus > most)
    if large.any():
        more = keep & (instances * each > gpus)
        rounded = f"{more.sum():,} of them were rounded up, by {int((instances * each - gpus)[more].sum()):,} GPUs in all"
        report.append(f"jobs of more than {most} GPUs: {large.sum():,} became gangs of at most {most} GPUs for each instance; "
                      f"{rounded if more.any() else 'all of them divide evenly'}")
    return instances, each
