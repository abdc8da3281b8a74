"""Kubernetes: ``kubectl get pods -A -o json`` as jobs, ``kubectl get nodes -o json`` as a cluster, to replay one's own cluster.

Oddities, and the rule for each:

- kubectl shows what exists: ended pods vanish with their owners or the garbage collector, so that the file over-represents what runs
  long. Said in every report; only a series of files, or an audit log, would be a whole trace.
- A pod asks for the sum over its containers and sidecars, or for its largest init container where that is more, plus its overhead.
  Where there is no request the limit counts, as it does in Kubernetes. GPUs are the resources ``gpu_resources``. Slices
  (nvidia.com/mig-*) count as GPUs; other shares of GPUs are not read, counted.
- It arrives at creationTimestamp, holds its resources from the PodScheduled condition (else startTime) to the last finishedAt of its
  containers, restarts included: that is its duration.
- Not ended yet: it lasts to ``snapshot`` (a time such as 2026-01-31T12:00:00Z), else to the latest time in the file, at least
  1 s; ``running=drop`` leaves it out.
- Pending: never placed, so without duration. Dropped; ``pending=keep`` lets it run from its creation to the snapshot.
- Ended without a finishedAt (evicted before its containers ran, node lost): dropped, counted.
- Pods of DaemonSets and of the node itself (mirror pods) belong to their server: dropped; ``daemonsets=keep`` makes them jobs.
- Pods of one owner whose kind is training (PyTorchJob, MPIJob, ...) and that ask alike are one gang, from the first creation, and the
  first start, to the last finish; ``gangs=none`` keeps them apart. Other pods are jobs of one instance.
- priority is spec.priority, 0 where there is none. ``preemptible_classes`` names the priority classes that may be evicted.
- kind is by the owner: ``kinds``; pods without owner are batch. Namespace becomes the tenant; node, phase, class are carried along.
- A node selector on nvidia.com/gpu.product is not used unless ``gpu_models=keep``.
- Times are in UTC. With several files a pod that comes again is renamed (exact repetitions: ``duplicates``).
- Nodes: allocatable cores (whole ones) and memory; the GPU model is the label nvidia.com/gpu.product, else gpu; no topology, so servers
  of at least ``two_sockets_from`` cores get two sockets, of one NUMA node each. Cordoned nodes are kept, counted.
- A file that holds both is read as pods, with ``what=nodes`` as nodes.
- A file is one JSON value and is held whole: measured, 33 kB of memory a pod (four times the text), 0.5 GiB for 12,000 pods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.readers._cluster import Node, NodeOptions, by_group, cluster_of
from harness.readers._jobs import START, JobRows
from harness.readers._json import field, read_json
from harness.readers._options import option
from harness.readers._pods import Pod, parse_pod
from harness.readers._quantities import MIB_BYTES, amount
from harness.readers._rules import JobOptions, Tally, bare_name, pairs, positive_runs
from harness.readers._spool import Spool
from harness.readers._times import Clock
from harness.schema import KINDS
from harness.topology.shape import MAX_GPUS

PRODUCT = "nvidia.com/gpu.product"
OWN_OF_NODE = ("DaemonSet", "Node")


@dataclass(frozen=True)
class Options(NodeOptions, JobOptions):
    what: str = option("auto", "read pods or nodes; auto: pods where there are any", ("auto", "pods", "nodes"))
    snapshot: str = option("", "when the list was taken, such as 2026-01-31T12:00:00Z; the latest time in it without one")
    gpu_resources: str = option("nvidia.com/gpu,amd.com/gpu,gpu.intel.com/i915", "resources that are GPUs, separated by commas")
    gpu_models: str = option("ignore", "pods: node selectors for a GPU product: ignore, or keep as allow-list", ("ignore", "keep"))
    kinds: str = option("ReplicaSet=online,StatefulSet=online,Deployment=online,Job=batch,PyTorchJob=training,MPIJob=training,"
                        "TFJob=training,XGBoostJob=training,PaddleJob=training,TrainJob=training,JobSet=training,RayCluster=batch",
                        "pods: kind by the kind of the owner; the others are batch")
    gangs: str = option("owner", "pods of one training owner that ask alike: a gang, or none", ("owner", "none"))
    daemonsets: str = option("drop", "pods that belong to their node", ("drop", "keep"))
    running: str = option("keep", "pods that have not ended: keep them to the snapshot, or drop them", ("keep", "drop"))
    pending: str = option("drop", "pods that were never placed: drop them, or keep them to the snapshot", ("drop", "keep"))
    preemptible_classes: str = option("", "priority classes whose pods may be evicted, separated by commas")
    cpu_jobs: str = option("keep", "pods without GPU", ("keep", "drop"))


def read(paths: Sequence[Path], options: Options) -> tuple[Spool | Mapping[str, Any], list[str]]:
    """Jobs, or the section ``cluster`` of a configuration, and the report. Raises BadInput."""
    tally = Tally()
    kinds = pairs("kinds", options.kinds)
    if set(kinds.values()) - set(KINDS):
        raise BadInput(f"--kinds: kinds are {', '.join(KINDS)}")
    items = {path: _items(path) for path in paths}
    pods = {path: [item for item in found if item.get("kind") == "Pod"] for path, found in items.items()}
    nodes = {path: [item for item in found if item.get("kind") == "Node"] for path, found in items.items()}
    for path, found in items.items():
        tally.rows(path, len(found), "objects")
        tally.add("objects that are neither pods nor nodes: {:,} not read", len(found) - len(pods[path]) - len(nodes[path]))
    wanted = options.what if options.what != "auto" else "pods" if any(pods.values()) else "nodes"
    if not any((pods if wanted == "pods" else nodes).values()):
        raise BadInput(f"{', '.join(str(path) for path in paths)}: holds no {wanted}; `kubectl get pods -A -o json` lists pods, "
                       "`kubectl get nodes -o json` nodes")
    if wanted == "nodes":
        return _nodes(paths, nodes, options, tally), tally.lines()
    return _pods(paths, pods, kinds, options, tally), tally.lines()


def _items(path: Path) -> list[dict[str, Any]]:
    """The objects in a list, or a single one."""
    document = read_json(path)
    listed = field(document, "items", list, str(path), [document])
    for i, item in enumerate(listed):
        field(item, "kind", str, f"{path}: item {i}")
    kind = str(document.get("kind", ""))
    for item in listed:
        item["kind"] = item.get("kind") or kind.removesuffix("List")
    return listed


def _pods(paths: Sequence[Path], pods: Mapping[Path, list[dict[str, Any]]], kinds: Mapping[str, str], options: Options,
          tally: Tally) -> Spool:
    clock = Clock("none", tally)
    jobs = JobRows(paths, tally, options, names="reused")
    gpu_names = tuple(options.gpu_resources.split(","))
    for path, items in pods.items():
        parsed = [parse_pod(item, f"{path}: pod {i}", gpu_names) for i, item in enumerate(items)]
        own = [pod.owner_kind in OWN_OF_NODE for pod in parsed]
        tally.add(f"pods of DaemonSets and of the node itself: {{:,}} {'dropped' if options.daemonsets == 'drop' else 'kept'}", sum(own))
        if options.daemonsets == "drop":
            parsed = [pod for pod, belongs in zip(parsed, own, strict=True) if not belongs]
        if parsed:
            _add(jobs, parsed, str(path), kinds, options, clock, tally)
    if clock.last < clock.first:
        raise BadInput(f"{', '.join(str(path) for path in paths)}: no row is left to write")
    until = clock.last
    if options.snapshot:
        until = float(clock.read(pa.table({"snapshot": [options.snapshot]}), "snapshot", f"--snapshot {options.snapshot}")[0][0])
        if until < clock.last:
            raise BadInput(f"--snapshot {options.snapshot}: is before the latest time in the file, must be when the list was taken")
    what = "snapshot" if options.snapshot else "latest time in the file"
    tally.say(f"open ends are at the {what}, {until - clock.first:,.0f} s after time 0")
    clock.report()
    tally.say("assumed: the list is a whole trace, though ended pods that were removed are missing from it")
    return jobs.done(origin=clock.first, until=until)


def _add(jobs: JobRows, pods: list[Pod], source: str, kinds: Mapping[str, str], options: Options, clock: Clock,
         tally: Tally) -> None:
    """Adds the pods of one file, gangs put together."""
    words = pa.table({name: pa.array([getattr(pod, name) for pod in pods], pa.string()) for name in ("created", "scheduled", "finished")})
    created, _ = clock.read(words, "created", source)
    scheduled, finished = (clock.read(words, name, source, none=True)[0] for name in ("scheduled", "finished"))
    clock.see(created, scheduled, finished)
    lead, size = _gangs(pods, kinds, options, tally)
    first, last = np.full(len(pods), np.inf), np.full(len(pods), -np.inf)
    np.minimum.at(first, lead, created)
    begun = np.isfinite(scheduled)
    start = np.full(len(pods), np.inf)
    np.minimum.at(start, lead, np.where(begun, scheduled, np.inf))
    ended = np.array([pod.ended for pod in pods])
    np.maximum.at(last, lead, np.where(np.isfinite(finished), finished, np.where(ended, -np.inf, np.inf)))
    heads = np.flatnonzero(lead == np.arange(len(pods)))
    chosen = [pods[i] for i in heads]
    submit, start, end, size = first[heads], start[heads], last[heads], size[heads]
    pending = np.isinf(start) & ~ended[heads]
    lost = ~pending & (np.isinf(start) | (end == -np.inf))
    running = ~pending & ~lost & (end == np.inf)
    tally.add(f"never placed: {{:,}} {'dropped' if options.pending == 'drop' else 'run from creation to the snapshot'}", pending.sum())
    tally.add("ended without a start or a finish: {:,} dropped", lost.sum())
    tally.add(f"not ended yet: {{:,}} {'last to the snapshot' if options.running == 'keep' else 'dropped'}", running.sum())
    keep = ~lost & (~pending | (options.pending == "keep")) & (~running | (options.running == "keep"))
    open_end = running | pending
    with np.errstate(invalid="ignore"):
        length = np.where(open_end | lost, 1.0, end - start)
    duration, positive = positive_runs(length, options.nonpositive, source, tally)
    gpus = np.array([pod.gpus for pod in chosen])
    tally.add(f"pods without GPU: {{:,}} {'kept' if options.cpu_jobs == 'keep' else 'dropped'}", (keep & (gpus == 0)).sum())
    tally.add("slices of GPUs (nvidia.com/mig-*) count as GPUs: {:,} pods", (keep & np.array([pod.slices > 0 for pod in chosen])).sum())
    tally.add("other shares of GPUs are not read: {:,} pods", (keep & np.array([pod.shares for pod in chosen], bool)).sum())
    if options.cpu_jobs == "drop":
        keep &= gpus > 0
    evictable = set(filter(None, options.preemptible_classes.split(",")))
    columns: dict[str, Any] = {
        "job_id": pa.array([pod.name for pod in chosen]),
        "submit_time": submit, "duration": duration, START: np.where(open_end, np.where(pending, submit, start), np.nan),
        "instances": size, "gpus": gpus,
        "cpus": np.array([pod.cpus for pod in chosen]), "memory_mib": np.ceil([pod.memory_mib for pod in chosen]),
        "priority": np.array([pod.priority for pod in chosen]),
        "preemptible": pa.array([pod.priority_class in evictable for pod in chosen]),
        "kind": pa.array([kinds.get(pod.owner_kind, "batch") for pod in chosen]),
        "tenant": pa.array([pod.namespace for pod in chosen]),
        "priority_class": pa.array([pod.priority_class for pod in chosen], pa.string()),
        "pod_phase": pa.array([pod.phase for pod in chosen], pa.string()),
        "node": pa.array([pod.node for pod in chosen], pa.string()),
    }
    if options.gpu_models == "keep":
        columns["gpu_model"] = pa.array([pod.product for pod in chosen], pa.string())
    same = [columns["job_id"], *(pa.array(columns[name]) for name in ("submit_time", "duration", "instances", "gpus", "cpus"))]
    jobs.add(source, columns, keep & positive, same)


def _gangs(pods: list[Pod], kinds: Mapping[str, str], options: Options, tally: Tally) -> tuple[np.ndarray, np.ndarray]:
    """Of each pod the first pod of its gang, and the size of the gang that it leads, i8 (pods,)."""
    lead, size = np.arange(len(pods)), np.ones(len(pods), np.int64)
    if options.gangs == "owner":
        first: dict[Any, int] = {}
        for i, pod in enumerate(pods):
            if pod.owner_uid and kinds.get(pod.owner_kind) == "training":
                lead[i] = first.setdefault((pod.owner_uid, pod.cpus, pod.memory_mib, pod.gpus, pod.priority), i)
        size = np.bincount(lead, minlength=len(pods))
    tally.add("gangs: {:,} of {:,} pods of training owners", (size > 1).sum(), size[size > 1].sum())
    return lead, size


def _nodes(paths: Sequence[Path], nodes: Mapping[Path, list[dict[str, Any]]], options: Options, tally: Tally) -> Mapping[str, Any]:
    """The cluster of the node objects."""
    found = []
    gpu_names = options.gpu_resources.split(",")
    for path, items in nodes.items():
        for i, item in enumerate(items):
            where = f"{path}: node {i}"
            status = field(item, "status", dict, where, {})
            has = field(status, "allocatable", dict, where) or field(status, "capacity", dict, where, {})
            labels = field(field(item, "metadata", dict, where, {}), "labels", dict, where, {})
            gpus = sum(int(amount(has.get(name, 0), where)) for name in gpu_names)
            if gpus > MAX_GPUS:
                raise BadInput(f"{where}: {gpus} GPUs, must be at most {MAX_GPUS}")
            cores = int(amount(has.get("cpu", 0), where))
            if cores < 1:
                raise BadInput(f"{where}: no allocatable or capacity of cpu, must say the cores of the node")
            tally.add("cordoned nodes: {:,} kept", bool(field(item, "spec", dict, where, {}).get("unschedulable")))
            model = str(labels.get(PRODUCT, "gpu")) if gpus else "none"
            found.append(Node(model, gpus, cores, int(amount(has.get("memory", 0), where) / MIB_BYTES) or None))
    return cluster_of(options.name or bare_name(paths[0]), sorted(found, key=by_group), options, tally)
