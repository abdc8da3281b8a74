"""Clusters and column access that the tests of the workloads share.

Their margins are four standard deviations of the quantity under the generator's own law (one failure in 16,000 draws; seeds are
fixed).
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from harness.topology import Cluster, ClusterConfig, ShapeConfig, build, parse

REPOSITORY = Path(__file__).resolve().parents[1]
CONF = REPOSITORY / "conf/workload"
SD = 4.0
HOUR, DAY = 3600.0, 86400.0


def servers(count: int, gpus: int = 8, cores: int = 64) -> Cluster:
    group = ShapeConfig(servers=count, gpus=gpus, sockets=2, numa_per_socket=1, cores=cores)
    return build(ClusterConfig(groups=[group]))


def shipped(name: str) -> Cluster:
    return build(parse(yaml.safe_load((REPOSITORY / f"conf/cluster/{name}.yaml").read_text())))


def column(table: pa.Table, name: str) -> np.ndarray:
    return table[name].to_numpy()


def of_kind(table: pa.Table, kind: str) -> pa.Table:
    return table.filter(pc.equal(table["kind"], kind))


def gpu_seconds(table: pa.Table) -> float:
    return float((column(table, "instances") * column(table, "gpus") * column(table, "duration")).sum())
