"""High-priority and spot jobs of one GPU model, fitted to the published aggregates of Alibaba's cluster-trace-v2026-spot-gpu.

**Synthetic**: the job file of that trace (GFS, arXiv 2509.11134) was not at hand, only aggregates of it. Hours, weekdays, durations,
sizes and worker counts follow those; the split of sizes per GPU model, the tenants and the hours of spot jobs are assumed. Meant for
432 servers of 8 A100, on which GFS was evaluated; loads are relative to the cluster, whatever it is. An arrival rate is load x GPUs /
mean GPU-seconds of a job. The calendar starts at midnight of the trace's day 0; which weekday that is, is not known.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.workload import arrivals
from harness.workload.common import (
    DAY_S,
    HOUR_S,
    Stream,
    check_number,
    check_priorities,
    draw_mix,
    generator,
    how_many,
    in_order,
    jobs,
    largest_server,
    lasting,
    numbered,
)

if TYPE_CHECKING:
    from harness.topology import Cluster

HP_LONG, HP_SHORT, SPOT = range(3)
STANDING_DRAWS = 1 << 16


@dataclass(frozen=True)
class Params:
    """Parameters of spot.

    hp_load: GPU time that high-priority jobs ask for over that of the cluster.
    spot_load: the same of spot jobs, from history_days on.
    days: length of the trace (days).
    history_days: days without spot jobs at its start, from which a forecast can learn (days).
    hour: factors of the hours of the day.
    weekday: factors of the days, from day 0 on.
    hp_day, spot_day: sigma and rho of the log-normal AR(1) factor of each day.
    hour_cv: coefficient of variation of the Gamma factor of each hour (1).
    tenants, tenant_zipf: how many tenants, and the exponent of their Zipf shares.
    max_gang_share: largest gang over the GPUs of the cluster; larger sizes are left out (1).
    hp_long_share: share of hp_load that long jobs ask for; at t = 0 they are there in stationary number, with residual durations (1).
    hp_long_duration_s: bounds of their log-uniform durations (s).
    hp_short_durations: [from, to, share] of the log-uniform pieces of the other durations (s, s, relative).
    hp_short_sizes, hp_long_sizes, spot_sizes: workers x GPUs of each -> relative weight.
    size8_tilt: by hour of the day, what multiplies the weights of short jobs of 8 GPUs and more.
    spot_duration: mu and sigma of the logarithm of log-normal durations, and where they are cut (s).
    hp_priority, spot_priority: priorities of the two; spot jobs are preemptible.
    spot_checkpoint_interval_s: an evicted spot job goes back to the last multiple (s).
    spot_restart_cost_s: running time without progress after an eviction, up to 8 GPUs and above (s).
    """

    hp_load: float = 0.8
    spot_load: float = 0.1
    days: float = 49.0
    history_days: float = 28.0
    hour: list[float] = field(default_factory=lambda: [
        0.97, 0.82, 0.74, 0.70, 0.67, 0.73, 0.73, 0.78, 0.82, 0.87, 1.30, 1.34, 1.03, 1.00, 1.32, 1.30, 1.40, 1.32, 1.04, 1.10, 1.14,
        0.99, 0.97, 0.94])
    weekday: list[float] = field(default_factory=lambda: [0.84, 0.82, 0.93, 1.16, 1.19, 1.13, 0.93])
    hp_day: list[float] = field(default_factory=lambda: [0.42, 0.74])
    spot_day: list[float] = field(default_factory=lambda: [0.68, 0.57])
    hour_cv: float = 0.4
    tenants: int = 20
    tenant_zipf: float = 1.2
    max_gang_share: float = 0.0769
    hp_long_share: float = 0.78
    hp_long_duration_s: list[float] = field(default_factory=lambda: [259200.0, 15897599.0])
    hp_short_durations: list[list[float]] = field(default_factory=lambda: [
        [1, 60, 0.124], [60, 600, 0.247], [600, 3600, 0.349], [3600, 21600, 0.140], [21600, 86400, 0.061], [86400, 259200, 0.019]])
    hp_short_sizes: dict[str, Any] = field(default_factory=lambda: {
        "1x1": 0.60, "2x1": 0.02, "1x2": 0.08, "1x4": 0.08, "1x8": 0.145, "2x8": 0.034, "4x8": 0.016, "8x8": 0.008, "16x8": 0.004,
        "24x8": 0.002, "16x1": 0.011})
    hp_long_sizes: dict[str, Any] = field(default_factory=lambda: {
        "1x1": 0.45, "1x2": 0.09, "1x4": 0.11, "1x8": 0.25, "2x8": 0.05, "4x8": 0.025, "8x8": 0.015, "16x8": 0.01})
    spot_sizes: dict[str, Any] = field(default_factory=lambda: {
        "1x1": 0.46, "1x2": 0.11, "1x4": 0.12, "1x8": 0.17, "2x8": 0.05, "4x8": 0.025, "8x8": 0.015, "4x1": 0.02, "16x1": 0.015,
        "64x1": 0.01, "30x4": 0.005})
    size8_tilt: list[float] = field(default_factory=lambda: [
        1.07, 0.95, 0.69, 0.51, 0.43, 0.36, 0.37, 0.38, 0.46, 0.79, 1.17, 1.30, 1.09, 1.10, 1.20, 1.16, 1.11, 1.28, 1.13, 1.22, 1.17,
        1.12, 1.29, 1.20])
    spot_duration: list[float] = field(default_factory=lambda: [7.648, 1.825, 259200.0])
    hp_priority: int = 80
    spot_priority: int = 0
    spot_checkpoint_interval_s: float | None = 3600.0
    spot_restart_cost_s: list[float] = field(default_factory=lambda: [40.0, 60.0])


class Sizes:
    """A mix of gangs: workers, GPUs of each, relative weights; without what cannot be in the cluster."""

    def __init__(self, key: str, mix: dict[str, Any], cluster: "Cluster", max_gang: float) -> None:
        each = largest_server(cluster)
        kept = []
        for name, weight in mix.items():
            words = str(name).split("x")
            if len(words) != 2 or not all(w.isdigit() and int(w) > 0 for w in words):
                raise BadInput(f"workload.{key}.{name}: must be workers x GPUs, as 4x8")
            check_number(f"workload.{key}.{name}", float(weight), low=0)
            workers, gpus = map(int, words)
            if gpus <= each and workers * gpus <= max(max_gang, 1.0):
                kept.append((workers, gpus, float(weight)))
        if not kept or sum(weight for *_, weight in kept) <= 0:
            raise BadInput(f"workload.{key}: no size fits the cluster and has a weight; the largest gang has {max_gang:,.0f} GPUs")
        self.workers, self.gpus, self.weights = (np.array(column) for column in zip(*kept, strict=True))
        self.total = self.workers * self.gpus

    def mean(self, tilt: float = 1.0) -> float:
        """Mean GPUs of a job when the sizes of 8 GPUs and more weigh ``tilt`` times as much."""
        return float(np.average(self.total, weights=self.tilted(tilt)))

    def tilted(self, tilt: float) -> np.ndarray:
        return np.where(self.total >= 8, self.weights * tilt, self.weights)


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The jobs of one seed, sorted by submit_time, with every column of schema.JOBS.

    Raises BadInput for parameters out of range and a cluster without GPUs.
    """
    _check(params)
    most = params.max_gang_share * cluster.gpus
    long, short, spot = (Sizes(key, getattr(params, key), cluster, most) for key in ("hp_long_sizes", "hp_short_sizes", "spot_sizes"))
    end = params.days * DAY_S
    low, high = params.hp_long_duration_s
    long_load, short_load = params.hp_load * params.hp_long_share, params.hp_load * (1 - params.hp_long_share)
    long_rate = long_load * cluster.gpus / (long.mean() * arrivals.loguniform_mean(low, high))
    short_rate = short_load * cluster.gpus / (_short_gpus(params, short) * _short_mean(params))
    spot_rate = params.spot_load * cluster.gpus / (spot.mean() * arrivals.lognormal_capped_mean(*params.spot_duration))
    parts = [_standing(params, long, long_load * cluster.gpus, seed)]

    times = _times(params, long_rate, params.hp_day, 0.0, end, seed, HP_LONG)
    which = draw_mix(generator(seed, Stream.FITTED_SIZE, HP_LONG), range(len(long.total)), long.weights.tolist(), len(times))
    duration = arrivals.loguniform(generator(seed, Stream.FITTED_DURATION, HP_LONG).random(len(times)), low, high)
    parts.append(_table(params, "hp-long", times, long, which, duration, seed, HP_LONG))

    times = _times(params, short_rate, params.hp_day, 0.0, end, seed, HP_SHORT)
    parts.append(_table(params, "hp", times, short, _tilted(params, short, times, seed), _short_durations(params, len(times), seed), seed,
                        HP_SHORT))

    times = _times(params, spot_rate, params.spot_day, params.history_days * DAY_S, end, seed, SPOT)
    which = draw_mix(generator(seed, Stream.FITTED_SIZE, SPOT), range(len(spot.total)), spot.weights.tolist(), len(times))
    mu, sigma, cap = params.spot_duration
    duration = np.minimum(np.exp(mu + sigma * generator(seed, Stream.FITTED_DURATION, SPOT).standard_normal(len(times))), cap)
    parts.append(_table(params, "spot", times, spot, which, duration, seed, SPOT))
    return in_order(parts)


def _times(params: Params, rate: float, day: list[float], start: float, end: float, seed: int, number: int) -> np.ndarray:
    bins = int(np.ceil(end / HOUR_S))
    expected = arrivals.calendar(np.array(params.hour), np.array(params.weekday), bins, HOUR_S, 0.0) * rate * HOUR_S
    sigma, rho = day
    days = arrivals.lognormal_ar1(generator(seed, Stream.FITTED_DAY, number), sigma, rho, arrivals.days_touched(end, 0.0))
    expected *= arrivals.per_day(days, bins, HOUR_S, 0.0)
    expected *= arrivals.gamma_factors(generator(seed, Stream.FITTED_BIN, number), params.hour_cv, bins)
    counts, places = (generator(seed, stream, number) for stream in (Stream.FITTED_COUNT, Stream.FITTED_PLACE))
    times = arrivals.place(counts, places, expected, HOUR_S, end)
    return arrivals.rounded(times[times >= start], end)


def _standing(params: Params, sizes: Sizes, gpus: float, seed: int) -> pa.Table:
    """The long jobs that run at t = 0: as many as hold ``gpus`` GPUs, with residual durations.

    The duration that an instant meets has the length-biased law of a log-uniform one, which is uniform; what is left of it is a
    uniform part.
    """
    rng = generator(seed, Stream.STANDING)
    which = draw_mix(rng, range(len(sizes.total)), sizes.weights.tolist(), STANDING_DRAWS)
    rows = how_many(gpus, sizes.total[which])
    if rows > STANDING_DRAWS:
        raise BadInput(f"workload: {gpus:,.0f} GPUs of long jobs stand there at t = 0, more than {STANDING_DRAWS:,} jobs hold; take a "
                       "smaller cluster")
    uniform = generator(seed, Stream.STANDING, 1).random((STANDING_DRAWS, 2))[:rows]
    low, high = params.hp_long_duration_s
    residual = uniform[:, 0] * (low + (high - low) * uniform[:, 1])
    return _table(params, "hp-standing", np.zeros(rows), sizes, which[:rows], residual, seed, 3)


def _tilted(params: Params, sizes: Sizes, times: np.ndarray, seed: int) -> np.ndarray:
    """Sizes of short jobs, by the hour in which they come: i64 (n,), positions in the mix."""
    edges = np.cumsum([sizes.tilted(tilt) for tilt in params.size8_tilt], axis=1)
    edges /= edges[:, -1:]
    hour = np.floor_divide(times, HOUR_S).astype(np.int64) % 24
    uniform = generator(seed, Stream.FITTED_SIZE, HP_SHORT).random(len(times))
    return np.minimum((uniform[:, None] >= edges[hour]).sum(1), len(sizes.total) - 1)


def _short_gpus(params: Params, sizes: Sizes) -> float:
    """Mean GPUs of a short job over a day."""
    return float(np.average([sizes.mean(tilt) for tilt in params.size8_tilt], weights=params.hour))


def _short_mean(params: Params) -> float:
    pieces = np.array(params.hp_short_durations, dtype=np.float64)
    return float(np.average([arrivals.loguniform_mean(low, high) for low, high, _ in pieces], weights=pieces[:, 2]))


def _short_durations(params: Params, rows: int, seed: int) -> np.ndarray:
    pieces = np.array(params.hp_short_durations, dtype=np.float64)
    uniform = generator(seed, Stream.FITTED_DURATION, HP_SHORT).random((rows, 2))
    edges = np.cumsum(pieces[:, 2]) / pieces[:, 2].sum()
    piece = np.minimum(np.searchsorted(edges, uniform[:, 0], side="right"), len(pieces) - 1)
    low, high = pieces[piece, 0], pieces[piece, 1]
    return low * (high / low) ** uniform[:, 1]


def _table(params: Params, prefix: str, times: np.ndarray, sizes: Sizes, which: np.ndarray, duration: np.ndarray, seed: int,
           number: int) -> pa.Table:
    rows, is_spot = len(times), number == SPOT
    shares = np.arange(1, params.tenants + 1) ** -params.tenant_zipf
    tenant = draw_mix(generator(seed, Stream.FITTED_TENANT, number), range(params.tenants), shares.tolist(), rows)
    small, large = params.spot_restart_cost_s
    columns: dict[str, Any] = {
        "job_id": numbered(prefix, rows), "submit_time": times, "duration": lasting(duration), "instances": sizes.workers[which],
        "gpus": sizes.gpus[which], "priority": params.spot_priority if is_spot else params.hp_priority, "preemptible": is_spot,
        "kind": "batch" if is_spot else "training", "tenant": np.array([f"tenant-{i}" for i in range(params.tenants)], object)[tenant],
    }
    if is_spot:
        columns |= {"checkpoint_interval_s": params.spot_checkpoint_interval_s,
                    "restart_cost_s": np.where(sizes.total[which] <= 8, small, large)}
    return jobs(rows, columns)


def _check(params: Params) -> None:
    for key in ("hp_load", "spot_load", "history_days", "hour_cv", "tenant_zipf"):
        check_number(key, getattr(params, key), low=0)
    check_number("days", params.days, above=0)
    check_number("tenants", params.tenants, low=1, high=100_000)
    check_number("max_gang_share", params.max_gang_share, above=0, high=1)
    check_number("hp_long_share", params.hp_long_share, low=0, high=1)
    check_priorities(params)
    if params.spot_checkpoint_interval_s is not None:
        check_number("spot_checkpoint_interval_s", params.spot_checkpoint_interval_s, low=0)
    for key, size in (("hour", 24), ("weekday", 7), ("size8_tilt", 24), ("hp_day", 2), ("spot_day", 2), ("hp_long_duration_s", 2),
                      ("spot_duration", 3), ("spot_restart_cost_s", 2)):
        values = getattr(params, key)
        if len(values) != size or not np.isfinite(values).all() or min(values) < 0:
            raise BadInput(f"workload.{key}={values}: must be {size} numbers >= 0")
    for key in ("hp_day", "spot_day"):
        check_number(f"workload.{key}[1]", getattr(params, key)[1], below=1)
    if not 0 < params.hp_long_duration_s[0] < params.hp_long_duration_s[1]:
        raise BadInput(f"workload.hp_long_duration_s={params.hp_long_duration_s}: must be two ascending numbers > 0")
    if not params.hp_short_durations or not all(len(p) == 3 and 0 < p[0] < p[1] and p[2] >= 0 for p in params.hp_short_durations):
        raise BadInput(f"workload.hp_short_durations={params.hp_short_durations}: must be [from, to, share] for each piece, 0 < from < to")
    if not (sum(params.hour) > 0 and sum(p[2] for p in params.hp_short_durations) > 0 and params.spot_duration[2] > 0
            and params.spot_duration[1] > 0):
        raise BadInput("workload.hour, hp_short_durations, spot_duration: factors and shares must not all be 0, sigma and cap must be > 0")
