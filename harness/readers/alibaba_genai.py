"""Alibaba cluster-trace-v2026-GenAI: image requests (Stable Diffusion with LoRA), one per row, as online jobs of one GPU.

Columns: gmt_create (submission, wall clock), exec_time_seconds, and optional ones. An image request has no output tokens, so it is a job
that holds one GPU for its execution time. Oddities, and the rule for each:

- The clock is shifted by its publishers and its zone is not stated: taken as it is; time 0 is the earliest submission. Whole seconds;
  ties stay in the order of the file, not sorted: sorted.
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
from harness.readers._csv import read_csv
from harness.readers._options import option
from harness.readers._pieces import header_of
from harness.readers._rules import NONPOSITIVE, NONPOSITIVE_HELP, iso, positive_runs, repeated_rows, seconds_of, trace_table
from harness.schema import JOBS
from harness.tables import rows_text

REQUIRED = ("gmt_create", "exec_time_seconds")
COLUMNS = {
    "gmt_create": pa.timestamp("us"),
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
CARRIED = {"predict_status": "status", "predict_type": "predict_type", "checkpoint_model_version_id": "base_model"}


@dataclass(frozen=True)
class Options:
    failed: str = option("keep", "FAILED requests", ("keep", "drop"))
    duplicates: str = option("keep", "exact repetitions of a row", ("keep", "drop"))
    nonpositive: str = option("drop", NONPOSITIVE_HELP, NONPOSITIVE)
    priority: int = option(0, "priority of every job")


def read(paths: Sequence[Path], options: Options) -> tuple[pa.Table, list[str]]:
    """A jobs table and the report. Raises BadInput."""
    report: list[str] = []
    tables = []
    for path in paths:
        header = header_of(path)
        if {"timestamp_anon", "value"} <= set(header):
            raise BadInput(f"{path}: is a metric series (timestamp_anon, value), not requests; the request file has {', '.join(REQUIRED)}")
        table, ignored = read_csv(path, COLUMNS, REQUIRED)
        report.append(f"{path.name}: {table.num_rows:,} rows")
        if ignored:
            report.append(f"columns ignored: {', '.join(ignored)}")
        empty = table["gmt_create"].is_null().to_numpy()
        if empty.any():
            raise BadInput(f"{path}: column gmt_create, {rows_text(empty)}: empty, must be a time such as 2024-11-15 16:57:50")
        tables.append(table)
    table = pa.concat_tables(tables, promote_options="default")
    source = ", ".join(str(path) for path in paths)
    repeated = repeated_rows(table)
    report.append(f"exact repetitions of an earlier row: {repeated.sum():,} {'kept' if options.duplicates == 'keep' else 'dropped'}")
    duration = pc.fill_null(table["exec_time_seconds"], 0.0).to_numpy()
    duration, keep = positive_runs(duration, options.nonpositive, source, report)
    if options.duplicates == "drop":
        keep &= ~repeated
    if "predict_status" in table.column_names:
        counts = {v["values"].as_py(): v["counts"].as_py() for v in pc.value_counts(table["predict_status"].combine_chunks())}
        report.append("status: " + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda c: -c[1])))
        if options.failed == "drop":
            failed = pc.fill_null(pc.equal(table["predict_status"], "FAILED"), False).to_numpy()
            report.append(f"failed requests dropped: {(failed & keep).sum():,}")
            keep &= ~failed
    wall = seconds_of(table["gmt_create"])
    if (np.diff(wall) < 0).any():
        report.append("not sorted by submission: sorted, ties in file order")
    report.append("time zone: none stated, so the wall clock is taken as it is, without changes of clocks")
    report.append(f"time 0 is {iso(wall.min())} on it")
    carried = {ours: table[name] for name, ours in CARRIED.items() if name in table.column_names}
    numbers = {name: table[name] for name in ("num_lora", "num_images_per_prompt", "num_inference_steps", "prompt_length",
                                              "negative_prompt_length") if name in table.column_names}
    jobs = trace_table({
        "job_id": [f"genai-{row}" for row in range(len(wall))],
        "submit_time": wall - wall.min(),
        "duration": duration,
        "gpus": np.ones(len(wall), np.int16),
        "priority": np.full(len(wall), options.priority),
        "kind": pa.repeat("online", len(wall)),
        "tenant": pc.fill_null(table["groupId"], "") if "groupId" in table.column_names else pa.repeat("", len(wall)),
        **carried, **numbers,
    }, JOBS, keep, "submit_time", paths)
    report.append("assumed: each request holds one whole GPU while it runs, and is not preemptible")
    return jobs, report
