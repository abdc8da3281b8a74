"""``docs/performance.md``: the tables of one run of ``python -m harness.bench --peers``, and how they were made."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from harness.bench.commands import STAGE
from harness.bench.peers import HARNESS, LIMIT_S, TRACES, Measured
from harness.bench.rows import Row, number
from harness.report import render
from harness.report_tables import Grid

HEAD = ["program", "places", "whole command, s", "replay, s", "jobs/s", "events/s", "peak MiB", "whole: harness is faster by",
        "replay: harness is faster by", "mean wait, s", "makespan, s", "waits"]
NONE = "-"


def page(about: dict[str, Any], rows: Sequence[Row], distances: Sequence[Row], measured: Sequence[Measured], command: str) -> str:
    """The page in Markdown. ``about`` is what the JSON says of the machine and the time, ``command`` what was typed.

    ``rows`` are those of the peers and of the profile, ``distances`` those of ``replays.fifo``.
    """
    traces = [(_title(name), grid(list(mine))) for name, mine in groupby(measured, key=lambda one: one.trace)]
    stages = [row for row in rows if STAGE in row.what]
    verdicts = [row for row in rows if row.target is not None or row.measured is None]
    return render(
        "performance.md", about=about, command=command, traces=traces, remarks=_remarks(measured), limit=LIMIT_S,
        targets=Grid(["what", "target", "measured", "met", ""], [_verdict(row) for row in verdicts], (0, 3, 4)).markdown(),
        stages=Grid(["stage", "processor time, s", "share and wall clock"], [_measure(row) for row in stages], (0, 2)).markdown(),
        distances=Grid(["what", "measured", ""], [_measure(row) for row in distances], (0, 2)).markdown())


def grid(measured: Sequence[Measured]) -> Grid:
    """One line for each program."""
    return Grid(HEAD, [_line(one) for one in measured], (0, 1, 11))


def _line(one: Measured) -> list[str]:
    name = one.program if one.version is None else f"{one.program} {one.version}"
    if one.whole_s is None:
        return [name, one.places, one.remark.partition(";")[0], *[NONE] * 9]
    agrees = "the reference" if one.program == HARNESS else "the same" if one.agrees else "DIFFER"
    return [name, one.places, *(NONE if value is None else number(value) for value in (
        one.whole_s, one.replay_s, one.jobs_per_s, one.events_per_s, one.peak_mib)),
        *(NONE if value is None else f"{number(value)} x" for value in (one.whole_ratio, one.replay_ratio)),
        *(NONE if value is None else number(value, True) for value in (one.wait_mean_s, one.makespan_s)), agrees]


def _title(name: str) -> str:
    jobs, servers = TRACES[name]
    return f"{name}: {jobs:,} jobs, {servers:,} servers"


def _remarks(measured: Sequence[Measured]) -> list[str]:
    return [f"{program}: {remark}" for program, remark in dict.fromkeys(
        (one.program, one.remark) for one in measured if one.remark and one.whole_s is not None and one.program != HARNESS)]


def _verdict(row: Row) -> list[str]:
    exact = row.sense == "=="
    return [row.what, "" if row.target is None else f"{row.sense} {number(row.target, exact)} {row.unit}".rstrip(),
            NONE if row.measured is None else f"{number(row.measured, exact)} {row.unit}".rstrip(),
            {None: "", True: "yes", False: "NO"}[row.met], row.detail]


def _measure(row: Row) -> list[str]:
    value = NONE if row.measured is None else f"{number(row.measured)} {row.unit}".rstrip()
    return [row.what.partition(STAGE)[2] or row.what, value if STAGE not in row.what else value.removesuffix(" s"), row.detail]
