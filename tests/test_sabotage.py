"""Deliberately broken engines and policies, each of which must be caught by the tests that are named here.

A sabotage is applied to a copy of the package, against which the tests then run, interpreted, in a process of their own. They run
from the folder of the copy, which comes first on their path.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "harness"

EVENTS, RESOURCES, PREEMPTION = "test_hand_worked.py", "test_hand_worked_resources.py", "test_hand_worked_preemption.py"
WORLD = "test_twin.py::test_equal_on_named_worlds"
SOUND = "test_properties.py::test_nothing_is_held_twice_and_nobody_waits_in_vain"


class Sabotage(NamedTuple):
    """``old`` occurs once in ``file`` of harness/cluster and becomes ``new``; all ``caught_by`` must then fail."""

    name: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]


SABOTAGES = [
    Sabotage("off by one in reprieve: the last candidate is never put back", "sourcing.py",
             "for position in range(n - out, n):", "for position in range(n - out, n - 1):", ()),
    Sabotage("reprieve spares the youngest", "sourcing.py",
             "candidates.of.start[a] < candidates.of.start[b]", "candidates.of.start[a] > candidates.of.start[b]", ()),
    Sabotage("double booking: memory is not looked at", "fit.py",
             "if cpu < view.classes.cpu[c] or memory < view.classes.memory[c] or not", "if cpu < view.classes.cpu[c] or not", ()),
    Sabotage("double booking: exclusive cores may eat up the shared pool", "fit.py",
             "if cpu < view.classes.cpu[c] or memory < view.classes.memory[c] or not", "if memory < view.classes.memory[c] or not", ()),
    Sabotage("wrong tie-break: best fit takes the highest server", "fit.py",
             "view.servers.gpu[s] >= fewest", "view.servers.gpu[s] > fewest", ()),
    Sabotage("wrong tie-break: the largest indices among equal victim sets", "preempt.py",
             "return not a > first", "return a > first", ()),
    Sabotage("wrong tie-break: indices are compared from the last", "preempt.py", "return b > first", "return b < first", ()),
    Sabotage("wrong tie-break: the earliest start among equal servers", "preempt.py",
             "rank[START] = max(rank[START], -candidates.of.start[m])", "rank[START] = min(rank[START], -candidates.of.start[m])", ()),
    Sabotage("forgotten restart cost", "lifecycle.py",
             "jobs.restart[job] = jobs.restart_cost[job] if jobs.evictions[job] else 0.0", "jobs.restart[job] = 0.0", ()),
    Sabotage("checkpoints in the future", "lifecycle.py", "np.floor(ran / checkpoint)", "np.ceil(ran / checkpoint)", ()),
    Sabotage("stale aggregate after an eviction", "decide.py",
             "        leave_evictable(state, victim)\n", "", ()),
    Sabotage("lost event: of two jobs that end at one instant the second waits for the next", "engine.py",
             "while queue.mark[CALENDAR] and queue.event.time[0] == now:", "if queue.mark[CALENDAR] and queue.event.time[0] == now:", ()),
    Sabotage("end of grace before finish", "queue.py", "FINISH, GRACE_END = 0, 1", "FINISH, GRACE_END = 1, 0", ()),
    Sabotage("wrong grace hold: what is not claimed is free at once", "decide.py",
             "max(gpu[g] - claim_gpu[g], 0)", "0", ()),
    Sabotage("wrong grace hold: fungible pools are withheld twice", "decide.py",
             "max(cpu - claim_cpu, 0), max(memory", "cpu, max(memory", ()),
    Sabotage("guarantee ignored at maturity", "decide.py",
             "if state.classes.affinity[c] == GUARANTEED:\n        for i", "if False:\n        for i", ()),
    Sabotage("protection ends one instant late", "preempt.py", ">= view.clock[MIN_RUNTIME_S]", "> view.clock[MIN_RUNTIME_S]", ()),
    Sabotage("two sockets are as good as one", "preempt.py",
             "return 12.0 if level == NVLINK or level == SOCKET else 7.0", "return 12.0", ()),
    Sabotage("a failed gang leaves its victims evicted", "decide.py",
             "        put_back(state, pending.claim.evicted[v])", "        pass", ()),
    Sabotage("events at the horizon still happen", "engine.py", "if now >= clock[HORIZON] or", "if now > clock[HORIZON] or", ()),
    Sabotage("EASY: a job that ends at the shadow time counts as late", "policies/easy_backfill.py",
             "expected_run(view, job) <= own.state[SHADOW]", "expected_run(view, job) < own.state[SHADOW]", ()),
    Sabotage("domain-first: the bound on supersets is too tight", "domain_search.py",
             "bound[COUNT] += more\n", "bound[COUNT] += more + 1\n", ()),
]


def failing(folder: Path, checks: tuple[str, ...]) -> list[str]:
    """Which of the ``checks`` fail against the package in ``folder``; all of them must run."""
    paths = os.pathsep.join((str(folder), str(TESTS)))
    environment = {**os.environ, "PYTHONPATH": paths, "NUMBA_DISABLE_JIT": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist",
               "-o", f"pythonpath={folder}", f"--rootdir={TESTS}", *(str(TESTS / check) for check in checks)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return re.findall(r"^FAILED (?:.*/)?(test_\w+\.py::[^\s\[]+(?:\[.*\])?)(?: - .*)?$", done.stdout, re.MULTILINE)


def copied(folder: Path) -> Path:
    """A copy of the package."""
    shutil.copytree(PACKAGE, folder / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "harness"


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=[sabotage.name for sabotage in SABOTAGES])
def test_a_sabotage_is_caught(sabotage: Sabotage, tmp_path: Path):
    file = copied(tmp_path) / "cluster" / sabotage.file
    source = file.read_text(encoding="utf-8")
    assert source.count(sabotage.old) == 1, f"{sabotage.file} has changed: {sabotage.old!r} occurs {source.count(sabotage.old)} times"
    file.write_text(source.replace(sabotage.old, sabotage.new), encoding="utf-8")
    caught = failing(tmp_path, sabotage.caught_by)
    print(f"{sabotage.name}: caught by", *caught, sep="\n  ")
    missed = [check for check in sabotage.caught_by if not any(name.startswith(check) for name in caught)]
    assert sabotage.caught_by and not missed, f"{sabotage.name}: not caught by {missed}"


def test_the_sound_package_passes_the_same_way(tmp_path: Path):
    copied(tmp_path)
    assert failing(tmp_path, (f"{EVENTS}::test_a_finish_comes_before_the_end_of_grace", WORLD)) == []
