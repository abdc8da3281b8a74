"""The small traces that the repository holds in traces/: what they are made of, and the command that makes or checks them.

    python -m harness.workload.embedded [--check] [--folder DIR]

Without --check it writes the traces whose contents have changed, and MANIFEST.json. With it it writes nothing, and exits with 1
when a file is not what the manifest says or the generators no longer make its rows.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import yaml

from harness.errors import BadInput
from harness.tables import read_trace, write_atomically, write_table
from harness.topology import Cluster, build, parse
from harness.workload import load, parameters

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "traces"
CLUSTERS = REPOSITORY / "conf/cluster"
MANIFEST = "MANIFEST.json"


class Embedded(NamedTuple):
    """One trace: its file, its generator with what differs from the defaults, and the cluster its load is relative to."""

    file: str
    generator: str
    parameters: dict[str, Any]
    cluster: dict[str, Any]
    seed: int = 0


EMBEDDED = (
    Embedded("paper_mix.parquet", "paper_mix", {"preemptors": 200}, {"cluster": "rtx4090_x100", "servers": 10}),
    Embedded("diurnal.parquet", "diurnal", {"days": 2.0}, {"cluster": "rtx4090_x100", "servers": 16}),
)


def cluster_of(trace: Embedded) -> Cluster:
    """The cluster of ``trace``: a file of conf/cluster with this number of servers. Raises BadInput without that file."""
    path = CLUSTERS / f"{trace.cluster['cluster']}.yaml"
    try:
        section = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); run this command in a checkout of the repository") from error
    return build(parse({**section, "servers": trace.cluster["servers"]}))


def make(trace: Embedded) -> pa.Table:
    """The rows of ``trace``, from its generator."""
    return load(trace.generator, trace.parameters, cluster_of(trace), trace.seed)


def write(folder: Path = FOLDER) -> list[str]:
    """Writes the traces whose contents have changed, and the manifest, to ``folder``; returns the files written."""
    written = []
    entries = []
    for trace in EMBEDDED:
        table = make(trace)
        path = folder / trace.file
        if not (path.is_file() and read_trace(path).equals(table)):
            write_table(table, path, {"made_by": "harness.workload.embedded"})
            written.append(trace.file)
        entries.append(_entry(trace, table.num_rows, path))
    text = json.dumps({"traces": entries}, indent=2) + "\n"
    manifest = folder / MANIFEST
    if not (manifest.is_file() and manifest.read_text(encoding="utf-8") == text):
        write_atomically(manifest, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        written.append(MANIFEST)
    return written


def check(folder: Path = FOLDER) -> list[str]:
    """What is wrong in ``folder``, one line each; [] when files, manifest and generators agree."""
    try:
        entries = {e["file"]: e for e in json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["traces"]}
    except (OSError, ValueError, LookupError, TypeError) as error:
        return [f"{folder / MANIFEST}: cannot be read ({error})"]
    found = [f"{file}: in the manifest, but not made here" for file in entries if file not in {t.file for t in EMBEDDED}]
    for trace in EMBEDDED:
        path = folder / trace.file
        if not path.is_file():
            found.append(f"{trace.file}: missing")
            continue
        table = make(trace)
        if entries.get(trace.file) != _entry(trace, table.num_rows, path):
            found.append(f"{trace.file}: the manifest says otherwise")
        elif not read_trace(path).equals(table):
            found.append(f"{trace.file}: its generator makes other rows now")
    return found


def _entry(trace: Embedded, rows: int, path: Path) -> dict[str, Any]:
    return {
        "file": trace.file,
        "kind": "jobs",
        "generator": f"harness.workload.{trace.generator}",
        "parameters": asdict(parameters(trace.generator, trace.parameters)),
        "cluster": trace.cluster,
        "seed": trace.seed,
        "rows": rows,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: 0, or 1 for a failed check, or 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m harness.workload.embedded", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a trace is not as it is made")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the traces are (default: traces/ of the repository)")
    options = parser.parse_args(arguments)
    try:
        lines = check(options.folder) if options.check else write(options.folder)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    for line in lines:
        print(line if options.check else f"wrote {options.folder / line}")
    if not lines:
        print(f"{len(EMBEDDED)} traces are as their generators make them")
    return 1 if options.check and lines else 0


if __name__ == "__main__":
    sys.exit(main())
