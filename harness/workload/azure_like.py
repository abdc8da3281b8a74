"""Requests like those of the Azure LLM inference trace of 2023 (Splitwise), synthetic: conversation and coding services on one clock.

Lengths are log-normal with the published medians and 99th percentiles, cut at the published maxima; arrivals are a Poisson process for
``burstiness`` 1, else a renewal process with gamma gaps of that coefficient of variation. What it does not have: the trace's bimodal
output lengths, its silent gap, and any correlation of prompt and output.
"""

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.schema import REQUESTS
from harness.tables import checked
from harness.workload.common import MOST_JOBS, Stream, check_number, generator, milliseconds

if TYPE_CHECKING:
    from harness.topology import Cluster

SERVICES = {
    "conv": (5.53, (1020, 4142, 14050), (129, 601, 1000)),
    "code": (2.57, (1469, 7436, 7437), (13, 249, 1899)),
}
"""Service -> requests per second, and median, 99th percentile and maximum of prompt and output tokens."""

Z99 = 2.3263
"""99th percentile of the normal distribution."""


@dataclass(frozen=True)
class Params:
    """Parameters of azure_like.

    duration_s: how long requests arrive (s).
    load_scale: multiplies the rates of arrival, 5.53 (conv) and 2.57 (code) per second.
    code_share: share of the coding service's own rate; 0: conversation alone.
    burstiness: coefficient of variation of the times between arrivals of a service.
    max_tokens: requests with more tokens in prompt and output together are left out; null: none.
    tenants: requests are dealt to so many tenants, the k-th with weight 1/k.
    """

    duration_s: float = 1200.0
    load_scale: float = 1.0
    code_share: float = 1.0
    burstiness: float = 1.0
    max_tokens: int | None = None
    tenants: int = 1


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """Requests of one seed, sorted by arrival_time; ``cluster`` is not looked at. Raises BadInput for parameters out of range."""
    check_number("duration_s", params.duration_s, above=0)
    check_number("load_scale", params.load_scale, above=0)
    check_number("code_share", params.code_share, low=0)
    check_number("burstiness", params.burstiness, above=0)
    check_number("tenants", params.tenants, low=1)
    parts = []
    for i, (service, (rate, prompt, output)) in enumerate(SERVICES.items()):
        rate *= params.load_scale * (params.code_share if service == "code" else 1.0)
        if rate * params.duration_s > MOST_JOBS:
            raise BadInput(f"workload: {rate * params.duration_s:.3g} requests are more than {MOST_JOBS:,}; lower duration_s or load_scale")
        arrival = _arrivals(generator(seed, Stream.REQUEST_ARRIVAL, i), rate, params.duration_s, params.burstiness)
        prompts = _lengths(generator(seed, Stream.REQUEST_PROMPT, i), prompt, len(arrival))
        outputs = _lengths(generator(seed, Stream.REQUEST_OUTPUT, i), output, len(arrival))
        parts.append((arrival, prompts, outputs, [service] * len(arrival)))
    arrival, prompts, outputs = (np.concatenate([part[k] for part in parts]) for k in range(3))
    service = np.array([word for part in parts for word in part[3]], dtype=object)
    kept = np.flatnonzero(prompts + outputs <= (params.max_tokens or np.inf))
    if not len(kept):
        raise BadInput("workload: no request is left; raise duration_s, load_scale or max_tokens")
    order = kept[np.argsort(arrival[kept], kind="stable")]
    weights = 1.0 / np.arange(1, params.tenants + 1)
    tenant = generator(seed, Stream.REQUEST_TENANT).choice(params.tenants, len(order), p=weights / weights.sum())
    table = pa.table({
        "request_id": [f"r{i}" for i in range(len(order))], "arrival_time": arrival[order],
        "prompt_tokens": prompts[order].astype(np.int32), "output_tokens": outputs[order].astype(np.int32),
        "service": pa.array(service[order], pa.string()),
        "tenant": [f"t{t}" if params.tenants > 1 else "" for t in tenant],
    })
    return checked(table, REQUESTS, "azure_like")


def _arrivals(rng: np.random.Generator, rate: float, duration: float, burstiness: float) -> np.ndarray:
    if rate <= 0:
        return np.empty(0)
    shape = 1.0 / burstiness**2
    gaps = rng.gamma(shape, 1.0 / (rate * shape), int(rate * duration * 1.2 + 10 * (1 + burstiness) * np.sqrt(rate * duration) + 50))
    times = np.cumsum(gaps)
    return milliseconds(times[times < duration])


def _lengths(rng: np.random.Generator, about: tuple[int, int, int], size: int) -> np.ndarray:
    median, high, most = about
    return np.clip(np.rint(median * np.exp(log(high / median) / Z99 * rng.standard_normal(size))), 1, most).astype(np.int64)
