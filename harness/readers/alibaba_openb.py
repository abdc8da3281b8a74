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
- Exact repetitions of a row: kept, under the name with # and the row's number behind it; ``duplicates=drop`` leaves them out. The
  same name on different rows is refused.
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
from harness.readers._csv import Chunk, header_of, read_chunks
from harness.readers._jobs import JobRows
from harness.readers._options import option
from harness.readers._rules import INT16, JobOptions, Latest, Tally, bare_name, by_word, named, numbers, positive_runs, priorities
from harness.readers._spool import Spool
from harness.readers._units import (
    CORES,
    CPU_UNIT_HELP,
    CPU_UNITS,
    MEMORY_UNIT_HELP,
    MEMORY_UNITS,
    MIB,
    OWN,
    PLAUSIBLE_CORES,
    PLAUSIBLE_MIB,
    TIME_UNIT_HELP,
    TIME_UNITS,
    TimeUnit,
    sizes,
)
from harness.schema import MILLI

REQUIRED = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES = ("creation_time", "deletion_time", "scheduled_time")
NUMBER, WORD = pa.float64(), pa.string()
COLUMNS = {
    "name": WORD, "cpu_milli": NUMBER, "memory_mib": NUMBER, "num_gpu": NUMBER, "gpu_milli": NUMBER, "gpu_spec": WORD,
    "qos": WORD, "pod_phase": WORD, **dict.fromkeys(TIMES, NUMBER),
}


@dataclass(frozen=True)
class Options(JobOptions):
    pending: str = option("drop", "pods that never ran: drop them, or keep them until they were withdrawn", ("drop", "keep"))
    start: str = option("creation", "what submit_time is", ("creation", "scheduled"))
    censored: str = option("keep", "pods whose deletion_time is the end of the trace", ("keep", "drop"))
    time_unit: str = option(OWN, TIME_UNIT_HELP, TIME_UNITS)
    cpu_unit: str = option(OWN, CPU_UNIT_HELP, CPU_UNITS)
    memory_unit: str = option(OWN, MEMORY_UNIT_HELP, MEMORY_UNITS)
    times: str = option("trace", "static: a packing list without times, as the five-column variants", ("trace", "static"))
    static_duration_s: float = option(1e9, "duration of every pod of a static packing list, in seconds")
    priorities: str = option("LS=2,Guaranteed=2,Burstable=1,BE=0", "priority of each qos")
    preemptible_qos: str = option("BE", "qos whose pods may be evicted, separated by commas")
    online_qos: str = option("LS,Guaranteed", "qos whose pods are of kind online, separated by commas; the others are batch")


def read(paths: Sequence[Path], options: Options) -> tuple[Spool, list[str]]:
    """Jobs and the report. Raises BadInput."""
    tally = Tally()
    have = [[name for name in COLUMNS if name in header_of(path)] for path in paths]
    for path, names in zip(paths, have, strict=True):
        if names != have[0]:
            raise BadInput(f"{paths[0]} and {path}: one has columns that the other lacks, import them one by one")
    jobs = JobRows(paths, tally, options, names="given")
    runs = _Runs(options, tally)
    for chunk in read_chunks(paths, COLUMNS, REQUIRED):
        tally.file(chunk)
        columns, keep = _convert(chunk, options, runs, tally, named=len(paths) > 1)
        jobs.add_chunk(chunk, columns, keep)
    drop = runs.latest.settle("pods are deleted", options.censored == "keep", tally)
    return jobs.done(drop=drop), tally.lines()


def _convert(chunk: Chunk, options: Options, runs: "_Runs", tally: Tally, named: bool) -> tuple[dict[str, Any], np.ndarray]:
    """The columns of a trace from one chunk, and the rows to keep."""
    table, source = chunk.table, chunk.source
    here = [name for name in TIMES if name in chunk]
    if here and len(here) < len(TIMES):
        raise BadInput(f"{source}: has {', '.join(here)} but not all of {', '.join(TIMES)}; must have all three or none")
    columns = _sizes(table, source, options, tally)
    if named:
        columns["job_id"] = pc.binary_join_element_wise(bare_name(chunk.path), columns["job_id"], "/")
    if here and options.times == "trace":
        times, keep = runs.of(chunk)
    else:
        times, keep = _static(chunk, options, tally)
    columns |= times
    if "qos" in chunk:
        columns |= _classes(table["qos"], source, options, tally)
    else:
        tally.say("no qos: priority 0, not preemptible, batch")
    for name in ("gpu_spec", "qos", "pod_phase", "scheduled_time"):
        if name in chunk:
            columns[name] = table[name]
    return columns, keep


def _sizes(table: pa.Table, source: str, options: Options, tally: Tally) -> dict[str, Any]:
    """Name and resources of each pod."""
    gpus = numbers(table, "num_gpu", source, low=0, high=INT16, whole=True)
    share = numbers(table, "gpu_milli", source, low=0, high=MILLI, whole=True)
    without = (gpus == 0) & (share == 0)
    tally.add(f"pods without GPU: {{:,}}, gpu_milli 0 became {MILLI}", without.sum())
    columns: dict[str, Any] = {
        "job_id": named(table, "name", source, "the name of a pod"),
        "cpus": sizes(table, "cpu_milli", source, "cpu_unit", options.cpu_unit, "milli", CORES, PLAUSIBLE_CORES),
        "memory_mib": np.ceil(sizes(table, "memory_mib", source, "memory_unit", options.memory_unit, "mib", MIB, PLAUSIBLE_MIB)),
        "gpus": gpus,
        "gpu_milli": np.where(without, MILLI, share),
    }
    if "gpu_spec" in table.column_names:
        coded = table["gpu_spec"].combine_chunks().dictionary_encode()
        words = coded.dictionary.to_pylist()
        once = ["|".join(dict.fromkeys(m for m in word.split("|") if m)) or None for word in words]
        models = pa.array(once, WORD).take(coded.indices)
        tally.add("gpu_spec: {:,} pods name models, the others take any", len(models) - models.null_count, always=True)
        again = pa.array([a for a, b in zip(words, once, strict=True) if a != b], WORD)
        tally.add("gpu_spec that names a model twice: {:,} pods, named once", pc.is_in(table["gpu_spec"], again).to_numpy().sum())
        columns["gpu_model"] = models
    return columns


class _Runs:
    """submit_time, duration and end_time of pods; remembers those that are deleted last of all."""

    def __init__(self, options: Options, tally: Tally) -> None:
        self.options, self.tally = options, tally
        self.unit = TimeUnit(options.time_unit, "s", tally)
        self.latest = Latest()

    def of(self, chunk: Chunk) -> tuple[dict[str, Any], np.ndarray]:
        """The columns of a chunk, and the rows to keep."""
        table, source, options = chunk.table, chunk.source, self.options
        created, deleted = (numbers(table, name, source, low=0) * self.unit.seconds for name in ("creation_time", "deletion_time"))
        scheduled = numbers(table, "scheduled_time", source, low=0, empty=np.nan) * self.unit.seconds
        ran = np.isfinite(scheduled)
        self.unit.judge((deleted - scheduled) / self.unit.seconds, source)
        self.latest.see(np.where(ran, deleted, np.nan), chunk.number)
        scheduled = np.where(ran, scheduled, created)
        keep = np.ones(len(created), bool)
        done = "dropped" if options.pending == "drop" else "kept until their deletion, as duration and end_time"
        self.tally.add(f"pods that never ran (no scheduled_time): {{:,}} {done}", (~ran).sum())
        if options.pending == "drop":
            keep &= ran
        fixed, positive = positive_runs(np.where(keep, deleted - scheduled, 1.0), options.nonpositive, source, self.tally)
        submit = created if options.start == "creation" else scheduled
        self.tally.say(f"submit_time is {options.start}_time, duration is deletion_time - scheduled_time")
        times: dict[str, Any] = {"submit_time": submit, "duration": fixed}
        if options.pending == "keep":
            times["end_time"] = pa.array(np.maximum(deleted, submit + fixed), mask=ran)
        return times, keep & positive


def _static(chunk: Chunk, options: Options, tally: Tally) -> tuple[dict[str, Any], np.ndarray]:
    """A list in file order: one pod each second, all of which stay to the end."""
    rows = chunk.first + chunk.rows
    if not options.static_duration_s > rows:
        raise BadInput(f"--static_duration_s {options.static_duration_s:g}: must be longer than the list, {rows} s")
    tally.say(f"static packing list without times: submit_time is the row's number in seconds, every duration is "
              f"{options.static_duration_s:g} s, so that nothing leaves before everything has come")
    times = {"submit_time": np.arange(chunk.first, rows, dtype=np.float64), "duration": np.full(chunk.rows, options.static_duration_s)}
    return times, np.ones(chunk.rows, bool)


def _classes(qos: pa.ChunkedArray, source: str, options: Options, tally: Tally) -> dict[str, Any]:
    """priority, preemptible and kind of each pod by its qos."""
    given = priorities("priorities", options.priorities)
    missing = [word for word in pc.unique(qos).to_pylist() if word not in given]
    if missing:
        raise BadInput(f"{source}: column qos: '{missing[0]}' has no priority; "
                       f"--priorities must name it beside {', '.join(given)}")
    evictable, online = (set(words.split(",")) for words in (options.preemptible_qos, options.online_qos))
    tally.each("qos", qos, lambda word: f" pods, priority {given[word]}, {'' if word in evictable else 'not '}preemptible, "
               f"{'online' if word in online else 'batch'}")
    return {
        "priority": by_word(qos, given, 0),
        "preemptible": by_word(qos, dict.fromkeys(evictable, True), False),
        "kind": by_word(qos, dict.fromkeys(online, "online"), "batch"),
    }
