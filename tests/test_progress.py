"""How a sweep tells how far it is: a bar on a terminal, lines elsewhere, and where the tables are at the end."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.app import main
from harness.progress import Note, Progress, watching

REPOSITORY = Path(__file__).resolve().parents[1]
SWEEP = ("-m", "workload=paper_mix", "workload.preemptors=2", "cluster.servers=4", "policy=fifo", "seed=range(4)")


@pytest.fixture(autouse=True)
def at_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


def test_elsewhere_than_on_a_terminal_each_cell_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([*SWEEP, f"out={tmp_path}"]) == 0
    told = capsys.readouterr()
    *lines, last = told.err.splitlines()
    shape = r"done    cluster=\S+ .* seed=(\d) .*: [\d.]+ s \((\d) of 4 cells, [\d,]+ events/s, \d+ s left\)"
    assert [re.fullmatch(shape, line).groups() for line in lines] == [("0", "1"), ("1", "2"), ("2", "3"), ("3", "4")]  # type: ignore[union-attr]
    assert "4 cells are there, 0 failed" in last and f"{tmp_path}/<cell>" in last and f"{tmp_path}/summary.parquet" in last
    assert told.out == f"{tmp_path}/summary.parquet\n"


def test_nothing_is_told_without_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([*SWEEP, f"out={tmp_path}", "progress=false"]) == 0
    assert not capsys.readouterr().err


def test_a_failed_cell_is_told_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([*SWEEP[:-1], "seed=0", "preemption.grace_s=0,-1", f"out={tmp_path}"]) == 1
    told = capsys.readouterr().err
    assert re.search(r"^failed  cluster=.*grace_s=-1: .*must be", told, re.MULTILINE)
    assert "(2 of 2 cells" in told and "1 cells are there, 1 failed" in told


def on_a_terminal(command: list[str]) -> tuple[int, str]:
    """Exit status, and what a command writes to a terminal on its standard error."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, cwd=REPOSITORY,
                               env={**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "120"})
    os.close(theirs)
    told = b""
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # Linux says so when the other side has closed
            break
        if not some:
            break
        told += some
    os.close(ours)
    process.communicate(timeout=300)
    return process.returncode, told.decode()


def test_on_a_terminal_a_sweep_is_one_bar(tmp_path: Path):
    status, told = on_a_terminal([sys.executable, "-m", "harness", *SWEEP, f"out={tmp_path}"])
    assert status == 0, told
    bars = [part for part in re.split(r"[\r\n]+", told) if part.startswith("sweep:")]
    assert re.match(r"sweep:\s+0%.*\| 0/4 ", bars[0])
    assert re.match(r"sweep: 100%.*\| 4/4 \[\d\d:\d\d<00:00, .*cells.*events/s\]", bars[-1])
    assert "done    " not in told
    assert f"a row for each in {tmp_path}/summary.parquet" in told.strip().splitlines()[-1]


def test_jobs_elsewhere_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with watching(tmp_path, 5, shown=True):
        first, second = Note(3, tmp_path, 0), Note(2, tmp_path, 3)
        for _ in range(3):
            first.cell("", 10)
        second.cell("", 10)
        second.cell("", 10)
    assert not (tmp_path / ".progress").exists()
    assert "(5 of 5 cells" in capsys.readouterr().err.splitlines()[-1]


def test_a_line_on_a_quiet_sweep_is_still_told(capsys: pytest.CaptureFixture[str]):
    progress = Progress(2, shown=False)
    progress.cell("done", 1)
    progress.say("failed  one")
    progress.close()
    assert capsys.readouterr().err == "failed  one\n"
