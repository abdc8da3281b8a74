"""FlexTopo node objects (github.com/agiping/flextopo): one Kubernetes object per file, read as a cluster of such servers.

``harness.topology.flextopo`` reads the object and states its rules; ``cluster.from_flextopo=FILE`` uses it without an import.
Oddities, and the rule for each:

- GPUs have no edge to a NUMA node: spread evenly in index order, unless ``gpu_numa`` lists the NUMA node of each.
- Cores are marked used that only the shared CPU pool holds: ignored, unless ``count_used=true``.
- The object does not give the server's memory: unbounded, unless ``memory_mib`` says it.
- Lists are unordered: nodes are ordered by their numbers.
- Several files: objects that describe equal servers form one group, in order of their first file. ``servers`` copies of each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import BadInput
from harness.readers._cluster import ClusterOptions, cluster_section
from harness.readers._options import option
from harness.readers._rules import bare_name
from harness.tables.sniff import read_head, seems
from harness.topology import UNBOUNDED, ServerShape, ShapeConfig, read_flextopo
from harness.topology.build import server_shape


@dataclass(frozen=True)
class Options(ClusterOptions):
    servers: int = option(1, "servers that each object stands for")
    gpu_numa: str = option("", "NUMA node of each GPU, separated by commas, such as 0,0,1,1")
    count_used: bool = option(False, "leave out the cores that the object marks used")
    memory_mib: int = option(0, "memory of each server in MiB; 0: unbounded")


def read(paths: Sequence[Path], options: Options) -> tuple[Mapping[str, Any], list[str]]:
    """The section ``cluster`` of a configuration, and the report. Raises BadInput."""
    gpu_numa = _numbers(options.gpu_numa)
    if options.servers < 1:
        raise BadInput(f"--servers {options.servers}: must be at least 1")
    report: list[str] = []
    names: dict[ServerShape, list[str]] = {}
    for path in paths:
        what = seems(read_head(path))
        if what not in ("YAML", "JSON") and not what.startswith("text that"):
            raise BadInput(f"{path}: must be a FlexTopo object in YAML or JSON, but seems to be {what}")
        shape, notes = read_flextopo(path, gpu_numa, options.count_used)
        report += [f"{path.name}: {note}" for note in notes]
        if options.memory_mib:
            shape = replace(shape, memory_mib=options.memory_mib)
            report.append(f"{path.name}: memory set to {options.memory_mib:,} MiB")
        names.setdefault(replace(shape, name=""), []).append(shape.name)
    groups = [_group(replace(shape, name=named[0]), len(named) * options.servers, paths) for shape, named in names.items()]
    for group in groups:
        report.append(f"{group.name}: {group.servers:,} servers of {group.gpus} {group.gpu_model}, {group.sockets} sockets, "
                      f"{group.sockets * group.numa_per_socket} NUMA nodes")
    name = options.name or bare_name(paths[0])
    return cluster_section(name, groups, options.servers_per_rack, options.racks_per_spine), report


def _numbers(words: str) -> list[int] | None:
    try:
        return [int(word) for word in words.split(",")] if words else None
    except ValueError as error:
        raise BadInput(f"--gpu_numa {words}: must be whole numbers separated by commas") from error


def _group(shape: ServerShape, servers: int, paths: Sequence[Path]) -> ShapeConfig:
    """``shape`` as a group of the configuration. Raises BadInput when such a group cannot describe it."""
    nodes, sockets = len(shape.numa_cores), shape.numa_socket[-1] + 1
    nvlink = "none"
    if shape.nvlink:
        groups = max(shape.nvlink) + 1
        nvlink = "all" if groups == 1 else str(nodes // groups)
    group = ShapeConfig(
        name=shape.name, servers=servers, gpu_model=shape.gpu_model, gpus=len(shape.gpu_numa), sockets=sockets,
        numa_per_socket=max(1, nodes // sockets), cores=sum(shape.numa_cores),
        memory_mib=None if shape.memory_mib == UNBOUNDED else shape.memory_mib, nvlink=nvlink, gpu_numa=list(shape.gpu_numa),
        core_group_size=shape.core_group_size,
    )
    if server_shape(group) != shape:
        raise BadInput(f"{', '.join(str(p) for p in paths)}: {shape.name} is too irregular for a group of conf/cluster "
                       f"(cores {list(shape.numa_cores)}, sockets {list(shape.numa_socket)}); use cluster.from_flextopo=FILE")
    return group
