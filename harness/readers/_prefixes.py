"""Request traces with prefix blocks as JSON lines: what mooncake and qwen-bailian share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.readers._json_lines import read_json_lines
from harness.readers._options import option
from harness.readers._requests import RequestOptions, RequestRows, tokens
from harness.readers._rules import Tally, bare_name, numbers
from harness.readers._spool import Spool

HASHES_PER_FILE = 1 << 40
"""Prefix hashes of file k are shifted by k times this, because ids of different files mean different blocks."""

FIELDS = {"timestamp": pa.float64(), "input_length": pa.float64(), "output_length": pa.float64(), "hash_ids": pa.list_(pa.int64())}
REQUIRED = ("timestamp", "input_length", "output_length")


@dataclass(frozen=True)
class PrefixOptions(RequestOptions):
    service: str = option("auto", "service of the requests; auto: the name of the file")
    ticks: str = option("keep", "arrivals that a clock rounded down to its ticks: keep them, or spread each uniformly over the tick that "
                        "follows, drawn from seed", ("keep", "spread"))
    tick_s: float = option(3.0, "length of a tick in s, for ticks=spread")
    seed: int = option(0, "seed of ticks=spread")


def prefix_requests(paths: Sequence[Path], options: PrefixOptions, prefix: str, unit_s: float, block_tokens: int,
                    carried: Mapping[str, pa.DataType]) -> tuple[Spool, list[str]]:
    """Requests, their times in units of ``unit_s`` and their hashes shifted for each file but the first, and the report.

    ``carried`` are further fields, kept by name. Raises BadInput for a negative time or hash.
    """
    if not options.tick_s > 0 or options.seed < 0:
        raise BadInput(f"--tick_s {options.tick_s:g} --seed {options.seed}: must be > 0 and >= 0")
    tally = Tally()
    random = np.random.Generator(np.random.PCG64(options.seed))
    rows = RequestRows(paths, tally, options, prefix)
    for chunk in read_json_lines(paths, FIELDS | dict(carried), REQUIRED):
        tally.file(chunk)
        service = bare_name(chunk.path) if options.service == "auto" else options.service
        ticks = times = numbers(chunk.table, "timestamp", chunk.source, low=0) * unit_s
        if options.ticks == "spread":
            times = ticks + random.random(len(ticks)) * options.tick_s
        prompt = tokens(chunk, "input_length")
        hashes, lengths = _hashes(chunk.table["hash_ids"], list(paths).index(chunk.path), chunk.source)
        tally.add(f"prefix blocks of {block_tokens} tokens; not ceil(prompt / {block_tokens}) of them in {{:,}} rows",
                  ((lengths >= 0) & (lengths != -(-prompt // block_tokens))).sum(), always=True)
        rows.add(chunk.number, chunk.source, {
            "arrival_time": times, "prompt_tokens": prompt, "output_tokens": tokens(chunk, "output_length"),
            "service": pa.repeat(service, chunk.rows), "prefix_hashes": hashes, **{name: chunk.table[name] for name in carried},
        }, ticks)
    if len(paths) > 1:
        tally.say("hash ids mean something in their own file only: those of each further file were shifted, so that none are equal")
    if options.ticks == "spread":
        tally.say(f"arrivals spread uniformly over the {options.tick_s:g} s behind them, seed {options.seed}")
    return rows.done(), tally.lines()


def _hashes(column: pa.ChunkedArray, number: int, source: str) -> tuple[pa.Array, np.ndarray]:
    """The hashes shifted for file ``number``, and how many each row has (-1 for null)."""
    lists = column.combine_chunks()
    flat = lists.flatten()
    if flat.null_count or (len(flat) and not 0 <= pc.min(flat).as_py() <= pc.max(flat).as_py() < HASHES_PER_FILE):
        raise BadInput(f"{source}: hash_ids must be whole numbers from 0 to {HASHES_PER_FILE - 1}")
    lengths = pc.fill_null(pc.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(np.maximum(lengths, 0))]).astype(np.int32)
    mask = lists.is_null() if lists.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), pc.add(flat, number * HASHES_PER_FILE), mask=mask), lengths
