"""Opens a results folder: the summary of a sweep and, on demand, the tables of its cells."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import BadInput
from harness.figures.settings import NotDrawn, key_columns, short
from harness.figures.style import in_order
from harness.tables import one_line

REQUIRED = ("cluster", "workload", "policy", "seed", "cell", "status")
ROWS_PER_POLICY = 2_000_000
"""More rows of a cell table than this are not read for one policy: later seeds are left out."""

CLOCKS = {"jobs": "submit_time", "preemptions": "time", "requests": "arrival_time"}
"""The column of a cell table that warm-up is cut by."""

OK = "ok"


@dataclass(frozen=True)
class Results:
    """``summary`` has the cells that ended well, ``failed`` the others, one row each; policies carry their varying parameters."""

    folder: Path
    summary: pd.DataFrame
    failed: pd.DataFrame

    def holds(self, metric: str) -> bool:
        """Whether there are results of jobs, of requests, or of another metric of the summary."""
        return metric in self.summary and bool(self.summary[metric].notna().any())

    def table(self, name: str, columns: Sequence[str], cells: pd.DataFrame) -> pd.DataFrame:
        """``columns`` of a cell table (jobs, preemptions, requests, utilization) for all of ``cells``, with policy, seed and cell added.

        Jobs submitted and decisions taken before a swept ``warmup_s`` are left out. Raises NotDrawn when a table is absent or lacks
        a column.
        """
        parts, read = [], {}
        for cell in cells.sort_values("seed", kind="stable").itertuples():
            policy = str(cell.policy)
            if read.get(policy, 0) > ROWS_PER_POLICY:
                continue
            frame = self._cell_table(str(cell.cell), name, columns)
            if name in CLOCKS:
                frame = frame[frame[CLOCKS[name]] >= _warmup(cell)]
            read[policy] = read.get(policy, 0) + len(frame)
            parts.append(frame.assign(policy=policy, seed=cell.seed, cell=cell.cell))
        if not parts:
            raise NotDrawn("no cell ended well")
        whole = pd.concat(parts, ignore_index=True)
        return whole.assign(policy=pd.Categorical(whole["policy"], in_order(list(read))), cell=whole["cell"].astype("category"))

    def _cell_table(self, cell: str, name: str, columns: Sequence[str]) -> pd.DataFrame:
        path = self.folder / cell / f"{name}.parquet"
        clock = CLOCKS.get(name)
        wanted = [*columns, *([clock] if clock and clock not in columns else [])]
        try:
            table = pq.ParquetFile(path).read(columns=wanted)
        except FileNotFoundError as error:
            raise NotDrawn(f"{cell}/{name}.parquet is absent") from error
        except (pa.ArrowException, OSError) as error:
            raise NotDrawn(f"{cell}/{name}.parquet cannot be read ({one_line(error, 80)})") from error
        missing = [c for c in wanted if c not in table.column_names]
        if missing:
            raise NotDrawn(f"{cell}/{name}.parquet has no column {', '.join(missing)}")
        return table.to_pandas()

    def manifest(self) -> dict:
        """The manifest of the first cell that has one, {} when none has."""
        for cell in self.summary["cell"]:
            try:
                found = json.loads((self.folder / str(cell) / "manifest.json").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            if isinstance(found, dict):
                return found
        return {}


def open_results(folder: str | Path) -> Results:
    """The results in ``folder``, where a sweep wrote summary.parquet. Raises BadInput when they are not there or not readable."""
    folder = Path(folder)
    path = folder / "summary.parquet"
    if not folder.is_dir():
        raise BadInput(f"{one_line(folder)}: no such folder, must be a results folder (the out= of a run)")
    if not path.is_file():
        raise BadInput(f"{one_line(folder)}: has no summary.parquet, must be a results folder (the out= of a run, not one of its cells)")
    try:
        frame = pq.ParquetFile(path).read().to_pandas()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{one_line(path)}: truncated or corrupt Parquet file ({one_line(error)})") from error
    missing = [c for c in REQUIRED if c not in frame.columns]
    if missing:
        raise BadInput(f"{one_line(path)}: column '{missing[0]}' is missing, must be the summary of a sweep")
    if frame.empty:
        raise BadInput(f"{one_line(path)}: has no rows, must have one for each cell")
    for column in (c for c in key_columns(frame) if frame[c].dtype == object):
        frame[column] = frame[column].map(_plain)
    order = [*key_columns(frame), "policy", "seed"]
    frame = frame.sort_values(order, key=_sortable, kind="stable", na_position="first", ignore_index=True)
    well = frame["status"] == OK
    return Results(folder, _named_variants(frame[well].reset_index(drop=True)), frame[~well].reset_index(drop=True))


def newest_results(start: Path | None = None) -> Path:
    """The folder that the environment variable HARNESS_RESULTS names, else the newest results folder below ``results``.

    ``results`` is looked for in ``start`` (the working directory) and above. Raises BadInput when there is none.
    """
    if named := os.environ.get("HARNESS_RESULTS"):
        return Path(named)
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        found = sorted((folder / "results").rglob("summary.parquet"), key=lambda p: (p.stat().st_mtime, str(p)))
        if found:
            return Path(os.path.relpath(found[-1].parent))
    raise BadInput("there are no results yet: run `make reproduce` or a sweep, or name a results folder in HARNESS_RESULTS")


def _named_variants(summary: pd.DataFrame) -> pd.DataFrame:
    """Moves policy parameters from the keys into the policy's name, where one policy was run with several values."""
    parameters = [c for c in key_columns(summary) if c.startswith("policy.")]
    names = summary["policy"].astype(str)
    for column in parameters:
        several = summary.groupby("policy")[column].transform(lambda values: values.nunique(dropna=False) > 1).astype(bool)
        names = names.where(~several, names + ", " + short(column) + " " + summary[column].map(lambda v: "default" if v != v else str(v)))
    return summary.drop(columns=parameters).assign(policy=names)


def _warmup(cell: object) -> float:
    value = getattr(cell, "warmup_s", 0.0)
    return float(value) if value == value and value is not None else 0.0


def _sortable(column: pd.Series) -> pd.Series:
    """Numbers by size, everything else by its text; a shorter list before those that begin like it."""
    return column if pd.api.types.is_numeric_dtype(column) else column.astype("string").str.strip("[]")


def _plain(value: object) -> object:
    """Lists as text, so that cells can be grouped by them."""
    return str(list(value)) if isinstance(value, list | tuple | np.ndarray) else value
