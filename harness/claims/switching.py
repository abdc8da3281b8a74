"""Several models on one GPU (arXiv 2605.19593, secondary notes): what a switch costs, and what a model partly on the host costs."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import yaml
from matplotlib.figure import Figure

from harness.cache import PACKAGE
from harness.claims.claim import Claim, Section, claim
from harness.figures import offload_curve, switching_cost
from harness.figures.results import open_results
from harness.report_tables import Grid
from harness.schema import REQUESTS
from harness.serving.models import Gpu, Model, StepTime, coefficients, facts
from harness.serving.speed import CONTEXT, FEATURES, HAS_DECODE, LARGEST, MEMBERS, ONE
from harness.tables import checked

MODELS = ("qwen_3b", "llama3_8b", "qwen_14b")
PUBLISHED = {"rtx5000_ada": (3.0, 5.2, 7.3), "a6000": (2.6, 4.1, 5.7)}
"""Seconds of a switch by GPU, for MODELS."""

CACHE_TOKENS = 5000
"""Tokens in the KV cache of a request that a switch interrupts, for which its share is published."""

CONTEXT_TOKENS = 300
"""KV cache at which the curves of offloading are drawn: about the mean over the tokens of lmsys_like."""


def known(kind: type, name: str) -> Any:
    """A Model, Gpu or StepTime of conf/pool."""
    group = {Model: "model", Gpu: "gpu", StepTime: "step_time"}[kind]
    return facts(kind, yaml.safe_load((PACKAGE.parent / "conf" / "pool" / group / f"{name}.yaml").read_text()), f"pool.{group}")


def _finishes(gpu: str, model: str, rows: list[tuple[float, int, int, str]]) -> tuple[np.ndarray, np.ndarray]:
    """Replays requests (arrival, prompt, output, which of ``model`` and ``another``, its like) on one GPU that switches after 0.1 s:
    their first tokens and their ends, s."""
    from harness.serving.hooks import load_policy
    from harness.serving.pool import Pool
    from harness.serving.replay import replay

    one = known(Model, model)
    another = Model(**{**vars(one), "name": "another"})
    where = Pool(one, known(Gpu, gpu), known(StepTime, "roofline"), replicas=1, kv_blocks=4000, models=(one, another))
    arrival, prompt, output, service = zip(*rows, strict=True)
    trace = checked(pa.table({
        "request_id": [f"r{i}" for i in range(len(rows))], "arrival_time": pa.array(arrival, pa.float64()),
        "prompt_tokens": pa.array(prompt, pa.int32()), "output_tokens": pa.array(output, pa.int32()),
        "service": [one.name if name == "model" else name for name in service],
    }), REQUESTS, "switching")
    requests = replay(trace, where, load_policy("switching", params={"patience_s": 0.1})).state.shown.requests
    return requests.first_token, requests.finish


@cache
def penalty(gpu: str, model: str) -> float:
    """Seconds that a switch adds to the first token of a request for ``model`` when another model is loaded, in a replay."""
    later = (100.0, 500, 1, "model")
    (_, switched), _ = _finishes(gpu, model, [(0.0, 500, 1, "another"), later])
    (_, loaded), _ = _finishes(gpu, model, [(0.0, 500, 1, "model"), later])
    return float(switched - loaded)


@cache
def cache_share(gpu: str, model: str) -> float:
    """Share of what an interruption by another model costs a request with CACHE_TOKENS in its KV cache that is not the model's own switch:
    its KV cache goes to the host and comes back."""
    def late(prompt: int) -> float:
        """Seconds by which an interruption delays the end of a request."""
        request = (0.0, prompt, 200, "model")
        _, alone = _finishes(gpu, model, [request])
        _, (end, _) = _finishes(gpu, model, [request, (0.5 * float(alone[0]), 1, 1, "another")])
        return float(end - alone[0])

    cost = late(CACHE_TOKENS) - late(1)
    return cost / (cost + penalty(gpu, model))


def switching_costs() -> pd.DataFrame:
    """gpu, model, weights_gb, published and measured seconds, and the fit (fixed_s, s_per_gb) of the GPU that is an input."""
    rows = []
    for gpu, seconds in PUBLISHED.items():
        fit = known(Gpu, gpu)
        for model, published in zip(MODELS, seconds, strict=True):
            rows.append({"gpu": gpu, "model": model, "weights_gb": known(Model, model).weights_gb, "published": published,
                         "measured": penalty(gpu, model), "fixed_s": fit.switch_fixed_s, "s_per_gb": fit.switch_s_per_gb})
    return pd.DataFrame(rows)


def roofline_s(gpu: str, model: str, features: Mapping[int, float], on_gpu: float = 1.0) -> float:
    """Seconds of a step with these features (speed.py) on one GPU, by the roofline."""
    coefficient = coefficients(known(Model, model), known(Gpu, gpu), 1, known(StepTime, "roofline"), on_gpu=on_gpu)[0][0]
    first, second, third = coefficient @ np.array([features.get(i, 0.0) for i in range(FEATURES)])
    return float(max(first, second) + third)


def token_s(gpu: str, model: str, on_gpu: float) -> float:
    """Seconds of a token that one request makes when the share ``on_gpu`` of the weights is on the GPU, by the roofline:
    W [f / BW_gpu + (1 - f) / BW_cpu] + c."""
    features = {ONE: 1, HAS_DECODE: 1, MEMBERS: 1, CONTEXT: CONTEXT_TOKENS, LARGEST: CONTEXT_TOKENS}
    return roofline_s(gpu, model, features, on_gpu)


def curve() -> pd.DataFrame:
    """model, on_gpu and formula (s of a token) for MODELS, from none of the weights on the GPU to all of them."""
    shares = np.arange(101) / 100
    return pd.DataFrame([{"model": model, "on_gpu": share, "formula": token_s("a6000", model, share)}
                         for model in MODELS for share in shares])


def offloads(folder: Path) -> pd.DataFrame:
    """From the recipe ``offloading``: model, on_gpu, and the seconds of a token, replayed (mean over seeds) and by ``token_s``."""
    cells = open_results(folder).summary
    rows = cells.groupby(["pool/model", "pool.offload"], observed=True)["busy_s_per_token"].mean().reset_index()
    rows.columns = ["model", "on_gpu", "replayed"]
    rows["formula"] = [token_s("a6000", str(row["model"]), float(row["on_gpu"])) for _, row in rows.iterrows()]
    return rows


def claims(done: dict[str, Path]) -> Iterator[Claim]:
    """The claims whose recipe is among ``done``."""
    if "switching" in done:
        yield from _switching()
    if "offloading" in done:
        rows = offloads(done["offloading"])
        yield claim("offloading-formula", "switching",
                    "largest distance of a replayed token's time to W [f / BW_gpu + (1 - f) / BW_cpu] + c", "%", (None, 1.0),
                    float((rows["replayed"] / rows["formula"] - 1).abs().max()), scale=100, calibrated=True,
                    command="harness -m +experiment=offloading", setup_difference="The form is published and is an input of the step-time "
                    "model; 1 % leaves room for the KV caches, which grow. Its time is a straight line in f: the hyperbola, steepest near "
                    "f = 1, is the rate of tokens.")


def figures(done: dict[str, Path]) -> dict[str, Figure]:
    """What a switch costs, and what a token costs a model that is partly on the host."""
    found = {"switching-cost": switching_cost.draw(switching_costs())} if "switching" in done else {}
    if "offloading" in done:
        found["offload-curve"] = offload_curve.draw(curve(), offloads(done["offloading"]))
    return found


def sections(done: dict[str, Path]) -> list[Section]:
    """The time of a token over the share of the weights on the GPU."""
    if "offloading" not in done:
        return []
    table = Grid(["model", "weights on the GPU", "ms per token", "tokens per second"], [], (0,))
    for row in offloads(done["offloading"]).itertuples():
        seconds = float(row.replayed)  # type: ignore[arg-type]
        table.rows.append([str(row.model), f"{100 * float(row.on_gpu):.0f} %", f"{1e3 * seconds:.1f}", f"{1 / seconds:.2f}"])  # type: ignore
    return [Section("A model partly on the host", "\n".join([
        "One request at a time on an RTX A6000, means over seeds (`harness -m +experiment=offloading`). The time of a token is a straight",
        "line in the share on the GPU, the rate of tokens a hyperbola.", "", table.markdown()]))]


def _switching() -> Iterator[Claim]:
    command = "python -m harness.claims.switching"
    for row in switching_costs().itertuples():
        seconds = float(row.published)  # type: ignore[arg-type]
        yield claim(f"switching-{row.gpu}-{row.model}", "switching", f"penalty of switching to {row.model} on {row.gpu}", "s",
                    (0.92 * seconds, 1.08 * seconds), float(row.measured), calibrated=True, command=command,  # type: ignore[arg-type]
                    setup_difference=f"Published {seconds} s; the fit over all sizes of the GPU is the input, held to within 8 %. "
                    "Measured: what the switch adds to the first token of a replayed request.")
    shares = {(gpu, model): cache_share(gpu, model) for gpu in PUBLISHED for model in MODELS}
    worst = max(shares, key=lambda pair: shares[pair])
    yield claim("switching-model-share", "switching", f"least share of the model's swap in the penalty at {CACHE_TOKENS:,} tokens", "%",
                (98.5, 100.0), 1 - shares[worst], scale=100, command=command,
                setup_difference=f"Least for {worst[1]} on {worst[0]}. The KV cache crosses PCIe at its nominal bandwidth, twice.")


def main() -> int:
    print(switching_costs().to_string(index=False))
    print({f"{model} on {gpu}": round(1 - cache_share(gpu, model), 4) for gpu in PUBLISHED for model in MODELS})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
