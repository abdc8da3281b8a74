"""What a request replay runs on: replicas of models on GPUs, as the section ``pool`` of the configuration gives them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from harness.errors import BadInput
from harness.schema import LEVELS
from harness.serving.models import SP, Gpu, Link, Model, StepTime, coefficients, facts, kv_blocks, switch_s
from harness.serving.routing import ROUTING

PREFILLS = ("chunked", "whole")
CHUNK_ORDERS = ("admission", "key")
PREEMPTIONS = ("recompute", "swap", "pause")
TRANSFERS = ("stream", "whole")
UNFINISHED = ("retry", "drop")
PREFIX_STORES = ("replica", "shared")
LIMITS = (
    ("replicas", 1, 100_000), ("tp", 1, 4_096), ("gpus_per_server", 1, 4_096), ("decode_replicas", 0, 100_000), ("chunk", 1, 10**9),
    ("batch", 1, 65_536), ("block", 1, 65_536), ("kv_blocks", 1, 10**12), ("boundaries", 0, 10**9), ("predictor_sigma", 0, 10),
    ("memory_share", 0.01, 1), ("transfer_gbs", 0.001, 10**6), ("prefix_cache_gb", 0, 10**9), ("prefix_block_tokens", 1, 10**6),
)
"""Key, least and most of its value; more is taken for a slip."""


@dataclass(frozen=True)
class Pool:
    """The keys of conf/pool/a100_llama8b.yaml, which says what each means."""

    model: Model
    gpu: Gpu
    step_time: StepTime
    replicas: int = 4
    tp: int = 1
    gpus_per_server: int = 8
    decode_replicas: int = 0
    prefill: str = "chunked"
    chunk: int = 512
    chunk_order: str = "admission"
    batch: int = 256
    block: int = 16
    memory_share: float = 0.9
    kv_blocks: int | None = None
    preemption: str = "recompute"
    boundaries: int | None = None
    routing: str = "shortest_queue"
    predictor_sigma: float = 0.0
    transfer: str = "stream"
    transfer_gbs: float | None = None
    sp: str = "fast"
    skip_ahead: bool = True
    models: tuple[Model, ...] = ()
    links: tuple[tuple[str, Link], ...] = ()
    unfinished: str = "retry"
    prefix_cache_gb: float = 0.0
    prefix_store: str = "replica"
    prefix_block_tokens: int = 512
    offload: float | None = None
    ttft_slo_s: float | None = None
    tbt_slo_s: float | None = None

    def __post_init__(self):
        for name, low, high in LIMITS:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise BadInput(f"pool.{name}={value}: must be at least {low} and at most {high:,}")
        if self.decode_replicas >= self.replicas:
            raise BadInput(f"pool.decode_replicas={self.decode_replicas}: must be fewer than the {self.replicas} replicas")
        if self.prefill == "chunked" and self.chunk <= self.batch and self.decode_replicas == 0:
            raise BadInput(f"pool.chunk={self.chunk}: must be more than pool.batch={self.batch}, or prompts starve beside a full batch")
        if self.offload is not None and not 0 <= self.offload <= 1:
            raise BadInput(f"pool.offload={self.offload}: must be a share, 0 to 1, or null")
        if self.prefix_cache_gb and (self.prefill != "chunked" or self.models):
            raise BadInput(f"pool.prefix_cache_gb={self.prefix_cache_gb:g}: needs pool.prefill=chunked and one model; 0 reuses nothing")
        if self.prefix_cache_gb and not self.prefix_blocks:
            size = self.prefix_block_tokens * self.model.kv_bytes / 1e9
            raise BadInput(f"pool.prefix_cache_gb={self.prefix_cache_gb:g}: holds no block of {self.prefix_block_tokens} tokens; one takes "
                           f"{size:.3g} GB")
        if self.blocks < 1:
            raise BadInput(f"pool: {self.weights_gb:g} GB of weights leave no room for a KV cache on {self.tp} x {self.gpu.name} of "
                           f"{self.gpu.memory_gb:g} GB; raise pool.tp")

    @property
    def all_models(self) -> tuple[Model, ...]:
        """The models that requests can ask for: with ``models`` given those, else ``model``."""
        return self.models or (self.model,)

    @property
    def per_server(self) -> int:
        """Replicas that share a server."""
        return max(1, self.gpus_per_server // self.tp)

    @property
    def weights_gb(self) -> float:
        """Weights on a replica's GPUs: those of the largest model, or with offloading the shares of all."""
        sizes = [model.weights_gb for model in self.all_models]
        return max(sizes) if self.offload is None else self.offload * sum(sizes)

    @property
    def blocks(self) -> int:
        """KV blocks of a replica, sized for the model with the largest KV cache."""
        if self.kv_blocks is not None:
            return self.kv_blocks
        model = max(self.all_models, key=lambda model: model.kv_bytes)
        return kv_blocks(model, self.gpu, self.tp, self.block, self.memory_share, self.weights_gb)

    @property
    def prefix_blocks(self) -> int:
        """Blocks of ``prefix_block_tokens`` that a prefix store holds; 0: there is none."""
        return int(self.prefix_cache_gb * 1e9 // (self.prefix_block_tokens * self.model.kv_bytes))

    @property
    def gpus(self) -> int:
        return self.replicas * self.tp

    def tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Coefficients (rows, 2, 3, features), the batch from which the second set holds (rows,), the row for each model and gang
        (K, replicas + 1), and the seconds to switch to each model (K,). With ``links`` the rows come once for each of LEVELS."""
        rows, limits = [], []
        joined = dict(self.links)
        index = np.zeros((len(self.all_models), self.replicas + 1), np.int64)
        on_gpu = 1.0 if self.offload is None else self.offload
        for level in LEVELS if self.links else LEVELS[:1]:
            for k, model in enumerate(self.all_models):
                for gang in range(self.replicas + 1):
                    index[k, gang] = len(rows) % index.size
                    row, limit = coefficients(model, self.gpu, self.tp, self.step_time, max(gang, 1), self.sp, self.per_server, on_gpu,
                                              joined.get(level))
                    rows.append(row)
                    limits.append(limit)
        switching = np.array([switch_s(model, self.gpu) for model in self.all_models])
        return np.array(rows), np.array(limits), index, switching

    def move_s(self) -> tuple[float, float]:
        """Seconds that moving a KV cache between replicas shows: a fixed part, and per token."""
        bandwidth = self.gpu.nvlink_gbs if self.transfer_gbs is None else self.transfer_gbs
        whole = self.model.kv_bytes / (bandwidth * 1e9)
        return 0.0, whole / self.model.layers if self.transfer == "stream" else whole


WORDS = {"prefill": PREFILLS, "chunk_order": CHUNK_ORDERS, "preemption": PREEMPTIONS, "routing": ROUTING, "transfer": TRANSFERS, "sp": SP,
         "unfinished": UNFINISHED, "prefix_store": PREFIX_STORES}


def parse(section: Mapping[str, Any]) -> Pool:
    """The section ``pool`` of a configuration. Raises BadInput naming the key that is unknown or has no sensible value."""
    known = {f.name: getattr(f.type, "__name__", str(f.type)) for f in fields(Pool)}
    values: dict[str, Any] = {}
    for name, value in section.items():
        if name not in known:
            raise BadInput(f"pool.{name}: there is no such key; known are {', '.join(known)}")
        values[name] = _value(name, value, known[name])
    for name in ("model", "gpu", "step_time"):
        if name not in values:
            raise BadInput(f"pool.{name}: is missing; choose one of conf/pool/{name}")
    return Pool(**values)


def _value(name: str, value: Any, kind: str) -> Any:
    key = f"pool.{name}"
    if name in ("model", "gpu", "step_time"):
        return facts({"model": Model, "gpu": Gpu, "step_time": StepTime}[name], value, key)
    if name == "models":
        listed = list(value.values()) if isinstance(value, Mapping) else value
        if not isinstance(listed, list | tuple):
            raise BadInput(f"{key}={value}: must be a list of models")
        return tuple(facts(Model, one, f"{key}[{i}]") for i, one in enumerate(listed))
    if name == "links":
        if not isinstance(value, Mapping) or not set(value) <= set(LEVELS):
            raise BadInput(f"{key}={value}: must be a mapping of levels, which are {', '.join(LEVELS)}, to links")
        return tuple((level, facts(Link, one, f"{key}.{level}")) for level, one in value.items())
    if name in WORDS:
        if value not in WORDS[name]:
            raise BadInput(f"{key}={value}: must be one of {', '.join(WORDS[name])}")
        return value
    if value is None and "None" in kind:
        return None
    if kind == "bool" and isinstance(value, bool):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "int" in kind and float(value).is_integer():
            return int(value)
        if "float" in kind and 0 <= value < np.inf:
            return float(value)
    wanted = "true or false" if kind == "bool" else "a whole number" if "int" in kind else "a number >= 0"
    raise BadInput(f"{key}={value}: must be {wanted}{' or null' if 'None' in kind else ''}")
