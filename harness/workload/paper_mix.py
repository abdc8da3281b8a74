"""The mix of the FlexTopo paper's sample server: 1-card batch jobs, and 2-card online instances that preempt them.

The paper does not publish its mix. This one has its two kinds of instance (priority 60 on 1 card, priority 80 on 2, 7 cores for
each card) on a cluster that batch jobs keep full, so that nearly every online arrival is a preemption. Source: specs,
topology-preemption, "Published numbers to set beside ours".
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from harness.workload.common import (
    HOUR_S,
    MOST_JOBS,
    Stream,
    check_mix,
    check_number,
    check_priorities,
    check_shares,
    draw_affinity,
    draw_mix,
    generator,
    how_many,
    in_order,
    jobs,
    largest_server,
    lasting,
    milliseconds,
    mix_mean,
    numbered,
    poisson_arrivals,
)

if TYPE_CHECKING:
    from harness.topology import Cluster


@dataclass(frozen=True)
class Params:
    """Parameters of paper_mix.

    preemptors: online arrivals; the trace ends with the last (instances).
    warmup_s: only batch arrives before this instant (s).
    cores_per_card: cores of an instance for each of its GPUs (cores).
    batch_cards, batch_card_weights: GPUs of a batch job, and how often (GPUs; relative weights).
    batch_load: GPU time that arriving batch jobs ask for over the GPU time of the cluster; above 1 a backlog grows.
    batch_backlog: GPUs asked for by the batch jobs that stand there at t = 0 over those of the cluster.
    batch_duration_s: mean of the exponential batch durations (s).
    batch_priority: priority of batch jobs.
    checkpoint_interval_s: of batch jobs; null: an eviction loses the attempt, 0: it loses nothing (s).
    restart_cost_s: of batch jobs, running time without progress in every attempt but the first (s).
    online_cards, online_card_weights: GPUs of an online instance, and how often (GPUs; relative weights).
    online_share: share of the cluster's GPUs that online instances hold on average; sets their durations.
    batch_departures_per_online: batch jobs that finish for each online arrival; sets the rate of the latter.
    online_priority: priority of online instances.
    guaranteed_share: share of online instances with affinity guaranteed.
    none_share: share of online instances with affinity none; the others are best_effort.
    """

    preemptors: int = 5000
    warmup_s: float = 2 * HOUR_S
    cores_per_card: int = 7
    batch_cards: list[int] = field(default_factory=lambda: [1])
    batch_card_weights: list[float] = field(default_factory=lambda: [1.0])
    batch_load: float = 1.3
    batch_backlog: float = 1.1
    batch_duration_s: float = HOUR_S
    batch_priority: int = 60
    checkpoint_interval_s: float | None = None
    restart_cost_s: float = 0.0
    online_cards: list[int] = field(default_factory=lambda: [2])
    online_card_weights: list[float] = field(default_factory=lambda: [1.0])
    online_share: float = 0.2
    batch_departures_per_online: float = 20.0
    online_priority: int = 80
    guaranteed_share: float = 0.0
    none_share: float = 0.0


class Rates(NamedTuple):
    """What the parameters come to on a cluster: arrivals per second, and the mean duration of online instances in s."""

    batch_arrivals: float
    batch_departures: float
    online_arrivals: float
    online_duration_s: float


def rates(params: Params, gpus: int) -> Rates:
    """The rates of ``params`` on ``gpus`` GPUs.

    Batch jobs leave at the rate at which they fill what online leaves to them; the online duration follows from Little's law.
    """
    full_speed = gpus / mix_mean(params.batch_cards, params.batch_card_weights) / params.batch_duration_s
    departures = (1.0 - params.online_share) * full_speed
    online = departures / params.batch_departures_per_online
    held = params.online_share * gpus / mix_mean(params.online_cards, params.online_card_weights)
    return Rates(params.batch_load * full_speed, departures, online, held / online)


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The jobs of one seed, sorted by submit_time, with every column of schema.JOBS.

    Raises BadInput for parameters out of range, and for card counts that no server of ``cluster`` has.
    """
    _check(params, largest_server(cluster))
    rate = rates(params, cluster.gpus)
    gaps = generator(seed, Stream.ONLINE_ARRIVAL).exponential(1.0 / rate.online_arrivals, params.preemptors)
    online_submit = milliseconds(params.warmup_s + np.cumsum(gaps))
    end = float(online_submit[-1]) if params.preemptors else params.warmup_s
    return in_order([_batch(params, seed, cluster.gpus, rate, end), _online(params, seed, rate, online_submit)])


def _check(params: Params, largest: int) -> None:
    check_number("preemptors", params.preemptors, low=0, high=MOST_JOBS)
    check_priorities(params)
    for key in ("warmup_s", "batch_load", "batch_backlog", "restart_cost_s"):
        check_number(key, getattr(params, key), low=0)
    for key in ("cores_per_card", "batch_duration_s", "batch_departures_per_online"):
        check_number(key, getattr(params, key), above=0)
    check_number("online_share", params.online_share, above=0, below=1)
    if params.checkpoint_interval_s is not None:
        check_number("checkpoint_interval_s", params.checkpoint_interval_s, low=0)
    check_shares(params.guaranteed_share, params.none_share)
    check_mix("batch_cards", params.batch_cards, "batch_card_weights", params.batch_card_weights, high=largest)
    check_mix("online_cards", params.online_cards, "online_card_weights", params.online_card_weights, high=largest)


def _batch(params: Params, seed: int, gpus: int, rate: Rates, end: float) -> pa.Table:
    target = params.batch_backlog * gpus
    standing = draw_mix(generator(seed, Stream.BACKLOG_CARDS), params.batch_cards, params.batch_card_weights,
                        int(target / min(params.batch_cards)) + 1)
    standing = standing[: how_many(target, standing)]
    # What is left of an exponential duration is distributed as the whole, so these are the residuals of a cluster in full swing.
    standing_s = generator(seed, Stream.BACKLOG_DURATION).exponential(params.batch_duration_s, len(standing))

    submit = poisson_arrivals(generator(seed, Stream.BATCH_ARRIVAL), rate.batch_arrivals, 0.0, end)
    cards = draw_mix(generator(seed, Stream.BATCH_CARDS), params.batch_cards, params.batch_card_weights, len(submit))
    duration = generator(seed, Stream.BATCH_DURATION).exponential(params.batch_duration_s, len(submit))

    cards = np.concatenate([standing, cards])
    return jobs(len(cards), {
        "job_id": numbered("batch", len(cards)),
        "submit_time": np.concatenate([np.zeros(len(standing)), submit]),
        "duration": lasting(np.concatenate([standing_s, duration])),
        "gpus": cards,
        "cpus": cards * float(params.cores_per_card),
        "priority": params.batch_priority,
        "preemptible": True,
        "affinity": "best_effort",
        "kind": "batch",
        "checkpoint_interval_s": params.checkpoint_interval_s,
        "restart_cost_s": params.restart_cost_s,
    })


def _online(params: Params, seed: int, rate: Rates, submit: np.ndarray) -> pa.Table:
    rows = len(submit)
    cards = draw_mix(generator(seed, Stream.ONLINE_CARDS), params.online_cards, params.online_card_weights, rows)
    return jobs(rows, {
        "job_id": numbered("online", rows),
        "submit_time": submit,
        "duration": lasting(generator(seed, Stream.ONLINE_DURATION).exponential(rate.online_duration_s, rows)),
        "gpus": cards,
        "cpus": cards * float(params.cores_per_card),
        "priority": params.online_priority,
        "preemptible": False,
        "affinity": draw_affinity(generator(seed, Stream.ONLINE_AFFINITY), params.guaranteed_share, params.none_share, rows),
        "kind": "online",
    })
