"""Mutated traces and files through the command's own main: exit status 0 or 2, one line when refused, never a traceback."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from harness.schema import JOBS, REQUESTS, SERVICES
from harness.tables import fill_defaults, write_table
from harness.traces_app import main


def jobs(rows: int = 6) -> pa.Table:
    return fill_defaults(
        pa.table(
            {
                "job_id": [f"j{i}" for i in range(rows)],
                "submit_time": np.arange(rows) * 100.0,
                "duration": np.full(rows, 150.0),
                "gpus": pa.array([1, 2] * (rows // 2), pa.int16()),
                "kind": ["batch", "online"] * (rows // 2),
            }
        ),
        JOBS,
    )


def mutated_table(rng: np.random.Generator, table: pa.Table) -> pa.Table:
    """One to three changes that a trace of somebody else's may have."""
    odd = [None, np.nan, np.inf, -1, 0, 0.5, 1e300, 2**40, -(2**63), "", "x", "batch", True, [1], {"a": 1}]
    kinds = [
        pa.int8(),
        pa.int64(),
        pa.uint64(),
        pa.float32(),
        pa.float16(),
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.bool_(),
        pa.date32(),
        pa.timestamp("us"),
        pa.decimal128(20, 2),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.int64()),
        pa.null(),
    ]
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(table.num_columns))
        name = table.column_names[at]
        change = rng.integers(7)
        if change == 0 and table.num_columns > 1:
            table = table.drop_columns([name]) if table.column_names.count(name) == 1 else table
        elif change == 1:
            table = table.rename_columns(
                [rng.choice(["", "gpus", "job_id", "zz", name]) if i == at else n for i, n in enumerate(table.column_names)]
            )
        elif change == 2:
            try:
                table = table.set_column(at, name, table.column(at).cast(kinds[rng.integers(len(kinds))], safe=False))
            except (pa.ArrowException, ValueError):
                table = table.set_column(at, name, pa.nulls(table.num_rows))
        elif change == 3:
            values = table.column(at).to_pylist()
            for row in rng.integers(len(values) or 1, size=rng.integers(1, 4)):
                if values:
                    values[row] = odd[rng.integers(len(odd))]
            try:
                table = table.set_column(at, name, pa.array(values))
            except (pa.ArrowException, OverflowError):
                continue
        elif change == 4:
            table = pa.concat_tables([table, table.slice(0, int(rng.integers(table.num_rows + 1)))])
        elif change == 5:
            table = table.slice(0, int(rng.integers(table.num_rows + 1)))
        else:
            table = table.append_column(
                rng.choice(["extra", name, "replicas"]), pa.array([odd[rng.integers(5)]] * table.num_rows)
            )
    return table


def refused_or_done(capsys: pytest.CaptureFixture[str], words: list[str], case: object) -> int:
    status = main(words)
    shown = capsys.readouterr()
    assert status in (0, 2), case
    assert (shown.err == "") == (status == 0), (case, shown.err)
    assert "Traceback" not in shown.err and all(line.startswith("harness-traces: ") for line in shown.err.splitlines()), case
    if words[0] != "validate":
        assert len(shown.err.splitlines()) == (status == 2), (case, shown.err)
    return status


@pytest.mark.parametrize("base", [0, 1, 2])
def test_mutated_traces_are_described_or_refused(base: int, capsys, tmp_path: Path):
    services = fill_defaults(
        pa.table(
            {
                "service": ["a", "b", "a"],
                "time": [0.0, 1.0, 2.0],
                "replicas": pa.array([1, 2, 3], pa.int32()),
                "gpus": pa.array([1, 1, 1], pa.int16()),
            }
        ),
        SERVICES,
    )
    requests = fill_defaults(
        pa.table(
            {
                "request_id": ["a", "b"],
                "arrival_time": [0.0, 1.0],
                "prompt_tokens": pa.array([1, 2], pa.int32()),
                "output_tokens": pa.array([1, 2], pa.int32()),
                "prefix_hashes": [[1, 2], None],
            }
        ),
        REQUESTS,
    )
    whole = (jobs(), services, requests)[base]
    seen = set()
    for case in range(130):
        rng = np.random.default_rng([base, case])
        try:
            write_table(mutated_table(rng, whole), tmp_path / "m.parquet")
        except (pa.ArrowException, ValueError):
            continue
        sound = refused_or_done(capsys, ["validate", str(tmp_path / "m.parquet")], (base, case))
        described = refused_or_done(capsys, ["describe", str(tmp_path / "m.parquet"), "--cluster", "flat"], (base, case))
        cut = refused_or_done(
            capsys,
            ["slice", str(tmp_path / "m.parquet"), "-o", str(tmp_path / "s.parquet"), "--start", "1", "--rebase"],
            (base, case),
        )
        assert described == sound and (cut == 2 or sound == 0), (base, case)
        if cut == 0:
            assert refused_or_done(capsys, ["validate", str(tmp_path / "s.parquet")], (base, case)) == 0
        seen.add(sound)
    assert seen == {0, 2}


SAMPLES = {
    "philly": "timestamp,duration,num_gpus,cluster\n2017-09-05 00:00:00,60,1,a\n2017-09-04 23:00:00,3600,16,b\n",
    "alibaba-openb": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
    "p0,12000,16384,1,1000,,LS,Running,0,1000,10\np1,6500,12288,1,460,T4|A10,BE,Failed,5,105,6\n",
    "alibaba-spot": "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
    "a,1,A10,20,1,1,0,1000,HP\nb,2,H800,8,0.5,4,200,50,Spot\n",
    "alibaba-dlrm": "instance_sn,role,app_name,cpu_request,gpu_request,memory_request,creation_time,scheduled_time,deletion_time\n"
    "i0,HN,x,12,1,120.0,,,\ni1,CN,x,64,0,937.5,,,500.0\ni2,HN,y,8,1,120.0,475.00000000000006,480.0,980.0\n",
    "muri": "job_id,num_gpu,submit_time,duration,model_name,priority\n0,1,0,2868294000,dqn,1\n1,32,10817570000,15225000,gpt2,0\n",
    "helios": "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "1,u,v,1,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:51:01,600,0\n"
    "2,u,v,16,8,2,FAILED,2020-06-09 18:41:01,2020-06-09 18:41:01,,,0\n",
    "acme": "job_id,user,type,gpu_num,cpu_num,node_num,mem_per_pod_GB,state,submit_time,start_time,end_time,duration\n"
    "1,u,Eval,1,4,1,10,COMPLETED,2020-06-09 18:41:01+08:00,2020-06-09 18:41:01+08:00,2020-06-09 18:51:01+08:00,600\n",
    "swf": "; MaxNodes: 2\n; MaxProcs: 4\n 1 0 0 5 1 -1 -1 1 10 -1 1 1 1 -1 1 -1 -1 -1\n 2 3 0 7 2 -1 -1 2 10 -1 1 1 1 -1 1 -1 -1 -1\n",
    "sacct": "JobID|Submit|Start|End|State|AllocTRES|Timelimit|Priority\n"
    "1|2024-05-01T10:00:00|2024-05-01T10:00:10|2024-05-01T10:10:10|COMPLETED|cpu=16,gres/gpu=2,mem=64G,node=1|1-00:00:00|5\n"
    "2_1|2024-05-01T10:00:00|2024-05-01T10:00:10|Unknown|RUNNING|cpu=16,gres/gpu=2,mem=64G,node=2|30:00|5\n",
    "kubectl": '{"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "a", "creationTimestamp": "2026-01-31T12:00:00Z"},\n'
    '"status": {"phase": "Succeeded", "startTime": "2026-01-31T12:00:00Z", "containerStatuses": [{"state": {"terminated": {\n'
    '"finishedAt": "2026-01-31T12:01:00Z"}}}]}, "spec": {"priority": 3, "containers": [{"resources": {"requests": {"cpu": "500m",\n'
    '"memory": "1Gi", "nvidia.com/gpu": "1"}}}]}}]}\n',
    "alibaba-openb-nodes": "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,65536,0,\nn1,96000,393216,8,G2\n",
}


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_mutated_files_are_imported_whole_or_refused(name: str, capsys, tmp_path: Path):
    """Bytes flipped, fields replaced, lines lost or doubled, the end cut off."""
    odd = [
        "",
        "-1",
        "0",
        "nan",
        "inf",
        "1e400",
        "99999999999999999999",
        "x",
        '"',
        '"a\nb"',
        "a,b",
        "\t",
        "\u00e9",
        "2017-13-01 00:00:00",
        "NULL",
        "Unknown",
        "1e300",
        "-1e9",
        "2024-05-01T10:00:00",
        "cpu=1",
        "{}",
        "[3]",
    ]
    seen = set()
    for case in range(120):
        rng = np.random.default_rng([len(name), case])
        sign = {"swf": " ", "sacct": "|"}.get(name, ",")
        lines = [line.split(sign) for line in SAMPLES[name].splitlines()]
        for _ in range(rng.integers(1, 3)):
            row = int(rng.integers(len(lines)))
            change = rng.integers(4)
            if change <= 1 and lines[row]:
                lines[row][rng.integers(len(lines[row]))] = odd[rng.integers(len(odd))]
            elif change == 2:
                lines[row] = lines[row][: int(rng.integers(len(lines[row]) + 1))]
            else:
                lines.insert(row, list(lines[row]))
        data = bytearray("\n".join(sign.join(line) for line in lines).encode())
        if data and rng.random() < 0.3:
            data[rng.integers(len(data))] = rng.integers(256)
        if rng.random() < 0.1:
            data = data[: int(rng.integers(len(data) + 1))]
        (tmp_path / "m.csv").write_bytes(data)
        out = tmp_path / "out"
        out.unlink(missing_ok=True)
        status = refused_or_done(capsys, ["import", name, str(tmp_path / "m.csv"), "-o", str(out)], (name, case))
        assert out.exists() == (status == 0) and sorted(p.name for p in tmp_path.iterdir()) in (["m.csv"], ["m.csv", "out"])
        if status == 0 and name != "alibaba-openb-nodes":
            assert refused_or_done(capsys, ["validate", str(out)], (name, case)) == 0
        seen.add(status)
    assert seen == {0, 2}
