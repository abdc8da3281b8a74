"""Pools, traces and replays for the tests of the serving half."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from harness.schema import REQUESTS
from harness.serving.hooks import load_policy
from harness.serving.outcome import Outcome
from harness.serving.pool import Pool, parse
from harness.serving.replay import replay
from harness.tables import checked

CONF = Path(__file__).resolve().parents[1] / "conf" / "pool"
EXACT = {"name": "exact", "kind": "max_kv", "c0_s": 2.0**-6, "c1_s": 2.0**-12}
"""A step time whose sums are exact in binary: results do not depend on the order of additions."""

GANGS = ("long_fifo", "long_priority", "reservation", "pecsched")
"""Policies that prefill long requests on several replicas."""


def facts(group: str, name: str) -> dict[str, Any]:
    return yaml.safe_load((CONF / group / f"{name}.yaml").read_text())


def pool(model: str = "llama3_8b", gpu: str = "a100", step_time: str | dict[str, Any] = "roofline", **keys: Any) -> Pool:
    """A pool of conf/pool/a100_llama8b.yaml with other keys."""
    section = yaml.safe_load((CONF / "a100_llama8b.yaml").read_text())
    del section["defaults"]
    section |= {"model": facts("model", model), "gpu": facts("gpu", gpu), "ttft_slo_s": None, "tbt_slo_s": None,
                "step_time": step_time if isinstance(step_time, dict) else facts("step_time", step_time)}
    return parse({**section, **keys})


def trace(rows: Any, **columns: Any) -> pa.Table:
    """Requests from (arrival, prompt, output)."""
    arrival, prompt, output = (list(column) for column in zip(*rows, strict=True))
    tokens = {"prompt_tokens": prompt, "output_tokens": output}
    table = {"request_id": [f"r{i}" for i in range(len(arrival))], "arrival_time": pa.array(arrival, pa.float64()),
             **{name: pa.array([int(n) for n in column], pa.int32()) for name, column in tokens.items()}}
    return checked(pa.table({**table, **columns}), REQUESTS, "test")


def suited(policy: str, rows: list[tuple[float, int, int]], keys: dict[str, Any], columns: dict[str, Any]
           ) -> tuple[list[tuple[float, int, int]], dict[str, Any], dict[str, Any]]:
    """A world (rows, keys of its pool, columns of its trace) with what the policy is about: long requests and replicas for gangs, whole
    prompts for FlowPrefill, two models for switching."""
    if policy in GANGS:
        rows = [(a, p if i % 9 else 60_000 + 997 * i, o) for i, (a, p, o) in enumerate(rows)]
        keys = {"model": "llama3_70b", "tp": 4, "replicas": 8, "prefill": "whole", "chunk": 1, "boundaries": 0}
    if policy == "flowprefill":
        keys = {**keys, "prefill": "whole", "chunk": 2048}
    if policy == "switching":
        names = ("llama3_8b", "qwen_3b")
        keys = {**keys, "models": [facts("model", name) for name in names]}
        columns = {**columns, "service": [names[i // 7 % 2] for i in range(len(rows))]}
    return rows, keys, columns


def play(rows: Any, where: Pool, policy: str = "fcfs", file: Path | None = None, params: dict[str, Any] | None = None,
         horizon_s: float = np.inf, **columns: Any) -> Outcome:
    """Replays (arrival, prompt, output) rows."""
    loaded = load_policy(None if file else policy, str(file) if file else None, params)
    return replay(trace(rows, **columns), where, loaded, horizon_s=horizon_s)


def world(seed: int, n: int = 60, span: float = 8.0, longest: int = 400, most: int = 60) -> list[tuple[float, int, int]]:
    """Random rows; arrivals are multiples of 1/64 s so that some coincide."""
    rng = np.random.default_rng(seed)
    arrival = np.sort(rng.integers(0, int(span * 64), n)) / 64
    return list(zip(arrival.tolist(), rng.integers(1, longest, n).tolist(), rng.integers(1, most, n).tolist(), strict=True))


def families(seed: int, rows: list[tuple[float, int, int]], tokens: int, most: int = 4) -> list[list[int] | None]:
    """Hashes of the prefix blocks of ``rows``, of ``tokens`` tokens: in each of a few families prompts share their first blocks, how many
    is drawn, and have their own behind them; some have no hashes."""
    rng = np.random.default_rng((seed, 1))
    found: list[list[int] | None] = []
    for i, (_, prompt, _) in enumerate(rows):
        family, blocks = int(rng.integers(most)), -(-prompt // tokens)
        common = int(rng.integers(0, blocks + 1))
        found.append([1000 * family + j if j < common else 10**6 * (i + 1) + j for j in range(blocks)] if rng.random() < 0.9 else None)
    return found
