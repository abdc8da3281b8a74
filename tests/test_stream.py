"""A replay that holds a window of its trace is the replay of the whole trace: bit for bit, for every policy and window."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine_run import RULES, cluster_of, trace_of
from harness.app import main
from harness.cluster.build import Requests, Rules
from harness.cluster.hooks import load_policy, policy_names
from harness.cluster.log import HOLDER, PREEMPTOR, VICTIM_FROM, WALL
from harness.cluster.outcome import Outcome
from harness.cluster.replay import replay
from harness.cluster.state import Array, Table
from harness.cluster.window import replay_in_window
from harness.errors import BadInput
from harness.metrics import jobs_table, preemptions_table, summary, utilization_table
from harness.stream import replay_to_files
from harness.tables import TraceFile, read_trace, write_table
from harness.workload import stream
from naive import DEFAULTS
from test_twin import NAMED
from worlds import World, world

IN_DEFAULT_RUN, IN_LONG_RUN = 5, 200
OF_WINDOW = ("first_instance", "end_instance")
"""Fields of a job that say where it is in the tables."""


class Collected:
    """A sink that keeps everything, by rows of the trace."""

    def __init__(self):
        self.jobs: dict[int, Any] = {}
        self.servers: dict[int, list[int]] = {}
        self.log: dict[str, list] = {name: [] for name in ("rows", "numbers", "victims", "attempts", "held")}
        self.windows = 0

    def opened(self, first_row: int, jobs: Table) -> None:
        self.windows += 1

    def logged(self, piece: Outcome, rows: Array) -> None:
        log, size = piece.log, piece.log.size
        named, held, attempts = log.rows[:size[0]].copy(), log.held[:size[3]].copy(), log.attempts[:size[2]].copy()
        named[:, PREEMPTOR] = rows[named[:, PREEMPTOR]]
        named[:, VICTIM_FROM] += len(self.log["victims"])
        held[:, HOLDER] = rows[held[:, HOLDER].astype(int)]
        attempts[:, 0] = rows[attempts[:, 0].astype(int)]
        for name, part in (("rows", named), ("numbers", log.numbers[:size[0]]), ("victims", rows[log.victims[:size[1]]]),
                           ("attempts", attempts), ("held", held)):
            self.log[name] += part.tolist()

    def left(self, rows: Array, jobs: Table, ran_on: Array, end: float) -> None:
        at = 0
        for row, job in zip(rows.tolist(), jobs, strict=True):
            assert row not in self.jobs
            self.jobs[row] = job
            self.servers[row] = ran_on[at:at + job.end_instance - job.first_instance].tolist()
            at += job.end_instance - job.first_instance
        assert at == len(ran_on)


STREAMED = [name for name in policy_names() if not load_policy(name).needs_trace]


def sorted_trace(jobs: list[dict[str, Any]]) -> pa.Table:
    return trace_of(sorted(jobs, key=lambda job: job["submit_time"]))


def setting(drawn: World, policy: str) -> tuple[pa.Table, Any, Any, Rules]:
    """Trace in order of arrival, cluster, policy and rules of a world."""
    jobs, servers, options = drawn
    chosen = {**DEFAULTS, **options}
    rules = Rules(**{name: chosen.pop(name) for name in RULES})
    params = {name: value for name, value in chosen.items() if name in load_policy(policy).params}
    if params.get("forecaster") == "oracle":
        params["forecaster"] = "lin"
    return sorted_trace(jobs), cluster_of(servers), load_policy(policy, params=params), rules


def differences(drawn: World, policy: str, rows: int) -> list[str]:
    """What differs between the replay of the whole trace and one that is given ``rows`` rows at a time."""
    trace, cluster, chosen, rules = setting(drawn, policy)
    whole = replay(trace, cluster, chosen, rules)
    requests, found = Requests(), Collected()
    for at in range(0, trace.num_rows, rows):
        requests.number(trace.slice(at, rows))
    last = replay_in_window((trace.slice(at, rows) for at in range(0, trace.num_rows, rows)), requests, cluster, chosen, rules, found)
    unlike = [name for name in ("events", "decisions", "end", "capped", "reasons") if getattr(whole, name) != getattr(last, name)]
    for row, job in found.jobs.items():
        theirs = whole.state.jobs[row]
        unlike += [f"job {row}, {name}: {theirs[name]} is not {job[name]}" for name in job.dtype.names
                   if name not in OF_WINDOW and not np.array_equal(theirs[name], job[name], equal_nan=True)]
        servers = whole.state.instances.ran_on[theirs.first_instance:theirs.end_instance].tolist()
        unlike += [f"job {row}, servers: {servers} is not {found.servers[row]}"] if servers != found.servers[row] else []
    unlike += [] if len(found.jobs) == trace.num_rows else ["jobs are missing"]
    log = whole.log
    for kind, name in enumerate(("rows", "victims", "attempts", "held")):
        theirs = getattr(log, name)[:log.size[kind]].tolist()
        unlike += [f"log, {name}"] if theirs != found.log[name] else []
    numbers = np.array(found.log["numbers"]).reshape(-1, 3)
    unlike += ["log, numbers"] if not np.array_equal(np.delete(numbers, WALL, 1), np.delete(log.numbers[:log.size[0]], WALL, 1)) else []
    return unlike


def agree(policy: str, seeds: range) -> None:
    for seed in seeds:
        for rows in (1, 4) if seed % 2 else (2, 11):
            assert differences(world(seed), policy, rows) == [], f"world {seed}, {rows} rows at a time"


@pytest.mark.parametrize("policy", STREAMED)
def test_any_window_gives_the_same_replay(policy: str):
    agree(policy, range(IN_DEFAULT_RUN))


@pytest.mark.parametrize(("policy", "params"), [("gfs", {"forecaster": "oracle"}), ("kueue", {})])
def test_who_must_know_the_trace_is_refused_a_streamed_one(policy: str, params: dict[str, Any]):
    trace, cluster, _, rules = setting(world(0), policy)
    with pytest.raises(BadInput, match=f"policy {policy}: .* must be run with workload.stream=false"):
        replay_in_window(iter([trace]), Requests(), cluster, load_policy(policy, params=params), rules, Collected())


@pytest.mark.slow
@pytest.mark.parametrize("policy", STREAMED)
def test_any_window_gives_the_same_replay_on_many_worlds(policy: str):
    agree(policy, range(IN_DEFAULT_RUN, IN_LONG_RUN))


@pytest.mark.parametrize(("policy", "seed"), NAMED)
def test_any_window_gives_the_same_replay_on_named_worlds(policy: str, seed: int):
    assert differences(world(seed), policy, 2) == []


def tables(folder: Path) -> dict[str, Any]:
    """The bytes of a cell's jobs and utilization tables, its preemptions without the column of wall time, and its metrics."""
    preemptions = pq.read_table(folder / "preemptions.parquet")
    metrics = json.loads((folder / "summary.json").read_text())
    del metrics["search_wall_us_p50"]
    return {"jobs": (folder / "jobs.parquet").read_bytes(), "utilization": (folder / "utilization.parquet").read_bytes(),
            "preemptions": preemptions.drop(["search_wall_us"]), "metrics": metrics}


def written(drawn: World, policy: str, folder: Path, warmup_s: float, interval_s: float | None) -> tuple[Path, Path]:
    """Folders of the tables of one world, replayed at once and streamed."""
    trace, cluster, chosen, rules = setting(drawn, policy)
    trace = trace.append_column("evictions", pa.array([f"row {row}" for row in range(trace.num_rows)]))
    write_table(trace, folder / "trace.parquet")
    once, streamed = folder / "once", folder / "streamed"
    once.mkdir()
    streamed.mkdir()
    outcome = replay(read_trace(folder / "trace.parquet"), cluster, chosen, rules)
    jobs, utilization = jobs_table(outcome), utilization_table(outcome, interval_s, warmup_s)
    metrics = summary(outcome, cluster, jobs, utilization, warmup_s)
    write_table(jobs, once / "jobs.parquet")
    write_table(preemptions_table(outcome), once / "preemptions.parquet")
    done = replay_to_files(TraceFile(folder / "trace.parquet"), cluster, chosen, rules, streamed, warmup_s, interval_s)
    assert [path.name for path in streamed.iterdir() if path.name.startswith(".")] == []
    for place, used, found in ((once, utilization, metrics), (streamed, done.utilization, done.metrics)):
        write_table(used, place / "utilization.parquet")
        (place / "summary.json").write_text(json.dumps(found))
    assert list(metrics) == list(done.metrics)
    return once, streamed


@pytest.mark.parametrize("policy", ("easy_backfill", "godel"))
def test_a_streamed_cell_writes_the_same_tables(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for seed in range(6):
        for rows in (1, 7):
            monkeypatch.setattr("harness.tables.parquet.ROW_GROUP", rows)
            monkeypatch.setattr("harness.metrics.stream.READ_AT_ONCE", rows)
            folder = tmp_path / f"{seed}-{rows}"
            folder.mkdir()
            once, streamed = written(world(seed), policy, folder, *((0.0, None) if seed % 2 else (5.0, 3.0)))
            assert tables(once) == tables(streamed), f"world {seed}, {rows} rows at a time"


def trace_file(path: Path, **columns: list) -> Path:
    rows = len(next(iter(columns.values())))
    plain = {"job_id": [f"j{row}" for row in range(rows)], "submit_time": [float(row) for row in range(rows)],
             "duration": [1.0] * rows, "gpus": [1] * rows}
    pq.write_table(pa.table({**plain, **columns}), path, row_group_size=3)
    return path


def read(path: Path) -> list[pa.Table]:
    return list(TraceFile(path).checked_blocks())


def test_blocks_have_the_rows_of_the_file_whatever_its_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = trace_file(tmp_path / "trace.parquet", gpus=list(range(20)), note=[f"row {row}" for row in range(20)])
    for rows in (1, 2, 5, 7, 100):
        monkeypatch.setattr("harness.tables.parquet.ROW_GROUP", rows)
        blocks = read(path)
        assert [block.num_rows for block in blocks] == [min(rows, 20 - at) for at in range(0, 20, rows)]
        assert pa.concat_tables(blocks).equals(read_trace(path))
        assert pa.concat_tables(TraceFile(path).blocks()).equals(read_trace(path))


@pytest.mark.parametrize(("columns", "said"), [
    ({"duration": [1.0] * 7 + [-2.0]}, "(rows counted from 4): column duration, row 3: -2.0 is negative, must be a finite number > 0 (s)"),
    ({"job_id": ["a", "b", "c", "d", "e", "f", "g", "b"]}, "column job_id: 'b' is there twice, must be unique"),
])
def test_what_is_wrong_in_a_later_block_is_named(columns: dict[str, list], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harness.tables.parquet.ROW_GROUP", 4)
    path = trace_file(tmp_path / "trace.parquet", **columns)
    with pytest.raises(BadInput) as caught:
        read(path)
    assert said in str(caught.value) and str(path) in str(caught.value)


def test_names_with_the_same_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harness.tables.blocks.string_hashes", lambda names: np.zeros(len(names), np.uint64))
    assert sum(block.num_rows for block in read(trace_file(tmp_path / "trace.parquet", gpus=[1] * 9))) == 9


def test_a_truncated_trace_is_bad_input(tmp_path: Path):
    path = trace_file(tmp_path / "trace.parquet", gpus=[1] * 9)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BadInput, match="truncated or corrupt"):
        read(path)


def test_which_traces_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Asked for: those that can be; by themselves: large ones that can be."""
    path = str(trace_file(tmp_path / "trace.parquet", gpus=[1] * 9))
    falling = str(trace_file(tmp_path / "falling.parquet", submit_time=[3.0, 1.0, 2.0]))

    def found(**params: Any) -> bool:
        return stream("trace", params) is not None

    assert found(path=path, stream=True) and not found(path=path) and not found(path=path, stream=False)
    for params, why in (({"path": path, "first": 3}, "workload.first"), ({"path": falling}, "sorted by submit_time")):
        with pytest.raises(BadInput, match=why):
            found(**params, stream=True)
    monkeypatch.setattr("harness.workload.trace.STREAMED_ROWS", 3)
    assert found(path=path) and not found(path=path, stream=False) and not found(path=path, first=3) and not found(path=falling)


def test_the_command_streams(tmp_path: Path):
    """Three jobs of one GPU on one GPU, one after the other: 0 to 2, 2 to 4, 4 to 6."""
    path = trace_file(tmp_path / "trace.parquet", duration=[2.0] * 3)
    for streamed in ("true", "false"):
        assert main(["policy=fifo", "cluster=flat", "cluster.servers=1", "cluster.gpus=1", "workload=trace", f"workload.path={path}",
                     f"workload.stream={streamed}", f"out={tmp_path / streamed}", "progress=false"]) == 0
    once, parts = (next((tmp_path / name).glob("*/jobs.parquet")).parent for name in ("false", "true"))
    assert pq.read_table(parts / "jobs.parquet")["finish_time"].to_pylist() == [2.0, 4.0, 6.0]
    assert tables(once) == tables(parts)
    assert sorted(path.name for path in once.iterdir()) == sorted(path.name for path in parts.iterdir())
