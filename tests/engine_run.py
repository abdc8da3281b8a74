"""Runs the engine on what the naive twin takes: jobs and servers as dicts, options by the twin's names."""

from typing import Any

import numpy as np
import pyarrow as pa

from harness import schema
from harness.cluster.build import Rules
from harness.cluster.hooks import load_policy
from harness.cluster.outcome import Outcome
from harness.cluster.replay import replay
from harness.topology import Cluster, ServerShape
from naive import DEFAULTS

RULES = ("pinning", "grace_s", "min_runtime_s", "max_evictable", "horizon_s", "seed", "speed")
"""Options that hold for every policy; the others are parameters of the policies that have them."""


def run(jobs: list[dict[str, Any]], servers: list[dict[str, Any]], policy: str, options: dict[str, Any] | None = None) -> Outcome:
    """The engine's outcome for the arguments of ``naive.replay``.

    ``jobs`` may have columns that schema.JOBS does not name. A policy without a parameter of an option's name ignores the option.
    """
    unknown = set(options or {}) - set(DEFAULTS)
    assert not unknown, f"unknown options {unknown}"
    chosen = {**DEFAULTS, **(options or {})}
    rules = Rules(**{name: chosen.pop(name) for name in RULES})
    has = load_policy(policy).params
    params = {name: value for name, value in chosen.items() if name in has}
    return replay(trace_of(jobs), cluster_of(servers), load_policy(policy, params=params), rules)


def trace_of(jobs: list[dict[str, Any]]) -> pa.Table:
    """A trace with all columns of schema.JOBS, then the unknown ones."""
    known = pa.Table.from_pylist(jobs, schema=schema.arrow_schema(schema.JOBS))
    for name in jobs[0] if jobs else ():
        if name not in known.column_names:
            known = known.append_column(name, pa.array([job[name] for job in jobs]))
    return known


def cluster_of(servers: list[dict[str, Any]]) -> Cluster:
    """A cluster of the twin's server dicts; equal ones share a shape."""
    shapes: dict[ServerShape, int] = {}
    shape_of = []
    for row in servers:
        shape = ServerShape("shape", row["gpu_model"], row["memory_mib"], tuple(row["numa_cores"]), tuple(row["numa_socket"]),
                            tuple(row["gpu_numa"]), tuple(row["nvlink"]))
        shape_of.append(shapes.setdefault(shape, len(shapes)))
    racks, spines = (np.array([row[name] for row in servers], np.int32) for name in ("rack", "spine"))
    return Cluster("test", tuple(shapes), np.array(shape_of, np.int32), racks, spines)
