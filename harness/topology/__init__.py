"""Server shapes, FlexTopo objects and racks -> `Cluster`."""

from harness.topology.build import ClusterConfig, ShapeConfig, build, parse
from harness.topology.flextopo import read_flextopo, write_flextopo
from harness.topology.shape import NUMA, NVLINK, SERVER, SOCKET, UNBOUNDED, Cluster, ServerShape

__all__ = [
    "NUMA", "NVLINK", "SERVER", "SOCKET", "UNBOUNDED", "Cluster", "ClusterConfig", "ServerShape", "ShapeConfig",
    "build", "parse", "read_flextopo", "write_flextopo",
]
