"""Instants as public files write them: wall clocks with or without a zone, seconds since 1970, and words for none."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._rules import Tally
from harness.tables import one_line, rows_text

TZ_HELP = "time zone of times that name none, an IANA name such as America/Los_Angeles; none: the clock is taken as it is"
NONE_WORDS = ("", "None", "none", "NULL", "null", "NaT", "nan", "Unknown", "N/A")
_OFFSET, _EPOCH_S = r"(Z|[+-]\d\d:?\d\d)$", r"^\d{9,10}(\.\d+)?$"
_QUARTER_S = 900
_EPOCH = datetime(1970, 1, 1)


class Clock:
    """Reads the times of one import in the zone ``tz`` (an IANA name, or none), and knows the first and the last instant it saw.

    A time that the clock shows twice in autumn is the first of the two unless ``in_order`` proves otherwise; one that it skips
    in spring is moved behind the gap. Both are counted. Raises BadInput for an unknown zone.
    """

    def __init__(self, tz: str, tally: Tally) -> None:
        self.tz, self.tally = tz, tally
        self.first, self.last = np.inf, -np.inf
        self.bare = self.fixed = 0
        try:
            self.zone = None if tz == "none" else ZoneInfo(tz)
        except (OSError, ValueError, LookupError) as error:
            raise BadInput(f"--tz {one_line(tz, 60)}: unknown time zone, must be an IANA name, as America/Los_Angeles") from error

    def read(self, table: pa.Table, name: str, source: str, none: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Column ``name`` (text) in seconds since 1970 as f64 (rows,), NaN for none, and how many seconds later a time would be if
        it were the second of two that the clock showed alike.

        Raises BadInput for what is no time and, unless ``none`` is allowed, where there is none.
        """
        text = pc.utf8_trim_whitespace(table[name].combine_chunks())
        absent = pc.or_kleene(text.is_null(), pc.is_in(text, pa.array(NONE_WORDS))).to_numpy(zero_copy_only=False)
        if absent.any() and not none:
            raise BadInput(f"{source}: column {name}, {rows_text(absent)}: empty, must be {_right()}")
        seconds, later = np.full(len(text), np.nan), np.zeros(len(text))
        fixed, epoch = (pc.fill_null(pc.match_substring_regex(text, form), False).to_numpy(zero_copy_only=False)
                        for form in (_OFFSET, _EPOCH_S))
        for here, kind in ((fixed & ~absent, pa.timestamp("us", "UTC")), (epoch & ~absent, pa.float64()),
                           (~fixed & ~epoch & ~absent, pa.timestamp("us"))):
            if here.any():
                some = text.filter(pa.array(here))
                try:
                    seconds[here] = _numbers(some.cast(kind))
                except pa.ArrowException as error:
                    bad = here & pc.is_in(text, _unreadable(some, kind)).to_numpy(zero_copy_only=False)
                    found = one_line(text[int(np.argmax(bad))], 40)
                    raise BadInput(f"{source}: column {name}, {rows_text(bad)}: '{found}' must be {_right()}") from error
                if kind == pa.timestamp("us"):
                    seconds[here], later[here] = self._utc(seconds[here])
                    self.bare += int(here.sum())
                else:
                    self.fixed += int(here.sum())
        if self.bare and self.fixed and self.zone is None:
            raise BadInput(f"{source}: column {name}: some times name their zone and others do not; --tz must say the zone of the latter")
        return seconds, later

    def utc(self, wall: np.ndarray) -> np.ndarray:
        """UTC seconds of wall-clock seconds in the zone, as they are without one; the first of two alike."""
        return self._utc(wall)[0]

    def in_order(self, earlier: np.ndarray, time: np.ndarray, later: np.ndarray) -> np.ndarray:
        """``time`` with those that come before ``earlier`` moved to the second of the two hours, where the clock showed two."""
        move = (time < earlier) & (later > 0)
        self.tally.add("times of the hour that the clock showed twice: {:,} moved to its second showing, as they cannot come before an "
                       "earlier event", move.sum())
        return np.where(move, time + later, time)

    def see(self, *times: np.ndarray) -> None:
        """Takes note of the first and last of ``times``."""
        for values in times:
            finite = values[np.isfinite(values)]
            if len(finite):
                self.first, self.last = min(self.first, finite.min()), max(self.last, finite.max())

    def report(self) -> None:
        """Says in the tally what was assumed, and what time 0 is."""
        if self.bare and self.zone is None:
            self.tally.say("time zone: none given, so the wall clock is taken as it is, without changes of clocks")
            self.tally.say(f"time 0 is {iso(self.first)} on it")
        else:
            self.tally.say(f"time 0 is {iso(self.first, 'UTC')}")

    def _utc(self, wall: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.zone is None:
            return wall, np.zeros(len(wall))
        quarter, row = np.unique(np.floor_divide(wall, _QUARTER_S).astype(np.int64), return_inverse=True)
        first, second = np.zeros(len(quarter)), np.zeros(len(quarter))
        for i, q in enumerate(quarter):
            shown = _EPOCH + timedelta(seconds=int(q) * _QUARTER_S)
            first[i] = (shown.replace(tzinfo=self.zone).utcoffset() or timedelta()).total_seconds()
            second[i] = (shown.replace(tzinfo=self.zone, fold=1).utcoffset() or timedelta()).total_seconds()
        twice, skipped = first > second, first < second
        self.tally.add(f"time zone: {self.tz}; {{:,}} times that the clock showed twice were read as the first, "
                       "{:,} that it skipped were moved behind the gap", twice[row].sum(), skipped[row].sum(), always=True)
        return wall - first[row], np.where(twice, first - second, 0.0)[row]


def iso(seconds: float, zone: str = "") -> str:
    """Seconds since 1970 as ``2017-09-04 10:30:41``, with ``zone`` behind it."""
    shown = datetime.fromtimestamp(float(seconds), UTC).replace(tzinfo=None)
    return f"{shown.isoformat(' ', 'seconds')} {zone}".strip()


def lengths(table: pa.Table, name: str, source: str, none: Sequence[str]) -> np.ndarray:
    """Column ``name`` of lengths ``[days-][[hours:]minutes:]seconds``-like as Slurm writes them, in s; NaN for the words ``none``.

    ``days-hours``, ``days-hours:minutes`` and ``minutes`` alone are limits as users give them. Raises BadInput for anything else.
    """
    coded = table[name].combine_chunks().fill_null("").dictionary_encode("encode")
    text = coded.dictionary.to_pylist()
    values = np.array([np.nan if word in none else _length(word) for word in text], dtype=np.float64)
    wrong = np.array([value < 0 for value in values], bool)
    codes = coded.indices.to_numpy()
    if wrong.any():
        bad = wrong[codes]
        raise BadInput(f"{source}: column {name}, {rows_text(bad)}: '{one_line(text[codes[int(np.argmax(bad))]], 40)}' must be a length "
                       "such as 1-12:00:00")
    return values[codes]


def _length(word: str) -> float:
    """Seconds of one length; -1 when it is none."""
    days, dash, rest = word.rpartition("-")
    parts = rest.split(":")
    try:
        fields = [float(part) for part in parts]
        if dash:
            hours, minutes, seconds = (*fields, 0.0, 0.0)[:3]
            return int(days) * 86400 + hours * 3600 + minutes * 60 + seconds if len(fields) <= 3 else -1.0
        if len(fields) == 1:
            return fields[0] * 60
        return sum(value * scale for value, scale in zip(reversed(fields), (1, 60, 3600), strict=False)) if len(fields) <= 3 else -1.0
    except ValueError:
        return -1.0


def _numbers(values: pa.Array) -> np.ndarray:
    if pa.types.is_floating(values.type):
        return values.to_numpy(zero_copy_only=False)
    return values.cast(pa.int64()).to_numpy(zero_copy_only=False) / 1e6


def _unreadable(text: pa.Array, kind: pa.DataType) -> pa.Array:
    def wrong(word: str) -> bool:
        try:
            pa.scalar(word, pa.string()).cast(kind)
        except pa.ArrowException:
            return True
        return False

    words = pc.unique(text)
    return words.filter(pa.array([wrong(word) for word in words.to_pylist()], pa.bool_()))


def _right() -> str:
    return "a time such as 2017-10-09 07:01:55"
