"""One pod object of Kubernetes as plain values: see ``harness.readers.kubectl`` for the rules."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from harness.errors import BadInput
from harness.readers._json import field
from harness.readers._quantities import MIB_BYTES, amount

MIG, PRODUCT, MIRROR = "nvidia.com/mig-", "nvidia.com/gpu.product", "kubernetes.io/config.mirror"
ENDED = ("Succeeded", "Failed")
MOST_GPUS = 1024


class Pod(NamedTuple):
    """Times are text as in the object, None where they are missing; ``name`` has the namespace before it."""

    name: str
    namespace: str
    created: str
    scheduled: str | None
    finished: str | None
    ended: bool
    phase: str | None
    node: str | None
    priority: int
    priority_class: str | None
    owner_kind: str
    owner_uid: str
    cpus: float
    memory_mib: float
    gpus: int
    slices: int
    shares: bool
    product: str | None


def parse_pod(item: Mapping[str, Any], where: str, gpu_names: Sequence[str]) -> Pod:
    """The pod ``item``, whose GPUs are the resources ``gpu_names``. Raises BadInput naming ``where`` and the field."""
    metadata, spec, status = (field(item, name, dict, where, {}) for name in ("metadata", "spec", "status"))
    name, created = (field(metadata, key, str, where) for key in ("name", "creationTimestamp"))
    if name is None or created is None:
        raise BadInput(f"{where}: metadata.name or metadata.creationTimestamp is missing; must be a pod as kubectl lists it")
    namespace = field(metadata, "namespace", str, where, "default")
    owners = field(metadata, "ownerReferences", list, where, [])
    owner = next((one for one in owners if one.get("controller")), owners[0] if owners else {})
    mirror = MIRROR in field(metadata, "annotations", dict, where, {})
    asked = requests(spec, f"{where} ({namespace}/{name})")
    slices = int(sum(count for key, count in asked.items() if key.startswith(MIG)))
    gpus = int(sum(asked.get(key, 0.0) for key in gpu_names)) + slices
    if gpus > MOST_GPUS:
        raise BadInput(f"{where} ({namespace}/{name}): asks for {gpus} GPUs, must be at most {MOST_GPUS}")
    others = any("gpu" in key and key not in gpu_names and not key.startswith(MIG) and count for key, count in asked.items())
    phase = field(status, "phase", str, where)
    selector = field(spec, "nodeSelector", dict, where, {})
    return Pod(
        name=f"{namespace}/{name}", namespace=namespace, created=created, scheduled=_scheduled(status, where),
        finished=_finished(status, where) if phase in ENDED else None, ended=phase in ENDED, phase=phase,
        node=field(spec, "nodeName", str, where), priority=field(spec, "priority", int, where, 0),
        priority_class=field(spec, "priorityClassName", str, where),
        owner_kind="Node" if mirror else str(owner.get("kind", "")), owner_uid=str(owner.get("uid", "")),
        cpus=asked.get("cpu", 0.0), memory_mib=asked.get("memory", 0.0) / MIB_BYTES, gpus=gpus, slices=slices, shares=others,
        product=selector.get(PRODUCT),
    )


def requests(spec: Mapping[str, Any], where: str) -> dict[str, float]:
    """What a pod asks for, by resource: containers and sidecars together, or its largest init container, plus overhead.

    Source: "Pod sharing: init containers" of the Kubernetes documentation; sidecars are init containers with restartPolicy Always, and
    count beside every init container that starts after them.
    """
    total: dict[str, float] = {}
    for container in field(spec, "containers", list, where, []):
        _sum(total, _of(container, where))
    peak: dict[str, float] = {}
    sidecars: dict[str, float] = {}
    for container in field(spec, "initContainers", list, where, []):
        asked = _of(container, where)
        if container.get("restartPolicy") == "Always":
            _sum(sidecars, asked)
            asked = sidecars
        else:
            asked = _sum(dict(sidecars), asked)
        for name, count in asked.items():
            peak[name] = max(peak.get(name, 0.0), count)
    _sum(total, sidecars)
    for name, count in peak.items():
        total[name] = max(total.get(name, 0.0), count)
    return _sum(total, {name: amount(value, where) for name, value in field(spec, "overhead", dict, where, {}).items()})


def _of(container: Any, where: str) -> dict[str, float]:
    resources = field(container, "resources", dict, where, {})
    limits, asked = (field(resources, name, dict, where, {}) for name in ("limits", "requests"))
    return {name: amount(value, where) for name, value in {**limits, **asked}.items()}


def _sum(total: dict[str, float], more: Mapping[str, float]) -> dict[str, float]:
    for name, count in more.items():
        total[name] = total.get(name, 0.0) + count
    return total


def _scheduled(status: Mapping[str, Any], where: str) -> str | None:
    for condition in field(status, "conditions", list, where, []):
        if field(condition, "type", str, where) == "PodScheduled" and field(condition, "status", str, where) == "True":
            return field(condition, "lastTransitionTime", str, where)
    return field(status, "startTime", str, where)


def _finished(status: Mapping[str, Any], where: str) -> str | None:
    """The last finishedAt of its containers: times of Kubernetes are all in UTC and of one width, so text compares like time."""
    times = []
    for one in field(status, "containerStatuses", list, where, []):
        ended = field(field(one, "state", dict, where, {}), "terminated", dict, where, {})
        times.append(field(ended, "finishedAt", str, where))
    return max((time for time in times if time), default=None)
