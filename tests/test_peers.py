"""Other simulators beside the harness: their models, the rows of those that are absent, fail or take too long, and the page."""

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest

from harness.bench import __main__ as bench
from harness.bench import page as pages
from harness.bench import peers
from harness.bench.commands import STAGE, profile
from harness.bench.models import PEERS, Peer
from harness.bench.peers import HARNESS, Measured, checked_place, compare
from harness.bench.processes import Cost
from harness.bench.rows import Row
from harness.bench.sizes import TINY
from harness.bench.stages import CELL, HYDRA, REPLAY, STAGES, START, Clock
from harness.errors import BadInput

JOBS, SERVERS = 300, 4
"""Enough that jobs wait: the widest alone fills the cluster."""

STAND_IN = {
    "job.py": """
class Job(dict):
    def __init__(self, row):
        super().__init__(row.to_dict())

class Trace:
    def __init__(self):
        self.job_list = []
    def append_job(self, job):
        self.job_list.append(job)
    def sort_jobs(self, key):
        self.job_list.sort(key=lambda job: job[key])
""",
    "cluster.py": """
class Cluster:
    def __init__(self, sizes, gpus, cpus):
        self.vc_list = [[gpus] * count for count in sizes.values()]
""",
    "policies/__init__.py": """
class FirstInFirstOut:
    def __init__(self, trace, servers, placer, log_dir, logger, start):
        assert placer == 'consolidate' and start == 0
        self.trace, self.free = trace, servers

    def fit(self, gpus):
        if gpus <= 8:
            found = sorted((free, i) for i, free in enumerate(self.free) if free >= gpus)
            return [(found[0][1], gpus)] if found else []
        whole = [(i, 8) for i, free in enumerate(self.free) if free == 8]
        return whole[:gpus // 8] if len(whole) >= gpus // 8 else []

    def simulate(self):
        now, waiting, running = 0, list(self.trace.job_list), []
        while waiting or running:
            for job in [job for job in running if job['end_time'] == now]:
                running.remove(job)
                for i, gpus in job['nodes']:
                    self.free[i] += gpus
            for job in [job for job in waiting if job['submit_time'] <= now]:
                job['nodes'] = self.fit(job['gpu_num'])
                if not job['nodes']:
                    BLOCKED
                for i, gpus in job['nodes']:
                    self.free[i] -= gpus
                job['start_time'], job['end_time'] = now, now + job['duration']
                waiting.remove(job)
                running.append(job)
            coming = [job['submit_time'] for job in waiting if job['submit_time'] > now]
            now = min(coming + [job['end_time'] for job in running], default=now)
        self.log_recorder('fifo')
""",
}
"""A simulator of our own with the modules, classes and attributes of Helios that the adapter uses."""


def stand_in(folder: Path, blocked: str = "break", **instead: str) -> Path:
    for name, text in {**STAND_IN, **{key.replace("__", "/").replace("_py", ".py"): text for key, text in instead.items()}}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("BLOCKED", blocked), encoding="utf-8")
    return folder


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """compare() on a small trace, whose whole commands of the harness are said to take 0.5 s of processor time."""
    monkeypatch.setattr(peers, "harness_cell", lambda *_, **__: (Cost(1.0, 0.5, 100.0), {}))
    peers._warm.cache_clear()

    def run(names: list[str], place: Path | None = None, limit_s: float = 300.0) -> list[Measured]:
        (tmp_path / "files").mkdir()
        return compare("T1", JOBS, SERVERS, names, place, limit_s, tmp_path / "files")

    return run


@pytest.mark.parametrize("name", ["simpy", "ciw", "accasim", pytest.param("cimba", marks=pytest.mark.slow)])
def test_a_model_gives_every_wait_of_its_way_to_place(name: str, beside):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install '.[peers]'")
    if name == "cimba" and os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        pytest.skip("Cimba's models are compiled")
    ours, theirs = beside([name])
    assert ours.program == HARNESS and ours.wait_mean_s > 0
    assert theirs.remark == PEERS[name].remark and theirs.agrees is True
    assert (theirs.wait_mean_s == ours.wait_mean_s and theirs.makespan_s == ours.makespan_s) == (PEERS[name].places == "servers")
    assert theirs.version and theirs.replay_s > 0 and theirs.whole_s > theirs.prepare_s and theirs.peak_mib > 10
    assert theirs.jobs_per_s == JOBS / theirs.replay_s and theirs.events_per_s == 2 * JOBS / theirs.replay_s
    assert theirs.whole_ratio == theirs.whole_cpu_s / 0.5


@pytest.mark.compiled
@pytest.mark.parametrize("inside", [".", "framework/QSSF Service"])
def test_helios_is_found_in_its_folder_and_in_a_clone(inside: str, beside, tmp_path: Path):
    stand_in(tmp_path / "helios" / inside)
    ours, theirs = beside(["helios"], checked_place(tmp_path / "helios"))
    assert theirs.agrees is True
    assert (theirs.wait_mean_s, theirs.makespan_s) == (ours.wait_mean_s, ours.makespan_s)
    assert theirs.version is None and theirs.replay_ratio > 1


def test_a_simulator_that_lets_jobs_pass_a_blocked_head_is_found_out(beside, tmp_path: Path):
    _, theirs = beside(["helios"], checked_place(stand_in(tmp_path / "helios", blocked="continue")))
    assert theirs.agrees is False
    row = next(row for row in peers.rows([theirs]) if "every wait" in row.what)
    assert row.met is False
    assert "| DIFFER |" in pages.grid([theirs]).markdown()


def test_a_folder_without_helios_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(BadInput, match="no Helios there"):
        checked_place(tmp_path)
    assert bench.main(["--peers", "--helios", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"bench: --helios {tmp_path}: no Helios there; must be ") and said.count("\n") == 1
    assert bench.main(["--peers", "--limit", "0"]) == 2


def test_what_is_absent_fails_or_takes_too_long_has_a_row_that_says_so(beside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PEERS, "nowhere", Peer("Nowhere", "no_such_simulator", "gpus"))
    absent = beside(["nowhere", "helios"])[1:]
    assert [one.remark for one in absent] == ["not installed", "no folder was named"]
    failing = stand_in(tmp_path / "failing", job_py="from collections import Mappings")
    (tmp_path / "files").rename(tmp_path / "first")
    failed = beside(["helios"], failing)[1]
    assert failed.remark.startswith("failed: ImportError: cannot import name 'Mappings'")
    slow = stand_in(tmp_path / "slow", cluster_py="import time\ntime.sleep(60)")
    (tmp_path / "files").rename(tmp_path / "second")
    late = beside(["helios"], slow, limit_s=1.5)[1]
    assert late.remark.startswith("more than 1.5 s")
    for one in (*absent, failed, late):
        rows = list(peers.rows([one]))
        assert len(rows) == 1 and rows[0].measured is None and rows[0].detail == one.remark
        line = pages.grid([one]).markdown().splitlines()[-1]
        assert one.remark.partition(";")[0] in line and line.count("| - ") == 9


def test_referees_and_targets_are_rows_of_the_sizes_that_they_are_for():
    t4 = Measured("T4", 100_000, 1_024, HARNESS, "1", "servers", whole_s=1.2, whole_cpu_s=1.1, jobs_per_s=3e6)
    helios = Measured("T4", 100_000, 1_024, "Helios", None, "servers", replay_ratio=999.0, whole_ratio=30.0, agrees=True)
    t1 = Measured("T1", 10_000, 64, HARNESS, "1", "servers", wait_mean_s=430.7464, makespan_s=226_841.0, whole_s=1.0, whole_cpu_s=1.0)
    few = Measured("T1", 100, 64, HARNESS, "1", "servers", wait_mean_s=0.0, makespan_s=10.0, whole_s=1.0, whole_cpu_s=1.0)
    met = {row.what.rpartition(", ")[2]: row.met for row in peers.rows([t4, helios, t1]) if row.target is not None}
    assert met == {"whole command": True, "its replay over the harness's": False, "every wait as it must be": True,
                   "mean wait": True, "makespan": False}
    assert all(row.target is None for row in peers.rows([few]))


def test_the_page_holds_the_figures_of_the_run():
    measured = [
        Measured("T1", 10_000, 64, HARNESS, "0.1.0", "servers, best fit", "", 1.25, 1.2, 0.01, 0.002, 0.002, 5e6, 1e7, 200.0,
                 wait_mean_s=430.7464, makespan_s=226_840.0),
        Measured("T1", 10_000, 64, "SimPy", "4.1.2", "GPU count only", "", 0.5, 0.4, 0.1, 0.25, 0.2, 40_000.0, 80_000.0, 33.0, 0.333, 125.0,
                 1.5, 200_000.0, True),
        Measured("T1", 10_000, 64, "Ciw", None, "one slot", "not installed"),
    ]
    rows = [Row(f"T4{STAGE}imports", 0.75, "s", of_machine=True, detail="60 %; 0.80 s of wall clock"), Row("whole", 1.2, "s", 1.5),
            Row("peers on T4: not measured", None, detail="RuntimeError: no luck")]
    distances = [Row("the loop's time over the bare loop's, flat", 2.5, "x")]
    about = {"measured_at": "2026-01-01", "load_average_after": [2.0, 1.0, 1.0], "machine": {
        "cpu": "a CPU", "cores": 2, "cores_usable": 2, "memory": "8 GiB", "load_average": [1.0, 1.0, 1.0], "git_commit": "abc",
        "versions": {"numba": "0.68", "accasim": None}}}
    text = pages.page(about, rows, distances, measured, "python -m harness.bench --peers")
    assert "## T1: 10,000 jobs, 64 servers" in text and "accasim" not in text.split("## Method")[0]
    assert "| the harness 0.1.0 | servers, best fit | 1.25 | 0.0020 | 5,000,000 | 10,000,000 | 200 | - | - | 430.7464 | 226,840 |" in text
    assert "| SimPy 4.1.2 | GPU count only | 0.5000 | 0.2500 | 40,000 | 80,000 | 33 | 0.3330 x | 125 x | 1.5 | 200,000 | the same |" in text
    assert "| Ciw | one slot | not installed | - " in text
    assert "| imports | 0.7500 | 60 %; 0.80 s of wall clock |" in text
    assert "| peers on T4: not measured |  | - |  | RuntimeError: no luck |" in text
    assert "A trace without a table here was left out" in text
    assert "| whole | <= 1.50 s | 1.20 s | yes |" in text
    assert "| the loop's time over the bare loop's, flat | 2.50 x |" in text


def test_the_whole_comparison_writes_json_and_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(bench, "QUICK", TINY)
    monkeypatch.setattr(bench, "compare", lambda name, jobs, servers, *_: [
        Measured(name, jobs, servers, HARNESS, "1", "servers, best fit", whole_s=1.0, whole_cpu_s=1.0, jobs_per_s=1e6)])
    monkeypatch.setattr(bench, "profile", lambda sizes, folder: iter([Row(f"T4{STAGE}imports", 0.5, "s", detail="half")]))
    target = tmp_path / "page.md"
    assert bench.main(["--peers", "--quick", "--json", str(tmp_path / "peers.json"), "--markdown", str(target)]) == 0
    document = json.loads((tmp_path / "peers.json").read_text())
    assert [(one["trace"], one["jobs"]) for one in document["measured"]] == [("T1", TINY.peer_jobs)]
    assert any("bare compiled loop" in row["what"] for row in document["rows"])
    assert "| the harness 1 |" in capsys.readouterr().out and "| the harness 1 |" in target.read_text()
    assert "Made by `python -m harness.bench --peers --quick --markdown page.md`" in target.read_text()
    words = ["--peers", "--quick", "--traces", "T3", "T4", "--json", str(tmp_path / "peers.json")]
    assert bench.main(words) == 0
    assert [one["trace"] for one in json.loads((tmp_path / "peers.json").read_text())["measured"]] == ["T3", "T4"]


def test_every_instant_belongs_to_one_stage(monkeypatch: pytest.MonkeyPatch):
    # The wall clock is read at 1 (Hydra begins), 3 (the cell within it), 6 (the replay within that), 10, 15 and 21 (each returns).
    wall, processor = iter([1.0, 3.0, 6.0, 10.0, 15.0, 21.0, 28.0]), iter([0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5])
    monkeypatch.setattr("harness.bench.stages.time.perf_counter", lambda: next(wall))
    monkeypatch.setattr("harness.bench.stages.time.process_time", lambda: next(processor))
    clock = Clock(0.25)
    replay = clock.timed(lambda x: x + 1, REPLAY)
    cell = clock.timed(lambda x: 2 * replay(x), CELL)
    assert clock.timed(cell, HYDRA)(3) == 8
    clock.enter(START)
    spent = clock.spent
    assert spent[START] == (0.75 + 7, 1.0)  # 0.25 to 1 and 21 to 28; processor 0 to 0.5 and 3 to 3.5
    assert spent[HYDRA] == (2 + 6, 1.0) and spent[CELL] == (3 + 5, 1.0) and spent[REPLAY] == (4.0, 0.5)
    assert sum(wall for wall, _ in spent.values()) == 27.75 and set(spent) == set(STAGES)


@pytest.mark.slow
def test_the_profile_is_of_the_whole_command(tmp_path: Path):
    whole, *stages = profile(TINY, tmp_path)
    assert [row.what.partition(STAGE)[2] for row in stages] == list(STAGES)
    taken = np.array([row.measured for row in stages], float)
    assert (taken > 0).all() and taken.sum() == pytest.approx(whole.measured)
