"""The rules of ``harness.schema`` applied to a table: every violation with its rows, and the defaults.

Checks look at whole columns at once; only a column that fails is looked at row by row.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.schema import MILLI, TRACES, Column, Table, names
from harness.tables.sniff import one_line

TIME_COLUMN = {"jobs": "submit_time", "services": "time", "requests": "arrival_time"}
"""Kind of trace -> the column of its arrivals."""

ROWS_SHOWN = 5
VIOLATIONS_SHOWN = 3
_EXACT = 2**53
_MAX_COUNT = 2.0**62


def kind_of(table: pa.Table, source: str) -> str:
    """jobs, requests or services, by the column that marks it, in that order. Raises BadInput without any."""
    for kind in ("jobs", "requests", "services"):
        if TRACES[kind][0] in table.column_names:
            return kind
    marks = ", ".join(f"{mark} ({kind})" for kind, (mark, _) in TRACES.items())
    found = ", ".join(table.column_names) or "none"
    raise BadInput(f"{source}: not a trace: needs one of the columns {marks}; its columns are {one_line(found)}")


def checked(table: pa.Table, table_schema: Table, source: str) -> pa.Table:
    """``table`` validated, cast, defaults applied, in schema order. Raises BadInput with the first violations on one line."""
    cast, violations = _check(table, table_schema, source)
    if violations:
        raise BadInput(summary(violations, source))
    return fill_defaults(cast, table_schema)


def summary(violations: list[str], source: str) -> str:
    """The first violations as one line that names ``source`` once, and how many more there are."""
    shown = [violation.removeprefix(f"{source}: ") for violation in violations[:VIOLATIONS_SHOWN]]
    line = f"{source}: " + "; ".join(shown)
    more = len(violations) - VIOLATIONS_SHOWN
    return line if more <= 0 else f"{line}; and {more} more (see `harness-traces validate`)"


def validate(table: pa.Table, table_schema: Table, source: str) -> list[str]:
    """Every violation of ``table_schema`` in ``table``, one line each, in column order; [] when it is sound."""
    return _check(table, table_schema, source)[1]


def fill_defaults(table: pa.Table, table_schema: Table) -> pa.Table:
    """``table`` with the missing columns added from their defaults, schema columns first, the rest behind in their order."""
    known = set(names(table_schema))
    columns: dict[str, Any] = {}
    for column in table_schema:
        if column.name in table.column_names:
            columns[column.name] = table[column.name]
        elif column.required:
            raise BadInput(f"column {column.name}: missing, it has no default")
        elif isinstance(column.default, str) and column.default in known:
            columns[column.name] = columns[column.default]
        elif column.default is None:
            columns[column.name] = pa.nulls(table.num_rows, column.type)
        else:
            columns[column.name] = pa.repeat(pa.scalar(column.default, column.type), table.num_rows)
    for name in table.column_names:
        if name not in known:
            columns[name] = table[name]
    return pa.table(columns).replace_schema_metadata(table.schema.metadata)


def rows_text(bad: np.ndarray) -> str:
    """``row 3`` or ``rows 1, 2, 3, 4, 5 (7 bad rows)`` for a boolean mask of bad rows."""
    rows = np.flatnonzero(bad)
    listed = ", ".join(str(row) for row in rows[:ROWS_SHOWN])
    if len(rows) == 1:
        return f"row {listed}"
    return f"rows {listed}" + (f", ... ({len(rows)} bad rows)" if len(rows) > ROWS_SHOWN else f" ({len(rows)} bad rows)")


def _check(table: pa.Table, table_schema: Table, source: str) -> tuple[pa.Table, list[str]]:
    """The table with every known column that could be cast in its schema type, and all violations."""
    violations: list[str] = []
    columns: dict[str, Any] = {}
    found = table.column_names
    known = {column.name for column in table_schema}
    for column in table_schema:
        where = f"{source}: column {column.name}"
        if column.name not in found:
            if column.required:
                there = one_line(", ".join(found))
                violations.append(f"{where}: missing, must be there as {_right(column)}; the columns are {there}")
            continue
        if found.count(column.name) > 1:
            violations.append(f"{where}: there {found.count(column.name)} times, must be there once")
            continue
        values, problems = _cast(table[column.name], column)
        if values is not None:
            columns[column.name] = values
            problems += _check_values(values, column)
        violations += [f"{where}{problem}" for problem in problems]
    for name in dict.fromkeys(found):
        if name not in known and found.count(name) > 1:
            violations.append(f"{source}: column {name}: there {found.count(name)} times, must be there once")
        elif name not in known:
            columns[name] = table[name]
    violations += [f"{source}: {problem}" for problem in _check_across(columns)]
    cast = pa.table(columns) if columns else table.select([])
    return cast.replace_schema_metadata(table.schema.metadata), violations


def _right(column: Column) -> str:
    """What a right value of ``column`` is, in words."""
    if column.values:
        return "one of " + ", ".join(column.values)
    if pa.types.is_floating(column.type):
        kind = "a finite number"
    elif pa.types.is_integer(column.type):
        kind = "a whole number"
    elif pa.types.is_boolean(column.type):
        kind = "true or false"
    elif pa.types.is_list(column.type):
        kind = "a list of whole numbers"
    else:
        kind = "a unique string" if column.unique else "a string"
    low, high = column.low, column.high
    if pa.types.is_integer(column.type) and high is None and column.type.bit_width < 64:
        high = np.iinfo(column.type.to_pandas_dtype()).max
    bounds = [f"> {column.above:g}"] if column.above is not None else []
    bounds += [f">= {low:g}"] if low is not None else []
    bounds += [f"<= {high}"] if high is not None else []
    unit = f" ({column.unit})" if column.unit else ""
    return " ".join([kind, " and ".join(bounds)]).strip() + unit + (" or null" if column.nullable else "")


def _problem(bad: np.ndarray, what: str, column: Column) -> str:
    return f", {rows_text(bad)}: {what}, must be {_right(column)}"


def _first(values: pa.ChunkedArray, bad: np.ndarray) -> str:
    return one_line(values[int(np.argmax(bad))].as_py(), 40)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _cast(values: pa.ChunkedArray, column: Column) -> tuple[pa.ChunkedArray | None, list[str]]:
    """``values`` in the type of ``column`` where nothing is lost by it, else None and why."""
    kind, want = values.type, column.type
    if kind == want:
        return values, []
    if pa.types.is_dictionary(kind):
        values = values.cast(kind.value_type)
        kind = values.type
    if pa.types.is_null(kind):
        return pa.chunked_array([pa.nulls(len(values), want)]), []
    if pa.types.is_integer(want) and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return _cast_whole(values, column)
    if pa.types.is_floating(want) and pa.types.is_integer(kind):
        inexact = np.abs(pc.fill_null(values, pa.scalar(0, kind)).to_numpy().astype(np.float64)) > _EXACT
        if inexact.any():
            return None, [_problem(inexact, f"{_first(values, inexact)} is too large to be exact", column)]
    allowed = (
        kind == want
        or (_is_text(kind) and _is_text(want))
        or (pa.types.is_floating(want) and (pa.types.is_integer(kind) or pa.types.is_floating(kind)))
        or (_is_list(kind) and _is_list(want) and (pa.types.is_integer(kind.value_type) or pa.types.is_null(kind.value_type)))
    )
    if allowed:
        try:
            return values.cast(want), []
        except (pa.ArrowException, OverflowError) as error:
            return None, [f": {one_line(error, 120)}; must be {_right(column)}"]
    wanted = "float64" if pa.types.is_floating(want) else str(want)
    return None, [f": has type {one_line(kind, 60)}, must be {wanted}: {_right(column)}"]


def _cast_whole(values: pa.ChunkedArray, column: Column) -> tuple[pa.ChunkedArray | None, list[str]]:
    """Integers or floats as the integers of ``column``: whole and in range, or the rows that are not."""
    limits = np.iinfo(column.type.to_pandas_dtype())
    numbers = pc.fill_null(values, pa.scalar(0, values.type)).to_numpy()
    fractional = np.zeros(len(numbers), bool)
    low, high = limits.min, limits.max
    if pa.types.is_floating(values.type):
        numbers = numbers.astype(np.float64)
        fractional = numbers != np.floor(numbers)
        low, high = max(low, -_EXACT), min(high, _EXACT)
    outside = ~fractional & ~((numbers >= low) & (numbers <= high))
    problems = []
    if fractional.any():
        problems.append(_problem(fractional, f"{_first(values, fractional)} is not a whole number", column))
    if outside.any():
        problems.append(_problem(outside, f"{_first(values, outside)} does not fit {column.type}", column))
    return (None, problems) if problems else (values.cast(column.type), [])


def _filled(values: pa.ChunkedArray) -> np.ndarray:
    """Numbers as a NumPy array; nulls become 1, which every bound of the schema allows."""
    if values.null_count:
        values = pc.fill_null(values, pa.scalar(1, values.type))
    return values.to_numpy()


def _check_values(values: pa.ChunkedArray, column: Column) -> list[str]:
    """Nulls, bounds, words and uniqueness of one column that has its schema type."""
    problems = []
    if values.null_count and not column.nullable:
        nulls = values.is_null().to_numpy()
        problems.append(_problem(nulls, "null", column))
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        problems += _check_bounds(values, column)
    elif column.values:
        words = set(pc.unique(values).to_pylist()) - {None}
        if words - set(column.values):
            bad = values.is_valid().to_numpy() & ~pc.is_in(values, pa.array(column.values)).to_numpy()
            problems.append(_problem(bad, f"'{_first(values, bad)}' is unknown", column))
    elif column.unique and len(pc.unique(values)) < len(values) - max(0, values.null_count - 1):
        coded = values.dictionary_encode().unify_dictionaries()
        codes = np.concatenate([chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False) for chunk in coded.chunks])
        first = np.zeros(len(codes), bool)
        first[np.unique(codes, return_index=True)[1]] = True
        again = ~first & (codes >= 0)
        problems.append(_problem(again, f"'{_first(values, again)}' was used by an earlier row", column))
    elif pa.types.is_list(column.type):
        holes = np.array([chunk.flatten().null_count for chunk in values.chunks])
        if holes.sum():
            bad = np.array([None in (item or ()) for item in values.to_pylist()])
            problems.append(_problem(bad, "a list that holds null", column))
    return problems


def _check_bounds(values: pa.ChunkedArray, column: Column) -> list[str]:
    """NaN, infinity and values outside the bounds of a numeric column."""
    numbers = _filled(values)
    if not len(numbers):
        return []
    smallest, largest = numbers.min(), numbers.max()
    low = -np.inf if column.low is None else column.low
    above = -np.inf if column.above is None else column.above
    high = np.inf if column.high is None else column.high
    if np.isfinite(smallest) and np.isfinite(largest) and smallest >= low and smallest > above and largest <= high:
        return []
    problems = []
    endless = ~np.isfinite(numbers)
    if endless.any():
        problems.append(_problem(endless, f"{_first(values, endless)} is not finite", column))
    outside = ~endless & ~((numbers >= low) & (numbers > above) & (numbers <= high))
    if outside.any():
        what = _first(values, outside)
        problems.append(_problem(outside, f"{what} is {'negative' if what.startswith('-') else 'out of range'}", column))
    return problems


def _check_across(columns: Mapping[str, Any]) -> list[str]:
    """The rules that tie columns of one row together."""
    problems = []
    have = columns.keys()
    if {"gpus", "gpu_milli"} <= have:
        gpus, share = _filled(columns["gpus"]), _filled(columns["gpu_milli"])
        bad = (share < MILLI) & (share > 0) & (gpus != 1)
        if bad.any():
            row = int(np.argmax(bad))
            problems.append(f"column gpu_milli, {rows_text(bad)}: {share[row]} with gpus = {gpus[row]}, "
                            f"must be {MILLI} unless gpus = 1 (only a single GPU can be shared)")
    if {"submit_time", "end_time"} <= have:
        end = columns["end_time"]
        bad = (_filled(end) <= _filled(columns["submit_time"])) & end.is_valid().to_numpy()
        if bad.any():
            row = int(np.argmax(bad))
            problems.append(f"column end_time, {rows_text(bad)}: {end[row]} is not after submit_time "
                            f"{columns['submit_time'][row]}, must be > submit_time or null")
    for name, scale in (("cpus", MILLI), ("memory_mib", 1)):
        if name in have:
            gang = _filled(columns["instances"]).astype(np.float64) if "instances" in have else 1.0
            with np.errstate(over="ignore", invalid="ignore"):
                total = _filled(columns[name]) * np.float64(scale) * gang
            bad = np.isfinite(_filled(columns[name])) & (total >= _MAX_COUNT)
            if bad.any():
                problems.append(f"column {name}, {rows_text(bad)}: {_first(columns[name], bad)} is too large to be counted, "
                                f"must be a size of a real machine")
    return problems
