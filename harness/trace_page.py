"""One self-contained HTML page on one trace: the figures of ``describe`` and the pictures of ``figures.trace_pictures``."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from matplotlib.figure import Figure

from harness import __version__
from harness.describe import QUANTILES, describe, monday_s, words
from harness.errors import BadInput
from harness.figures import trace_pictures
from harness.figures.settings import NotDrawn
from harness.figures.style import image
from harness.report import Drawn, render
from harness.report_tables import Grid

if TYPE_CHECKING:
    from harness.topology import Cluster

CAPTIONS = {
    "arrivals": "When rows arrive: mean numbers in each hour of the day and on each day of the week, over the time that the trace covers.",
    "sizes": "How large they are: empirical distribution functions on logarithmic axes, one line for each class.",
    "demand": "What they ask for over time, before any scheduling.",
    "classes": "Which classes they come from, by number and by work.",
}


def trace_page(table: pa.Table, name: str, cluster: "Cluster | None" = None) -> str:
    """The page. Raises BadInput for a trace without rows."""
    if not table.num_rows:
        raise BadInput(f"{name}: has no rows to draw")
    figures = describe(table, cluster)
    drawn, skipped = pictures(table, cluster)
    heads = (*QUANTILES, "mean")
    nested = {key: value for key, value in figures.items() if isinstance(value, Mapping) and key != "origin"}
    tables = {key: value for key, value in nested.items() if QUANTILES.keys() <= value.keys()}
    return render(
        "trace.html",
        title=f"{name}: {figures['rows']:,} {figures['kind']}",
        facts=[(key, words(value, key)) for key, value in figures.items() if not isinstance(value, Mapping)],
        figures=drawn,
        skipped=skipped,
        quantiles=Grid(["", *heads], [[key, *(words(value[q]) for q in heads)] for key, value in tables.items()], (0,)),
        topics=[(key, Grid(["", ""], [[inner, words(value, inner)] for inner, value in nested[key].items()], (0,)))
                for key in nested if key not in tables],
        origin=[(key, [words(v) for v in value] if isinstance(value, list) else [words(value)])
                for key, value in figures.get("origin", {}).items()],
        footer=f"Made by harness-traces {__version__}.",
    )


def pictures(table: pa.Table, cluster: "Cluster | None" = None) -> tuple[list[Drawn], list[tuple[str, str]]]:
    """Every picture whose data are there, and (name, reason) of every other."""
    known = monday_s(table)
    start, weekday = known if known else (None, False)
    draws: dict[str, Callable[[], Figure]] = {
        "arrivals": lambda: trace_pictures.by_hour_and_weekday(table, start, weekday),
        "sizes": lambda: trace_pictures.cdfs(table),
        "demand": lambda: trace_pictures.demand(table, cluster.gpus if cluster else None, cluster.name if cluster else ""),
        "classes": lambda: trace_pictures.class_shares(table),
    }
    drawn: list[Drawn] = []
    skipped: list[tuple[str, str]] = []
    for name, draw in draws.items():
        try:
            figure = draw()
        except NotDrawn as reason:
            skipped.append((name, str(reason)))
            continue
        headline = " ".join(part.get_text().replace("\n", " ") for part in figure.texts)
        drawn.append(Drawn(name, headline, CAPTIONS[name], image(figure, "png"), image(figure, "svg")))
    return drawn, skipped

