"""From the cells of a folder to one table with a row for each."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from harness.cells import FAILED, is_whole
from harness.errors import BadInput
from harness.tables import write_atomically, write_table

LABELS = ("cluster", "workload", "policy", "pinning", "seed")
NEEDED = ("cell", "labels", "overrides", "config", "sources")
NOT_COLUMNS = (*LABELS, "policy.file", "policy.name", "out", "force", "dry_run", "progress", "report", "experiment", "league")


def read_rows(out: Path) -> list[dict[str, Any]]:
    """One row per cell of ``out`` made by the newest sources found there: labels, varied keys, metrics, status and error."""
    found = []
    for manifest in out.glob("*/manifest.json"):
        if not manifest.parent.name.startswith(".") and is_whole(manifest.parent):
            known = _read(manifest, NEEDED)
            found.append((manifest.stat().st_mtime, {**known, "status": "ok", "error": None}, _read(manifest.parent / "summary.json")))
    for failure in (out / FAILED).glob("*.json"):
        found.append((failure.stat().st_mtime, _read(failure, (*NEEDED, "status", "error")), {}))
    if not found:
        return []
    newest = max(found, key=lambda one: one[0])[1]["sources"]
    current = [(known, metrics) for _, known, metrics in found if known["sources"] == newest]
    whole = {known["cell"] for known, _ in current if known["status"] == "ok"}
    current = [(known, metrics) for known, metrics in current if known["status"] == "ok" or known["cell"] not in whole]
    varied = sorted({key for known, _ in current for key in known["overrides"]} - set(NOT_COLUMNS))
    rows = [
        {**known["labels"], **{key: _look_up(known, key) for key in varied}, **metrics, "status": known["status"],
         "error": known["error"], "cell": known["cell"]}
        for known, metrics in current
    ]
    return sorted(rows, key=lambda row: (*(str(row[label]) for label in LABELS[:-1]), row["seed"], row["cell"]))


def aggregate(out: Path) -> Path:
    """Writes ``summary.parquet`` and ``summary.csv`` of the cells in ``out``; can be done again at any time.

    Raises BadInput when there are no cells.
    """
    rows = read_rows(out)
    if not rows:
        raise BadInput(f"{out}: there are no cells here; a results folder holds those of a run of harness")
    names = list(dict.fromkeys(name for row in rows for name in row if name not in ("status", "error", "cell")))
    table = pa.table({name: _column([row.get(name) for row in rows]) for name in (*names, "status", "error", "cell")})
    write_table(table, out / "summary.parquet")
    write_atomically(out / "summary.csv", lambda temporary: pyarrow.csv.write_csv(table, temporary))
    return out / "summary.parquet"


def _read(path: Path, needed: Sequence[str] = ()) -> dict[str, Any]:
    remedy = f"delete {'this file' if path.parent.name == FAILED else path.parent} and run the sweep again"
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: is not readable JSON; {remedy}") from error
    if not isinstance(found, dict) or any(key not in found for key in needed):
        raise BadInput(f"{path}: is not what a cell writes; {remedy}")
    return found


def _look_up(known: Mapping[str, Any], key: str) -> Any:
    """Value of a key in a cell's configuration; of a group, such as pool or pool/gpu, the option that was chosen."""
    value: Any = known["config"]
    for part in key.lstrip("+~").split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, Mapping) or "/" in key:
        return known["overrides"].get(key)
    return json.dumps(value) if isinstance(value, list) else value


def _column(values: list[Any]) -> pa.Array:
    """Numbers stay numbers; what is mixed becomes text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and float in kinds:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if len(kinds) > 1:
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    return pa.array(values, pa.string() if not kinds else None)
