"""A workload drawn from a fit, as `harness-traces fit` writes it: arrivals by hour and class, sizes, durations or tokens, tenants.

What it draws is **synthetic**: it has the marginal distributions, the daily and weekly course, the burstiness and the autocorrelation of
the trace it was fitted to, and none of its rows. Classes are independent of each other, sizes of time, and durations depend on the
size through its bucket only; requests have no prefix blocks. Rates are those of the trace, whatever the cluster: `load_scale`
multiplies them. How close it comes is what `harness-traces fit` prints.
"""

from dataclasses import dataclass, field
from math import pi, sin
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.schema import INSTANCE, JOBS, REQUESTS
from harness.tables import checked
from harness.workload import arrivals
from harness.workload.classes import apply_rules
from harness.workload.common import DAY_S, HOUR_S, Stream, check_number, draw_mix, generator, in_order, lasting, numbered, table
from harness.workload.parameters import typed

if TYPE_CHECKING:
    from harness.topology import Cluster

SHARES = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, *(i / 20 for i in range(2, 19)), 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0)
"""The shares at which a fit lists quantiles: 31."""

SIZE = ("instances", "gpus", "gpu_milli", "cpus", "memory_mib")
"""Columns of an entry of a size mix, behind its share."""

SETTABLE = tuple(c.name for c in INSTANCE if c.name not in SIZE and c.name != "tenant")


@dataclass(frozen=True)
class Params:
    """Parameters of fitted.

    about: where it comes from, for people.
    label: synthetic, always: nothing that it draws was observed.
    kind: jobs or requests.
    days: length of the trace (days).
    start_hour: hours from Monday's midnight to time 0.
    load_scale: multiplies all rates (1).
    bin_s, period_s: over which rates are constant, and time that has a factor of its own besides: a day, or less in a short trace (s).
    silent: how often a day nothing arrives for a while, and for how long on average (s); of all classes at once.
    shared: sigma and rho of the log-normal AR(1) factor that each period has in all classes at once.
    classes: one mapping for each class, see harness.workload.fitted.ClassFit.
    map: rules that set columns of matching rows, such as the priority of a class (see harness.workload.classes).
    """

    about: str = ""
    label: str = "synthetic"
    kind: str = "jobs"
    days: float = 7.0
    start_hour: float = 0.0
    load_scale: float = 1.0
    bin_s: float = HOUR_S
    period_s: float = DAY_S
    silent: list[float] = field(default_factory=lambda: [0.0, 0.0])
    shared: list[float] = field(default_factory=lambda: [0.0, 0.0])
    classes: list[dict[str, Any]] = field(default_factory=list)
    map: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class ClassFit:
    """One class of a fit.

    name: prefix of its names, and the service of requests.
    per_hour: mean arrivals an hour, silences left out.
    hour, weekday: factors of the hours of the day and of the days from Monday on, mean about 1; [] means all 1.
    day, bin: sigma and rho of the log-normal AR(1) factor that each calendar day (or period), and each bin, has.
    batch: mean number of arrivals of a batch, and the mean gap in it (s).
    sizes: of jobs, [share, instances, gpus, gpu_milli, cpus, memory_mib] for each size.
    durations: of jobs, {from_gpus, quantiles} for each bucket of sizes, ascending; quantiles at SHARES (s).
    prompt, output: of requests, quantiles at SHARES (tokens).
    rank_correlation: of prompt and output (Spearman).
    tenants: name -> share.
    set: values of further columns, the same for all.
    """

    name: str
    per_hour: float
    hour: list[float] = field(default_factory=list)
    weekday: list[float] = field(default_factory=list)
    day: list[float] = field(default_factory=lambda: [0.0, 0.0])
    bin: list[float] = field(default_factory=lambda: [0.0, 0.0])
    batch: list[float] = field(default_factory=lambda: [1.0, 0.0])
    sizes: list[list[float]] = field(default_factory=list)
    durations: list[dict[str, Any]] = field(default_factory=list)
    prompt: list[float] = field(default_factory=list)
    output: list[float] = field(default_factory=list)
    rank_correlation: float = 0.0
    tenants: dict[str, Any] = field(default_factory=dict)
    set: dict[str, Any] = field(default_factory=dict)


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The jobs or requests of one seed, sorted by time, with every column of their table. ``cluster`` is not looked at.

    Raises BadInput for parameters out of range, and a fit without classes.
    """
    check_number("days", params.days, above=0)
    check_number("start_hour", params.start_hour, low=0, below=168)
    check_number("load_scale", params.load_scale, above=0)
    check_number("bin_s", params.bin_s, low=1, high=DAY_S)
    check_number("period_s", params.period_s, low=params.bin_s, high=DAY_S)
    if len(params.silent) != 2 or not np.isfinite(params.silent).all() or min(params.silent) < 0:
        raise BadInput(f"workload.silent={params.silent}: must be 2 numbers >= 0, times a day and their mean length in s")
    _check_factor("workload.shared", params.shared)
    if params.kind not in ("jobs", "requests"):
        raise BadInput(f"workload.kind={params.kind}: must be jobs or requests")
    if not params.classes:
        raise BadInput("workload.classes=[]: give a fit, as workload=openb_fitted does or `harness-traces fit` writes it")
    made, columns = [], {"jobs": (JOBS, "submit_time"), "requests": (REQUESTS, "arrival_time")}[params.kind]
    for number, section in enumerate(params.classes):
        mine = _class(section, number, params.kind)
        times = _times(params, mine, seed, number)
        draw = _jobs if params.kind == "jobs" else _requests
        made.append(table(columns[0], len(times), draw(mine, times, seed, number)))
    whole = in_order(made, columns[1])
    if params.map:
        whole = checked(apply_rules(whole, columns[0], params.map, seed), columns[0], "the fitted workload after workload.map")
    return whole


def arrival_times(params: Params, seed: int) -> np.ndarray:
    """When anything arrives, ascending (s)."""
    return np.sort(np.concatenate([_times(params, _class(section, number, params.kind), seed, number)
                                   for number, section in enumerate(params.classes)]))


def _class(section: dict[str, Any], number: int, kind: str) -> ClassFit:
    """The checked mapping. Raises BadInput."""
    where = f"workload.classes[{number}]"
    for required in ("name", "per_hour"):
        if required not in section:
            raise BadInput(f"{where}: has no {required}")
    mine = typed(ClassFit, section, where)
    check_number(f"{where}.per_hour", mine.per_hour, low=0)
    for key, size in (("hour", (0, 24)), ("weekday", (0, 7)), ("batch", (2,))):
        values = getattr(mine, key)
        if len(values) not in size or not np.isfinite(values).all() or min(values, default=0) < 0:
            raise BadInput(f"{where}.{key}={values}: must be {' or '.join(map(str, size))} numbers >= 0")
    for key in ("day", "bin"):
        _check_factor(f"{where}.{key}", getattr(mine, key))
    check_number(f"{where}.batch[0]", mine.batch[0], low=1)
    check_number(f"{where}.rank_correlation", mine.rank_correlation, low=-1, high=1)
    lists = {"prompt": mine.prompt, "output": mine.output} if kind == "requests" else {
        f"durations[{i}].quantiles": bucket.get("quantiles", []) for i, bucket in enumerate(mine.durations)}
    for key, values in lists.items():
        if len(values) != len(SHARES) or (np.diff(values) < 0).any() or not values[0] > 0:
            raise BadInput(f"{where}.{key}: must be {len(SHARES)} ascending numbers > 0, the quantiles at SHARES of fitted.py")
    if kind == "jobs" and not (mine.durations and mine.sizes and all(len(entry) == 1 + len(SIZE) for entry in mine.sizes)):
        raise BadInput(f"{where}: jobs need durations, and sizes as [share, {', '.join(SIZE)}]")
    if unknown := sorted(set(mine.set) - set(SETTABLE)):
        raise BadInput(f"{where}.set: {', '.join(unknown)}: unknown, must be of {', '.join(SETTABLE)}")
    return mine


def _check_factor(where: str, values: list[float]) -> None:
    """Raises BadInput unless they are sigma and rho."""
    if len(values) != 2 or not np.isfinite(values).all() or min(values) < 0:
        raise BadInput(f"{where}={values}: must be 2 numbers >= 0")
    check_number(f"{where}[1]", values[1], low=0, below=1)


def _times(params: Params, mine: ClassFit, seed: int, number: int) -> np.ndarray:
    end, week = params.days * DAY_S, params.start_hour * HOUR_S
    bins = int(np.ceil(end / params.bin_s))
    expected = arrivals.calendar(np.array(mine.hour or [1.0] * 24), np.array(mine.weekday or [1.0] * 7), bins, params.bin_s, week)
    expected = expected * (mine.per_hour * params.load_scale * params.bin_s / HOUR_S / mine.batch[0])
    period = params.period_s
    for (sigma, rho), random in ((params.shared, generator(seed, Stream.FITTED_SHARED)),
                                 (mine.day, generator(seed, Stream.FITTED_DAY, number))):
        periods = arrivals.lognormal_ar1(random, sigma, rho, arrivals.days_touched(end, week, period))
        expected *= arrivals.per_day(periods, bins, params.bin_s, week, period)
    bin_sigma, bin_rho = mine.bin
    expected *= arrivals.lognormal_ar1(generator(seed, Stream.FITTED_BIN, number), bin_sigma, bin_rho, bins)
    starts = arrivals.place(generator(seed, Stream.FITTED_COUNT, number), generator(seed, Stream.FITTED_PLACE, number), expected,
                            params.bin_s, end)
    sizes, gaps = (generator(seed, Stream.FITTED_BATCH, number, part) for part in (0, 1))
    times = arrivals.in_batches(sizes, gaps, starts, mine.batch[0], mine.batch[1])
    often, long = params.silent
    begin, until = arrivals.silences(generator(seed, Stream.FITTED_SILENCE), often, long, end)
    return arrivals.rounded(arrivals.outside(times, begin, until), end)


def _jobs(mine: ClassFit, times: np.ndarray, seed: int, number: int) -> dict[str, Any]:
    rows = len(times)
    sizes = np.array(mine.sizes, dtype=np.float64)
    drawn = draw_mix(generator(seed, Stream.FITTED_SIZE, number), range(len(sizes)), sizes[:, 0].tolist(), rows)
    size = dict(zip(SIZE, sizes[drawn, 1:].T, strict=True))
    gpus = size["instances"] * size["gpus"] * size["gpu_milli"] / 1000.0
    bucket = np.maximum(np.searchsorted([float(b["from_gpus"]) for b in mine.durations], gpus, side="right") - 1, 0)
    uniform, duration = generator(seed, Stream.FITTED_DURATION, number).random(rows), np.empty(rows)
    for i, entry in enumerate(mine.durations):
        duration[bucket == i] = at_share(entry["quantiles"], uniform[bucket == i])
    whole = {name: size[name].astype(np.int64) for name in ("instances", "gpus", "gpu_milli", "memory_mib")}
    return {"job_id": numbered(mine.name, rows), "submit_time": times, "duration": lasting(duration), **whole, "cpus": size["cpus"],
            "tenant": _tenants(mine, rows, seed, number), **mine.set}


def _requests(mine: ClassFit, times: np.ndarray, seed: int, number: int) -> dict[str, Any]:
    from scipy.stats import norm

    rows = len(times)
    normal = generator(seed, Stream.FITTED_TOKENS, number).standard_normal((rows, 2))
    correlation = 2.0 * sin(pi * mine.rank_correlation / 6.0)
    second = correlation * normal[:, 0] + np.sqrt(1.0 - correlation**2) * normal[:, 1]
    counts = {name: np.maximum(np.rint(at_share(quantiles, norm.cdf(z))), 1).astype(np.int64)
              for name, quantiles, z in (("prompt_tokens", mine.prompt, normal[:, 0]), ("output_tokens", mine.output, second))}
    return {"request_id": numbered(mine.name, rows), "arrival_time": times, **counts, "service": mine.name,
            "tenant": _tenants(mine, rows, seed, number)}


def at_share(quantiles: list[float], uniform: np.ndarray) -> np.ndarray:
    """Values at the shares ``uniform`` of a distribution with these quantiles at SHARES; between them the logarithm is linear."""
    return np.exp(np.interp(uniform, SHARES, np.log(quantiles)))


def _tenants(mine: ClassFit, rows: int, seed: int, number: int) -> Any:
    if not mine.tenants:
        return ""
    names, shares = list(mine.tenants), [float(share) for share in mine.tenants.values()]
    return np.array(names, dtype=object)[draw_mix(generator(seed, Stream.FITTED_TENANT, number), range(len(names)), shares, rows)]
