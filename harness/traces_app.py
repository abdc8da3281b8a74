"""``harness-traces``: import public traces, validate, describe, cut and generate traces in the contract's Parquet format."""

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import __version__
from harness.errors import BadInput
from harness.schema import TRACES
from harness.tables import (
    TraceColumns,
    TraceFile,
    kind_of,
    one_line,
    read_parquet,
    read_trace,
    validate,
    write_atomically,
    write_batches,
)
from harness.traces_command import Parser, first_line, load_cluster, refuse_overwriting, sha256, yaml_text
from harness.traces_fit import run_compare, run_fit, run_generate
from harness.traces_shape import run_merge, run_scale, run_slice


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. 0: all well; 2: bad input, said in one line on stderr (with HARNESS_DEBUG=1 also the traceback)."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if not words or words[0] in ("-h", "--help"):
            print(overview())
            return 0 if words else 2
        if words[0] not in COMMANDS:
            raise BadInput(f"unknown command '{one_line(words[0], 40)}', must be one of {', '.join(COMMANDS)}")
        status = COMMANDS[words[0]](words[1:])
        sys.stdout.flush()
        return status
    except BadInput as error:
        if os.environ.get("HARNESS_DEBUG") == "1":
            traceback.print_exc()
        print(f"harness-traces: {one_line(error, 2_000)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as stop:
        return int(stop.code or 0)


def overview() -> str:
    """The help text of the command as a whole."""
    about = str(__doc__).replace("``", "")
    lines = ["usage: harness-traces COMMAND ..., `harness-traces COMMAND --help` says more", "", about, ""]
    lines += [f"  {name:<10}{first_line(run)}" for name, run in COMMANDS.items()]
    return "\n".join(lines)


def run_import(words: list[str]) -> int:
    """Turns public files of one format into a trace, or a node list into a cluster."""
    from harness.readers import format_names, reader
    from harness.readers._options import listed, parse
    from harness.readers._spool import Spool

    usage = "harness-traces import FORMAT FILE... -o OUT [--option value]"
    if words[:1] in (["-h"], ["--help"]):
        print(f"usage: {usage}\n\n{first_line(run_import)}\n"
              "`harness-traces import FORMAT --help` lists the options and rules of a format.\n\n"
              f"formats: {', '.join(format_names())}")
        return 0
    if not words or words[0].startswith("-"):
        raise BadInput(f"the format comes first: {usage}; formats are {', '.join(format_names())}")
    module = reader(words[0])
    parser = Parser(f"import {words[0]}", str(module.__doc__))
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path)
    parser.add_argument("-o", "--out", required=True, type=Path, help="file to write")
    for field in listed(module.Options):
        names = {f"--{field.name}", f"--{field.name.replace('_', '-')}"}
        allowed = field.metadata["values"]
        parser.add_argument(*sorted(names), dest=f"option_{field.name}", metavar="|".join(allowed) or field.name.upper(),
                            help=f"{field.metadata['help']} (default: {_shown(field.default)})".replace("%", "%%"))
    given = parser.parse_intermixed_args(words[1:])
    refuse_overwriting(given.files, given.out)
    options = parse(module.Options, {
        field.name: value for field in listed(module.Options) if (value := getattr(given, f"option_{field.name}")) is not None
    })
    result, report = module.read(given.files, options)
    if not isinstance(result, Mapping):
        schema = write_batches(result.batches() if isinstance(result, Spool) else [result], given.out, {
            "command": "import", "format": words[0], "version": __version__, "options": asdict(options), "report": report,
            "files": [{"name": p.name, "sha256": sha256(p)} for p in given.files],
        })
        done = f"wrote {given.out}: {kind_of(schema.empty_table(), str(given.out))}, {result.num_rows:,} rows"
    else:
        head = "".join(f"# {one_line(line, 500)}\n" for line in [f"Imported by harness-traces import {words[0]}.", *report])
        write_atomically(given.out, lambda temporary: temporary.write_text(head + yaml_text(result), encoding="utf-8"))
        done = f"wrote {given.out}: a cluster; copy it to conf/cluster, or name it in --cluster"
    print("\n".join([*report, done]))
    return 0


def run_validate(words: list[str]) -> int:
    """Lists every violation of the contract in the traces, with row numbers."""
    parser = Parser("validate", first_line(run_validate))
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path)
    given = parser.parse_intermixed_args(words)
    sound = True
    for path in given.files:
        try:
            table = read_parquet(path)
            kind = kind_of(table, str(path))
            violations = validate(table, TRACES[kind][1], str(path))
        except BadInput as error:
            violations, kind, table = [str(error)], "", None
        for violation in violations:
            print(f"harness-traces: {one_line(violation, 2_000)}", file=sys.stderr)
        if table is not None and not violations:
            print(f"{path}: {kind}, {table.num_rows:,} rows, sound")
        sound &= not violations
    return 0 if sound else 2


def run_describe(words: list[str]) -> int:
    """Prints counts, arrivals, sizes, durations, peak demand, and the load on a cluster."""
    from harness.describe import as_text, describe

    parser = Parser("describe", f"{first_line(run_describe)}\n\n"
                    "Of jobs and requests one column at a time is held: measured, 220 bytes of memory a job, and 40 a request, 70 with\n"
                    "--html. Services are held whole.")
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--cluster", help="name in conf/cluster, or a YAML file")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--html", metavar="PAGE", type=Path, help="write one self-contained page, with pictures, to PAGE")
    given = parser.parse_intermixed_args(words)
    if given.html:
        refuse_overwriting([given.file], given.html)
    source, cluster = TraceFile(given.file), load_cluster(given.cluster) if given.cluster else None
    table = TraceColumns(source) if source.kind and source.rows else read_trace(given.file)
    if given.html:
        from harness.trace_page import trace_page

        page = trace_page(table, given.file.name, cluster)
        write_atomically(given.html, lambda temporary: temporary.write_text(page, encoding="utf-8"))
        print(f"wrote {given.html}")
        return 0
    figures = describe(table, cluster)
    print(json.dumps(figures, indent=2) if given.json else as_text(figures))
    return 0


def run_formats(words: list[str]) -> int:
    """Lists the formats that import understands."""
    from harness.readers import formats

    Parser("formats", first_line(run_formats)).parse_args(words)
    for name, module in formats().items():
        print(f"{name:<22}{first_line(module)}")
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "import": run_import,
    "validate": run_validate,
    "describe": run_describe,
    "generate": run_generate,
    "fit": run_fit,
    "compare": run_compare,
    "slice": run_slice,
    "merge": run_merge,
    "scale": run_scale,
    "formats": run_formats,
}


def _shown(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default) or "none"


if __name__ == "__main__":
    sys.exit(main())
