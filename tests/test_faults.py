"""Sweeps that are killed, run out of disk, find damaged files or share a folder: nothing lost, nothing wrong, a clear line."""

import errno
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import cells
from harness.app import main
from harness.report_app import main as report
from harness.sweep import aggregate

REPOSITORY = Path(__file__).resolve().parents[1]
TINY = ("workload=paper_mix", "workload.preemptors=5", "cluster.servers=10", "progress=false")
SWEEP = ("-m", *TINY, "policy=fifo,godel", "seed=range(6)")
TABLES = ("jobs", "preemptions", "utilization")


@pytest.fixture(autouse=True)
def at_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The tables of a sweep that nothing happened to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)
        out = tmp_path_factory.mktemp("undisturbed") / "out"
        assert main([*SWEEP, f"out={out}"]) == 0
    found = tables(out)
    assert len(found) == 12
    return found


def hashed(out: Path) -> list[Path]:
    """Folders that count as cells."""
    return sorted(path for path in out.iterdir() if re.fullmatch(r"[0-9a-f]{24}", path.name)) if out.is_dir() else []


def tables(out: Path) -> dict[str, dict[str, bytes]]:
    """Bytes of the tables of every cell, which must be whole; those of preemptions without the wall clock."""
    found: dict[str, dict[str, bytes]] = {}
    for folder in hashed(out):
        assert json.loads((folder / "manifest.json").read_text())["cell"] == folder.name
        json.loads((folder / "summary.json").read_text())
        assert sorted(path.name for path in (folder / ".hydra").iterdir()) == ["config.yaml", "overrides.yaml"]
        found[folder.name] = {name: (folder / f"{name}.parquet").read_bytes() for name in TABLES}
        for name in TABLES:
            pq.read_table(folder / f"{name}.parquet")
        timed = pq.read_table(folder / "preemptions.parquet").drop_columns("search_wall_us")
        sink = pa.BufferOutputStream()
        pq.write_table(timed, sink)
        found[folder.name]["preemptions"] = sink.getvalue().to_pybytes()
    return found


def stamps(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for folder in hashed(out) for path in folder.rglob("*")}


def rows(out: Path) -> list[dict]:
    return pq.read_table(out / "summary.parquet").to_pylist()


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and told.startswith("harness"), told
    return told


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "harness", *words], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def gone_pid() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def killed_after(steps: int, out: Path) -> None:
    """Runs the sweep in a child that kills itself at the ``steps``-th system call that makes, renames or removes something in ``out``."""
    code = (
        "import os, signal, sys\n"
        "steps, out, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]\n"
        "def watch(event, args):\n"
        "    global steps\n"
        "    writes = event == 'open' and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)\n"
        "    if (writes or event in ('os.mkdir', 'os.rename', 'os.remove', 'os.rmdir')) and out in str(args[0]):\n"
        "        steps -= 1\n"
        "        if steps == 0:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "from harness.app import main\n"
        "sys.addaudithook(watch)\n"
        "sys.exit(main(words))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(steps), str(out), *SWEEP, f"out={out}"], cwd=REPOSITORY, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def check_after_kill(out: Path, undisturbed: dict[str, dict[str, bytes]]) -> int:
    """Asserts that a rerun makes what is missing and no more; returns how many cells were there."""
    kept, before = tables(out), stamps(out)
    assert all(undisturbed[cell] == found for cell, found in kept.items())
    if kept:
        aggregate(out)
        assert {row["cell"] for row in rows(out)} == set(kept)
    assert main([*SWEEP, f"out={out}"]) == 0
    assert tables(out) == undisturbed
    after = stamps(out)
    assert {path: after[path] for path in before} == before
    assert {row["cell"] for row in rows(out)} == set(undisturbed) and {row["status"] for row in rows(out)} == {"ok"}
    left = {path.name for path in out.iterdir()} - set(undisturbed) - {"summary.parquet", "summary.csv", "multirun.yaml"}
    assert not [name for name in left if (out / name).is_dir()]
    return len(kept)


def some_of(slow: range, default: int) -> Iterator[object]:
    for number in slow:
        yield pytest.param(number, marks=() if number < default else pytest.mark.slow)


@pytest.mark.compiled
@pytest.mark.parametrize("moment", list(some_of(range(20), 6)))
def test_a_killed_sweep_goes_on_where_it_was(moment: int, undisturbed: dict[str, dict[str, bytes]], tmp_path: Path):
    """Each moment is a seeded count of changes to the folder (about 11 per cell, 12 cells), so that it falls between any two of them."""
    out = tmp_path / "out"
    killed_after(int(np.random.default_rng([3, moment]).integers(1, 120)), out)
    check_after_kill(out, undisturbed)


@pytest.mark.compiled
def test_a_sweep_killed_by_the_clock_goes_on_where_it_was(undisturbed: dict[str, dict[str, bytes]], tmp_path: Path):
    """A kill in the midst of the replay of a later cell, wherever that is."""
    out = tmp_path / "out"
    process = start(*SWEEP, f"out={out}")
    while process.poll() is None and len(hashed(out)) < 2:
        pass
    process.kill()
    process.communicate()
    assert check_after_kill(out, undisturbed) >= 2


def test_temporary_folders_of_dead_processes_are_cleaned_and_those_of_live_ones_are_not(tmp_path: Path):
    out = tmp_path / "out"
    dead, alive, odd = (
        out / f".{'a' * 24}.{platform.node()}.{gone_pid()}", out / f".{'b' * 24}.{platform.node()}.{os.getppid()}", out / ".mine.12",
    )
    elsewhere = out / f".{'c' * 24}.other-machine.{gone_pid()}"
    for folder in (dead, alive, elsewhere, odd):
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{")
    assert main(["-m", *TINY, "policy=fifo", f"out={out}"]) == 0
    assert not dead.exists() and alive.exists() and elsewhere.exists() and odd.exists()
    assert len(rows(out)) == 1


@pytest.mark.parametrize("name", ["pq.write_table", "Path.rename", "Path.mkdir", "Path.write_text"])
def test_a_full_disk_is_one_line_and_leaves_nothing(name: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        owner, _, function = name.partition(".")
        patch.setattr({"pq": pq, "Path": Path}[owner], function, full)
        assert main([*TINY, "policy=fifo", f"out={tmp_path / 'out'}"]) == 2
    assert "No space left on device" in one_line(capsys)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_a_tiny_disk_that_fills_up_is_one_line_and_leaves_no_cell(tmp_path: Path):
    """A real file system of 64 KiB in a name space of its own; the cache of compiled functions stays where it is."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=64k tmpfs {disk}"
    try:
        possible = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        possible = False
    if not possible:
        pytest.skip("unshare -rm cannot mount a tmpfs here")
    words = " ".join([sys.executable, "-m harness", *TINY, "policy=fifo", f"out={disk}/out"])
    script = f"{mount} && {{ {words}; echo status $?; find {disk} -mindepth 2; }}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.stdout == "status 2\n", done
    assert done.stderr.count("\n") == 1 and "No space left on device" in done.stderr, done.stderr


@pytest.mark.parametrize("sweep", [(), ("-m",)])
def test_a_place_that_cannot_be_written_is_one_line(sweep: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "file"
    file.write_text("mine")
    for out in (file, file / "deeper", Path("/proc/nowhere")):
        assert main([*sweep, *TINY, "policy=fifo", f"out={out}"]) == 2
        assert str(out) in one_line(capsys)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_trace_is_one_line(share: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    whole = (REPOSITORY / "traces/diurnal.parquet").read_bytes()
    trace = tmp_path / "cut.parquet"
    trace.write_bytes(whole[: int(share * len(whole))])
    words = ("workload=trace", f"workload.path={trace}", "cluster.servers=16", "policy=fifo", "progress=false", f"out={tmp_path / 'out'}")
    assert main([*words]) == 2
    assert str(trace) in one_line(capsys)
    assert not list((tmp_path / "out").iterdir())
    trace.write_bytes(whole)
    assert main([*words]) == 0, "a mended file is another input"


@pytest.mark.parametrize("name", ["manifest.json", "summary.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"{}"])
def test_a_damaged_cell_is_one_line_that_says_what_to_do(name: str, content: bytes, tmp_path: Path, capsys):
    out = tmp_path / "out"
    sweep = ("-m", *TINY, "policy=fifo", "seed=0,1", f"out={out}")
    assert main([*sweep]) == 0
    before = tables(out)
    capsys.readouterr()
    damaged = hashed(out)[0]
    (damaged / name).write_bytes(content)
    if (name, content) != ("summary.json", b"{}"):
        assert main([*sweep]) == 2
        told = one_line(capsys)
        assert str(damaged / name) in told and f"delete {damaged} and run the sweep again" in told
        assert report([str(out)]) == 2
        assert f"delete {damaged}" in one_line(capsys)
    shutil.rmtree(damaged)
    assert main([*sweep]) == 0
    assert tables(out) == before and len(rows(out)) == 2


def test_a_damaged_note_of_a_failure_is_one_line_that_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    sweep = ("-m", *TINY, "policy=fifo", "preemption.grace_s=0,-1", f"out={out}")
    assert main([*sweep]) == 1
    capsys.readouterr()
    (note,) = (out / cells.FAILED).glob("*.json")
    note.write_text("{}")
    with pytest.raises(cells.BadInput, match=rf"{note}.*delete this file"):
        aggregate(out)


@pytest.mark.compiled
def test_two_sweeps_in_one_folder_lose_nothing(undisturbed: dict[str, dict[str, bytes]], tmp_path: Path):
    """Two processes at once, a third of their cells the same: every cell is made once, and the summary has the union."""
    out = tmp_path / "out"
    halves = ["seed=range(4)", "seed=range(2,6)"]
    both = [start("-m", *TINY, "policy=fifo,godel", seeds, f"out={out}") for seeds in halves]
    for process in both:
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told
        assert not told
    assert tables(out) == undisturbed
    assert aggregate(out).is_file()
    assert {row["cell"] for row in rows(out)} == set(undisturbed)
    beside = sorted(path.name for path in out.iterdir() if path.name not in undisturbed)
    assert beside == ["multirun.yaml", "summary.csv", "summary.parquet"]
