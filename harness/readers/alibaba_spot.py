"""Alibaba cluster-trace-v2026-spot-gpu (GFS, ASPLOS'26): the job table as jobs, the node list as a cluster; the header says which.

Jobs have job_name, organization (optional), gpu_model (optional), cpu_request (cores, of each worker), gpu_request (GPUs of each
worker, may be a fraction), worker_num (gang size), submit_time (s), duration (s), job_type (HP or Spot). Nodes have gpu_model,
gpu_capacity_num, cpu_num, node_name. Columns are read by name: the README shows another order. Oddities, and the rule for each:

- gpu_request below 1 is a share of one GPU; other fractions are rounded up, counted. Without GPU gpu_milli is 1000.
- job_type decides: ``priorities``, ``kinds``, and Spot may be evicted. The trace does not say what the jobs do: kinds are assumed.
- Jobs that are submitted at 0 are the standing population, not arrivals: counted, ``standing=drop`` leaves them out.
- Jobs that end at the last instant (15,897,599 s in the published file) never end in the trace: they last to its end, counted;
  ``censored=drop`` leaves them out.
- Spot jobs start on day 28 only: the first one's time is said.
- duration is taken as running time, though demand exceeds the capacity; evictions are not in the trace.
- The organization becomes the tenant. Memory is not in the trace: 0.
- Exact repetitions of a row: kept, under the name with # and the row's number behind it; ``duplicates=drop`` leaves them out.
- Nodes have no topology, no memory: servers of at least ``two_sockets_from`` cores get two sockets, the others one, of one NUMA
  node each; memory is unbounded; racks hold consecutive servers of the same group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._cluster import Node, NodeOptions, by_group, cluster_of
from harness.readers._csv import Chunk, header_of, read_chunks, read_csv
from harness.readers._jobs import JobRows
from harness.readers._options import option
from harness.readers._rules import (
    DONE,
    INT16,
    JobOptions,
    Latest,
    Tally,
    bare_name,
    by_word,
    named,
    numbers,
    pairs,
    positive_runs,
    priorities,
    words,
)
from harness.readers._spool import Spool
from harness.readers._units import (
    CORES,
    CPU_UNIT_HELP,
    CPU_UNITS,
    OWN,
    PLAUSIBLE_CORES,
    TIME_UNIT_HELP,
    TIME_UNITS,
    TimeUnit,
    sizes,
)
from harness.schema import KINDS, MILLI
from harness.tables import rows_text
from harness.topology.shape import MAX_GPUS

REQUIRED = ("job_name", "cpu_request", "gpu_request", "worker_num", "submit_time", "duration", "job_type")
NODES_REQUIRED = ("gpu_model", "gpu_capacity_num", "cpu_num", "node_name")
NUMBER, WORD = pa.float64(), pa.string()
COLUMNS = {
    "job_name": WORD, "organization": WORD, "gpu_model": WORD, "cpu_request": NUMBER, "gpu_request": NUMBER, "worker_num": NUMBER,
    "submit_time": NUMBER, "duration": NUMBER, "job_type": WORD,
}
NODE_COLUMNS = {"gpu_model": WORD, "gpu_capacity_num": NUMBER, "cpu_num": NUMBER, "node_name": WORD}
SPOT = "Spot"


@dataclass(frozen=True)
class Options(NodeOptions, JobOptions):
    priorities: str = option("HP=1,Spot=0", "jobs: priority of each job_type")
    kinds: str = option("HP=training,Spot=batch", "jobs: kind of each job_type")
    standing: str = option("keep", "jobs submitted at 0: the population at the start", ("keep", "drop"))
    censored: str = option("keep", "jobs that end at the last instant", ("keep", "drop"))
    time_unit: str = option(OWN, TIME_UNIT_HELP, TIME_UNITS)
    cpu_unit: str = option(OWN, CPU_UNIT_HELP, CPU_UNITS)


def read(paths: Sequence[Path], options: Options) -> tuple[Spool | Mapping[str, Any], list[str]]:
    """Jobs, or the section ``cluster`` of a configuration, and the report. Raises BadInput."""
    tally = Tally()
    lists = [set(NODES_REQUIRED) <= set(header_of(path)) for path in paths]
    if all(lists):
        return _nodes(paths, options, tally), tally.lines()
    if any(lists):
        raise BadInput(f"{paths[lists.index(True)]}: a node list among job tables, import it alone")
    jobs = JobRows(paths, tally, options, names="given")
    given, kinds = priorities("priorities", options.priorities), pairs("kinds", options.kinds)
    if set(kinds.values()) - set(KINDS):
        raise BadInput(f"--kinds {options.kinds}: kinds are {', '.join(KINDS)}")
    unit, latest = TimeUnit(options.time_unit, "s", tally), Latest()
    first_spot = np.inf
    for chunk in read_chunks(paths, COLUMNS, REQUIRED):
        tally.file(chunk)
        table, source = chunk.table, chunk.source
        submit, duration = (numbers(table, name, source) * unit.seconds for name in ("submit_time", "duration"))
        unit.judge(duration / unit.seconds, source)
        latest.see(submit + duration, chunk.number)
        duration, keep = positive_runs(duration, options.nonpositive, source, tally)
        standing = submit == 0
        tally.add(f"submitted at 0: {{:,}} jobs, the standing population; {DONE[options.standing]}", standing.sum())
        if options.standing == "drop":
            keep &= ~standing
        spot = pc.equal(named(table, "job_type", source, "HP or Spot"), SPOT).to_numpy()
        first_spot = min(first_spot, submit[spot].min(initial=np.inf))
        jobs.add_chunk(chunk, _sizes(chunk, options, tally) | _classes(chunk, given, kinds, tally) | {
            "submit_time": submit, "duration": duration, "tenant": words(table, "organization"),
        }, keep)
    if np.isfinite(first_spot):
        tally.say(f"the first Spot job comes at {first_spot:,.0f} s, on day {int(first_spot // 86400)} counted from 0")
    tally.say("assumed: duration is running time; no memory, no evictions, no topology wishes")
    drop = latest.settle("jobs end", options.censored == "keep", tally)
    return jobs.done(drop=drop), tally.lines()


def _sizes(chunk: Chunk, options: Options, tally: Tally) -> dict[str, Any]:
    """Name and resources of each job."""
    table, source = chunk.table, chunk.source
    asked = numbers(table, "gpu_request", source, low=0, high=INT16)
    share = (asked > 0) & (asked < 1)
    odd = (asked > 1) & (asked != np.floor(asked))
    tally.add("gpu_request below 1: {:,} jobs share a GPU", share.sum())
    tally.add("gpu_request above 1 that is no whole number: {:,} jobs, rounded up", odd.sum())
    columns: dict[str, Any] = {
        "job_id": named(table, "job_name", source, "the name of a job"),
        "cpus": sizes(table, "cpu_request", source, "cpu_unit", options.cpu_unit, "cores", CORES, PLAUSIBLE_CORES),
        "gpus": np.ceil(asked),
        "gpu_milli": np.where(share, np.maximum(np.round(asked * MILLI), 1), MILLI),
        "instances": numbers(table, "worker_num", source, low=1, high=np.iinfo(np.int32).max, whole=True),
    }
    if "gpu_model" in chunk:
        columns["gpu_model"] = table["gpu_model"]
    else:
        tally.say("no gpu_model: any model will do")
    tally.add("gangs: {:,} jobs of several workers", (columns["instances"] > 1).sum())
    return columns


def _classes(chunk: Chunk, given: Mapping[str, int], kinds: Mapping[str, str], tally: Tally) -> dict[str, Any]:
    """priority, preemptible, kind and job_type of each job. Raises BadInput for a type without priority."""
    column = chunk.table["job_type"]
    unknown = ~pc.is_in(column, pa.array(list(given))).to_numpy()
    if unknown.any():
        raise BadInput(f"{chunk.source}: column job_type, {rows_text(unknown)}: '{column[int(np.argmax(unknown))]}' has no priority; "
                       f"--priorities must name it beside {', '.join(given)}")
    tally.each("job_type", column, lambda word: f" jobs, priority {given[word]}, {'' if word == SPOT else 'not '}preemptible, "
               f"{kinds.get(word, 'batch')}")
    return {
        "priority": by_word(column, given, 0), "preemptible": by_word(column, {SPOT: True}, False),
        "kind": by_word(column, kinds, "batch"), "job_type": column,
    }


def _nodes(paths: Sequence[Path], options: Options, tally: Tally) -> Mapping[str, Any]:
    """The cluster of the node lists."""
    nodes = []
    for path in paths:
        table, ignored = read_csv(path, NODE_COLUMNS, NODES_REQUIRED)
        tally.rows(path, table.num_rows)
        if ignored:
            tally.say(f"columns ignored: {', '.join(ignored)}")
        models = named(table, "gpu_model", str(path), "a model").to_pylist()
        gpus = numbers(table, "gpu_capacity_num", str(path), low=0, high=MAX_GPUS, whole=True)
        cores = numbers(table, "cpu_num", str(path), low=1, high=1e6, whole=True)
        nodes += [Node(model, int(g), int(c), None) for model, g, c in zip(models, gpus, cores, strict=True)]
    return cluster_of(options.name or bare_name(paths[0]), sorted(nodes, key=by_group), options, tally)
