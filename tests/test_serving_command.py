"""The command on requests: which half a cell is, its tables, and errors in one line."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness import schema
from harness.app import main
from harness.tables import write_table
from harness.workload import load
from serving_worlds import trace, world

SMALL = ["workload=azure_like", "workload.duration_s=15", "progress=false"]


def cells(out: Path) -> list[Path]:
    return [path.parent for path in out.glob("*/manifest.json")]


def test_a_cell_of_requests_has_its_tables(tmp_path: Path):
    assert main([*SMALL, "policy=fcfs", f"out={tmp_path}"]) == 0
    folder, = cells(tmp_path)
    table = pq.read_table(folder / "requests.parquet")
    assert table.column_names == schema.names(schema.RESULT_REQUESTS)
    assert pq.read_table(folder / "utilization.parquet").column_names == schema.names(schema.SERVING_UTILIZATION)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["requests"] == summary["requests_finished"] == table.num_rows and not (folder / "jobs.parquet").exists()


def test_a_file_of_requests_runs_under_either_workload(tmp_path: Path):
    file = tmp_path / "requests.parquet"
    write_table(trace(world(3, n=20)), file)
    for workload in ("requests", "trace"):
        out = tmp_path / workload
        assert main([f"workload={workload}", f"workload.path={file}", "policy=sjf", f"out={out}", "progress=false"]) == 0
        assert (cells(out)[0] / "requests.parquet").is_file()


@pytest.mark.parametrize("words, said", [
    (["policy=godel"], "policy=godel: there is no such policy; there are"),
    (["policy=fcfs", "pool.replicas=0"], "pool.replicas=0: must be at least 1"),
    (["policy=fcfs", "pool.gpu.hbm_tbs=0"], "pool.gpu.hbm_tbs=0: must be above 0"),
    (["policy=fcfs", "+policy.nope=1"], "policy fcfs has no such parameter"),
    (["policy=fcfs", "workload.duration_s=-1"], "workload.duration_s=-1"),
])
def test_bad_input_is_one_line(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main([*SMALL, *words, f"out={tmp_path}"]) == 2
    line = capsys.readouterr().err.strip()
    assert said in line and "\n" not in line and not cells(tmp_path)


def test_a_policy_outside_the_repository(tmp_path: Path):
    file = tmp_path / "lifo.py"
    file.write_text("def key(view, own, q):\n    return -view.requests.arrival[q]\n")
    assert main([*SMALL, f"policy.file={file}", f"out={tmp_path / 'out'}"]) == 0


def test_pecsched_transformation():
    """Of 2,000 requests and more the 2 % of the longest become long, 100K to 500K tokens, and the rest of the top 5 % is left out."""
    table = load("requests", {"synthetic_s": 300.0, "long_share": 0.02}, None, 4)  # type: ignore[arg-type]
    whole = load("azure_like", {"duration_s": 300.0}, None, 4)  # type: ignore[arg-type]
    tenant, prompt = np.array(table["tenant"].to_pylist()), table["prompt_tokens"].to_numpy()
    long = tenant == "long"
    assert set(tenant) == {"short", "long"} and abs(long.sum() / whole.num_rows - 0.02) < 0.01
    assert prompt[long].min() >= 100_000 and prompt[long].max() <= 500_000
    assert (~long).sum() == (whole["prompt_tokens"].to_numpy() < np.quantile(whole["prompt_tokens"].to_numpy(), 0.95)).sum()


def test_traces_on_one_clock(tmp_path: Path):
    files = []
    for i in range(2):
        files.append(tmp_path / f"{i}.parquet")
        write_table(trace([(1.0, 5, 5), (4.0, 6, 6)]), files[i])
    table = load("requests", {"paths": [str(f) for f in files], "offsets_s": [0.0, 2.0]}, None, 0)  # type: ignore[arg-type]
    assert table["arrival_time"].to_pylist() == [1.0, 3.0, 4.0, 6.0]
    assert table["request_id"].to_pylist() == ["0-r0", "1-r0", "0-r1", "1-r1"]
    twice = load("requests", {"path": str(files[0]), "repeats": 2}, None, 0)  # type: ignore[arg-type]
    assert twice["arrival_time"].to_pylist() == [1.0, 4.0, 7.0, 10.0]
