"""Commands of ``harness-traces`` that make a trace from traces: slice, merge, scale."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from harness import __version__
from harness.errors import BadInput
from harness.schema import KINDS
from harness.tables import (
    TIME_COLUMN,
    TraceFile,
    cut,
    kind_of,
    merge,
    merge_sorted,
    metadata_of,
    one_line,
    read_trace,
    write_batches,
    write_table,
)
from harness.traces_command import IN_MEMORY, Parser, first_line, refuse_overwriting, sha256


def run_slice(words: list[str]) -> int:
    """Cuts a part out of a trace: by time, kind, and number of rows, in this order."""
    parser = Parser("slice", f"{first_line(run_slice)}\n\n"
                    f"Rows keep their order. Of services, the replicas in force at --start begin there.\n{IN_MEMORY}")
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--start", type=float, default=0.0, help="keep what arrives from then on, in s")
    parser.add_argument("--end", type=float, default=float("inf"), help="keep what arrives before, in s")
    parser.add_argument("--kind", choices=KINDS, help="keep that kind of jobs or services")
    parser.add_argument("--first", type=int, help="keep that many of the earliest rows")
    parser.add_argument("--rebase", action="store_true", help="count times from --start")
    parser.add_argument("-o", "--out", required=True, type=Path, help="file to write")
    given = parser.parse_intermixed_args(words)
    if not (given.start >= 0 and given.end > given.start):
        raise BadInput(f"--start {given.start:g} --end {given.end:g}: must be 0 <= start < end")
    if given.first is not None and given.first < 1:
        raise BadInput(f"--first {given.first}: must be at least 1")
    table = read_trace(given.file)
    part = cut(table, given.start, given.end, given.kind, given.first, given.rebase)
    if not part.num_rows:
        raise BadInput(f"{given.file}: no row is left of {table.num_rows:,}; `harness-traces describe` shows its span and kinds")
    asked = {key: value for key, value in vars(given).items() if key in ("start", "end", "first", "kind", "rebase")}
    asked["end"] = None if given.end == float("inf") else given.end
    write_table(part, given.out, metadata_of(table) | {"slice": asked | {"of": given.file.name, "sha256": sha256(given.file)}})
    print(f"wrote {given.out}: {part.num_rows:,} of {table.num_rows:,} rows")
    return 0


def run_merge(words: list[str]) -> int:
    """Puts several traces of one kind into one, sorted by arrival."""
    parser = Parser("merge", f"{first_line(run_merge)}\n\n"
                    "NAME is the file's name up to its first dot. Jobs and requests are renamed NAME/ID, always; the tenant (jobs) or\n"
                    "service becomes NAME/what it was, or NAME when it was empty. Prefix blocks of different traces never match.\n"
                    "Traces of jobs or requests that are sorted by arrival are merged piece by piece: measured, 50 bytes of memory a row.\n"
                    "Others are held whole, 500 bytes a job.")
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path)
    parser.add_argument("--names", help="NAMEs instead, in the order of the files, separated by commas")
    parser.add_argument("--clock", choices=("shared", "start", "calendar"), default="shared",
                        help="shared: times stay as they are; start: each trace's first arrival is at 0; calendar: by the date of time 0 "
                        "that each trace carries, the earliest at 0 (default: shared)")
    parser.add_argument("-o", "--out", required=True, type=Path, help="file to write")
    given = parser.parse_intermixed_args(words)
    refuse_overwriting(given.files, given.out)
    names = given.names.split(",") if given.names else [path.name.split(".")[0] for path in given.files]
    if len(names) != len(given.files) or len(set(names)) < len(names) or not all(names) or "/" in "".join(names):
        raise BadInput(f"--names {one_line(','.join(names), 80)}: must be {len(given.files)} different names, one for each file, "
                       "without /")
    sources = dict(zip(names, map(TraceFile, given.files), strict=True))
    if all(source.kind and source.rows and source.in_order() for source in sources.values()):
        heads = [next(source.checked_blocks()).slice(0, 1) for source in sources.values()]
        starts = _starts(heads, given.files, given.clock)
        pieces = merge_sorted(sources, starts)
    else:
        heads = [read_trace(path) for path in given.files]
        starts = _starts(heads, given.files, given.clock)
        pieces = iter([merge(dict(zip(names, heads, strict=True)), starts)])
    schema = write_batches(pieces, given.out, {"command": "merge", "version": __version__, "clock": given.clock, "traces": [
        {"name": name, "file": path.name, "sha256": sha256(path), "moved_s": start, "rows": source.rows, "origin": metadata_of(head)}
        for (name, source), head, path, start in zip(sources.items(), heads, given.files, starts, strict=True)]})
    print(f"wrote {given.out}: {kind_of(schema.empty_table(), str(given.out))}, {sum(source.rows for source in sources.values()):,} rows "
          f"of {len(names)} traces")
    return 0


def _starts(tables: Sequence[pa.Table], files: Sequence[Path], clock: str) -> list[float]:
    """By how much each trace's times are moved (s); ``tables`` begin with their earliest row, or have it."""
    if clock == "shared":
        return [0.0] * len(tables)
    if clock == "start":
        return [-float(table[TIME_COLUMN[kind_of(table, "trace")]].to_numpy().min()) for table in tables]
    from harness.describe import time_zero

    zeros = [time_zero(table) for table in tables]
    for path, zero in zip(files, zeros, strict=True):
        if zero is None:
            raise BadInput(f"{path}: does not say the date of its time 0, so --clock calendar is not possible")
    earliest = min(zero for zero in zeros if zero is not None)
    return [(zero - earliest).total_seconds() for zero in zeros if zero is not None]


def run_scale(words: list[str]) -> int:
    """Multiplies the load of a trace on the same clock: thins it below 1, adds jittered copies above 1."""
    from harness.workload.trace import scale_load, squeeze

    parser = Parser("scale", f"{first_line(run_scale)}\n\n"
                    "Copies are named ID+1, ID+2, ...; copied requests have prefix blocks of their own. Of services, the replicas are\n"
                    f"multiplied and rounded. Times between arrivals change only with --squeeze-clock.\n{IN_MEMORY}")
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--load", type=float, default=1.0, help="times as much load (default: 1)")
    parser.add_argument("--jitter", type=float, default=3600.0, help="a copy arrives up to that much later than its original, in s, "
                        "wrapping around at the end (default: 3600)")
    parser.add_argument("--squeeze-clock", type=float, default=1.0, metavar="F", help="divide the times between arrivals by F, and the "
                        "length of day and night with them; durations stay (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("-o", "--out", required=True, type=Path, help="file to write")
    given = parser.parse_intermixed_args(words)
    for name, value, low in (("load", given.load, 0.0), ("squeeze-clock", given.squeeze_clock, 0.0), ("jitter", given.jitter, -1.0)):
        if not (low < value < float("inf")) or (name == "jitter" and value < 0):
            raise BadInput(f"--{name} {value:g}: must be a number {'>= 0' if name == 'jitter' else '> 0'}")
    refuse_overwriting([given.file], given.out)
    table = read_trace(given.file)
    if not table.num_rows:
        raise BadInput(f"{given.file}: has no rows to scale")
    scaled = squeeze(scale_load(table, given.load, given.jitter, given.seed), 1.0 / given.squeeze_clock)
    asked = {"load": given.load, "jitter_s": given.jitter, "squeeze_clock": given.squeeze_clock, "seed": given.seed}
    write_table(scaled, given.out, metadata_of(table) | {"scale": asked | {"of": given.file.name, "sha256": sha256(given.file)}})
    print(f"wrote {given.out}: {scaled.num_rows:,} rows from {table.num_rows:,}")
    return 0
