"""Class mapping: rules that pick rows of a trace by their values and set columns of its schema, as written in YAML.

A rule is {where: {COLUMN: CONDITION, ...}, set: {COLUMN: VALUE, ...}, share: S}. A condition is a value, a list of values, null,
or {min: A, max: B}, both inclusive and each optional. All conditions of a rule must hold; without ``where`` every row is meant. A
null meets only the condition null. ``share`` (1) takes that part of the matching rows, drawn from the seed. Rules apply in turn,
each seeing what the earlier ones set.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.schema import Column, Table
from harness.workload.common import Stream, check_number, generator

RULE_KEYS = ("where", "set", "share")


def matching(trace: pa.Table, where: Mapping[str, Any], key: str) -> np.ndarray:
    """The rows of ``trace`` that meet every condition: bool (rows,). ``key`` names the conditions in messages.

    Raises BadInput for a column that the trace does not have, or a value that its type cannot hold.
    """
    mask = np.ones(trace.num_rows, dtype=bool)
    for name, condition in where.items():
        if name not in trace.column_names:
            raise BadInput(f"{key}: the trace has no column {name}; it has {', '.join(trace.column_names)}")
        mask &= _meets(trace[name], condition, f"{key}.{name}")
    return mask


def _meets(column: pa.ChunkedArray, condition: Any, key: str) -> np.ndarray:
    if condition is None:
        return pc.is_null(column).to_numpy()
    if isinstance(condition, Mapping):
        if not condition or set(condition) - {"min", "max"}:
            raise BadInput(f"{key}={dict(condition)}: must be a value, a list of values, null, or {{min: A, max: B}}")
        held = [test(column, _value(condition[bound], column.type, f"{key}.{bound}"))
                for bound, test in (("min", pc.greater_equal), ("max", pc.less_equal)) if bound in condition]
        met = held[0] if len(held) == 1 else pc.and_(*held)
    else:
        values = list(condition) if isinstance(condition, Sequence) and not isinstance(condition, str) else [condition]
        met = pc.is_in(column, value_set=pa.array([_value(v, column.type, key).as_py() for v in values], type=column.type))
    return pc.fill_null(met, False).to_numpy().astype(bool)


def _value(value: Any, kind: pa.DataType, key: str) -> pa.Scalar:
    """``value`` as a scalar of this type; text only for text, so that an unquoted 12e3 does not pass for a name."""
    try:
        if pa.types.is_boolean(kind) != isinstance(value, bool) or pa.types.is_string(kind) != isinstance(value, str):
            raise TypeError
        if pa.types.is_integer(kind) and float(value) != int(value):
            raise ValueError
        return pa.scalar(value, type=kind)
    except (TypeError, ValueError, pa.ArrowException) as e:
        hint = "; put names in quotes" if pa.types.is_string(kind) else ""
        raise BadInput(f"{key}={value}: the column holds {kind}{hint}") from e


def apply_rules(trace: pa.Table, schema_table: Table, rules: Sequence[Mapping[str, Any]], seed: int,
                key: str = "workload.map") -> pa.Table:
    """``trace`` with the rules applied in turn; only columns of ``schema_table`` can be set, to values that it allows.

    Raises BadInput for a malformed rule, naming it by its position.
    """
    columns = {c.name: c for c in schema_table}
    for i, rule in enumerate(rules):
        here = f"{key}[{i}]"
        if set(rule) - set(RULE_KEYS) or not rule.get("set"):
            raise BadInput(f"{here}: a rule has the keys where, set and share, and sets at least one column")
        share = rule.get("share", 1.0)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise BadInput(f"{here}.share={share}: must be >= 0 and <= 1")
        mask = matching(trace, rule.get("where") or {}, f"{here}.where")
        mask &= generator(seed, Stream.CLASS_SHARE, i).random(trace.num_rows) < share
        for name, value in rule["set"].items():
            if name not in columns or columns[name].unique:
                settable = ", ".join(n for n, c in columns.items() if not c.unique)
                raise BadInput(f"{here}.set.{name}: no column that can be set; those are {settable}")
            trace = _set(trace, mask, columns[name], value, f"{here}.set.{name}")
    return trace


def _set(trace: pa.Table, mask: np.ndarray, column: Column, value: Any, key: str) -> pa.Table:
    if value is None:
        if not column.nullable:
            raise BadInput(f"{key}: null is not allowed here")
        scalar = pa.scalar(None, type=column.type)
    else:
        scalar = _value(value, column.type, key)
        if column.values and value not in column.values:
            raise BadInput(f"{key}={value}: must be one of {', '.join(column.values)}")
        if isinstance(value, int | float):
            check_number(key, value, column.low, column.above, column.high)
    at = trace.column_names.index(column.name)
    return trace.set_column(at, trace.schema.field(at), pc.if_else(pa.array(mask), scalar, trace[column.name]))
