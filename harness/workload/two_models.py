"""Chat requests for several models that share GPUs, in bursts: what model switching is compared on (arXiv 2605.19593, secondary notes).

Each model has its own Poisson process, thinned to alternating times of activity. All of it is ours.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.schema import REQUESTS
from harness.tables import checked
from harness.workload.common import Stream, check_number, generator, numbered, poisson_arrivals

if TYPE_CHECKING:
    from harness.topology import Cluster


@dataclass(frozen=True)
class Params:
    """Parameters of two_models.

    duration_s: how long requests arrive (s).
    rate: requests per second of each model, averaged over its activity and rest.
    services: names of the models, as pool.models has them.
    active_share, period_s: each model is asked in that share of each period (s), one after the other; 1: always.
    prompt, output: mean tokens, geometric.
    """

    duration_s: float = 600.0
    rate: float = 0.2
    services: list[str] = field(default_factory=lambda: ["qwen_3b", "llama3_8b"])
    active_share: float = 1.0
    period_s: float = 120.0
    prompt: int = 500
    output: int = 100


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The requests of one seed, sorted by arrival_time; ``cluster`` is not looked at. Raises BadInput for parameters out of range."""
    for key in ("duration_s", "rate", "period_s"):
        check_number(key, getattr(params, key), above=0)
    check_number("active_share", params.active_share, above=0, high=1)
    check_number("prompt", params.prompt, low=1)
    check_number("output", params.output, low=1)
    times, service = [], []
    for i in range(len(params.services)):
        at = poisson_arrivals(generator(seed, Stream.REQUEST_ARRIVAL, i), params.rate / params.active_share, 0.0, params.duration_s)
        phase = np.mod(at / params.period_s - i / len(params.services), 1.0)
        at = at[phase < params.active_share]
        times.append(at)
        service.append(np.full(len(at), i))
    arrival, of = np.concatenate(times), np.concatenate(service)
    if not len(arrival):
        raise BadInput("workload: no request arrives; raise rate or duration_s")
    order = np.argsort(arrival, kind="stable")
    n = len(order)
    return checked(pa.table({
        "request_id": numbered("r", n), "arrival_time": arrival[order],
        "prompt_tokens": generator(seed, Stream.REQUEST_PROMPT).geometric(1 / params.prompt, n).astype(np.int32),
        "output_tokens": generator(seed, Stream.REQUEST_OUTPUT).geometric(1 / params.output, n).astype(np.int32),
        "service": [params.services[k] for k in of[order]], "tenant": [params.services[k] for k in of[order]],
    }), REQUESTS, "two_models")
