"""Rules that readers share: numbers from columns, runs without length, repeated rows, wall clocks."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.schema import Table
from harness.tables import checked, one_line, rows_text

NONPOSITIVE = ("drop", "raise_to_1s", "refuse")
NONPOSITIVE_HELP = "runs of zero or negative length: drop them, raise_to_1s, or refuse the file"
_QUARTER_S = 900
_EPOCH = datetime(1970, 1, 1)


def numbers(table: pa.Table, name: str, source: str, low: float = -np.inf, high: float = np.inf,
            whole: bool = False) -> np.ndarray:
    """Column ``name`` as f64 (rows,). Raises BadInput for a null, a value outside [low, high] or, when ``whole``, a fraction."""
    values = pc.fill_null(table[name], np.nan).to_numpy()
    bad = ~(np.isfinite(values) & (values >= low) & (values <= high))
    if whole:
        bad |= np.isfinite(values) & (values != np.floor(values))
    if bad.any():
        found = table[name][int(np.argmax(bad))].as_py()
        bounds = [f">= {low:g}"] if low > -np.inf else []
        bounds += [f"<= {high:g}"] if high < np.inf else []
        wanted = " ".join(["a whole number" if whole else "a number", " and ".join(bounds)]).strip()
        raise BadInput(f"{source}: column {name}, {rows_text(bad)}: {'empty' if found is None else found}, must be {wanted}")
    return values


def positive_runs(duration: np.ndarray, rule: str, source: str, report: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Durations (s) after ``rule`` (one of NONPOSITIVE) and the mask of the rows to keep; counted in ``report``."""
    bad = ~(duration > 0)
    if not bad.any():
        return duration, ~bad
    if rule == "refuse":
        raise BadInput(f"{source}: {rows_text(bad)}: runs for {duration[int(np.argmax(bad))]:g} s, must be > 0 "
                       "(--nonpositive drop leaves such rows out)")
    done = "dropped" if rule == "drop" else "raised to 1 s"
    report.append(f"runs of zero or negative length: {bad.sum():,} {done}")
    return np.where(bad, 1.0, duration), ~bad if rule == "drop" else np.ones(len(bad), bool)


def repeated_rows(table: pa.Table) -> np.ndarray:
    """Bool (rows,): rows that equal an earlier one in every column."""
    codes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        coded = column.combine_chunks().dictionary_encode("encode")
        coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
        pair = codes * (len(coded.dictionary) + 1) + coded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(pair, return_inverse=True)[1].astype(np.int64)
    first = np.zeros(table.num_rows, bool)
    first[np.unique(codes, return_index=True)[1]] = True
    return ~first


def seconds_of(times: pa.ChunkedArray) -> np.ndarray:
    """Wall-clock timestamps as f64 seconds since 1970 on that clock."""
    return times.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() / 1e6


def to_utc(wall: np.ndarray, zone: str, report: list[str]) -> np.ndarray:
    """UTC seconds (rows,) of wall-clock seconds in the time zone ``zone`` (an IANA name).

    A time that the clock shows twice in autumn is the first of the two, one that it skips in spring is moved behind the
    gap; both are counted in ``report``. Raises BadInput for an unknown zone.
    """
    offset, twice, skipped = zone_offsets(wall, zone)
    report.append(zone_report(zone, twice, skipped))
    return wall - offset


def zone_offsets(wall: np.ndarray, zone: str) -> tuple[np.ndarray, int, int]:
    """Offset from UTC (s) of each wall-clock time, how many of them the clock showed twice, and how many it skipped."""
    try:
        clock = ZoneInfo(zone)
    except (OSError, ValueError, LookupError) as error:
        raise BadInput(f"--tz {one_line(zone, 60)}: unknown time zone, must be an IANA name, as America/Los_Angeles") from error
    quarter, row_quarter = np.unique(np.floor_divide(wall, _QUARTER_S).astype(np.int64), return_inverse=True)
    first, second = np.zeros(len(quarter)), np.zeros(len(quarter))
    for i, q in enumerate(quarter):
        shown = _EPOCH + timedelta(seconds=int(q) * _QUARTER_S)
        first[i] = (shown.replace(tzinfo=clock).utcoffset() or timedelta()).total_seconds()
        second[i] = (shown.replace(tzinfo=clock, fold=1).utcoffset() or timedelta()).total_seconds()
    return first[row_quarter], int((first > second)[row_quarter].sum()), int((first < second)[row_quarter].sum())


def zone_report(zone: str, twice: int, skipped: int) -> str:
    """What became of the times that the clock of ``zone`` showed twice or skipped."""
    return (f"time zone: {zone}; {twice:,} times that the clock showed twice were read as the first, "
            f"{skipped:,} that it skipped were moved behind the gap")


def iso(seconds: float, zone: str = "") -> str:
    """Seconds since 1970 as ``2017-09-04 10:30:41``, with ``zone`` behind it."""
    shown = datetime.fromtimestamp(float(seconds), UTC).replace(tzinfo=None)
    return f"{shown.isoformat(' ', 'seconds')} {zone}".strip()


def bare_name(path: Path) -> str:
    """The file's name up to its first dot."""
    return path.name.split(".")[0] or path.name


def trace_table(columns: Mapping[str, Any], table_schema: Table, keep: np.ndarray, order_by: str,
                paths: Sequence[Path]) -> pa.Table:
    """The kept rows in the order of column ``order_by`` (ties in file order), validated, every schema column there.

    Rows are validated before they are dropped and sorted, so that errors name rows of the file (of all of them in turn when
    there are several). Raises BadInput when no row is left or a value cannot be in a trace.
    """
    source = ", ".join(str(p) for p in paths)
    if not keep.any():
        raise BadInput(f"{source}: no row is left to write")
    table = checked(pa.table(dict(columns)), table_schema, source).filter(pa.array(keep))
    order = np.argsort(table[order_by].to_numpy(), kind="stable")
    return table.take(pa.array(order)).combine_chunks()
