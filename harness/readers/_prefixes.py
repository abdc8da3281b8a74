"""Request traces with prefix blocks as JSON lines: what mooncake and qwen-bailian share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._options import option
from harness.readers._pieces import json_pieces
from harness.readers._requests import HASHES_PER_FILE, RequestOptions, nanoseconds, numbered_rows, whole
from harness.readers._rules import bare_name
from harness.tables import one_line

FIELDS = {"timestamp": pa.float64(), "input_length": pa.float64(), "output_length": pa.float64(), "hash_ids": pa.list_(pa.int64())}
REQUIRED = ("timestamp", "input_length", "output_length")


@dataclass(frozen=True)
class PrefixOptions(RequestOptions):
    service: str = option("auto", "service of the requests; auto: the name of the file")
    ticks: str = option("keep", "arrivals that a clock rounded down to its ticks: keep them, or spread each uniformly over the tick that "
                        "follows, drawn from seed", ("keep", "spread"))
    tick_s: float = option(3.0, "length of a tick in s, for ticks=spread")
    seed: int = option(0, "seed of ticks=spread")


def prefix_pieces(paths: Sequence[Path], options: PrefixOptions, report: list[str], unit_s: float, block_tokens: int,
                  carried: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    """Pieces for ``request_trace``: times in units of ``unit_s``, hashes shifted for each file but the first.

    ``carried`` are further fields, kept by name. Raises BadInput for a negative time or hash.
    """
    if not options.tick_s > 0 or options.seed < 0:
        raise BadInput(f"--tick_s {options.tick_s:g} --seed {options.seed}: must be > 0 and >= 0")
    random = np.random.Generator(np.random.PCG64(options.seed))
    rows, odd = 0, 0
    for number, path in enumerate(paths):
        before = rows
        service = bare_name(path) if options.service == "auto" else options.service
        for piece in json_pieces(path, FIELDS | dict(carried), REQUIRED):
            at = rows - before
            times = piece["timestamp"].to_numpy() * unit_s
            if not (times >= 0).all():
                row = at + int(np.argmax(~(times >= 0)))
                raise BadInput(f"{path}: row {row}: timestamp {one_line(piece['timestamp'][row - at])}, must be a number >= 0")
            if options.ticks == "spread":
                times = times + random.random(len(times)) * options.tick_s
            prompt = whole(piece, "input_length", path, at)
            hashes, lengths = _hashes(piece["hash_ids"], number, path, at)
            odd += int(((lengths >= 0) & (lengths != -(-prompt // block_tokens))).sum())
            yield pa.table({
                "time_ns": nanoseconds(times), "row": numbered_rows(piece, rows), "prompt_tokens": prompt,
                "output_tokens": whole(piece, "output_length", path, at), "service": pa.repeat(service, piece.num_rows),
                "prefix_hashes": hashes, **{name: piece[name] for name in carried},
            })
            rows += piece.num_rows
        report.append(f"{path.name}: {rows - before:,} rows, service {service}")
    report.append(f"prefix blocks of {block_tokens} tokens; not ceil(prompt / {block_tokens}) of them in {odd:,} rows")
    if len(paths) > 1:
        report.append("hash ids mean something in their own file only: those of each further file were shifted, so that none are equal")
    if options.ticks == "spread":
        report.append(f"arrivals spread uniformly over the {options.tick_s:g} s behind them, seed {options.seed}")


def _hashes(column: pa.ChunkedArray, number: int, path: Path, before: int) -> tuple[pa.Array, np.ndarray]:
    """The hashes shifted for file ``number``, and how many each row has (-1 for null)."""
    lists = column.combine_chunks()
    lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
    flat = lists.flatten()
    if flat.null_count or (len(flat) and not 0 <= pc.min(flat).as_py() <= pc.max(flat).as_py() < HASHES_PER_FILE):
        raise BadInput(f"{path}: hash_ids from row {before} on: must be whole numbers from 0 to {HASHES_PER_FILE - 1}")
    lengths = pc.fill_null(pc.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(np.maximum(lengths, 0))]).astype(np.int32)
    shifted = pc.add(flat, number * HASHES_PER_FILE)
    mask = pc.is_null(lists)
    return pa.ListArray.from_arrays(pa.array(offsets), shifted, mask=mask if lists.null_count else None), lengths
