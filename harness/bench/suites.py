"""The long budgets: the test suite and every paper experiment, on a fresh checkout with nothing compiled yet."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.bench.processes import CommandFailed, cost
from harness.bench.rows import Row
from harness.bench.sizes import Sizes
from harness.cache import PACKAGE

TARGET_MIN = 10.0
SUITES = {
    "every paper experiment (make reproduce without the downloads)": ["-m", "harness.reproduce"],
    "test suite (make test without the downloads)": ["-m", "pytest", "-n", "2", "-q", "-m", "not slow"],
}


def suites(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Runs them in a clone of the last commit. Raises CommandFailed when there is no commit to clone."""
    checkout = folder / "checkout"
    clone = ["git", "clone", "--quiet", str(PACKAGE.parent), str(checkout)]
    done = subprocess.run(clone, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandFailed(clone, done.stderr.strip())
    for number, (what, words) in enumerate(SUITES.items()):
        fresh = {"PYTHONPATH": str(checkout), "NUMBA_CACHE_DIR": str(folder / f"compiled-{number}")}
        try:
            minutes = cost([sys.executable, *words], checkout, fresh).wall_s / 60.0
            yield Row(what, minutes, "min", TARGET_MIN, "<=", True, "of the last commit")
        except CommandFailed as error:
            yield Row(what, None, "min", TARGET_MIN, "<=", True, str(error))


def unmeasured(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """The same rows without their measurements."""
    for what in SUITES:
        yield Row(what, None, "min", TARGET_MIN, "<=", True, "measured with --long")
