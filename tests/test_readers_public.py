"""The public files themselves: every figure of their SOURCE.md, whose quantiles are the lower order statistic."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml

from harness.schema import JOBS
from harness.tables import validate
from harness.topology import build, parse
from reader_helpers import column, counted, run, sound


def lower(values: np.ndarray, *shares: float) -> list[float]:
    return np.quantile(values, shares, method="lower").tolist()


def peak(table: pa.Table) -> float:
    """GPUs held at most when every job starts at once."""
    start = table["submit_time"].to_numpy()
    gpus = table["instances"].to_numpy() * table["gpus"].to_numpy() * table["gpu_milli"].to_numpy() / 1000
    times = np.concatenate([start + table["duration"].to_numpy(), start])
    return np.cumsum(np.concatenate([-gpus, gpus])[np.argsort(times, kind="stable")]).max()


def sizes(table: pa.Table) -> dict[int, int]:
    gpus = table["instances"].to_numpy() * table["gpus"].to_numpy()
    return {int(size): int(count) for size, count in zip(*np.unique(gpus, return_counts=True), strict=True)}


def test_real_philly(shared_traces: Path):
    table, report = run("philly", shared_traces / "philly/philly.csv.gz")
    assert table.num_rows == 82_247 and validate(table, JOBS, "t") == []
    duration = table["duration"].to_numpy()
    assert (duration.min(), *lower(duration, 0.5, 0.95, 0.99), duration.max()) == (1, 1_144, 43_642, 254_611, 4_628_226)
    assert (duration < 60).sum() == 7_654
    assert sizes(table) == {1: 76_627, 2: 1_818, 4: 1_870, 8: 1_643, 12: 7, 16: 199, 24: 7, 32: 67, 64: 6, 128: 3}
    assert table["gpus"].to_numpy().max() == 8
    by_tenant = dict(zip(*np.unique(column(table, "tenant"), return_counts=True), strict=True))
    assert sorted(by_tenant.values(), reverse=True)[:8] == [41_226, 16_091, 9_953, 7_423, 1_934, 1_511, 1_435, 1_137]
    assert by_tenant["6214e9"] == 41_226 and len(by_tenant) == 15
    assert peak(table) == 1_243
    assert [peak(table.filter(pc.equal(table["tenant"], vc))) for vc in ("6214e9", "b436b2", "ee9e8c")] == [596, 755, 367]
    span = np.datetime64("2017-12-22T08:02:11") - np.datetime64("2017-09-04T10:30:41")
    assert table["submit_time"].to_numpy()[[0, -1]].tolist() == [0.0, span / np.timedelta64(1, "s")]
    assert counted(report, "repetitions").endswith(": 65 kept")
    assert "in 0 rows" in counted(report, "gpu_time")
    counted(report, "not sorted")
    assert run("philly", shared_traces / "philly/philly.csv.gz", duplicates="drop")[0].num_rows == 82_247 - 65


def test_real_philly_in_its_presumed_zone(shared_traces: Path):
    plain, _ = run("philly", shared_traces / "philly/philly.csv.gz")
    zoned, _ = run("philly", shared_traces / "philly/philly.csv.gz", tz="America/Los_Angeles")
    assert zoned["submit_time"].to_numpy()[-1] - plain["submit_time"].to_numpy()[-1] == 3_600


@pytest.mark.parametrize("variant, named", [("default", 0), ("gpuspec33", 2_388)])
def test_real_openb(shared_traces: Path, variant: str, named: int):
    path = shared_traces / f"alibaba-openb-v2023/openb_pod_list_{variant}.csv"
    table, report = run("alibaba-openb", path, start="scheduled")
    assert table.num_rows == 8_152 - 897 and validate(table, JOBS, "t") == []
    duration = table["duration"].to_numpy()
    assert (duration.min(), *lower(duration, 0.5, 0.95, 0.99), duration.max()) == (4, 616, 18_022, 114_035, 12_537_496)
    assert peak(table) == pytest.approx(65.59)
    assert counted(report, ".csv:").endswith("8,152 rows")
    assert counted(report, "never ran").endswith(": 897 dropped")
    assert counted(report, "censored").startswith("censored: 34 pods are deleted at the last instant, 12902960 s")
    assert [counted(report, f"qos {q}:").split(" pods")[0] for q in ("LS", "BE", "Burstable", "Guaranteed")] == [
        "qos LS: 4,647",
        "qos BE: 3,398",
        "qos Burstable: 100",
        "qos Guaranteed: 7",
    ]
    assert counted(report, "name models").startswith(f"gpu_spec: {named:,} pods")
    everything, _ = run("alibaba-openb", path, pending="keep", nonpositive="raise_to_1s")
    assert everything.num_rows == 8_152
    assert sizes(everything) == {0: 1_088, 1: 6_989, 2: 16, 4: 15, 8: 44}
    phases = dict(zip(*np.unique(column(everything, "pod_phase"), return_counts=True), strict=True))
    assert phases == {"Running": 5_193, "Failed": 1_870, "Pending": 897, "Succeeded": 192}
    submit = everything["submit_time"].to_numpy()
    assert ((submit < 110 * 86_400).sum(), submit.max()) == (19, 12_901_761)


def test_real_openb_waits(shared_traces: Path):
    table, _ = run("alibaba-openb", shared_traces / "alibaba-openb-v2023/openb_pod_list_default.csv")
    wait = table["scheduled_time"].to_numpy() - table["submit_time"].to_numpy()
    assert (*lower(wait, 0.5, 0.95), wait.max()) == (2, 241, 14_330)


def test_real_openb_without_times(shared_traces: Path):
    table, report = run("alibaba-openb", shared_traces / "alibaba-openb-v2023/openb_pod_list_multigpu50.csv")
    assert table.num_rows == 9_061 and column(table, "job_id")[0] == "openb-pod-0000"
    counted(report, "static packing list")
    packed, _ = run("alibaba-openb", shared_traces / "alibaba-openb-v2023/openb_pod_list_default.csv", times="static")
    gpus = packed["gpus"].to_numpy() * packed["gpu_milli"].to_numpy() / 1000
    assert packed.num_rows == 8_152 and round(gpus.sum()) == 6_087


@pytest.mark.parametrize("file, servers, without", [("all", 1_523, 310), ("gpu", 1_213, 0)])
def test_real_openb_nodes(shared_traces: Path, file: str, servers: int, without: int):
    section, _ = run("alibaba-openb-nodes", shared_traces / f"alibaba-openb-v2023/openb_node_list_{file}_node.csv")
    cluster = build(parse(section))
    count = np.bincount(cluster.shape_of)
    by_model: dict[str, int] = {}
    for shape, n in zip(cluster.shapes, count.tolist(), strict=True):
        by_model[f"{shape.gpu_model}x{shape.gpus}"] = by_model.get(f"{shape.gpu_model}x{shape.gpus}", 0) + n
    assert by_model.pop("nonex0", 0) == without
    assert by_model == {
        "G2x8": 549,
        "T4x2": 387,
        "P100x2": 131,
        "G3x8": 39,
        "V100M16x4": 28,
        "V100M32x8": 21,
        "V100M16x1": 19,
        "T4x4": 17,
        "V100M32x4": 9,
        "V100M16x8": 8,
        "P100x1": 3,
        "A10x1": 2,
    }
    assert count.sum() == servers
    assert sum(shape.gpus * n for shape, n in zip(cluster.shapes, count.tolist(), strict=True)) == 6_212


def test_the_shipped_openb_cluster_is_the_imported_one(shared_traces: Path):
    section, _ = run("alibaba-openb-nodes", shared_traces / "alibaba-openb-v2023/openb_node_list_gpu_node.csv")
    shipped = parse(yaml.safe_load((Path(__file__).parents[1] / "conf/cluster/openb.yaml").read_text()))

    def plain(config):
        cluster = build(config)
        return sorted(
            (s.gpu_model, s.gpus, s.numa_cores, s.numa_socket, s.memory_mib, n)
            for s, n in zip(cluster.shapes, np.bincount(cluster.shape_of).tolist(), strict=True)
        )

    assert plain(parse(section)) == plain(shipped)


def test_real_flextopo(shared_traces: Path):
    section, report = run("flextopo", shared_traces / "flextopo/node-a-flextopo.yaml", servers=41)
    cluster = build(parse(section))
    (shape,) = cluster.shapes
    assert len(cluster.shape_of) == 41
    assert (shape.gpus, shape.cores, shape.sockets, len(shape.numa_cores)) == (8, 64, 2, 8)
    assert any("GPUs" in line and "derived" in line for line in report)
    assert any("64 of 64 cores are marked used" in line for line in report)


def test_real_spot_nodes(shared_traces: Path):
    section, report = run("alibaba-spot", shared_traces / "alibaba-spot-v2026/node_info_df.csv")
    cluster = build(parse(section))
    count: dict[str, int] = {}
    for shape, n in zip(cluster.shapes, np.bincount(cluster.shape_of).tolist(), strict=True):
        count[f"{shape.gpu_model}x{shape.gpus}"] = count.get(f"{shape.gpu_model}x{shape.gpus}", 0) + n
    assert count == {"A10x1": 2_494, "GPU-series-1x1": 902, "GPU-series-1x8": 77, "GPU-series-1x4": 10, "A100-SXM4-80GBx8": 432,
                     "H800x8": 219, "GPU-series-2x8": 122, "A800-SXM4-80GBx8": 22}
    assert counted(report, "servers:").startswith("servers: 4,278 with 10,412 GPUs")


def test_the_shipped_spot_cluster_is_the_imported_one(shared_traces: Path):
    section, _ = run("alibaba-spot", shared_traces / "alibaba-spot-v2026/node_info_df.csv", name="spot")
    shipped = parse(yaml.safe_load((Path(__file__).parents[1] / "conf/cluster/spot.yaml").read_text()))
    one, other = build(parse(section)), build(shipped)
    assert one.shapes == other.shapes and one.shape_of.tolist() == other.shape_of.tolist() and one.name == other.name


def test_real_spot_tail_jobs(shared_traces: Path):
    """A tail sample of the job table, without gpu_model: half of its runs last more than four days, which is no sign of a wrong unit."""
    table, report = run("alibaba-spot", shared_traces / "alibaba-spot-v2026/derived-aggregates/outlier_job_rows.csv")
    sound(table)
    assert table.num_rows == 1_392
    assert counted(report, "job_type HP").startswith("job_type HP: 1,359 jobs")
    assert counted(report, "job_type Spot").startswith("job_type Spot: 33 jobs")
    assert "at the last instant, 15897599 s" in counted(report, "censored") and table["duration"].to_numpy().max() == 15_897_599
    assert counted(report, "standing").startswith("submitted at 0: 229 jobs")
    assert column(table, "job_id")[0] == "662" and column(table, "gpu_milli")[0] == 100
    spot = table.filter(pc.equal(table["job_type"], "Spot"))["submit_time"].to_numpy()
    assert spot.min() / 86_400 > 28
    kept = run("alibaba-spot", shared_traces / "alibaba-spot-v2026/derived-aggregates/outlier_job_rows.csv", standing="drop")[0]
    assert kept.num_rows == 1_392 - 229


def test_real_dlrm(shared_traces: Path):
    path = shared_traces / "alibaba-dlrm-v2025/disaggregated_DLRM_trace.csv"
    table, report = run("alibaba-dlrm", path, nonpositive="raise_to_1s")
    sound(table)
    assert table.num_rows == 23_871 and len(pc.unique(table["tenant"])) == 156
    assert [counted(report, f"role {role}") for role in ("CN", "HN")] == ["role CN: 16,485 instances", "role HN: 7,386 instances"]
    assert counted(report, "latest time") == "the latest time of the trace is 2677541 s"
    for words, count in (("created and deleted in the trace", "12,390"), ("there throughout", "4,677"), ("created, not deleted", "4,201"),
                         ("deleted, there before the trace", "2,603")):
        assert counted(report, words) == f"instances {words}: {count}"
    submit, duration, gpus = (table[name].to_numpy() for name in ("submit_time", "duration", "gpus"))
    assert (submit == 0).sum() == 7_280 == 4_677 + 2_603
    assert table["end_time"].null_count == 8_878
    assert counted(report, "without deletion_time").startswith("without deletion_time: 8,878 ")
    assert counted(report, "zero or negative").endswith(": 16 raised to 1 s")
    wait = pc.subtract(table["scheduled_time"], table["submit_time"]).to_numpy()
    assert np.nanmax(wait) == 238_116
    assert gpus[submit == 0].sum() == 3_123
    assert {475.0} <= set(submit.tolist()) and (submit == np.round(submit, 6)).all()
    started = table.set_column(1, "submit_time", pc.coalesce(table["scheduled_time"], table["submit_time"]))
    assert peak(started) == 3_412
    assert duration.max() == 2_677_541
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["job_id"], first["tenant"], first["cpus"], first["gpus"], first["memory_mib"], first["max_instance_per_node"]) == (
        "instance_0", "app_0", 12.0, 1, 122_880, 8.0)


@pytest.mark.parametrize("number, jobs, days, mix, most, shortest", [
    (1, 1_494, 125, {1: 536, 2: 5, 4: 423, 8: 465, 16: 40, 32: 25}, 349, 2.0),
    (2, 5_755, 99, {1: 2_335, 2: 171, 4: 937, 8: 1_825, 16: 424, 32: 63}, 837, 1.0),
])
def test_real_muri(shared_traces: Path, number: int, jobs: int, days: int, mix: dict[int, int], most: int, shortest: float):
    table, report = run("muri", shared_traces / f"muri-philly-vc/trace{number}.csv")
    sound(table)
    submit, duration = table["submit_time"].to_numpy(), table["duration"].to_numpy()
    assert table.num_rows == jobs and int((submit[-1] - submit[0]) // 86_400) == days
    assert sizes(table) == mix and peak(table) == most and duration.min() == shortest
    assert table["gpus"].to_numpy().max() == 8 and duration.max() > 49 * 86_400
    assert 0.48 < table["priority_label"].to_numpy().mean() < 0.52 and set(column(table, "priority")) == {0}
    if number == 1:
        assert (submit[-1], duration[0]) == (10_817_570.0, 2_868_294.0)
        assert counted(report, "50 days") == "jobs of more than 50 days: 3 kept"


def test_real_ricc(shared_traces: Path):
    """The first 330,000 records. The share of one-processor jobs, the median run and the 7,092 runs beyond their request that SOURCE.md
    gives are not those of this part, which has 6,148 of the latter."""
    path = shared_traces / "swf/RICC-2010-2.first330000.swf.gz"
    table, report = run("swf", path)
    sound(table)
    assert table.num_rows == 330_000 - 10
    for words, line in {
        ".gz: 330": "RICC-2010-2.first330000.swf.gz: 330,000 rows", "status 5": "status 5: 15,670 jobs, cancelled",
        "zero or": "runs of zero or negative length: 10 dropped", "differ": "processors used differ from those requested: 6,776 rows",
        "processors requested unknown": "processors requested unknown: 2 jobs", "requested time unknown": "requested time unknown: 2 jobs",
        "beyond": "runs beyond their requested time: 6,148 kept",
        "time 0 is": "RICC-2010-2.first330000.swf.gz: time 0 is 2010-04-30 15:04:55 UTC",
    }.items():
        assert counted(report, words).startswith(line)
    procs = table["instances"].to_numpy() * table["cpus"].to_numpy()
    assert procs.max() == 8_192 and table["cpus"].to_numpy().max() == 8
    assert table["logged_wait_s"].to_numpy().max() == pytest.approx(4.4e6, rel=0.01)
    assert table["submit_time"].to_numpy().max() // 86_400 == 126
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["duration"], first["instances"], first["cpus"], first["tenant"]) == (222.0, 10, 8.0, "u1")
    assert first["duration_estimate_s"] == 14_400.0
    assert run("swf", path, nonpositive="raise_to_1s", cancelled="drop")[0].num_rows == 314_330


def test_real_lublin(shared_traces: Path):
    table, report = run("swf", shared_traces / "swf/lublin_256.swf")
    sound(table)
    procs = table["instances"].to_numpy() * table["cpus"].to_numpy()
    assert table.num_rows == 10_000 and procs.max() <= 256 and procs[0] == 16
    assert counted(report, "requested unknown").startswith("processors requested unknown: 10,000 jobs")
    assert counted(report, "time unknown").startswith("requested time unknown: 10,000 jobs")
    assert table["logged_wait_s"].null_count == 10_000
