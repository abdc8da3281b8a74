"""Helios (SenseTime, SC'21), cluster_log.csv of S-Lab-System-Group/HeliosData: one Slurm job per row. Read from its documentation.

Columns: job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time (wall clock without zone),
duration (s), queue (s). The files with job rows are in no snapshot: the reader is tested on a fixture. Oddities, and the rule for each:

- The zone is not stated: the wall clock is taken as it is, unless ``tz`` names it. Time 0 is the earliest time of the file.
- More than half of the jobs ask for no GPU: kept, ``cpu_jobs=drop`` leaves them out.
- gpu_num and cpu_num are those of the whole job: shared out over node_num instances, GPUs rounded up where they do not divide.
- state is COMPLETED, CANCELLED (two L), FAILED, TIMEOUT, NODE_FAIL: counted and carried along; killed and failed jobs are kept, as they
  held their GPUs. Another state is counted as such.
- duration is said to be end_time - start_time: the column counts, rows that differ by more than 1 s are counted;
  ``duration=times`` takes the times.
- Jobs that never started: dropped. Jobs without an end: to the latest time of the log, ``running=drop`` leaves them out.
- Jobs run 14 days at most, the limit of that Slurm: longer ones are as they are. queue is not read.
- The virtual cluster becomes the tenant, whose quota changes daily (cluster_gpu_number.csv) and may be 0: not applied.
- Everything is training work. No memory. Unsorted rows are sorted, ties in file order.
- Exact repetitions of a row: kept, under the name with # and the row's number behind it; ``duplicates=drop`` leaves them out.
"""

from collections.abc import Sequence
from pathlib import Path

from harness.readers import _scheduler_log as log
from harness.readers._spool import Spool

Options = log.Options
REQUIRED = (*log.REQUIRED, "vc")


def read(paths: Sequence[Path], options: log.Options) -> tuple[Spool, list[str]]:
    """Jobs and the report. Raises BadInput."""
    return log.read(paths, options, REQUIRED, "vc", {})
