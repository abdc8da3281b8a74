"""What a cell of a sweep costs beside its replay, in one process."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.bench.processes import cost
from harness.bench.rows import Row
from harness.bench.sizes import Sizes

TARGET_MS = 20.0
CELL = ("workload=common_workload", "workload.jobs=10", "cluster=flat", "cluster.servers=1", "policy=fifo", "progress=false")


def cells(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """A sweep of many small cells less a sweep of one, over the number of cells more; the mean of their replays is taken off."""
    out = folder / "cells"

    def sweep(seeds: int) -> tuple[float, float]:
        shutil.rmtree(out, ignore_errors=True)
        taken = cost([sys.executable, "-m", "harness", "-m", *CELL, f"seed=range({seeds})", f"out={out}"])
        return taken.wall_s, taken.cpu_s

    sweep(1)
    few = [sweep(1) for _ in range(sizes.repeats)]
    wall, processor = sweep(sizes.cells)
    replays = [json.loads(path.read_text(encoding="utf-8"))["replay_wall_s"] for path in out.glob("*/manifest.json")]
    more = max(1, sizes.cells - 1)
    beside = (wall - min(one for one, _ in few)) / more - sum(replays) / len(replays)
    spent = (processor - min(one for _, one in few)) / more
    yield Row(f"sweep of {sizes.cells:,} small cells in one process, a cell beside its replay", 1e3 * beside, "ms", TARGET_MS, "<=", True,
              f"{1e3 * spent:.1f} ms of processor time with the replay; whole command {wall:.1f} s")
