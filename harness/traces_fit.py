"""Commands of ``harness-traces`` for synthetic traces: generate, fit, compare."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import __version__
from harness.errors import BadInput
from harness.tables import cut, kind_of, read_trace, write_atomically, write_table
from harness.traces_command import (
    DEFAULT_CLUSTER,
    IN_MEMORY,
    Parser,
    first_line,
    key_value,
    load_cluster,
    refuse_overwriting,
    section,
    sha256,
    yaml_text,
)


def run_generate(words: list[str]) -> int:
    """Draws a synthetic trace from a seeded generator, or from a fit."""
    from harness.workload import generators, load, parameters

    parser = Parser("generate", f"{first_line(run_generate)}\n\ngenerators: {', '.join(generators())}")
    parser.add_argument("name", metavar="NAME", help="generator, workload of conf/workload, or a YAML file as `fit` writes it")
    parser.add_argument("parameters", nargs="*", metavar="KEY=VALUE", help="parameters of the generator")
    parser.add_argument("--cluster", default=DEFAULT_CLUSTER, help="the loads are relative to it: a name in conf/cluster, "
                        f"or a YAML file (default: {DEFAULT_CLUSTER})")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("-o", "--out", required=True, type=Path, help="file to write")
    given = parser.parse_intermixed_args(words)
    found: Mapping[str, Any] = {"generator": given.name}
    if given.name not in generators():
        found = section(given.name, "workload", "unknown generator", sorted(generators()))
    generator = str(found.get("generator", ""))
    if generator not in generators():
        raise BadInput(f"{given.name}: its key generator must be one of {', '.join(generators())}")
    mapping = {**found, **dict(key_value(word) for word in given.parameters)}
    table = load(generator, mapping, load_cluster(given.cluster), given.seed)
    write_table(table, given.out, {
        "command": "generate", "generator": generator, "version": __version__, "seed": given.seed,
        "cluster": Path(given.cluster).name, "parameters": asdict(parameters(generator, mapping)),
    })
    print(f"wrote {given.out}: {kind_of(table, str(given.out))}, {table.num_rows:,} rows")
    return 0


def run_fit(words: list[str]) -> int:
    """Writes a small YAML from which `generate` draws traces like this one, and prints how alike they are."""
    from harness.compare import compare, comparison_text, over_draws
    from harness.describe import monday_s
    from harness.workload import load
    from harness.workload.fitting import fit

    parser = Parser("fit", f"{first_line(run_fit)}\n\n"
                    "A copy in conf/workload is a workload of that name. The table compares the trace with draws of its length.\n"
                    f"{IN_MEMORY}")
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--start", type=float, default=0.0, help="fit what arrives from then on, in s")
    parser.add_argument("--end", type=float, default=float("inf"), help="fit what arrives before, in s")
    parser.add_argument("--by", metavar="COLUMN,...", help="columns that tell classes apart (default: kind, priority and preemptible of "
                        "jobs, service of requests)")
    parser.add_argument("--about", help="where the trace comes from, for people (default: the file's name)")
    parser.add_argument("--days", type=float, help="length that `generate` draws by default (default: that of the trace)")
    parser.add_argument("--draws", type=int, default=10, help="how many draws the table compares with (default: 10)")
    parser.add_argument("-o", "--out", required=True, type=Path, help="YAML file to write")
    given = parser.parse_intermixed_args(words)
    refuse_overwriting([given.file], given.out)
    if given.draws < 1:
        raise BadInput(f"--draws {given.draws}: must be at least 1")
    whole = read_trace(given.file)
    table = cut(whole, given.start, given.end, None, None, False)
    if not table.num_rows:
        raise BadInput(f"{given.file}: no row is left of {whole.num_rows:,} in --start {given.start:g} --end {given.end:g}")
    known = monday_s(whole)
    by = given.by.split(",") if given.by else None
    params = fit(table, given.about or f"{given.file.name}, {table.num_rows:,} rows", known[0] if known else None, by)
    cluster = load_cluster(DEFAULT_CLUSTER)
    found = over_draws([compare(table, load("fitted", params, cluster, seed)) for seed in range(given.draws)])
    text = comparison_text(found, "trace", "drawn")
    if given.days is not None:
        params["days"] = given.days
    head = [f"Fitted by harness-traces fit to {given.file.name} (sha256 {sha256(given.file)[:16]}): facts, not rows.",
            "calendar: " + ("that of the trace" if known else "not known, hours and days count from time 0 of the trace"),
            f"drawn: median, lowest and highest of {given.draws} draws of the trace's length, seeds 0 to {given.draws - 1}",
            *text.splitlines()]
    text_yaml = "".join(f"# {line}\n" for line in head) + yaml_text(params)
    write_atomically(given.out, lambda temporary: temporary.write_text(text_yaml, encoding="utf-8"))
    print(f"{text}\nwrote {given.out}: {len(params['classes'])} classes")
    return 0


def run_compare(words: list[str]) -> int:
    """Compares two traces of jobs or of requests: distributions, burstiness, autocorrelation."""
    from harness.compare import compare, comparison_text

    parser = Parser("compare", f"{first_line(run_compare)}\n\n"
                    "distance: Kolmogorov-Smirnov for what rows have (beside it the means), total variation for shares (beside it the\n"
                    f"largest share).\n{IN_MEMORY}")
    parser.add_argument("a", metavar="A", type=Path)
    parser.add_argument("b", metavar="B", type=Path)
    parser.add_argument("--json", action="store_true", help="as JSON")
    given = parser.parse_intermixed_args(words)
    found = compare(read_trace(given.a), read_trace(given.b))
    print(json.dumps(found, indent=2) if given.json else comparison_text(found, given.a.name, given.b.name))
    return 0
