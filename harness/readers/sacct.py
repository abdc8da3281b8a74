"""Slurm accounting: the output of ``sacct --parsable2 --allusers --format=...``, to replay one's own cluster. One record per line.

Columns, by name in any order: JobID, Submit, Start, End, State, AllocTRES or ReqTRES (or both), and optionally Timelimit (or
TimelimitRaw), Priority, QOS, Account, Partition, User. Oddities, and the rule for each:

- Steps (1234.batch, 1234.extern, 1234.0) are parts of a job: skipped, counted.
- Array tasks (1234_7) are jobs. A pending rest of an array (1234_[8-10]) never ran: dropped like other pending jobs.
- Components of a heterogeneous job (1234+0, 1234+1) start together, which a trace cannot say: each becomes a job of its own,
  counted; ``hetjobs=drop`` leaves them out.
- Times are local to the cluster, without zone: taken as the wall clock shows them unless ``tz`` names the zone. In the hour that
  the clock shows twice in autumn a time is the first of the two, unless it would then come before the event it follows. With
  SLURM_TIME_FORMAT=%s sacct writes seconds since 1970, which need no zone: the safest way.
- Submit is the arrival, End - Start the duration; both wall-clock, so that suspended time counts as running.
- Start is Unknown or None: the job never ran. Dropped; ``pending=keep`` keeps those that were cancelled: they ask until their End.
- End is Unknown: still running. It lasts to the latest time of the file, at least 1 s; ``running=drop`` leaves it out.
- Resources are those allocated; of jobs without allocation, those requested (``size=requested``: always, where they are there).
  node is the number of instances, cpu, mem and gres/gpu are shared out over them, rounded up where they do not divide.
- gres/gpu counts GPUs, with the types (gres/gpu:a100) added up where the total is missing. Types say what was given, not what would
  do: not used, ``gpu_types=keep`` makes them the allow-list. Slices (1g.10gb) count as GPUs. gres/shard and gres/mps are not read.
- Timelimit becomes duration_estimate_s; without limit the run itself. Runs beyond their limit are kept, counted.
- Priority is taken as it is (``priority=none``: 0; ``priorities`` gives numbers to QOS names and wins). Nothing may be evicted but
  ``preemptible_qos``. Everything is of the kind ``kind`` but ``online_qos`` and ``online_partitions``.
- State loses its tail (CANCELLED by 1001) and is carried along, as QOS, partition and user are; killed and failed jobs are kept,
  as they held their resources.
- A JobID that comes again (``sacct --duplicates``: each run of a requeued job) is a job of its own, with # and the row's number
  behind its name; ``requeued=last`` keeps the last record only. Exact repetitions: ``duplicates``.
- A field that holds | breaks its line, as sacct quotes nothing: refused with the row. Leave JobName and Comment out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._csv import Chunk, Dialect, read_chunks
from harness.readers._jobs import START, JobRows
from harness.readers._options import option
from harness.readers._rules import DONE, JobOptions, Tally, by_word, named, numbers, positive_runs, priorities, shared_out, words
from harness.readers._spool import Spool
from harness.readers._times import TZ_HELP, Clock, lengths
from harness.readers._tres import NOTHING, Resources, parse_tres
from harness.schema import KINDS
from harness.tables import one_line, rows_text

WORD = pa.string()
REQUIRED = ("JobID", "Submit", "Start", "End", "State")
COLUMNS = {**dict.fromkeys((*REQUIRED, "AllocTRES", "ReqTRES", "Timelimit", "TimelimitRaw", "QOS", "Account", "Partition", "User"), WORD),
           "Priority": pa.float64()}
NO_LIMIT = ("", "UNLIMITED", "Partition_Limit", "INVALID")
TENANTS = ("Account", "User", "Partition", "QOS")
CARRIED = {"QOS": "qos", "Partition": "partition", "User": "user"}
MOST_PRIORITY = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Options(JobOptions):
    tz: str = option("none", TZ_HELP)
    size: str = option("allocated", "resources of a job: these, or the other where there are none", ("allocated", "requested"))
    gpu_types: str = option("ignore", "types of gres/gpu: ignore them, or keep them as the allow-list of models", ("ignore", "keep"))
    pending: str = option("drop", "jobs that never ran: drop them, or keep those that were withdrawn until then", ("drop", "keep"))
    running: str = option("keep", "jobs without End: keep them to the latest time of the file, or drop them", ("keep", "drop"))
    hetjobs: str = option("keep", "components of heterogeneous jobs: keep each as a job, or drop them", ("keep", "drop"))
    requeued: str = option("all", "records of one JobID: all of them, or the last", ("all", "last"))
    cpu_jobs: str = option("keep", "jobs without GPU", ("keep", "drop"))
    tenant: str = option("Account", "column that names the tenant", TENANTS)
    priority: str = option("column", "priority of a job: the column, or none (0)", ("column", "none"))
    priorities: str = option("", "priority of QOS names, such as high=100,normal=10: instead of the column")
    kind: str = option("batch", "kind of the jobs", KINDS)
    preemptible_qos: str = option("", "QOS whose jobs may be evicted, separated by commas")
    online_qos: str = option("", "QOS whose jobs are of kind online, separated by commas")
    online_partitions: str = option("", "partitions whose jobs are of kind online, separated by commas")


def read(paths: Sequence[Path], options: Options) -> tuple[Spool, list[str]]:
    """Jobs and the report. Raises BadInput."""
    tally = Tally()
    clock = Clock(options.tz, tally)
    jobs = JobRows(paths, tally, options, names="reused", last_of_name=options.requeued == "last")
    priorities("priorities", options.priorities)
    for chunk in read_chunks(paths, COLUMNS, REQUIRED, Dialect("sacct --parsable2 output", "|", False)):
        if not {"AllocTRES", "ReqTRES"} & set(chunk.table.column_names):
            raise BadInput(f"{chunk.source}: columns missing: AllocTRES or ReqTRES, which say the resources; sacct --format must name one")
        tally.file(chunk)
        columns, keep = _convert(chunk, options, clock, tally)
        jobs.add_chunk(chunk, columns, keep)
    clock.report()
    tally.say(f"assumed: jobs are {options.kind} unless --online_qos or --online_partitions name them")
    return jobs.done(origin=clock.first, until=clock.last), tally.lines()


def _convert(chunk: Chunk, options: Options, clock: Clock, tally: Tally) -> tuple[dict[str, Any], np.ndarray]:
    """The columns of a trace, and the rows to keep."""
    table, source = chunk.table, chunk.source
    names = named(table, "JobID", source, "a job such as 1234, 1234_7 or 1234+0")
    keep = _jobs(names, source, options, tally)
    times, ran = _times(table, source, keep, options, clock, tally)
    keep &= ran
    sizes, fits = _sizes(table, source, keep, options, tally)
    state = pc.replace_substring_regex(pc.fill_null(table["State"], ""), r"[ +].*$", "")
    tally.each("state", state.filter(pa.array(keep)), lambda word: " jobs")
    carried = {new: table[old] for old, new in CARRIED.items() if old in chunk}
    duration, positive = positive_runs(np.where(keep, times.pop("length"), 1.0), options.nonpositive, source, tally)
    return carried | times | sizes | _classes(chunk, options, tally) | {
        "job_id": names, "duration": duration, "duration_estimate_s": _estimates(chunk, duration, keep, tally), "state": state,
        "tenant": words(table, options.tenant),
    }, keep & fits & positive


def _jobs(names: pa.ChunkedArray, source: str, options: Options, tally: Tally) -> np.ndarray:
    """The rows that are jobs."""
    def has(form: str) -> np.ndarray:
        return pc.match_substring_regex(names, form).to_numpy()

    wrong = ~has(r"^\d+(_\d+|_\[[^\]]*\]|\+\d+)?(\..+)?$")
    if wrong.any():
        raise BadInput(f"{source}: column JobID, {rows_text(wrong)}: '{one_line(names[int(np.argmax(wrong))], 40)}' must be a job such as "
                       "1234, 1234_7, 1234+0 or a step such as 1234.batch")
    step, task, rest, part = has(r"\."), has(r"_\d+$"), has(r"\]$"), has(r"\+\d+$")
    tally.add("steps of jobs: {:,} skipped", step.sum())
    tally.add("array tasks: {:,}, each a job", task.sum())
    tally.add("pending rests of arrays: {:,} dropped", rest.sum())
    tally.add(f"components of heterogeneous jobs: {{:,}} {'kept, each as a job of its own' if options.hetjobs == 'keep' else 'dropped'}",
              part.sum())
    return ~step & ~rest & (~part | (options.hetjobs == "keep"))


def _times(table: pa.Table, source: str, jobs: np.ndarray, options: Options, clock: Clock,
           tally: Tally) -> tuple[dict[str, Any], np.ndarray]:
    """submit_time, length of the run, end_time of what never ran, open ends; and the rows to keep."""
    submit, _ = clock.read(table, "Submit", source, none=True)
    unknown = jobs & ~np.isfinite(submit)
    if unknown.any():
        raise BadInput(f"{source}: column Submit, {rows_text(unknown)}: no time, must be when the job was submitted")
    submit = np.nan_to_num(submit)
    start, start_later = clock.read(table, "Start", source, none=True)
    end, end_later = clock.read(table, "End", source, none=True)
    start = clock.in_order(submit, start, start_later)
    end = clock.in_order(np.where(np.isfinite(start), start, submit), end, end_later)
    clock.see(submit[jobs], start[jobs], end[jobs])
    begun, ended = np.isfinite(start), np.isfinite(end)
    running, pending = jobs & begun & ~ended, jobs & ~begun
    tally.add(f"still running (no End): {{:,}} {'last to the latest time of the file' if options.running == 'keep' else 'dropped'}",
              running.sum())
    withdrawn = pending & ended & (end > submit) & (options.pending == "keep")
    tally.add("never ran (no Start): {:,}, of which {:,} are kept until they were withdrawn", pending.sum(), withdrawn.sum())
    tally.add("start before submission: {:,} jobs, which keep their submission", (jobs & (start < submit)).sum())
    keep = (begun | withdrawn) & (~running | (options.running == "keep"))
    length = np.where(withdrawn, end - submit, np.where(running, 1.0, np.nan_to_num(end - start)))
    times: dict[str, Any] = {"submit_time": submit, "length": length, START: np.where(running, start, np.nan)}
    if options.pending == "keep":
        times["end_time"] = pa.array(np.where(withdrawn, end, np.nan), mask=~withdrawn)
    return times, keep


def _sizes(table: pa.Table, source: str, keep: np.ndarray, options: Options, tally: Tally) -> tuple[dict[str, Any], np.ndarray]:
    """Instances and what each holds; and the rows whose resources are known."""
    allocated, requested = (_resources(table, name, source) for name in ("AllocTRES", "ReqTRES"))
    first, second = (allocated, requested) if options.size == "allocated" else (requested, allocated)
    other = keep & (first["known"] == 0) & (second["known"] > 0)
    tally.add(f"nothing {options.size}: {{:,}} jobs, for which the other of AllocTRES and ReqTRES counts", other.sum())
    held = {name: np.where(first["known"] > 0, first[name], second[name]) for name in Resources._fields}
    unknown = keep & (held["known"] == 0)
    tally.add("no resources in AllocTRES and ReqTRES: {:,} jobs dropped", unknown.sum())
    tally.add("shares of GPUs (gres/shard, gres/mps) are not read: {:,} jobs", (keep & (held["shares"] > 0)).sum())
    tally.add("slices of GPUs (such as 1g.10gb) count as GPUs: {:,} jobs", (keep & (held["slices"] > 0)).sum())
    without = keep & (held["gpus"] == 0)
    tally.add(f"jobs without GPU: {{:,}} {DONE[options.cpu_jobs]}", without.sum())
    instances = np.maximum(np.where(keep, held["nodes"], 1), 1).astype(np.int64)
    tally.add("gangs: {:,} jobs of several nodes", (keep & (instances > 1)).sum())
    columns: dict[str, Any] = {
        "instances": instances, "gpus": shared_out(np.where(keep, held["gpus"], 0), instances, "GPUs", tally),
        "cpus": held["cpus"] / instances, "memory_mib": np.ceil(held["memory_mib"] / instances),
    }
    if options.gpu_types == "keep":
        columns["gpu_model"] = pa.array([model or None for model in held["model"]], WORD)
    else:
        tally.add("types of GPUs are not used: {:,} jobs have one", (keep & (held["model"] != "")).sum())
    return columns, ~unknown & (~without | (options.cpu_jobs == "keep"))


def _resources(table: pa.Table, name: str, source: str) -> dict[str, np.ndarray]:
    """Fields of Resources for the words of a column, nothing where it is empty or missing."""
    if name not in table.column_names:
        return {field: np.full(table.num_rows, value) for field, value in NOTHING._asdict().items()}
    coded = table[name].combine_chunks().fill_null("").dictionary_encode("encode")
    codes = coded.indices.to_numpy()
    found = []
    for i, word in enumerate(coded.dictionary.to_pylist()):
        try:
            found.append(parse_tres(word))
        except ValueError as error:
            raise BadInput(f"{source}: column {name}, {rows_text(codes == i)}: '{one_line(word, 60)}' must be resources such as "
                           "cpu=8,mem=64G,node=1,gres/gpu=2") from error
    return {field: np.array([getattr(one, field) for one in found])[codes] for field in Resources._fields}


def _estimates(chunk: Chunk, duration: np.ndarray, keep: np.ndarray, tally: Tally) -> np.ndarray:
    name = next((name for name in ("Timelimit", "TimelimitRaw") if name in chunk), None)
    if name is None:
        tally.say("no Timelimit: the run is the estimate")
        return duration
    limit = lengths(chunk.table, name, chunk.source, NO_LIMIT)
    limited = limit > 0
    tally.add("no time limit: {:,} jobs, for which the run is the estimate", (keep & ~limited).sum())
    tally.add("runs beyond their time limit: {:,} kept as they are", (keep & limited & (duration > limit)).sum())
    return np.where(limited, limit, duration)


def _classes(chunk: Chunk, options: Options, tally: Tally) -> dict[str, Any]:
    """priority, preemptible and kind of each job."""
    given = priorities("priorities", options.priorities)
    qos, partition = words(chunk.table, "QOS"), words(chunk.table, "Partition")
    if given:
        tally.say(f"priority by QOS: {options.priorities}, others 0")
        priority = by_word(qos, given, 0)
    elif options.priority == "column" and "Priority" in chunk:
        values = numbers(chunk.table, "Priority", chunk.source, low=0, empty=0.0)
        tally.add(f"priorities above {MOST_PRIORITY:,}: {{:,}} jobs, cut to it", (values > MOST_PRIORITY).sum())
        priority = np.minimum(values, MOST_PRIORITY)
    else:
        tally.say("priority 0 for all")
        priority = np.zeros(chunk.rows)
    evictable, online = (dict.fromkeys(filter(None, names.split(",")), True) for names in (options.preemptible_qos, options.online_qos))
    fronts = dict.fromkeys(filter(None, options.online_partitions.split(",")), True)
    is_online = pc.or_(by_word(qos, online, False), by_word(partition, fronts, False))
    return {"priority": priority, "preemptible": by_word(qos, evictable, False), "kind": pc.if_else(is_online, "online", options.kind)}
