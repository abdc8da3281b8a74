"""BurstGPT (CC BY 4.0), one request per row: ChatGPT and GPT-4 of a university's Azure service, Wang et al., KDD'25.

Columns: Timestamp (s), Model, Request tokens, Response tokens, Total tokens (optional), Log Type (optional); release 3 adds Session
ID and Elapsed time. Oddities, and the rule for each:

- The clock counts whole seconds from local midnight of the first day, in a zone that is not stated: time 0 is that midnight, so that
  hours of the day are right. Requests of one second are in the order of the file.
- A failed request has 0 tokens: dropped, see ``zero_tokens``; how many is reported.
- Total tokens is not used; rows where it is not the sum of the other two are counted.
- The first days are a ramp-up of the service (0.01 requests/s against more than 3 later): `describe` says the rate, `slice` cuts it.
- Columns come in any order (release 3 has further ones in the middle): they are found by name.
- The model becomes the service; the log type, session and elapsed time are carried along as columns beyond the schema.
- No request id: burstgpt-N, N the row from 0, counted on through the files. An exact repetition: kept, see ``duplicates``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from harness.readers._csv import read_chunks
from harness.readers._requests import RequestOptions, RequestRows, tokens
from harness.readers._rules import Tally, numbers, words
from harness.readers._spool import Spool

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


def read(paths: Sequence[Path], options: Options) -> tuple[Spool, list[str]]:
    """Requests and the report. Raises BadInput."""
    tally = Tally()
    tally.say("time zone: none stated; time 0 is local midnight of the first day")
    rows = RequestRows(paths, tally, options, "burstgpt")
    for chunk in read_chunks(paths, COLUMNS, REQUIRED):
        tally.file(chunk)
        prompt, output = tokens(chunk, "Request tokens"), tokens(chunk, "Response tokens")
        if "Total tokens" in chunk:
            differs = pc.fill_null(chunk.table["Total tokens"], -1).to_numpy() != prompt + output
            tally.add("Total tokens, which is not used, differs from request + response in {:,} rows", differs.sum(), always=True)
        rows.add(chunk.number, chunk.source, {
            "arrival_time": numbers(chunk.table, "Timestamp", chunk.source, low=0), "prompt_tokens": prompt, "output_tokens": output,
            "service": words(chunk.table, "Model"),
            **{ours: chunk.table[name] for name, ours in CARRIED.items() if name in chunk},
        })
    return rows.done(), tally.lines()
