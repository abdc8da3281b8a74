"""The cluster section of a run's configuration, and the `Cluster` that it describes.

The dataclasses are the types of ``conf/cluster/*.yaml``; `parse` turns a section, as Hydra composes it, into one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from harness.errors import BadInput
from harness.tables import one_line, read_array
from harness.topology.flextopo import read_flextopo
from harness.topology.shape import UNBOUNDED, Cluster, ServerShape, spread_gpus

MAX_SERVERS = 1_000_000
FLEXTOPO_SUFFIXES = (".yaml", ".yml", ".json")

T = TypeVar("T")


@dataclass(frozen=True)
class ShapeConfig:
    """A group of equal servers.

    - ``servers``: how many there are.
    - ``sockets``, ``numa_per_socket``; ``cores_per_numa``, or ``cores`` of the whole server, of which the first NUMA
      nodes take the remainder.
    - ``gpus``: spread evenly over the NUMA nodes in index order, unless ``gpu_numa`` gives the NUMA node of each.
    - ``memory_mib``: of the whole server; null = unbounded.
    - ``nvlink``: NVLink or PCIe switch groups: none, all (NVSwitch), or how many NUMA nodes form one.
    """

    name: str = "server"
    servers: int = 1
    gpu_model: str = "GPU"
    gpus: int = 0
    sockets: int = 1
    numa_per_socket: int = 1
    cores_per_numa: int | None = None
    cores: int | None = None
    memory_mib: int | None = None
    nvlink: int | str = "none"
    gpu_numa: list[int] | None = None
    core_group_size: int = 8


@dataclass(frozen=True)
class ClusterConfig:
    """Which servers a cluster has. Their shapes come from ``from_flextopo``, else from ``groups``, else (`flat`) from ``gpus``.

    - ``servers``: total; null = as listed. Several groups are scaled in proportion.
    - ``groups``: shapes with their numbers, in server order.
    - ``gpus``, ``cpus``, ``memory_mib``: per server of ``flat``, one NUMA node; null = unbounded (cpus, memory_mib).
    - ``servers_per_rack``, ``racks_per_spine``: consecutive servers share a rack, consecutive racks a spine.
    - ``from_flextopo``: path of one FlexTopo object, which gives every server its shape in place of ``groups`` or ``gpus``;
      or of a folder of them, each of which is one server.
    - ``gpu_numa``: the NUMA node of each GPU, in place of what the shape says.
    - ``count_used``: with ``from_flextopo``, leave out cores that the object marks used.
    - ``from_file``: YAML file of a cluster, as ``harness-traces import`` writes it from a node list: its groups are taken.
    - ``order``: in which the servers stand: null = as listed; a number = shuffled with that seed; FILE.npz:KEY = by the ranks of the
      listed servers, from 0, in that array of the file. Ties between servers go to the one that stands first.
    """

    name: str = "cluster"
    servers: int | None = None
    groups: list[ShapeConfig] = field(default_factory=list)
    gpus: int | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    servers_per_rack: int = 16
    racks_per_spine: int = 4
    from_flextopo: str | None = None
    gpu_numa: list[int] | None = None
    count_used: bool = False
    from_file: str | None = None
    order: int | str | None = None


def parse(section: Mapping[str, Any]) -> ClusterConfig:
    """The typed form of a ``cluster`` section, plain or of OmegaConf. Raises `BadInput` for a wrong key or type."""
    return _typed(ClusterConfig, section, "cluster")


def build(config: ClusterConfig) -> Cluster:
    """The cluster that ``config`` describes. Servers stand in the order of the groups; a group scaled to 0 is left out.

    Raises `BadInput` naming the key.
    """
    groups, notes = _groups(config)
    listed = [count for _, count in groups]
    for key in ("servers", "servers_per_rack", "racks_per_spine"):
        value = getattr(config, key)
        if value is not None and not 1 <= value <= MAX_SERVERS:
            raise BadInput(f"cluster.{key}={value} must be 1 to {MAX_SERVERS}")
    total = sum(listed) if config.servers is None else config.servers
    counts = largest_remainder(listed, total)
    absent = [shape.name for (shape, _), count in zip(groups, counts, strict=True) if not count]
    if absent:
        notes.append(f"{total} servers in the proportions of {sum(listed)} leave none of {', '.join(absent)}")
    present = [(shape, count) for (shape, _), count in zip(groups, counts, strict=True) if count]
    shapes = list(dict.fromkeys(shape for shape, _ in present))
    shape_of = np.repeat([shapes.index(shape) for shape, _ in present], [count for _, count in present]).astype(np.int32)
    rack = np.arange(total, dtype=np.int32) // config.servers_per_rack
    return Cluster(
        name=config.name,
        shapes=tuple(shapes),
        shape_of=shape_of[_standing(config.order, total)],
        rack_of=rack,
        spine_of=rack // config.racks_per_spine,
        notes=tuple(notes),
    )


def largest_remainder(counts: Sequence[int], total: int) -> list[int]:
    """Whole numbers in the proportions of ``counts`` that sum to ``total``: rounded down, the rest to the largest
    remainders, the earlier one on ties.
    """
    whole = sum(counts)
    shares = [divmod(count * total, whole) for count in counts]
    result = [quotient for quotient, _ in shares]
    by_remainder = sorted(range(len(counts)), key=lambda i: -shares[i][1])
    for i in by_remainder[:total - sum(result)]:
        result[i] += 1
    return result


def server_shape(config: ShapeConfig) -> ServerShape:
    """The shape of one server of the group ``config``. Raises `BadInput` naming group and key."""
    where = f"cluster.groups ({config.name})"
    for key in ("sockets", "numa_per_socket"):
        if getattr(config, key) < 1:
            raise BadInput(f"{where}: {key}={getattr(config, key)} must be at least 1")
    if config.gpus < 0:
        raise BadInput(f"{where}: gpus={config.gpus} must not be negative")
    nodes = config.sockets * config.numa_per_socket
    if (config.cores is None) == (config.cores_per_numa is None):
        raise BadInput(f"{where}: give either cores_per_numa or cores (of the whole server)")
    per_node, rest = divmod(config.cores, nodes) if config.cores is not None else (config.cores_per_numa or 0, 0)
    if config.gpu_numa is not None and len(config.gpu_numa) != config.gpus:
        raise BadInput(f"{where}: gpu_numa has {len(config.gpu_numa)} entries for {config.gpus} GPUs")
    return ServerShape(
        name=config.name,
        gpu_model=config.gpu_model,
        memory_mib=UNBOUNDED if config.memory_mib is None else config.memory_mib,
        numa_cores=tuple(per_node + (n < rest) for n in range(nodes)),
        numa_socket=tuple(n // config.numa_per_socket for n in range(nodes)),
        gpu_numa=spread_gpus(config.gpus, nodes) if config.gpu_numa is None else tuple(config.gpu_numa),
        nvlink=_nvlink(str(config.nvlink), nodes, where),
        core_group_size=config.core_group_size,
    )


def _typed(kind: type[T], section: Any, where: str) -> T:
    """A ``kind`` (dataclass) of the keys of ``section``, each checked against the field's annotation."""
    if not isinstance(section, Mapping):
        raise BadInput(f"{where} must be a mapping, it is {section!r}")
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in section.items():
        if key not in hints:
            raise BadInput(f"{where}.{key}: there is no such key, only {', '.join(hints)}")
        if not _fits(value, hints[key]):
            raise BadInput(f"{where}.{key}={value} must be {_words(hints[key])}")
        values[key] = list(value) if _is_list(value) else value
    if "groups" in values:
        values["groups"] = [_typed(ShapeConfig, group, f"{where}.groups[{i}]") for i, group in enumerate(values["groups"])]
    return kind(**values)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _fits(value: Any, hint: Any) -> bool:
    if isinstance(hint, UnionType):
        return any(_fits(value, h) for h in get_args(hint))
    if get_origin(hint) is list:
        return _is_list(value) and (get_args(hint)[0] is ShapeConfig or all(_fits(v, get_args(hint)[0]) for v in value))
    return isinstance(value, hint) and not (hint is int and isinstance(value, bool))


def _words(hint: Any) -> str:
    if isinstance(hint, UnionType):
        return " or ".join(_words(h) for h in get_args(hint))
    if get_origin(hint) is list:
        return f"a list, each {_words(get_args(hint)[0])}"
    return {int: "a whole number", str: "text", bool: "true or false", NoneType: "null", ShapeConfig: "a group"}[hint]


def _nvlink(words: str, nodes: int, where: str) -> tuple[int, ...]:
    if words == "none" or words == "1":
        return ()
    if words == "all":
        return (0,) * nodes
    size = int(words) if words.isdecimal() else 0
    if size < 1 or nodes % size:
        raise BadInput(f"{where}: nvlink={words} must be none, all, or a number of NUMA nodes that divides {nodes}")
    return tuple(n // size for n in range(nodes))


def _groups(config: ClusterConfig) -> tuple[list[tuple[ServerShape, int]], list[str]]:
    """(shape, servers as listed) of each group, and notes."""
    for key in ("gpus", "cpus", "memory_mib"):
        other = "groups" if config.groups else "from_flextopo" if config.from_flextopo and key != "gpus" else None
        if other and getattr(config, key) is not None:
            raise BadInput(f"cluster.{key}={getattr(config, key)} is for cluster=flat only; here cluster.{other} says it")
    if config.count_used and not config.from_flextopo:
        raise BadInput("cluster.count_used=true needs cluster.from_flextopo=FILE: only FlexTopo objects say what is used")
    if config.from_flextopo:
        return _flextopo(Path(config.from_flextopo), config)
    if config.from_file:
        return _groups(replace(config, groups=_listed(config.from_file), from_file=None))
    if not config.groups:
        return [(_flat(config), 1)], []
    groups = []
    for group in config.groups:
        if not 1 <= group.servers <= MAX_SERVERS:
            raise BadInput(f"cluster.groups ({group.name}): servers={group.servers} must be 1 to {MAX_SERVERS}")
        if config.gpu_numa is not None:
            if len(config.gpu_numa) != group.gpus:
                raise BadInput(f"cluster.gpu_numa has {len(config.gpu_numa)} entries, servers of group {group.name} have "
                               f"{group.gpus} GPUs; it must name the NUMA node of each")
            group = replace(group, gpu_numa=config.gpu_numa)
        groups.append((server_shape(group), group.servers))
    return groups, []


def _listed(file: str) -> list[ShapeConfig]:
    """The groups of a cluster in a YAML file."""
    import yaml  # most clusters do without

    try:
        section = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise BadInput(f"cluster.from_file={file}: cannot be read ({one_line(error)}); it must be a cluster that "
                       "`harness-traces import` wrote") from error
    groups = _typed(ClusterConfig, section, f"cluster.from_file={file}").groups
    if not groups:
        raise BadInput(f"cluster.from_file={file}: has no groups")
    return groups


def _standing(order: int | str | None, servers: int) -> np.ndarray:
    """The listed servers in the order in which they stand."""
    if order is None:
        return np.arange(servers)
    if isinstance(order, int):
        if order < 0:
            raise BadInput(f"cluster.order={order}: a seed is a whole number >= 0")
        return np.random.default_rng(order).permutation(servers)
    name, _, key = order.rpartition(":")
    rank = read_array(name, key, f"cluster.order={order}")
    if not np.array_equal(np.sort(rank), np.arange(servers)):
        raise BadInput(f"cluster.order={order}: must be the ranks 0 to {servers - 1} of {servers} servers, each once")
    return np.argsort(rank)


def _flat(config: ClusterConfig) -> ServerShape:
    if config.gpus is None:
        raise BadInput(f"cluster {config.name} has no shapes; give cluster.gpus (flat), groups or cluster.from_flextopo")
    for key in ("gpus", "cpus"):
        if (getattr(config, key) or 0) < 0:
            raise BadInput(f"cluster.{key}={getattr(config, key)} must not be negative")
    if config.gpu_numa is not None and len(config.gpu_numa) != config.gpus:
        raise BadInput(f"cluster.gpu_numa has {len(config.gpu_numa)} entries for {config.gpus} GPUs")
    return ServerShape(
        name=config.name,
        gpu_model="GPU",
        memory_mib=UNBOUNDED if config.memory_mib is None else config.memory_mib,
        numa_cores=(UNBOUNDED if config.cpus is None else config.cpus,),
        numa_socket=(0,),
        gpu_numa=tuple(config.gpu_numa or (0,) * config.gpus),
    )


def _flextopo(path: Path, config: ClusterConfig) -> tuple[list[tuple[ServerShape, int]], list[str]]:
    """Equal objects of a folder form one group, in order of their first file by name; one file stands for every server."""
    files = [path]
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.suffix in FLEXTOPO_SUFFIXES)
        if not files:
            raise BadInput(f"cluster.from_flextopo={path}: the folder has no file ending in {', '.join(FLEXTOPO_SUFFIXES)}")
    groups: dict[ServerShape, list[str]] = {}
    said: dict[str, list[str]] = {}
    for file in files:
        shape, notes = read_flextopo(file, config.gpu_numa, config.count_used)
        groups.setdefault(replace(shape, name=""), []).append(shape.name)
        for note in notes:
            said.setdefault(note, []).append(file.name)
    notes = [f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {note}" for note, names in said.items()]
    shapes = [(replace(shape, name=names[0]), len(names)) for shape, names in groups.items()]
    if not path.is_dir():
        shapes = [(shapes[0][0], sum(group.servers for group in config.groups) or 1)]
    return shapes, notes
