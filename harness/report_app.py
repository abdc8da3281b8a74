"""``harness-report DIR``: tables, figures and one self-contained HTML page from any results folder."""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import BadInput
from harness.tables import one_line


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
    try:
        given = parser.parse_args(argv)
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


if __name__ == "__main__":
    sys.exit(main())
