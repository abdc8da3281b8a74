"""The section ``colocation`` of a configuration: what each stage is told. conf/colocation says what each key means."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from harness.errors import BadInput
from harness.schema import INSTANCE, names

STAGES = ("demand", "placements", "tokens")


@dataclass(frozen=True)
class Autoscaler:
    """The Kubernetes HorizontalPodAutoscaler (autoscaling/v2), with the defaults of its documentation but for ``target``.

    target: utilization that it aims at: load over replicas (1).
    sync_s: how often it looks (s).
    window_s: the load is the mean over so long (s).
    tolerance: it does nothing while utilization / target is within 1 +- this (1).
    up_window_s, down_window_s: stabilization windows: the least recommendation of that time is followed upwards, the most downwards (s).
    up_pods, up_percent: in one sync it adds at most the larger of so many replicas and so many percent.
    cooldown_s: no change for so long after a change (s); the HPA has none.
    out_delay_s: from the decision to scale out to the submission of the replicas (s); a decision taken back meanwhile has no effect.
    drain_s: a replica that is scaled in takes no new requests for so long before it goes (s); one that is wanted again stays.
    min_replicas, max_replicas: bounds, for each service.
    batch: decode members of a replica at which its token throughput is taken.
    """

    target: float = 0.6
    sync_s: float = 15.0
    window_s: float = 60.0
    tolerance: float = 0.1
    up_window_s: float = 0.0
    down_window_s: float = 300.0
    up_pods: int = 4
    up_percent: float = 100.0
    cooldown_s: float = 0.0
    out_delay_s: float = 0.0
    drain_s: float = 30.0
    min_replicas: int = 1
    max_replicas: int = 1000
    batch: int = 32


@dataclass(frozen=True)
class Links:
    """pcie_gbs: between GPUs of a socket without NVLink (GB/s; null: what the GPU says); cross_socket_gbs: between sockets (GB/s); hop_us:
    latency of a hop over either (us)."""

    pcie_gbs: float | None = None
    cross_socket_gbs: float = 10.0
    hop_us: float = 3.0


@dataclass(frozen=True)
class Prices:
    """gpu_h: of a GPU of the cluster for an hour, whether it is used or not."""

    gpu_h: float = 1.0


@dataclass(frozen=True)
class Settings:
    """The keys of conf/colocation/azure.yaml."""

    autoscaler: Autoscaler = field(default_factory=Autoscaler)
    prices: Prices = field(default_factory=Prices)
    links: Links = field(default_factory=Links)
    replica: Mapping[str, Any] = field(default_factory=dict)
    offline: tuple[Mapping[str, Any], ...] = ()
    offline_servers: int | None = None
    serving: Mapping[str, Any] = field(default_factory=lambda: {"name": "fcfs", "file": None})
    storage_gbs: float | None = None
    start_s: float = 0.0
    services: str | None = None
    replicas: str | None = None
    until: str = "tokens"
    cores_per_card: float = 7.0

    def instance(self, gpus: int) -> dict[str, Any]:
        """The columns of a replica of so many GPUs."""
        return {"cpus": self.cores_per_card * gpus, **self.replica}


def parse(section: Mapping[str, Any]) -> Settings:
    """The section as Settings. Raises BadInput naming the key that is unknown or has no sensible value."""
    settings = _typed(Settings, section, "colocation")
    known = [name for name in names(INSTANCE) if name not in ("gpus", "kind")]
    for name in settings.replica:
        if name not in known:
            raise BadInput(f"colocation.replica.{name}: must be a column of an instance that is not set elsewhere: {', '.join(known)}")
    if settings.until not in STAGES:
        raise BadInput(f"colocation.until={settings.until}: must be one of {', '.join(STAGES)}")
    if settings.services and settings.replicas:
        raise BadInput("colocation.services, colocation.replicas: give one of them; replicas follow from services")
    scaler = settings.autoscaler
    for name, low in (("target", 0.01), ("sync_s", 0.1), ("window_s", 0.1), ("batch", 1), ("max_replicas", scaler.min_replicas)):
        if getattr(scaler, name) < low:
            raise BadInput(f"colocation.autoscaler.{name}={getattr(scaler, name)}: must be at least {low}")
    return settings


def _typed(kind: type, section: Any, key: str) -> Any:
    if not isinstance(section, Mapping):
        raise BadInput(f"{key}={section}: must be a mapping")
    known = {f.name: f for f in fields(kind)}
    for name in section:
        if name not in known:
            raise BadInput(f"{key}.{name}: there is no such key; known are {', '.join(known)}")
    return kind(**{name: _value(known[name].type, value, f"{key}.{name}") for name, value in section.items()})


def _value(kind: Any, value: Any, key: str) -> Any:
    if is_dataclass(kind):
        return _typed(kind, value, key)  # type: ignore[arg-type]
    text = str(kind)
    if value is None and "None" in text:
        return None
    if "tuple" in text and isinstance(value, list | tuple) and all(isinstance(one, Mapping) and "generator" in one for one in value):
        return tuple(dict(one) for one in value)
    if "Mapping" in text and "tuple" not in text and isinstance(value, Mapping):
        return dict(value)
    if "str" in text and "Mapping" not in text and isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < np.inf:
        if kind is float or "float" in text:
            return float(value)
        if (kind is int or text == "int | None") and float(value).is_integer():
            return int(value)
    wanted = ("a list of generators" if "tuple" in text else "a mapping" if "Mapping" in text else "text" if "str" in text
              else "a whole number >= 0" if "int" in text else "a number >= 0")
    raise BadInput(f"{key}={value}: must be {wanted}")
