"""Training gangs of several tenants, half of them sensitive to where they sit: for placement above the server, and for queues with quotas.

Poisson arrivals, log-normal durations, a mix of gang sizes. Sensitive jobs are of kind training, the others of kind batch:
``network_speed`` says what distance costs each. All of it is assumed; nothing is fitted to a trace.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.schema import NETWORK_DOMAINS, NETWORK_MODES
from harness.workload.common import (
    MOST_JOBS,
    Stream,
    check_mix,
    check_number,
    check_priorities,
    draw_mix,
    generator,
    jobs,
    largest_server,
    lognormal,
    milliseconds,
    mix_mean,
    numbered,
)

if TYPE_CHECKING:
    from harness.topology import Cluster


@dataclass(frozen=True)
class Params:
    """Parameters of gangs.

    jobs: how many there are.
    load: GPU time asked for over the GPU time of the cluster while jobs arrive.
    instances, instance_weights: instances of a gang, and how often (instances; relative weights).
    gpus: GPUs of each instance (GPUs).
    duration_mean_s, duration_sigma: mean, and standard deviation of the logarithm, of the durations (s).
    sensitive_share: share of the jobs that are sensitive to the network.
    sensitive_priority, other_priority: their priority, and that of the others.
    preemptible: whether jobs may be evicted.
    checkpoint_interval_s: null: an eviction loses the attempt, 0: it loses nothing (s).
    restart_cost_s: running time without progress in every attempt but the first (s).
    network_domain, network_mode: the wish of every gang: none, rack or spine; none, preferred or required.
    tenants: how many tenants submit jobs.
    tenant_skew: exponent of their Zipf shares, 0: equal.
    """

    jobs: int = 1000
    load: float = 0.8
    instances: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16, 32])
    instance_weights: list[float] = field(default_factory=lambda: [0.3, 0.1, 0.2, 0.2, 0.15, 0.05])
    gpus: int = 1
    duration_mean_s: float = 7200.0
    duration_sigma: float = 1.2
    sensitive_share: float = 0.5
    sensitive_priority: int = 1
    other_priority: int = 0
    preemptible: bool = True
    checkpoint_interval_s: float | None = 600.0
    restart_cost_s: float = 60.0
    network_domain: str = "none"
    network_mode: str = "none"
    tenants: int = 1
    tenant_skew: float = 0.0


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The jobs of one seed, sorted by submit_time, with every column of schema.JOBS. Raises BadInput for parameters out of range."""
    _check(params, largest_server(cluster))
    n = params.jobs
    gap = mix_mean(params.instances, params.instance_weights) * params.gpus * params.duration_mean_s / (params.load * cluster.gpus)
    submit = np.cumsum(generator(seed, Stream.GANG_ARRIVAL).exponential(gap, n))
    sensitive = generator(seed, Stream.GANG_SENSITIVE).random(n) < params.sensitive_share
    shares = np.arange(1, params.tenants + 1) ** -params.tenant_skew
    return jobs(n, {
        "job_id": numbered("gang", n),
        "submit_time": milliseconds(submit),
        "duration": lognormal(generator(seed, Stream.GANG_DURATION), params.duration_mean_s, params.duration_sigma, n),
        "instances": draw_mix(generator(seed, Stream.GANG_INSTANCES), params.instances, params.instance_weights, n),
        "gpus": params.gpus,
        "priority": np.where(sensitive, params.sensitive_priority, params.other_priority),
        "preemptible": params.preemptible,
        "kind": np.where(sensitive, "training", "batch").astype(object),
        "checkpoint_interval_s": params.checkpoint_interval_s,
        "restart_cost_s": params.restart_cost_s,
        "network_domain": params.network_domain,
        "network_mode": params.network_mode,
        "tenant": [f"tenant-{t}" for t in draw_mix(generator(seed, Stream.GANG_TENANT), range(params.tenants), list(shares), n)],
    })


def _check(params: Params, largest: int) -> None:
    check_number("jobs", params.jobs, low=1, high=MOST_JOBS)
    check_number("gpus", params.gpus, low=1, high=largest)
    check_number("tenants", params.tenants, low=1, high=1000)
    check_priorities(params)
    check_mix("instances", params.instances, "instance_weights", params.instance_weights)
    for key in ("load", "duration_mean_s"):
        check_number(key, getattr(params, key), above=0)
    for key in ("duration_sigma", "restart_cost_s", "tenant_skew"):
        check_number(key, getattr(params, key), low=0)
    check_number("sensitive_share", params.sensitive_share, low=0, high=1)
    if params.checkpoint_interval_s is not None:
        check_number("checkpoint_interval_s", params.checkpoint_interval_s, low=0)
    for key, words in (("network_domain", NETWORK_DOMAINS), ("network_mode", NETWORK_MODES)):
        if getattr(params, key) not in words:
            raise BadInput(f"workload.{key}={getattr(params, key)}: must be one of {', '.join(words)}")
