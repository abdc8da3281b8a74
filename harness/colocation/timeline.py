"""What happened when: one table over time of all stages, for figures and notebooks."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness import schema
from harness.metrics.spans import Integrals


def timeline(tables: Mapping[str, pa.Table], usage: pa.Table, end_s: float) -> pa.Table:
    """schema.TIMELINE over the intervals of ``usage`` (schema.UTILIZATION), up to ``end_s``, from the tables of all stages; without
    ``demand`` the load is nan."""
    edges = np.append(usage["t_start"].to_numpy(), usage["t_end"][-1].as_py())
    width = np.diff(edges)
    jobs, replicas, requests = tables["jobs"], tables["replicas"], tables["requests"]
    online = jobs.filter(pc.is_valid(jobs["service"]))
    wanted = _covered(edges, online["submit_time"].to_numpy(), online["end_time"].to_numpy())
    ready = _covered(edges, _times(replicas, "ready", end_s), _times(replicas, "stop", end_s))
    offline = usage["gpu_alloc_batch"].to_numpy() + usage["gpu_alloc_training"].to_numpy()
    decided = tables["preemptions"]
    victims, _ = np.histogram(decided["time"].to_numpy(), edges, weights=decided["victims_n"].to_numpy())
    columns = {"t_start": edges[:-1], "t_end": edges[1:], "load": _load(tables, edges), "wanted": wanted / width, "ready": ready / width,
               "gpu_online": usage["gpu_alloc_online"].to_numpy(), "gpu_offline": offline, "victims": victims, **_requests(requests, edges)}
    return pa.table({name: pa.array(values, from_pandas=name == "ttft_p99_s") for name, values in columns.items()}).cast(
        schema.arrow_schema(schema.TIMELINE))


def _covered(edges: np.ndarray, since: np.ndarray, until: np.ndarray) -> np.ndarray:
    """Seconds of each interval that spans cover, all spans together."""
    spans = Integrals(edges, 1)
    spans.add(since, until, [None])
    return spans.result()[0]


def _times(replicas: pa.Table, name: str, end_s: float) -> np.ndarray:
    values = replicas[f"{name}_time"].to_numpy(zero_copy_only=False).astype(float)
    return np.where(np.isnan(values), end_s, values)


def _load(tables: Mapping[str, pa.Table], edges: np.ndarray) -> np.ndarray:
    """Mean load of all services in each interval, from the syncs that fall into it."""
    if "demand" not in tables:
        return np.full(len(edges) - 1, np.nan)
    time, load = tables["demand"]["time"].to_numpy(), tables["demand"]["load"].to_numpy()
    syncs = np.histogram(np.unique(time), edges)[0]
    return np.divide(np.histogram(time, edges, weights=load)[0], syncs, out=np.full(len(syncs), np.nan), where=syncs > 0)


def _requests(requests: pa.Table, edges: np.ndarray) -> dict[str, np.ndarray]:
    status = requests["status"].to_numpy(zero_copy_only=False)
    came = status != "rejected"
    arrival = requests["arrival_time"].to_numpy()[came]
    ttft = requests["ttft_s"].to_numpy(zero_copy_only=False).astype(float)[came]
    missed = ~pc.fill_null(requests["slo_met"], True).to_numpy(zero_copy_only=False)[came]
    order = np.argsort(arrival, kind="stable")
    bounds = np.searchsorted(arrival[order], edges)
    waited = np.where(np.isnan(ttft), np.inf, ttft)[order]
    pieces = [waited[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    high = np.array([np.quantile(piece, 0.99, method="higher") if len(piece) else np.nan for piece in pieces])
    return {"requests": np.diff(bounds), "ttft_p99_s": high, "violations": np.histogram(arrival[missed], edges)[0]}
