"""A packing list: instances come one after another, none leaves, and what does not fit when it comes is not placed later.

It is the setting in which FGD (ATC'23) compares placements. The instances of a trace, whatever their times, are shuffled and their number
is tuned until they ask for ``load`` times the GPUs of the cluster: by adding copies of random ones at the end, or leaving random ones
out. A second passes from one to the next; all end together, a second after the last has come.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.schema import JOBS, MILLI
from harness.tables import fill_defaults, kind_of, read_array, read_trace
from harness.workload.common import MOST_JOBS, Stream, check_number, generator

if TYPE_CHECKING:
    from harness.topology import Cluster

ASKS = ("job_id", "instances", "gpus", "gpu_milli", "cpus", "memory_mib", "gpu_model", "gpu_spec")
"""Columns of the trace that are kept."""

LAST_S = 1.0
"""Seconds from the last arrival to the end."""


@dataclass(frozen=True)
class Params:
    """Parameters of packing.

    variant: of the pod list, for the path to be made of.
    path: Parquet trace of jobs; relative to the working directory.
    load: GPUs asked for by all that come over those of the cluster (1.3).
    order: FILE.npz:KEY, an array of row numbers of the trace sorted by job_id, in order of arrival, in place of shuffling and tuning;
        the second time that a row comes it is a copy. null: drawn from the seed.
    """

    variant: str = "default"
    path: str | None = None
    load: float = 1.3
    order: str | None = None


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The jobs in order of arrival, with every column of schema.JOBS; ``clone`` is true for a copy, whose name ends in +N.

    Priorities, affinities and times of the trace are left out: submit_time is the position in the list. Raises BadInput for a file
    that is no trace of jobs, parameters out of range, and an order that does not fit the trace.
    """
    check_number("load", params.load, above=0)
    if not params.path:
        raise BadInput("workload.path: give a Parquet trace of jobs, such as traces/imported/openb_default.parquet")
    trace = read_trace(params.path)
    if kind_of(trace, params.path) != "jobs":
        raise BadInput(f"{params.path}: must be a trace of jobs")
    trace = trace.select([name for name in ASKS if name in trace.column_names])
    if "gpu_spec" in trace.column_names:  # as it was written, for the typical classes of FGD tell lists apart by their text
        lists = pc.if_else(pc.equal(trace["gpu_spec"], ""), None, trace["gpu_spec"])
        trace = trace.drop_columns("gpu_spec").set_column(trace.column_names.index("gpu_model"), "gpu_model", lists)
    trace = trace.take(pc.sort_indices(trace["job_id"]))
    share = np.where(trace["gpus"].to_numpy() > 0, trace["gpu_milli"].to_numpy(), 0).astype(np.int64)
    demand = share * trace["gpus"].to_numpy() * trace["instances"].to_numpy()
    if params.order is None:
        rows = _tuned(share, demand, int(params.load * MILLI * cluster.gpus), seed)
    else:
        rows = _listed(params.order, trace.num_rows)
    return _in_turn(trace, rows)


def _tuned(share: np.ndarray, demand: np.ndarray, most: int, seed: int) -> np.ndarray:
    """A permutation of all rows, then random ones until the next would go beyond ``most`` GPU thousandths; or less of random ones.

    As in the authors' code, whether the next goes beyond is asked of its share of one GPU, and all that it asks for is then added.
    """
    rng = generator(seed, Stream.PACKING)
    rows = list(rng.permutation(len(demand)))
    total = int(demand.sum())
    while total > most:
        total -= int(demand[rows.pop(int(rng.integers(len(rows))))])
    if len(rows) < len(demand) or not share.any():
        return np.array(rows, np.int64)
    while True:
        row = int(rng.integers(len(demand)))
        if total + share[row] > most:
            return np.array(rows, np.int64)
        if len(rows) == MOST_JOBS:
            raise BadInput(f"workload.load: it takes more than {MOST_JOBS:,} jobs; lower it")
        rows.append(row)
        total += int(demand[row])


def _listed(order: str, known: int) -> np.ndarray:
    name, _, key = order.rpartition(":")
    rows = read_array(name, key, f"workload.order={order}")
    if not len(rows) or rows.min() < 0 or rows.max() >= known:
        raise BadInput(f"workload.order={order}: must be row numbers from 0 to {known - 1} of the trace")
    return rows


def _in_turn(trace: pa.Table, rows: np.ndarray) -> pa.Table:
    """``rows`` of ``trace``, one after another."""
    taken = trace.take(pa.array(rows))
    nth = np.zeros(len(rows), np.int64)
    order = np.argsort(rows, kind="stable")
    first = np.append(True, rows[order][1:] != rows[order][:-1])
    began = np.flatnonzero(first)
    nth[order] = np.arange(len(rows)) - np.repeat(began, np.diff(np.append(began, len(rows))))
    marks = pa.array([f"+{n}" if n else "" for n in nth.tolist()])
    at = np.arange(len(rows), dtype=np.float64)
    columns = {name: taken[name] for name in taken.column_names} | {
        "job_id": pc.binary_join_element_wise(taken["job_id"], marks, ""),
        "submit_time": pa.array(at), "duration": pa.repeat(float(len(rows)) + LAST_S, len(rows)),
        "end_time": pa.repeat(float(len(rows)) - 1.0 + LAST_S, len(rows)), "clone": pa.array(nth > 0),
    }
    return fill_defaults(pa.table(columns), JOBS).combine_chunks()
