"""Acme (Shanghai AI Lab, NSDI'24), trace_seren.csv and trace_kalos.csv of InternLM/AcmeTrace: one job per row. From its documentation.

Columns: job_id, user, node_num, gpu_num, cpu_num, type, state, submit_time, start_time, end_time (with their zone, such as +08:00),
duration (s), queue (s), gpu_time (GPU s); Kalos adds mem_per_pod_GB, shared_mem_per_pod, fail_time, stop_time. The files are in no
snapshot: the reader is tested on a fixture. Oddities, and the rule for each:

- Times name their zone: read as instants. Seren is in +08:00, Kalos says +00:00, which may be local time mislabelled: taken as it
  says. Both files together need one clock, and that is the instant. Times without a zone need ``tz``.
- In Kalos duration includes the queueing (18 s against 8 s from start to end in the documented row): the column counts, rows that
  differ by more than 1 s from end_time - start_time are counted; ``duration=times`` takes the times.
- gpu_num and cpu_num are those of the whole job: shared out over node_num instances, GPUs rounded up where they do not divide.
  mem_per_pod_GB is that of an instance, in units of 10^9 bytes.
- Jobs without GPU: kept, ``cpu_jobs=drop`` leaves them out.
- state is COMPLETED, CANCELLED, FAILED, TIMEOUT, NODE_FAIL: counted and carried along; killed and failed jobs are kept, as they held
  their GPUs.
- Jobs that never started: dropped. Jobs without an end: to the latest time of the log, ``running=drop`` leaves them out.
- type is a stage of model development: Evaluation becomes batch, everything else training. The user becomes the tenant.
- queue, gpu_time, shared_mem_per_pod, fail_time and stop_time are not read. Unsorted rows are sorted, ties in file order.
- Exact repetitions of a row: kept, under the name with # and the row's number behind it; ``duplicates=drop`` leaves them out.
"""

from collections.abc import Sequence
from pathlib import Path

from harness.readers import _scheduler_log as log
from harness.readers._spool import Spool

Options = log.Options
REQUIRED = (*log.REQUIRED, "type")


def read(paths: Sequence[Path], options: log.Options) -> tuple[Spool, list[str]]:
    """Jobs and the report. Raises BadInput."""
    return log.read(paths, options, REQUIRED, "user", {"Evaluation": "batch"})
