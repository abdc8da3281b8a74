"""Pictures of one trace: arrivals by hour and weekday, CDFs of sizes, demand over time against a cluster, and shares by class.

All take a trace as ``tables.read_trace`` gives it, of any kind, and return a figure; NotDrawn says why there is none.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.figures.settings import NotDrawn
from harness.figures.style import (
    BLUE,
    GREY,
    INK,
    KINDS,
    OTHERS,
    SKY,
    VERMILLION,
    canvas,
    legend_below,
    log_axis,
    percent,
    rows_axis,
    styled,
)
from harness.schema import MILLI
from harness.tables import TIME_COLUMN, kind_of

HOUR_S, DAY_S = 3_600.0, 86_400.0
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MOST_CLASSES, MOST_POINTS, MOST_STEPS = 7, 2_000, 1_500
ROWS = {"jobs": "jobs", "services": "changes", "requests": "requests"}
LINES = ("-", "--", ":", "-.")


def by_hour_and_weekday(table: pa.Table, start_s: float | None, weekday: bool = True) -> Figure:
    """Mean arrivals an hour, over the hours of the day and over the days of the week.

    ``start_s``: seconds from a Monday's midnight to time 0; None when no calendar is known: then hours and days count from time 0.
    ``weekday``: False when the hour of time 0 is known, but not its day.
    """
    kind = kind_of(table, "trace")
    times = np.sort(table[TIME_COLUMN[kind]].to_numpy())
    span = times[-1] - times[0]
    if span < 2 * HOUR_S:
        return _by_minute(times, ROWS[kind])
    clock = times + (start_s or 0.0)
    covered = _exposure(clock[0], clock[-1])
    rates = np.zeros((7, 24))
    np.add.at(rates, (np.floor_divide(clock, DAY_S).astype(np.int64) % 7, np.floor_divide(clock, HOUR_S).astype(np.int64) % 24), 1)
    hours, days = covered.sum(0), covered.sum(1)
    hourly = np.divide(rates.sum(0), hours, out=np.full(24, np.nan), where=hours > 0)
    daily = np.divide(rates.sum(1), days, out=np.full(7, np.nan), where=days > 0)
    peak, trough = int(np.nanargmax(hourly)), int(np.nanargmin(hourly))
    ratio = hourly[peak] / hourly[trough] if hourly[trough] > 0 else np.inf
    what = f"{peak:02d}:00" if start_s is not None else f"hour {peak} after time 0"
    against = f", with {ratio:.1f} times those of the quietest hour" if ratio < 100 else "; the quietest hour has almost none"
    message = f"Arrivals peak at {what}{against}"
    note = "" if start_s is not None else "No calendar is known: hours and days count from time 0, not from midnight. "
    note += f"Means over {span / DAY_S:.1f} days{'; what has no bar is not covered' if span < 7 * DAY_S else ''}."
    with styled():
        figure = canvas(2.5, message, note)
        left, right = figure.subplots(1, 2, width_ratios=(2, 1))
        left.bar(range(24), hourly, color=[BLUE if h == peak else SKY for h in range(24)], width=0.8)
        left.set_xticks(range(0, 24, 3), [f"{h:02d}" for h in range(0, 24, 3)])
        left.set_xlabel("hour of the day" if start_s is not None else "hour after time 0, modulo 24")
        left.set_ylabel(f"{ROWS[kind]} per hour")
        right.bar(range(7), daily, color=SKY, width=0.8)
        known = start_s is not None and weekday
        right.set_xticks(range(7), WEEKDAYS if known else [str(d) for d in range(7)])
        right.set_xlabel("day of the week" if known else "day after time 0, modulo 7")
        for axes in (left, right):
            axes.grid(axis="x", visible=False)
            axes.set_ylim(bottom=0)
        left.set_xlim(-0.6, 23.6)
        right.set_xlim(-0.6, 6.6)
    return figure


def _by_minute(times: np.ndarray, rows: str) -> Figure:
    """Arrivals a minute of a trace too short for hours of the day."""
    minutes = np.floor_divide(times - times[0], 60.0).astype(np.int64)
    counts = np.bincount(minutes)
    middle = counts.mean()
    with styled():
        figure = canvas(2.4, f"The busiest minute has {counts.max():,} {rows}, {counts.max() / middle:.1f} times the mean of {middle:,.0f}",
                        f"The trace lasts {(times[-1] - times[0]) / 60:.0f} minutes: too short for hours of the day and days of the week.")
        axes = figure.subplots()
        axes.stairs(counts, np.arange(len(counts) + 1), fill=True, color=SKY)
        axes.axhline(middle, color=INK, linewidth=1, linestyle="--")
        axes.set_xlim(0, len(counts))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("minutes from the first arrival")
        axes.set_ylabel(f"{rows} per minute")
        legend_below(figure, [Line2D([], [], color=INK, linewidth=1, linestyle="--", label="mean")])
    return figure


def _exposure(first: float, last: float) -> np.ndarray:
    """Hours that [first, last] spends in each hour of each day of the week: f64 (7, 24)."""
    edges = np.arange(np.floor(first / HOUR_S), np.floor(last / HOUR_S) + 2) * HOUR_S
    inside = np.clip(edges[1:], first, last) - np.clip(edges[:-1], first, last)
    result = np.zeros((7, 24))
    np.add.at(result, (np.floor_divide(edges[:-1], DAY_S).astype(np.int64) % 7, np.floor_divide(edges[:-1], HOUR_S).astype(np.int64) % 24),
              inside / HOUR_S)
    return result


def cdfs(table: pa.Table) -> Figure:
    """CDFs: GPUs and durations of jobs by kind, prompt and output tokens of requests by service, replicas and GPUs of services."""
    kind = kind_of(table, "trace")
    groups = _groups(table, {"jobs": "kind", "services": "kind", "requests": "service"}[kind])
    if kind == "requests":
        panels = [("prompt_tokens", "prompt tokens"), ("output_tokens", "output tokens")]
        values = {name: table[name].to_numpy().astype(np.float64) for name, _ in panels}
    elif kind == "jobs":
        panels = [("gpus", "GPUs per job"), ("duration", "duration (s)")]
        values = {"gpus": _gpus(table) * table["instances"].to_numpy(), "duration": table["duration"].to_numpy()}
    else:
        panels = [("replicas", "replicas wanted"), ("gpus", "GPUs per replica")]
        values = {"replicas": table["replicas"].to_numpy().astype(np.float64), "gpus": _gpus(table)}
    first, second = (values[name] for name, _ in panels)
    size = _short(float(np.median(first)))
    message = f"Half of the {ROWS[kind]} have at most {size} {_bare(panels[0][1]).removesuffix('s' if size == '1' else '')} and " + (
        f"run at most {_time(np.median(second))}" if kind == "jobs" else f"{_short(np.median(second))} {_bare(panels[1][1])}")
    if kind == "jobs":
        message += f"; the longest hundredth runs {_time(np.quantile(second, 0.99))} or more"
    with styled():
        figure = canvas(2.6, message)
        handles = []
        for axes, (name, label) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
            shown = values[name]
            low = max(shown[shown > 0].min(), 1e-3) if (shown > 0).any() else 1.0
            for i, (group, mask) in enumerate(groups.items()):
                x, y = _cdf(np.maximum(shown[mask], low))
                axes.step(x, y, where="post", color=_colour(group, i), linestyle=LINES[i % len(LINES)])
            log_axis(axes, low * 0.9, max(shown.max(), low * 2) * 1.1)
            axes.set_ylim(0, 1.005)
            axes.set_xlabel(f"{label}{' (0 shown at the left edge)' if (shown <= 0).any() else ''}")
        figure.axes[0].set_ylabel(f"share of {ROWS[kind]}")
        handles = [Line2D([], [], color=_colour(g, i), linestyle=LINES[i % len(LINES)], label=f"{g} ({mask.sum():,})")
                   for i, (g, mask) in enumerate(groups.items())]
        legend_below(figure, handles)
    return figure


def demand(table: pa.Table, capacity: int | None, cluster: str = "") -> Figure:
    """Demand over time: GPUs wanted if everything started at once, by kind, against ``capacity`` GPUs; tokens/s of requests."""
    kind = kind_of(table, "trace")
    if kind == "requests":
        return _tokens_over_time(table, capacity, cluster)
    kinds = [k for k in KINDS if pc.any(pc.equal(table["kind"], k)).as_py()]
    times, steps = _steps(table, kind)
    mask = {k: pc.equal(table["kind"], k).to_numpy() for k in kinds}
    low, high = float(table[TIME_COLUMN[kind]].to_numpy().min()), float(times.max())
    arrivals_end = float(table[TIME_COLUMN[kind]].to_numpy().max())
    high = min(high, arrivals_end) if kind == "jobs" and arrivals_end > low else high
    if not high > low:
        raise NotDrawn("everything arrives at one instant")
    edges = np.linspace(low, high, min(MOST_STEPS, max(int((high - low) / 60), 50)) + 1)
    levels = []
    for k in kinds:
        here = np.concatenate([mask[k], mask[k]]) if kind == "jobs" else mask[k]
        levels.append(_time_mean(times[here], steps[here], edges))
    total = np.sum(levels, axis=0)
    peak = total.max()
    unit, scale = (DAY_S, "days") if high - low > 2 * DAY_S else (HOUR_S, "hours")
    in_view = bool(capacity and capacity <= 3 * peak)
    if capacity and not in_view:
        message = f"If every job started at once, at most {peak:,.0f} of the {capacity:,} GPUs of {cluster} would be held: it never fills"
    elif capacity:
        over = float((total > capacity).mean())
        message = (f"Jobs want up to {peak / capacity:.2g} times the {capacity:,} GPUs of {cluster}, and more than there are "
                   f"{percent(over)} of the time")
    else:
        message = f"If every job started at once, at most {peak:,.0f} GPUs would be held"
    with styled():
        figure = canvas(2.6, message, f"Means over {(edges[1] - edges[0]) / 60:,.0f} minutes while jobs arrive; no job waits here.")
        axes = figure.subplots()
        at = np.repeat(edges, 2)[1:-1] / unit
        axes.stackplot(at, [np.repeat(level, 2) for level in levels], colors=[KINDS[k] for k in kinds], linewidth=0)
        axes.set_xlim(low / unit, high / unit)
        axes.set_ylim(0, 1.05 * max(peak, capacity or 0.0) if in_view else 1.05 * peak)
        axes.set_xlabel(f"time ({scale})")
        axes.set_ylabel("GPUs wanted")
        handles: list[Line2D | Patch] = [Patch(color=KINDS[k], label=k) for k in kinds]
        if capacity and in_view:
            axes.axhline(capacity, color=INK, linewidth=1.2, linestyle="--")
            handles.append(Line2D([], [], color=INK, linewidth=1.2, linestyle="--", label=f"{cluster}: {capacity:,} GPUs"))
        legend_below(figure, handles)
    return figure


def _tokens_over_time(table: pa.Table, capacity: int | None, cluster: str) -> Figure:
    times = table["arrival_time"].to_numpy()
    low, high = float(times.min()), float(times.max())
    if not high > low:
        raise NotDrawn("everything arrives at one instant")
    bins = int(np.clip((high - low) / 60, 20, 400))
    edges = np.linspace(low, high, bins + 1)
    per = (edges[1] - edges[0]) * (capacity or 1)
    rates = {name: np.histogram(times, edges, weights=table[name].to_numpy().astype(np.float64))[0] / per
             for name in ("prompt_tokens", "output_tokens")}
    unit, scale = (DAY_S, "days") if high - low > 2 * DAY_S else (HOUR_S, "hours") if high - low > 2 * HOUR_S else (60.0, "minutes")
    whom = f" for each of the {capacity:,} GPUs of {cluster}" if capacity else ""
    means = {name: rate.mean() for name, rate in rates.items()}
    message = f"Requests bring {_short(means['prompt_tokens'])} prompt and {_short(means['output_tokens'])} output tokens a second{whom}"
    with styled():
        figure = canvas(2.6, message, f"Tokens of the requests that arrive in each {edges[1] - edges[0]:,.0f} s.")
        axes = figure.subplots()
        for name, colour, line in (("prompt_tokens", BLUE, "-"), ("output_tokens", VERMILLION, "--")):
            axes.stairs(rates[name], edges / unit, color=colour, linestyle=line)
        axes.set_xlim(low / unit, high / unit)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"time ({scale})")
        axes.set_ylabel("tokens per second" + (" per GPU" if capacity else ""))
        legend_below(figure, [Line2D([], [], color=BLUE, label="prompt"), Line2D([], [], color=VERMILLION, linestyle="--", label="output")])
    return figure


def class_shares(table: pa.Table) -> Figure:
    """Share of rows and of the work by class: kind, priority, tenant and service, as far as they tell rows apart."""
    kind = kind_of(table, "trace")
    work, work_name = _work(table, kind)
    columns = [c for c in ("kind", "priority", "tenant", "service") if c in table.column_names and len(pc.unique(table[c])) > 1]
    bars: list[tuple[str, float, float]] = []
    for column in columns:
        for group, mask in _groups(table, column).items():
            bars.append((f"{column} {group}" if group else f"no {column}", float(mask.mean()), float(work[mask].sum() / work.sum())))
    if not bars:
        raise NotDrawn("all rows are of one class")
    if not work.sum() > 0:
        raise NotDrawn("nothing asks for GPUs")
    name, rows, of_work = max(bars, key=lambda bar: abs(bar[2] - bar[1]))
    message = f"{name[0].upper() + name[1:]}: {percent(rows, 0)} of the {ROWS[kind]}, {percent(of_work, 0)} of the {work_name}"
    with styled():
        figure = canvas(0.55 + 0.27 * len(bars), message)
        axes = figure.subplots()
        rows_axis(axes, [bar[0] for bar in bars])
        y = np.arange(len(bars))
        axes.barh(y - 0.19, [bar[1] for bar in bars], height=0.36, color=SKY)
        axes.barh(y + 0.19, [bar[2] for bar in bars], height=0.36, color=BLUE)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axes.set_xlabel("share")
        legend_below(figure, [Patch(color=SKY, label=f"of the {ROWS[kind]}"), Patch(color=BLUE, label=f"of the {work_name}")])
    return figure


def _work(table: pa.Table, kind: str) -> tuple[np.ndarray, str]:
    if kind == "requests":
        return table["prompt_tokens"].to_numpy().astype(np.float64) + table["output_tokens"].to_numpy(), "tokens"
    if kind == "jobs":
        stays = pc.fill_null(pc.subtract(table["end_time"], table["submit_time"]), np.inf).to_numpy()
        return _gpus(table) * table["instances"].to_numpy() * np.minimum(table["duration"].to_numpy(), stays), "GPU time"
    return _gpus(table) * table["replicas"].to_numpy(), "GPUs wanted"


def _gpus(table: pa.Table) -> np.ndarray:
    """GPUs of each instance, f64 (rows,)."""
    return table["gpus"].to_numpy().astype(np.float64) * table["gpu_milli"].to_numpy() / MILLI


def _groups(table: pa.Table, column: str) -> dict[str, np.ndarray]:
    """Value of ``column`` -> mask of its rows, most frequent first; beyond MOST_CLASSES the rest together as ``others``."""
    words = pc.fill_null(table[column].cast(pa.string()), "").combine_chunks().dictionary_encode()
    codes, names = words.indices.to_numpy(zero_copy_only=False), words.dictionary.to_pylist()
    order = np.argsort(-np.bincount(codes, minlength=len(names)), kind="stable")
    kept = order if len(order) <= MOST_CLASSES else order[: MOST_CLASSES - 1]
    result = {names[i] or "": codes == i for i in kept}
    if len(kept) < len(order):
        result[f"{len(order) - len(kept)} others"] = ~np.isin(codes, kept)
    return result


def _steps(table: pa.Table, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Instants and steps of the GPUs wanted: for jobs all starts, then all ends; for services one step a row."""
    if kind == "jobs":
        start = table["submit_time"].to_numpy()
        stays = pc.fill_null(pc.subtract(table["end_time"], table["submit_time"]), np.inf).to_numpy()
        gpus = _gpus(table) * table["instances"].to_numpy()
        return np.concatenate([start, start + np.minimum(table["duration"].to_numpy(), stays)]), np.concatenate([gpus, -gpus])
    time, level = table["time"].to_numpy(), _gpus(table) * table["replicas"].to_numpy()
    service = table["service"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.lexsort((np.arange(len(time)), time, service))
    step = np.diff(level[order], prepend=0.0)
    first = np.concatenate([[True], np.diff(service[order]) != 0])
    step[first] = level[order][first]
    result = np.empty(len(time))
    result[order] = step
    return time, result


def _time_mean(times: np.ndarray, steps: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Mean over each interval between ``edges`` of the running sum of ``steps``."""
    order = np.argsort(times, kind="stable")
    times, held = times[order], np.concatenate([[0.0], np.cumsum(steps[order])])
    area = np.concatenate([[0.0], np.cumsum(held[1:-1] * np.diff(times))]) if len(times) else np.zeros(0)
    at = np.searchsorted(times, edges, side="right")
    before = np.maximum(at - 1, 0)
    integral = np.where(at > 0, area[before] + held[at] * (edges - times[before]), 0.0)
    return np.maximum(np.diff(integral) / np.diff(edges), 0.0)


def _cdf(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points of the empirical CDF, thinned to what a picture can show."""
    ordered = np.sort(values)
    share = np.arange(1, len(ordered) + 1) / len(ordered)
    if len(ordered) > MOST_POINTS:
        kept = np.unique(np.linspace(0, len(ordered) - 1, MOST_POINTS).astype(np.int64))
        ordered, share = ordered[kept], share[kept]
    return np.append(ordered, ordered[-1]), np.append(share, 1.0)


def _colour(group: str, index: int) -> str:
    return KINDS.get(group) or (GREY if group.endswith(" others") else OTHERS[index % 5].colour)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2g}"


def _bare(label: str) -> str:
    return label.split(" (")[0].removesuffix(" per job")


def _time(seconds: float) -> str:
    for unit, name in ((DAY_S, "days"), (HOUR_S, "hours"), (60.0, "minutes")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:,.0f} s"
