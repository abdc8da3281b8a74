"""Azure LLM inference traces 2023 and 2024 (CC BY 4.0), one request per row: Splitwise (ISCA 2024) and DynamoLLM (HPCA 2025).

Columns: TIMESTAMP, ContextTokens (prompt), GeneratedTokens (output). Oddities, and the rule for each:

- One file for each service, and the services share a clock: the files given together become one trace; the word between ``Trace_``
  and the next ``_`` or dot of a file's name (code, conv) is its service, ``service`` names it otherwise. Time 0 is the first arrival
  of all files.
- 2023: CRLF, seven digits of a second's fraction (all of them are kept), and no zone: the wall clock is taken as it is, without
  any change of clocks, unless ``tz`` names the zone. The files say 16 November 2023, their README the 11th: the files are believed.
- 2024: the times state their offset (+00:00), and some have no fraction; ``tz`` is refused.
- No request id: azure-N, N the row from 0, counted on through the files. No user, session or prefix: prefix caches see nothing.
- A request without prompt or output tokens: dropped, see ``zero_tokens``. An exact repetition: kept, see ``duplicates``.
- Not in order of arrival: sorted, ties in file order, or ``unsorted=refuse``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.readers._csv import HEADER_BYTES, read_chunks
from harness.readers._options import option
from harness.readers._requests import RequestOptions, RequestRows, tokens
from harness.readers._rules import Tally, bare_name
from harness.readers._spool import Spool
from harness.readers._stream import TextStream
from harness.readers._times import TZ_HELP, Clock
from harness.tables import rows_text

REQUIRED = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
NS, DAY_NS, BEFORE_NS = 10**9, 86_400 * 10**9, 400 * 86_400 * 10**9
"""Times are spooled from BEFORE_NS before the day of the first row on, so that seven decimals of them fit into a float."""

_OFFSET = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)")


@dataclass(frozen=True)
class Options(RequestOptions):
    tz: str = option("none", TZ_HELP)
    service: str = option("auto", "service of the requests; auto: the word behind Trace_ in the file's name")


def read(paths: Sequence[Path], options: Options) -> tuple[Spool, list[str]]:
    """Requests and the report. Raises BadInput."""
    tally = Tally()
    clock = Clock(options.tz, tally)
    offsets = [_states_offset(path) for path in paths]
    if any(offsets) and not all(offsets) and options.tz == "none":
        bare = paths[offsets.index(False)]
        raise BadInput(f"{bare}: its times have no offset, those of {paths[offsets.index(True)].name} have one: import them apart, or say "
                       "--tz")
    if all(offsets) and options.tz != "none":
        raise BadInput(f"{paths[0]}: its times state their offset from UTC, so --tz {options.tz} has no meaning")
    rows = RequestRows(paths, tally, options, "azure")
    base, number, origin = None, 0, 2**62
    for path, has_offset in zip(paths, offsets, strict=True):
        columns = {"TIMESTAMP": pa.timestamp("ns", "UTC" if has_offset else None), "ContextTokens": pa.float64(),
                   "GeneratedTokens": pa.float64()}
        service = _service(path) if options.service == "auto" else options.service
        before = number
        for chunk in read_chunks([path], columns, REQUIRED):
            tally.file(chunk)
            empty = chunk.table["TIMESTAMP"].is_null().to_numpy()
            if empty.any():
                raise BadInput(f"{chunk.source}: column TIMESTAMP, {rows_text(empty)}: empty, must be a time such as 2023-11-16 18:17:03")
            times = chunk.table["TIMESTAMP"].cast(pa.int64()).to_numpy()
            if has_offset:
                clock.fixed += chunk.rows
            else:
                clock.bare += chunk.rows
                wall = times // NS
                times = times + (clock.utc(wall.astype(np.float64)) - wall).astype(np.int64) * NS
            base = times[0] // DAY_NS * DAY_NS - BEFORE_NS if base is None else base
            clock.see(times / NS)
            rows.add(chunk.number + before, chunk.source, {
                "arrival_time": (times - base) / NS, "prompt_tokens": tokens(chunk, "ContextTokens"),
                "output_tokens": tokens(chunk, "GeneratedTokens"), "service": pa.repeat(service, chunk.rows),
            })
            number += chunk.rows
            origin = min(origin, int(times.min()))
    clock.report()
    return rows.done((origin - int(base or 0)) / NS), tally.lines()


def _states_offset(path: Path) -> bool:
    """Whether the first time of the file has an offset from UTC."""
    stream = TextStream(path, "CSV")
    lines = stream.read(HEADER_BYTES).splitlines()
    stream.close()
    return len(lines) > 1 and _OFFSET.search(lines[1].decode("utf-8", "replace")) is not None


def _service(path: Path) -> str:
    found = re.search(r"Trace_([A-Za-z0-9]+)", path.name)
    return found[1] if found else bare_name(path)
