"""Import of long traces as a user runs it: rows per second and peak memory, for jobs as CSV and from sacct, and for requests."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.bench.processes import cost
from harness.bench.replays import SEED
from harness.bench.rows import Row
from harness.bench.sizes import Sizes

TARGET_MIB = 1536.0
CHUNK_ROWS = 500_000
START_S = 1_700_000_000
TRES = ["billing=8,cpu=8,gres/gpu=1,mem=64G,node=1", "billing=128,cpu=128,gres/gpu:a100=16,gres/gpu=16,mem=1T,node=2",
        "cpu=4,mem=16G,node=1"]


def imports(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """``sizes.import_rows`` jobs in no order, so that every row goes through the sort on disk."""
    writers: dict[str, Callable[[Path, int], None]] = {"philly": write_philly, "sacct": write_sacct}
    for name, write in writers.items():
        path, out = folder / f"{name}.txt", folder / f"{name}.parquet"
        write(path, sizes.import_rows)
        taken = cost([sys.executable, "-m", "harness.traces_app", "import", name, str(path), "-o", str(out)])
        what = f"import of {sizes.import_rows:,} unsorted jobs, {name}"
        yield Row(f"{what}: peak memory", taken.peak_mib, "MiB", TARGET_MIB, detail=f"{path.stat().st_size / 2**20:,.0f} MiB of text")
        yield Row(what, sizes.import_rows / taken.wall_s, "rows/s", of_machine=True,
                  detail=f"{taken.wall_s:.1f} s, {taken.cpu_s:.1f} s of processor time")
        path.unlink()
        out.unlink()


def request_imports(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """``sizes.request_rows`` requests."""
    yield from _requests(sizes.request_rows, folder)


def large_request_imports(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """``sizes.large_requests`` requests."""
    yield from _requests(sizes.large_requests, folder)


def _requests(rows: int, folder: Path) -> Iterator[Row]:
    """Requests of two services on one clock, each in order in a file of its own, as Azure's of 2024 are."""
    paths, out = [folder / f"AzureLLMInferenceTrace_{service}_1week.csv" for service in ("code", "conv")], folder / "requests.parquet"
    for number, (path, share) in enumerate(zip(paths, (0.38, 0.62), strict=True)):
        write_azure(path, int(rows * share), number)
    text = sum(path.stat().st_size for path in paths) / 2**20
    taken = cost([sys.executable, "-m", "harness.traces_app", "import", "azure-llm", *map(str, paths), "-o", str(out)])
    what = f"import of {rows:,} requests of two services, azure-llm"
    yield Row(f"{what}: peak memory", taken.peak_mib, "MiB", TARGET_MIB, detail=f"{text:,.0f} MiB of text")
    yield Row(what, rows / taken.wall_s, "rows/s", of_machine=True, detail=f"{taken.wall_s:.1f} s, {taken.cpu_s:.1f} s of processor time")
    for path in (*paths, out):
        path.unlink()


def write_azure(path: Path, rows: int, seed: int) -> None:
    """A file of Azure's trace of 2024, ``rows`` requests over a week."""
    from pyarrow import csv

    rng = np.random.default_rng([SEED, seed])
    now = np.int64(1_715_299_200_000_000)
    options = csv.WriteOptions(quoting_style="none", include_header=False)
    with pa.OSFile(str(path), "wb") as file:
        file.write(b"TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for start in range(0, rows, CHUNK_ROWS):
            size = min(CHUNK_ROWS, rows - start)
            times = now + np.cumsum(rng.exponential(7 * 86_400e6 / rows, size)).astype(np.int64)
            now = times[-1]
            stamps = pc.binary_join_element_wise(pa.array(times.astype("datetime64[us]")).cast(pa.string()), "+00:00", "")
            csv.write_csv(pa.table({"TIMESTAMP": stamps, "ContextTokens": rng.integers(1, 8_000, size),
                                    "GeneratedTokens": rng.integers(1, 1_000, size)}), file, options)


def write_philly(path: Path, rows: int) -> None:
    """The flat CSV of Philly, ``rows`` jobs."""
    def chunk(submit: np.ndarray, duration: np.ndarray, rng: np.random.Generator) -> pa.Table:
        gpus = rng.choice([1, 1, 1, 2, 4, 8, 16, 12], len(submit))
        vc = pa.array([f"{i:06x}" for i in range(15)]).take(pa.array(rng.integers(15, size=len(submit))))
        times = pa.array(submit.astype("datetime64[s]"))
        return pa.table({"timestamp": pc.strftime(times, "%Y-%m-%d %H:%M:%S"), "duration": duration.astype(np.float64), "num_gpus": gpus,
                         "gpu_time": (duration * gpus).astype(np.float64), "cluster": vc})

    _write(path, rows, chunk, ",")


def write_sacct(path: Path, rows: int) -> None:
    """Output of ``SLURM_TIME_FORMAT=%s sacct --parsable2``, ``rows`` jobs."""
    first = iter(range(0, rows, CHUNK_ROWS))

    def chunk(submit: np.ndarray, duration: np.ndarray, rng: np.random.Generator) -> pa.Table:
        number = next(first) + np.arange(len(submit))
        wait = rng.integers(0, 3600, len(submit))
        return pa.table({
            "JobID": pc.cast(pa.array(number), pa.string()), "Submit": submit, "Start": submit + wait, "End": submit + wait + duration,
            "State": pa.array(["COMPLETED", "FAILED", "CANCELLED by 1001"]).take(pa.array(rng.integers(3, size=len(submit)))),
            "AllocTRES": pa.array(TRES).take(pa.array(rng.integers(3, size=len(submit)))),
            "Timelimit": pa.repeat("1-00:00:00", len(submit)), "Priority": rng.integers(1, 10_000, len(submit)),
            "QOS": pa.repeat("normal", len(submit)), "Account": pa.repeat("ml", len(submit)),
            "Partition": pa.repeat("gpu", len(submit)),
        })

    _write(path, rows, chunk, "|")


def _write(path: Path, rows: int, chunk: Callable[[np.ndarray, np.ndarray, np.random.Generator], pa.Table], separator: str) -> None:
    """Draws submission and duration (s, i8) of ``rows`` jobs and writes what ``chunk`` makes of them, some at a time."""
    from pyarrow import csv

    rng = np.random.default_rng(SEED)
    options = csv.WriteOptions(delimiter=separator, quoting_style="none", include_header=False)
    with pa.OSFile(str(path), "wb") as file:
        for start in range(0, rows, CHUNK_ROWS):
            size = min(CHUNK_ROWS, rows - start)
            submit = START_S + rng.integers(0, 180 * 86_400, size)
            table = chunk(submit, np.ceil(rng.lognormal(7, 2, size)).astype(np.int64), rng)
            if not start:
                file.write((separator.join(table.column_names) + "\n").encode())
            csv.write_csv(table, file, options)
