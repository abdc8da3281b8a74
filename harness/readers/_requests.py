"""What readers of request traces share: from pieces in file order to one trace in order of arrival, in bounded memory.

A piece has the columns ``time_ns`` (i64), ``row`` (i64, counted on through all files), ``prompt_tokens`` and ``output_tokens``
(i64), and any others of schema.REQUESTS or beyond it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._options import option
from harness.readers._rules import iso, repeated_rows
from harness.schema import REQUESTS
from harness.tables import Runs, checked, rows_text

NS = 1_000_000_000
MOST_TOKENS = 2**31 - 1
HASHES_PER_FILE = 1 << 40
"""Prefix hashes of file k are shifted by k times this, because ids of different files mean different blocks."""


@dataclass(frozen=True)
class RequestOptions:
    zero_tokens: str = option("drop", "requests without prompt or without output tokens (failures): drop them, raise_to_1, or refuse "
                              "the file", ("drop", "raise_to_1", "refuse"))
    duplicates: str = option("keep", "exact repetitions of a request", ("keep", "drop"))


def request_trace(pieces: Iterable[pa.Table], prefix: str, options: RequestOptions, report: list[str], paths: Sequence[Path],
                  start_ns: int | None = None, zone: str | None = None) -> pa.Table | Iterator[pa.Table]:
    """The requests of ``pieces``, named ``prefix``-row, sorted by arrival (ties in file order), with every column of schema.REQUESTS.

    A table when they fit into one run of ``tables.Runs``, else tables to be read once, one after the other; ``report`` is complete
    when the last is read. Time 0 is ``start_ns``, or the first arrival when that is None; ``zone`` is None when no calendar is known.
    Raises BadInput for negative or absent token counts, and when no request is left.
    """
    source = ", ".join(str(path) for path in paths)
    runs, zeros, first = Runs("time_ns", "row"), 0, None
    for piece in pieces:
        earliest = pc.min(piece["time_ns"]).as_py()
        first = earliest if first is None else min(first, earliest)
        without = _without_tokens(piece, source, options.zero_tokens)
        zeros += int(without.sum())
        if options.zero_tokens == "drop" and without.any():
            piece = piece.filter(pa.array(~without))
        runs.add(_at_least_one(piece) if without.any() else piece)
    if not runs.rows:
        raise BadInput(f"{source}: no request is left to write")
    done = f"{zeros:,} {'dropped' if options.zero_tokens == 'drop' else 'raised to 1 token'}" if zeros else "none"
    report.append(f"requests without prompt or output tokens (failures): {done}")
    start = int(first or 0) if start_ns is None else start_ns
    if zone is not None:
        report.append(f"time 0 is {iso(start / NS, zone)}{'' if zone else ' on it'}")
    finished = _finished(runs, prefix, options, report, source, start)
    return pa.concat_tables(list(finished)).combine_chunks() if runs.in_memory else finished


def _without_tokens(piece: pa.Table, source: str, rule: str) -> np.ndarray:
    """Rows whose prompt or output has no tokens. Raises BadInput for counts that cannot be, and for these when ``rule`` is refuse."""
    without = np.zeros(piece.num_rows, bool)
    for name in ("prompt_tokens", "output_tokens"):
        counts = pc.fill_null(piece[name], -1).to_numpy()
        bad = (counts < 0) | (counts > MOST_TOKENS) | ((counts == 0) & (rule == "refuse"))
        if bad.any():
            at = int(np.argmax(bad))
            found = piece[name][at].as_py()
            raise BadInput(f"{source}: {name}, row {piece['row'][at]}: {'empty' if found is None else found}, must be a whole number of at "
                           "least 1" + (" (--zero_tokens drop leaves failed requests out)" if found == 0 else ""))
        without |= counts == 0
    return without


def _at_least_one(piece: pa.Table) -> pa.Table:
    for name in ("prompt_tokens", "output_tokens"):
        at = piece.column_names.index(name)
        piece = piece.set_column(at, name, pc.max_element_wise(piece[name], 1))
    return piece


def _finished(runs: Runs, prefix: str, options: RequestOptions, report: list[str], source: str, start: int) -> Iterator[pa.Table]:
    """Tables of the schema, in order; what was counted on the way goes into ``report`` behind the last."""
    repeats, instants, most, at_most, services = 0, 0, 0, 0.0, Counter[str]()
    last, unsorted = 0.0, 0
    reached = -1
    for block in runs:
        times = block["time_ns"].to_numpy()
        begins = np.flatnonzero(np.concatenate([[True], times[1:] != times[:-1]]))
        sizes = np.diff(np.append(begins, len(times)))
        repeated = _repeated(block, times)
        repeats += int(repeated.sum())
        instants += len(begins)
        if sizes.max() > most:
            most, at_most = int(sizes.max()), (times[begins[int(np.argmax(sizes))]] - start) / NS
        rows = block["row"].to_numpy()
        unsorted += int((np.diff(np.concatenate([[reached], rows])) < 0).sum())
        reached = int(rows[-1])
        last = (times[-1] - start) / NS
        arrival = (times - start) / NS
        columns = {name: block[name] for name in block.column_names if name not in ("time_ns", "row")}
        names = pc.binary_join_element_wise(pa.scalar(prefix), pc.cast(block["row"], pa.string()), "-")
        table = pa.table({"request_id": names, "arrival_time": arrival, **columns})
        if options.duplicates == "drop":
            table = table.filter(pa.array(~repeated))
        if "service" in columns:
            services.update({v["values"].as_py(): v["counts"].as_py() for v in pc.value_counts(table["service"].combine_chunks())})
        yield checked(table, REQUESTS, source)
    report.append(f"exact repetitions of an earlier request: {repeats:,} {'kept' if options.duplicates == 'keep' else 'dropped'}")
    if unsorted:
        report.append("not in order of arrival (or several files): sorted, ties in file order")
    report.append(f"arrivals: at {instants:,} instants up to {last:,.3f} s, at most {most:,} at one (at {at_most:,.3f} s)")
    if len(services) > 1:
        report.append("services: " + ", ".join(f"{name} {count:,}" for name, count in sorted(services.items())))


def _repeated(block: pa.Table, times: np.ndarray) -> np.ndarray:
    """Rows that equal an earlier one in everything but their number; ``times`` is sorted, so that equal ones are close."""
    same = times[1:] == times[:-1]
    near = np.concatenate([[False], same]) | np.concatenate([same, [False]])
    result = np.zeros(len(times), bool)
    if not near.any():
        return result
    part = block.filter(pa.array(near)).drop_columns(["row"])
    lists = [field.name for field in part.schema if pa.types.is_list(field.type)]
    found = repeated_rows(part.drop_columns(lists))
    if lists and found.any():
        found = np.zeros(part.num_rows, bool)
        seen: set[tuple[object, ...]] = set()
        for row, values in enumerate(zip(*(column.to_pylist() for column in part.columns), strict=True)):
            key = tuple(tuple(v) if isinstance(v, list) else v for v in values)
            found[row] = key in seen
            seen.add(key)
    result[np.flatnonzero(near)[found]] = True
    return result


def numbered_rows(piece: pa.Table, before: int) -> pa.Array:
    """Row numbers of a piece that has ``before`` rows before it."""
    return pa.array(np.arange(before, before + piece.num_rows, dtype=np.int64))


def whole(piece: pa.Table, name: str, path: Path, before: int) -> np.ndarray:
    """Column ``name`` as i64 (rows,); a null is -1. Raises BadInput for a fraction."""
    values = pc.fill_null(piece[name], -1).to_numpy()
    bad = ~np.isfinite(values) | (values != np.floor(values)) | (np.abs(values) > 2.0**53)
    if bad.any():
        shown = np.zeros(before + len(bad), bool) if before < 10**7 else np.zeros(len(bad), bool)
        shown[-len(bad):] = bad
        raise BadInput(f"{path}: column {name}, {rows_text(shown)}: {piece[name][int(np.argmax(bad))]}, must be a whole number")
    return values.astype(np.int64)


def nanoseconds(seconds: np.ndarray) -> np.ndarray:
    """Seconds as whole nanoseconds, i64 of the same shape."""
    return np.rint(seconds * NS).astype(np.int64)


def ns_of(times: pa.ChunkedArray, path: Path, before: int, example: str) -> np.ndarray:
    """Timestamps as i64 nanoseconds since 1970. Raises BadInput for an empty one."""
    if times.null_count:
        row = before + times.is_null().to_pylist().index(True)
        raise BadInput(f"{path}: row {row}: no time, must be a time such as {example}")
    return times.cast(pa.int64()).to_numpy()
