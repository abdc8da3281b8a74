"""Readers of one's own cluster and of HPC logs (sacct, kubectl, SWF): each stated rule on a fixture of our own."""

import json
from pathlib import Path

import pytest

from harness.errors import BadInput
from harness.readers._pods import requests
from harness.readers._quantities import amount
from harness.readers._times import lengths
from harness.readers._tres import NOTHING, parse_tres
from harness.topology import build, parse
from reader_helpers import column, counted, run, sound, written

HEAD = "JobID|Submit|Start|End|State|AllocTRES|ReqTRES|Timelimit|Priority|QOS|Account|Partition|User"
SACCT = HEAD + """
100|2024-05-01T10:00:00|2024-05-01T10:00:10|2024-05-01T10:10:10|COMPLETED|billing=16,cpu=16,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1|\
billing=8,cpu=8,gres/gpu=2,mem=64G,node=1|1-00:00:00|4294901760|high|ml|gpu|ann
100.batch|2024-05-01T10:00:10|2024-05-01T10:00:10|2024-05-01T10:10:10|COMPLETED|cpu=16,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1|||||||
100.extern|2024-05-01T10:00:10|2024-05-01T10:00:10|2024-05-01T10:10:10|COMPLETED|cpu=16,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1|||||||
100.0|2024-05-01T10:00:11|2024-05-01T10:00:11|2024-05-01T10:10:10|COMPLETED|cpu=16,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1|||||||
101_1|2024-05-01T09:00:00|2024-05-01T10:00:00|2024-05-01T10:30:00|CANCELLED by 1001|\
cpu=32,gres/gpu:h100=8,mem=512000M,node=4||30:00|7|normal|hpc|gpu|bob
101_2|2024-05-01T09:00:00|2024-05-01T10:00:00|2024-05-01T10:31:00|TIMEOUT|cpu=9,gres/gpu=3,mem=62.50G,node=2||30:00|7|normal|hpc|gpu|bob
101_[3-9%2]|2024-05-01T09:00:00|Unknown|Unknown|PENDING||cpu=9,gres/gpu=3,node=2|30:00|7|normal|hpc|gpu|bob
102+0|2024-05-01T11:00:00|2024-05-01T11:00:00|2024-05-01T11:05:00|FAILED|cpu=4,mem=4G,node=1||UNLIMITED|1|low|hpc|cpu|eve
102+1|2024-05-01T11:00:00|2024-05-01T11:00:00|2024-05-01T11:05:00|FAILED|cpu=4,gres/gpu=1,gres/shard=2,mem=4G,node=1||UNLIMITED|1|low|hpc|gpu|eve
103|2024-05-01T11:10:00|2024-05-01T11:10:00|Unknown|RUNNING|cpu=4,gres/gpu:1g.10gb=1,mem=4G,node=1||Partition_Limit|1|low|hpc|gpu|eve
104|2024-05-01T11:00:00|None|2024-05-01T11:20:00|CANCELLED by 0||cpu=4,gres/gpu=1,mem=4G,node=1|10|1|low|hpc|gpu|eve
105|2024-05-01T11:00:00|Unknown|Unknown|PENDING||cpu=4,gres/gpu=1,mem=4G,node=1|10|1|low|hpc|gpu|eve
106|2024-05-01T11:15:00|2024-05-01T11:16:00|2024-05-01T11:16:00|FAILED|cpu=4,gres/gpu=1,mem=4G,node=1||10|1|low|hpc|gpu|eve
"""


def test_sacct_jobs(tmp_path: Path):
    """Time 0 is 09:00. The latest time is 11:20, so 103 runs for 600 s. 101_2: 9 cores, 3 GPUs on 2 nodes: 4.5 cores and 2 GPUs each."""
    table, report = run("sacct", written(tmp_path, SACCT))
    sound(table)
    assert column(table, "job_id") == ["101_1", "101_2", "100", "102+0", "102+1", "103"]
    assert column(table, "submit_time") == [0.0, 0.0, 3600.0, 7200.0, 7200.0, 7800.0]
    assert column(table, "duration") == [1800.0, 1860.0, 600.0, 300.0, 300.0, 600.0]
    assert column(table, "duration_estimate_s") == [1800.0, 1800.0, 86_400.0, 300.0, 300.0, 600.0]
    assert column(table, "instances") == [4, 2, 1, 1, 1, 1] and column(table, "gpus") == [2, 2, 2, 0, 1, 1]
    assert column(table, "cpus") == [8, 4.5, 16, 4, 4, 4] and column(table, "memory_mib") == [128_000, 32_000, 65_536, 4096, 4096, 4096]
    assert column(table, "priority") == [7, 7, 2**31 - 1, 1, 1, 1] and column(table, "tenant") == ["hpc", "hpc", "ml", "hpc", "hpc", "hpc"]
    assert column(table, "state") == ["CANCELLED", "TIMEOUT", "COMPLETED", "FAILED", "FAILED", "RUNNING"]
    assert column(table, "qos")[2] == "high" and column(table, "partition")[3] == "cpu" and set(column(table, "kind")) == {"batch"}
    assert set(column(table, "preemptible")) == {False} and set(column(table, "gpu_model")) == {None}
    for words, line in {
        "rows": "file.csv: 13 rows", "steps": "steps of jobs: 3 skipped", "array tasks": "array tasks: 2, each a job",
        "rests of arrays": "pending rests of arrays: 1 dropped", "heterogeneous": "components of heterogeneous jobs: 2 kept, each as a job",
        "still running": "still running (no End): 1 last to the latest time of the file",
        "never ran": "never ran (no Start): 2, of which 0 are kept until they were withdrawn", "gangs": "gangs: 2 jobs of several nodes",
        "without GPU": "jobs without GPU: 1 kept", "shard": "shares of GPUs (gres/shard, gres/mps) are not read: 1 jobs",
        "slices": "slices of GPUs (such as 1g.10gb) count as GPUs: 1 jobs", "no time limit": "no time limit: 3 jobs",
        "beyond": "runs beyond their time limit: 1 kept as they are",
        "priorities above": "priorities above 2,147,483,647: 1 jobs, cut to it",
        "zero or negative": "runs of zero or negative length: 1 dropped", "types": "types of GPUs are not used: 3 jobs have one",
        "divide": "GPUs that do not divide evenly over the instances of a job: 1 jobs rounded up",
        "state CANCELLED": "state CANCELLED: 1 jobs", "time 0": "time 0 is 2024-05-01 09:00:00 on it",
    }.items():
        assert counted(report, words).startswith(line)


def test_sacct_options(tmp_path: Path):
    path = written(tmp_path, SACCT)
    table, _ = run("sacct", path, pending="keep", running="drop", hetjobs="drop", nonpositive="raise_to_1s", gpu_types="keep",
                   priorities="high=9,low=-1", preemptible_qos="low", online_qos="high", online_partitions="cpu", kind="training",
                   tenant="User")
    rows = table.select(["job_id", "duration", "end_time", "priority", "preemptible", "kind", "gpu_model", "tenant"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("101_1", 1800.0, None, 0, False, "training", "h100", "bob"), ("101_2", 1860.0, None, 0, False, "training", None, "bob"),
        ("100", 600.0, None, 9, False, "online", "a100", "ann"), ("104", 1200.0, 8400.0, -1, True, "training", None, "eve"),
        ("106", 1.0, None, -1, True, "training", None, "eve")]
    assert column(run("sacct", path, size="requested", cpu_jobs="drop", priority="none")[0], "cpus") == [8, 4.5, 8, 4, 4]
    with pytest.raises(BadInput, match="--priorities high: must be NAME=NUMBER"):
        run("sacct", path, priorities="high")


def test_sacct_hours_that_come_twice(tmp_path: Path):
    """Berlin, 2024-10-27: the clock goes from 03:00 CEST back to 02:00 CET, so 02:00 to 03:00 comes twice. a starts 02:50 (the first)
    and ends 02:10, which must be the second: 20 minutes. b ends 03:10 CET: 80 minutes after 02:50 CEST. c is submitted in the hour
    that came once: nothing to choose."""
    text = "JobID|Submit|Start|End|State|AllocTRES\n"
    for name, submit, start, end in (("1", "02:40:00", "02:50:00", "02:10:00"), ("2", "02:50:00", "02:50:00", "03:10:00"),
                                     ("3", "01:30:00", "01:30:00", "01:40:00")):
        text += f"{name}|2024-10-27T{submit}|2024-10-27T{start}|2024-10-27T{end}|COMPLETED|cpu=1,node=1\n"
    path = written(tmp_path, text)
    table, report = run("sacct", path, tz="Europe/Berlin")
    assert column(table, "job_id") == ["3", "1", "2"] and column(table, "submit_time") == [0.0, 4200.0, 4800.0]
    assert column(table, "duration") == [600.0, 1200.0, 4800.0]
    assert "1 moved to its second showing" in counted(report, "cannot come before")
    assert "5 times that the clock showed twice" in counted(report, "time zone")
    assert counted(report, "time 0") == "time 0 is 2024-10-26 23:30:00 UTC"
    table, report = run("sacct", path)
    assert column(table, "job_id") == ["3", "2"] and counted(report, "zero or negative").endswith("1 dropped")
    epoch = written(tmp_path, "JobID|Submit|Start|End|State|AllocTRES\n1|1729989600|1729990200|1729991400|COMPLETED|cpu=1,node=1\n")
    table, report = run("sacct", epoch)
    assert column(table, "duration") == [1200.0] and counted(report, "time 0") == "time 0 is 2024-10-27 00:40:00 UTC"


def test_sacct_records_of_a_requeued_job(tmp_path: Path):
    lines = SACCT.splitlines()
    again = lines[1].replace("COMPLETED", "PREEMPTED")
    path = written(tmp_path, "\n".join([lines[0], again, *lines[1:2], lines[1]]))
    table, report = run("sacct", path)
    assert column(table, "job_id") == ["100", "100#1", "100#2"]
    assert counted(report, "repetitions").endswith("1 kept") and counted(report, "names used").startswith("names used by an earlier row: 2")
    assert column(run("sacct", path, duplicates="drop")[0], "job_id") == ["100", "100#1"]
    table, _ = run("sacct", path, requeued="last")
    assert column(table, "job_id") == ["100"] and column(table, "state") == ["COMPLETED"]


@pytest.mark.parametrize("change, words", [
    (("|AllocTRES|ReqTRES", "|Alloc|Req"), "columns missing: AllocTRES or ReqTRES"),
    (("Submit", "Eligible"), "columns missing: Submit; must have JobID, Submit, Start, End, State"),
    (("101_1|", "job|"), "column JobID, row 4: 'job' must be a job such as 1234"),
    (("|ml|", "|m|l|"), "row 0: 14 fields, must be 13"),
    (("10:10:10|COMPLETED|billing", "10h|COMPLETED|billing"), "column End, row 0: '2024-05-01T10h' must be a time"),
    (("2024-05-01T11:10:00|2024", "Unknown|2024"), "column Submit, row 9: no time, must be when the job was submitted"),
    (("cpu=9,gres/gpu=3,mem", "cpu=9;mem"), "column AllocTRES, row 5: 'cpu=9;mem=62.50G,node=2' must be resources such as"),
    (("|1-00:00:00|", "|one day|"), "column Timelimit, row 0: 'one day' must be a length such as 1-12:00:00"),
    (("4294901760", "-5"), "column Priority, row 0: -5.0, must be a number >= 0"),
])
def test_broken_sacct_output_is_one_clear_line(change: tuple[str, str], words: str, tmp_path: Path):
    assert change[0] in SACCT
    with pytest.raises(BadInput, match=words) as error:
        run("sacct", written(tmp_path, SACCT.replace(*change)))
    assert "\n" not in str(error.value)


def test_sacct_with_bars_at_the_end_of_lines_and_with_commas(tmp_path: Path):
    """--parsable ends each line with |: a last column without name. Commas or blanks are other outputs of sacct."""
    plain, _ = run("sacct", written(tmp_path, SACCT))
    assert run("sacct", written(tmp_path, "\n".join(line + "|" for line in SACCT.splitlines())))[0].equals(plain)
    with pytest.raises(BadInput, match="separated by commas"):
        run("sacct", written(tmp_path, SACCT.replace("|", ",")))


@pytest.mark.parametrize("word, seconds", [
    ("30:00", 1800), ("1-00:00:00", 86_400), ("02:03:04", 7384), ("10", 600), ("2-12", 216_000), ("1-01:30", 91_800), ("00:00:05", 5),
    ("UNLIMITED", None),
])
def test_lengths_as_slurm_writes_them(word: str, seconds: int | None):
    import pyarrow as pa

    value = lengths(pa.table({"Timelimit": [word]}), "Timelimit", "t", ("UNLIMITED",))[0]
    assert value != value if seconds is None else value == seconds


def test_trackable_resources():
    found = parse_tres("billing=8,cpu=2K,gres/gpu:a100=2,gres/gpu:h100=1,mem=1.5T,node=3")
    assert (found.cpus, found.gpus, found.model, found.memory_mib, found.nodes) == (2000, 3, "a100|h100", 1.5 * 2**20, 3)
    assert parse_tres("") == NOTHING and parse_tres("gres/gpu=4,gres/gpu:a100=4").gpus == 4
    for wrong in ("cpu", "cpu=", "=3", "cpu=-1", "cpu=1;mem=2"):
        with pytest.raises(ValueError):
            parse_tres(wrong)


# SWF

SWF = """; Version: 2.2
;  Computer: M\xfcller's cluster
; UnixStartTime: 1272639895
; TimeZoneString: Asia/Tokyo
; MaxNodes: 4
; MaxProcs: 32

   1   0   5  222   80   -1  -1   80  14400 1200000  1   1   1  -1  1 -1 -1 -1
   2  10   0    0    8   -1  -1    8    600      -1  5   2   1  -1  1 -1 -1 -1
\t3  30  -1  700    9   -1 512   72    600      -1  0  -1   1  -1 -1 -1 -1 -1\x20
   4  20   0  100    4   -1  -1   -1     -1      -1  1   2   1  -1  1 -1  1 10
   5  40   0   -1    4   -1  -1    4     60      -1  5   2   1  -1  1 -1 -1 -1
   6  50   0   60    4   -1  -1    4     60      -1  3   2   1  -1  1 -1 -1 -1
   7  60   0   60   -1   -1  -1   -1     60      -1  1   2   1  -1  1 -1 -1 -1
   4  70   0   60    1   -1  -1    1     60      -1  5   2   1  -1  1 -1 -1 -1
"""


def test_swf(tmp_path: Path):
    """8 processors to a server. 1: 10 x 8, 1,200,000 KB each, so 9,375 MiB an instance. 3: 72 requested = 9 x 8, used memory 512 KB:
    4 MiB; ran 700 s of 600. 4: requested unknown, so the 4 used. The header is in Latin-1."""
    table, report = run("swf", written(tmp_path, SWF.encode("latin-1"), "a.swf"))
    sound(table)
    assert column(table, "job_id") == ["1", "4", "3", "4#7"] and column(table, "submit_time") == [0.0, 20.0, 30.0, 70.0]
    assert column(table, "duration") == [222.0, 100.0, 700.0, 60.0]
    assert column(table, "duration_estimate_s") == [14400.0, 100.0, 600.0, 60.0]
    assert column(table, "instances") == [10, 1, 9, 1] and column(table, "cpus") == [8, 4, 8, 1] and column(table, "gpus") == [0] * 4
    assert column(table, "memory_mib") == [9375, 0, 4, 0] and column(table, "tenant") == ["u1", "u2", None, "u2"]
    assert column(table, "state") == ["COMPLETED", "COMPLETED", "FAILED", "CANCELLED"]
    assert column(table, "logged_wait_s") == [5.0, 0.0, None, 0.0] and column(table, "queue") == ["1", "1", None, "1"]
    for words, line in {
        "header says": "a.swf: the header says UnixStartTime 1272639895, TimeZoneString Asia/Tokyo, MaxNodes 4, MaxProcs 32",
        "time 0": "a.swf: time 0 is 2010-04-30 15:04:55 UTC", "rows": "a.swf: 8 rows", "parts": "parts of jobs (status 2, 3, 4): 1 dropped",
        "run time unknown": "run time unknown: 1 dropped", "differ": "processors used differ from those requested: 2 rows",
        "requested unknown": "processors requested unknown: 1 jobs", "processors unknown": "processors unknown: 1 dropped",
        "zero or": "runs of zero or negative length: 1 dropped", "beyond": "runs beyond their requested time: 1 kept",
        "preceding": "after a preceding job: 1 rows", "status 5": "status 5: 3 jobs, cancelled",
        "requested time unknown": "requested time unknown: 1",
        "not sorted": "not sorted by submission",
    }.items():
        assert any(found.startswith(line) for found in report), (words, report)


def test_swf_options(tmp_path: Path):
    path = written(tmp_path, SWF.encode("latin-1"))
    table, _ = run("swf", path, size="used", resource="gpus", per_instance=4, memory="ignore", cancelled="drop", priority=2,
                   preemptible=True)
    assert column(table, "job_id") == ["1", "4", "3"]
    assert list(zip(column(table, "instances"), column(table, "gpus"), strict=True)) == [(20, 4), (1, 4), (3, 3)]
    assert column(table, "cpus") == [0] * 3 and column(table, "memory_mib") == [0] * 3 and set(column(table, "priority")) == {2}
    table, _ = run("swf", path, written(tmp_path, SWF.encode("latin-1"), "b.swf"))
    assert {"file/1", "b/1"} <= set(column(table, "job_id"))


@pytest.mark.parametrize("text, words", [
    ("; Version: 2\n", "has a header but no rows"),
    ("1 2 3\n", "row 0: 3 fields, must be 18: 1 2 3"),
    (SWF.split("\n\n")[1].replace("222", "long"), "column run, row 0: 'long' must be a number"),
    (SWF.split("\n\n")[1].replace("   1   0   5", "   1  -7   5"), "column submit, row 0: -7.0, must be a number >= 0"),
    ("<html>", "must be SWF, but seems to be an HTML page"),
])
def test_a_broken_swf_is_one_clear_line(text: str, words: str, tmp_path: Path):
    with pytest.raises(BadInput, match=words) as error:
        run("swf", written(tmp_path, text))
    assert "\n" not in str(error.value)


# kubectl


def pod(name: str, created: str, scheduled: str | None = None, finished: str | None = None, phase: str = "Running", owner: str = "",
        **spec):
    """A pod of namespace ml; times are minutes and seconds after 12:00."""
    def at(time: str) -> str:
        return f"2026-01-31T12:{time}Z"

    status: dict = {"phase": phase}
    if scheduled:
        status["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": at(created)},
                                {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(scheduled)}]
    if finished:
        status["containerStatuses"] = [{"state": {"terminated": {"finishedAt": at(created), "startedAt": at(created)}}, "restartCount": 3},
                                       {"state": {"terminated": {"finishedAt": at(finished)}}}]
    metadata: dict = {"name": name, "namespace": "ml", "creationTimestamp": at(created)}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner.split("/")[0], "uid": owner, "controller": True}]
    asked = spec.pop("asked", {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"})
    return {"kind": "Pod", "metadata": metadata, "status": status,
            "spec": {"containers": [{"resources": {"requests": asked}}], **spec}}


PODS = {"kind": "List", "items": [
    pod("serve", "01:00", "01:05", owner="ReplicaSet/a", priority=100, priorityClassName="prod", nodeName="n1"),
    pod("w0", "02:00", "02:30", "12:30", "Succeeded", "PyTorchJob/b", asked={"cpu": "8", "nvidia.com/gpu": "8"}),
    pod("w1", "02:01", "02:20", "12:40", "Succeeded", "PyTorchJob/b", asked={"cpu": "8", "nvidia.com/gpu": 8}),
    pod("master", "02:02", "02:20", "12:40", "Succeeded", "PyTorchJob/b", asked={"cpu": "500m", "memory": "1G"}),
    pod("batch", "00:30", "00:40", "00:50", "Failed", "Job/c", asked={"cpu": "1500m", "memory": "512Mi", "nvidia.com/mig-1g.10gb": "1"}),
    pod("agent", "00:00", "00:00", owner="DaemonSet/d"),
    pod("wait", "05:00", phase="Pending", priority=-10, priorityClassName="spot"),
    pod("evicted", "06:00", "06:10", phase="Failed", asked={"cpu": "1", "aliyun.com/gpu-mem": "4"}),
]}


def listed(folder: Path, document: object, name: str = "pods.json") -> Path:
    return written(folder, json.dumps(document), name)


def test_kubectl_pods(tmp_path: Path):
    """Time 0 is 12:00:30, the first creation of a pod that is kept in view; the latest time is 12:12:40, to which serve runs: 695 s.
    The workers are one gang of two, 02:00 to 12:40 with start 02:20: 620 s; the master asks otherwise."""
    table, report = run("kubectl", listed(tmp_path, PODS))
    sound(table)
    assert column(table, "job_id") == ["ml/batch", "ml/serve", "ml/w0", "ml/master"]
    assert column(table, "submit_time") == [0.0, 30.0, 90.0, 92.0] and column(table, "duration") == [10.0, 695.0, 620.0, 620.0]
    assert column(table, "instances") == [1, 1, 2, 1] and column(table, "gpus") == [1, 1, 8, 0]
    assert column(table, "cpus") == [1.5, 2, 8, 0.5] and column(table, "memory_mib") == [512, 4096, 0, 954]
    assert column(table, "kind") == ["batch", "online", "training", "training"] and column(table, "priority") == [0, 100, 0, 0]
    assert column(table, "priority_class") == [None, "prod", None, None] and column(table, "node")[1] == "n1"
    assert column(table, "pod_phase") == ["Failed", "Running", "Succeeded", "Succeeded"] and set(column(table, "tenant")) == {"ml"}
    for words, line in {
        "objects": "pods.json: 8 objects", "DaemonSets": "pods of DaemonSets and of the node itself: 1 dropped",
        "never placed": "never placed: 1 dropped", "without a start": "ended without a start or a finish: 1 dropped",
        "not ended": "not ended yet: 1 last to the snapshot", "gangs": "gangs: 1 of 2 pods of training owners",
        "without GPU": "pods without GPU: 1 kept", "slices": "slices of GPUs (nvidia.com/mig-*) count as GPUs: 1 pods",
        "time 0 is": "time 0 is 2026-01-31 12:00:30 UTC", "open ends": "open ends are at the latest time in the file, 730 s after time 0",
        "removed": "assumed: the list is a whole trace",
    }.items():
        assert counted(report, words).startswith(line)


def test_kubectl_options(tmp_path: Path):
    path = listed(tmp_path, PODS)
    table, _ = run("kubectl", path, snapshot="2026-01-31T13:00:00Z", pending="keep", gangs="none", daemonsets="keep", cpu_jobs="drop",
                   preemptible_classes="spot", kinds="ReplicaSet=training")
    assert column(table, "job_id") == ["ml/agent", "ml/batch", "ml/serve", "ml/w0", "ml/w1", "ml/wait"]
    assert column(table, "duration") == [3600.0, 10.0, 3535.0, 600.0, 620.0, 3300.0]
    assert column(table, "preemptible") == [False] * 5 + [True] and column(table, "kind")[2] == "training"
    assert column(run("kubectl", path, running="drop")[0], "job_id") == ["ml/batch", "ml/w0", "ml/master"]
    with pytest.raises(BadInput, match="--snapshot 2026-01-31T12:05:00Z: is before the latest time in the file"):
        run("kubectl", path, snapshot="2026-01-31T12:05:00Z")
    with pytest.raises(BadInput, match="'noon' must be a time such as"):
        run("kubectl", path, snapshot="noon")
    selected = {"items": [pod("a", "01:00", "01:00", "02:00", "Succeeded", nodeSelector={"nvidia.com/gpu.product": "A100"})]}
    assert column(run("kubectl", listed(tmp_path, selected, "one.json"), gpu_models="keep")[0], "gpu_model") == ["A100"]
    table, report = run("kubectl", path, listed(tmp_path, PODS, "again.json"))
    assert "ml/serve#6" in column(table, "job_id") and counted(report, "repetitions").endswith(" kept")


def test_what_a_pod_asks_for():
    """Containers 3 cores, a sidecar of 0.5 started first, then an init container of 4 beside it: max(3 + 0.5, 4 + 0.5) = 4.5, and 0.25 of
    overhead. Memory: containers 1 GiB, init 512 MiB. A limit without a request counts."""
    asked = requests({
        "containers": [{"resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "8"}}},
                       {"resources": {"limits": {"cpu": "1"}}}],
        "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
                           {"resources": {"requests": {"cpu": "4", "memory": "512Mi"}}}],
        "overhead": {"cpu": "250m"},
    }, "t")
    assert asked == {"cpu": 4.75, "memory": 2.0**30}
    assert requests({"containers": [{}]}, "t") == {}


@pytest.mark.parametrize("text, value", [
    ("500m", 0.5), ("2", 2), (3, 3), (0.5, 0.5), ("64Gi", 64 * 2**30), ("1e3", 1000), ("1.5k", 1500), ("100u", 1e-4), ("2M", 2e6),
    ("1E", 1e18), ("3.", 3),
])
def test_quantities(text: object, value: float):
    assert amount(text, "t") == pytest.approx(value, rel=1e-12)
    for wrong in ("", "x", "1GB", "-1", None, True, "1 Gi", "5mi"):
        with pytest.raises(BadInput, match="must be a quantity"):
            amount(wrong, "t")


def node(name: str, gpus: int, cpu: str, product: str = "", **spec) -> dict:
    labels = {"nvidia.com/gpu.product": product} if product else {}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec,
            "status": {"allocatable": {"cpu": cpu, "memory": "263842048Ki", "nvidia.com/gpu": str(gpus)}}}


def test_kubectl_nodes_become_a_cluster(tmp_path: Path):
    nodes = [node("b", 8, "95500m", "A100"), node("a", 0, "16"), node("c", 8, "95", "A100", unschedulable=True)]
    path = listed(tmp_path, {"kind": "List", "items": [*nodes, *PODS["items"], {"kind": "Service"}]}, "all.json")
    section, report = run("kubectl", path, what="nodes")
    cluster = build(parse(section))
    assert [(s.gpu_model, s.gpus, s.cores, s.sockets, s.memory_mib) for s in cluster.shapes] == [
        ("A100", 8, 95, 2, 257_658), ("none", 0, 16, 1, 257_658)]
    assert cluster.shape_of.tolist() == [0, 0, 1] and cluster.name == "all"
    assert counted(report, "cordoned").startswith("cordoned nodes: 1")
    assert counted(report, "neither pods nor nodes").endswith("1 not read")
    assert run("kubectl", path)[0].num_rows == 4
    bare = {"kind": "NodeList", "items": [nodes[0] | {"kind": None}]}
    assert isinstance(run("kubectl", listed(tmp_path, bare, "n.json"))[0], dict)


@pytest.mark.parametrize("document, words", [
    ({"items": []}, "holds no nodes; `kubectl get pods -A -o json` lists pods"),
    ([1], "must be a JSON object, is list"),
    ({"items": 3}, "items must be a list, is 3"),
    ({"items": [3]}, "item 0: must be a JSON object, is int"),
    ({"items": [{"kind": "Pod"}]}, "pod 0: metadata.name or metadata.creationTimestamp is missing"),
    ({"items": [pod("a", "01:00", asked={"cpu": "many"})]}, r"pod 0 \(ml/a\): 'many' must be a quantity"),
    ({"items": [pod("a", "01:00", asked={"nvidia.com/gpu": "9999"})]}, "asks for 9999 GPUs"),
    ({"items": [pod("a", "1h")]}, "column created, row 0: '2026-01-31T12:1hZ' must be a time"),
    ({"items": [pod("a", "01:00", priority="high")]}, "pod 0: priority must be a whole number, is high"),
    ({"items": [{"kind": "Node", "status": {}}]}, "node 0: no allocatable or capacity of cpu"),
])
def test_broken_kubectl_output_is_one_clear_line(document: object, words: str, tmp_path: Path):
    with pytest.raises(BadInput, match=words) as error:
        run("kubectl", listed(tmp_path, document))
    assert "\n" not in str(error.value)
    with pytest.raises(BadInput, match="must be JSON, but seems to be"):
        run("kubectl", written(tmp_path, "NAMESPACE   NAME   READY\nml   a   1/1\n"))
