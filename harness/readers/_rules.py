"""Rules that readers of jobs share: numbers from columns, runs without length, gangs; and the report that counts them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._csv import Chunk
from harness.readers._options import option
from harness.tables import one_line, rows_text

DONE = {"keep": "kept", "drop": "dropped"}
MOST_WORDS = 30
"""No report lists more words of a column than that."""
INT16 = np.iinfo(np.int16).max


@dataclass(frozen=True)
class RowOptions:
    """Options of every trace."""

    duplicates: str = option("keep", "exact repetitions of a row", ("keep", "drop"))
    unsorted: str = option("sort", "rows that are not in order of submission: sort them, ties in file order, or refuse the file",
                           ("sort", "refuse"))


@dataclass(frozen=True)
class JobOptions(RowOptions):
    """Options of every trace of jobs."""

    nonpositive: str = option("drop", "runs of zero or negative length: drop them, raise_to_1s, or refuse the file",
                              ("drop", "raise_to_1s", "refuse"))


class Tally:
    """The report of an import: lines in the order in which they first came up, with counts summed over all chunks."""

    def __init__(self) -> None:
        self._counts: dict[str, list[float]] = {}

    def say(self, line: str) -> None:
        """Adds ``line`` unless it is there."""
        self._counts.setdefault(line.replace("{", "{{").replace("}", "}}"), [])

    def add(self, template: str, *counts: float, always: bool = False) -> None:
        """Adds ``counts`` to those of the line ``template`` (fields as ``{:,}``); left out while all are 0 unless ``always``."""
        if always or any(counts) or template in self._counts:
            before = self._counts.get(template, [0] * len(counts))
            self._counts[template] = [a + int(b) for a, b in zip(before, counts, strict=True)]

    def file(self, chunk: Chunk) -> None:
        """Counts the rows of a chunk, and names the columns that its file has beyond the format."""
        self.rows(chunk.path, chunk.rows)
        if any(chunk.ignored):
            self.say(f"columns ignored: {one_line(', '.join(filter(None, chunk.ignored)), 1_000)}")

    def rows(self, path: Path, count: int, what: str = "rows") -> None:
        """Counts the rows of a file."""
        self.add(f"{shown(path.name)}: {{:,}} {what}", count, always=True)

    def each(self, what: str, column: pa.Array | pa.ChunkedArray, tail: Callable[[str], str]) -> None:
        """Counts the rows of each word of ``column``, a line each: ``what WORD: COUNT`` and the ``tail`` for the word."""
        counts = pc.value_counts(column).to_pylist()
        if len(counts) > MOST_WORDS:
            self.add(f"{what}: {{:,}} rows have more than {MOST_WORDS} different ones", len(column))
            return
        for item in counts:
            self.add(f"{what} {shown(item['values'])}: {{:,}}{tail(item['values'])}", item["counts"])

    def lines(self) -> list[str]:
        return [template.format(*counts) for template, counts in self._counts.items()]


def shown(word: object) -> str:
    """A word of a file as it can stand in a template of a tally."""
    return one_line(word, 40).replace("{", "{{").replace("}", "}}")


def numbers(table: pa.Table, name: str, source: str, low: float = -np.inf, high: float = np.inf, whole: bool = False,
            empty: float | None = None) -> np.ndarray:
    """Column ``name`` as f64 (rows,), nulls as ``empty``.

    Raises BadInput for a null without ``empty``, a value outside [low, high] or, when ``whole``, a fraction.
    """
    values = pc.fill_null(table[name], np.nan).to_numpy()
    null = table[name].is_null().to_numpy()
    bad = ~(np.isfinite(values) & (values >= low) & (values <= high))
    if whole:
        bad |= np.isfinite(values) & (values != np.floor(values))
    if empty is not None:
        bad &= ~null
        values = np.where(null, empty, values)
    if bad.any():
        found = table[name][int(np.argmax(bad))].as_py()
        bounds = [f">= {low:g}"] if low > -np.inf else []
        bounds += [f"<= {high:g}"] if high < np.inf else []
        wanted = " ".join(["a whole number" if whole else "a number", " and ".join(bounds)]).strip()
        raise BadInput(f"{source}: column {name}, {rows_text(bad)}: {'empty' if found is None else found}, must be {wanted}")
    return values


def named(table: pa.Table, name: str, source: str, what: str) -> pa.ChunkedArray:
    """Column ``name``. Raises BadInput where it is empty."""
    empty = table[name].is_null().to_numpy()
    if empty.any():
        raise BadInput(f"{source}: column {name}, {rows_text(empty)}: empty, must be {what}")
    return table[name]


def words(table: pa.Table, name: str) -> pa.Array:
    """Column ``name`` as text, empty where it is null or missing."""
    if name not in table.column_names:
        return pa.repeat("", table.num_rows)
    return table[name].combine_chunks().fill_null("")


def positive_runs(duration: np.ndarray, rule: str, source: str, tally: Tally) -> tuple[np.ndarray, np.ndarray]:
    """Durations (s) after ``rule`` (JobOptions.nonpositive) and the mask of the rows to keep; counted in ``tally``."""
    bad = ~(duration > 0)
    if not bad.any():
        return duration, ~bad
    if rule == "refuse":
        raise BadInput(f"{source}: {rows_text(bad)}: runs for {duration[int(np.argmax(bad))]:g} s, must be > 0 "
                       "(--nonpositive drop leaves such rows out)")
    tally.add(f"runs of zero or negative length: {{:,}} {'dropped' if rule == 'drop' else 'raised to 1 s'}", bad.sum())
    return np.where(bad, 1.0, duration), ~bad if rule == "drop" else np.ones(len(bad), bool)


class Latest:
    """Remembers the rows that end last of all: what a trace shows of them was cut off with it."""

    def __init__(self) -> None:
        self.instant = -np.inf
        self._rows: list[np.ndarray] = []

    def see(self, ends: np.ndarray, number: int) -> None:
        """Looks at the ``ends`` of further rows, NaN for none, the first of which has the ``number``."""
        last = np.nanmax(ends, initial=-np.inf)
        if last > self.instant:
            self.instant, self._rows = last, []
        self._rows.append(number + np.flatnonzero(ends == self.instant))

    def settle(self, what: str, keep: bool, tally: Tally) -> np.ndarray:
        """Counts them; the numbers of those to leave out."""
        rows = np.concatenate(self._rows) if self._rows else np.empty(0, np.int64)
        if len(rows):
            tally.add(f"censored: {{:,}} {what} at the last instant, {self.instant:.0f} s; {'kept' if keep else 'dropped'}", len(rows))
        return rows[:0] if keep else rows


def gangs(gpus: np.ndarray, keep: np.ndarray, most: int, tally: Tally, what: str = "GPUs") -> tuple[np.ndarray, np.ndarray]:
    """Instances and GPUs (or ``what`` else) of each of them, i8 (rows,), for jobs of ``gpus`` GPUs on servers with ``most``."""
    instances = np.maximum(np.ceil(gpus / most), 1).astype(np.int64)
    each = np.ceil(gpus / instances).astype(np.int64)
    large, more = keep & (gpus > most), keep & (instances * each > gpus)
    tally.add(f"jobs of more than {most} {what}: {{:,}} became gangs of at most {most} {what} for each instance; {{:,}} of them were "
              f"rounded up, by {{:,}} {what} in all", large.sum(), more.sum(), (instances * each - gpus)[more].sum())
    return instances, each


def shared_out(total: np.ndarray, instances: np.ndarray, what: str, tally: Tally) -> np.ndarray:
    """``total`` of each job over its ``instances``, rounded up to whole ones, i8 (rows,); uneven ones are counted."""
    each = np.ceil(total / instances)
    tally.add(f"{what} that do not divide evenly over the instances of a job: {{:,}} jobs rounded up", (each * instances > total).sum())
    return each.astype(np.int64)


def by_word(column: pa.Array | pa.ChunkedArray, values: Mapping[str, object], default: object) -> pa.Array:
    """``values`` of the words of ``column``, ``default`` for the others."""
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    coded = flat.dictionary_encode("encode")
    return pa.array([values.get(word, default) for word in coded.dictionary.to_pylist()]).take(coded.indices)


def pairs(option: str, given: str) -> dict[str, str]:
    """``A=1,B=2`` as a mapping. Raises BadInput for anything else."""
    try:
        return {name: value for name, value in (pair.split("=") for pair in given.split(",") if pair)}
    except ValueError as error:
        raise BadInput(f"--{option} {given}: must be NAME=VALUE, separated by commas") from error


def priorities(option: str, given: str) -> dict[str, int]:
    """``LS=2,BE=0`` as numbers by name. Raises BadInput for anything else."""
    try:
        return {name: int(value) for name, value in pairs(option, given).items()}
    except (ValueError, BadInput) as error:
        raise BadInput(f"--{option} {given}: must be NAME=NUMBER, separated by commas, such as LS=2,BE=0") from error


def at_least_one(option: str, value: int) -> None:
    """Raises BadInput unless ``value`` is positive."""
    if value < 1:
        raise BadInput(f"--{option} {value}: must be at least 1")


def bare_name(path: Path) -> str:
    """The file's name up to its first dot."""
    return path.name.split(".")[0] or path.name
