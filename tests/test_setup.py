"""The files around the package agree with each other and set up a machine that has only Python and make."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import harness

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS = [*PROJECT["dependencies"], *(r for extra in PROJECT["optional-dependencies"].values() for r in extra)]


def text(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def make(*arguments: str, folder: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    """Runs make as a person would, also when these tests were started by make."""
    inherited = {"MAKELEVEL", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "PYTHON", "QUICK"}
    env = {name: value for name, value in os.environ.items() if name not in inherited}
    return subprocess.run(["make", *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def distribution(requirement: str) -> str:
    """Normalized name of what ``requirement`` asks for."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def pinned() -> set[str]:
    return {distribution(line) for line in text("requirements.lock").splitlines() if "==" in line}


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_every_dependency_has_a_lower_bound_and_is_pinned(requirement: str):
    assert ">=" in requirement
    assert distribution(requirement) in pinned()


def test_the_lock_holds_pins_only():
    rows = [line for line in text("requirements.lock").splitlines() if not line.startswith("#")]
    assert [row for row in rows if not re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; .+)?", row)] == []


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml", "Makefile", ".ci/run", "tests/conftest.py"])
def test_no_index_and_no_machine_path_is_named(name: str):
    assert re.findall(r"index-url|find-links|https?://|file://|(?<![\w.$}/])/(?:tmp|root|home|work|opt)\b", text(name)) == []


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    assert harness.__version__ == version
    assert f"\nversion: {version}\n" in text("CITATION.cff")
    assert f"\n## [{version}]" in text("CHANGELOG.md")


def test_the_licence_is_the_one_declared():
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in text("LICENSE")
    assert "\nlicense: Apache-2.0\n" in text("CITATION.cff")


def test_help_is_the_default_and_lists_every_target():
    targets = set(re.findall(r"^\.PHONY: (.*)$", text("Makefile"), re.MULTILINE)[0].split())
    shown = make()
    assert shown.returncode == 0
    assert {line.split()[1] for line in shown.stdout.splitlines()} == targets
    assert shown.stdout == make("help").stdout


@pytest.mark.parametrize("target", ["test", "lint", "reproduce", "bench", "bench-peers", "notebooks", "coverage", "traces"])
def test_a_target_makes_the_environment_first(target: str, tmp_path: Path):
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        (tmp_path / name).write_text(text(name), encoding="utf-8")
    planned = make("--dry-run", target, folder=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert "-m venv" in planned.stdout


def test_quick_is_passed_on():
    assert "--quick" in make("--dry-run", "reproduce", "QUICK=1").stdout
    assert "--quick" not in make("--dry-run", "reproduce", "QUICK=0").stdout
    assert "--quick" not in make("--dry-run", "reproduce").stdout


@pytest.mark.parametrize("kind", ["absent", "too old"])
def test_an_unusable_interpreter_is_one_clear_line(kind: str, tmp_path: Path):
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        (tmp_path / name).write_text(text(name), encoding="utf-8")
    interpreter = tmp_path / "python3.9"
    if kind == "too old":
        interpreter.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'Python 3.9.2' && exit 0\nexit 1\n", encoding="utf-8")
        interpreter.chmod(0o755)
    failed = make("setup", f"PYTHON={interpreter}", folder=tmp_path)
    assert failed.returncode != 0
    assert "Python >= 3.11" in failed.stderr.splitlines()[0]
    assert not (tmp_path / ".venv").exists()


def test_ci_runs_everything_in_order():
    steps = re.findall(r"^step (.*)$", text(".ci/run"), re.MULTILINE)
    assert steps == ["make test", "make lint", "make reproduce QUICK=1", "make notebooks", "install_slurm", "make test-launchers"]
    assert "set -euo pipefail" in text(".ci/run")
