"""The command ``python -m harness.bench``: measures, prints the table, and writes the same as JSON.

It judges nothing: the exit status is 0 whether budgets are met or not, 1 when something could not be measured, 2 for bad input.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.bench.cells import cells
from harness.bench.commands import commands, profile
from harness.bench.imports import imports, large_request_imports, request_imports
from harness.bench.large import large, large_served
from harness.bench.machine import machine
from harness.bench.models import PEERS
from harness.bench.page import grid, page
from harness.bench.peers import LIMIT_S, TRACES, Measured, checked_place, compare, peers, rows
from harness.bench.placements import placements
from harness.bench.replays import fifo, growth, referees
from harness.bench.rows import Row, render
from harness.bench.searches import searches, wide_searches
from harness.bench.serving import beside_sched_sim, serving
from harness.bench.sizes import QUICK, Sizes
from harness.bench.suites import suites, unmeasured
from harness.errors import BadInput
from harness.tables import write_atomically

Section = Callable[[Sizes, Path], Iterator[Row]]

SECTIONS: tuple[Section, ...] = (
    referees, fifo, growth, searches, wide_searches, placements, commands, cells, imports, request_imports, peers, serving)
"""What is measured, in order: each is given the sizes and a folder for its files, and yields rows. A new budget is one more of them."""

JSON, PEERS_JSON = Path("results/bench.json"), Path("results/bench_peers.json")


def measure(sizes: Sizes, sections: Sequence[Section] = SECTIONS) -> list[Row]:
    """All rows. A section that breaks leaves a row that says so, and the others go on."""
    rows: list[Row] = []
    with TemporaryDirectory(prefix="harness-bench-") as folder:
        for section in sections:
            began = time.perf_counter()
            try:
                rows += section(sizes, Path(folder))
            except Exception as error:
                rows.append(Row(f"{section.__name__}: not measured", None, detail=f"{type(error).__name__}: {error}"))
            print(f"bench: {section.__name__}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.bench", description="Measures speed and memory against the budgets.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes: a look at the table, no verdict on the budgets")
    parser.add_argument("--long", action="store_true", help="also time the test suite and every paper experiment on a fresh checkout")
    parser.add_argument("--large", action="store_true", help="only the traces that are streamed: replay of 100 million jobs and of 20 "
                        "million requests, and import of 100 million requests (half a million to 2 million each with --quick)")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"where the same goes as JSON (default: {JSON}, of peers {PEERS_JSON})")
    among = parser.add_argument_group("other simulators")
    among.add_argument("--peers", action="store_true", help="only compare with other simulators, on the whole common workload")
    among.add_argument("--helios", type=Path, metavar="DIR", help="with --peers: a copy of the public HeliosArtifact, to run it too")
    among.add_argument("--traces", nargs="+", choices=TRACES, metavar="T", help="with --peers: of T1, T3 and T4 only these")
    among.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="with --peers: stop one after so many s (%(default)g)")
    among.add_argument("--markdown", type=Path, metavar="FILE", help="with --peers: also write the page docs/performance.md there")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else Sizes()
    try:
        if options.peers:
            return run_peers(sizes, options.json or PEERS_JSON, options.helios, options.limit, options.markdown, options.traces)
        sections = (large, large_served, large_request_imports) if options.large else (*SECTIONS, suites if options.long else unmeasured)
        return run(sizes, options.json or JSON, sections)
    except BadInput as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2


def run(sizes: Sizes, file: Path, sections: Sequence[Section]) -> int:
    """Measures ``sections``, prints the table and writes ``file``; returns the exit status. Raises BadInput."""
    about = _about(sizes)
    measured = measure(sizes, sections)
    _show(about, sizes, measured)
    return _conclude(about, measured, file)


def run_peers(sizes: Sizes, file: Path, helios: Path | None, limit_s: float, markdown: Path | None, traces: list[str] | None) -> int:
    """The same for the common workload in other simulators, and the page; with quick sizes T1 alone unless named. Raises BadInput."""
    place = checked_place(helios)
    if not limit_s > 0:
        raise BadInput(f"--limit {limit_s:g}: must be a time in s, above 0")
    about, measured = _about(sizes), list[Measured]()

    def on(name: str) -> Section:
        def section(sizes: Sizes, folder: Path) -> Iterator[Row]:
            jobs, servers = TRACES[name]
            found = compare(name, jobs if sizes == Sizes() else sizes.peer_jobs, servers, list(PEERS), place, limit_s, folder)
            measured.extend(found)
            yield from rows(found)

        section.__name__ = f"peers on {name}"
        return section

    names = traces or (list(TRACES) if sizes == Sizes() else ["T1"])
    found = measure(sizes, (*map(on, names), profile, beside_sched_sim))
    distances = measure(replace(sizes, jobs=sizes.command_jobs, repeats=3 * sizes.repeats), (fifo,))
    _show(about, sizes, [*found, *distances])
    for _, mine in groupby(measured, key=lambda one: one.trace):
        print(f"\n{grid(list(mine)).markdown()}")
    if markdown:
        said = {"--helios DIR": helios, f"--limit {limit_s:g}": limit_s != LIMIT_S, "--quick": sizes != Sizes(),
                f"--traces {' '.join(names)}": traces is not None}
        command = " ".join(["python -m harness.bench --peers", *(word for word, was in said.items() if was), f"--markdown {markdown.name}"])
        text = page({**about, "load_average_after": machine()["load_average"]}, found, distances, measured, command)
        write_atomically(markdown, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        print(f"as a page: {markdown}")
    return _conclude({**about, "measured": [one.plain() for one in measured]}, [*found, *distances], file)


def _about(sizes: Sizes) -> dict[str, Any]:
    return {"measured_at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), "sizes": vars(sizes)}


def _show(about: dict[str, Any], sizes: Sizes, measured: Sequence[Row]) -> None:
    print(_heading(about))
    if sizes != Sizes():
        print("smaller sizes than the budgets are for: a look, no verdict")
    print(render(measured))


def _conclude(about: dict[str, Any], measured: Sequence[Row], file: Path) -> int:
    document = {**about, "load_average_after": machine()["load_average"], "rows": [row.plain() for row in measured]}
    write_atomically(file, lambda temporary: temporary.write_text(json.dumps(document, indent=1), encoding="utf-8"))
    print(f"as JSON: {file}")
    return int(any(row.what.endswith(": not measured") for row in measured))


def _heading(about: dict[str, Any]) -> str:
    found = about["machine"]
    load = "unknown" if found["load_average"] is None else f"{found['load_average'][0]:.1f}"
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("harness", "python", "numba", "numpy", "pyarrow"))
    return f"{found['cpu']}, {found['cores_usable'] or found['cores']} cores, load {load}; {versions}"


if __name__ == "__main__":
    sys.exit(main())
