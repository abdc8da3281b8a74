"""Whole commands: wall time, processor time and peak memory of a child process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from harness.cache import KERNELS, sources_hash

LAUNCHER = """
import json, os, signal, sys, time
limit, command, late = float(sys.argv[1]), sys.argv[2:], []
def stop(*_):
    late.append(True)
    os.kill(pid, signal.SIGKILL)
signal.signal(signal.SIGALRM, stop)
began = time.perf_counter()
os.environ["HARNESS_BENCH_BEGAN"] = str(began)
pid = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
signal.setitimer(signal.ITIMER_REAL, limit)
_, status, used = os.wait4(pid, 0)
wall = time.perf_counter() - began
print(json.dumps([wall, used.ru_utime + used.ru_stime, used.ru_maxrss, os.waitstatus_to_exitcode(status), bool(late)]))
"""
"""Run by a small interpreter of its own: a process that is forked off a large one counts that one's memory as its peak. It leaves the
time at which the command began, of the clock of ``time.perf_counter``, in the command's environment."""

MAXRSS_PER_MIB = 2**20 if sys.platform == "darwin" else 2**10


class Cost(NamedTuple):
    """What a command cost: s of wall clock, s of processor (user and system), peak resident MiB."""

    wall_s: float
    cpu_s: float
    peak_mib: float


class CommandFailed(Exception):
    """A command that was to be timed did not exit with 0: ``words`` are its last, with which the message ends."""

    def __init__(self, command: list[str], words: str, status: int | None = None):
        super().__init__(": ".join([" ".join(command), *([] if status is None else [f"exit {status}"]), words]))
        self.words = words


class TooLong(Exception):
    """A command was stopped because its time was up. The message says how much that was."""


def cost(command: list[str], folder: Path | None = None, more: dict[str, str] | None = None, limit_s: float = 0.0) -> Cost:
    """Runs ``command``, its first word a path, in ``folder`` with ``more`` in its environment.

    ``limit_s`` is the time after which it is stopped, 0 for never. Raises CommandFailed, and TooLong.
    """
    done = subprocess.run([sys.executable, "-S", "-c", LAUNCHER, str(limit_s), *command], capture_output=True, text=True, cwd=folder,
                          check=False, env={**environment(), **(more or {})})
    if done.returncode:
        raise CommandFailed(command, _last_words(done.stderr))
    wall, cpu, peak, status, late = json.loads(done.stdout)
    if late:
        raise TooLong(f"more than {limit_s:g} s")
    if status:
        raise CommandFailed(command, _last_words(done.stderr), status)
    return Cost(wall, cpu, peak / MAXRSS_PER_MIB)


def best_cost(command: list[str], repeats: int) -> Cost:
    """The fastest of ``repeats`` runs after one that warms the caches of byte code, compiled code and files."""
    cost(command)
    return min(cost(command) for _ in range(repeats))


def environment() -> dict[str, str]:
    """The environment that a user's command would have: byte code is cached, and the harness names its cache of compiled code."""
    found = dict(os.environ)
    if Path(found.get("NUMBA_CACHE_DIR", "")).name == sources_hash(*KERNELS)[:16]:
        del found["NUMBA_CACHE_DIR"]
    if found.pop("PYTHONDONTWRITEBYTECODE", None) and "PYTHONPYCACHEPREFIX" not in found:
        base = Path(found.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        found["PYTHONPYCACHEPREFIX"] = str(base / "colocation-harness" / "bytecode")
    root = str(Path(__file__).resolve().parents[2])
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [root, found.get("PYTHONPATH")]))
    return found


def _last_words(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]
