"""What a person wants to know of a trace before replaying it: counts, arrivals, sizes, durations, load, peak demand."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.schema import MILLI
from harness.tables import kind_of, metadata_of

if TYPE_CHECKING:
    from harness.topology import Cluster

HOUR_S, DAY_S = 3_600.0, 86_400.0
QUANTILES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
STATUS_COLUMNS = ("status", "pod_phase", "state", "qos", "job_type")
"""Columns beyond the schema whose values are counted when a trace carries them."""
MOST_SHARES = 12


def describe(table: pa.Table, cluster: "Cluster | None" = None) -> dict[str, Any]:
    """Figures of a trace as ``tables.read_trace`` gives it, nested by topic; times in s, sizes in GPUs, shares from 0 to 1.

    Quantiles are linear. ``cluster`` adds the offered load: what the jobs ask for over span and capacity.
    """
    kind = kind_of(table, "trace")
    result: dict[str, Any] = {"kind": kind, "rows": table.num_rows}
    if table.num_rows:
        result |= {"jobs": _jobs, "services": _services, "requests": _requests}[kind](table, cluster)
    if metadata_of(table):
        result["origin"] = metadata_of(table)
    return result


def _jobs(table: pa.Table, cluster: "Cluster | None") -> dict[str, Any]:
    submit, duration = table["submit_time"].to_numpy(), table["duration"].to_numpy()
    each = table["gpus"].to_numpy().astype(np.float64) * table["gpu_milli"].to_numpy() / MILLI
    instances = table["instances"].to_numpy().astype(np.float64)
    gpus, cores = each * instances, table["cpus"].to_numpy() * instances
    end = pc.fill_null(table["end_time"], np.inf).to_numpy()
    runs = np.minimum(duration, end - submit)
    result: dict[str, Any] = _arrivals(submit)
    result["gpus_per_job"] = quantiles(gpus)
    result["duration_s"] = quantiles(duration)
    result["jobs_by_gpus"] = _counts_of_sizes(gpus)
    result["gangs"] = int((instances > 1).sum())
    result["shared_gpu_jobs"] = int(((table["gpu_milli"].to_numpy() < MILLI)).sum())
    result["share_by_kind"] = {
        kind: {"jobs": float(here.mean()), "gpu_s": _share(gpus * runs, here)} for kind, here in _groups(table["kind"]).items()
    }
    preemptible = pc.equal(table["preemptible"], True).to_numpy()
    result["preemptible_share"] = {"jobs": float(preemptible.mean()), "gpu_s": _share(gpus * runs, preemptible)}
    result["jobs_by_priority"] = _counts(table["priority"])
    for name in ("affinity", "gpu_model", "tenant", *STATUS_COLUMNS):
        if name in table.column_names and len(pc.unique(table[name])) > 1:
            result[f"jobs_by_{name}"] = _counts(table[name])
    result["demand"] = _demand(submit, submit + runs, gpus, cores)
    result["demand"] |= {"gpu_s": float((gpus * runs).sum()), "core_s": float((cores * runs).sum())}
    if cluster is not None:
        result["cluster"] = _load(result["demand"], result["span_s"], cluster)
    return result


def _services(table: pa.Table, cluster: "Cluster | None") -> dict[str, Any]:
    time, replicas = table["time"].to_numpy(), table["replicas"].to_numpy().astype(np.float64)
    each = table["gpus"].to_numpy().astype(np.float64) * table["gpu_milli"].to_numpy() / MILLI
    cpus = table["cpus"].to_numpy()
    names = table["service"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.lexsort((np.arange(len(time)), time, names))
    service, at, number = names[order], time[order], replicas[order]
    follows = np.concatenate([[False], service[1:] == service[:-1]])
    gpu_step = number * each[order] - np.where(follows, np.roll(number * each[order], 1), 0.0)
    core_step = number * cpus[order] - np.where(follows, np.roll(number * cpus[order], 1), 0.0)
    result = _arrivals(time)
    result["services"] = len(pc.unique(table["service"]))
    result["replicas"] = quantiles(replicas)
    result["rows_by_service"] = _counts(table["service"])
    result["rows_by_kind"] = _counts(table["kind"])
    by_time = np.argsort(at, kind="stable")
    result["demand"] = _peaks(at[by_time], gpu_step[by_time], core_step[by_time], np.zeros(len(at)))
    held = np.cumsum(gpu_step[by_time])
    result["demand"]["gpu_s"] = float((held[:-1] * np.diff(at[by_time])).sum())
    result["demand"]["core_s"] = float((np.cumsum(core_step[by_time])[:-1] * np.diff(at[by_time])).sum())
    if cluster is not None:
        result["cluster"] = _load(result["demand"], result["span_s"], cluster)
    return result


def _requests(table: pa.Table, cluster: "Cluster | None") -> dict[str, Any]:
    arrival = table["arrival_time"].to_numpy()
    result = _arrivals(arrival)
    for name in ("prompt_tokens", "output_tokens"):
        result[name] = quantiles(table[name].to_numpy())
        result[f"{name}_per_s"] = _rate(float(table[name].to_numpy().astype(np.float64).sum()), result["span_s"])
    for name in ("service", "tenant"):
        if len(pc.unique(table[name])) > 1:
            result[f"requests_by_{name}"] = _counts(table[name])
    result["with_prefix_hashes"] = table.num_rows - table["prefix_hashes"].null_count
    if result["with_prefix_hashes"]:
        result["prefix_blocks_seen_before"] = prefix_reuse(table)
    if cluster is not None:
        result["cluster"] = _capacity(cluster)
    return result


def prefix_reuse(table: pa.Table) -> float:
    """Share of all prefix blocks that an unbounded cache would hold: those before the first block that no earlier request had."""
    seen: set[int] = set()
    blocks = hits = 0
    column = table["prefix_hashes"]
    for row in np.argsort(table["arrival_time"].to_numpy(), kind="stable"):
        hashes = column[int(row)].as_py() or []
        blocks += len(hashes)
        hits += next((i for i, block in enumerate(hashes) if block not in seen), len(hashes))
        seen.update(hashes)
    return hits / blocks if blocks else 0.0


def quantiles(values: np.ndarray) -> dict[str, float]:
    """min, p50, p90, p95, p99, max (linear) and the mean of ``values`` (rows,), at least one."""
    found = np.quantile(values, list(QUANTILES.values()))
    return {name: float(q) for name, q in zip(QUANTILES, found, strict=True)} | {"mean": float(np.mean(values))}


def _span(times: np.ndarray) -> dict[str, Any]:
    return {"first_s": float(times.min()), "last_s": float(times.max()), "span_s": float(times.max() - times.min())}


def _rate(count: float, span: float) -> float | None:
    return count / span if span > 0 else None


def _arrivals(times: np.ndarray) -> dict[str, Any]:
    """Span, mean rate, the busiest hour (hours counted from time 0) and how bursty they are."""
    result = _span(times)
    hours, counts = np.unique(np.floor_divide(times, HOUR_S), return_counts=True)
    busiest = int(np.argmax(counts))
    result["arrivals"] = {
        "mean_per_hour": _rate(len(times) * HOUR_S, result["span_s"]),
        "peak_hour": int(counts[busiest]),
        "peak_hour_starts_s": float(hours[busiest] * HOUR_S),
        **burstiness(times),
        "sorted": bool((np.diff(times) >= 0).all()),
    }
    return result


def burstiness(times: np.ndarray, bin_s: float | None = None) -> dict[str, float | None]:
    """How far arrivals (s, any order) are from a Poisson process, for which every figure but the autocorrelations is 1 (or its noise).

    ``gap_cv``: coefficient of variation of the gaps. Of the counts in whole hours (whole minutes when there are fewer than 24 hours),
    from the first arrival on: ``count_cv`` (standard deviation over mean), ``dispersion`` (variance over mean), and the autocorrelation
    one bin and 24 bins later, None where the bins are too few. ``count_bin_s`` says which bins; ``bin_s`` chooses them.
    """
    ordered = np.sort(times)
    gaps = np.diff(ordered)
    bin_s = bin_s or (HOUR_S if ordered[-1] - ordered[0] >= 24 * HOUR_S else 60.0)
    counts = counts_per(ordered, bin_s)
    several = len(counts) > 1
    return {
        "gap_cv": float(gaps.std() / gaps.mean()) if len(gaps) and gaps.mean() > 0 else None,
        "count_bin_s": bin_s,
        "count_cv": float(counts.std() / counts.mean()) if several else None,
        "dispersion": float(counts.var() / counts.mean()) if several else None,
        "autocorrelation_1": autocorrelation(counts, 1),
        "autocorrelation_24": autocorrelation(counts, 24),
    }


def counts_per(times: np.ndarray, bin_s: float) -> np.ndarray:
    """Arrivals (s, ascending) in each whole bin of ``bin_s`` from the first arrival on, i64; none when the span is shorter."""
    bins = int((times[-1] - times[0]) // bin_s)
    index = np.floor_divide(times - times[0], bin_s).astype(np.int64)
    return np.bincount(index[index < bins], minlength=bins) if bins else np.empty(0, np.int64)


def autocorrelation(values: np.ndarray, lag: int) -> float | None:
    """Sample autocorrelation of ``values`` at ``lag``; None when there are fewer than twice as many values, or they are all equal."""
    if len(values) < 2 * lag + 2 or values.std() == 0:
        return None
    centred = values - values.mean()
    return float((centred[lag:] * centred[:-lag]).sum() / (centred * centred).sum())


def time_zero(table: pa.Table) -> datetime | None:
    """What the clock of the trace showed at time 0, from the origin that the trace carries (``time 0 is 2017-09-04 10:30:41``)."""
    found = re.search(r"time 0 is (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", _report(table))
    return datetime.fromisoformat(found[1]) if found else None


def monday_s(table: pa.Table) -> tuple[float, bool] | None:
    """Where time 0 of ``table`` lies in the week: seconds from a Monday's midnight, and whether the weekday is known.

    None when the trace does not say it; a trace may also say only that ``time 0 is local midnight``.
    """
    start = time_zero(table)
    if start is not None:
        return start.weekday() * DAY_S + start.hour * HOUR_S + start.minute * 60.0 + start.second, True
    return (0.0, False) if "time 0 is local midnight" in _report(table) else None


def _report(table: pa.Table) -> str:
    lines = metadata_of(table).get("report")
    return "; ".join(str(line) for line in lines) if isinstance(lines, list) else ""


def _demand(submit: np.ndarray, end: np.ndarray, gpus: np.ndarray, cores: np.ndarray) -> dict[str, Any]:
    """Peaks of what would be held if every job started at once; at one instant ends come before starts."""
    times = np.concatenate([end, submit])
    order = np.argsort(times, kind="stable")
    one = np.ones(len(submit))
    steps = (np.concatenate([-values, values])[order] for values in (gpus, cores, one))
    return _peaks(times[order], *steps)


def _peaks(times: np.ndarray, gpus: np.ndarray, cores: np.ndarray, jobs: np.ndarray) -> dict[str, Any]:
    """Peaks of running sums of steps in time order, and when the one of GPUs is."""
    held = np.cumsum(gpus)
    peak = int(np.argmax(held))
    return {
        "peak_gpus": float(round(held[peak], 9)),
        "peak_gpus_at_s": float(times[peak]),
        "peak_gpus_by_jobs": int(np.cumsum(jobs)[peak]),
        "peak_cores": float(round(np.cumsum(cores).max(), 9)),
        "peak_jobs": int(np.cumsum(jobs).max()),
    }


def _capacity(cluster: "Cluster") -> dict[str, Any]:
    servers = np.bincount(cluster.shape_of, minlength=len(cluster.shapes))
    return {
        "name": cluster.name,
        "servers": int(servers.sum()),
        "gpus": int(sum(n * shape.gpus for n, shape in zip(servers, cluster.shapes, strict=True))),
        "cores": int(sum(n * shape.cores for n, shape in zip(servers, cluster.shapes, strict=True))),
    }


def _load(demand: Mapping[str, Any], span: float, cluster: "Cluster") -> dict[str, Any]:
    """Capacity, and the load that the demand puts on it."""
    result = _capacity(cluster)
    for what, total in (("gpu", result["gpus"]), ("core", result["cores"])):
        result[f"offered_load_{what}s"] = demand[f"{what}_s"] / span / total if span > 0 and total else None
        result[f"peak_over_{what}s"] = demand[f"peak_{what}s"] / total if total else None
    return result


def _groups(column: pa.ChunkedArray) -> dict[str, np.ndarray]:
    """Value -> mask of its rows, most frequent first."""
    return {str(value): pc.fill_null(pc.equal(column, value), False).to_numpy() for value in _counts(column) if value != "null"}


def _share(weights: np.ndarray, mask: np.ndarray) -> float | None:
    total = weights.sum()
    return float(weights[mask].sum() / total) if total > 0 else None


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    """Value -> rows with it, most frequent first (ties by value)."""
    pairs = [(v["values"].as_py(), v["counts"].as_py()) for v in pc.value_counts(column.combine_chunks())]
    pairs.sort(key=lambda pair: (-pair[1], str(pair[0])))
    return {"null" if value is None else str(value): count for value, count in pairs}


def _counts_of_sizes(gpus: np.ndarray) -> dict[str, int]:
    """Jobs by GPUs; fractions of one GPU together."""
    sizes, counts = np.unique(np.where((gpus > 0) & (gpus < 1), 0.5, gpus), return_counts=True)
    return {"<1" if size == 0.5 else f"{size:g}": int(count) for size, count in zip(sizes, counts, strict=True)}


def as_text(figures: Mapping[str, Any]) -> str:
    """The figures of ``describe`` as aligned text: single figures, then quantiles as a table, then one topic after the other."""
    plain = {key: value for key, value in figures.items() if not isinstance(value, Mapping)}
    nested = {key: value for key, value in figures.items() if isinstance(value, Mapping) and key != "origin"}
    tables = {key: value for key, value in nested.items() if QUANTILES.keys() <= value.keys()}
    topics = {key: value for key, value in nested.items() if key not in tables}
    heads = (*QUANTILES, "mean")
    width = max(len(key) for key in figures) + 2
    lines = [f"{key:<{width}}{words(value, key)}" for key, value in plain.items()]
    if tables:
        lines += ["", " " * width + "".join(f"{name:>13}" for name in heads)]
        lines += [f"{key:<{width}}" + "".join(f"{words(value[name]):>13}" for name in heads) for key, value in tables.items()]
    for key, value in topics.items():
        lines += ["", *_block(key, list(value.items()), width)]
    for key, value in figures.get("origin", {}).items():
        several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        lines += ["", *(f"{f'origin: {key}' if i == 0 else '':<{width}}{words(v)}" for i, v in enumerate(several))]
    return "\n".join(lines)


def _block(topic: str, items: Sequence[tuple[str, Any]], width: int) -> list[str]:
    """One line for each of the first items, their names and values aligned."""
    inner = max((len(name) for name, _ in items[:MOST_SHARES]), default=0) + 2
    lines = [f"{name:<{inner}}{words(value, name)}" for name, value in items[:MOST_SHARES]]
    if len(items) > MOST_SHARES:
        lines.append(f"and {len(items) - MOST_SHARES} more")
    return [f"{topic if i == 0 else '':<{width}}{line}" for i, line in enumerate(lines)]


def words(value: Any, name: str = "") -> str:
    """A figure as text; a long time, known by its ``name``, also in days."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {words(v)}" for key, v in value.items())
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        text = f"{value:,.0f}" if abs(value) >= 1e4 or value == round(value) else f"{value:.4g}"
        is_time = name.endswith("_s") and name not in ("gpu_s", "core_s") and not name.endswith("_per_s")
        return f"{text} ({value / DAY_S:,.1f} days)" if is_time and value >= DAY_S else text
    return str(value)
