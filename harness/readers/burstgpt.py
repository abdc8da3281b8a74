"""BurstGPT (CC BY 4.0), one request per row: ChatGPT and GPT-4 of a university's Azure service, Wang et al., KDD'25.

Columns: Timestamp (s), Model, Request tokens, Response tokens, Total tokens (optional), Log Type (optional); release 3 adds Session
ID and Elapsed time. Oddities, and the rule for each:

- The clock counts whole seconds from local midnight of the first day, in a zone that is not stated: time 0 is that midnight, so that
  hours of the day are right. Requests of one second are in the order of the file.
- A failed request has 0 tokens: dropped, see ``zero_tokens``; how many is reported.
- Total tokens is not used; rows where it is not the sum of the other two are counted.
- The first days are a ramp-up of the service (0.01 requests/s against more than 3 later): the report says the mean rate.
- Columns come in any order (release 3 has further ones in the middle): they are found by name.
- The model becomes the service; the log type, session and elapsed time are carried along as columns beyond the schema.
- No request id: burstgpt-N, N the row from 0, counted on through the files. An exact repetition: kept, see ``duplicates``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._pieces import csv_pieces
from harness.readers._requests import RequestOptions, nanoseconds, numbered_rows, request_trace, whole
from harness.tables import rows_text

REQUIRED = ("Timestamp", "Model", "Request tokens", "Response tokens")
COLUMNS = {
    "Timestamp": pa.float64(),
    "Model": pa.string(),
    "Request tokens": pa.float64(),
    "Response tokens": pa.float64(),
    "Total tokens": pa.float64(),
    "Log Type": pa.string(),
    "Session ID": pa.string(),
    "Elapsed time": pa.float64(),
}
CARRIED = {"Log Type": "log_type", "Session ID": "session_id", "Elapsed time": "elapsed_s"}


@dataclass(frozen=True)
class Options(RequestOptions):
    pass


def read(paths: Sequence[Path], options: Options) -> tuple[pa.Table | Iterator[pa.Table], list[str]]:
    """A requests table (or, when it is large, its pieces) and the report. Raises BadInput."""
    report = ["time zone: none stated; time 0 is local midnight of the first day"]
    return request_trace(_pieces(paths, report), "burstgpt", options, report, paths, start_ns=0), report


def _pieces(paths: Sequence[Path], report: list[str]) -> Iterator[pa.Table]:
    rows = differs = 0
    totals = False
    for path in paths:
        before, first, last = rows, np.inf, -np.inf
        ignored: list[str] = []
        for piece in csv_pieces(path, COLUMNS, REQUIRED, ignored):
            at = rows - before
            times = pc.fill_null(piece["Timestamp"], np.nan).to_numpy()
            bad = ~(times >= 0)
            if bad.any():
                raise BadInput(f"{path}: column Timestamp, {rows_text(np.concatenate([np.zeros(at, bool), bad]))}: must be a number of "
                               "seconds >= 0")
            prompt, output = whole(piece, "Request tokens", path, at), whole(piece, "Response tokens", path, at)
            if "Total tokens" in piece.column_names:
                totals = True
                differs += int((pc.fill_null(piece["Total tokens"], -1).to_numpy() != prompt + output).sum())
            first, last = min(first, times.min()), max(last, times.max())
            yield pa.table({
                "time_ns": nanoseconds(times), "row": numbered_rows(piece, rows), "prompt_tokens": prompt, "output_tokens": output,
                "service": pc.fill_null(piece["Model"], ""),
                **{ours: piece[name] for name, ours in CARRIED.items() if name in piece.column_names},
            })
            rows += piece.num_rows
        rate = f"{(rows - before) / (last - first):.3g} requests/s" if last > first else "one instant"
        report.append(f"{path.name}: {rows - before:,} rows over {last - first:,.0f} s: {rate}")
        if ignored:
            report.append(f"columns ignored: {', '.join(ignored)}")
    if totals:
        report.append(f"Total tokens, which is not used, differs from request + response in {differs:,} rows")
