"""What the generators share: seeded streams, arrivals, mixes, checks, and tables built from their schema.

Every kind of draw has a stream of its own, so that changing one parameter leaves the draws that do not depend on it as they
were, and a longer trace begins with the shorter one. Times and durations are rounded to the millisecond: the last bits of
exp and log differ between machines, and the tables must not.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum, unique
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.schema import AFFINITIES, JOBS, Table, arrow_schema
from harness.tables import fill_defaults

if TYPE_CHECKING:
    from harness.topology import Cluster

DAY_S = 86_400.0
HOUR_S = 3_600.0
ARRIVALS_PER_DRAW = 4_096
"""Gaps drawn at a time. Fixed, so that a longer trace begins with the shorter one."""

MOST_JOBS = 50_000_000
"""More than this is taken for a slip in the parameters."""


@unique
class Stream(IntEnum):
    """One independent stream of draws each. Never renumber: the traces of a seed depend on it."""

    BACKLOG_CARDS = 1
    BACKLOG_DURATION = 2
    BATCH_ARRIVAL = 3
    BATCH_CARDS = 4
    BATCH_DURATION = 5
    ONLINE_ARRIVAL = 6
    ONLINE_CARDS = 7
    ONLINE_DURATION = 8
    ONLINE_AFFINITY = 9
    TRAINING_ARRIVAL = 10
    TRAINING_INSTANCES = 11
    TRAINING_DURATION = 12
    SERVICE_PHASE = 13
    SERVICE_NOISE = 14
    THINNING = 15
    JITTER = 16
    CLASS_SHARE = 17
    PACKING = 18
    FITTED_DAY = 40
    FITTED_BIN = 41
    FITTED_COUNT = 42
    FITTED_PLACE = 43
    FITTED_BATCH = 44
    FITTED_SIZE = 45
    FITTED_DURATION = 46
    FITTED_TENANT = 47
    FITTED_TOKENS = 48
    STANDING = 49
    FITTED_SILENCE = 50
    FITTED_SHARED = 51
    REQUEST_ARRIVAL = 60
    REQUEST_PROMPT = 61
    REQUEST_OUTPUT = 62
    REQUEST_TENANT = 63
    LONG_REQUEST = 64
    LONG_TOKENS = 65
    SESSION_TURNS = 70
    SESSION_SYSTEM = 71
    SESSION_THINK = 72
    GANG_ARRIVAL = 80
    GANG_INSTANCES = 81
    GANG_DURATION = 82
    GANG_SENSITIVE = 83
    GANG_TENANT = 84


def generator(seed: int, stream: Stream, *more: int) -> np.random.Generator:
    """The generator of one stream of ``seed`` (>= 0); ``more`` numbers sub-streams.

    Raises BadInput for a negative seed.
    """
    if seed < 0:
        raise BadInput(f"seed={seed}: a seed is a whole number >= 0")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, int(stream), *more])))


def milliseconds(seconds: np.ndarray) -> np.ndarray:
    """``seconds`` rounded to the millisecond, f64 of the same shape."""
    return np.round(seconds, 3)


def lasting(seconds: np.ndarray) -> np.ndarray:
    """Durations rounded to the millisecond and at least one, because a duration is above 0; f64 of the same shape."""
    return np.maximum(milliseconds(seconds), 0.001)


def poisson_arrivals(rng: np.random.Generator, rate: float, start: float, end: float) -> np.ndarray:
    """Arrivals of a Poisson process of ``rate`` per second in [start, end): f64 seconds, ascending.

    Raises BadInput when more than `MOST_JOBS` are to be expected.
    """
    if rate <= 0 or end <= start:
        return np.empty(0)
    if rate * (end - start) > MOST_JOBS:
        raise BadInput(f"workload: its parameters come to {rate * (end - start):.3g} jobs, more than {MOST_JOBS:,}; "
                       "shorten the trace or lengthen the jobs")
    gaps: list[np.ndarray] = []
    reached = start
    while reached < end:
        gaps.append(rng.exponential(1.0 / rate, ARRIVALS_PER_DRAW))
        reached += float(gaps[-1].sum())
    times = start + np.cumsum(np.concatenate(gaps))
    return milliseconds(times[times < end])


def lognormal(rng: np.random.Generator, mean: float, sigma: float, size: int) -> np.ndarray:
    """Log-normal durations with this **mean** (s) and this standard deviation of their logarithm: f64 (size,)."""
    return lasting(mean * np.exp(sigma * rng.standard_normal(size) - sigma * sigma / 2.0))


def draw_mix(rng: np.random.Generator, values: Sequence[int], weights: Sequence[float], size: int) -> np.ndarray:
    """``size`` values drawn with these relative weights: i64 (size,)."""
    edges = np.cumsum(np.asarray(weights, dtype=np.float64))
    return np.asarray(values, dtype=np.int64)[np.searchsorted(edges / edges[-1], rng.random(size), side="right")]


def mix_mean(values: Sequence[int], weights: Sequence[float]) -> float:
    """The mean of a mix."""
    return float(np.average(np.asarray(values, dtype=np.float64), weights=np.asarray(weights, dtype=np.float64)))


def draw_affinity(rng: np.random.Generator, guaranteed_share: float, none_share: float, size: int) -> np.ndarray:
    """Words of the column ``affinity``: guaranteed and none with these probabilities, best_effort otherwise; (size,)."""
    u = rng.random(size)
    codes = np.where(u < guaranteed_share, AFFINITIES.index("guaranteed"),
                     np.where(u >= 1.0 - none_share, AFFINITIES.index("none"), AFFINITIES.index("best_effort")))
    return np.array(AFFINITIES, dtype=object)[codes]


def check_number(key: str, value: float, low: float | None = None, above: float | None = None, high: float | None = None,
                 below: float | None = None) -> None:
    """Raises BadInput unless ``value`` is finite and within the bounds (low and high inclusive, above and below exclusive)."""
    bounds = ((low, ">=", lambda b: value >= b), (above, ">", lambda b: value > b),
              (high, "<=", lambda b: value <= b), (below, "<", lambda b: value < b))
    if isfinite(value) and all(holds(b) for b, _, holds in bounds if b is not None):
        return
    wanted = " and ".join(f"{sign} {b:g}" for b, sign, _ in bounds if b is not None) or "finite"
    raise BadInput(f"{key if '.' in key else f'workload.{key}'}={value}: must be {wanted}")


def check_counts(key: str, values: Sequence[int], low: int = 1, high: int | None = None) -> None:
    """Raises BadInput unless there is at least one value and all are in range."""
    if not values:
        raise BadInput(f"workload.{key}=[]: give at least one value")
    for value in values:
        if value < low or (high is not None and value > high):
            bound = f"{low} to {high}" if high is not None else f"{low} or more"
            raise BadInput(f"workload.{key}={list(values)}: {value} must be {bound}")


def check_mix(values_key: str, values: Sequence[int], weights_key: str, weights: Sequence[float], low: int = 1,
              high: int | None = None) -> None:
    """Raises BadInput unless the mix has one weight >= 0 for each of its values, with a positive sum, and all are in range."""
    check_counts(values_key, values, low, high)
    if len(values) != len(weights):
        raise BadInput(f"workload.{weights_key}: {len(weights)} weights for the {len(values)} values of workload.{values_key}; "
                       "give as many")
    if not all(isfinite(w) and w >= 0 for w in weights) or sum(weights) <= 0:
        raise BadInput(f"workload.{weights_key}={list(weights)}: weights are >= 0 and one is above 0")


def check_priorities(params: object) -> None:
    """Raises BadInput unless every parameter whose name ends in priority fits the column of that name."""
    for key, value in vars(params).items():
        if key.endswith("priority"):
            check_number(key, value, low=-2**31, high=2**31 - 1)


def check_shares(guaranteed_share: float, none_share: float) -> None:
    """Raises BadInput unless both are shares and together at most 1."""
    check_number("guaranteed_share", guaranteed_share, low=0, high=1)
    check_number("none_share", none_share, low=0, high=1)
    if guaranteed_share + none_share > 1:
        raise BadInput(f"workload.none_share={none_share}: with workload.guaranteed_share={guaranteed_share} more than 1 in all")


def largest_server(cluster: "Cluster") -> int:
    """GPUs of the server that has most. Raises BadInput when none has any, because loads are relative to GPUs."""
    gpus = int(server_gpus(cluster).max())
    if gpus == 0:
        raise BadInput(f"cluster {cluster.name}: has no GPU, and the load of a generated workload is relative to GPUs")
    return gpus


def server_gpus(cluster: "Cluster") -> np.ndarray:
    """GPUs of every server: i64 (servers,)."""
    return np.array([shape.gpus for shape in cluster.shapes], dtype=np.int64)[cluster.shape_of]


def how_many(target: float, cards: np.ndarray) -> int:
    """How many of the leading ``cards`` reach ``target`` GPUs in sum."""
    return int(np.searchsorted(np.cumsum(cards), ceil(target - 1e-9))) + 1 if target > 0 else 0


def table(schema_table: Table, rows: int, columns: Mapping[str, Any]) -> pa.Table:
    """A table of ``rows`` rows with every column of ``schema_table``, in its order.

    ``columns``: arrays (rows,) or scalars; missing ones take the schema's default.
    """
    types = {c.name: c.type for c in schema_table}
    arrays = {name: _array(value, types[name], rows) for name, value in columns.items()}
    return fill_defaults(pa.table(arrays), schema_table).cast(arrow_schema(schema_table))


def _array(value: Any, kind: pa.DataType, rows: int) -> pa.Array | pa.ChunkedArray:
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return value.cast(kind)
    if isinstance(value, np.ndarray | list):
        return pa.array(value, type=kind)
    return pa.repeat(pa.scalar(value, type=kind), rows)


def jobs(rows: int, columns: Mapping[str, Any]) -> pa.Table:
    """A jobs table of ``rows`` rows from arrays and scalars; missing columns take the schema's default."""
    return table(JOBS, rows, columns)


def numbered(prefix: str, rows: int) -> list[str]:
    """Names prefix-0, prefix-1, ..."""
    return [f"{prefix}-{i}" for i in range(rows)]


def in_order(tables: Sequence[pa.Table], time_column: str = "submit_time") -> pa.Table:
    """The tables below each other, sorted by time; ties keep their order. One chunk for each column."""
    whole = pa.concat_tables(tables)
    order = np.argsort(whole[time_column].to_numpy(), kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        whole = whole.take(order)
    return whole.combine_chunks()
