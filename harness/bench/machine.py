"""What the figures were measured on."""

import os
import platform
from importlib import metadata
from pathlib import Path
from subprocess import run
from typing import Any

from harness import __version__
from harness.cache import PACKAGE

LIBRARIES = ("numpy", "numba", "llvmlite", "pyarrow", "pandas", "hydra-core", "simpy", "ciw", "cimba", "accasim")


def machine() -> dict[str, Any]:
    """Processor, cores, memory, load, system, versions and commit. What cannot be found out is None."""
    return {
        "cpu": _line("/proc/cpuinfo", "model name") or platform.processor() or None,
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory": _line("/proc/meminfo", "MemTotal"),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "jit": os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0"),
        "versions": {"harness": __version__, "python": platform.python_version(), **{name: version_of(name) for name in LIBRARIES}},
        "git_commit": _commit(),
    }


def _line(file: str, name: str) -> str | None:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)


def version_of(library: str) -> str | None:
    """Its installed version; None when it is not there."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    try:
        done = run(["git", "-C", str(PACKAGE), "describe", "--always", "--dirty", "--abbrev=12"],
                   capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None
