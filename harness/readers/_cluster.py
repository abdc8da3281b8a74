"""What readers of node lists share: a checked cluster section as ``conf/cluster`` holds them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.topology import ClusterConfig, ShapeConfig, build


def cluster_section(name: str, groups: Sequence[ShapeConfig], servers_per_rack: int, racks_per_spine: int) -> Mapping[str, Any]:
    """The section as plain values, every key there. Raises BadInput when no cluster can be built from it."""
    config = ClusterConfig(name=name, groups=list(groups), servers_per_rack=servers_per_rack, racks_per_spine=racks_per_spine)
    build(config)
    section = asdict(config)
    section["groups"] = [{key: value for key, value in group.items() if key not in ("cores", "cores_per_numa", "gpu_numa")
                          or value is not None} for group in section["groups"]]
    return section
