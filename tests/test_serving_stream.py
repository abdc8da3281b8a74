"""Requests streamed: a replay that is given its trace in pieces of any size writes the tables of a replay that has it at once."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.app import main
from harness.errors import BadInput, InvalidIntention
from harness.metrics.requests import requests_table
from harness.metrics.serving import serving_summary, serving_utilization
from harness.serving.hooks import load_policy, policy_names
from harness.serving.replay import replay
from harness.stream import serve_to_files
from harness.tables import TraceFile, read_trace, write_table
from harness.workload import stream
from serving_worlds import facts, pool, suited, trace, world


def setting(policy: str, seed: int) -> tuple[Any, Any]:
    """A trace in order of arrival, and a pool that is too small for it."""
    rows = world(seed, n=40, span=2.0)
    keys: dict = {"kv_blocks": 45, "batch": 6, "replicas": 2, "predictor_sigma": 0.3}
    slo = (0.25, 0.5, None)
    columns: dict = {"tenant": [(f"t{i % 3}", None)[i % 5 == 4] for i in range(len(rows))],
                     "ttft_slo_s": [slo[i % 3] for i in range(len(rows))], "priority": [i % 4 for i in range(len(rows))]}
    rows[7] = (rows[7][0], 900, 5)  # rejected
    rows, keys, columns = suited(policy, rows, keys, columns)
    return trace(rows, **columns), pool(**keys)


def at_once(path: Path, where: Any, policy: Any, folder: Path, horizon_s: float, interval_s: float | None, warmup_s: float) -> dict:
    """The tables of a cell, replayed at once."""
    outcome = replay(read_trace(path), where, policy, 3, horizon_s)
    folder.mkdir()
    write_table(requests_table(outcome), folder / "requests.parquet")
    utilization = serving_utilization(outcome, interval_s, warmup_s)
    return {"requests": (folder / "requests.parquet").read_bytes(), "utilization": utilization,
            "metrics": list(serving_summary(outcome, utilization, warmup_s).items()), "events": outcome.events}


def in_pieces(path: Path, where: Any, policy: Any, folder: Path, horizon_s: float, interval_s: float | None, warmup_s: float) -> dict:
    folder.mkdir()
    done = serve_to_files(TraceFile(path), where, policy, folder, 3, horizon_s, warmup_s, interval_s)
    assert [file.name for file in folder.iterdir()] == ["requests.parquet"]
    return {"requests": (folder / "requests.parquet").read_bytes(), "utilization": done.utilization,
            "metrics": list(done.metrics.items()), "events": done.outcome.events}


def cut_to(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.tables.parquet.ROW_GROUP", rows)
    monkeypatch.setattr("harness.metrics.serving_stream.READ_AT_ONCE", rows)


@pytest.mark.parametrize("policy", policy_names())
def test_any_window_writes_the_same_tables(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    loaded = load_policy(policy)
    for seed, rows, rest in ((0, 1, (np.inf, None, 0.0)), (1, 7, (1.5, 0.3, 0.25)), (2, 15, (np.inf, 0.5, 1.0))):
        cut_to(rows, monkeypatch)
        table, where = setting(policy, seed)
        write_table(table, tmp_path / f"{seed}.parquet")
        once, pieces = (play(tmp_path / f"{seed}.parquet", where, loaded, tmp_path / f"{seed}{play.__name__}", *rest)
                        for play in (at_once, in_pieces))
        assert once == pieces, f"world {seed}, {rows} rows at a time"


def test_requests_of_one_instant_stay_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Five at 0, seven at 1 s and one at 2 s, two at a time, by size: the smallest of the instant is first, in whatever block it is."""
    cut_to(2, monkeypatch)
    rows = [*((0.0, 10, 9 - i) for i in range(5)), *((1.0, 10, 9 - i) for i in range(7)), (2.0, 10, 1)]
    write_table(trace(rows), tmp_path / "t.parquet")
    where = pool(replicas=1, batch=1)
    once, pieces = (play(tmp_path / "t.parquet", where, load_policy("sjf"), tmp_path / play.__name__, np.inf, None, 0.0)
                    for play in (at_once, in_pieces))
    assert once == pieces
    start = pq.read_table(tmp_path / "in_pieces" / "requests.parquet")["start_time"].to_pylist()
    assert start[4] == 0.0 and start[:5] == sorted(start[:5], reverse=True)


def test_a_full_log_is_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A log with no more room than one instant may take is emptied over and over."""
    from harness.serving import run
    from harness.serving.log import new_log

    table, where = setting("fcfs", 4)
    write_table(table, tmp_path / "t.parquet")
    once = at_once(tmp_path / "t.parquet", where, load_policy("fcfs"), tmp_path / "once", np.inf, None, 0.0)
    monkeypatch.setattr(run, "new_log", lambda room: new_log(room // 2 + 1))
    emptied = []
    monkeypatch.setattr("harness.metrics.serving_stream.RequestWriter.logged", counted(emptied))
    assert in_pieces(tmp_path / "t.parquet", where, load_policy("fcfs"), tmp_path / "pieces", np.inf, None, 0.0) == once
    assert len(emptied) > 20


def counted(calls: list):
    from harness.metrics.serving_stream import RequestWriter

    usual = RequestWriter.logged

    def logged(self, log):
        calls.append(log)
        usual(self, log)

    return logged


def test_the_command_streams_requests(tmp_path: Path):
    path = tmp_path / "requests.parquet"
    write_table(trace(world(3, n=30)), path)
    cells = {}
    for workload in ("requests", "trace"):
        for streamed in ("true", "false"):
            out = tmp_path / workload / streamed
            assert main([f"workload={workload}", f"workload.path={path}", f"workload.stream={streamed}", "policy=srpt", f"out={out}",
                         "progress=false", "warmup_s=1", "interval_s=0.5"]) == 0
            folder = next(out.glob("*/manifest.json")).parent
            assert not [file for file in folder.iterdir() if file.name == ".scratch"]
            tables = ("requests.parquet", "utilization.parquet", "summary.json")
            cells[workload, streamed] = [(folder / name).read_bytes() for name in tables]
    assert len({tuple(cell) for cell in cells.values()}) == 1


def test_a_co_located_trace_is_never_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Its stages need the whole of it: a large one is loaded, and asking for a stream is refused."""
    from harness.halves import replay_into

    path = tmp_path / "requests.parquet"
    write_table(trace(world(3, n=30)), path)
    words = ["colocation=day", "workload=requests", f"workload.path={path}", f"out={tmp_path / 'out'}", "progress=false"]
    assert main([*words, "workload.stream=true"]) == 2
    assert "workload.stream=true: co-location needs the whole trace" in capsys.readouterr().err
    monkeypatch.setattr("harness.workload.trace.STREAMED_ROWS", 3)
    monkeypatch.setattr("harness.halves._load", lambda sections, seed: (None, trace([(0.0, 1, 1)])))
    halves = []
    monkeypatch.setattr("harness.halves._colocated", lambda *given: halves.append("colocated") or ({}, {}))
    monkeypatch.setattr("harness.halves._served", lambda *given: halves.append("streamed") or ({}, {}))
    section = {"generator": "requests", "path": str(path)}
    for colocation in ({"days": 1}, None):
        replay_into(tmp_path, {"workload": section, "cluster": {}, "seed": 0, "colocation": colocation}, {}, None)
    assert halves == ["colocated", "streamed"]


def test_which_traces_of_requests_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, falling = (str(tmp_path / f"{name}.parquet") for name in ("sorted", "falling"))
    write_table(trace([(0.0, 1, 1), (1.0, 1, 1)]), path)
    write_table(trace([(1.0, 1, 1), (0.0, 1, 1)]), falling)
    assert stream("requests", {"path": path}) is None and stream("requests", {"path": path, "stream": True}) is not None
    with pytest.raises(BadInput, match="workload.max_tokens cannot be applied to it"):
        stream("requests", {"path": path, "stream": True, "max_tokens": 9})
    with pytest.raises(BadInput, match="must have jobs or requests, sorted by arrival_time"):
        stream("trace", {"path": falling, "stream": True})
    monkeypatch.setattr("harness.workload.trace.STREAMED_ROWS", 2)
    for generator in ("requests", "trace"):
        assert stream(generator, {"path": path}) is not None and stream(generator, {"path": falling}) is None
        assert stream(generator, {"path": path, "load_scale": 2.0}) is None


def test_faults_of_a_streamed_trace_name_the_request_and_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cut_to(4, monkeypatch)
    path, file = tmp_path / "t.parquet", tmp_path / "wrong.py"
    write_table(trace([(float(i), 5, 5) for i in range(11)], service=["llama3_8b"] * 9 + ["gpt", "llama3_8b"]), path)
    file.write_text("def route(view, own, q):\n    return 99 if q == 6 else 0\n")
    with pytest.raises(InvalidIntention, match="policy wrong, request r6, replica 99, time 6 s: route names a replica that there is not"):
        serve_to_files(TraceFile(path), pool(), load_policy(file=str(file)), tmp_path, 0, np.inf, 0.0, None)
    (tmp_path / "out").mkdir()
    with pytest.raises(BadInput, match="requests, row 9: service='gpt' is none of pool.models"):
        serve_to_files(TraceFile(path), pool(models=[facts("model", "llama3_8b")]), load_policy("fcfs"), tmp_path / "out", 0, np.inf, 0.0,
                       None)
    write_table(trace([(float(i), 5, 5) for i in range(6)]).set_column(0, "request_id", [[*"abcdea"]]), path)
    with pytest.raises(BadInput, match="column request_id: 'a' is there twice, must be unique"):
        list(TraceFile(path).checked_blocks())


def test_a_disk_that_is_too_small_is_said_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_table(trace([(0.0, 5, 5)] * 3), tmp_path / "t.parquet")
    monkeypatch.setattr("harness.stream.BYTES_PER_REQUEST", 1 << 50)
    with pytest.raises(BadInput, match="GiB free; to stream 3 requests takes"):
        serve_to_files(TraceFile(tmp_path / "t.parquet"), pool(), load_policy("fcfs"), tmp_path, 0, np.inf, 0.0, None)


def test_the_tables_of_a_summary_can_be_read_back(tmp_path: Path):
    """What is kept of each request is what the requests table says."""
    write_table(trace(world(5, n=30)), tmp_path / "t.parquet")
    found = in_pieces(tmp_path / "t.parquet", pool(replicas=1, batch=3), load_policy("fcfs"), tmp_path / "out", np.inf, None, 0.0)
    table = pq.read_table(tmp_path / "out" / "requests.parquet")
    metrics = json.loads(json.dumps(dict(found["metrics"])))
    assert metrics["e2e_s_mean"] == pytest.approx(np.mean(table["e2e_s"].to_numpy()), rel=1e-12)
    assert metrics["requests"] == 30 and metrics["steps"] > 0
