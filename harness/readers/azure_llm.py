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
- Not in order of arrival: sorted, ties in file order.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.readers._options import option
from harness.readers._pieces import csv_pieces, first_line
from harness.readers._requests import NS, RequestOptions, ns_of, numbered_rows, request_trace, whole
from harness.readers._rules import bare_name, zone_offsets, zone_report

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
EXAMPLE = "2023-11-16 18:17:03.9799600"
_OFFSET = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)")


@dataclass(frozen=True)
class Options(RequestOptions):
    tz: str = option("none", "time zone of a wall clock without offset (2023), an IANA name; none: taken as it is")
    service: str = option("auto", "service of the requests; auto: the word behind Trace_ in the file's name")


def read(paths: Sequence[Path], options: Options) -> tuple[pa.Table | Iterator[pa.Table], list[str]]:
    """A requests table (or, when it is large, its pieces) and the report. Raises BadInput."""
    report: list[str] = []
    offsets = [_states_offset(path) for path in paths]
    if any(offsets) and not all(offsets) and options.tz == "none":
        bare = paths[offsets.index(False)]
        raise BadInput(f"{bare}: its times have no offset, those of {paths[offsets.index(True)].name} have one: import them apart, or say "
                       "--tz")
    if all(offsets) and options.tz != "none":
        raise BadInput(f"{paths[0]}: its times state their offset from UTC, so --tz {options.tz} has no meaning")
    zone = "UTC" if any(offsets) or options.tz != "none" else ""
    if not zone:
        report.append("time zone: none given, so the wall clock is taken as it is, without changes of clocks")
    result = request_trace(_pieces(paths, offsets, options, report), "azure", options, report, paths, zone=zone)
    return result, report


def _pieces(paths: Sequence[Path], offsets: Sequence[bool], options: Options, report: list[str]) -> Iterator[pa.Table]:
    rows, odd = 0, np.zeros(2, np.int64)
    for path, has_offset in zip(paths, offsets, strict=True):
        ignored: list[str] = []
        before, kind = rows, pa.timestamp("ns", "UTC" if has_offset else None)
        service = _service(path) if options.service == "auto" else options.service
        for piece in csv_pieces(path, {COLUMNS[0]: kind, COLUMNS[1]: pa.float64(), COLUMNS[2]: pa.float64()}, COLUMNS, ignored):
            times = ns_of(piece["TIMESTAMP"], path, rows - before, EXAMPLE)
            if options.tz != "none" and not has_offset:
                offset, twice, skipped = zone_offsets(times / NS, options.tz)
                times, odd = times - offset.astype(np.int64) * NS, odd + [twice, skipped]
            yield pa.table({
                "time_ns": times, "row": numbered_rows(piece, rows),
                "prompt_tokens": whole(piece, "ContextTokens", path, rows - before),
                "output_tokens": whole(piece, "GeneratedTokens", path, rows - before),
                "service": pa.repeat(service, piece.num_rows),
            })
            rows += piece.num_rows
        report.append(f"{path.name}: {rows - before:,} rows, service {service}")
        if ignored:
            report.append(f"columns ignored: {', '.join(ignored)}")
    if options.tz != "none":
        report.append(zone_report(options.tz, int(odd[0]), int(odd[1])))


def _states_offset(path: Path) -> bool:
    """Whether the first time of the file has an offset from UTC."""
    return _OFFSET.search(first_line(path)) is not None


def _service(path: Path) -> str:
    found = re.search(r"Trace_([A-Za-z0-9]+)", path.name)
    return found[1] if found else bare_name(path)
