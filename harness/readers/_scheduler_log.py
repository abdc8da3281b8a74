"""The job tables that Helios and Acme share: one job per row, with submission, start and end, as a scheduler logged them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.readers._csv import Chunk, read_chunks
from harness.readers._jobs import START, JobRows
from harness.readers._options import option
from harness.readers._rules import DONE, INT16, JobOptions, Tally, at_least_one, gangs, named, numbers, positive_runs, shared_out, words
from harness.readers._spool import Spool
from harness.readers._times import TZ_HELP, Clock

NUMBER, WORD = pa.float64(), pa.string()
REQUIRED = ("job_id", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time", "end_time")
COLUMNS = {
    "job_id": WORD, "user": WORD, "vc": WORD, "gpu_num": NUMBER, "cpu_num": NUMBER, "node_num": NUMBER, "mem_per_pod_GB": NUMBER,
    "type": WORD, "state": WORD, "submit_time": WORD, "start_time": WORD, "end_time": WORD, "duration": NUMBER, "queue": NUMBER,
    "gpu_time": NUMBER,
}
STATES = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL")
TOLERANCE_S = 1.0


@dataclass(frozen=True)
class Options(JobOptions):
    tz: str = option("none", TZ_HELP)
    duration: str = option("column", "duration of a job: the column, or end_time - start_time", ("column", "times"))
    cpu_jobs: str = option("keep", "jobs without GPU", ("keep", "drop"))
    running: str = option("keep", "jobs without end: keep them to the latest time of the log, or drop them", ("keep", "drop"))
    gpus_per_instance: int = option(8, "GPUs of a server: jobs with more on fewer nodes become gangs")
    priority: int = option(0, "priority of every job")
    preemptible: bool = option(False, "whether jobs may be evicted")


def read(paths: Sequence[Path], options: Options, required: tuple[str, ...], tenant: str,
         kinds: Mapping[str, str]) -> tuple[Spool, list[str]]:
    """Jobs and the report: the column ``tenant`` names their owner, and ``kinds`` gives the kind of each type, else training.

    Raises BadInput.
    """
    at_least_one("gpus_per_instance", options.gpus_per_instance)
    tally = Tally()
    clock = Clock(options.tz, tally)
    jobs = JobRows(paths, tally, options, names="given")
    for chunk in read_chunks(paths, COLUMNS, required):
        tally.file(chunk)
        times, keep = _times(chunk, options, clock, tally)
        columns = times | _sizes(chunk, keep, options, tally)
        keep &= _with_gpus(chunk, options, tally)
        columns |= {
            "job_id": named(chunk.table, "job_id", chunk.source, "the name of a job"),
            "priority": np.full(chunk.rows, options.priority),
            "preemptible": np.full(chunk.rows, options.preemptible),
            "kind": _kinds(chunk, kinds),
            "tenant": words(chunk.table, tenant),
        }
        for name in ("state", "user", "vc", "type"):
            if name in chunk and name != tenant:
                columns[name] = chunk.table[name]
        jobs.add_chunk(chunk, columns, keep)
    clock.report()
    tally.say(f"assumed: priority {options.priority}, {'preemptible' if options.preemptible else 'not preemptible'}")
    return jobs.done(origin=clock.first, until=clock.last), tally.lines()


def _times(chunk: Chunk, options: Options, clock: Clock, tally: Tally) -> tuple[dict[str, Any], np.ndarray]:
    """submit_time, duration and open ends of a chunk, and the rows to keep."""
    table, source = chunk.table, chunk.source
    submit, _ = clock.read(table, "submit_time", source)
    start, start_later = clock.read(table, "start_time", source, none=True)
    end, end_later = clock.read(table, "end_time", source, none=True)
    start = clock.in_order(submit, start, start_later)
    end = clock.in_order(np.where(np.isfinite(start), start, submit), end, end_later)
    clock.see(submit, start, end)
    begun, ended = np.isfinite(start), np.isfinite(end)
    length = end - start
    if "duration" in chunk:
        stated = numbers(table, "duration", source, empty=np.nan)
        both = np.isfinite(stated) & np.isfinite(length)
        tally.add("duration differs from end_time - start_time by more than 1 s: {:,} rows, " +
                  ("the column counts" if options.duration == "column" else "the times count"),
                  (both & (np.abs(stated - length) > TOLERANCE_S)).sum(), always=True)
        if options.duration == "column":
            length = np.where(np.isfinite(stated), stated, length)
    running = begun & ~ended
    tally.add("never started (no start_time): {:,} dropped", (~begun).sum())
    tally.add(f"no end_time: {{:,}} jobs {'last to the latest time of the log' if options.running == 'keep' else 'dropped'}", running.sum())
    tally.add("start before submission: {:,} jobs, which keep their submission", (start < submit).sum())
    keep = begun & (~running | (options.running == "keep"))
    duration, positive = positive_runs(np.where(keep & ~running, length, 1.0), options.nonpositive, source, tally)
    tally.each("state", table["state"], lambda word: " jobs" if word in STATES else " jobs (not a documented state)")
    return {"submit_time": submit, "duration": duration, START: np.where(running, start, np.nan)}, keep & positive


def _with_gpus(chunk: Chunk, options: Options, tally: Tally) -> np.ndarray:
    """The rows that ``cpu_jobs`` keeps."""
    has = numbers(chunk.table, "gpu_num", chunk.source) > 0
    tally.add(f"jobs without GPU: {{:,}} {DONE[options.cpu_jobs]}", (~has).sum())
    return has | (options.cpu_jobs == "keep")


def _sizes(chunk: Chunk, keep: np.ndarray, options: Options, tally: Tally) -> dict[str, Any]:
    """Instances and the resources of each of them."""
    table, source = chunk.table, chunk.source
    gpus = numbers(table, "gpu_num", source, low=0, high=INT16, whole=True)
    nodes = numbers(table, "node_num", source, low=0, high=INT16, whole=True)
    tally.add("jobs of 0 nodes: {:,}, taken as 1", (nodes == 0).sum())
    nodes = np.maximum(nodes, 1)
    crowded = gpus > nodes * options.gpus_per_instance
    split, _ = gangs(np.where(crowded, gpus, 0), keep, options.gpus_per_instance, tally)
    instances = np.where(crowded, split, nodes).astype(np.int64)
    columns: dict[str, Any] = {
        "instances": instances,
        "gpus": shared_out(gpus, instances, "GPUs", tally),
        "cpus": numbers(table, "cpu_num", source, low=0, high=1e7, empty=0.0) / instances,
    }
    if "mem_per_pod_GB" in chunk:
        columns["memory_mib"] = np.ceil(numbers(table, "mem_per_pod_GB", source, low=0, high=1e7, empty=0.0) * 1e9 / 2**20)
    return columns


def _kinds(chunk: Chunk, kinds: Mapping[str, str]) -> pa.Array:
    if "type" not in chunk:
        return pa.repeat("training", chunk.rows)
    return pa.array([kinds.get(word, "training") for word in chunk.table["type"].to_pylist()])
