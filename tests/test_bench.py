"""The benchmark: the shape of its table, the referee values, and that what it times is what it says."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from harness.bench import __main__ as bench
from harness.bench import peers, processes, replays, suites
from harness.bench.cells import cells
from harness.bench.commands import STAGE, commands, profile
from harness.bench.imports import imports
from harness.bench.rows import HEADINGS, Row, number, render
from harness.bench.sizes import TINY, Sizes
from harness.bench.stages import STAGES
from harness.cluster.build import Rules
from harness.cluster.hooks import load_policy
from harness.cluster.replay import replay
from harness.metrics import jobs_table
from harness.topology import ClusterConfig, build
from harness.workload import load

FIELDS = {"what", "unit", "target", "sense", "measured", "ratio", "met", "of_machine", "detail"}
IN_PROCESS = tuple(section for section in bench.SECTIONS if section not in (commands, cells, imports, peers.peers))


def run_quick(sections: tuple[bench.Section, ...], file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK", TINY)
    monkeypatch.setattr(bench, "SECTIONS", sections)
    assert bench.main(["--quick", "--json", str(file)]) == 0


@pytest.mark.compiled
def test_a_quick_run_prints_the_table_and_writes_it_as_json(tmp_path, monkeypatch, capsys):
    run_quick(IN_PROCESS, tmp_path / "bench.json", monkeypatch)
    printed = capsys.readouterr().out.splitlines()
    document = json.loads((tmp_path / "bench.json").read_text())
    assert set(document) >= {"measured_at", "machine", "sizes", "rows"} and document["machine"]["versions"]["numba"]
    rows = {row["what"]: row for row in document["rows"]}
    assert len(rows) == len(document["rows"]) and all(set(row) == FIELDS for row in rows.values())
    assert len(printed) == 2 + 1 + 2 + len(rows) + 1  # heading and caveat, column names, two titles, rows, where the JSON is
    assert all(sum(line.startswith(f"{what}  ") for line in printed) == 1 for what in rows)
    assert all(heading in printed[2] for heading in HEADINGS)
    unmeasured = [row for row in rows.values() if row["measured"] is None]
    assert all("make" in row["what"] or "not installed" in row["detail"] or "not beside" in row["detail"] for row in unmeasured)
    assert rows["T1: 10,000 jobs, 64 servers, flat: mean wait"]["measured"] == 430.7464
    assert rows["T1: 10,000 jobs, 64 servers, flat: makespan"]["measured"] == 226_840
    assert [row["met"] for row in rows.values() if row["sense"] == "=="].count(True) >= 6
    assert all(row["met"] for row in rows.values() if row["sense"] == "==")


@pytest.mark.slow
def test_whole_commands_are_timed(tmp_path, monkeypatch):
    run_quick((commands,), tmp_path / "bench.json", monkeypatch)
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert sum(row["unit"] == "s" and row["measured"] > 0 for row in rows) == 5
    assert sum(row["unit"] == "MiB" and row["measured"] > 50 for row in rows) == 3


def test_every_stage_of_a_command_takes_some_time(tmp_path):
    found = {row.what.partition(STAGE)[2]: row.measured for row in profile(TINY, tmp_path) if STAGE in row.what}
    assert list(found) == list(STAGES) and all(seconds and seconds > 0 for seconds in found.values())


def test_a_cell_of_a_sweep_is_timed(tmp_path):
    (row,) = cells(TINY, tmp_path)
    assert row.unit == "ms" and row.target == 20.0 and isinstance(row.measured, float)
    assert len(list((tmp_path / "cells").glob("*/manifest.json"))) == TINY.cells


def test_imports_are_timed_in_processes_of_their_own(tmp_path):
    rows = list(imports(TINY, tmp_path))
    assert [row.what.split(",")[-1].split(":")[0] for row in rows] == [" philly", " philly", " sacct", " sacct"]
    memory, speed = rows[::2], rows[1::2]
    assert all(row.unit == "MiB" and row.target == 1536 and 50 < row.measured < 1536 for row in memory)
    assert all(row.unit == "rows/s" and row.measured > 0 and row.of_machine for row in speed)
    assert list(tmp_path.iterdir()) == []


def test_what_breaks_leaves_a_row_and_the_rest_goes_on(tmp_path, capsys):
    def broken(sizes, folder):
        yield Row("before", 1)
        raise RuntimeError("no luck")

    def sound(sizes, folder):
        yield Row("after", 2)

    assert bench.run(TINY, tmp_path / "bench.json", (broken, sound)) == 1
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert [row["what"] for row in rows] == ["before", "broken: not measured", "after"]
    assert rows[1]["measured"] is None and rows[1]["detail"] == "RuntimeError: no luck"
    assert "RuntimeError: no luck" in capsys.readouterr().out


def test_a_place_that_cannot_be_written_is_bad_input(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "SECTIONS", ())
    assert bench.main(["--quick", "--json", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize("row, ratio, met", [
    (Row("", 2.0, target=4.0), 0.5, True),
    (Row("", 5.0, target=4.0), 1.25, False),
    (Row("", 5.0, target=4.0, sense=">="), 1.25, True),
    (Row("", 3.0, target=4.0, sense=">="), 0.75, False),
    (Row("", 4.0, target=4.0, sense="=="), 1.0, True),
    (Row("", 4.5, target=4.0, sense="=="), 1.125, False),
    (Row("", True, target=True, sense="=="), None, True),
    (Row("", False, target=True, sense="=="), None, False),
    (Row("", 3.0), None, None),
    (Row("", None, target=4.0), None, None),
])
def test_a_row_is_compared_with_its_budget(row: Row, ratio: float | None, met: bool | None):
    assert (row.ratio, row.met) == (ratio, met)


@pytest.mark.parametrize("value, exact, text", [
    (5_000_000, False, "5,000,000"), (2_146_378.85, False, "2,146,379"), (47.23, False, "47.2"), (4.506, False, "4.51"), (2.0, False, "2"),
    (0.0926, False, "0.0926"), (0.000295, False, "2.95e-04"), (0.0, False, "0"), (True, False, "yes"), (430.7464, True, "430.7464"),
    (10.80288, True, "10.80288"),
])
def test_numbers_have_three_digits_unless_all_count(value: float, exact: bool, text: str):
    assert number(value, exact) == text


def test_counts_and_ratios_come_before_rates_and_times():
    lines = render([Row("time", 1.0, "s", 2.0, of_machine=True), Row("share", 0.1, "", 0.05)]).splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "what", "-- counts, ratios, memory", "share", "-- rates and wall times of this machine", "time"]
    assert lines[2].endswith("NO") and lines[4].endswith("yes")


def test_the_bare_loop_on_a_hand_worked_schedule():
    # 4 GPUs. At 0 job 0 takes 3, job 1 wants 2 and blocks job 2, which would fit. At 10 job 0 ends: 1 and 2 start, 1 GPU is free.
    # Job 3 wants 4: 1 ends at 15, 2 at 30, so it starts at 30. Job 4 came at 30 too, behind it: 30 + 5 = 35. 5 arrivals, 5 ends.
    submit, duration = np.array([0.0, 0, 1, 12, 30]), np.array([10.0, 5, 20, 5, 1])
    start = np.empty(5)
    assert replays.fifo_by_count(submit, duration, np.array([3, 2, 1, 4, 1]), 4, start) == 10
    assert start.tolist() == [0, 10, 10, 30, 35]


def test_the_bare_loop_waits_as_the_harness_does_where_topology_cannot_matter():
    cluster = build(ClusterConfig(name="one", servers=1, gpus=32))
    trace = load("common_workload", {"jobs": 400}, cluster, 3)
    trace = trace.set_column(trace.column_names.index("instances"), trace.schema.field("instances"), [np.ones(400, np.int32)])
    assert replays.timed(trace, cluster).events == 800
    expected = jobs_table(replay(trace, cluster, load_policy("fifo"), Rules()))["wait_s"].to_numpy()
    assert expected.max() > 0
    assert peers.bare_fifo(*replays.columns(trace), cluster.gpus).tolist() == expected.tolist()


def test_a_command_is_charged_its_own_memory_and_not_that_of_the_process_that_starts_it():
    ballast = np.ones(40_000_000)  # 305 MiB
    small = processes.cost([sys.executable, "-S", "-c", "x = sum(range(100_000))"])
    large = processes.cost([sys.executable, "-S", "-c", "x = bytearray(200 * 2**20)"])
    assert small.peak_mib < 100 < 200 < large.peak_mib < 290 < ballast.nbytes / 2**20
    assert small.wall_s > 0 and small.cpu_s > 0


def test_a_command_that_fails_is_said_so():
    with pytest.raises(processes.CommandFailed, match="exit 3: sorry"):
        processes.cost([sys.executable, "-c", "import sys; print('sorry', file=sys.stderr); sys.exit(3)"])
    with pytest.raises(processes.CommandFailed, match="No such file"):
        processes.cost([str(Path(sys.executable).with_name("no-such-python"))])


def test_a_command_is_stopped_when_its_time_is_up():
    began = time.perf_counter()
    with pytest.raises(processes.TooLong, match="^more than 0.3 s$"):
        processes.cost([sys.executable, "-S", "-c", "import time; time.sleep(60)"], limit_s=0.3)
    assert time.perf_counter() - began < 30
    assert processes.cost([sys.executable, "-S", "-c", "pass"], limit_s=60).wall_s < 60


def test_a_command_knows_when_it_began():
    late = "import os, sys, time; sys.exit(not 0 <= time.perf_counter() - float(os.environ['HARNESS_BENCH_BEGAN']) < 60)"
    assert processes.cost([sys.executable, "-S", "-c", late]).wall_s > 0


def test_a_child_has_the_caches_that_a_user_has(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / processes.sources_hash(*processes.KERNELS)[:16]))
    found = processes.environment()
    assert "PYTHONDONTWRITEBYTECODE" not in found and found["PYTHONPYCACHEPREFIX"].startswith(str(tmp_path))
    assert "NUMBA_CACHE_DIR" not in found  # the harness chose it, and a child does so itself
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    assert processes.environment()["NUMBA_CACHE_DIR"] == str(tmp_path / "chosen")


def test_the_long_budgets_are_timed_on_a_clone_of_the_last_commit(tmp_path, monkeypatch):
    repository = tmp_path / "repository"
    (repository / "harness").mkdir(parents=True)
    (repository / "harness/marker").write_text("committed")
    git = ["git", "-C", str(repository), "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    (repository / "harness/marker").write_text("edited since")
    monkeypatch.setattr(suites, "PACKAGE", repository / "harness")
    monkeypatch.setattr(suites, "SUITES", {
        "sound": ["-c", "assert open('harness/marker').read() == 'committed'"], "broken": ["-c", "raise SystemExit('2 failed')"],
    })
    (tmp_path / "work").mkdir()
    sound, broken = suites.suites(TINY, tmp_path / "work")
    assert sound.measured is not None and 0 < sound.measured < 1 and sound.met
    assert broken.measured is None and broken.detail.endswith("exit 1: 2 failed")
    assert [row.measured for row in suites.unmeasured(TINY, tmp_path)] == [None, None]


def test_the_sizes_are_those_of_the_budgets():
    sizes = Sizes()
    assert (sizes.jobs, sizes.servers, sizes.command_jobs, sizes.wide_servers) == (1_000_000, 1_024, 100_000, 10_000)
    assert sizes.referees == ("T1", "T3") and sizes.peer_jobs == 10_000
