"""The common workload of the simulators of this field: one kind of server of 8 GPUs, jobs of 1 to 32 GPUs, strict FIFO.

Whole servers above 8 GPUs: a job of 16 or 32 is a gang of 2 or 4 instances of 8. All times are whole seconds.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from harness import schema
from harness.tables import fill_defaults

GPUS_PER_SERVER = 8
LOAD = 0.85
SIZES, SHARES = (1, 2, 4, 8, 16, 32), (0.5, 0.15, 0.15, 0.15, 0.04, 0.01)
MEDIAN_S, SIGMA, SHORTEST_S, LONGEST_S = 600.0, 1.5, 10, 2 * 86_400


def common_workload(n: int, servers: int, seed: int = 1) -> pa.Table:
    """``n`` jobs in order of submission that ask for ``LOAD`` of ``servers`` servers, as a trace.

    The draws, all from PCG64(seed): sizes; log-normal durations, rounded and clipped; exponential times between arrivals, the first
    job at 0, rounded down.
    """
    draws = np.random.Generator(np.random.PCG64(seed))
    gpus = draws.choice(SIZES, n, p=SHARES)
    duration = np.rint(draws.lognormal(np.log(MEDIAN_S), SIGMA, n)).clip(SHORTEST_S, LONGEST_S).astype(np.int64)
    between_s = (gpus * duration).mean() / (LOAD * servers * GPUS_PER_SERVER)
    arrival = np.cumsum(draws.exponential(between_s, n))
    columns: dict[str, Any] = {
        "job_id": pa.array(map(str, range(n)), pa.string()), "submit_time": np.floor(arrival - arrival[0]),
        "duration": duration.astype(float), "instances": np.maximum(gpus // GPUS_PER_SERVER, 1).astype(np.int32),
        "gpus": np.minimum(gpus, GPUS_PER_SERVER).astype(np.int16),
    }
    return fill_defaults(pa.table(columns), schema.JOBS)
