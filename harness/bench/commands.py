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
from harness.bench.stages import END, STAGES
from harness.tables import write_table

COMMAND_TARGET_S, FIFO_TARGET_S, FIFO_TARGET_MIB, START_TARGET_S = 1.5, 4.0, 1024.0, 2.0
STAGE = ": processor time of the stage "
"""In the name of a row of the profile; the stage follows."""

SAME = ("policy=fifo", "cluster=flat", "seed=1", "force=true")
LIBRARIES = "import hydra, numba, numpy, pyarrow.compute, pyarrow.parquet"


def commands(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """The start of a cell, T4, and the large FIFO replay; each the fastest of several runs after one that warms the caches."""
    tiny, _ = harness_cell(folder, sizes.repeats, "workload=common_workload", "workload.jobs=10", "cluster.servers=1")
    yield Row("import of the package and start of a cell", tiny.wall_s, "s", START_TARGET_S, "<=", True, _processor(tiny))
    libraries = best_cost([sys.executable, "-c", LIBRARIES], sizes.repeats)
    yield Row("of that, importing the libraries alone", libraries.wall_s, "s", of_machine=True, detail=_processor(libraries))
    for label, jobs, servers, target in (("T4", sizes.command_jobs, sizes.servers, COMMAND_TARGET_S),
                                         ("FIFO", sizes.jobs, sizes.servers, FIFO_TARGET_S),
                                         ("FIFO", sizes.jobs, sizes.full_servers, FIFO_TARGET_S)):
        path = folder / f"{label}.parquet"
        write_table(common_trace(jobs, sizes.servers), path)
        whole, manifest = harness_cell(folder, sizes.repeats, "workload=trace", f"workload.path={path}", f"cluster.servers={servers}")
        what = f"{label}: {jobs:,} jobs, {servers:,} servers: whole command"
        yield Row(what, whole.wall_s, "s", target, "<=", True,
                  f"{_processor(whole)}; {manifest['wall_s']:.2f} s of it the cell, {manifest['replay_wall_s']:.2f} s the replay")
        yield Row(f"{what}, peak memory", whole.peak_mib, "MiB", FIFO_TARGET_MIB if label == "FIFO" else None)


def harness_cell(folder: Path, repeats: int, *words: str, warm: bool = True) -> tuple[Cost, dict[str, Any]]:
    """Cost of one cell under fifo on ``flat``, and the manifest of the same run: the fastest, after one that warms the caches."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "harness", *SAME, f"out={out}", *words]
    if warm:
        cost(command)
    runs = [(cost(command), json.loads(next(out.glob("*/manifest.json")).read_text(encoding="utf-8"))) for _ in range(repeats)]
    return min(runs, key=lambda run: run[0].wall_s)


def profile(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Processor time of the whole command on T4 by stage, of the cheapest of several runs after one that warms the caches."""
    trace, target = folder / "T4.parquet", folder / "stages.json"
    write_table(common_trace(sizes.command_jobs, sizes.servers), trace)
    command = [sys.executable, "-m", "harness.bench.stages", str(target), *SAME, f"out={folder / 'profiled'}", "workload=trace",
               f"workload.path={trace}", f"cluster.servers={sizes.servers}"]
    cost(command)
    runs = [(cost(command), json.loads(target.read_text(encoding="utf-8"))) for _ in range(sizes.repeats)]
    whole, spent = min(runs, key=lambda run: run[0].cpu_s)
    wall, processor = (sum(both) for both in zip(*spent.values(), strict=True))
    spent[END] = [whole.wall_s - wall, whole.cpu_s - processor]
    what = f"T4, {sizes.command_jobs:,} jobs, {sizes.servers:,} servers"
    yield Row(f"{what}: processor time of the whole command", whole.cpu_s, "s", of_machine=True,
              detail=f"{whole.wall_s:.2f} s of wall clock, with the clocks of the profile")
    for stage in STAGES:
        wall, processor = spent[stage]
        yield Row(f"{what}{STAGE}{stage}", processor, "s", of_machine=True,
                  detail=f"{100 * processor / whole.cpu_s:.0f} %; {wall:.2f} s of wall clock")


def _processor(taken: Cost) -> str:
    return f"{taken.cpu_s:.2f} s of processor time"
