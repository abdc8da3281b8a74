"""``harness-report DIR``: tables, figures and one self-contained HTML page from any results folder; with ``--size``: how many servers it
takes."""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import BadInput
from harness.tables import one_line, write_atomically


class _Parser(argparse.ArgumentParser):
    """What it does not understand is BadInput."""

    def error(self, message: str) -> Any:
        raise BadInput(f"{one_line(message)}; see `harness-report --help`")


def main(argv: Sequence[str] | None = None) -> int:
    """0: all well; 2: bad input, said in one line on stderr (with HARNESS_DEBUG=1 also the traceback)."""
    parser = _Parser(
        "harness-report",
        allow_abbrev=False,
        description=str(__doc__).replace("``", ""),
        epilog=(
            "Writes summary.csv, tables/, figures/ and report.html into DIR. "
            "Figures whose data are absent are left out, and the page says why."
        ),
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="results folder: the out= of a run or sweep")
    parser.add_argument(
        "--baseline",
        metavar="POLICY",
        help="policy that the others are compared with (default: godel, kubernetes, priority or fifo, whichever was run)",
    )
    sizing = parser.add_argument_group("how many servers", "the smallest cluster for each policy, co-located and apart; cells go to DIR")
    sizing.add_argument("--size", nargs="+", metavar="KEY=VALUE", help="what to size: words of the command harness with colocation=")
    sizing.add_argument("--policies", default="godel,domain_first", metavar="A,B", help="default: %(default)s")
    sizing.add_argument("--slo", type=float, default=0.9, help="least share of requests that meet their objectives (default: %(default)s)")
    sizing.add_argument("--goodput", type=float, default=0.9,
                        help="least share of the offline goodput on the largest cluster (default: %(default)s)")
    sizing.add_argument("--between", type=int, nargs=2, default=(4, 128), metavar=("LOW", "HIGH"), help="servers (default: 4 128)")
    sizing.add_argument("--seeds", type=int, default=1, help="seeds of each cell (default: %(default)s)")
    try:
        given = parser.parse_args(argv)
        if given.size:
            for path in size_into(given):
                print(f"wrote {path}")
            return 0
        from harness.report import build_report

        for path in build_report(given.folder, given.baseline):
            print(f"wrote {path}")
        sys.stdout.flush()
        return 0
    except BadInput as error:
        if os.environ.get("HARNESS_DEBUG") == "1":
            traceback.print_exc()
        print(f"harness-report: {one_line(error, 2_000)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as stop:
        return int(stop.code or 0)


def size_into(given: argparse.Namespace) -> list[Path]:
    """Searches the smallest clusters and writes them to DIR/sizing.csv and sizing.md."""
    from harness.colocation.sizing import Promise, prober, size
    from harness.report_tables import sizing_grid

    low, high = given.between
    probe = prober(given.folder, given.size, given.seeds, lambda line: print(line, flush=True))
    found = size(probe, given.policies.split(","), Promise(given.slo, given.goodput), low, high)
    csv, md = given.folder / "sizing.csv", given.folder / "sizing.md"
    write_atomically(csv, lambda temporary: found.to_csv(temporary, index=False, lineterminator="\n"))
    write_atomically(md, lambda temporary: temporary.write_text(sizing_grid(found).markdown() + "\n"))
    return [csv, md]


if __name__ == "__main__":
    sys.exit(main())
