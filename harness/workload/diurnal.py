"""Online services that follow the day; batch inference and training gangs fill the valleys.

Services scale out and in around their peak hours and come as a `services` trace, from which each replica becomes a job with an
end_time. Batch jobs and training gangs arrive as Poisson processes, so that they wait by day and catch up by night. Sizes
are relative to the cluster, and no instance asks for more than its largest server has.
"""

from dataclasses import dataclass, field
from math import pi
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.schema import JOBS, SERVICES, names
from harness.workload.common import (
    DAY_S,
    HOUR_S,
    Stream,
    check_counts,
    check_mix,
    check_number,
    check_priorities,
    check_shares,
    draw_affinity,
    draw_mix,
    generator,
    in_order,
    jobs,
    largest_server,
    lognormal,
    mix_mean,
    numbered,
    poisson_arrivals,
    server_gpus,
    table,
)
from harness.workload.services import expand

if TYPE_CHECKING:
    from harness.topology import Cluster

PLATEAU = 0.25
"""Weight of the second harmonic in the shape of a day: a broad day and a narrow night."""
SATURDAY = 5


@dataclass(frozen=True)
class Params:
    """Parameters of diurnal. Shares and loads are of the cluster's GPUs, as means over a weekday.

    days: length of the trace; it ends all services (days).
    start_weekday: weekday of t = 0, 0 = Monday ... 6 = Sunday.
    cores_per_card: cores of an instance for each of its GPUs, at most what the largest server has for each of its own (cores).
    load: GPU time asked for by everything over the GPU time of the cluster; batch is what the two shares below leave of it.
    online_share: what online services want.
    training_share: what training gangs ask for.
    service_cards: one service for each entry, with that many GPUs for each replica; all want equal shares of the GPUs (GPUs).
    amplitude: depth of the night; at its trough a service wants 1 - amplitude times its mean.
    peak_hour: middle of the day's plateau (hours after midnight).
    phase_spread_h: each service is shifted by up to this, drawn uniformly to either side (hours).
    weekend_factor: demand of online services on Saturday and Sunday over that on a weekday.
    noise, noise_time_s: standard deviation of the relative noise on demand, and the time over which it decays (1; s).
    scale_interval_s: how often services scale out or in (s).
    online_priority: priority of online replicas.
    guaranteed_share: share of online replicas with affinity guaranteed.
    none_share: share of online replicas with affinity none; the others are best_effort.
    batch_cards, batch_card_weights: GPUs of a batch job, and how often (GPUs; relative weights).
    batch_duration_s, batch_sigma: mean of the log-normal durations, and the standard deviation of their logarithm (s; 1).
    batch_priority: priority of batch jobs.
    batch_checkpoint_interval_s: null: an eviction loses the attempt, 0: it loses nothing (s).
    batch_restart_cost_s: running time without progress in every attempt but the first (s).
    training_cards: GPUs of each instance of a gang (GPUs).
    training_instances, training_instance_weights: instances of a gang, and how often (instances; relative weights).
    training_duration_s, training_sigma: as for batch (s; 1).
    training_priority: priority of training gangs.
    training_preemptible: whether gangs may be evicted.
    training_checkpoint_interval_s, training_restart_cost_s: as for batch (s).
    training_network_domain, training_network_mode: domain above the server that should hold a gang, and how strictly.
    """

    days: float = 7.0
    start_weekday: int = 0
    cores_per_card: int = 7
    load: float = 0.95
    online_share: float = 0.35
    training_share: float = 0.25
    service_cards: list[int] = field(default_factory=lambda: [1, 1, 2, 2, 4, 8])
    amplitude: float = 0.6
    peak_hour: float = 15.0
    phase_spread_h: float = 3.0
    weekend_factor: float = 0.7
    noise: float = 0.05
    noise_time_s: float = 2 * HOUR_S
    scale_interval_s: float = 600.0
    online_priority: int = 80
    guaranteed_share: float = 0.0
    none_share: float = 0.0
    batch_cards: list[int] = field(default_factory=lambda: [1, 2])
    batch_card_weights: list[float] = field(default_factory=lambda: [0.7, 0.3])
    batch_duration_s: float = HOUR_S
    batch_sigma: float = 1.0
    batch_priority: int = 60
    batch_checkpoint_interval_s: float | None = None
    batch_restart_cost_s: float = 0.0
    training_cards: int = 8
    training_instances: list[int] = field(default_factory=lambda: [1, 2, 4])
    training_instance_weights: list[float] = field(default_factory=lambda: [0.6, 0.3, 0.1])
    training_duration_s: float = 6 * HOUR_S
    training_sigma: float = 1.0
    training_priority: int = 70
    training_preemptible: bool = True
    training_checkpoint_interval_s: float | None = 1800.0
    training_restart_cost_s: float = 300.0
    training_network_domain: str = "none"
    training_network_mode: str = "none"


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The jobs of one seed, sorted by submit_time, with every column of schema.JOBS.

    Raises BadInput for parameters out of range. Card counts above the largest server's, and gangs of more instances than
    servers can hold them, are cut to what the cluster has.
    """
    _check(params)
    parts = [_batch(params, cluster, seed), _training(params, cluster, seed)]
    wanted = services(params, cluster, seed)
    if wanted.num_rows:
        parts.insert(0, _online(params, wanted, seed))
    return in_order(parts)


def day_shape(hours_after_peak: np.ndarray) -> np.ndarray:
    """Demand over the day around its mean: period 24 h, mean 0, lowest value -1 at 12 h after the peak; shaped as the input."""
    x = hours_after_peak * (2.0 * pi / 24.0)
    return (np.cos(x) - PLATEAU * np.cos(2.0 * x)) / (1.0 + PLATEAU)


def services(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The `services` trace of the online side: one row for each change of a service's replicas; schema.SERVICES."""
    cards = np.minimum(np.asarray(params.service_cards, dtype=np.int64), largest_server(cluster))
    mean_replicas = params.online_share * cluster.gpus / len(cards) / cards
    time = np.arange(0.0, params.days * DAY_S, params.scale_interval_s)
    day = time / DAY_S
    weekly = np.where((params.start_weekday + np.floor(day)) % 7 >= SATURDAY, params.weekend_factor, 1.0)
    peak = params.peak_hour + params.phase_spread_h * (2.0 * generator(seed, Stream.SERVICE_PHASE).random(len(cards)) - 1.0)
    daily = 1.0 + params.amplitude * day_shape(24.0 * day[:, None] - peak[None, :])
    demand = mean_replicas * weekly[:, None] * daily * (1.0 + _noise(params, seed, daily.shape))
    replicas = np.maximum(np.rint(demand), 0).astype(np.int64)

    changes = np.diff(replicas, axis=0, prepend=0) != 0
    at, service = np.nonzero(changes)
    return table(SERVICES, len(at), {
        "service": [f"service-{i}" for i in service],
        "time": time[at],
        "replicas": replicas[at, service],
        "gpus": cards[service],
        "cpus": cards[service] * _cores_per_card(params, cluster),
        "priority": params.online_priority,
        "preemptible": False,
        "affinity": "best_effort",
        "kind": "online",
        "tenant": [f"service-{i}" for i in service],
    })


def _noise(params: Params, seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Stationary first-order autoregressive noise along axis 0, f64 of this shape."""
    noise = generator(seed, Stream.SERVICE_NOISE).standard_normal(shape) * params.noise
    kept = float(np.exp(-params.scale_interval_s / params.noise_time_s))
    for i in range(1, shape[0]):
        noise[i] = kept * noise[i - 1] + np.sqrt(1.0 - kept * kept) * noise[i]
    return noise


def _online(params: Params, wanted: pa.Table, seed: int) -> pa.Table:
    replicas = expand(wanted, params.days * DAY_S).select(names(JOBS))
    rng = generator(seed, Stream.ONLINE_AFFINITY)
    affinity = draw_affinity(rng, params.guaranteed_share, params.none_share, replicas.num_rows)
    at = names(JOBS).index("affinity")
    return replicas.set_column(at, replicas.schema.field(at), pa.array(affinity, type=pa.string()))


def _batch(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    cards = np.minimum(params.batch_cards, largest_server(cluster)).tolist()
    load = params.load - params.online_share - params.training_share
    rate = load * cluster.gpus / (mix_mean(cards, params.batch_card_weights) * params.batch_duration_s)
    submit = poisson_arrivals(generator(seed, Stream.BATCH_ARRIVAL), rate, 0.0, params.days * DAY_S)
    rows = len(submit)
    drawn = draw_mix(generator(seed, Stream.BATCH_CARDS), cards, params.batch_card_weights, rows)
    return jobs(rows, {
        "job_id": numbered("batch", rows),
        "submit_time": submit,
        "duration": lognormal(generator(seed, Stream.BATCH_DURATION), params.batch_duration_s, params.batch_sigma, rows),
        "gpus": drawn,
        "cpus": drawn * _cores_per_card(params, cluster),
        "priority": params.batch_priority,
        "preemptible": True,
        "affinity": "best_effort",
        "kind": "batch",
        "tenant": "batch",
        "checkpoint_interval_s": params.batch_checkpoint_interval_s,
        "restart_cost_s": params.batch_restart_cost_s,
    })


def _training(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    cards = min(params.training_cards, largest_server(cluster))
    instances = np.minimum(params.training_instances, int((server_gpus(cluster) // cards).sum())).tolist()
    gang_gpus = cards * mix_mean(instances, params.training_instance_weights)
    rate = params.training_share * cluster.gpus / (gang_gpus * params.training_duration_s)
    submit = poisson_arrivals(generator(seed, Stream.TRAINING_ARRIVAL), rate, 0.0, params.days * DAY_S)
    rows = len(submit)
    return jobs(rows, {
        "job_id": numbered("training", rows),
        "submit_time": submit,
        "duration": lognormal(generator(seed, Stream.TRAINING_DURATION), params.training_duration_s, params.training_sigma, rows),
        "instances": draw_mix(generator(seed, Stream.TRAINING_INSTANCES), instances, params.training_instance_weights, rows),
        "gpus": np.full(rows, cards),
        "cpus": cards * _cores_per_card(params, cluster),
        "priority": params.training_priority,
        "preemptible": params.training_preemptible,
        "affinity": "best_effort",
        "kind": "training",
        "tenant": "training",
        "checkpoint_interval_s": params.training_checkpoint_interval_s,
        "restart_cost_s": params.training_restart_cost_s,
        "network_domain": params.training_network_domain,
        "network_mode": params.training_network_mode,
    })


def _cores_per_card(params: Params, cluster: "Cluster") -> float:
    """Cores for each GPU: at most what the server with most GPUs (of those the one with most cores) has for each of its own."""
    used = [cluster.shapes[i] for i in np.unique(cluster.shape_of)]
    largest = max(used, key=lambda shape: (shape.gpus, shape.cores))
    return float(min(params.cores_per_card, max(largest.cores // largest.gpus, 1)))


def _check(params: Params) -> None:
    for key in ("days", "cores_per_card", "batch_duration_s", "training_duration_s", "noise_time_s", "scale_interval_s",
                "training_cards"):
        check_number(key, getattr(params, key), above=0)
    for key in ("load", "phase_spread_h", "weekend_factor", "noise", "batch_restart_cost_s", "training_restart_cost_s"):
        check_number(key, getattr(params, key), low=0)
    for key in ("batch_sigma", "training_sigma"):
        check_number(key, getattr(params, key), low=0, high=5)
    check_priorities(params)
    for key in ("online_share", "training_share", "amplitude"):
        check_number(key, getattr(params, key), low=0, high=1)
    for key in ("batch_checkpoint_interval_s", "training_checkpoint_interval_s"):
        if getattr(params, key) is not None:
            check_number(key, getattr(params, key), low=0)
    check_number("start_weekday", params.start_weekday, low=0, high=6)
    check_number("peak_hour", params.peak_hour, low=0, high=24)
    check_shares(params.guaranteed_share, params.none_share)
    check_mix("batch_cards", params.batch_cards, "batch_card_weights", params.batch_card_weights)
    check_mix("training_instances", params.training_instances, "training_instance_weights", params.training_instance_weights)
    check_counts("service_cards", params.service_cards)
    if params.load < params.online_share + params.training_share:
        raise BadInput(f"workload.load={params.load}: below workload.online_share={params.online_share} and "
                       f"workload.training_share={params.training_share} together; raise it or lower them")
    modes = {"none": ("none",), "rack": ("required", "preferred"), "spine": ("required", "preferred")}
    if params.training_network_mode not in modes.get(params.training_network_domain, ()):
        raise BadInput(f"workload.training_network_domain={params.training_network_domain} with workload.training_network_mode="
                       f"{params.training_network_mode}: none with none, or rack or spine with required or preferred")
