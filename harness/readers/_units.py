"""Columns in another unit than the format's: found by sizes that no machine has, refused, or converted when asked for."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.readers._rules import Tally, numbers

OWN = "own"
SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
CORES = {"milli": 0.001, "cores": 1.0}
MIB = {"bytes": 2.0**-20, "kib": 2.0**-10, "mib": 1.0, "gib": 1024.0}
TIME_UNITS, CPU_UNITS, MEMORY_UNITS = ((OWN, *units) for units in (SECONDS, CORES, MIB))
TIME_UNIT_HELP = "unit of times and durations; own: the format's, refused when the runs look like another one"
CPU_UNIT_HELP = "unit of the cores; own: the format's, refused when the sizes look like another one"
MEMORY_UNIT_HELP = "unit of the memory; own: the format's, refused when the sizes look like another one"
LONG_RUN_S, LONG_ALL_S, LONGEST_S, SHORT_RUN_S = 2e5, 500.0, 3e8, 1.0
"""Runs are in another unit when half of them last longer than 2.3 days and none is short, one lasts ten years, or half less than 1 s."""
MOST = 2.0**50
"""Of nothing, in no unit."""
FEW_ROWS = 5
"""With fewer rows a unit is not judged."""
PLAUSIBLE_CORES, PLAUSIBLE_MIB = (0.5, 2048.0), (64.0, 2.0**25)
"""Between these is the largest instance of any trace."""


class TimeUnit:
    """Seconds of a unit of the file's times: that which was ``asked`` for, else the format's ``own``."""

    def __init__(self, asked: str, own: str, tally: Tally, shortest: float = SHORT_RUN_S) -> None:
        self.asked, self.own, self.shortest = asked, own, shortest
        self.seconds = SECONDS[own if asked == OWN else asked]
        self._judged = asked != OWN
        if self._judged:
            tally.say(f"times are read in {asked}, as asked for")

    def judge(self, duration: np.ndarray, source: str) -> None:
        """Looks once at durations in the file's unit. Raises BadInput when their median is none of a job and no unit was asked for."""
        runs = duration[np.isfinite(duration) & (duration > 0)] * self.seconds
        if self._judged or len(runs) < FEW_ROWS:
            return
        self._judged = True
        middle, own = float(np.median(runs)), self.own
        long = (middle > LONG_RUN_S and runs.min() >= LONG_ALL_S) or runs.max() > LONGEST_S
        if long or middle < self.shortest:
            other = "ms" if long else "s" if own == "ms" else "h"
            raise BadInput(f"{source}: half of the runs last {middle:g} s or {'more' if long else 'less'}, and one {runs.max():g} s, if "
                           f"times are in {own}, as the format has them: they seem to be in {other}; --time_unit {other} converts them, "
                           f"--time_unit {own} takes them as they are")


def sizes(table: pa.Table, name: str, source: str, option: str, asked: str, own: str, units: Mapping[str, float],
          plausible: tuple[float, float]) -> np.ndarray:
    """Column ``name`` in cores or MiB, f8 (rows,), from the unit ``asked`` for, else the format's ``own``.

    Raises BadInput for a null or a negative number, and when the largest one is not ``plausible`` and no unit was asked for.
    """
    values = numbers(table, name, source, low=0, high=MOST)
    if asked != OWN:
        return values * units[asked]
    largest = values.max(initial=0.0)
    low, high = plausible
    if len(values) >= FEW_ROWS and largest and not low <= largest * units[own] <= high:
        others = [unit for unit, scale in units.items() if low <= largest * scale <= high]
        hint = f"; --{option} {others[0]} converts it" if others else ""
        raise BadInput(f"{source}: column {name}: its largest value, {largest:g}, is no size of a machine in {own}, as the format has it"
                       f"{f': it seems to be in {others[0]}' if others else ''}{hint}, --{option} {own} takes it as it is")
    return values * units[own]
