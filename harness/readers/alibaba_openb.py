"""Alibaba cluster-trace-gpu-v2023 ("openb", FGD, ATC'23), pod lists: one pod per row. The node lists are alibaba-openb-nodes.

Columns: name, cpu_milli (1/1000 core), memory_mib, num_gpu, gpu_milli (1/1000 GPU, of each GPU), gpu_spec (allow-list of
models separated by |, optional), qos (optional), pod_phase (optional), and creation_time, deletion_time, scheduled_time (seconds
from the start of the trace, optional). Oddities, and the rule for each:

- submit_time is creation_time (``start=scheduled``: scheduled_time); duration is deletion_time - scheduled_time, whatever the
  phase. "Running" pods have a deletion_time too: pods of the last instant are censored by the end of the trace, counted and kept.
- scheduled_time is empty for pods that never ran (phase Pending): dropped, because they have no duration. ``pending=keep`` gives
  them the time until they were withdrawn as duration and end_time, so that they leave then.
- The multigpu variants have the first five columns only, no times: a static packing list. submit_time is the row's number in
  seconds and the duration is ``static_duration_s``, longer than the list, so that nothing leaves before everything has come;
  nothing about time can be concluded from such a replay. ``times=static`` reads the other variants like that too, all phases, as
  FGD does.
- There is no priority: qos decides by ``priorities``, ``preemptible_qos`` and ``online_qos``; without qos it is 0, not
  preemptible, batch.
- gpu_milli is 0 where num_gpu is 0: it becomes 1000, the schema's neutral value.
- gpu_spec may name a model twice: named once.
- Names are given anew in each variant: with several files job_id is FILE/NAME.
- gpu_spec as it was written, qos, pod_phase and scheduled_time are carried along as further columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._csv import read_csv
from harness.readers._options import option
from harness.readers._rules import NONPOSITIVE, NONPOSITIVE_HELP, bare_name, numbers, positive_runs, trace_table
from harness.schema import JOBS, MILLI

REQUIRED = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES = ("creation_time", "deletion_time", "scheduled_time")
MOST = 2.0**40
"""Thousandths of a core, and MiB, that no machine has; beyond it the column is in another unit."""
NUMBER, WORD = pa.float64(), pa.string()
COLUMNS = {
    "name": WORD, "cpu_milli": NUMBER, "memory_mib": NUMBER, "num_gpu": NUMBER, "gpu_milli": NUMBER, "gpu_spec": WORD,
    "qos": WORD, "pod_phase": WORD, **dict.fromkeys(TIMES, NUMBER),
}


@dataclass(frozen=True)
class Options:
    pending: str = option("drop", "pods that never ran: drop them, or keep them until they were withdrawn", ("drop", "keep"))
    start: str = option("creation", "what submit_time is", ("creation", "scheduled"))
    censored: str = option("keep", "pods whose deletion_time is the end of the trace", ("keep", "drop"))
    nonpositive: str = option("drop", NONPOSITIVE_HELP, NONPOSITIVE)
    times: str = option("trace", "static: a packing list without times, as the five-column variants", ("trace", "static"))
    static_duration_s: float = option(1e9, "duration of every pod of a static packing list, in seconds")
    priorities: str = option("LS=2,Guaranteed=2,Burstable=1,BE=0", "priority of each qos")
    preemptible_qos: str = option("BE", "qos whose pods may be evicted, separated by commas")
    online_qos: str = option("LS,Guaranteed", "qos whose pods are of kind online, separated by commas; the others are batch")


def read(paths: Sequence[Path], options: Options) -> tuple[pa.Table, list[str]]:
    """A jobs table and the report. Raises BadInput."""
    report: list[str] = []
    parts = [_read_file(path, options, report, named=len(paths) > 1) for path in paths]
    if len({tuple(columns) for columns, _ in parts}) > 1:
        raise BadInput(f"{paths[0]} and {paths[1]}: some of the files have columns that others lack, import them one by one")
    names = parts[0][0].keys()
    columns = {name: pa.concat_arrays([_array(part[name]) for part, _ in parts]) for name in names}
    return trace_table(columns, JOBS, np.concatenate([keep for _, keep in parts]), "submit_time", paths), report


def _read_file(path: Path, options: Options, report: list[str], named: bool) -> tuple[dict[str, Any], np.ndarray]:
    """The columns of a trace from one file, and the rows to keep."""
    table, ignored = read_csv(path, COLUMNS, REQUIRED)
    source = str(path)
    report.append(f"{path.name}: {table.num_rows:,} rows")
    if ignored:
        report.append(f"columns ignored: {', '.join(ignored)}")
    here = [name for name in TIMES if name in table.column_names]
    if here and len(here) < len(TIMES):
        raise BadInput(f"{source}: has {', '.join(here)} but not all of {', '.join(TIMES)}; must have all three or none")
    columns = _sizes(table, source, report)
    if named:
        columns["job_id"] = pc.binary_join_element_wise(bare_name(path), columns["job_id"], "/")
    if here and options.times == "trace":
        times, keep = _runs(table, source, options, report)
    else:
        times, keep = _static(table.num_rows, options, report)
    columns |= times
    if "qos" in table.column_names:
        columns |= _classes(table["qos"], source, options, report)
    else:
        report.append("no qos: priority 0, not preemptible, batch")
    for name in ("gpu_spec", "qos", "pod_phase", "scheduled_time"):
        if name in table.column_names:
            columns[name] = table[name]
    return columns, keep


def _sizes(table: pa.Table, source: str, report: list[str]) -> dict[str, Any]:
    """Name and resources of each pod."""
    unnamed = table["name"].is_null().to_numpy()
    if unnamed.any():
        raise BadInput(f"{source}: column name, row {int(np.argmax(unnamed))}: empty, must be the name of a pod")
    gpus = numbers(table, "num_gpu", source, low=0, high=np.iinfo(np.int16).max, whole=True)
    share = numbers(table, "gpu_milli", source, low=0, high=MILLI, whole=True)
    without = (gpus == 0) & (share == 0)
    if without.any():
        report.append(f"pods without GPU: {without.sum():,}, gpu_milli 0 became {MILLI}")
    columns: dict[str, Any] = {
        "job_id": table["name"],
        "cpus": numbers(table, "cpu_milli", source, low=0, high=MOST) / MILLI,
        "memory_mib": np.ceil(numbers(table, "memory_mib", source, low=0, high=MOST)),
        "gpus": gpus,
        "gpu_milli": np.where(without, MILLI, share),
    }
    if "gpu_spec" in table.column_names:
        coded = table["gpu_spec"].combine_chunks().dictionary_encode()
        words = coded.dictionary.to_pylist()
        once = ["|".join(dict.fromkeys(m for m in word.split("|") if m)) or None for word in words]
        changed = sum(a != b for a, b in zip(words, once, strict=True))
        models = pa.array(once, WORD).take(coded.indices)
        report.append(f"gpu_spec: {len(models) - models.null_count:,} pods name models, the others take any")
        if changed:
            rows = pc.is_in(table["gpu_spec"], pa.array([a for a, b in zip(words, once, strict=True) if a != b])).to_numpy().sum()
            report.append(f"gpu_spec that names a model twice: {rows:,} pods, named once")
        columns["gpu_model"] = models
    return columns


def _runs(table: pa.Table, source: str, options: Options, report: list[str]) -> tuple[dict[str, Any], np.ndarray]:
    """submit_time, duration and end_time of each pod, and the rows to keep."""
    created = numbers(table, "creation_time", source, low=0)
    deleted = numbers(table, "deletion_time", source, low=0)
    ran = table["scheduled_time"].is_valid().to_numpy()
    scheduled = np.where(ran, pc.fill_null(table["scheduled_time"], 0.0).to_numpy(), created)
    last = ran & (deleted == deleted.max())
    report.append(f"censored: {last.sum():,} pods are deleted at the last instant, {deleted.max():.0f} s; "
                  f"{'kept' if options.censored == 'keep' else 'dropped'}")
    keep = np.ones(len(created), bool) if options.censored == "keep" else ~last
    if not ran.all():
        done = "dropped" if options.pending == "drop" else "kept until their deletion, as duration and end_time"
        report.append(f"pods that never ran (no scheduled_time): {(~ran).sum():,} {done}")
        if options.pending == "drop":
            keep &= ran
    duration = deleted - scheduled
    fixed, positive = positive_runs(np.where(keep, duration, 1.0), options.nonpositive, source, report)
    submit = created if options.start == "creation" else scheduled
    report.append(f"submit_time is {options.start}_time, duration is deletion_time - scheduled_time")
    times: dict[str, Any] = {"submit_time": submit, "duration": fixed}
    if options.pending == "keep":
        times["end_time"] = pa.array(np.maximum(deleted, submit + fixed), mask=ran)
    return times, keep & positive


def _static(rows: int, options: Options, report: list[str]) -> tuple[dict[str, Any], np.ndarray]:
    """A list in file order: one pod each second, all of which stay to the end."""
    if not options.static_duration_s > rows:
        raise BadInput(f"--static_duration_s {options.static_duration_s:g}: must be longer than the list, {rows} s")
    report.append(f"static packing list without times: submit_time is the row's number in seconds, every duration is "
                  f"{options.static_duration_s:g} s, so that nothing leaves before everything has come")
    times = {"submit_time": np.arange(rows, dtype=np.float64), "duration": np.full(rows, options.static_duration_s)}
    return times, np.ones(rows, bool)


def _classes(qos: pa.ChunkedArray, source: str, options: Options, report: list[str]) -> dict[str, Any]:
    """priority, preemptible and kind of each pod by its qos."""
    priorities = _priorities(options.priorities)
    missing = [word for word in pc.unique(qos).to_pylist() if word not in priorities]
    if missing:
        raise BadInput(f"{source}: column qos: '{missing[0]}' has no priority; "
                       f"--priorities must name it beside {', '.join(priorities)}")
    evictable, online = (set(words.split(",")) for words in (options.preemptible_qos, options.online_qos))
    coded = qos.combine_chunks().dictionary_encode()
    words = coded.dictionary.to_pylist()
    counts = np.bincount(coded.indices.to_numpy(), minlength=len(words))
    for word, count in zip(words, counts, strict=True):
        report.append(f"qos {word}: {count:,} pods, priority {priorities[word]}, "
                      f"{'' if word in evictable else 'not '}preemptible, {'online' if word in online else 'batch'}")
    return {
        "priority": pa.array([priorities[word] for word in words]).take(coded.indices),
        "preemptible": pa.array([word in evictable for word in words]).take(coded.indices),
        "kind": pa.array(["online" if word in online else "batch" for word in words]).take(coded.indices),
    }


def _priorities(words: str) -> dict[str, int]:
    try:
        return {name: int(value) for name, value in (pair.split("=") for pair in words.split(","))}
    except ValueError as error:
        raise BadInput(f"--priorities {words}: must be QOS=NUMBER, separated by commas, such as LS=2,BE=0") from error


def _array(values: Any) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    return values if isinstance(values, pa.Array) else pa.array(values)
