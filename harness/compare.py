"""How alike two traces are: distances of their distributions, burstiness, autocorrelation, loads."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.describe import burstiness
from harness.errors import BadInput
from harness.schema import MILLI
from harness.tables import TIME_COLUMN, kind_of

DAY_S = 86_400.0


def compare(a: pa.Table, b: pa.Table) -> dict[str, dict[str, float | None]]:
    """Quantity -> its value in ``a``, in ``b`` and, where it is a distribution, their distance; both are jobs or both are requests.

    ``distance`` is the Kolmogorov-Smirnov statistic (largest difference of the distribution functions) of a quantity of rows,
    whose values in ``a`` and ``b`` are the means, and the total variation distance of shares, whose values are the share of
    the largest. Counts are of hours, or of minutes when one trace lasts less than a day. Raises BadInput for traces of
    different kinds, services, and fewer than 2 rows.
    """
    from scipy.stats import ks_2samp

    kinds = [kind_of(table, "trace") for table in (a, b)]
    if kinds[0] != kinds[1] or kinds[0] == "services":
        raise BadInput(f"{kinds[0]} and {kinds[1]}: two traces of jobs, or two of requests, can be compared")
    for table in (a, b):
        if table.num_rows < 2:
            raise BadInput("a trace of fewer than 2 rows cannot be compared")
    times = [np.sort(table[TIME_COLUMN[kinds[0]]].to_numpy()) for table in (a, b)]
    result: dict[str, dict[str, float | None]] = {"rows": _pair(a.num_rows, b.num_rows)}
    spans = [float(t[-1] - t[0]) for t in times]
    result["per_hour"] = _pair(*(len(t) * 3_600.0 / span if span else None for t, span in zip(times, spans, strict=True)))
    rows = [_quantities(table, kinds[0]) for table in (a, b)]
    gaps = [np.diff(t) for t in times]
    for name, first, second in [("gap_s", *gaps), *((name, rows[0][name], rows[1][name]) for name in rows[0])]:
        result[name] = _pair(float(first.mean()), float(second.mean())) | {"distance": float(ks_2samp(first, second).statistic)}
    bin_s = min(burstiness(t)["count_bin_s"] or 60.0 for t in times)
    bursts = [burstiness(t, bin_s) for t in times]
    for name in ("gap_cv", "count_cv", "dispersion", "autocorrelation_1", "autocorrelation_24"):
        result[name] = _pair(bursts[0][name], bursts[1][name])
    if kinds[0] == "requests":
        from scipy.stats import spearmanr

        result["rank_correlation"] = _pair(*(float(spearmanr(r["prompt_tokens"], r["output_tokens"]).statistic) for r in rows))
    for name in ("kind", "priority", "tenant", "service"):
        if name in a.column_names and name in b.column_names:
            shares = [_shares(table[name]) for table in (a, b)]
            if max(map(len, shares)) > 1:
                apart = sum(abs(shares[0].get(v, 0.0) - shares[1].get(v, 0.0)) for v in {*shares[0], *shares[1]}) / 2
                result[f"{name}_shares"] = _pair(*(max(s.values()) for s in shares)) | {"distance": apart}
    return result


def _pair(a: float | None, b: float | None) -> dict[str, float | None]:
    return {"a": a, "b": b}


def _quantities(table: pa.Table, kind: str) -> dict[str, np.ndarray]:
    if kind == "requests":
        return {name: table[name].to_numpy().astype(np.float64) for name in ("prompt_tokens", "output_tokens")}
    gpus = table["gpus"].to_numpy().astype(np.float64) * table["gpu_milli"].to_numpy() / MILLI * table["instances"].to_numpy()
    duration = table["duration"].to_numpy()
    return {"gpus_per_job": gpus, "duration_s": duration, "gpu_s_per_job": gpus * duration,
            "cpus_per_job": table["cpus"].to_numpy() * table["instances"].to_numpy()}


def _shares(column: pa.ChunkedArray) -> dict[Any, float]:
    return {v["values"].as_py() or "": v["counts"].as_py() / len(column) for v in pc.value_counts(column.combine_chunks())}


def over_draws(found: Sequence[Mapping[str, Mapping[str, float | None]]]) -> dict[str, dict[str, float | None]]:
    """Comparisons of one trace with several draws as one: the median of ``b`` with ``low`` and ``high``, and of the distance."""
    result: dict[str, dict[str, float | None]] = {}
    for name, first in found[0].items():
        drawn = [value for one in found if (value := one[name]["b"]) is not None]
        apart = [value for one in found if (value := one[name].get("distance")) is not None]
        result[name] = {"a": first["a"], "b": float(np.median(drawn)) if drawn else None, "low": min(drawn, default=None),
                        "high": max(drawn, default=None)} | ({"distance": float(np.median(apart))} if apart else {})
    return result


def comparison_text(found: Mapping[str, Mapping[str, float | None]], a: str, b: str) -> str:
    """The comparison as an aligned table under the names of the two traces."""
    several = any("low" in values for values in found.values())
    lines = [["", a, b, *(["low", "high"] if several else []), f"{b} / {a}" if several else "b / a", "distance"]]
    for name, values in found.items():
        first, second, apart = values["a"], values["b"], values.get("distance")
        ratio = f"{second / first:.3g}" if first and second is not None and not name.startswith("autocorrelation") else ""
        ends = [_number(values["low"]), _number(values["high"])] if several else []
        lines.append([name, _number(first), _number(second), *ends, ratio, "" if apart is None else f"{apart:.3f}"])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True)))
                     .rstrip() for line in lines)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1e4 or value == round(value) else f"{value:.4g}"
