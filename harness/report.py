"""From a results folder to what people look at: tables, figures, and one page that holds them all."""

import inspect
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pyarrow.csv
import pyarrow.parquet as pq
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from harness import __version__
from harness.errors import BadInput
from harness.figures import (
    card_mix,
    colocation_demand,
    colocation_pareto,
    colocation_timeline,
    goodput_load,
    hit_rate,
    latency_cdf,
    league_pareto,
    league_table,
    league_winners,
    packing_curve,
    pays,
    policy_load_heatmap,
    power_curve,
    preemption_efficiency,
    prefix_stores,
    quote_calibration,
    search_cost,
    serving_cdf,
    serving_policies,
    spot_costs,
    utilization_day,
)
from harness.figures.comparisons import against, by_policy, default_baseline, with_batch_goodput
from harness.figures.intervals import MIN_SEEDS
from harness.figures.results import Results, open_results
from harness.figures.settings import NotDrawn, key_columns, short, split, value_text
from harness.figures.standings import is_league, standings, winners
from harness.figures.style import image, in_order
from harness.report_tables import Grid, league_grid, paired_grid, paired_notes, policy_grids, winners_grid
from harness.sweep import aggregate
from harness.tables import one_line, write_atomically

COLOCATION_FIGURES: tuple[ModuleType, ...] = (colocation_pareto, colocation_timeline, colocation_demand)
CLUSTER_FIGURES: tuple[ModuleType, ...] = (
    hit_rate,
    card_mix,
    pays,
    preemption_efficiency,
    search_cost,
    latency_cdf,
    utilization_day,
    policy_load_heatmap,
    packing_curve,
    power_curve,
    quote_calibration,
    spot_costs,
)
SERVING_FIGURES: tuple[ModuleType, ...] = (serving_policies, serving_cdf, goodput_load, prefix_stores)
FIGURES = (*COLOCATION_FIGURES, *CLUSTER_FIGURES, *SERVING_FIGURES)
LEAGUE: tuple[ModuleType, ...] = (league_table, league_pareto, league_winners)
"""Figures of a league, which has too many settings for the others."""
TABLES = ("jobs", "preemptions", "utilization", "arrivals", "requests", "demand", "timeline")
MOST_SETTINGS = 4
"""Settings for which one kind of figure is drawn; the rest is named as not drawn."""
MOST_GRIDS, MOST_ROWS, LARGE_SVG = 12, 200, 400_000
"""Tables, rows of the paired table and bytes of an SVG image above which the page shows less, says so, or takes the PNG image."""


@dataclass(frozen=True)
class Drawn:
    """One figure of the page."""

    name: str
    alt: str
    caption: str
    png: bytes
    svg: bytes

    @property
    def uri(self) -> str:
        """The image itself: SVG, or PNG where that would be large."""
        kind, data = ("svg+xml", self.svg) if len(self.svg) <= LARGE_SVG else ("png", self.png)
        return f"data:image/{kind};base64,{b64encode(data).decode()}"


def build_report(folder: str | Path, baseline: str | None = None) -> list[Path]:
    """Writes summary.csv, tables/, figures/ and report.html into the results folder, and returns the files written.

    Tables are ``by_policy`` and ``paired``, those of a league ``league`` and ``winners`` (csv in stored units, md for people); figures are
    those whose data are there, as PNG and SVG.
    ``baseline`` is the policy that the others are compared with, by default one of the usual baselines. Raises BadInput when the
    folder holds no results, the baseline was not run or a file cannot be written.
    """
    folder = Path(folder)
    if _is_stale(folder):
        aggregate(folder)
    results = open_results(folder)
    if baseline is not None and baseline not in set(results.summary["policy"]):
        known = ", ".join(in_order(list(results.summary["policy"]))) or "none that ended well"
        raise BadInput(f"baseline '{one_line(baseline, 40)}': was not run, must be one of {known}")
    results = with_batch_goodput(results)
    baseline = baseline or default_baseline(results.summary)
    written = [_summary_csv(folder)]

    if baseline and is_league(results.summary):
        grids, paired, reason, modules = [], pd.DataFrame(), "", LEAGUE
        table, won = standings(results.summary, baseline), winners(results.summary)
        league = [("League table", league_grid(table, won, baseline)), ("Which policy wins where", winners_grid(won))]
        written += _tables(results, "league", "League table", table, league[:1], [])
        written += _tables(results, "winners", "Which policy wins where", won, league[1:], [])
    else:
        policies, league, modules = by_policy(results.summary), [], None
        grids = policy_grids(results.summary, policies)
        written += _tables(results, "by_policy", "Results by policy", policies, grids, [])
        paired, reason = against(results, baseline) if baseline else (pd.DataFrame(), "")
        if baseline and len(paired):
            parts = [("", paired_grid(results.summary, paired))]
            written += _tables(results, "paired", f"Against {baseline}, paired by seed", paired, parts, paired_notes(paired, reason))

    drawn, skipped = draw_all(results, modules)
    _remove_old(results.folder / "figures")
    for one in drawn:
        written += [_write(results.folder / "figures" / f"{one.name}.{kind}", data) for kind, data in (("png", one.png), ("svg", one.svg))]
    page = _page(results, baseline, grids, paired, reason, drawn, skipped, league)
    return [*written, _write(results.folder / "report.html", page)]


def draw_all(results: Results, modules: Sequence[ModuleType] | None = None) -> tuple[list[Drawn], list[tuple[str, str]]]:
    """Every figure whose data are there, and (name, reason) of every other; by default those of jobs, of requests, or of both."""
    if modules is None:
        jobs, requests = results.holds("jobs"), results.holds("requests")
        both = jobs == requests or results.holds("replica_missing_s")
        modules = FIGURES if both else CLUSTER_FIGURES if jobs else SERVING_FIGURES
    drawn: list[Drawn] = []
    skipped: list[tuple[str, str]] = []
    for module in modules:
        name = module.__name__.rpartition(".")[2]
        if results.summary.empty:
            skipped.append((name, "no cell ended well"))
            continue
        settings = [("", results.summary)] if module.INSIDE is None else list(split(results.summary, module.INSIDE))
        reasons: dict[str, str] = {}
        for text, cells in settings[:MOST_SETTINGS]:
            try:
                figure = module.draw(**_arguments(results, module, cells), note=text)
            except NotDrawn as reason:
                reasons[text] = str(reason)
                continue
            full = name if len(settings) == 1 else f"{name}-{_slug(text)}"
            headline = " ".join(part.get_text().replace("\n", " ") for part in figure.texts)
            drawn.append(Drawn(full, headline, str(module.CAPTION), image(figure, "png"), image(figure, "svg")))
        if len(set(reasons.values())) == 1 and len(reasons) == min(len(settings), MOST_SETTINGS):
            skipped.append((name, reasons.popitem()[1]))
            continue
        skipped += [(f"{name} ({text})", reason) for text, reason in reasons.items()]
        if len(settings) > MOST_SETTINGS:
            skipped.append((name, f"{len(settings) - MOST_SETTINGS} of {len(settings)} settings; a smaller sweep draws them"))
    return drawn, skipped


def _arguments(results: Results, module: ModuleType, cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables that the parameters of a figure are named after."""
    wanted = inspect.signature(module.draw).parameters
    tables = {name: results.table(name, module.COLUMNS, cells) for name in TABLES if name in wanted}
    return tables | ({"summary": cells} if "summary" in wanted else {})


def _page(
    results: Results,
    baseline: str | None,
    grids: list[tuple[str, Grid]],
    paired: pd.DataFrame,
    reason: str,
    drawn: list[Drawn],
    skipped: list[tuple[str, str]],
    league: list[tuple[str, Grid]],
) -> str:
    failed = _failed(results)
    more = f"The first {MOST_GRIDS} of {len(grids)} settings are shown; all are in tables/by_policy.csv." if len(grids) > MOST_GRIDS else ""
    sections = [
        ("run", "What was run"),
        *([("failed", "Failed cells")] if failed else []),
        ("figures", "Figures"),
        *([("league", "League")] if league else [("policies", "By policy")]),
        *([("paired", "Paired")] if len(paired) else []),
    ]
    versions = results.manifest().get("versions")
    made_by = ", ".join(f"{k} {v}" for k, v in versions.items()) if isinstance(versions, dict) else ""
    return render(
        "report.html",
        title=f"Results of {results.folder.resolve().name}",
        sections=sections,
        facts=list(_facts(results)),
        failed=failed,
        figures=drawn,
        skipped=skipped,
        league=league,
        policies=grids[:MOST_GRIDS],
        policies_note=more,
        baseline=baseline,
        min_seeds=MIN_SEEDS,
        paired=paired_grid(results.summary, paired, MOST_ROWS) if len(paired) else None,
        paired_notes=paired_notes(paired, reason, MOST_ROWS) if len(paired) else [],
        footer=f"Made by harness-report {__version__}." + (f" Cells made with {made_by}." if made_by else ""),
    )


def _facts(results: Results) -> Iterator[tuple[str, str]]:
    """What the cells of the sweep have in common, and in what they differ."""
    summary = results.summary
    yield "cells", f"{len(summary):,} ended well" + (f", {len(results.failed):,} failed" if len(results.failed) else "")
    if summary.empty:
        return
    yield "policies", ", ".join(in_order(list(summary["policy"])))
    seeds = sorted(summary["seed"].unique())
    yield "seeds", f"{len(seeds)}: {value_text(seeds[0])} to {value_text(seeds[-1])}" if len(seeds) > 1 else value_text(seeds[0])
    for column in key_columns(summary):
        values = list(dict.fromkeys(value_text(v) for v in summary[column]))
        yield short(column), ", ".join(values[:12]) + (f" and {len(values) - 12} more" if len(values) > 12 else "")
    if "decisions" in summary and summary["decisions"].notna().any():
        yield "preemption decisions", f"{int(summary['decisions'].sum()):,}"
    if "unstable" in summary and (summary["unstable"] == 1).any():
        yield (
            "offered load above 1",
            f"{int((summary['unstable'] == 1).sum()):,} cells: their queues grow as long as the trace lasts",
        )


def _failed(results: Results) -> Grid | None:
    """One line for each failed cell."""
    if results.failed.empty:
        return None
    keys = [c for c in (*key_columns(results.failed), "policy", "seed") if c in results.failed]
    rows = [
        [*(value_text(row[k]) for k in keys), one_line(row.get("error") or "no reason given", 300)]
        for _, row in results.failed.head(MOST_ROWS).iterrows()
    ]
    return Grid([*map(short, keys), "error"], rows, tuple(range(len(keys) + 1)))


def _tables(results: Results, name: str, title: str, frame: pd.DataFrame, parts: list[tuple[str, Grid]], notes: list[str]) -> list[Path]:
    folder = results.folder / "tables"
    return [
        _write(folder / f"{name}.csv", _csv(frame)),
        _write(folder / f"{name}.md", render("table.md", title=title, parts=parts, notes=notes)),
    ]


def render(template: str, **values: Any) -> str:
    """A template of harness/templates filled in; HTML is escaped, Markdown is not."""
    environment = Environment(
        loader=PackageLoader("harness", "templates"),
        autoescape=select_autoescape(["html"], default=False),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**values)


def _csv(frame: pd.DataFrame) -> str:
    target = StringIO()
    frame.to_csv(target, index=False, lineterminator="\n")
    return target.getvalue()


def _is_stale(folder: Path) -> bool:
    """Whether there are cells that the summary does not know yet, as after a sweep that was interrupted, or that have changed."""
    cells = [path for name in ("manifest", "summary") for path in folder.glob(f"*/{name}.json") if not path.parent.name.startswith(".")]
    summary = folder / "summary.parquet"
    return bool(cells) and (not summary.is_file() or summary.stat().st_mtime < max(path.stat().st_mtime for path in cells))


def _summary_csv(folder: Path) -> Path:
    """The summary as the sweep itself writes it."""
    table = pq.read_table(folder / "summary.parquet")
    write_atomically(folder / "summary.csv", lambda temporary: pyarrow.csv.write_csv(table, temporary))
    return folder / "summary.csv"


def _write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    write_atomically(path, lambda temporary: temporary.write_bytes(data))
    return path


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-")[:100]


def _remove_old(folder: Path) -> None:
    """Removes figures of an earlier report, so that none outlives its data."""
    names = [module.__name__.rpartition(".")[2] for module in (*FIGURES, *LEAGUE)]
    for path in (*folder.glob("*.png"), *folder.glob("*.svg")):
        if any(path.stem == name or path.stem.startswith(f"{name}-") for name in names):
            path.unlink()
