"""What a server looks like inside, and which servers a cluster has.

GPUs and NUMA nodes of a server are bits of a mask: bit i is GPU i, or NUMA node i.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.errors import BadInput
from harness.schema import LEVELS

NUMA, NVLINK, SOCKET, SERVER = range(len(LEVELS))
"""Indices into `schema.LEVELS`, smallest domain first."""

UNBOUNDED = 2**30
"""Cores or MiB of a server without a limit."""

MAX_GPUS = 64
"""GPUs, and NUMA nodes, that one mask holds."""


def spread_gpus(gpus: int, numa_nodes: int) -> tuple[int, ...]:
    """NUMA node of each GPU when ``gpus`` are spread evenly over ``numa_nodes`` in index order."""
    return tuple(i * numa_nodes // gpus for i in range(gpus))


@dataclass(frozen=True)
class ServerShape:
    """The topology of one kind of server.

    - ``memory_mib``: MiB of the whole server; `UNBOUNDED` when it has no limit.
    - ``numa_cores``: whole cores of each NUMA node.
    - ``numa_socket``: socket of each NUMA node, from 0, non-decreasing.
    - ``gpu_numa``: NUMA node of each GPU.
    - ``nvlink``: NVLink (or PCIe switch) group of each NUMA node's GPUs, numbered from 0 in order of their first NUMA
      node; () when the shape has no such level. A group may lie in one socket or span sockets.
    - ``core_group_size``: cores of a FlexTopo core group.

    Raises `BadInput` when the fields contradict each other.
    """

    name: str
    gpu_model: str
    memory_mib: int
    numa_cores: tuple[int, ...]
    numa_socket: tuple[int, ...]
    gpu_numa: tuple[int, ...]
    nvlink: tuple[int, ...] = ()
    core_group_size: int = 8

    def __post_init__(self) -> None:
        for field in ("numa_cores", "numa_socket", "gpu_numa", "nvlink"):
            values = getattr(self, field)
            self._require(all(isinstance(x, int | np.integer) and x >= 0 for x in values),
                          f"{field} must be whole numbers from 0, it is {list(values)}")
            object.__setattr__(self, field, tuple(int(x) for x in values))
        n = len(self.numa_cores)
        self._require(1 <= n <= MAX_GPUS, f"it has {n} NUMA nodes, 1 to {MAX_GPUS} are possible")
        self._require(self.gpus <= MAX_GPUS, f"it has {self.gpus} GPUs, at most {MAX_GPUS} are possible")
        self._require(max(self.numa_cores) <= UNBOUNDED, f"numa_cores must be at most {UNBOUNDED}")
        self._require(0 <= self.memory_mib <= UNBOUNDED, f"memory_mib must be 0 to {UNBOUNDED}, it is {self.memory_mib}")
        self._require(len(self.numa_socket) == n, f"numa_socket has {len(self.numa_socket)} entries for {n} NUMA nodes")
        self._require(_contiguous(self.numa_socket),
                      f"numa_socket must count up from 0 without gaps (as in 0,0,1,1), it is {list(self.numa_socket)}")
        bad = [g for g in self.gpu_numa if g >= n]
        self._require(not bad, f"gpu_numa names NUMA node {bad[0] if bad else ''}, its NUMA nodes are 0 to {n - 1}")
        self._require(len(self.nvlink) in (0, n), f"nvlink has {len(self.nvlink)} entries for {n} NUMA nodes")
        self._require(list(dict.fromkeys(self.nvlink)) == list(range(len(set(self.nvlink)))),
                      f"nvlink groups must be numbered from 0 in order of their first NUMA node, it is {list(self.nvlink)}")
        self._require(self.core_group_size >= 1, f"core_group_size must be at least 1, it is {self.core_group_size}")
        self._require("|" not in self.gpu_model, f"gpu_model must not contain |, which separates models: {self.gpu_model}")

    def _require(self, ok: bool, message: str) -> None:
        if not ok:
            raise BadInput(f"server shape {self.name}: {message}")

    @property
    def gpus(self) -> int:
        """GPUs of one server."""
        return len(self.gpu_numa)

    @property
    def cores(self) -> int:
        """Whole cores of one server."""
        return sum(self.numa_cores)

    @property
    def sockets(self) -> int:
        """Sockets of one server."""
        return self.numa_socket[-1] + 1

    def spanning_nvlink_groups(self) -> tuple[int, ...]:
        """NVLink groups whose NUMA nodes lie in more than one socket: these are server-level, not domains of their own."""
        return tuple(sorted(group for group in set(self.nvlink)
                            if len({s for s, g in zip(self.numa_socket, self.nvlink, strict=True) if g == group}) > 1))

    def nvlink_level(self) -> int:
        """What affinity_domain ``nvlink`` means here, as an index into LEVELS: numa without such a level, server when a
        group spans sockets, else nvlink.
        """
        if not self.nvlink:
            return NUMA
        return SERVER if self.spanning_nvlink_groups() else NVLINK

    def domains(self) -> list[tuple[int, int, int]]:
        """(level, gpu_mask, numa_mask) of every domain, smaller levels first, by lowest NUMA node within a level.

        ``level`` is an index into `schema.LEVELS`. A domain lies inside one domain of every larger level. NVLink groups
        that span sockets are left out. Domains without GPUs are listed.
        """
        left_out = self.spanning_nvlink_groups()
        result = []
        for level, labels in ((NUMA, range(len(self.numa_cores))), (NVLINK, self.nvlink), (SOCKET, self.numa_socket),
                              (SERVER, [0] * len(self.numa_cores))):
            for group in range(len(set(labels))):
                if level == NVLINK and group in left_out:
                    continue
                numa_mask = sum(1 << n for n, label in enumerate(labels) if label == group)
                gpu_mask = sum(1 << g for g, n in enumerate(self.gpu_numa) if numa_mask >> n & 1)
                result.append((level, gpu_mask, numa_mask))
        return result

    def tree(self) -> dict[str, list[dict[str, Any]]]:
        """The ``spec`` of a FlexTopo object: ``nodes`` of {id, type, attributes} and ``edges`` of {source, target, type}.

        Edges of type ``contains`` give Socket > NUMANode > CoreGroup > CPUCore, ``localized`` a GPU's NUMA node,
        ``nearby`` the NUMA nodes of one NVLink group, each joined to the first. Everything is free. Memory is not part of it.

        Raises `BadInput` for a server whose cores are unbounded: the object lists every core.
        """
        self._require(max(self.numa_cores) < UNBOUNDED, "its cores are unbounded, a FlexTopo object lists every core")
        nodes = [_node(f"socket-{s}", "Socket") for s in range(self.sockets)]
        nodes += [_node(f"numa-{n}", "NUMANode") for n in range(len(self.numa_cores))]
        edges = [_edge(f"socket-{s}", f"numa-{n}", "contains") for n, s in enumerate(self.numa_socket)]
        cores = groups = 0
        for n, count in enumerate(self.numa_cores):
            for first in range(0, count, self.core_group_size):
                group = f"coregroup-{n}-{groups}"
                nodes.append(_node(group, "CoreGroup", groupIndex=groups, nodeID=n, size=self.core_group_size))
                edges.append(_edge(f"numa-{n}", group, "contains"))
                for _ in range(first, min(first + self.core_group_size, count)):
                    nodes.append(_node(f"core-{cores}", "CPUCore", status="free"))
                    edges.append(_edge(group, f"core-{cores}", "contains"))
                    cores += 1
                groups += 1
        for g, n in enumerate(self.gpu_numa):
            nodes.append(_node(f"gpu-{g}", "GPU", name=self.gpu_model, status="free"))
            edges.append(_edge(f"gpu-{g}", f"numa-{n}", "localized"))
        for n, group in enumerate(self.nvlink):
            if (first := self.nvlink.index(group)) != n:
                edges.append(_edge(f"numa-{first}", f"numa-{n}", "nearby"))
        return {"nodes": nodes, "edges": edges}


@dataclass(frozen=True, eq=False)
class Cluster:
    """The servers of a cluster and the network above them.

    - ``shape_of``: int32 (servers,), index into ``shapes``.
    - ``rack_of``, ``spine_of``: int32 (servers,), non-decreasing from 0: racks and spines are contiguous ranges of servers.
    - ``notes``: what was derived or ignored when it was built, one sentence each, for the log.

    Raises `BadInput` when the arrays contradict each other.
    """

    name: str
    shapes: tuple[ServerShape, ...]
    shape_of: np.ndarray
    rack_of: np.ndarray
    spine_of: np.ndarray
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in ("shape_of", "rack_of", "spine_of"):
            array = np.ascontiguousarray(getattr(self, field), dtype=np.int32)
            object.__setattr__(self, field, array)
            if array.shape != (self.servers,):
                raise BadInput(f"cluster {self.name}: {field} has shape {array.shape} for {self.servers} servers")
        if not self.servers:
            raise BadInput(f"cluster {self.name} has no servers, it needs at least 1")
        if self.shape_of.min() < 0 or self.shape_of.max() >= len(self.shapes):
            raise BadInput(f"cluster {self.name}: shape_of must index its {len(self.shapes)} shapes")
        for field in ("rack_of", "spine_of"):
            if not _contiguous(getattr(self, field).tolist()):
                raise BadInput(f"cluster {self.name}: {field} must count up from 0 without gaps")
        if np.any((np.diff(self.spine_of) > 0) & (np.diff(self.rack_of) == 0)):
            raise BadInput(f"cluster {self.name}: a rack lies under two spines, each rack needs one")

    @property
    def servers(self) -> int:
        """Servers of the cluster."""
        return len(self.shape_of)

    @property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return int(np.array([s.gpus for s in self.shapes], dtype=np.int64)[self.shape_of].sum())


def _contiguous(labels: Sequence[int]) -> bool:
    """Whether labels start at 0 and go up by 0 or 1."""
    return labels[0] == 0 and all(b - a in (0, 1) for a, b in zip(labels, labels[1:], strict=False))


def _node(name: str, kind: str, /, **attributes: Any) -> dict[str, Any]:
    return {"id": name, "type": kind, "attributes": attributes}


def _edge(source: str, target: str, kind: str) -> dict[str, Any]:
    return {"source": source, "target": target, "type": kind}
