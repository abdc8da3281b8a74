"""Alibaba cluster-trace-gpu-v2023 ("openb"), node lists: one server per row, read as a cluster. The pod lists are alibaba-openb.

Columns: sn, cpu_milli (1/1000 core), memory_mib, gpu (number of GPUs), model (empty when there are none). Oddities, and the rule
for each:

- No topology below the node: servers of at least ``two_sockets_from`` cores get two sockets, the others one, each of
  ``numa_per_socket`` NUMA nodes; no NVLink. All of it is assumed.
- No racks: ``servers_per_rack`` consecutive servers.
- Servers stand by group (model, GPUs, cores, memory), as in the harness's own ``openb`` cluster; ``order=file`` keeps the file's
  order, so that every run of equal servers is a group.
- Servers without GPU are kept; ``without_gpu=drop`` leaves them out. Their model is "none".
- A fraction of a core is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.readers._cluster import cluster_section
from harness.readers._csv import read_csv
from harness.readers._options import option
from harness.readers._rules import bare_name, numbers
from harness.schema import MILLI
from harness.tables import rows_text
from harness.topology import UNBOUNDED, ShapeConfig
from harness.topology.shape import MAX_GPUS

REQUIRED = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
NUMBER, WORD = pa.float64(), pa.string()
COLUMNS = {"sn": WORD, "cpu_milli": NUMBER, "memory_mib": NUMBER, "gpu": NUMBER, "model": WORD}


@dataclass(frozen=True)
class Options:
    name: str = option("", "name of the cluster; the file's name without it")
    order: str = option("group", "order of the servers: by group, or as in the file", ("group", "file"))
    without_gpu: str = option("keep", "servers without GPU", ("keep", "drop"))
    two_sockets_from: int = option(64, "servers with at least so many cores get two sockets, the others one")
    numa_per_socket: int = option(1, "NUMA nodes of each socket")
    servers_per_rack: int = option(16, "servers of a rack")
    racks_per_spine: int = option(4, "racks below a spine switch")


class Node(NamedTuple):
    """What makes two servers equal; sorted in this order."""

    model: str
    gpus: int
    cores: int
    memory_mib: int


def read(paths: Sequence[Path], options: Options) -> tuple[Mapping[str, Any], list[str]]:
    """The section ``cluster`` of a configuration, and the report. Raises BadInput."""
    report: list[str] = []
    nodes = [node for path in paths for node in _read_file(path, report)]
    without = sum(node.gpus == 0 for node in nodes)
    if without:
        report.append(f"servers without GPU: {without:,} {'kept' if options.without_gpu == 'keep' else 'dropped'}")
    if options.without_gpu == "drop":
        nodes = [node for node in nodes if node.gpus]
    if not nodes:
        raise BadInput(f"{paths[0]}: no server is left to write")
    if options.order == "group":
        nodes.sort()
    groups = [_group(node, len(list(equal)), options) for node, equal in groupby(nodes)]
    two = sum(group.servers for group in groups if group.sockets == 2)
    report.append(f"servers: {len(nodes):,} with {sum(node.gpus for node in nodes):,} GPUs, in {len(groups):,} groups")
    report.append(f"assumed: two sockets in {two:,} servers (from {options.two_sockets_from} cores up), one in the others, "
                  f"NUMA nodes of each socket: {options.numa_per_socket}, no NVLink, "
                  f"racks of {options.servers_per_rack} servers in order")
    name = options.name or bare_name(paths[0])
    return cluster_section(name, groups, options.servers_per_rack, options.racks_per_spine), report


def _read_file(path: Path, report: list[str]) -> list[Node]:
    table, ignored = read_csv(path, COLUMNS, REQUIRED)
    source = str(path)
    report.append(f"{path.name}: {table.num_rows:,} rows")
    if ignored:
        report.append(f"columns ignored: {', '.join(ignored)}")
    cores = numbers(table, "cpu_milli", source, low=0, high=UNBOUNDED) / MILLI
    gpus = numbers(table, "gpu", source, low=0, high=MAX_GPUS, whole=True)
    memory = numbers(table, "memory_mib", source, low=0, high=UNBOUNDED)
    fractions = int((cores != np.floor(cores)).sum())
    if fractions:
        report.append(f"fractions of a core: left out in {fractions:,} servers")
    models = table["model"].to_pylist()
    unnamed = (gpus > 0) & np.array([not model for model in models])
    if unnamed.any():
        raise BadInput(f"{source}: column model, {rows_text(unnamed)}: empty, must name the model where gpu > 0")
    return [Node(model or "none", int(g), int(c), int(m)) for model, g, c, m in zip(models, gpus, cores, memory, strict=True)]


def _group(node: Node, servers: int, options: Options) -> ShapeConfig:
    return ShapeConfig(
        name=f"{node.model}x{node.gpus}-{node.cores}c-{node.memory_mib >> 10}g",
        servers=servers, gpu_model=node.model, gpus=node.gpus,
        sockets=2 if node.cores >= options.two_sockets_from else 1, numa_per_socket=options.numa_per_socket,
        cores=node.cores, memory_mib=node.memory_mib,
    )
