"""The command ``harness`` as a user runs it: start, reading, replay and writing, with warm caches."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.bench.processes import Cost, best_cost, cost
from harness.bench.replays import common_trace
from harness.bench.rows import Row
from harness.bench.sizes import Sizes
from harness.tables import write_table

COMMAND_TARGET_S, FIFO_TARGET_S, FIFO_TARGET_MIB, START_TARGET_S = 1.5, 4.0, 1024.0, 2.0
LIBRARIES = "import hydra, numba, numpy, pyarrow.compute, pyarrow.parquet"


def commands(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """The start of a cell, T4, and the large FIFO replay; each the fastest of several runs after one that warms the caches."""
    tiny, _ = _harness(folder, sizes.repeats, "workload=common_workload", "workload.jobs=10", "cluster.servers=1")
    yield Row("import of the package and start of a cell", tiny.wall_s, "s", START_TARGET_S, "<=", True, _processor(tiny))
    libraries = best_cost([sys.executable, "-c", LIBRARIES], sizes.repeats)
    yield Row("of that, importing the libraries alone", libraries.wall_s, "s", of_machine=True, detail=_processor(libraries))
    for jobs, label, target in ((sizes.command_jobs, "T4", COMMAND_TARGET_S), (sizes.jobs, "FIFO", FIFO_TARGET_S)):
        path = folder / f"{label}.parquet"
        write_table(common_trace(jobs, sizes.servers), path)
        whole, manifest = _harness(folder, sizes.repeats, "workload=trace", f"workload.path={path}", f"cluster.servers={sizes.servers}")
        what = f"{label}: {jobs:,} jobs, {sizes.servers:,} servers: whole command"
        yield Row(what, whole.wall_s, "s", target, "<=", True,
                  f"{_processor(whole)}; {manifest['wall_s']:.2f} s of it the cell, {manifest['replay_wall_s']:.2f} s the replay")
        yield Row(f"{what}, peak memory", whole.peak_mib, "MiB", FIFO_TARGET_MIB if label == "FIFO" else None)


def _harness(folder: Path, repeats: int, *words: str) -> tuple[Cost, dict[str, Any]]:
    """Cost of one cell under fifo on ``flat``, and the manifest of the same run: the fastest after one that warms the caches."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    same = ["policy=fifo", "cluster=flat", "seed=1", "force=true", f"out={out}"]
    command = [sys.executable, "-m", "harness", *same, *words]
    cost(command)
    runs = [(cost(command), json.loads(next(out.glob("*/manifest.json")).read_text(encoding="utf-8"))) for _ in range(repeats)]
    return min(runs, key=lambda run: run[0].wall_s)


def _processor(taken: Cost) -> str:
    return f"{taken.cpu_s:.2f} s of processor time"
