"""Recorded requests as a workload: one or several traces on one clock, cut, scaled, and with long requests put in.

The steps, in this order: read, shift each trace by its offset, cut by time, number and tokens, scale the load by thinning or superposition
(never by squeezing the clock), repeat, make some requests long.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import BadInput
from harness.schema import REQUESTS
from harness.tables import checked, kind_of, own_blocks, read_trace
from harness.workload.azure_like import Params as AzureLike
from harness.workload.azure_like import generate as azure_like
from harness.workload.common import Stream, check_number, generator, in_order
from harness.workload.trace import scale_load, streamed

if TYPE_CHECKING:
    from harness.topology import Cluster

SHORT, LONG = "short", "long"

__all__ = ["Params", "generate", "streamed"]


@dataclass(frozen=True)
class Params:
    """Parameters of requests.

    path, paths: Parquet files of requests, relative to the working directory; without any: azure_like.
    offsets_s: for each file what is added to its clock (s); empty: nothing.
    synthetic_s: without files, duration of the synthetic trace (s).
    start_s, end_s, first: keep requests that arrive in [start_s, end_s), and so many of the earliest; null: no bound.
    max_tokens: requests with more tokens, prompt and output together, are left out; null: none.
    load_scale: below 1 each request is kept with that probability; above 1 copies are added.
    jitter_s: a copy arrives up to that much later than its original (s).
    repeats: the trace is played so many times in a row.
    long_share: share of the requests that become long (PecSched's transformation); null: nobody is, and nothing is labelled.
    long_quantile: they are drawn from those whose prompt is at or above this quantile, so that 0.05 with 0.95 is every one of them.
    long_drop: leave the others above the quantile out, as if they had become long too.
    long_min, long_max: prompt tokens of a long request, uniform.
    stream: whether the file is read block by block while it is replayed, as of workload=trace: with no other parameter than path.
    """

    path: str | None = None
    paths: list[str] = field(default_factory=list)
    offsets_s: list[float] = field(default_factory=list)
    synthetic_s: float = 600.0
    start_s: float | None = None
    end_s: float | None = None
    first: int | None = None
    max_tokens: int | None = None
    load_scale: float = 1.0
    jitter_s: float = 3600.0
    repeats: int = 1
    long_share: float | None = None
    long_quantile: float = 0.95
    long_drop: bool = True
    long_min: int = 100_000
    long_max: int = 500_000
    stream: bool | None = None


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The requests after all steps, sorted by arrival_time; with ``long_share`` their tenant is "long" or "short".

    ``cluster`` is not looked at. Raises BadInput for parameters out of range, a file that holds no requests, and when none is left.
    """
    _check(params)
    trace = _read(params, seed)
    at = trace["arrival_time"].to_numpy()
    kept = np.ones(len(at), bool)
    if params.start_s is not None:
        kept &= at >= params.start_s
    if params.end_s is not None:
        kept &= at < params.end_s
    if params.max_tokens is not None:
        kept &= trace["prompt_tokens"].to_numpy().astype(np.int64) + trace["output_tokens"].to_numpy() <= params.max_tokens
    trace = trace.filter(pa.array(kept)).slice(0, params.first)
    if not trace.num_rows:
        raise BadInput("workload: no request is left after start_s, end_s and max_tokens")
    trace = scale_load(trace, params.load_scale, params.jitter_s, seed)
    trace = _repeat(trace, params.repeats)
    if params.long_share is not None:
        trace = _lengthen(trace, params, seed)
    return checked(trace.combine_chunks(), REQUESTS, "requests")


def _check(params: Params) -> None:
    for key, low in (("synthetic_s", 0), ("jitter_s", 0), ("long_share", 0), ("long_quantile", 0)):
        if getattr(params, key) is not None:
            check_number(key, getattr(params, key), low=low)
    check_number("load_scale", params.load_scale, above=0)
    check_number("long_quantile", params.long_quantile, high=1)
    check_number("repeats", params.repeats, low=1)
    check_number("long_min", params.long_min, low=1)
    check_number("long_max", params.long_max, low=params.long_min)
    files = len(params.paths) + bool(params.path)
    if params.offsets_s and len(params.offsets_s) != files:
        raise BadInput(f"workload.offsets_s={params.offsets_s}: must give one number for each of the {files} files")


def _read(params: Params, seed: int) -> pa.Table:
    files = [*([params.path] if params.path else []), *params.paths]
    if not files:
        return azure_like(AzureLike(params.synthetic_s), None, seed)  # type: ignore[arg-type]
    tables = []
    for i, path in enumerate(files):
        table = read_trace(path)
        if kind_of(table, path) != "requests":
            raise BadInput(f"{path}: holds no requests; workload=trace takes jobs and services")
        if params.offsets_s:
            table = _shifted(table, params.offsets_s[i])
        if len(files) > 1:
            at = table.column_names.index("request_id")
            named = pc.binary_join_element_wise(pa.scalar(f"{i}-"), table["request_id"], "")
            table = table.set_column(at, table.schema.field(at), named)
        tables.append(table)
    blocks = _blocks(tables)
    tables = [own_blocks(table, i, blocks) for i, table in enumerate(tables)]
    common = [name for name in tables[0].column_names if all(name in table.column_names for table in tables)]
    return in_order([table.select(common) for table in tables], "arrival_time")


def _blocks(tables: list[pa.Table]) -> int:
    """One more than the largest prefix hash: prompts of different files, and of different rounds, are of different users."""
    return 1 + max(pc.max(table["prefix_hashes"].combine_chunks().flatten()).as_py() or 0 for table in tables)


def _shifted(table: pa.Table, by: float) -> pa.Table:
    at = table.column_names.index("arrival_time")
    return table.set_column(at, table.schema.field(at), pc.add(table["arrival_time"], by))


def _repeat(trace: pa.Table, times: int) -> pa.Table:
    """``trace`` played so many times in a row, one mean gap apart."""
    if times == 1:
        return trace
    at = trace["arrival_time"].to_numpy()
    period = float(at[-1] - at[0]) * (1.0 + 1.0 / max(len(at) - 1, 1))
    layers, blocks = [], _blocks([trace])
    for k in range(times):
        layer = own_blocks(_shifted(trace, k * period), k, blocks)
        named = pc.binary_join_element_wise(layer["request_id"], f"#{k}", "")
        layers.append(layer.set_column(layer.column_names.index("request_id"), layer.schema.field("request_id"), named))
    return pa.concat_tables(layers)


def _lengthen(trace: pa.Table, params: Params, seed: int) -> pa.Table:
    """PecSched's transformation: requests with the longest prompts become long, with prompts of nobody's prefix, and the column tenant
    says which."""
    prompt = trace["prompt_tokens"].to_numpy().astype(np.int64)
    above = prompt >= np.quantile(prompt, params.long_quantile)
    assert params.long_share is not None
    odds = min(1.0, params.long_share * len(prompt) / max(int(above.sum()), 1))
    long = above & (generator(seed, Stream.LONG_REQUEST).random(len(prompt)) < odds)
    tokens = generator(seed, Stream.LONG_TOKENS).integers(params.long_min, params.long_max + 1, len(prompt))
    nothing = pa.scalar(None, trace["prefix_hashes"].type)
    columns = {"prompt_tokens": pa.array(np.where(long, tokens, prompt).astype(np.int32)), "tenant": pa.array(np.where(long, LONG, SHORT)),
               "prefix_hashes": pc.if_else(pa.array(long), nothing, trace["prefix_hashes"])}
    for name, values in columns.items():
        at = trace.column_names.index(name)
        trace = trace.set_column(at, trace.schema.field(at), values)
    return trace.filter(pa.array(~above | long)) if params.long_drop else trace
