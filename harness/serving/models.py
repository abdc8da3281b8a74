"""Step-time models: from facts about a model, its GPUs and a fit to the coefficients that speed.py evaluates. Seconds, bytes, FLOP.

- ``roofline``: overhead + max(FLOPs / (MFU x peak), bytes / (MBU x bandwidth)); weights are read once per step, the KV cache once per
  decoded token, and a ring all-reduce joins the tensor-parallel halves of each layer.
- ``affine``: published fits of prefill (a + b n + c n^2 for a prompt of n) and decode (a + b members + c context, with a second set from
  a batch size on). A step that does both pays the larger constant and both slopes, since it reads the weights once.
- ``max_kv``: c0 + c1 x the largest KV cache of the batch.

Each layer of a tensor-parallel replica takes two ring all-reduces of its tokens' activations: 2 (tp - 1) hops, in each of which every GPU
sends a tp-th of them over the slowest link between two neighbours. A replica on other links than the GPU's own, for instance across
sockets, pays the difference, whatever the model of its steps (the published fits were measured on NVLink).

Sequence parallelism over k replicas divides prefill by k; a ring without zig-zag does the causal attention of k segments in the time of
2 k / (k + 1) of them. With ``fast`` the ring is over servers only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import ceil
from typing import Any

import numpy as np

from harness.errors import BadInput
from harness.serving.speed import (
    CONTEXT,
    FEATURES,
    HAS_DECODE,
    HAS_PREFILL,
    LARGEST,
    MEMBERS,
    ONE,
    PAIRS,
    PAST,
    PROMPTS,
    TOKENS,
)

LAYER_S, STEP_S, REQUEST_S = 32e-6, 126e-6, 4.4e-6
"""Overheads of a step: per layer, per step, per request in it."""

MAY_BE_ZERO = ("attention_mflop", "switch_fixed_s", "switch_s_per_gb", "latency_us")

SP = ("ring", "fast")
KINDS = ("roofline", "affine", "max_kv")


@dataclass(frozen=True)
class Model:
    """Facts about a model, in fp16. ``attention_mflop`` is per pair of tokens, ``gflop`` per token without attention."""

    name: str
    parameters_b: float
    gflop: float
    attention_mflop: float
    kv_bytes: float
    layers: int
    hidden: int

    @property
    def weights_gb(self) -> float:
        return 2.0 * self.parameters_b


@dataclass(frozen=True)
class Gpu:
    """Facts about a GPU: dense bf16 TFLOP/s, memory, links per direction, shares of peak that serving reaches, and the model-switch fit.

    Without NVLink ``nvlink_gbs`` is that of PCIe. ``host_gbs`` is how fast weights on the host are read for each token.
    """

    name: str
    tflops: float
    hbm_tbs: float
    memory_gb: float
    nvlink_gbs: float
    pcie_gbs: float
    host_gbs: float
    mfu_prefill: float
    mfu_decode: float
    mbu: float
    switch_fixed_s: float
    switch_s_per_gb: float


@dataclass(frozen=True)
class Link:
    """The slowest link between the GPUs of a replica: GB/s per direction, and the latency of a hop beyond that of the GPU's own link."""

    gbs: float
    latency_us: float = 0.0


@dataclass(frozen=True)
class StepTime:
    """Which model of step times, and its numbers (affine: ms)."""

    name: str
    kind: str
    prefill_ms: tuple[float, ...] = ()
    decode_ms: tuple[float, ...] = ()
    large_decode_ms: tuple[float, ...] = ()
    large_from: int = 0
    c0_s: float = 0.0
    c1_s: float = 0.0


def facts(kind: type, mapping: Any, key: str) -> Any:
    """``mapping`` as a Model, Gpu or StepTime. Raises BadInput for a key that is missing, unknown, or no number."""
    if not isinstance(mapping, Mapping):
        raise BadInput(f"{key}={mapping}: must be a mapping of facts")
    known = {f.name: f for f in fields(kind)}
    for name in mapping:
        if name not in known:
            raise BadInput(f"{key}.{name}: there is no such fact; known are {', '.join(known)}")
    values = {}
    for name, field in known.items():
        if name not in mapping:
            if field.default is field.default_factory:
                raise BadInput(f"{key}.{name}: is missing")
            continue
        value = mapping[name]
        if field.type in (str, "str"):
            values[name] = str(value)
        elif isinstance(value, list | tuple):
            values[name] = tuple(_number(v, f"{key}.{name}") for v in value)
        else:
            number = _number(value, f"{key}.{name}")
            if number == 0 and kind is not StepTime and name not in MAY_BE_ZERO:
                raise BadInput(f"{key}.{name}={value}: must be above 0")
            values[name] = int(number) if field.type in (int, "int") else number
    return kind(**values)


def _number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e15:
        raise BadInput(f"{key}={value}: must be a number, 0 to 1e15")
    return float(value)


def coefficients(model: Model, gpu: Gpu, tp: int, step: StepTime, gang: int = 1, sp: str = "ring", per_server: int = 1,
                 on_gpu: float = 1.0, link: Link | None = None) -> tuple[np.ndarray, int]:
    """Coefficients (2, 3, features) of a step whose prompts are prefilled on ``gang`` replicas, and the decode batch from which the second
    set holds.

    ``tp`` GPUs make a replica, ``per_server`` replicas share a server; ``on_gpu`` is the share of the weights kept on the GPUs; ``link``
    joins the GPUs of a replica, None: the GPU's own.
    """
    rows, limit = _on_own_link(model, gpu, tp, step, gang, sp, per_server, on_gpu)
    if link is not None and tp > 1:
        more = all_reduce_s(model, tp, link.gbs) - all_reduce_s(model, tp, gpu.nvlink_gbs)
        rows[:, 2, TOKENS] += more / gang
        rows[:, 2, MEMBERS] += more
        rows[:, 2, ONE] += 2 * model.layers * 2 * (tp - 1) * link.latency_us * 1e-6
    return rows, limit


def all_reduce_s(model: Model, tp: int, gbs: float) -> float:
    """Seconds that the all-reduces of one token take in one pass through the model, latency apart: two in each layer."""
    return 2 * model.layers * 2.0 * (tp - 1) / tp * model.hidden * 2.0 / (gbs * 1e9)


def _on_own_link(model: Model, gpu: Gpu, tp: int, step: StepTime, gang: int, sp: str, per_server: int, on_gpu: float
                 ) -> tuple[np.ndarray, int]:
    ring = ceil(gang / per_server) if sp == "fast" else gang
    linear, attention = 1.0 / gang, 2.0 * ring / (ring + 1) / gang
    rows = np.zeros((2, 3, FEATURES))
    if step.kind == "roofline":
        _roofline(rows[0], model, gpu, tp, linear, attention, on_gpu)
        rows[1] = rows[0]
        return rows, np.iinfo(np.int64).max
    if step.kind == "max_kv":
        rows[:, 2, ONE], rows[:, 2, LARGEST] = step.c0_s, step.c1_s
        return rows, np.iinfo(np.int64).max
    if step.kind != "affine" or len(step.prefill_ms) != 3 or len(step.decode_ms) != 3:
        raise BadInput(f"pool.step_time.kind={step.kind}: must be one of {', '.join(KINDS)}; affine needs three numbers for prefill_ms "
                       "and decode_ms")
    larger = step.large_decode_ms or step.decode_ms
    for half, decode in enumerate((step.decode_ms, larger)):
        a, b, c = step.prefill_ms
        rows[half, 0, HAS_PREFILL], rows[half, 1, HAS_DECODE] = a / 1e3, decode[0] / 1e3
        rows[half, 2, TOKENS], rows[half, 2, PAIRS] = b / 1e3 * linear, 2.0 * c / 1e3 * attention
        rows[half, 2, MEMBERS], rows[half, 2, CONTEXT] = decode[1] / 1e3, decode[2] / 1e3
    return rows, step.large_from or np.iinfo(np.int64).max


def _roofline(row: np.ndarray, model: Model, gpu: Gpu, tp: int, linear: float, attention: float, on_gpu: float) -> None:
    compute, memory, overhead = row
    peak, bandwidth = gpu.tflops * 1e12 * tp, gpu.hbm_tbs * 1e12 * gpu.mbu * tp
    compute[TOKENS] = model.gflop * 1e9 / (gpu.mfu_prefill * peak) * linear
    compute[PAIRS] = model.attention_mflop * 1e6 / (gpu.mfu_prefill * peak) * attention
    compute[MEMBERS] = model.gflop * 1e9 / (gpu.mfu_decode * peak)
    compute[CONTEXT] = model.attention_mflop * 1e6 / (gpu.mfu_decode * peak)
    weights = model.weights_gb * 1e9
    memory[ONE] = weights * (on_gpu / bandwidth + (1.0 - on_gpu) / (gpu.host_gbs * 1e9 * tp))
    memory[CONTEXT] = memory[PAST] = model.kv_bytes / bandwidth
    reduced = all_reduce_s(model, tp, gpu.nvlink_gbs) if tp > 1 else 0.0
    overhead[ONE] = LAYER_S * model.layers + STEP_S
    overhead[PROMPTS] = REQUEST_S
    overhead[TOKENS] = reduced * linear
    overhead[MEMBERS] = REQUEST_S + reduced


def kv_blocks(model: Model, gpu: Gpu, tp: int, block: int, share: float, weights_gb: float) -> int:
    """KV blocks of ``block`` tokens that fit a replica beside ``weights_gb`` when ``share`` of the memory may be used."""
    return int((gpu.memory_gb * share * tp - weights_gb) * 1e9 / (model.kv_bytes * block))


def load_s(model: Model, gpu: Gpu, tp: int, storage_gbs: float | None = None) -> float:
    """Seconds to load the weights onto a fresh replica: from storage (None: as fast as the model-switch fit of the GPU says), or over
    PCIe where all ``tp`` links together are slower, after the fixed part of that fit."""
    from_storage = gpu.switch_s_per_gb if storage_gbs is None else 1.0 / storage_gbs
    return gpu.switch_fixed_s + model.weights_gb * max(from_storage, 1.0 / (gpu.pcie_gbs * tp))


def switch_s(model: Model, gpu: Gpu) -> float:
    """Seconds to put this model in the place of another."""
    return gpu.switch_fixed_s + gpu.switch_s_per_gb * model.weights_gb
