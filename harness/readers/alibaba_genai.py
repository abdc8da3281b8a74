"""Alibaba cluster-trace-v2026-GenAI: image requests (Stable Diffusion with LoRA), one per row, as online jobs of one GPU.

Columns: gmt_create (submission, wall clock), exec_time_seconds, and optional ones. An image request has no output tokens, so it is a job
that holds one GPU for its execution time. Oddities, and the rule for each:

- The clock is shifted by its publishers and its zone is not stated: taken as it is, unless ``tz`` names one; time 0 is the earliest
  submission. Whole seconds; not sorted: sorted, ties in the order of the file.
- PENDING and PROCESSING requests, and a few others, have an execution time of 0 or none: they follow ``nonpositive``.
- FAILED requests ran and held their GPU: kept, or ``failed=drop``.
- Exact repetitions of a row: kept, or ``duplicates=drop``. No id: genai-N, N the row in the file from 0.
- The group becomes the tenant. Type, status, base model, number of LoRAs, images and steps, and prompt lengths (characters) are carried
  along as columns beyond the schema, blank where the file is blank.
- The metric series of the same release (latencies, QPS, duty cycles) cover another period, cannot be joined to the requests and are
  not traces: they are refused as what they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._csv import header_of, read_chunks
from harness.readers._jobs import JobRows
from harness.readers._options import option
from harness.readers._rules import JobOptions, Tally, numbers, positive_runs, words
from harness.readers._spool import Spool
from harness.readers._times import TZ_HELP, Clock

REQUIRED = ("gmt_create", "exec_time_seconds")
COLUMNS = {
    "gmt_create": pa.string(),
    "exec_time_seconds": pa.float64(),
    "predict_type": pa.string(),
    "predict_status": pa.string(),
    "groupId": pa.string(),
    "prompt_length": pa.float64(),
    "negative_prompt_length": pa.float64(),
    "num_images_per_prompt": pa.float64(),
    "num_inference_steps": pa.float64(),
    "checkpoint_model_version_id": pa.string(),
    "num_lora": pa.float64(),
}
CARRIED = {"predict_status": "status", "predict_type": "predict_type", "checkpoint_model_version_id": "base_model", "num_lora": "num_lora",
           "num_images_per_prompt": "num_images_per_prompt", "num_inference_steps": "num_inference_steps", "prompt_length": "prompt_length",
           "negative_prompt_length": "negative_prompt_length"}


@dataclass(frozen=True)
class Options(JobOptions):
    tz: str = option("none", TZ_HELP)
    failed: str = option("keep", "FAILED requests", ("keep", "drop"))
    priority: int = option(0, "priority of every job")


def read(paths: Sequence[Path], options: Options) -> tuple[Spool, list[str]]:
    """Jobs and the report. Raises BadInput."""
    tally = Tally()
    clock = Clock(options.tz, tally)
    for path in paths:
        if {"timestamp_anon", "value"} <= set(header_of(path)):
            raise BadInput(f"{path}: is a metric series (timestamp_anon, value), not requests; the request file has {', '.join(REQUIRED)}")
    jobs = JobRows(paths, tally, options, names="made")
    for chunk in read_chunks(paths, COLUMNS, REQUIRED):
        tally.file(chunk)
        table, source = chunk.table, chunk.source
        submit, _ = clock.read(table, "gmt_create", source)
        clock.see(submit)
        status = words(table, "predict_status")
        for pair in sorted(pc.value_counts(status).to_pylist(), key=lambda pair: -pair["counts"]):
            tally.add(f"status {pair['values'] or 'empty'}: {{:,}} rows", pair["counts"])
        duration, keep = positive_runs(numbers(table, "exec_time_seconds", source, empty=0.0), options.nonpositive, source, tally)
        if options.failed == "drop":
            failed = pc.equal(status, "FAILED").to_numpy(zero_copy_only=False)
            tally.add("failed requests: {:,} dropped", (failed & keep).sum(), always=True)
            keep &= ~failed
        number = pc.cast(pa.array(np.arange(chunk.number, chunk.number + chunk.rows)), pa.string())
        jobs.add_chunk(chunk, {
            "job_id": pc.binary_join_element_wise("genai", number, "-"),
            "submit_time": submit,
            "duration": duration,
            "gpus": np.ones(chunk.rows, np.int16),
            "priority": np.full(chunk.rows, options.priority),
            "kind": pa.repeat("online", chunk.rows),
            "tenant": words(table, "groupId"),
            **{ours: table[name] for name, ours in CARRIED.items() if name in chunk},
        }, keep)
    clock.report()
    tally.say("assumed: each request holds one whole GPU while it runs, and is not preemptible")
    return jobs.done(origin=clock.first), tally.lines()
