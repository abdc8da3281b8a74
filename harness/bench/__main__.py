"""The command ``python -m harness.bench``: measures, prints the table, and writes the same as JSON.

It judges nothing: the exit status is 0 whether budgets are met or not, 1 when something could not be measured, 2 for bad input.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.bench.commands import commands
from harness.bench.imports import imports, large_request_imports, request_imports
from harness.bench.large import large
from harness.bench.machine import machine
from harness.bench.peers import peers
from harness.bench.replays import fifo, growth, referees
from harness.bench.rows import Row, render
from harness.bench.searches import searches, wide_searches
from harness.bench.sizes import QUICK, Sizes
from harness.bench.suites import suites, unmeasured
from harness.errors import BadInput
from harness.tables import write_atomically

Section = Callable[[Sizes, Path], Iterator[Row]]

SECTIONS: tuple[Section, ...] = (referees, fifo, growth, searches, wide_searches, commands, imports, request_imports, peers)
"""What is measured, in order: each is given the sizes and a folder for its files, and yields rows. A new budget is one more of them."""

JSON = Path("results/bench.json")


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
    parser.add_argument("--large", action="store_true", help="only the traces that are streamed: replay of 100 million jobs and import of "
                        "100 million requests (2 million each with --quick)")
    parser.add_argument("--json", type=Path, default=JSON, metavar="FILE", help=f"where the same goes as JSON (default: {JSON})")
    options = parser.parse_args(arguments)
    sections = (large, large_request_imports) if options.large else (*SECTIONS, suites if options.long else unmeasured)
    return run(QUICK if options.quick else Sizes(), options.json, sections)


def run(sizes: Sizes, file: Path, sections: Sequence[Section]) -> int:
    """Measures ``sections`` with ``sizes``, prints the table and writes ``file``; returns the exit status."""
    about = {"measured_at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), "sizes": vars(sizes)}
    rows = measure(sizes, sections)
    print(_heading(about))
    if sizes != Sizes():
        print("smaller sizes than the budgets are for: a look, no verdict")
    print(render(rows))
    document = {**about, "load_average_after": machine()["load_average"], "rows": [row.plain() for row in rows]}
    try:
        write_atomically(file, lambda temporary: temporary.write_text(json.dumps(document, indent=1), encoding="utf-8"))
    except BadInput as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(f"as JSON: {file}")
    return int(any(row.what.endswith(": not measured") for row in rows))


def _heading(about: dict[str, Any]) -> str:
    found = about["machine"]
    load = "unknown" if found["load_average"] is None else f"{found['load_average'][0]:.1f}"
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("harness", "python", "numba", "numpy", "pyarrow"))
    return f"{found['cpu']}, {found['cores_usable'] or found['cores']} cores, load {load}; {versions}"


if __name__ == "__main__":
    sys.exit(main())
