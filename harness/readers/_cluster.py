"""What readers of node lists share: a checked cluster section as ``conf/cluster`` holds them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, NamedTuple

from harness.readers._options import option
from harness.readers._rules import Tally
from harness.topology import ClusterConfig, ShapeConfig, build


@dataclass(frozen=True)
class ClusterOptions:
    """Options of every cluster that is read."""

    name: str = option("", "clusters: their name; the file's name without it")
    servers_per_rack: int = option(16, "clusters: servers of a rack")
    racks_per_spine: int = option(4, "clusters: racks below a spine switch")


@dataclass(frozen=True)
class NodeOptions(ClusterOptions):
    """Options of every node list."""

    two_sockets_from: int = option(64, "node lists: servers with at least so many cores get two sockets, the others one")


def cluster_section(name: str, groups: Sequence[ShapeConfig], servers_per_rack: int, racks_per_spine: int) -> Mapping[str, Any]:
    """The section as plain values, every key there. Raises BadInput when no cluster can be built from it."""
    config = ClusterConfig(name=name, groups=list(groups), servers_per_rack=servers_per_rack, racks_per_spine=racks_per_spine)
    build(config)
    section = asdict(config)
    section["groups"] = [{key: value for key, value in group.items() if key not in ("cores", "cores_per_numa", "gpu_numa")
                          or value is not None} for group in section["groups"]]
    return section


class Node(NamedTuple):
    """What makes two servers equal; sorted in this order. No ``memory_mib``: unbounded."""

    model: str
    gpus: int
    cores: int
    memory_mib: int | None


def by_group(node: Node) -> tuple[str, int, int, int]:
    """Key that sorts nodes as they stand in conf/cluster."""
    return node.model, node.gpus, node.cores, node.memory_mib or 0


def cluster_of(name: str, nodes: Sequence[Node], options: NodeOptions, tally: Tally, numa_per_socket: int = 1) -> Mapping[str, Any]:
    """The section for ``nodes``, equal ones that follow each other as one group.

    Servers of at least ``options.two_sockets_from`` cores get two sockets, the others one; racks by ``servers_per_rack`` and
    ``racks_per_spine`` of the options.
    """
    groups = [_group(node, len(list(equal)), options.two_sockets_from, numa_per_socket) for node, equal in groupby(nodes)]
    two = sum(group.servers for group in groups if group.sockets == 2)
    tally.say(f"servers: {len(nodes):,} with {sum(node.gpus for node in nodes):,} GPUs, in {len(groups):,} groups")
    tally.say(f"assumed: two sockets in {two:,} servers (from {options.two_sockets_from} cores up), one in the others, "
              f"NUMA nodes of each socket: {numa_per_socket}, no NVLink, racks of {options.servers_per_rack} servers in order")
    return cluster_section(name, groups, options.servers_per_rack, options.racks_per_spine)


def _group(node: Node, servers: int, two_sockets_from: int, numa_per_socket: int) -> ShapeConfig:
    size = "" if node.memory_mib is None else f"-{node.memory_mib >> 10}g"
    return ShapeConfig(name=f"{node.model}x{node.gpus}-{node.cores}c{size}", servers=servers, gpu_model=node.model, gpus=node.gpus,
                       sockets=2 if node.cores >= two_sockets_from else 1, numa_per_socket=numa_per_socket, cores=node.cores,
                       memory_mib=node.memory_mib)
