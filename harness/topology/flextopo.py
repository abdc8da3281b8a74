"""FlexTopo objects: one Kubernetes object per server, its topology as a list of nodes and a list of edges.

Format: github.com/agiping/flextopo, ``apiVersion: flextopo.baichuan-inc.com/v1alpha1``. Both lists are unordered.
Objects of the authors' agent have no edges for GPUs, and mark cores used that only the shared CPU pool holds.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import BadInput
from harness.topology.shape import UNBOUNDED, ServerShape, spread_gpus

API_VERSION = "flextopo.baichuan-inc.com/v1alpha1"
KIND = "FlexTopo"
DEPTH = {"Socket": 0, "NUMANode": 1, "CoreGroup": 2, "CPUCore": 3, "GPU": 3}
"""How deep each type of node lies: a node may only contain deeper ones. Other types are passed through."""
CONTAINS, LOCALIZED, NEARBY = "contains", "localized", "nearby"


def read_flextopo(path: str | Path, gpu_numa: Sequence[int] | None = None,
                  count_used: bool = False) -> tuple[ServerShape, list[str]]:
    """The shape of the server that the FlexTopo object in ``path`` describes, and what was derived or ignored.

    A GPU's NUMA node comes from ``gpu_numa`` (one entry per GPU, counting NUMA nodes in the order of their numbers), else
    from its ``localized`` or ``contains`` edge, else GPUs are spread evenly over the NUMA nodes in index order.
    ``nearby`` edges between GPUs or NUMA nodes make NVLink groups. Cores marked used are part of the server unless
    ``count_used``. The object does not give the server's memory: it is `UNBOUNDED`.

    Raises `BadInput` with one line for a file that is not such an object.
    """
    reader = _Reader(Path(path))
    try:
        return reader.shape(gpu_numa, count_used), reader.notes
    except BadInput as error:
        raise error if str(path) in str(error) else BadInput(f"{path}: {error}") from None


def write_flextopo(shape: ServerShape, name: str) -> dict[str, Any]:
    """The FlexTopo object of a server called ``name`` with ``shape``, everything free; `yaml.safe_dump` writes it.

    `read_flextopo` gives the shape back, except its memory, and without NVLink groups that are single NUMA nodes.
    Raises `BadInput` when its cores are unbounded.
    """
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": shape.tree()}


class _Reader:
    """The checked graph of one object."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        document = self._load()
        spec = document["spec"] if isinstance(document.get("spec"), dict) else {}
        metadata = document.get("metadata")
        self.name = str((metadata.get("name") if isinstance(metadata, dict) else None) or path.stem)
        self.attributes: dict[str, dict[str, Any]] = {}
        self.ids: dict[str, list[str]] = defaultdict(list)
        self._read_nodes(spec.get("nodes"))
        self.parent: dict[str, str] = {}
        self.linked: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self._read_edges(spec.get("edges") or [])

    def require(self, ok: bool, message: str) -> None:
        if not ok:
            raise BadInput(f"{self.path}: {' '.join(message.split())}")

    def _load(self) -> dict[str, Any]:
        import yaml

        self.require(self.path.is_file(), "there is no such file; give the path of one FlexTopo object")
        try:
            document = yaml.load(self.path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            where = f", line {mark.line + 1}" if mark else ""
            raise BadInput(f"{self.path}{where}: not a YAML document ({getattr(error, 'problem', None) or 'unreadable'}); "
                           "one FlexTopo object is expected") from None
        self.require(isinstance(document, dict), "not a YAML mapping; one FlexTopo object is expected")
        kind, version = document.get("kind"), document.get("apiVersion")
        self.require(kind == KIND, f"kind is {kind}, it must be {KIND} (one object per file)")
        self.require(version == API_VERSION, f"apiVersion is {version}, it must be {API_VERSION}")
        return document

    def _read_nodes(self, nodes: Any) -> None:
        self.require(isinstance(nodes, list) and bool(nodes), "it has no list spec.nodes of the parts of the server")
        others: Counter[str] = Counter()
        for i, node in enumerate(nodes):
            known = isinstance(node, dict) and isinstance(node.get("id"), str) and isinstance(node.get("type"), str)
            self.require(known, f"spec.nodes[{i}] must have id, type and attributes")
            name, kind, attributes = node["id"], node["type"], node.get("attributes") or {}
            self.require(name not in self.attributes, f"spec.nodes[{i}]: the id {name} is there twice")
            self.require(isinstance(attributes, dict), f"spec.nodes[{i}] ({name}): attributes must be a mapping")
            self.attributes[name] = {**attributes, "type": kind}
            self.ids[kind].append(name)
            others[kind] += kind not in DEPTH
        for kind, count in sorted(others.items()):
            if count:
                self.notes.append(f"{count} nodes of type {kind} are ignored")
        for kind in ("Socket", "NUMANode", "CPUCore"):
            self.require(bool(self.ids[kind]), f"spec.nodes has no node of type {kind}")

    def _read_edges(self, edges: Any) -> None:
        self.require(isinstance(edges, list), "spec.edges must be a list")
        others: Counter[str] = Counter()
        for i, edge in enumerate(edges):
            self.require(isinstance(edge, dict) and all(isinstance(edge.get(k), str) for k in ("source", "target", "type")),
                         f"spec.edges[{i}] must have source, target and type")
            source, target, kind = edge["source"], edge["target"], edge["type"]
            for end in (source, target):
                self.require(end in self.attributes, f"spec.edges[{i}] ({source} -> {target}): no node has the id {end}")
            if kind == CONTAINS:
                known = self.parent.setdefault(target, source)
                self.require(known == source, f"spec.edges[{i}]: {target} is contained in both {known} and {source}")
            elif kind in (LOCALIZED, NEARBY):
                self.linked[kind].append((source, target))
            else:
                others[kind] += 1
        for kind, count in sorted(others.items()):
            self.notes.append(f"{count} edges of type {kind} are ignored")
        for name in self.parent:
            self._check_ancestors(name)

    def _check_ancestors(self, name: str) -> None:
        seen, below = [name], name
        while (above := self.parent.get(seen[-1])) is not None:
            self.require(above not in seen, f"its contains edges form a cycle through {above}")
            seen.append(above)
            kind, inner = self.type(above), self.type(below)
            if kind in DEPTH:
                self.require(inner not in DEPTH or DEPTH[kind] < DEPTH[inner],
                             f"{above} ({kind}) cannot contain {below} ({inner})")
                below = above

    def type(self, name: str) -> str:
        return self.attributes[name]["type"]

    def ancestor(self, name: str, kind: str) -> str | None:
        """The node of type ``kind`` that contains ``name``."""
        above: str | None = name
        while above is not None and self.type(above) != kind:
            above = self.parent.get(above)
        return above

    def shape(self, gpu_numa: Sequence[int] | None, count_used: bool) -> ServerShape:
        numbered = sorted(self.ids["NUMANode"], key=_number)
        sockets = sorted(self.ids["Socket"], key=_number)
        socket_of = {n: self.ancestor(n, "Socket") for n in numbered}
        for n, s in socket_of.items():
            self.require(s is not None, f"{n} (NUMANode) is in no Socket")
        used_sockets = [s for s in sockets if s in socket_of.values()]
        numa = sorted(numbered, key=lambda n: used_sockets.index(str(socket_of[n])))
        if numa != numbered:
            self.notes.append("NUMA nodes are renumbered so that each socket's stand together: " + ", ".join(numa))
        index = {n: i for i, n in enumerate(numa)}
        if gpu_numa is not None:
            gpu_numa = self._translate(gpu_numa, [index[n] for n in numbered])
        gpus = self._gpu_numa(index, gpu_numa)
        shape = ServerShape(
            name=self.name,
            gpu_model=self._gpu_model(),
            memory_mib=UNBOUNDED,
            numa_cores=self._cores(index, count_used),
            numa_socket=tuple(used_sockets.index(str(socket_of[n])) for n in numa),
            gpu_numa=gpus,
            nvlink=self._nvlink(index, gpus),
            core_group_size=self._core_group_size(),
        )
        self.notes.append("the memory of the server is not in the object: unbounded")
        return shape

    def _translate(self, gpu_numa: Sequence[int], positions: list[int]) -> list[int]:
        gpus = len(self.ids["GPU"])
        self.require(len(gpu_numa) == gpus, f"gpu_numa has {len(gpu_numa)} entries, the object has {gpus} GPUs")
        for n in gpu_numa:
            self.require(0 <= n < len(positions), f"gpu_numa names NUMA node {n}, the object has 0 to {len(positions) - 1}")
        return [positions[n] for n in gpu_numa]

    def _cores(self, index: dict[str, int], count_used: bool) -> tuple[int, ...]:
        cores, used = [0] * len(index), [0] * len(index)
        for core in self.ids["CPUCore"]:
            node = self.ancestor(core, "NUMANode")
            self.require(node is not None, f"{core} (CPUCore) is in no NUMANode")
            cores[index[str(node)]] += 1
            used[index[str(node)]] += self._used(core)
        gpus, gpus_used = len(self.ids["GPU"]), sum(self._used(g) for g in self.ids["GPU"])
        if sum(used) or gpus_used:
            state = f"{sum(used)} of {sum(cores)} cores are marked used while "
            state += f"{gpus_used} of {gpus} GPUs are" if gpus_used else "all GPUs are free"
            if count_used:
                self.notes.append(f"{state}: the cores are left out (count_used=true), GPUs never are")
                return tuple(c - u for c, u in zip(cores, used, strict=True))
            self.notes.append(f"{state}: ignored, every server starts empty; count_used=true respects used cores")
        return tuple(cores)

    def _used(self, name: str) -> bool:
        return self.attributes[name].get("status") == "used"

    def _gpu_numa(self, index: dict[str, int], override: Sequence[int] | None) -> tuple[int, ...]:
        gpus = sorted(self.ids["GPU"], key=_number)
        if override is not None:
            self.notes.append("NUMA nodes of the GPUs are taken from gpu_numa")
            return tuple(override)
        found: dict[str, set[str]] = {g: {n} for g in gpus if (n := self.ancestor(g, "NUMANode")) is not None}
        for source, target in self.linked[LOCALIZED]:
            gpu, node = (source, target) if self.type(source) == "GPU" else (target, source)
            if self.type(gpu) == "GPU" and self.type(node) == "NUMANode":
                found.setdefault(gpu, set()).add(node)
        for gpu, nodes in found.items():
            self.require(len(nodes) == 1, f"{gpu} (GPU) belongs to several NUMA nodes: {', '.join(sorted(nodes))}")
        if found:
            for gpu in gpus:
                self.require(gpu in found, f"{gpu} (GPU) has no edge to a NUMANode while others have; gpu_numa can give it")
            return tuple(index[found[gpu].pop()] for gpu in gpus)
        derived = spread_gpus(len(gpus), len(index))
        if gpus:
            self.notes.append(f"GPUs have no edges: their NUMA nodes are derived, {len(gpus)} GPUs spread evenly over "
                              f"{len(index)} NUMA nodes in index order ({','.join(map(str, derived))}); gpu_numa overrides it")
        return derived

    def _nvlink(self, index: dict[str, int], gpu_numa: tuple[int, ...]) -> tuple[int, ...]:
        """Connected components of the NUMA nodes under ``nearby`` edges; () when all are single."""
        place = {**index, **dict(zip(sorted(self.ids["GPU"], key=_number), gpu_numa, strict=True))}
        label = list(range(len(index)))
        for pair in self.linked[NEARBY]:
            if all(end in place for end in pair):
                a, b = (label[place[end]] for end in pair)
                label = [min(a, b) if x in (a, b) else x for x in label]
        first = list(dict.fromkeys(label))
        return tuple(first.index(x) for x in label) if len(first) < len(label) else ()

    def _core_group_size(self) -> int:
        """The declared size, else cores in the largest group, 8 without core groups."""
        declared = [size for g in self.ids["CoreGroup"] if isinstance(size := self.attributes[g].get("size"), int)]
        counted = Counter(group for core in self.ids["CPUCore"] if (group := self.ancestor(core, "CoreGroup")))
        return max(declared or counted.values(), default=8)

    def _gpu_model(self) -> str:
        names = {str(self.attributes[g].get("name", "GPU")) for g in self.ids["GPU"]}
        self.require(len(names) <= 1, f"its GPUs are of several models ({', '.join(sorted(names))}), one is possible")
        if not names:
            return ""
        name = names.pop()
        model = re.sub(r"\s+", "-", re.sub(r"\b(NVIDIA|GeForce|Tesla)\s+", "", name).strip())
        if model != name:
            self.notes.append(f"GPU model {name} is called {model}")
        sizes = sorted({str(m) for g in self.ids["GPU"] if (m := self.attributes[g].get("memoryTotal")) is not None})
        if sizes:
            self.notes.append(f"GPU memory ({', '.join(sizes)} MiB) is not modelled")
        return model


def _number(name: str) -> tuple[list[int], str]:
    """Sorts numa-2 before numa-10."""
    return [int(x) for x in re.findall(r"\d+", name)], name
