"""Server shapes, cluster configurations and FlexTopo objects."""

import json
import random
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BadInput
from harness.schema import LEVELS
from harness.topology import (
    NUMA,
    NVLINK,
    SERVER,
    SOCKET,
    UNBOUNDED,
    Cluster,
    ClusterConfig,
    ServerShape,
    ShapeConfig,
    build,
    parse,
    read_flextopo,
    write_flextopo,
)
from harness.topology.build import largest_remainder, server_shape
from harness.topology.shape import spread_gpus

CONF = Path(__file__).resolve().parents[1] / "conf/cluster"
CLUSTERS = ("rtx4090_x41", "rtx4090_x100", "dgx_a100", "dgx_h100", "pcie_4gpu", "t4_2gpu", "openb", "spot", "flat")

PAPER = ServerShape("paper", "RTX-4090", UNBOUNDED, (8,) * 8, (0, 0, 0, 0, 1, 1, 1, 1), tuple(range(8)))
SMALL = ServerShape("small", "T4", 1024, (4, 3, 2, 2), (0, 0, 1, 1), (0, 0, 1, 2, 3), nvlink=(0, 0, 1, 2))


def load(name: str) -> ClusterConfig:
    return parse(yaml.safe_load((CONF / f"{name}.yaml").read_text()))


# Shapes


def test_counts_of_a_shape():
    assert (SMALL.gpus, SMALL.cores, SMALL.sockets) == (5, 11, 2)


def test_domains_by_hand():
    # NUMA 0 holds GPUs 0, 1; NUMA 1: 2; NUMA 2: 3; NUMA 3: 4. Group 0 = NUMA 0, 1; groups 1 and 2 = NUMA 2 and 3 alone.
    assert SMALL.domains() == [
        (NUMA, 0b00011, 0b0001), (NUMA, 0b00100, 0b0010), (NUMA, 0b01000, 0b0100), (NUMA, 0b10000, 0b1000),
        (NVLINK, 0b00111, 0b0011), (NVLINK, 0b01000, 0b0100), (NVLINK, 0b10000, 0b1000),
        (SOCKET, 0b00111, 0b0011), (SOCKET, 0b11000, 0b1100),
        (SERVER, 0b11111, 0b1111),
    ]
    assert [LEVELS[i] for i in (NUMA, NVLINK, SOCKET, SERVER)] == ["numa", "nvlink", "socket", "server"]


def test_an_nvlink_group_that_spans_sockets_is_no_domain():
    partly = replace(SMALL, nvlink=(0, 1, 1, 2))
    assert partly.spanning_nvlink_groups() == (1,)
    assert [d for d in partly.domains() if d[0] == NVLINK] == [(NVLINK, 0b00011, 0b0001), (NVLINK, 0b10000, 0b1000)]
    assert (SMALL.nvlink_level(), partly.nvlink_level(), PAPER.nvlink_level()) == (NVLINK, SERVER, NUMA)


def test_a_domain_without_gpus_is_listed():
    shape = replace(PAPER, gpu_numa=(3, 3, 1, 1, 7, 7, 5, 5))
    assert shape.domains()[0] == (NUMA, 0, 1)
    assert shape.domains()[3] == (NUMA, 0b00000011, 8)


def test_masks_hold_64_gpus():
    shape = replace(PAPER, gpu_numa=spread_gpus(64, 8))
    assert shape.domains()[-1] == (SERVER, 2**64 - 1, 255)


@st.composite
def shapes(draw: st.DrawFn) -> ServerShape:
    sockets = sorted(draw(st.lists(st.integers(0, 3), min_size=1, max_size=8)))
    n = len(sockets)
    labels = draw(st.one_of(st.just([]), st.lists(st.integers(0, 7), min_size=n, max_size=n)))
    first, used = list(dict.fromkeys(labels)), list(dict.fromkeys(sockets))
    nvlink = tuple(first.index(x) for x in labels)
    return ServerShape(
        "drawn", "A10", UNBOUNDED,
        numa_cores=tuple(draw(st.lists(st.integers(1, 11), min_size=n, max_size=n))),
        numa_socket=tuple(used.index(s) for s in sockets),
        gpu_numa=tuple(draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=12))),
        nvlink=nvlink if len(first) < n else (),
        core_group_size=draw(st.integers(1, 9)),
    )


@given(shapes())
def test_each_domain_lies_in_one_of_every_larger_level(shape: ServerShape):
    domains = shape.domains()
    assert [level for level, _, _ in domains] == sorted(level for level, _, _ in domains)
    for level, gpus, numa in domains:
        for larger in (SOCKET, SERVER):
            if larger > level:
                assert sum(gpus & ~g == 0 and numa & ~n == 0 for lv, g, n in domains if lv == larger) == 1
    for level in (NUMA, SOCKET, SERVER):
        assert sum(g for lv, g, _ in domains if lv == level) == 2**shape.gpus - 1


@pytest.mark.parametrize(("wrong", "said"), [
    ({"numa_cores": ()}, "0 NUMA nodes"),
    ({"numa_cores": (8, -1, 8, 8, 8, 8, 8, 8)}, "numa_cores must be whole numbers"),
    ({"numa_cores": (8, 1.5, 8, 8, 8, 8, 8, 8)}, "numa_cores must be whole numbers"),
    ({"numa_cores": (UNBOUNDED + 1,) * 8}, "at most"),
    ({"numa_cores": (8,) * 7}, "numa_socket has 8 entries for 7 NUMA nodes"),
    ({"numa_socket": (0, 0, 1, 1, 0, 0, 1, 1)}, "numa_socket must count up"),
    ({"numa_socket": (0, 0, 0, 0, 2, 2, 2, 2)}, "numa_socket must count up"),
    ({"numa_socket": (1,) * 8}, "numa_socket must count up"),
    ({"gpu_numa": (0, 8)}, "names NUMA node 8, its NUMA nodes are 0 to 7"),
    ({"gpu_numa": (0,) * 65}, "65 GPUs, at most 64"),
    ({"nvlink": (0, 0, 1, 1)}, "nvlink has 4 entries for 8"),
    ({"nvlink": (0, 0, 2, 2, 1, 1, 3, 3)}, "numbered from 0"),
    ({"memory_mib": -1}, "memory_mib"),
    ({"core_group_size": 0}, "core_group_size"),
    ({"gpu_model": "A|B"}, "separates models"),
])
def test_contradictory_shapes_are_refused(wrong: dict[str, Any], said: str):
    with pytest.raises(BadInput, match=said) as error:
        replace(PAPER, **wrong)
    assert "\n" not in str(error.value) and "paper" in str(error.value)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"shape_of": [0, 1, 0]}, "index its 1 shapes"),
    ({"rack_of": [0, 0]}, r"rack_of has shape \(2,\) for 3 servers"),
    ({"rack_of": [0, 2, 2]}, "rack_of must count up"),
    ({"spine_of": [0, 1, 1]}, "a rack lies under two spines"),
    ({"shape_of": [], "rack_of": [], "spine_of": []}, "no servers"),
])
def test_contradictory_clusters_are_refused(wrong: dict[str, Any], said: str):
    arrays: dict[str, Any] = {"shape_of": [0, 0, 0], "rack_of": [0, 0, 1], "spine_of": [0, 0, 0]}
    right = Cluster("c", (PAPER,), **arrays)
    assert (right.servers, right.gpus, right.rack_of.dtype) == (3, 24, np.int32)
    with pytest.raises(BadInput, match=said):
        Cluster("c", (PAPER,), **{**arrays, **wrong})


# Configurations


@pytest.mark.parametrize("name", CLUSTERS)
def test_yaml_lists_exactly_the_fields(name: str):
    section = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    assert list(section) == [f.name for f in fields(ClusterConfig)]
    assert section["name"] == name
    assert (CONF / f"{name}.yaml").read_text().startswith("# ")


def test_every_yaml_is_tested():
    assert {f.stem for f in CONF.glob("*.yaml")} == set(CLUSTERS)


@pytest.mark.parametrize(("name", "servers", "shape"), [
    ("rtx4090_x41", 41, (8, 64, 2)), ("rtx4090_x100", 100, (8, 64, 2)), ("dgx_a100", 16, (8, 128, 2)),
    ("dgx_h100", 16, (8, 112, 2)), ("pcie_4gpu", 32, (4, 64, 2)), ("t4_2gpu", 32, (2, 32, 1)), ("flat", 64, (8, UNBOUNDED, 1)),
])
def test_homogeneous_clusters(name: str, servers: int, shape: tuple[int, int, int]):
    cluster = build(load(name))
    (one,) = cluster.shapes
    assert (cluster.servers, (one.gpus, one.cores, one.sockets)) == (servers, shape)
    assert build(replace(load(name), servers=8)).servers == 8


def test_paper_shape():
    (shape,) = build(load("rtx4090_x100")).shapes
    assert replace(shape, name="paper") == PAPER


def test_nvswitch_is_server_level():
    (shape,) = build(load("dgx_a100")).shapes
    assert shape.gpu_numa == (3, 3, 1, 1, 7, 7, 5, 5)
    assert shape.nvlink_level() == SERVER
    assert NVLINK not in {level for level, _, _ in shape.domains()}


def test_openb_totals():
    cluster = build(load("openb"))
    assert (cluster.servers, cluster.gpus, len(cluster.shapes)) == (1213, 6212, 15)


def test_spot_totals():
    cluster = build(load("spot"))
    assert (cluster.servers, cluster.gpus, len(cluster.shapes)) == (4278, 10412, 10)


def test_openb_equals_the_published_nodes(shared_traces: Path):
    import csv
    from collections import Counter

    with open(shared_traces / "alibaba-openb-v2023/openb_node_list_gpu_node.csv", newline="") as file:
        published = Counter((r["model"], int(r["gpu"]), int(r["cpu_milli"]), int(r["memory_mib"])) for r in csv.DictReader(file))
    cluster = build(load("openb"))
    counts = np.bincount(cluster.shape_of)
    ours = {(s.gpu_model, s.gpus, 1000 * s.cores, s.memory_mib): int(n) for s, n in zip(cluster.shapes, counts, strict=True)}
    assert ours == published


def test_scaling_by_largest_remainder_by_hand():
    # 10 of 3:2:2 are 4.29, 2.86, 2.86: whole parts 4, 2, 2, and the two left go to the remainders .86 and .86.
    assert largest_remainder([3, 2, 2], 10) == [4, 3, 3]
    # 3 of 1:1:1:1 are .75 each: the last one goes without.
    assert largest_remainder([1, 1, 1, 1], 3) == [1, 1, 1, 0]


@given(st.lists(st.integers(1, 600), min_size=1, max_size=20), st.integers(1, 5000))
def test_scaling_keeps_total_and_quota(counts: list[int], total: int):
    scaled = largest_remainder(counts, total)
    assert sum(scaled) == total
    assert all(abs(s - c * total / sum(counts)) < 1 for s, c in zip(scaled, counts, strict=True))
    assert largest_remainder(counts, sum(counts)) == counts


def test_scaling_a_heterogeneous_cluster():
    cluster = build(replace(load("openb"), servers=100))
    names = [s.name for s in cluster.shapes]
    # 100 of 549 : 387 : 107 of 1213 are 45.26, 31.90, 8.82.
    counts = dict(zip(names, np.bincount(cluster.shape_of).tolist(), strict=True))
    assert (cluster.servers, counts["G2x8-96c"], counts["T4x2-104c"], counts["P100x2-16c"]) == (100, 45, 32, 9)
    assert "A10x1-128c" not in names and "A10x1-128c" in cluster.notes[0]
    assert names == [s.name for s in build(load("openb")).shapes if s.name in names]
    assert np.all(np.diff(cluster.shape_of) >= 0)


def test_racks_and_spines_are_contiguous():
    cluster = build(ClusterConfig(servers=7, gpus=1, servers_per_rack=2, racks_per_spine=3))
    assert cluster.rack_of.tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert cluster.spine_of.tolist() == [0, 0, 0, 0, 0, 0, 1]


def test_flat_is_bounded_where_asked():
    free, bound = build(load("flat")).shapes[0], build(replace(load("flat"), gpus=4, cpus=32, memory_mib=1024)).shapes[0]
    assert (free.numa_cores, free.memory_mib, free.gpu_model, free.gpu_numa) == ((UNBOUNDED,), UNBOUNDED, "GPU", (0,) * 8)
    assert (bound.numa_cores, bound.memory_mib, bound.gpus) == ((32,), 1024, 4)
    assert free.nvlink_level() == NUMA


def test_cores_of_the_whole_server_leave_the_remainder_to_the_first():
    assert server_shape(ShapeConfig(sockets=2, numa_per_socket=2, cores=82)).numa_cores == (21, 21, 20, 20)


@pytest.mark.parametrize(("gpus", "nodes", "where"), [
    (8, 8, (0, 1, 2, 3, 4, 5, 6, 7)), (8, 2, (0, 0, 0, 0, 1, 1, 1, 1)), (2, 4, (0, 2)), (6, 4, (0, 0, 1, 2, 2, 3)), (0, 4, ()),
])
def test_gpus_are_spread_evenly_in_index_order(gpus: int, nodes: int, where: tuple[int, ...]):
    assert spread_gpus(gpus, nodes) == where


@pytest.mark.parametrize(("nvlink", "groups"), [
    ("none", ()), ("1", ()), (2, (0, 0, 1, 1, 2, 2, 3, 3)), ("4", (0, 0, 0, 0, 1, 1, 1, 1)), ("all", (0,) * 8),
])
def test_nvlink_words(nvlink: int | str, groups: tuple[int, ...]):
    assert server_shape(ShapeConfig(sockets=2, numa_per_socket=4, cores=64, nvlink=nvlink)).nvlink == groups


def test_gpu_numa_overrides_the_shape():
    (shape,) = build(replace(load("rtx4090_x100"), gpu_numa=[0, 0, 2, 2, 4, 4, 6, 6])).shapes
    assert shape.gpu_numa == (0, 0, 2, 2, 4, 4, 6, 6)


@pytest.mark.parametrize(("base", "override", "said"), [
    ("flat", {"servers": 0}, "cluster.servers=0 must be 1 to 1000000"),
    ("flat", {"servers": 10**12}, "must be 1 to 1000000"),
    ("flat", {"servers_per_rack": 0}, "cluster.servers_per_rack=0"),
    ("flat", {"gpus": None}, "has no shapes"),
    ("flat", {"gpus": -1}, "cluster.gpus=-1"),
    ("flat", {"gpus": 65}, "65 GPUs, at most 64"),
    ("flat", {"cpus": -4}, "cluster.cpus=-4"),
    ("flat", {"gpu_numa": [0]}, "1 entries for 8 GPUs"),
    ("flat", {"gpu_numa": [1] * 8}, "names NUMA node 1"),
    ("flat", {"from_flextopo": "absent.yaml"}, "absent.yaml: there is no such file"),
    ("flat", {"from_flextopo": "absent.yaml", "cpus": 4}, "cluster.cpus=4 is for cluster=flat only"),
    ("openb", {"gpus": 4}, "cluster.gpus=4 is for cluster=flat only"),
    ("openb", {"gpu_numa": [0] * 8}, "cluster.gpu_numa has 8 entries, servers of group A10x1-128c have 1 GPUs"),
    ("openb", {"count_used": True}, "needs cluster.from_flextopo"),
    ("openb", {"groups": [ShapeConfig(cores=8, servers=0)]}, "servers=0 must be 1 to"),
    ("openb", {"groups": [ShapeConfig()]}, "either cores_per_numa or cores"),
    ("openb", {"groups": [ShapeConfig(cores=8, gpus=-1)]}, "gpus=-1 must not be negative"),
    ("openb", {"groups": [ShapeConfig(cores=8, cores_per_numa=8)]}, "either cores_per_numa or cores"),
    ("openb", {"groups": [ShapeConfig(cores=8, sockets=0)]}, "sockets=0 must be at least 1"),
    ("openb", {"groups": [ShapeConfig(cores=8, gpus=2, gpu_numa=[0])]}, "gpu_numa has 1 entries for 2 GPUs"),
    ("openb", {"groups": [ShapeConfig(cores=8, sockets=4, nvlink=3)]}, "nvlink=3 must be none, all, or a number"),
    ("openb", {"groups": [ShapeConfig(cores=8, nvlink="mesh")]}, "nvlink=mesh must be"),
])
def test_bad_configurations_are_refused(base: str, override: dict[str, Any], said: str):
    with pytest.raises(BadInput, match=said) as error:
        build(replace(load(base), **override))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("section", "said"), [
    ({"servrs": 8}, "cluster.servrs: there is no such key"),
    ({"servers": "many"}, "cluster.servers=many must be a whole number or null"),
    ({"cpus": 7.5}, "cluster.cpus=7.5 must be a whole number or null"),
    ({"servers": True}, "cluster.servers=True"),
    ({"gpu_numa": [0, "a"]}, "must be a list, each a whole number or null"),
    ({"groups": 3}, "cluster.groups=3 must be a list"),
    ({"groups": [3]}, r"cluster.groups\[0\] must be a mapping"),
    ({"groups": [{"cores": 8}, {"core": 8}]}, r"cluster.groups\[1\].core: there is no such key"),
    ({"groups": [{"nvlink": 1.5}]}, r"cluster.groups\[0\].nvlink=1.5 must be a whole number or text"),
    ([], "cluster must be a mapping"),
])
def test_wrong_keys_and_types_are_refused(section: Any, said: str):
    with pytest.raises(BadInput, match=said):
        parse(section)


def compose(*overrides: str) -> Any:
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(CONF.parent), version_base="1.3"):
        return compose(overrides=list(overrides))


def test_hydra_overrides(tmp_path: Path):
    path = tmp_path / "node.yaml"
    path.write_text(yaml.safe_dump(write_flextopo(PAPER, "node")))
    assert build(parse(compose("+cluster=flat", "cluster.servers=8", "cluster.cpus=32").cluster)).shapes[0].cores == 32
    cluster = build(parse(compose("+cluster=openb", "cluster.servers=50", f"cluster.from_flextopo={path}").cluster))
    assert (cluster.servers, cluster.shapes) == (50, (replace(PAPER, name="node"),))
    assert build(parse(compose("+cluster=rtx4090_x41", "cluster.gpu_numa=[0,0,0,0,4,4,4,4]").cluster)).shapes[0].gpu_numa[3] == 0
    with pytest.raises(Exception, match="Could not override 'cluster.servrs'"):
        compose("+cluster=flat", "cluster.servrs=8")


def test_the_dataclass_is_a_structured_config():
    from omegaconf import OmegaConf

    section = yaml.safe_load((CONF / "dgx_a100.yaml").read_text())
    assert OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(ClusterConfig), section)) == parse(section)


# FlexTopo objects


def write(path: Path, document: Any) -> Path:
    path.write_text(yaml.safe_dump(document))
    return path


def shuffled(document: dict[str, Any], seed: int) -> dict[str, Any]:
    for part in ("nodes", "edges"):
        random.Random(seed).shuffle(document["spec"][part])
    return document


@given(shapes(), st.integers(0, 99))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, shape: ServerShape, seed: int):
    path = write(tmp_path_factory.getbasetemp() / "round_trip.yaml", shuffled(write_flextopo(shape, "drawn"), seed))
    again, notes = read_flextopo(path)
    assert again == shape
    assert notes == ["the memory of the server is not in the object: unbounded"]


def test_tree_by_hand():
    spec = ServerShape("s", "T4", 0, (3,), (0,), (0,), core_group_size=2).tree()
    assert [(n["id"], n["type"]) for n in spec["nodes"]] == [
        ("socket-0", "Socket"), ("numa-0", "NUMANode"),
        ("coregroup-0-0", "CoreGroup"), ("core-0", "CPUCore"), ("core-1", "CPUCore"),
        ("coregroup-0-1", "CoreGroup"), ("core-2", "CPUCore"),
        ("gpu-0", "GPU"),
    ]
    assert [(e["source"], e["target"], e["type"]) for e in spec["edges"]] == [
        ("socket-0", "numa-0", "contains"),
        ("numa-0", "coregroup-0-0", "contains"), ("coregroup-0-0", "core-0", "contains"), ("coregroup-0-0", "core-1", "contains"),
        ("numa-0", "coregroup-0-1", "contains"), ("coregroup-0-1", "core-2", "contains"),
        ("gpu-0", "numa-0", "localized"),
    ]


def test_a_shape_without_bounds_has_no_object():
    with pytest.raises(BadInput, match="cores are unbounded"):
        write_flextopo(build(load("flat")).shapes[0], "x")


def as_the_agent_writes(shape: ServerShape, used_cores: int = 0) -> dict[str, Any]:
    """No edges for GPUs, full model names, GPU memory, no declared group size, and the first cores used."""
    document = write_flextopo(shape, "node-1")
    spec = document["spec"]
    spec["edges"] = [e for e in spec["edges"] if e["type"] == "contains"]
    for node in spec["nodes"]:
        if node["type"] == "GPU":
            node["attributes"] |= {"name": "NVIDIA GeForce RTX 4090", "memoryTotal": 24564}
        node["attributes"].pop("size", None)
    for node in [n for n in spec["nodes"] if n["type"] == "CPUCore"][:used_cores]:
        node["attributes"] = {"status": "used", "usedBy": "exporter"}
    return document


def test_gpus_without_edges_are_derived(tmp_path: Path):
    shape, notes = read_flextopo(write(tmp_path / "n.yaml", shuffled(as_the_agent_writes(PAPER), 1)))
    assert shape == replace(PAPER, name="node-1")
    said = " / ".join(notes)
    assert "derived, 8 GPUs spread evenly over 8 NUMA nodes in index order (0,1,2,3,4,5,6,7)" in said
    assert "NVIDIA GeForce RTX 4090 is called RTX-4090" in said and "24564 MiB" in said


def test_a_server_without_gpus(tmp_path: Path):
    shape = ServerShape("n", "", UNBOUNDED, (4,), (0,), ())
    assert read_flextopo(write(tmp_path / "n.yaml", write_flextopo(shape, "n")))[0] == shape


def test_gpu_numa_overrides_the_object(tmp_path: Path):
    path = write(tmp_path / "n.yaml", write_flextopo(PAPER, "n"))
    shape, notes = read_flextopo(path, gpu_numa=[0, 0, 1, 1, 4, 4, 5, 5])
    assert shape.gpu_numa == (0, 0, 1, 1, 4, 4, 5, 5)
    assert "NUMA nodes of the GPUs are taken from gpu_numa" in notes
    for wrong, said in (([0], "1 entries, the object has 8 GPUs"), ([8] * 8, "names NUMA node 8, the object has 0 to 7")):
        with pytest.raises(BadInput, match=said):
            read_flextopo(path, gpu_numa=wrong)


def test_used_cores_count_only_when_asked(tmp_path: Path):
    path = write(tmp_path / "n.yaml", as_the_agent_writes(PAPER, used_cores=11))
    shape, notes = read_flextopo(path)
    assert shape.numa_cores == (8,) * 8
    assert any(n.startswith("11 of 64 cores are marked used while all GPUs are free: ignored") for n in notes)
    shape, notes = read_flextopo(path, count_used=True)
    assert shape.numa_cores == (0, 5, 8, 8, 8, 8, 8, 8)
    assert any("left out (count_used=true)" in n for n in notes)


def test_interleaved_numa_nodes_are_renumbered(tmp_path: Path):
    # numa-0 and numa-2 are in socket-0, numa-1 and numa-3 in socket-1: they become NUMA nodes 0, 1 and 2, 3.
    document = write_flextopo(ServerShape("n", "T4", 0, (1, 2, 3, 4), (0, 0, 1, 1), (0, 1, 2, 3)), "n")
    for edge in document["spec"]["edges"]:
        if edge["source"].startswith("socket"):
            edge["source"] = f"socket-{int(edge['target'][-1]) % 2}"
    shape, notes = read_flextopo(write(tmp_path / "n.yaml", document))
    assert (shape.numa_cores, shape.numa_socket, shape.gpu_numa) == ((1, 3, 2, 4), (0, 0, 1, 1), (0, 2, 1, 3))
    assert any("numa-0, numa-2, numa-1, numa-3" in n for n in notes)
    shape, _ = read_flextopo(tmp_path / "n.yaml", gpu_numa=[1, 1, 2, 2])
    assert shape.gpu_numa == (2, 2, 1, 1)


def test_other_parts_and_edges_are_ignored_aloud(tmp_path: Path):
    document = write_flextopo(SMALL, "n")
    document["spec"]["nodes"].append({"id": "nic-0", "type": "NIC"})
    document["spec"]["edges"] += [{"source": "nic-0", "target": "gpu-0", "type": "nearby"},
                                  {"source": "numa-0", "target": "nic-0", "type": "host"}]
    shape, notes = read_flextopo(write(tmp_path / "n.yaml", document))
    assert replace(shape, memory_mib=SMALL.memory_mib, name="small") == SMALL
    assert notes[:2] == ["1 nodes of type NIC are ignored", "1 edges of type host are ignored"]


def test_nearby_gpus_make_nvlink_groups(tmp_path: Path):
    document = as_the_agent_writes(PAPER)
    document["spec"]["edges"] += [{"source": f"gpu-{g}", "target": f"gpu-{g + 1}", "type": "nearby"} for g in (0, 4, 5)]
    shape, _ = read_flextopo(write(tmp_path / "n.yaml", document))
    assert shape.nvlink == (0, 0, 1, 2, 3, 3, 3, 4)


def drop(kind: str):
    return lambda d: d["spec"].update(nodes=[n for n in d["spec"]["nodes"] if n["type"] != kind])


def cut(target: str):
    return lambda d: d["spec"].update(edges=[e for e in d["spec"]["edges"] if target not in (e["target"], e["source"])])


def add(source: str, target: str, kind: str = "contains"):
    return lambda d: d["spec"]["edges"].append({"source": source, "target": target, "type": kind})


def rename_gpu(document: dict[str, Any]) -> None:
    document["spec"]["nodes"][-1]["attributes"]["name"] = "H100"


def pass_through(document: dict[str, Any]) -> None:
    """Two parts of another type that contain each other."""
    document["spec"]["nodes"] += [{"id": i, "type": "Switch", "attributes": {}} for i in ("switch-0", "switch-1")]
    add("switch-0", "switch-1")(document)
    add("switch-1", "switch-0")(document)


@pytest.mark.parametrize(("damage", "said"), [
    (lambda d: d.update(kind="a\nb"), "kind is a b"),
    (lambda d: d["spec"]["nodes"].extend({"id": f"gpu-{g}", "type": "GPU", "attributes": {"name": "T4"}} for g in range(5, 65)),
     r"gpu-5 \(GPU\) has no edge"),
    (lambda d: d["spec"].update(nodes=d["spec"]["nodes"] + [{"id": f"gpu-{g}", "type": "GPU", "attributes": {"name": "T4"}}
                                                            for g in range(5, 65)],
                                edges=[e for e in d["spec"]["edges"] if e["type"] == "contains"]), "65 GPUs, at most 64"),
    (lambda d: d.update(kind="List"), "kind is List, it must be FlexTopo"),
    (lambda d: d.update(apiVersion="v1"), "apiVersion is v1, it must be flextopo.baichuan-inc.com/v1alpha1"),
    (lambda d: d.pop("spec"), "it has no list spec.nodes"),
    (lambda d: d.update(metadata="x", spec=3), "it has no list spec.nodes"),
    (lambda d: d["spec"].update(nodes={}), "it has no list spec.nodes"),
    (lambda d: d["spec"].update(edges={"a": 1}), "spec.edges must be a list"),
    (lambda d: d["spec"]["nodes"].insert(0, "gpu"), r"spec.nodes\[0\] must have id, type and attributes"),
    (lambda d: d["spec"]["nodes"].insert(0, d["spec"]["nodes"][3]), "the id numa-1 is there twice"),
    (lambda d: d["spec"]["nodes"][0].update(attributes=[1]), r"spec.nodes\[0\] \(socket-0\): attributes must be a mapping"),
    (lambda d: d["spec"]["edges"].insert(0, {"source": "a"}), r"spec.edges\[0\] must have source, target and type"),
    (drop("Socket"), "no node of type Socket"),
    (drop("NUMANode"), "no node of type NUMANode"),
    (drop("CPUCore"), "no node of type CPUCore"),
    (cut("core-5"), r"core-5 \(CPUCore\) is in no NUMANode"),
    (cut("numa-1"), r"numa-1 \(NUMANode\) is in no Socket"),
    (cut("gpu-2"), r"gpu-2 \(GPU\) has no edge to a NUMANode while others have"),
    (add("numa-0", "core-99"), "no node has the id core-99"),
    (add("numa-0", "numa-3"), "numa-3 is contained in both socket-1 and numa-0"),
    (add("core-0", "gpu-0"), r"core-0 \(CPUCore\) cannot contain gpu-0 \(GPU\)"),
    (add("numa-0", "socket-0"), "cannot contain|cycle"),
    (add("socket-0", "socket-0"), "cycle through socket-0"),
    (pass_through, "cycle through switch-"),
    (add("gpu-0", "numa-3", "localized"), r"gpu-0 \(GPU\) belongs to several NUMA nodes: numa-0, numa-3"),
    (rename_gpu, "GPUs are of several models"),
])
def test_broken_objects_are_refused_in_one_line(tmp_path: Path, damage: Any, said: str):
    document = write_flextopo(SMALL, "n")
    damage(document)
    with pytest.raises(BadInput, match=said) as error:
        read_flextopo(write(tmp_path / "n.yaml", document))
    assert "\n" not in str(error.value) and "n.yaml" in str(error.value)


@pytest.mark.parametrize(("text", "said"), [
    ("kind: [FlexTopo", "not a YAML document"), ("a: 2024-13-45", "not a YAML document"),
    ("kind: FlexTopo\nspec: }", "line 2: not a YAML document"),
    ("a: 1\n---\nb: 2\n", "not a YAML document"), ("", "not a YAML mapping"), ("- 1", "not a YAML mapping"),
    ("\x00", "not a YAML document"),
])
def test_files_that_are_no_object(tmp_path: Path, text: str, said: str):
    (tmp_path / "n.yaml").write_text(text)
    with pytest.raises(BadInput, match=said) as error:
        read_flextopo(tmp_path / "n.yaml")
    assert "\n" not in str(error.value)


def test_a_file_gives_every_server_its_shape(tmp_path: Path):
    path = str(write(tmp_path / "n.yaml", as_the_agent_writes(PAPER, used_cores=64)))
    assert build(ClusterConfig(from_flextopo=path)).servers == 1
    cluster = build(replace(load("rtx4090_x41"), from_flextopo=path))
    assert (cluster.servers, cluster.shapes) == (41, (replace(PAPER, name="node-1"),))
    assert any(n.startswith("n.yaml: 64 of 64 cores") for n in cluster.notes)
    assert build(replace(load("flat"), from_flextopo=path, servers=5, count_used=True)).shapes[0].cores == 0


def test_a_folder_lists_its_servers(tmp_path: Path):
    for name, shape in (("a.yaml", PAPER), ("b.yml", SMALL), ("d.yaml", PAPER)):
        write(tmp_path / name, write_flextopo(shape, f"node-{name[0]}"))
    (tmp_path / "c.json").write_text(json.dumps(write_flextopo(PAPER, "node-c")))
    (tmp_path / "README.md").write_text("not an object")
    cluster = build(ClusterConfig(from_flextopo=str(tmp_path)))
    assert [s.name for s in cluster.shapes] == ["node-a", "node-b"]
    assert cluster.shape_of.tolist() == [0, 0, 0, 1]
    assert cluster.notes == ("a.yaml and 3 more: the memory of the server is not in the object: unbounded",)
    assert build(ClusterConfig(from_flextopo=str(tmp_path), servers=8)).shape_of.tolist() == [0, 0, 0, 0, 0, 0, 1, 1]


def test_an_empty_folder_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="no file ending in .yaml"):
        build(ClusterConfig(from_flextopo=str(tmp_path)))


def test_the_published_object(shared_traces: Path):
    path = shared_traces / "flextopo/node-a-flextopo.yaml"
    shape, notes = read_flextopo(path)
    assert shape == replace(PAPER, name="node-a")
    assert any("64 of 64 cores are marked used while all GPUs are free: ignored" in n for n in notes)
    assert any("derived" in n for n in notes)
    assert read_flextopo(path, count_used=True)[0].cores == 0


def test_import_is_light():
    code = "import sys, harness.topology; print([m for m in ('pandas', 'yaml', 'omegaconf', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CONF.parents[1])
    assert done.stdout.strip() == "[]"
