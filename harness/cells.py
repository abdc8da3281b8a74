"""One cell of a sweep: a configuration in, a folder of tables out, made whole or not at all and never made twice."""

import hashlib
import json
import os
import platform
import re
import resource
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from subprocess import run
from typing import Any

import numpy as np
import pyarrow as pa

from harness import __version__, schema
from harness.cache import PACKAGE, sources_hash
from harness.errors import BadInput
from harness.tables import TraceFile, write_atomically, write_table
from harness.topology import Cluster, build, parse

NOT_HASHED = ("out", "progress", "force", "dry_run")
"""Keys of a configuration that do not change what a cell is."""

INPUT_FILES = (("workload", "path"), ("policy", "file"), ("cluster", "from_flextopo"))
"""Keys of a configuration that name files whose contents matter."""

TIE_RULES = "instants: finish, end of grace, tick, arrival, by index; queue: key, submit_time, index; servers: lowest index"

FAILED = "failed"
"""Folder beside the cells that keeps what is known of those that failed."""


@dataclass(frozen=True)
class Cell:
    """A configuration (plain values, as Hydra resolved it), the choices it was made of, and the overrides that were given.

    ``choices``: option of each configuration group, for instance {"cluster": "flat"}; ``hydra``: what else belongs into the cell's
    ``.hydra`` folder, file name -> text.
    """

    config: Mapping[str, Any]
    choices: Mapping[str, str]
    overrides: Mapping[str, str]
    hydra: Mapping[str, str]

    @property
    def labels(self) -> dict[str, Any]:
        """The columns by which a row of a sweep's summary is known."""
        file = self.config["policy"].get("file")
        return {
            "cluster": self.choices.get("cluster", ""), "workload": self.choices.get("workload", ""),
            "policy": Path(str(file)).stem if file else self.config["policy"]["name"], "pinning": self.config["pinning"],
            "seed": self.config["seed"],
        }

    def inputs(self) -> dict[str, str]:
        """sha256 of every input file, by the key and name that the configuration gives."""
        found = {}
        for group, key in INPUT_FILES:
            name = self.config.get(group, {}).get(key)
            if name:
                found[f"{group}.{key}={name}"] = file_hash(Path(str(name)))
        return found

    @property
    def key(self) -> str:
        """Name of the cell's folder: a hash of the configuration, the contents of its inputs and the package's sources."""
        hashed = {name: value for name, value in self.config.items() if name not in NOT_HASHED}
        text = json.dumps([hashed, sorted(self.inputs().items()), sources_hash()], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def folder(self) -> Path:
        return Path(self.config["out"]) / self.key


def file_hash(path: Path) -> str:
    """sha256 of a file's contents (hex), or "absent"; what is no regular file may have no end, and is not read."""
    try:
        if not path.is_file():
            return "absent"
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return "absent"


def is_whole(folder: Path) -> bool:
    """Whether a cell is there: folders get their name only when everything is in them."""
    return (folder / "manifest.json").is_file()


def run_cell(cell: Cell, report: Callable[[int, int, int], None] | None = None) -> Path:
    """Replays ``cell`` unless it is there already, and returns its folder.

    ``report`` is told events, jobs arrived and jobs of the trace. Raises BadInput or InvalidIntention; nothing half-written stays.
    """
    folder = cell.folder()
    if is_whole(folder) and not cell.config["force"]:
        return folder
    temporary = folder.with_name(f".{folder.name}.{platform.node()}.{os.getpid()}")
    former = temporary.with_name(f"{temporary.name}.former")
    try:
        _clean(folder.parent)
        temporary.mkdir(parents=True)
        _fill(cell, temporary, report)
        with suppress(FileNotFoundError):
            folder.rename(former)
        try:
            temporary.rename(folder)
        except OSError:
            if not is_whole(folder):  # another process may have finished the same cell meanwhile
                raise
    except OSError as error:
        raise BadInput(f"out={cell.config['out']}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(former, ignore_errors=True)
    (folder.parent / FAILED / f"{cell.key}.json").unlink(missing_ok=True)
    return folder


def _clean(out: Path) -> None:
    """Removes the temporary folders in ``out`` of processes of this machine that were killed."""
    for path in out.glob(".*"):
        name = re.fullmatch(r"\.[0-9a-f]{24}\.(.*)\.(\d+)(\.former)?", path.name)
        if name and name[1] == platform.node() and not _runs(int(name[2])):
            shutil.rmtree(path, ignore_errors=True)


def _runs(pid: int) -> bool:
    """Whether another process of that number runs."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def note_failure(cell: Cell, error: str) -> None:
    """Keeps the row of a cell that failed, until it is replayed."""
    row = {**_row(cell), "status": "failed", "error": error}
    path = Path(cell.config["out"]) / FAILED / f"{cell.key}.json"
    write_atomically(path, lambda temporary: temporary.write_text(json.dumps(row, indent=1)))


def _row(cell: Cell) -> dict[str, Any]:
    return {"cell": cell.key, "labels": cell.labels, "overrides": dict(cell.overrides), "config": dict(cell.config),
            "sources": sources_hash()}


def _fill(cell: Cell, folder: Path, report: Callable[[int, int, int], None] | None) -> None:
    from harness.cluster.build import Rules
    from harness.cluster.hooks import load_policy
    from harness.workload import stream

    config = cell.config
    began = time.perf_counter()
    policy = load_policy(config["policy"]["name"], config["policy"].get("file"), _policy_params(config["policy"]))
    inputs = cell.inputs()
    workload = dict(config["workload"])
    source = stream(workload.pop("generator"), workload)
    preemption, horizon = config["preemption"], config["horizon_s"]
    rules = Rules(config["pinning"], preemption["grace_s"], preemption["min_runtime_s"], preemption["max_evictable"],
                  np.inf if horizon is None else horizon, config["seed"], _speeds(config))
    sections = json.dumps([config["cluster"], config["workload"], inputs], sort_keys=True)
    if source is None:
        cluster, trace = _load(sections, config["seed"])
        outcome, metrics, replayed = _replay(cell, cluster, trace, policy, rules, folder, report)
    else:
        cluster = _cluster(json.dumps(config["cluster"], sort_keys=True))
        outcome, metrics, replayed = _replay_stream(cell, cluster, source, policy, rules, folder, report)
    (folder / "summary.json").write_text(json.dumps(metrics, indent=1))
    (folder / ".hydra").mkdir()
    for name, text in cell.hydra.items():
        (folder / ".hydra" / name).write_text(text)
    manifest = {
        **_row(cell), "inputs": inputs, "seed": config["seed"], "tie_rules": TIE_RULES, "events": outcome.events,
        "capped_servers": outcome.capped, "cluster_notes": list(cluster.notes), "replay_wall_s": round(replayed, 6),
        "wall_s": round(time.perf_counter() - began, 6),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "git_commit": _git_commit(),
        "versions": {"harness": __version__, "python": platform.python_version(),
                     **{name: metadata.version(name) for name in ("numpy", "numba", "pyarrow", "hydra-core")}},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, default=str))


def _replay(cell: Cell, cluster: Cluster, trace: pa.Table, policy: Any, rules: Any, folder: Path,
            report: Callable[[int, int, int], None] | None) -> tuple[Any, Mapping[str, Any], float]:
    """Writes the tables into ``folder``; returns what the replay left behind, the metrics, and the seconds of the replay."""
    from harness.cluster.replay import replay
    from harness.metrics import jobs_table, preemptions_table, summary, utilization_table

    config, began = cell.config, time.perf_counter()
    outcome = replay(trace, cluster, policy, rules, report and (lambda events, arrived: report(events, arrived, trace.num_rows)))
    replayed = time.perf_counter() - began
    jobs = jobs_table(outcome)
    preemptions = preemptions_table(outcome)
    utilization = utilization_table(outcome, config["interval_s"], config["warmup_s"])
    metrics = summary(outcome, cluster, jobs, utilization, config["warmup_s"])
    for name, table in (("jobs", jobs), ("preemptions", preemptions), ("utilization", utilization)):
        write_table(table, folder / f"{name}.parquet")
    return outcome, metrics, replayed


def _replay_stream(cell: Cell, cluster: Cluster, source: TraceFile, policy: Any, rules: Any, folder: Path,
                   report: Callable[[int, int, int], None] | None) -> tuple[Any, Mapping[str, Any], float]:
    """The same for a trace that is read block by block."""
    from harness.stream import replay_to_files

    config = cell.config
    done = replay_to_files(source, cluster, policy, rules, folder, config["warmup_s"], config["interval_s"],
                           report and (lambda events, arrived: report(events, arrived, source.rows)))
    write_table(done.utilization, folder / "utilization.parquet")
    return done.outcome, done.metrics, done.replay_s


@lru_cache(maxsize=4)
def _cluster(section: str) -> Cluster:
    cluster = build(parse(json.loads(section)))
    for line in cluster.notes:
        print(f"cluster {cluster.name}: {line}", file=sys.stderr)
    return cluster


@lru_cache(maxsize=4)
def _load(sections: str, seed: int) -> tuple[Cluster, pa.Table]:
    """The cluster and the trace: cells of a sweep that share them load them once."""
    from harness.workload import load

    cluster_section, workload_section, _ = json.loads(sections)
    cluster = _cluster(json.dumps(cluster_section, sort_keys=True))
    workload_section = dict(workload_section)
    return cluster, load(workload_section.pop("generator"), workload_section, cluster, seed)


def _policy_params(section: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters in a policy section; with a file, those of the policy whose place it takes are left out."""
    from harness.cluster.hooks import declared_params

    params = {key: value for key, value in section.items() if key not in ("name", "file")}
    if section.get("file"):
        own = declared_params(None, section["file"])
        replaced = declared_params(section["name"], None)
        return {key: value for key, value in params.items() if key in own or key not in replaced}
    return params


def _speeds(config: Mapping[str, Any]) -> dict[tuple[str, str | None, str], float]:
    speeds: dict[tuple[str, str | None, str], float] = {}
    for kind in schema.KINDS:
        for network in schema.NETWORK_LEVELS:
            far = config["network_speed"][kind][network]
            speeds[kind, None, network] = far
            for level in schema.LEVELS:
                speeds[kind, level, network] = config["speed"][kind][level] * far
    return speeds


@lru_cache
def _git_commit() -> str | None:
    done = run(["git", "-C", str(PACKAGE), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
