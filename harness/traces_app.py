"""``harness-traces``: import public traces, validate, describe, cut and generate traces in the contract's Parquet format."""

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import __version__
from harness.errors import BadInput
from harness.schema import KINDS, TRACES
from harness.tables import (
    cut,
    kind_of,
    merge,
    metadata_of,
    one_line,
    read_parquet,
    read_trace,
    validate,
    write_atomically,
    write_pieces,
    write_table,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from harness.topology import Cluster

DEFAULT_CLUSTER = "rtx4090_x100"


class Parser(argparse.ArgumentParser):
    """Options of one command; what it does not understand is BadInput."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(f"harness-traces {command}", description=description, allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> Any:
        raise BadInput(f"{one_line(message)}; see `{self.prog} --help`")


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
    lines += [f"  {name:<10}{_first_line(run)}" for name, run in COMMANDS.items()]
    return "\n".join(lines)


def run_import(words: list[str]) -> int:
    """Turns public files of one format into a trace, or a node list into a cluster."""
    from harness.readers import format_names, reader
    from harness.readers._options import listed, parse

    usage = "harness-traces import FORMAT FILE... -o OUT [--option value]"
    if words[:1] in (["-h"], ["--help"]):
        print(f"usage: {usage}\n\n{_first_line(run_import)}\n"
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
    _refuse_overwriting(given.files, given.out)
    options = parse(module.Options, {
        field.name: value for field in listed(module.Options) if (value := getattr(given, f"option_{field.name}")) is not None
    })
    result, report = module.read(given.files, options)
    def origin() -> dict[str, Any]:
        return {
            "command": "import", "format": words[0], "version": __version__, "options": asdict(options), "report": report,
            "files": [{"name": p.name, "sha256": _sha256(p)} for p in given.files],
        }

    if isinstance(result, Mapping):
        head = "".join(f"# {one_line(line, 500)}\n" for line in [f"Imported by harness-traces import {words[0]}.", *report])
        write_atomically(given.out, lambda temporary: temporary.write_text(head + _yaml(result), encoding="utf-8"))
        done = f"wrote {given.out}: a cluster; copy it to conf/cluster, or name it in --cluster"
    elif isinstance(result, Iterator):
        done = f"wrote {given.out}: requests, {write_pieces(result, given.out, origin):,} rows"
    else:
        write_table(result, given.out, origin())
        done = f"wrote {given.out}: {kind_of(result, str(given.out))}, {result.num_rows:,} rows"
    print("\n".join([*report, done]))
    return 0


def run_validate(words: list[str]) -> int:
    """Lists every violation of the contract in the traces, with row numbers."""
    parser = Parser("validate", _first_line(run_validate))
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

    parser = Parser("describe", _first_line(run_describe))
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--cluster", help="name in conf/cluster, or a YAML file")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--html", metavar="PAGE", type=Path, help="write one self-contained page, with pictures, to PAGE")
    given = parser.parse_intermixed_args(words)
    if given.html:
        _refuse_overwriting([given.file], given.html)
    table, cluster = read_trace(given.file), load_cluster(given.cluster) if given.cluster else None
    if given.html:
        from harness.trace_page import trace_page

        page = trace_page(table, given.file.name, cluster)
        write_atomically(given.html, lambda temporary: temporary.write_text(page, encoding="utf-8"))
        print(f"wrote {given.html}")
        return 0
    figures = describe(table, cluster)
    print(json.dumps(figures, indent=2) if given.json else as_text(figures))
    return 0


def run_generate(words: list[str]) -> int:
    """Draws a synthetic trace from a seeded generator."""
    from harness.workload import generators, load, parameters

    parser = Parser("generate", f"{_first_line(run_generate)}\n\ngenerators: {', '.join(generators())}")
    parser.add_argument("name", metavar="NAME", help="generator")
    parser.add_argument("parameters", nargs="*", metavar="KEY=VALUE", help="parameters of the generator")
    parser.add_argument("--cluster", default=DEFAULT_CLUSTER, help="the loads are relative to it: a name in conf/cluster, "
                        f"or a YAML file (default: {DEFAULT_CLUSTER})")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("-o", "--out", required=True, type=Path, help="file to write")
    given = parser.parse_intermixed_args(words)
    if given.name not in generators():
        raise BadInput(f"unknown generator '{one_line(given.name, 40)}', must be one of {', '.join(generators())}")
    mapping = dict(_key_value(word) for word in given.parameters)
    table = load(given.name, mapping, load_cluster(given.cluster), given.seed)
    write_table(table, given.out, {
        "command": "generate", "generator": given.name, "version": __version__, "seed": given.seed,
        "cluster": Path(given.cluster).name, "parameters": asdict(parameters(given.name, mapping)),
    })
    print(f"wrote {given.out}: {kind_of(table, str(given.out))}, {table.num_rows:,} rows")
    return 0


def run_slice(words: list[str]) -> int:
    """Cuts a part out of a trace: by time, kind, and number of rows, in this order."""
    parser = Parser("slice", f"{_first_line(run_slice)}\n\n"
                    "Rows keep their order. Of services, the replicas in force at --start begin there.")
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--start", type=float, default=0.0, help="keep what arrives from then on, in s")
    parser.add_argument("--end", type=float, default=float("inf"), help="keep what arrives before, in s")
    parser.add_argument("--kind", choices=KINDS, help="keep that kind of jobs or services")
    parser.add_argument("--first", type=int, help="keep that many of the earliest rows")
    parser.add_argument("--rebase", action="store_true", help="count times from --start")
    parser.add_argument("-o", "--out", required=True, type=Path, help="file to write")
    given = parser.parse_intermixed_args(words)
    if not (given.start >= 0 and given.end > given.start):
        raise BadInput(f"--start {given.start:g} --end {given.end:g}: must be 0 <= start < end")
    if given.first is not None and given.first < 1:
        raise BadInput(f"--first {given.first}: must be at least 1")
    table = read_trace(given.file)
    part = cut(table, given.start, given.end, given.kind, given.first, given.rebase)
    if not part.num_rows:
        raise BadInput(f"{given.file}: no row is left of {table.num_rows:,}; `harness-traces describe` shows its span and kinds")
    asked = {key: value for key, value in vars(given).items() if key in ("start", "end", "first", "kind", "rebase")}
    asked["end"] = None if given.end == float("inf") else given.end
    write_table(part, given.out, metadata_of(table) | {"slice": asked | {"of": given.file.name, "sha256": _sha256(given.file)}})
    print(f"wrote {given.out}: {part.num_rows:,} of {table.num_rows:,} rows")
    return 0


def run_merge(words: list[str]) -> int:
    """Puts several traces of one kind into one, sorted by arrival."""
    parser = Parser("merge", f"{_first_line(run_merge)}\n\n"
                    "NAME is the file's name up to its first dot. Jobs and requests are renamed NAME/ID, always; the tenant (jobs) or service\n"
                    "becomes NAME/what it was, or NAME when it was empty. Prefix blocks of different traces never match.")
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path)
    parser.add_argument("--names", help="NAMEs instead, in the order of the files, separated by commas")
    parser.add_argument("--clock", choices=("shared", "start", "calendar"), default="shared",
                        help="shared: times stay as they are; start: each trace's first arrival is at 0; calendar: by the date of time 0 that "
                        "each trace carries, the earliest at 0 (default: shared)")
    parser.add_argument("-o", "--out", required=True, type=Path, help="file to write")
    given = parser.parse_intermixed_args(words)
    _refuse_overwriting(given.files, given.out)
    names = given.names.split(",") if given.names else [path.name.split(".")[0] for path in given.files]
    if len(names) != len(given.files) or len(set(names)) < len(names) or not all(names):
        raise BadInput(f"--names {one_line(','.join(names), 80)}: must be {len(given.files)} different names, one for each file")
    tables = dict(zip(names, (read_trace(path) for path in given.files), strict=True))
    starts = _starts(list(tables.values()), given.files, given.clock)
    whole = merge(tables, starts)
    write_table(whole, given.out, {"command": "merge", "version": __version__, "clock": given.clock, "traces": [
        {"name": name, "file": path.name, "sha256": _sha256(path), "moved_s": start, "rows": table.num_rows, "origin": metadata_of(table)}
        for (name, table), path, start in zip(tables.items(), given.files, starts, strict=True)]})
    print(f"wrote {given.out}: {kind_of(whole, str(given.out))}, {whole.num_rows:,} rows of {len(names)} traces")
    return 0


def _starts(tables: "Sequence[pa.Table]", files: Sequence[Path], clock: str) -> list[float]:
    """By how much each trace's times are moved (s)."""
    if clock == "shared":
        return [0.0] * len(tables)
    if clock == "start":
        from harness.tables import TIME_COLUMN

        return [-float(table[TIME_COLUMN[kind_of(table, "trace")]].to_numpy().min()) for table in tables]
    from harness.describe import time_zero

    zeros = [time_zero(table) for table in tables]
    for path, zero in zip(files, zeros, strict=True):
        if zero is None:
            raise BadInput(f"{path}: does not say the date of its time 0, so --clock calendar is not possible")
    earliest = min(zero for zero in zeros if zero is not None)
    return [(zero - earliest).total_seconds() for zero in zeros if zero is not None]


def run_scale(words: list[str]) -> int:
    """Multiplies the load of a trace on the same clock: thins it below 1, adds jittered copies above 1."""
    from harness.workload.trace import scale_load, squeeze

    parser = Parser("scale", f"{_first_line(run_scale)}\n\n"
                    "Copies are named ID+1, ID+2, ...; copied requests have prefix blocks of their own. Of services, the replicas are\n"
                    "multiplied and rounded. Times between arrivals change only with --squeeze-clock.")
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--load", type=float, default=1.0, help="times as much load (default: 1)")
    parser.add_argument("--jitter", type=float, default=3600.0, help="a copy arrives up to that much later than its original, in s, "
                        "wrapping around at the end (default: 3600)")
    parser.add_argument("--squeeze-clock", type=float, default=1.0, metavar="F", help="divide the times between arrivals by F, and the length "
                        "of day and night with them; durations stay (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("-o", "--out", required=True, type=Path, help="file to write")
    given = parser.parse_intermixed_args(words)
    for name, value, low in (("load", given.load, 0.0), ("squeeze-clock", given.squeeze_clock, 0.0), ("jitter", given.jitter, -1.0)):
        if not (low < value < float("inf")) or (name == "jitter" and value < 0):
            raise BadInput(f"--{name} {value:g}: must be a number {'>= 0' if name == 'jitter' else '> 0'}")
    _refuse_overwriting([given.file], given.out)
    table = read_trace(given.file)
    if not table.num_rows:
        raise BadInput(f"{given.file}: has no rows to scale")
    scaled = squeeze(scale_load(table, given.load, given.jitter, given.seed), 1.0 / given.squeeze_clock)
    asked = {"load": given.load, "jitter_s": given.jitter, "squeeze_clock": given.squeeze_clock, "seed": given.seed}
    write_table(scaled, given.out, metadata_of(table) | {"scale": asked | {"of": given.file.name, "sha256": _sha256(given.file)}})
    print(f"wrote {given.out}: {scaled.num_rows:,} rows from {table.num_rows:,}")
    return 0


def run_formats(words: list[str]) -> int:
    """Lists the formats that import understands."""
    from harness.readers import formats

    Parser("formats", _first_line(run_formats)).parse_args(words)
    for name, module in formats().items():
        print(f"{name:<22}{_first_line(module)}")
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "import": run_import,
    "validate": run_validate,
    "describe": run_describe,
    "generate": run_generate,
    "slice": run_slice,
    "merge": run_merge,
    "scale": run_scale,
    "formats": run_formats,
}


def load_cluster(name: str) -> "Cluster":
    """The cluster in the YAML file ``name``, or of that name in conf/cluster. Raises BadInput."""
    import yaml

    from harness.topology import build, parse

    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        homes = (Path(__file__).parent / "conf", Path(__file__).parents[1] / "conf")
        folder = next((home for home in homes if home.is_dir()), homes[0]) / "cluster"
        path = folder / f"{name}.yaml"
        known = sorted(f.stem for f in folder.glob("*.yaml"))
        if name not in known:
            raise BadInput(f"--cluster {one_line(name, 60)}: unknown, must be a YAML file or one of {', '.join(known)}")
    try:
        section = yaml.safe_load(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"{one_line(path)}: cannot be read ({one_line(error)})") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: is not YAML ({one_line(error)})") from error
    if not isinstance(section, Mapping):
        raise BadInput(f"{path}: must be a mapping with the keys of a cluster, such as name and groups")
    return build(parse(section))


def _key_value(word: str) -> tuple[str, Any]:
    import yaml

    key, sign, value = word.partition("=")
    if not sign or not key:
        raise BadInput(f"'{one_line(word, 60)}': parameters are KEY=VALUE")
    try:
        return key.removeprefix("workload."), yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise BadInput(f"{one_line(word, 60)}: the value is not YAML ({one_line(error, 80)})") from error


def _refuse_overwriting(files: Sequence[Path], out: Path) -> None:
    for path in files:
        if path.exists() and out.exists() and path.samefile(out):
            raise BadInput(f"{out}: is the file to read, the output must be another one")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _yaml(value: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(dict(value), sort_keys=False, default_flow_style=None, width=130)


def _shown(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default) or "none"


def _first_line(thing: Any) -> str:
    return str(thing.__doc__).strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
