"""Prompts of several classes with their own objectives for the time to first token: what FlowPrefill is compared on (arXiv 2602.16603).

The four objectives are published; the shares and lengths of the classes are ours. Outputs are one token: only prefill is looked at.
"""

from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, Any

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
    """Parameters of multi_slo.

    duration_s: how long requests arrive (s).
    rate: requests per second of all classes, Poisson.
    classes: name, share, median prompt (tokens), standard deviation of its logarithm, and objective (s) of each.
    slo_scale: multiplies the objectives.
    longest: prompts are cut there (tokens).
    output: tokens of every output.
    """

    duration_s: float = 600.0
    rate: float = 2.0
    classes: list[dict[str, Any]] = field(default_factory=lambda: [
        {"name": "text", "share": 0.6, "median": 500, "sigma": 0.6, "slo_s": 0.25},
        {"name": "image", "share": 0.2, "median": 1200, "sigma": 0.3, "slo_s": 0.5},
        {"name": "search", "share": 0.15, "median": 6000, "sigma": 0.5, "slo_s": 4.0},
        {"name": "file", "share": 0.05, "median": 20000, "sigma": 0.4, "slo_s": 6.0},
    ])
    slo_scale: float = 1.0
    longest: int = 32_000
    output: int = 1


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The requests of one seed, sorted by arrival_time, their class as tenant; ``cluster`` is not looked at.

    Raises BadInput for parameters out of range.
    """
    for key, low in (("duration_s", 0), ("rate", 0), ("slo_scale", 0)):
        check_number(key, getattr(params, key), above=low)
    check_number("longest", params.longest, low=1)
    check_number("output", params.output, low=1)
    try:
        names = [str(c["name"]) for c in params.classes]
        share, median, sigma, slo = (np.array([float(c[key]) for c in params.classes]) for key in ("share", "median", "sigma", "slo_s"))
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"workload.classes: every class needs name, share, median, sigma and slo_s ({error})") from error
    if not len(names) or (share < 0).any() or share.sum() <= 0 or (median <= 0).any() or (slo <= 0).any():
        raise BadInput("workload.classes: shares must be >= 0, medians and objectives above 0")
    arrival = poisson_arrivals(generator(seed, Stream.REQUEST_ARRIVAL), params.rate, 0.0, params.duration_s)
    if not len(arrival):
        raise BadInput("workload: no request arrives; raise rate or duration_s")
    kind = generator(seed, Stream.REQUEST_TENANT).choice(len(names), len(arrival), p=share / share.sum())
    normal = generator(seed, Stream.REQUEST_PROMPT).standard_normal(len(arrival))
    prompt = np.clip(np.rint(np.exp(np.array([log(m) for m in median])[kind] + sigma[kind] * normal)), 1, params.longest)
    return checked(pa.table({
        "request_id": numbered("r", len(arrival)), "arrival_time": arrival, "prompt_tokens": prompt.astype(np.int32),
        "output_tokens": np.full(len(arrival), params.output, np.int32), "tenant": [names[k] for k in kind],
        "ttft_slo_s": params.slo_scale * slo[kind],
    }), REQUESTS, "multi_slo")
