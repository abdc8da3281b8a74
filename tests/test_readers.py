"""Readers of public formats: each stated rule on a small fixture of our own, each published figure on the real file."""

import bz2
import gzip
import lzma
from dataclasses import fields, is_dataclass
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from harness.errors import BadInput
from harness.readers import format_names, formats, reader
from harness.schema import JOBS, names
from harness.tables import validate
from harness.topology import ServerShape, build, parse, write_flextopo
from reader_helpers import column, counted, run, written

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-11-05 01:30:00,60.0,1,60.0,aa
2017-11-04 23:00:00,3600,12,43200,bb
2017-11-05 01:30:00,60.0,1,60.0,aa
2017-11-05 03:00:00,0,8,0,aa
2017-11-05 02:00:00,10,20,999,
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,1000,,LS,Running,0,1000,10
p1,6500,12288,1,460,T4|A10|T4,BE,Failed,5,105,6
p2,1000,0,0,0,,Burstable,Pending,7,50,
p3,8000,1024.5,8,1000,G2,Guaranteed,Succeeded,3,9,9
p4,1000,1,2,1000,,BE,Pending,8,8,
"""
STATIC = "\n".join(",".join(line.split(",")[:5]) for line in PODS.splitlines()) + "\n"
NODES = """sn,cpu_milli,memory_mib,gpu,model
n0,32000,65536,0,
n1,96000,393216,8,G2
n2,64000,262144,2,P100
n3,96500,393216,8,G2
"""


def test_formats_are_the_files_of_the_folder():
    here = {p.stem.replace("_", "-") for p in Path(__file__).parents[1].glob("harness/readers/[!_]*.py")}
    assert set(format_names()) == here == set(formats())
    assert {"alibaba-openb", "alibaba-openb-nodes", "philly", "flextopo"} <= here


@pytest.mark.parametrize("name", format_names())
def test_every_reader_keeps_the_form(name: str):
    module = reader(name)
    assert len(str(module.__doc__).splitlines()) > 3
    assert is_dataclass(module.Options) and module.Options.__dataclass_params__.frozen
    for field in fields(module.Options):
        assert field.metadata["help"] and (not field.metadata["values"] or field.default in field.metadata["values"])


@pytest.mark.parametrize("name", format_names())
def test_every_reader_refuses_an_absent_file_and_other_files(name: str, tmp_path: Path):
    with pytest.raises(BadInput, match="no such file"):
        run(name, tmp_path / "absent")
    for content, words in (
        (b"", "is empty"),
        (b"<!DOCTYPE html><html></html>", "seems to be an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "seems to be a Git-LFS pointer"),
        (b"PAR1xxxx", "seems to be a Parquet file"),
        ("a,b\n1,2\n".encode("utf-16"), "text in UTF-16"),
    ):
        with pytest.raises(BadInput, match=words) as error:
            run(name, written(tmp_path, content))
        assert "\n" not in str(error.value)


def test_an_unknown_format_is_said_with_what_is_known():
    with pytest.raises(BadInput, match="unknown format 'phily', must be one of acme, alibaba-dlrm, .*; did you mean philly"):
        reader("phily")


# CSV as it is found


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, lzma.compress, lambda data: pa.compress(data, "zstd", asbytes=True)]
)
def test_archives_are_known_by_content(pack, tmp_path: Path):
    """pa.compress writes a zstd frame; the name of the file says nothing."""
    plain, _ = run("philly", written(tmp_path, PHILLY))
    packed, _ = run("philly", written(tmp_path, pack(PHILLY.encode()), "file.txt"))
    assert packed.equals(plain)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_truncated_archive_is_said(pack, tmp_path: Path):
    data = pack(PHILLY.encode())
    with pytest.raises(BadInput, match="truncated or corrupt (gzip|bz2|xz) file"):
        run("philly", written(tmp_path, data[: len(data) // 2]))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\n".join(",".join(reversed(line.split(","))) for line in text.splitlines()),
        lambda text: "\n".join(f'"{chr(10)} x",{line}' if i else f"note,{line}" for i, line in enumerate(text.splitlines())),
    ],
    ids=["byte order mark", "CRLF", "columns reversed", "quoted newlines in a column beyond"],
)
def test_harmless_differences_change_nothing(change, tmp_path: Path):
    plain, _ = run("philly", written(tmp_path, PHILLY))
    changed, _ = run("philly", written(tmp_path, change(PHILLY)))
    assert changed.equals(plain)


def test_columns_beyond_the_format_are_reported(tmp_path: Path):
    text = "\n".join(f"{line},{'user' if i == 0 else 'x'}" for i, line in enumerate(PHILLY.splitlines()))
    _, report = run("philly", written(tmp_path, text))
    assert counted(report, "ignored") == "columns ignored: user"


@pytest.mark.parametrize(
    "content, words",
    [
        (
            "timestamp,duration\n",
            "columns missing: num_gpus; must have timestamp, duration, num_gpus .*; found timestamp, duration",
        ),
        ("timestamp;duration;num_gpus\n1;2;3\n", r"separated by semicolons, must be commas"),
        ("timestamp,duration,num_gpus\n", "has a header but no rows"),
        ("timestamp,duration,num_gpus,duration\n2017-01-01,1,1,1\n", "column duration: there 2 times"),
        (PHILLY + "2017-11-05 03:00:00,0\n", r"row 5: 2 fields, must be 5: 2017-11-05 03:00:00,0"),
        (PHILLY.replace("3600", "1h"), "column duration, row 1: '1h' must be a number"),
        (PHILLY.replace("2017-11-04 23:00:00", "soon"), "column timestamp, row 1: 'soon' must be a time such as"),
        (PHILLY.replace("2017-11-04 23:00:00", ""), "column timestamp, row 1: empty"),
        (PHILLY.replace(",3600", ","), "column duration, row 1: empty, must be a number"),
        (PHILLY.replace(",3600", ",inf"), "column duration, row 1: inf, must be a number"),
        (PHILLY.replace(",12,", ",-12,"), "column num_gpus, row 1: -12.0, must be a whole number >= 0 and <= 32767"),
        (PHILLY.replace(",12,", ",1.5,"), "column num_gpus, row 1: 1.5, must be a whole number"),
        (PHILLY.replace(",aa", ",a\xe4").encode("latin-1"), "line 2 is not text in UTF-8"),
        (b"timestamp,dur\xe4tion,num_gpus\n", "line 1 is not text in UTF-8"),
        ('{"timestamp": 1}', "must be a list of jobs, the cluster_job_log of philly-traces"),
        (gzip.compress(b"<html>", mtime=0), "seems to be an HTML page"),
        (gzip.compress(gzip.compress(PHILLY.encode(), mtime=0), mtime=0), "must be CSV, but seems to be a gzip file"),
    ],
)
def test_a_broken_csv_is_one_clear_line(content, words: str, tmp_path: Path):
    path = written(tmp_path, content)
    with pytest.raises(BadInput, match=words) as error:
        run("philly", path)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)


# Philly


def test_philly_sorts_names_and_splits(tmp_path: Path):
    """Rows 1, 0, 2, 4 in time order (ties in file order); row 3 has no length. 12 GPUs = 2 x 6, 20 = 3 x 7 rounded up by one."""
    table, report = run("philly", written(tmp_path, PHILLY))
    assert table.column_names == names(JOBS) and validate(table, JOBS, "t") == []
    assert column(table, "job_id") == ["philly-1", "philly-0", "philly-2", "philly-4"]
    assert column(table, "submit_time") == [0.0, 9000.0, 9000.0, 10800.0]
    assert list(zip(column(table, "instances"), column(table, "gpus"), strict=True)) == [(2, 6), (1, 1), (1, 1), (3, 7)]
    assert column(table, "tenant") == ["bb", "aa", "aa", ""]
    assert set(column(table, "kind")) == {"training"}
    assert counted(report, "repetitions") == "exact repetitions of an earlier row: 1 kept"
    assert counted(report, "zero or negative") == "runs of zero or negative length: 1 dropped"
    assert counted(report, "gangs").endswith(
        "2 became gangs of at most 8 GPUs for each instance; 1 of them were rounded up, by 1 GPUs in all"
    )
    assert counted(report, "gpu_time") == "gpu_time, which is not used, differs from duration x num_gpus in 1 rows"
    assert counted(report, "time 0") == "time 0 is 2017-11-04 23:00:00 on it"
    counted(report, "not sorted")


def test_philly_in_a_time_zone(tmp_path: Path):
    """Los Angeles, 2017-11-05: 01:30 comes twice, and 02:00 PST is 4 hours after 23:00 PDT, not 3."""
    table, report = run("philly", written(tmp_path, PHILLY), tz="America/Los_Angeles")
    assert column(table, "submit_time") == [0.0, 9000.0, 9000.0, 14400.0]
    assert "2 times that the clock showed twice were read as the first, 0 that it skipped" in counted(report, "time zone")
    assert counted(report, "time 0") == "time 0 is 2017-11-05 06:00:00 UTC"
    spring = "timestamp,duration,num_gpus\n2017-03-12 01:59:59,1,1\n2017-03-12 02:30:00,1,1\n2017-03-12 03:30:00,1,1\n"
    table, report = run("philly", written(tmp_path, spring), tz="America/Los_Angeles")
    assert column(table, "submit_time") == [0.0, 1801.0, 1801.0]
    assert "0 times that the clock showed twice were read as the first, 1 that it skipped" in counted(report, "time zone")
    with pytest.raises(BadInput, match="--tz Mars: unknown time zone"):
        run("philly", written(tmp_path, spring), tz="Mars")


def test_philly_options(tmp_path: Path):
    path = written(tmp_path, PHILLY)
    table, report = run(
        "philly", path, duplicates="drop", nonpositive="raise_to_1s", gpus_per_instance=4, priority=3, preemptible=True
    )
    assert column(table, "job_id") == ["philly-1", "philly-0", "philly-4", "philly-3"]
    assert column(table, "duration")[-1] == 1.0
    assert list(zip(column(table, "instances"), column(table, "gpus"), strict=True)) == [(3, 4), (1, 1), (5, 4), (2, 4)]
    assert set(column(table, "priority")) == {3} and set(column(table, "preemptible")) == {True}
    assert counted(report, "gangs").endswith(
        "3 became gangs of at most 4 GPUs for each instance; 0 of them were rounded up, by 0 GPUs in all")
    with pytest.raises(BadInput, match="row 3: runs for 0 s, must be > 0"):
        run("philly", path, nonpositive="refuse")
    with pytest.raises(BadInput, match="--gpus_per_instance 0: must be at least 1"):
        run("philly", path, gpus_per_instance=0)


def test_several_philly_files_count_on(tmp_path: Path):
    table, _ = run("philly", written(tmp_path, PHILLY, "a.csv"), written(tmp_path, PHILLY, "b.csv"))
    assert table.num_rows == 8 and "philly-9" in column(table, "job_id")


def test_a_file_without_a_usable_row_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="no row is left to write"):
        run("philly", written(tmp_path, "timestamp,duration,num_gpus\n2017-01-01 00:00:00,0,1\n"))


# Alibaba openb, pods


def test_openb_pods(tmp_path: Path):
    """p2 and p4 never ran, p3 ran 9 - 9 = 0 s: left out. p0 is deleted at the last instant."""
    table, report = run("alibaba-openb", written(tmp_path, PODS))
    assert table.column_names == [*names(JOBS), "qos", "pod_phase", "scheduled_time"]
    assert column(table, "job_id") == ["p0", "p1"]
    assert column(table, "submit_time") == [0.0, 5.0]
    assert column(table, "duration") == [990.0, 99.0]
    assert column(table, "cpus") == [12.0, 6.5]
    assert column(table, "gpu_milli") == [1000, 460]
    assert column(table, "gpu_model") == [None, "T4|A10"]
    assert column(table, "priority") == [2, 0]
    assert column(table, "preemptible") == [False, True]
    assert column(table, "kind") == ["online", "batch"]
    assert counted(report, "never ran") == "pods that never ran (no scheduled_time): 2 dropped"
    assert counted(report, "zero or negative") == "runs of zero or negative length: 1 dropped"
    assert counted(report, "censored") == "censored: 1 pods are deleted at the last instant, 1000 s; kept"
    assert counted(report, "names a model twice") == "gpu_spec that names a model twice: 1 pods, named once"
    assert counted(report, "without GPU") == "pods without GPU: 1, gpu_milli 0 became 1000"
    assert counted(report, "qos BE") == "qos BE: 2 pods, priority 0, preemptible, batch"


def test_openb_pending_pods_leave_when_they_were_withdrawn(tmp_path: Path):
    """p2 waits from 7 to 50; p4 was withdrawn at once, so it has no length."""
    table, _ = run("alibaba-openb", written(tmp_path, PODS), pending="keep", start="scheduled")
    rows = table.select(["job_id", "submit_time", "duration", "end_time", "memory_mib", "gpu_milli"]).to_pylist()
    assert rows == [
        {"job_id": "p1", "submit_time": 6.0, "duration": 99.0, "end_time": None, "memory_mib": 12288, "gpu_milli": 460},
        {"job_id": "p2", "submit_time": 7.0, "duration": 43.0, "end_time": 50.0, "memory_mib": 0, "gpu_milli": 1000},
        {"job_id": "p0", "submit_time": 10.0, "duration": 990.0, "end_time": None, "memory_mib": 16384, "gpu_milli": 1000},
    ]


def test_openb_options(tmp_path: Path):
    path = written(tmp_path, PODS)
    assert column(run("alibaba-openb", path, censored="drop")[0], "job_id") == ["p1"]
    table, _ = run(
        "alibaba-openb", path, priorities="LS=9,BE=-1,Burstable=0,Guaranteed=5", preemptible_qos="LS,BE", online_qos="BE"
    )
    assert column(table, "priority") == [9, -1] and column(table, "preemptible") == [True, True]
    assert column(table, "kind") == ["batch", "online"]
    with pytest.raises(BadInput, match="column qos: 'Burstable' has no priority"):
        run("alibaba-openb", path, priorities="LS=2,BE=0,Guaranteed=1")
    with pytest.raises(BadInput, match="--priorities LS: must be NAME=NUMBER"):
        run("alibaba-openb", path, priorities="LS")


@pytest.mark.parametrize("text, options", [(STATIC, {}), (PODS, {"times": "static"})])
def test_openb_without_times_is_a_packing_list(text: str, options: dict, tmp_path: Path):
    table, report = run("alibaba-openb", written(tmp_path, text), **options)
    assert column(table, "job_id") == ["p0", "p1", "p2", "p3", "p4"]
    assert column(table, "submit_time") == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert set(column(table, "duration")) == {1e9}
    assert column(table, "memory_mib") == [16384, 12288, 0, 1025, 1]
    counted(report, "static packing list without times")
    if not options:
        assert set(column(table, "priority")) == {0} and set(column(table, "kind")) == {"batch"}
        counted(report, "no qos")
    with pytest.raises(BadInput, match="--static_duration_s 5: must be longer than the list, 5 s"):
        run("alibaba-openb", written(tmp_path, text), static_duration_s=5.0, **options)


@pytest.mark.parametrize(
    "text, words",
    [
        (PODS.replace("deletion_time", "end"), "has creation_time, scheduled_time but not all of"),
        (PODS.replace(",1000,10\n", ",,10\n"), "column deletion_time, row 0: empty"),
        (PODS.replace(",460,", ",1460,"), "column gpu_milli, row 1: 1460.0, must be a whole number >= 0 and <= 1000"),
        (PODS.replace("8,1000,G2", "8,100,G2"), "column gpu_milli, row 3: 100 with gpus = 8"),
        (PODS.replace("1,460", "1,0"), "column gpu_milli, row 1: 0 is out of range"),
        (PODS.replace("p1,", "p0,"), r"column job_id, row 1: was used by an earlier row \(0\)"),
        (PODS.replace("p1,", ","), "column name, row 1: empty"),
        (PODS.replace("6500", "1e30"), r"column cpu_milli, row 1: 1e\+30, must be a number >= 0 and <= 1.1259e\+15"),
    ],
)
def test_bad_openb_rows_are_named(text: str, words: str, tmp_path: Path):
    with pytest.raises(BadInput, match=words):
        run("alibaba-openb", written(tmp_path, text))


def test_several_openb_files_keep_their_names_apart(tmp_path: Path):
    paths = [written(tmp_path, PODS, "a.csv"), written(tmp_path, PODS, "b.csv")]
    table, _ = run("alibaba-openb", *paths)
    assert column(table, "job_id") == ["a/p0", "b/p0", "a/p1", "b/p1"]
    with pytest.raises(BadInput, match="import them one by one"):
        run("alibaba-openb", paths[0], written(tmp_path, STATIC, "c.csv"), times="static")


# Alibaba openb, nodes, and FlexTopo


def test_openb_nodes(tmp_path: Path):
    section, report = run("alibaba-openb-nodes", written(tmp_path, NODES, "nodes.v1.csv"))
    cluster = build(parse(yaml.safe_load(yaml.safe_dump(section))))
    assert cluster.name == "nodes"
    assert [(s.gpu_model, s.gpus, s.cores, s.numa_socket) for s in cluster.shapes] == [
        ("G2", 8, 96, (0, 1)),
        ("P100", 2, 64, (0, 1)),
        ("none", 0, 32, (0,)),
    ]
    assert cluster.shape_of.tolist() == [0, 0, 1, 2]
    assert counted(report, "without GPU") == "servers without GPU: 1 kept"
    assert counted(report, "fractions") == "fractions of a core: left out in 1 servers"
    assert counted(report, "servers:") == "servers: 4 with 18 GPUs, in 3 groups"


def test_openb_nodes_options(tmp_path: Path):
    path = written(tmp_path, NODES)
    section, _ = run(
        "alibaba-openb-nodes", path, order="file", without_gpu="drop", two_sockets_from=96, numa_per_socket=2, name="x"
    )
    cluster = build(parse(section))
    assert cluster.name == "x" and cluster.shape_of.tolist() == [0, 1, 2]
    assert [len(s.numa_cores) for s in cluster.shapes] == [4, 2, 4]
    with pytest.raises(BadInput, match="column model, row 1: empty"):
        run("alibaba-openb-nodes", written(tmp_path, NODES.replace("8,G2", "8,", 1)))
    with pytest.raises(BadInput, match="no server is left"):
        run("alibaba-openb-nodes", written(tmp_path, NODES.splitlines()[0] + "\nn0,32000,65536,0,\n"), without_gpu="drop")


def flextopo_file(folder: Path, name: str, shape: ServerShape) -> Path:
    return written(folder, yaml.safe_dump(write_flextopo(shape, name)), f"{name}.yaml")


SHAPE = ServerShape(
    "s", "A100", 2**30, numa_cores=(4, 4, 4, 4), numa_socket=(0, 0, 1, 1), gpu_numa=(0, 1, 3, 3), nvlink=(0, 0, 1, 1)
)


def test_flextopo_objects_become_a_cluster(tmp_path: Path):
    other = ServerShape("t", "T4", 2**30, numa_cores=(8,), numa_socket=(0,), gpu_numa=(0, 0))
    paths = [flextopo_file(tmp_path, name, shape) for name, shape in (("b", SHAPE), ("c", other), ("a", SHAPE))]
    section, report = run("flextopo", *paths, servers=2, memory_mib=1024)
    cluster = build(parse(section))
    assert cluster.shape_of.tolist() == [0, 0, 0, 0, 1, 1]
    assert [(s.name, s.gpu_numa, s.nvlink, s.memory_mib) for s in cluster.shapes] == [
        ("b", (0, 1, 3, 3), (0, 0, 1, 1), 1024),
        ("c", (0, 0), (), 1024),
    ]
    counted(report, "b: 4 servers of 4 A100, 2 sockets, 4 NUMA nodes")


def test_flextopo_options_and_refusals(tmp_path: Path):
    path = flextopo_file(tmp_path, "a", SHAPE)
    section, _ = run("flextopo", path, gpu_numa="0,0,0,0")
    assert build(parse(section)).shapes[0].gpu_numa == (0, 0, 0, 0)
    with pytest.raises(BadInput, match="--gpu_numa 0;1: must be whole numbers"):
        run("flextopo", path, gpu_numa="0;1")
    with pytest.raises(BadInput, match="--servers 0"):
        run("flextopo", path, servers=0)
    odd = ServerShape("s", "A100", 2**30, numa_cores=(4, 2, 4), numa_socket=(0, 0, 1), gpu_numa=(0,))
    with pytest.raises(BadInput, match="too irregular for a group of conf/cluster"):
        run("flextopo", flextopo_file(tmp_path, "odd", odd))
