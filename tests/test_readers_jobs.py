"""Readers of public job tables (spot, DLRM, Muri, Helios, Acme, Philly's JSON log): each stated rule on a fixture of our own."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from harness.errors import BadInput
from harness.topology import build, parse
from reader_helpers import column, counted, run, sound, written

SPOT = """job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
a,1,A10,20,1,1,0,1000,HP
b,1,A100,4,0.01,1,0,400,HP
c,2,A100,8,8,4,100,900,HP
d,2,H800,8,2.5,1,200,50,Spot
e,3,A10,1,0,1,300,0,Spot
"""
SPOT_NODES = "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,32,0\nH800,8,192,1\nA10,1,32,2\n"
DLRM = """instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,memory_limit,\
disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time
i0,HN,x,12,12,1,1,25,25,120.0,120.0,640.0,800.0,8,,,
i1,CN,x,64,64,0,0,1,1,937.5,937.5,340.0,400.0,-1,,,500.0
i2,HN,y,8,12,1,1,25,25,120.0,120.0,640.0,640.0,8,475.00000000000006,480.0,980.0
i3,HN,y,8,8,1,1,25,25,120.0,120.0,640.0,640.0,8,100.0,130.0,
i4,CN,y,8,8,0,0,1,1,32.0,32.0,640.0,640.0,2,900.0,990.0,990.0
i5,CN,y,8,8,0,0,1,1,32.0,32.0,640.0,640.0,2,1000.0,1000.0,
"""
MURI = """job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,resource_time_1,\
resource_time_2,priority
0,1,0,5,dqn,128,2868294000,46122000,490,446,8,0,1
1,32,10817570000,3,gpt2,4,15225000,31000,426,0.6,410,0,0
2,1,201694000,3,gpt2,4,1000,31000,426,0.6,410,0,0
3,4,201694000,3,gpt2,4,5000000000,31000,426,0.6,410,0,1
4,4,301694000,3,gpt2,4,900000,31000,426,0.6,410,0,1
"""
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u1,vc1,1,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:51:01,600,0
2,u2,vc2,16,32,2,FAILED,2020-06-09 18:41:27,2020-06-09 18:42:27,2020-06-09 18:43:27,60,60
3,u2,vc2,0,8,1,CANCELLED,2020-06-09 18:40:01,2020-06-09 18:41:28,2020-06-09 18:45:28,240,87
4,u3,vc1,20,4,1,TIMEOUT,2020-06-09 18:50:00,2020-06-09 18:50:00,2020-06-09 18:55:00,305,0
5,u3,vc1,3,6,2,NODE_FAIL,2020-06-09 18:50:30,2020-06-09 18:50:30,2020-06-09 18:50:30,0,0
6,u3,vc1,1,6,1,CANCELLED,2020-06-09 18:50:40,None,2020-06-09 18:51:30,0,50
7,u3,vc1,3,6,2,SUSPENDED,2020-06-09 18:51:00,2020-06-09 18:51:00,,,
"""
ACME = """job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,\
stop_time,duration,queue,gpu_time
dlc1,u1,8,64,960,1000,100.0,Pretrain,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,\
2023-05-17 11:01:16+00:00,,18,10.0,1152.0
dlc2,u2,1,8,128,500,,Evaluation,COMPLETED,2023-05-17 18:30:58+08:00,2023-05-17 18:31:08+08:00,2023-05-17 18:41:08+08:00,,,610,10.0,4880.0
"""


def attempt(start: str | None, end: str | None, *gpus: int) -> dict:
    """An attempt on 2017-10-07 at those times of the day, with that many GPUs on each server."""
    start, end = (time if time in (None, "None") else f"2017-10-07 {time}" for time in (start, end))
    return {"start_time": start, "end_time": end,
            "detail": [{"ip": f"m{i}", "gpus": [f"gpu{k}" for k in range(n)]} for i, n in enumerate(gpus)]}


def philly_job(name: str, submitted: str, *attempts: dict, status: str = "Pass") -> dict:
    return {"status": status, "vc": "ee9e8c", "jobid": name, "attempts": list(attempts), "submitted_time": f"2017-10-07 {submitted}",
            "user": "ce2f4c"}


PHILLY_LOG = [
    philly_job("b", "01:11:39", attempt("01:12:09", "01:13:23", 8), attempt("01:13:30", "02:13:30", 8)),
    philly_job("a", "01:00:00", attempt("01:00:10", "01:00:40", 4, 4, 4, 4), status="Killed"),
    philly_job("none", "01:20:00", status="Failed"),
    philly_job("lost", "01:21:00", attempt(None, "01:22:00", 1), attempt("01:23:00", "01:24:40", 1)),
    philly_job("open", "01:30:00", attempt("01:31:00", None, 3, 2), status="Killed"),
    philly_job("words", "03:00:00", attempt("None", "03:11:00", 1)),
    philly_job("end", "03:10:00", attempt("03:10:00", "03:31:00", 12)),
]


def test_spot_jobs(tmp_path: Path):
    """a ends at 1000, and so does c (100 + 900): the last instant. e runs for 0 s."""
    table, report = run("alibaba-spot", written(tmp_path, SPOT))
    sound(table)
    assert column(table, "job_id") == ["a", "b", "c", "d"]
    assert column(table, "gpus") == [1, 1, 8, 3] and column(table, "gpu_milli") == [1000, 10, 1000, 1000]
    assert column(table, "instances") == [1, 1, 4, 1] and column(table, "cpus") == [20, 4, 8, 8]
    assert column(table, "priority") == [1, 1, 1, 0] and column(table, "preemptible") == [False, False, False, True]
    assert column(table, "kind") == ["training"] * 3 + ["batch"] and column(table, "tenant") == ["1", "1", "2", "2"]
    assert column(table, "gpu_model") == ["A10", "A100", "A100", "H800"] and column(table, "job_type")[-1] == "Spot"
    assert counted(report, "censored") == "censored: 2 jobs end at the last instant, 1000 s; kept"
    assert counted(report, "standing") == "submitted at 0: 2 jobs, the standing population; kept"
    assert counted(report, "below 1").startswith("gpu_request below 1: 1 jobs")
    assert counted(report, "above 1").startswith("gpu_request above 1 that is no whole number: 1 jobs")
    assert counted(report, "first Spot") == "the first Spot job comes at 200 s, on day 0 counted from 0"
    assert counted(report, "zero or negative").endswith("1 dropped")


def test_spot_columns_are_read_by_name_and_options_select(tmp_path: Path):
    turned = "\n".join(",".join(reversed(line.split(","))) for line in SPOT.splitlines())
    path = written(tmp_path, turned)
    assert run("alibaba-spot", path)[0].equals(run("alibaba-spot", written(tmp_path, SPOT, "b.csv"))[0])
    assert column(run("alibaba-spot", path, standing="drop")[0], "job_id") == ["c", "d"]
    assert column(run("alibaba-spot", path, censored="drop")[0], "job_id") == ["b", "d"]
    assert column(run("alibaba-spot", path, priorities="HP=9,Spot=3", kinds="HP=online")[0], "priority") == [9, 9, 9, 3]
    with pytest.raises(BadInput, match="column job_type, rows 3, 4 .*: 'Spot' has no priority"):
        run("alibaba-spot", path, priorities="HP=9")
    with pytest.raises(BadInput, match="--kinds HP=fast: kinds are batch, online, training"):
        run("alibaba-spot", path, kinds="HP=fast")


def test_spot_nodes_become_a_cluster(tmp_path: Path):
    section, report = run("alibaba-spot", written(tmp_path, SPOT_NODES), name="mine")
    cluster = build(parse(section))
    assert cluster.name == "mine" and cluster.shape_of.tolist() == [0, 0, 1]
    assert [(s.gpu_model, s.gpus, s.cores, s.sockets) for s in cluster.shapes] == [("A10", 1, 32, 1), ("H800", 8, 192, 2)]
    assert counted(report, "servers:") == "servers: 3 with 10 GPUs, in 2 groups"
    with pytest.raises(BadInput, match="a node list among job tables"):
        run("alibaba-spot", written(tmp_path, SPOT, "a.csv"), written(tmp_path, SPOT_NODES, "b.csv"))


def test_dlrm_instances(tmp_path: Path):
    """The trace ends at 1000. i0 is there throughout: 0 to 1000. i1: 0 to 500. i2: created 475 (rounded), runs 980 - 480 = 500.
    i3: created 100, starts at 130, never ends: 870. i4 runs for 0 s. i5 starts at the end itself: the least, 1 s."""
    table, report = run("alibaba-dlrm", written(tmp_path, DLRM))
    sound(table)
    rows = table.select(["job_id", "submit_time", "duration", "duration_estimate_s", "end_time"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("i0", 0.0, 1000.0, 1000.0, None), ("i1", 0.0, 500.0, 500.0, 500.0), ("i3", 100.0, 870.0, 870.0, None),
        ("i2", 475.0, 500.0, 500.0, 980.0), ("i5", 1000.0, 1.0, 1.0, None)]
    assert column(table, "gpus") == [1, 0, 1, 1, 0] and column(table, "tenant") == ["x", "x", "y", "y", "y"]
    assert column(table, "memory_mib") == [122_880, 960_000, 122_880, 122_880, 32_768]
    assert column(table, "max_instance_per_node") == [8, -1, 8, 8, 2] and set(column(table, "kind")) == {"online"}
    for words, count in (("created and deleted", 2), ("created, not deleted", 2), ("there before", 1), ("there throughout", 1)):
        assert counted(report, words).endswith(f": {count}")
    assert counted(report, "noise").startswith("times with the noise of a float representation: 1 rows")
    assert counted(report, "without deletion_time") == "without deletion_time: 3 last to the end of the trace"
    assert counted(report, "limits differ") == "limits differ from requests, which count: 3 rows"
    assert counted(report, "latest time") == "the latest time of the trace is 1000 s"


def test_dlrm_options(tmp_path: Path):
    path = written(tmp_path, DLRM)
    table, _ = run("alibaba-dlrm", path, unfinished="drop", nonpositive="raise_to_1s", priority=5)
    assert column(table, "job_id") == ["i1", "i2", "i4"] and column(table, "duration")[-1] == 1.0 and set(column(table, "priority")) == {5}
    assert column(table, "end_time") == [500.0, 980.0, 990.0]
    assert column(run("alibaba-dlrm", path, ends="progress")[0], "end_time") == [None] * 5
    with pytest.raises(BadInput, match="row 4: runs for 0 s"):
        run("alibaba-dlrm", path, nonpositive="refuse")


def test_muri_times_are_milliseconds(tmp_path: Path):
    table, report = run("muri", written(tmp_path, MURI))
    sound(table)
    assert column(table, "job_id") == ["0", "2", "3", "4", "1"]
    assert column(table, "submit_time") == [0.0, 201_694.0, 201_694.0, 301_694.0, 10_817_570.0]
    assert column(table, "duration") == [2_868_294.0, 1.0, 5_000_000.0, 900.0, 15_225.0]
    assert column(table, "instances")[-1] == 4 and column(table, "gpus")[-1] == 8
    assert column(table, "priority") == [0] * 5 and column(table, "priority_label") == [1, 0, 1, 1, 0]
    assert column(table, "model_name")[0] == "dqn" and set(column(table, "kind")) == {"training"}
    assert counted(report, "50 days") == "jobs of more than 50 days: 1 kept"
    counted(report, "not sorted")
    assert column(run("muri", written(tmp_path, MURI), priority="file")[0], "priority") == [1, 0, 1, 1, 0]
    two, _ = run("muri", written(tmp_path, MURI, "a.csv"), written(tmp_path, MURI, "b.csv"))
    assert column(two, "job_id")[:2] == ["a/0", "b/0"]


def test_muri_in_seconds_is_refused_with_a_hint(tmp_path: Path):
    rows = [line.split(",") for line in MURI.splitlines()]
    seconds = "\n".join(",".join([*row[:2], str(int(row[2]) // 1000), *row[3:6], str(int(row[6]) // 1000), *row[7:]])
                        for row in rows[1:])
    path = written(tmp_path, ",".join(rows[0]) + "\n" + seconds)
    with pytest.raises(BadInput, match="they seem to be in s; --time_unit s converts them"):
        run("muri", path)
    assert column(run("muri", path, time_unit="s")[0], "duration") == [2_868_294.0, 1.0, 5_000_000.0, 900.0, 15_225.0]


def test_helios(tmp_path: Path):
    """Time 0 is 18:40:01, the submission of job 3. Job 4: 20 GPUs on one node of 8 become 3 x 7. Job 7 is still running at 18:55:00,
    the latest time: 240 s. Job 5 runs for 0 s, job 6 never started."""
    table, report = run("helios", written(tmp_path, HELIOS))
    sound(table)
    assert column(table, "job_id") == ["3", "1", "2", "4", "7"]
    assert column(table, "submit_time") == [0.0, 60.0, 86.0, 599.0, 659.0]
    assert column(table, "duration") == [240.0, 600.0, 60.0, 305.0, 240.0]
    assert list(zip(column(table, "instances"), column(table, "gpus"), strict=True)) == [(1, 0), (1, 1), (2, 8), (3, 7), (2, 2)]
    assert column(table, "cpus") == [8, 4, 16, pytest.approx(4 / 3), 3] and column(table, "tenant")[0] == "vc2"
    assert column(table, "state") == ["CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "SUSPENDED"]
    assert counted(report, "without GPU") == "jobs without GPU: 1 kept"
    assert "1 rows" in counted(report, "duration differs")
    assert counted(report, "never started") == "never started (no start_time): 1 dropped"
    assert counted(report, "SUSPENDED") == "state SUSPENDED: 1 jobs (not a documented state)"
    assert counted(report, "no end_time").startswith("no end_time: 1 jobs last to")
    assert counted(report, "time 0") == "time 0 is 2020-06-09 18:40:01 on it"
    table, _ = run("helios", written(tmp_path, HELIOS), duration="times", cpu_jobs="drop", running="drop", nonpositive="raise_to_1s")
    assert column(table, "job_id") == ["1", "2", "4", "5"] and column(table, "duration") == [600.0, 60.0, 300.0, 1.0]


def test_acme_times_have_a_zone(tmp_path: Path):
    """dlc2 was submitted at 18:30:58+08:00 = 10:30:58 UTC, half an hour before dlc1. Kalos counts the queueing into the duration:
    18 = 10 + 8."""
    table, report = run("acme", written(tmp_path, ACME))
    sound(table)
    assert column(table, "job_id") == ["dlc2", "dlc1"] and column(table, "submit_time") == [0.0, 1800.0]
    assert column(table, "duration") == [610.0, 18.0] and column(table, "kind") == ["batch", "training"]
    assert column(table, "instances") == [1, 8] and column(table, "gpus") == [8, 8] and column(table, "cpus") == [128, 120]
    assert column(table, "memory_mib") == [476_838, 953_675] and column(table, "tenant") == ["u2", "u1"]
    assert "2 rows" in counted(report, "duration differs")
    assert counted(report, "time 0") == "time 0 is 2023-05-17 10:30:58 UTC"
    assert column(run("acme", written(tmp_path, ACME), duration="times")[0], "duration") == [600.0, 8.0]
    mixed = written(tmp_path, ACME.replace("2023-05-17 18:30:58+08:00", "2023-05-17 10:30:58"))
    with pytest.raises(BadInput, match="column submit_time: some times name their zone and others do not; --tz must say"):
        run("acme", mixed)
    assert column(run("acme", mixed, tz="UTC")[0], "submit_time") == [0.0, 1800.0]


def test_philly_job_log(tmp_path: Path):
    """b: 74 + 3600 s. lost: the first attempt has no start, 100 s remain. open runs to 03:31:00, the latest time: 7200 s; its 5 GPUs
    on 2 servers do not divide, and fit one. end: 12 GPUs on one server become 2 x 6. words: None is no time, so nothing ran."""
    path = written(tmp_path, json.dumps(PHILLY_LOG), "cluster_job_log")
    table, report = run("philly", path)
    sound(table)
    assert column(table, "job_id") == ["a", "b", "lost", "open", "end"]
    assert column(table, "submit_time") == [0.0, 699.0, 1260.0, 1800.0, 7800.0]
    assert column(table, "duration") == [30.0, 3674.0, 100.0, 7200.0, 1260.0]
    assert list(zip(column(table, "instances"), column(table, "gpus"), strict=True)) == [(4, 4), (1, 8), (1, 1), (1, 5), (2, 6)]
    assert column(table, "state") == ["Killed", "Pass", "Pass", "Killed", "Pass"] and set(column(table, "tenant")) == {"ee9e8c"}
    assert counted(report, "without an attempt") == "jobs without an attempt: 1 dropped"
    assert counted(report, "still running").startswith("still running at the end of the log: 1 run to")
    assert counted(report, "without a start or an end").startswith("attempts without a start or an end, other than the last one's end: 2")
    assert counted(report, "several attempts").startswith("jobs of several attempts: 2")
    assert counted(report, "zero or negative").endswith("1 dropped")
    table, _ = run("philly", path, attempts="last", running="drop")
    assert column(table, "duration") == [30.0, 3600.0, 100.0, 1260.0]


@pytest.mark.parametrize("content, words", [
    ("[]", "must be a list of jobs"),
    ("{}", "must be a list of jobs"),
    ("[1]", "job 0: must be a JSON object, is int"),
    ('[{"jobid": "a"}]', "job 0: submitted_time is missing"),
    ('[{"jobid": 7, "submitted_time": "x"}]', "job 0: jobid must be text, is 7"),
    ('[{"jobid": "a", "submitted_time": "2017-10-07 01:00:00", "attempts": 3}]', "job 0: attempts must be a list, is 3"),
    ('[{"jobid": "a", "submitted_time": "noon"}]', "column submitted_time, row 0: 'noon' must be a time"),
    ('[{"jobid": "a", "submitt', "line 1, column .*: cut off, or not JSON"),
    ('[{"jobid": "a",}, {}, {}, {}]', "line 1, column .*: not JSON"),
])
def test_a_broken_job_log_is_one_clear_line(content: str, words: str, tmp_path: Path):
    with pytest.raises(BadInput, match=words) as error:
        run("philly", written(tmp_path, content))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name, text, key", [
    ("alibaba-spot", SPOT, "c,2,A100"), ("alibaba-dlrm", DLRM, "i2,HN,y"), ("muri", MURI, "4,4,301694000"), ("helios", HELIOS, "2,u2,vc2"),
    ("acme", ACME, "dlc2,u2"),
])
def test_repeated_rows_are_kept_and_counted_and_reused_names_refused(name: str, text: str, key: str, tmp_path: Path):
    (line,) = [line for line in text.splitlines() if line.startswith(key)]
    twice = written(tmp_path, text + line + "\n")
    plain, _ = run(name, written(tmp_path, text, "plain.csv"))
    table, report = run(name, twice)
    assert counted(report, "repetitions") == "exact repetitions of an earlier row: 1 kept"
    assert table.num_rows == plain.num_rows + 1
    last = len(text.splitlines()) - 1
    assert f"{key.split(',')[0]}#{last}" in column(table, "job_id")
    dropped, report = run(name, twice, duplicates="drop")
    assert dropped.equals(plain) and counted(report, "repetitions").endswith("1 dropped")
    reused = written(tmp_path, text + line.replace(key, key[:-1] + ("7" if key[-1].isdigit() else "z")) + "\n")
    with pytest.raises(BadInput, match=rf"column job_id, row {last}: was used by an earlier row \(\d+\), must be a unique string"):
        run(name, reused)


def test_the_hint_names_the_format_whose_columns_they_are(tmp_path: Path):
    for name, text, right in (("philly", SPOT, "alibaba-spot"), ("muri", DLRM, "alibaba-dlrm"), ("alibaba-openb", MURI, "muri"),
                              ("swf", HELIOS, None)):
        with pytest.raises(BadInput, match=f"these are columns of the format {right}" if right else "must be 18"):
            run(name, written(tmp_path, text))
    with pytest.raises(BadInput, match="the first line is numbers: is the header missing"):
        run("muri", written(tmp_path, "0,1,0,5,3\n"))


def test_tables_of_other_things_are_refused(shared_traces: Path):
    for name in ("Earth_gpu_number.csv", "Venus_cluster_gpu_number.csv", "helios_cluster_summary.csv", "philly_node_sequence.csv.gz"):
        with pytest.raises(BadInput, match="columns missing: job_id"):
            run("helios", shared_traces / "helios" / name)


def test_arrow_reads_the_same_with_every_chunk_boundary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Chunks of a few rows, and sorted runs of one row on disk, give the table that one chunk gives."""
    for name, text, options in (("alibaba-spot", SPOT, {}), ("alibaba-spot", SPOT, {"censored": "drop"}), ("alibaba-dlrm", DLRM, {}),
                                ("muri", MURI, {}), ("helios", HELIOS, {})):
        path = written(tmp_path, text)
        whole, report = run(name, path, **options)
        with monkeypatch.context() as patch:
            patch.setattr("harness.readers._csv.CHUNK_BYTES", 260)
            patch.setattr("harness.readers._spool.RUN_ROWS", 1)
            parts, again = run(name, path, **options)
        assert isinstance(parts, pa.Table) and parts.equals(whole), name
        assert sorted(again) == sorted(report), name
