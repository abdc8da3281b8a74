"""The common workload on which published simulators were compared: plain jobs of 1 to 32 GPUs under strict FIFO.

Poisson arrivals, log-normal durations in whole seconds, six sizes. The draws, and their order, are those of the script with which
Helios, Lucid and others were measured (specs, peers), so that their figures can be set beside ours; hence one stream for all
columns instead of one for each. T1 is the default with seed 1 on 64 servers of 8 GPUs: under fifo its mean wait is 430.7464 s and
its makespan 226,840 s. T3 is 100,000 jobs on 256 such servers: 10.80288 s and 535,934 s. T4 is 100,000 jobs on 1,024.
"""

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.workload.common import DAY_S, MOST_JOBS, check_number, draw_mix, jobs, largest_server, numbered

if TYPE_CHECKING:
    from harness.topology import Cluster

SIZES = (1, 2, 4, 8, 16, 32)
SHARES = (0.50, 0.15, 0.15, 0.15, 0.04, 0.01)
"""GPUs of a job, and how often."""

SERVER_GPUS = 8
"""A larger job is a gang of instances that each fill a server of so many GPUs."""

MEDIAN_S, SIGMA = 600.0, 1.5
SHORTEST_S, LONGEST_S = 10.0, 2 * DAY_S
"""Durations: median and standard deviation of the logarithm before the cut, and where they are cut, in seconds."""


@dataclass(frozen=True)
class Params:
    """Parameters of common_workload.

    jobs: how many there are.
    load: GPU time asked for over the GPU time of the cluster while jobs arrive.
    """

    jobs: int = 10_000
    load: float = 0.85


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The jobs of one seed, sorted by submit_time (whole seconds, the first at 0), with every column of schema.JOBS.

    Raises BadInput for parameters out of range, and for a cluster without a server of 8 GPUs or more.
    """
    check_number("jobs", params.jobs, low=1, high=MOST_JOBS)
    check_number("load", params.load, above=0)
    if seed < 0:
        raise BadInput(f"seed={seed}: a seed is a whole number >= 0")
    largest = largest_server(cluster)
    if largest < SERVER_GPUS:
        raise BadInput(f"cluster {cluster.name}: its largest server has {largest} GPUs; the common workload needs {SERVER_GPUS}")
    rng = np.random.Generator(np.random.PCG64(seed))
    gpus = draw_mix(rng, SIZES, SHARES, params.jobs)
    duration = np.clip(np.rint(rng.lognormal(log(MEDIAN_S), SIGMA, params.jobs)), SHORTEST_S, LONGEST_S)
    gap = float((gpus * duration).mean()) / (params.load * cluster.gpus)
    arrival = np.cumsum(rng.exponential(gap, params.jobs))
    return jobs(params.jobs, {
        "job_id": numbered("job", params.jobs),
        "submit_time": np.floor(arrival - arrival[0]),
        "duration": duration,
        "instances": np.maximum(gpus // SERVER_GPUS, 1),
        "gpus": np.minimum(gpus, SERVER_GPUS),
    })
