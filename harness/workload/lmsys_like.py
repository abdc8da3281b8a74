"""Chat requests with log-normal output lengths, all there at once: the batch-formation workload on which ISJL is compared (arXiv
2608.02244).

The published figures are from a replay of LMSYS; this is its likeness in mean, spread and cut, as the specification examined it.
"""

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from harness.schema import REQUESTS
from harness.tables import checked
from harness.workload.common import MOST_JOBS, Stream, check_number, generator, numbered

if TYPE_CHECKING:
    from harness.topology import Cluster


@dataclass(frozen=True)
class Params:
    """Parameters of lmsys_like.

    requests: how many there are, all at time 0.
    mean, sigma: mean of the output lengths (tokens), and standard deviation of their logarithm.
    cap: longest output (tokens).
    prompt: tokens of every prompt; 1: progress and KV cache are the same.
    """

    requests: int = 512
    mean: float = 215.0
    sigma: float = 1.0
    cap: int = 2048
    prompt: int = 1


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The requests of one seed; ``cluster`` is not looked at. Raises BadInput for parameters out of range."""
    check_number("requests", params.requests, low=1, high=MOST_JOBS)
    check_number("mean", params.mean, above=0)
    check_number("sigma", params.sigma, low=0)
    check_number("cap", params.cap, low=1)
    check_number("prompt", params.prompt, low=1)
    normal = generator(seed, Stream.REQUEST_OUTPUT).standard_normal(params.requests)
    output = np.clip(np.rint(np.exp(log(params.mean) - params.sigma**2 / 2 + params.sigma * normal)), 1, params.cap)
    return checked(pa.table({
        "request_id": numbered("r", params.requests), "arrival_time": np.zeros(params.requests),
        "prompt_tokens": np.full(params.requests, params.prompt, np.int32), "output_tokens": output.astype(np.int32),
    }), REQUESTS, "lmsys_like")
