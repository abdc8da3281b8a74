"""The page "replay your own cluster", followed command by command, with a made-up cluster behind sacct and kubectl."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cluster_logs
from harness.tables import metadata_of, read_trace

REPOSITORY = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.compiled
PAGE = (REPOSITORY / "docs/guide/replay-your-own-cluster.md").read_text(encoding="utf-8")
COMMANDS = [line[2:] for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
PROGRAMS = {
    "harness": "-m harness", "harness-traces": "-m harness.traces_app", "harness-report": "-m harness.report_app",
    "sacct": f'"{REPOSITORY}/tests/cluster_logs.py" sacct', "kubectl": f'"{REPOSITORY}/tests/cluster_logs.py" kubectl',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory in which the page was followed, and what its commands printed."""
    where = tmp_path_factory.mktemp("guide")
    programs = tmp_path_factory.mktemp("bin")
    for name, words in PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    paths = {"PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
             "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}
    for command in COMMANDS:
        done = subprocess.run(["bash", "-c", command], cwd=where, capture_output=True, text=True, env={**os.environ, **paths})
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        (where / "printed.txt").open("a", encoding="utf-8").write(done.stdout)
    return where


def test_the_page_leads_to_figures(folder: Path):
    for name in ("slurm", "pods"):
        report = folder / "results/runs" / name
        assert (report / "report.html").stat().st_size > 10_000
        for figure in ("utilization_day", "latency_cdf"):
            assert (report / f"figures/{figure}.png").read_bytes().startswith(b"\x89PNG"), (name, figure)


def test_the_traces_are_the_jobs_of_the_cluster(folder: Path):
    """Rows of both traces against the jobs behind the commands: submission, running time, size and class."""
    jobs = cluster_logs.jobs()
    first = min(job.submit for job in jobs)
    last = max(time for job in jobs for time in (job.submit, job.start, job.end) if time is not None)
    expected = [(job.submit - first, max(1, (job.end or last) - job.start), job.nodes, job.gpus // job.nodes, job.qos) for job in jobs]
    table = read_trace(folder / "slurm.parquet")
    rows = table.select(["submit_time", "duration", "instances", "gpus", "qos"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == expected
    assert {(row["qos"], row["priority"], row["preemptible"], row["kind"]) for row in table.to_pylist()} == {
        ("serve", 1000, False, "online"), ("normal", 500, False, "batch"), ("low", 0, True, "batch")}
    pods = read_trace(folder / "pods.parquet")
    asked = (pods["instances"].to_numpy() * pods["gpus"].to_numpy()).sum()
    assert asked == sum(job.gpus for job in jobs)
    gangs = [job for job in jobs if job.qos == "normal" and job.nodes > 1]
    assert np.count_nonzero(pods["instances"].to_numpy() > 1) == len(gangs) > 5
    assert {(row["priority_class"], row["preemptible"], row["kind"]) for row in pods.to_pylist()} == {
        ("serve", False, "online"), ("normal", False, "training"), ("low", True, "batch")}


def test_what_the_page_quotes_is_what_the_import_prints(folder: Path):
    quoted = re.findall(r"```\n(sacct.txt.*?)```", PAGE, re.DOTALL)[0].splitlines()
    printed = (folder / "printed.txt").read_text(encoding="utf-8").splitlines()
    assert len(quoted) > 3 and all(line in printed for line in quoted if line != "...")
    report = metadata_of(read_trace(folder / "slurm.parquet"))["report"]
    assert quoted[:-1] == report[: len(quoted) - 1]


def test_files_and_options_that_the_page_names_exist():
    for name in re.findall(r"`((?:conf|tests|docs)/[\w/.-]+)`", PAGE):
        assert (REPOSITORY / name).exists(), name
    from harness.readers import kubectl, sacct

    known = {f"--{name.replace('_', '-')}" for options in (kubectl.Options, sacct.Options) for name in options.__dataclass_fields__}
    for word in ("--tz", "--snapshot", "--priorities", "--preemptible-qos", "--online-qos", "--preemptible-classes", "--name"):
        assert word in PAGE and word in known
