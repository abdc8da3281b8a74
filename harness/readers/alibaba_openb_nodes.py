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
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.readers._cluster import Node, NodeOptions, by_group, cluster_of
from harness.readers._csv import read_csv
from harness.readers._options import option
from harness.readers._rules import DONE, Tally, bare_name, numbers
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
    sizes,
)
from harness.tables import rows_text
from harness.topology.shape import MAX_GPUS

REQUIRED = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
NUMBER, WORD = pa.float64(), pa.string()
COLUMNS = {"sn": WORD, "cpu_milli": NUMBER, "memory_mib": NUMBER, "gpu": NUMBER, "model": WORD}


@dataclass(frozen=True)
class Options(NodeOptions):
    order: str = option("group", "order of the servers: by group, or as in the file", ("group", "file"))
    without_gpu: str = option("keep", "servers without GPU", ("keep", "drop"))
    cpu_unit: str = option(OWN, CPU_UNIT_HELP, CPU_UNITS)
    memory_unit: str = option(OWN, MEMORY_UNIT_HELP, MEMORY_UNITS)
    numa_per_socket: int = option(1, "NUMA nodes of each socket")


def read(paths: Sequence[Path], options: Options) -> tuple[Mapping[str, Any], list[str]]:
    """The section ``cluster`` of a configuration, and the report. Raises BadInput."""
    tally = Tally()
    nodes = [node for path in paths for node in _read_file(path, options, tally)]
    tally.add(f"servers without GPU: {{:,}} {DONE[options.without_gpu]}", sum(node.gpus == 0 for node in nodes))
    if options.without_gpu == "drop":
        nodes = [node for node in nodes if node.gpus]
    if not nodes:
        raise BadInput(f"{paths[0]}: no server is left to write")
    if options.order == "group":
        nodes.sort(key=by_group)
    return cluster_of(options.name or bare_name(paths[0]), nodes, options, tally, options.numa_per_socket), tally.lines()


def _read_file(path: Path, options: Options, tally: Tally) -> list[Node]:
    table, ignored = read_csv(path, COLUMNS, REQUIRED)
    source = str(path)
    tally.rows(path, table.num_rows)
    if ignored:
        tally.say(f"columns ignored: {', '.join(ignored)}")
    cores = sizes(table, "cpu_milli", source, "cpu_unit", options.cpu_unit, "milli", CORES, PLAUSIBLE_CORES)
    gpus = numbers(table, "gpu", source, low=0, high=MAX_GPUS, whole=True)
    memory = sizes(table, "memory_mib", source, "memory_unit", options.memory_unit, "mib", MIB, PLAUSIBLE_MIB)
    tally.add("fractions of a core: left out in {:,} servers", (cores != np.floor(cores)).sum())
    models = table["model"].to_pylist()
    unnamed = (gpus > 0) & np.array([not model for model in models])
    if unnamed.any():
        raise BadInput(f"{source}: column model, {rows_text(unnamed)}: empty, must name the model where gpu > 0")
    return [Node(model or "none", int(g), int(c), int(m)) for model, g, c, m in zip(models, gpus, cores, memory, strict=True)]
