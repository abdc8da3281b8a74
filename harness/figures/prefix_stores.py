"""Time to first token and reused prompt tokens over the size of the prefix stores, for each rule of routing."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.figures.intervals import across_seeds
from harness.figures.labels import label, number
from harness.figures.settings import NotDrawn, short, value_text
from harness.figures.style import BLUE, OTHERS, VERMILLION, Look, canvas, curve_handle, legend_below, percent, styled

CAPTION = """Left: mean time to first token; right: share of the prompt tokens that came from a prefix store in host memory instead of being
computed. Means over seeds with bootstrap 95 % intervals (bands). The rule prefix sends a request where it and those before it have the
fewest tokens left to compute; the other rules do not look at the stores."""
SIZE, RULE = "prefix_cache_gb", "routing"
INSIDE = (SIZE, RULE)
LOOKS = {"fewest_tokens": Look(VERMILLION, "-", "s"), "prefix": Look(BLUE, "-", "o")}
TTFT, HITS = "ttft_s_mean", "prefix_hit_share"


def draw(summary: pd.DataFrame, note: str = "") -> Figure:
    """Two panels, from the summary of one setting in which the size of the stores varies."""
    columns = {short(column): column for column in summary.columns if short(column) in INSIDE}
    if SIZE not in columns or summary[columns[SIZE]].nunique() < 2 or HITS not in summary or summary["policy"].nunique() > 1:
        raise NotDrawn(f"no size of prefix stores varies under one policy; sweep pool.{SIZE}")
    cells = summary.rename(columns={column: name for name, column in columns.items()})
    cells = cells.assign(**{HITS: cells[HITS].astype(float).fillna(0.0), RULE: cells[RULE].astype(str) if RULE in cells else "one rule"})
    found = {metric: across_seeds(cells, metric, (RULE, SIZE)) for metric in (TTFT, HITS)}
    sizes, rules = sorted(cells[SIZE].unique()), sorted(cells[RULE].unique())
    spare = iter(OTHERS)
    look = {rule: LOOKS.get(rule) or next(spare) for rule in rules}
    with styled():
        figure = canvas(2.9, message(found, sizes, rules), note)
        left, right = figure.subplots(1, 2)
        for axes, metric in ((left, TTFT), (right, HITS)):
            _curves(axes, found[metric], sizes, look, label(metric).scale)
            axes.set_xlabel("prefix store (GB)")
            axes.set_xticks(range(len(sizes)), [value_text(float(size)) for size in sizes])
            axes.set_ylim(bottom=0)
        left.set_ylabel("mean time to first token (s)")
        right.set_ylabel("prompt tokens reused (%)")
        legend_below(figure, [curve_handle(f"routing: {rule}", look[rule]) for rule in rules])
    return figure


def _curves(axes: Axes, found: pd.DataFrame, sizes: list[float], look: dict[str, Look], scale: float) -> None:
    """A line with its band for each rule, at equal steps from size to size."""
    for rule, one in look.items():
        mine = found[found[RULE] == rule].sort_values(SIZE)
        at = [sizes.index(size) for size in mine[SIZE]]
        axes.plot(at, scale * mine["mean"], color=one.colour, linestyle=one.line, marker=one.mark, clip_on=False)
        axes.fill_between(at, scale * mine["ci_low"], scale * mine["ci_high"], color=one.colour, alpha=0.15, linewidth=0)


def message(found: dict[str, pd.DataFrame], sizes: list[float], rules: list[str]) -> str:
    """The headline: what the largest store brings under the rule that is best with it."""
    mean = {metric: frame.set_index([RULE, SIZE])["mean"] for metric, frame in found.items()}
    best = min(rules, key=lambda rule: mean[TTFT].get((rule, sizes[-1]), float("inf")))
    before, after = (number(float(mean[TTFT].loc[best, size])) for size in (sizes[0], sizes[-1]))
    size, hits = value_text(float(sizes[-1])), percent(float(mean[HITS].loc[best, sizes[-1]]))
    return (f"Stores of {size}\N{NO-BREAK SPACE}GB spare {hits} of the prompt tokens under routing {best}: "
            f"first tokens come after {after}\N{NO-BREAK SPACE}s instead of {before}\N{NO-BREAK SPACE}s")
