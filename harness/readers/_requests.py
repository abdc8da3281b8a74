"""What readers of request traces share: which requests go on, in order of arrival, and what became of the others."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._csv import Chunk
from harness.readers._options import option
from harness.readers._rules import RowOptions, Tally, numbers
from harness.readers._spool import ROW, Spool, hashes
from harness.schema import REQUESTS
from harness.tables import fill_defaults, rows_text

ZEROS = ("drop", "raise_to_1", "refuse")
MOST_TOKENS = 2**31 - 1
DIGITS = 7
"""Decimals of a second that are kept: the finest public clock has seven."""

COUNTED = tuple(c for c in REQUESTS if c.name in ("arrival_time", "prompt_tokens", "output_tokens"))


@dataclass(frozen=True)
class RequestOptions(RowOptions):
    zero_tokens: str = option("drop", "requests without prompt or without output tokens (failures): drop them, raise_to_1, or refuse "
                              "the file", ZEROS)


class RequestRows:
    """The requests of an import, named ``prefix``-row. Equal ones arrive at one instant, so they are found once all are sorted."""

    def __init__(self, paths: Sequence[Path], tally: Tally, options: RequestOptions, prefix: str) -> None:
        self.source = ", ".join(str(path) for path in paths)
        self.tally, self.options, self.prefix = tally, options, prefix
        self.spool = Spool(COUNTED, "arrival_time")
        self.services: Counter[str] = Counter()
        self._reached: dict[str, float] = {}

    def add(self, number: int, source: str, columns: Mapping[str, Any], in_file: np.ndarray | None = None) -> None:
        """Further requests, the first of them number ``number`` of all: arrival_time (s), prompt_tokens, output_tokens, and others.

        ``in_file``: the times as the file has them, when they are not those.
        """
        file = source.partition(", counted from row")[0]
        times = np.concatenate([[self._reached.get(file, -np.inf)], columns["arrival_time"] if in_file is None else in_file])
        back = np.diff(times) < 0
        self._reached[file] = float(times[-1])
        if back.any() and self.options.unsorted == "refuse":
            raise BadInput(f"{source}: {rows_text(back)}: comes before the row above, must be sorted by arrival (--unsorted sort sorts)")
        self.tally.add("requests that come before the row above in their file: {:,}, sorted, ties in file order", back.sum())
        without = (columns["prompt_tokens"] == 0) | (columns["output_tokens"] == 0)
        if without.any() and self.options.zero_tokens == "refuse":
            raise BadInput(f"{source}: row {int(np.argmax(without))}: no prompt or no output tokens, must be at least 1 of each "
                           "(--zero_tokens drop leaves failed requests out)")
        keep = ~without if self.options.zero_tokens == "drop" else np.ones(len(without), bool)
        done = "dropped" if self.options.zero_tokens == "drop" else "raised to 1 token"
        self.tally.add(f"requests without prompt or output tokens (failures): {{:,}} {done}", without.sum(), always=True)
        counts = {name: np.maximum(columns[name], 1) for name in ("prompt_tokens", "output_tokens")}
        if "service" in columns:
            kept = pc.value_counts(pa.array(columns["service"]).filter(pa.array(keep)))
            self.services.update({pair["values"].as_py(): pair["counts"].as_py() for pair in kept})
        self.spool.add({**columns, **counts}, keep, number, source)

    def done(self, origin: float = 0.0) -> Spool:
        """The trace, its times counted from ``origin``."""
        seen = _Instants()
        self.spool.seal(np.empty(0, np.int64), seen.look, self.source)
        for _ in self.spool.batches():
            pass
        again = seen.repeated()
        self.tally.add(f"exact repetitions of an earlier request: {{:,}} {'kept' if self.options.duplicates == 'keep' else 'dropped'}",
                       len(again), always=True)
        self.tally.say(f"arrivals: at {seen.instants:,} instants up to {seen.last - origin:,.3f} s, at most {seen.most:,} at one "
                       f"(at {seen.most_at - origin:,.3f} s)")
        if len(self.services) > 1:
            self.tally.say("services: " + ", ".join(f"{name} {count:,}" for name, count in sorted(self.services.items())))

        def finish(table: pa.Table) -> pa.Table:
            names = pc.binary_join_element_wise(self.prefix, pc.cast(table[ROW], pa.string()), "-")
            at = table.column_names.index("arrival_time")
            table = table.set_column(at, "arrival_time", pa.array(np.round(table["arrival_time"].to_numpy() - origin, DIGITS)))
            return fill_defaults(table.append_column("request_id", names), REQUESTS)

        self.spool.seal(again if self.options.duplicates == "drop" else again[:0], finish, self.source)
        return self.spool


class _Instants:
    """Looks at requests in order of arrival: how many come at one instant, and which of them equal an earlier one."""

    def __init__(self) -> None:
        self.instants, self.most = 0, 0
        self.last, self.most_at = 0.0, 0.0
        self._open: pa.Table | None = None
        self._again: list[np.ndarray] = []

    def look(self, table: pa.Table) -> pa.Table:
        """Takes note of ``table``, which follows the one before, and gives it back."""
        if table.num_rows:
            whole = table if self._open is None else pa.concat_tables([self._open, table])
            times = whole["arrival_time"].to_numpy()
            end = int(np.searchsorted(times, times[-1], "left"))
            self._count(whole.slice(0, end))
            self._open = whole.slice(end)
        return table

    def repeated(self) -> np.ndarray:
        """Numbers of the requests that equal an earlier one, sorted."""
        if self._open is not None:
            self._count(self._open)
            self._open = None
        return np.sort(np.concatenate(self._again)) if self._again else np.empty(0, np.int64)

    def _count(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        times = table["arrival_time"].to_numpy()
        begins = np.flatnonzero(np.concatenate([[True], times[1:] != times[:-1]]))
        sizes = np.diff(np.append(begins, len(times)))
        largest = int(np.argmax(sizes))
        self.instants += len(begins)
        self.last = float(times[-1])
        if sizes[largest] > self.most:
            self.most, self.most_at = int(sizes[largest]), float(times[begins[largest]])
        near = np.repeat(sizes > 1, sizes)
        if near.any():
            self._again.append(_equal_earlier(table.filter(pa.array(near))))


def _equal_earlier(table: pa.Table) -> np.ndarray:
    """Numbers of the rows that equal an earlier one: by hash, lists then by value."""
    rows = table[ROW].to_numpy()
    lists = [field.name for field in table.schema if pa.types.is_list(field.type)]
    code = hashes([table[name] for name in table.column_names if name != ROW and name not in lists])
    order = np.argsort(code, kind="stable")
    again = np.zeros(len(code), bool)
    again[order[1:]] = code[order][1:] == code[order][:-1]
    if lists and again.any():
        close = np.isin(code, code[again])
        again[:] = False
        seen: set[tuple[Any, ...]] = set()
        values = zip(code[close].tolist(), *(table[name].filter(pa.array(close)).to_pylist() for name in lists), strict=True)
        for row, (number, *found) in zip(np.flatnonzero(close), values, strict=True):
            key = (number, *(tuple(v) if v is not None else None for v in found))
            again[row] = key in seen
            seen.add(key)
    return rows[again]


def tokens(chunk: Chunk, name: str) -> np.ndarray:
    """Column ``name`` as whole numbers of tokens, i8 (rows,). Raises BadInput for others."""
    return numbers(chunk.table, name, chunk.source, low=0, high=MOST_TOKENS, whole=True).astype(np.int64)
