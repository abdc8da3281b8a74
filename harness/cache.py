"""Where compiled code is kept between processes.

Numba notices that a function's own file has changed, but not that a helper it calls has. So the cache folder is named
by a hash of all sources that are compiled: edit any of them, and nothing stale can be loaded.
"""

import hashlib
import os
import sys
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


KERNELS = ("jit.py", "schema.py", "cluster/*.py", "cluster/policies/*.py", "serving/*.py", "serving/policies/*.py")
"""Sources whose functions, or whose constants, end up in compiled code."""


@cache
def sources_hash(*patterns: str) -> str:
    """sha256 (hex) of the package's Python files that match ``patterns``, in path order; of all of them without any."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns or ("**/*.py",) for path in PACKAGE.glob(pattern)}):
        digest.update(path.relative_to(PACKAGE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def use_fresh_numba_cache() -> None:
    """Points Numba's cache at a folder of these kernels, unless the user chose one."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = str(base / "colocation-harness" / sources_hash(*KERNELS)[:16])
    os.environ["NUMBA_CACHE_DIR"] = folder
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = folder
