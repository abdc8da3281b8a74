"""Every command and every file of the README works as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
MODULES = {"harness": "harness", "harness-traces": "harness.traces_app", "harness-report": "harness.report_app"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


COMMANDS = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the files that the README tells its reader to save."""
    where = tmp_path_factory.mktemp("readme")
    for name, text in zip(re.findall(r"[Ss]ave this as `(\S+)`", README), blocks("python"), strict=True):
        (where / name).write_text(text, encoding="utf-8")
    return where


@pytest.mark.compiled
def test_commands_work_in_the_order_of_the_page(folder: Path):
    assert len(COMMANDS) >= 10
    for command in COMMANDS:
        program, _, rest = command.partition(" ")
        script = f'"{sys.executable}" -m {MODULES[program]} {rest}'
        path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.compiled
def test_the_real_azure_trace_is_replayed_from_the_page_alone(shared_traces: Path, tmp_path: Path):
    """17,754 of its 19,366 requests have at most 4,096 tokens; four replicas serve them all, under both policies."""
    block = next(block for block in blocks("sh") if "azure-llm" in block)
    (tmp_path / "AzureLLMInferenceTrace_conv.csv").symlink_to(shared_traces / "azure-llm-2023" / "AzureLLMInferenceTrace_conv.csv")
    path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    for command in block.splitlines():
        program, _, rest = command.partition(" ")
        script = f'"{sys.executable}" -m {MODULES[program]} {rest}'
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    summary = pq.read_table(tmp_path / "results" / "runs" / "azure" / "summary.parquet")
    assert sorted(summary["policy"].to_pylist()) == ["fcfs", "srpt"] and set(summary["cluster"].to_pylist()) == {"a100_llama8b"}
    assert summary["requests"].to_pylist() == summary["requests_finished"].to_pylist() == [17_754] * 2
    page = (tmp_path / "results" / "runs" / "azure" / "report.html").read_text(encoding="utf-8")
    assert "within" in page and "a100_llama8b, requests" in page and "preemption decision" not in page


def test_the_policy_of_the_page_is_short():
    (policy,) = blocks("python")
    assert len(policy.splitlines()) <= 60


def test_make_targets_of_the_page_exist():
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`?make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_files_that_the_page_names_exist():
    for name in re.findall(r"`((?:harness|conf|docs|notebooks)/[\w/.]+)`|\]\((?!http)([^)]+)\)", README):
        path = REPOSITORY / (name[0] or name[1])
        assert path.exists(), path
