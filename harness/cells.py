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
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path
from subprocess import run
from typing import Any

from harness import __version__
from harness.cache import PACKAGE, sources_hash
from harness.errors import BadInput
from harness.tables import write_atomically

NOT_HASHED = ("out", "progress", "force", "dry_run", "report")
"""Keys of a configuration that do not change what a cell is."""

INPUT_FILES = (("workload", "path"), ("workload", "paths"), ("policy", "file"), ("cluster", "from_flextopo"),
               ("cluster", "from_file"), ("cluster", "order"), ("workload", "order"), ("colocation", "services"),
               ("colocation", "replicas"))
"""Keys of a configuration that name files, or lists of them, whose contents matter."""

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

    @property
    def title(self) -> str:
        """What tells the cell from its neighbours, in words."""
        return " ".join(f"{key}={value}" for key, value in {**self.labels, **self.overrides}.items())

    @cached_property
    def inputs(self) -> dict[str, str]:
        """sha256 of every input file, by the key and name that the configuration gives."""
        found = {}
        for group, key in INPUT_FILES:
            names = self.config.get(group, {}).get(key)
            for name in names if isinstance(names, list) else [names]:
                if name:
                    file = str(name).rpartition(":")[0] if key == "order" else str(name)
                    found[f"{group}.{key}={name}"] = file_hash(Path(file))
        return found

    @cached_property
    def key(self) -> str:
        """Name of the cell's folder: a hash of the configuration, the contents of its inputs and the package's sources."""
        hashed = {name: value for name, value in self.config.items() if name not in NOT_HASHED}
        text = json.dumps([hashed, sorted(self.inputs.items()), sources_hash()], sort_keys=True, default=str)
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


def clean(out: Path) -> None:
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


def events_of(folder: Path) -> int:
    """How many events were replayed for a cell."""
    return json.loads((folder / "manifest.json").read_text())["events"]


def note_failure(cell: Cell, error: str) -> None:
    """Keeps the row of a cell that failed, until it is replayed."""
    row = {**_row(cell), "status": "failed", "error": error}
    path = Path(cell.config["out"]) / FAILED / f"{cell.key}.json"
    write_atomically(path, lambda temporary: temporary.write_text(json.dumps(row, indent=1)))


def _row(cell: Cell) -> dict[str, Any]:
    return {"cell": cell.key, "labels": cell.labels, "overrides": dict(cell.overrides), "config": dict(cell.config),
            "sources": sources_hash()}


def _fill(cell: Cell, folder: Path, report: Callable[[int, int, int], None] | None) -> None:
    from harness.halves import replay_into

    began = time.perf_counter()
    metrics, about = replay_into(folder, cell.config, cell.inputs, report)
    (folder / "summary.json").write_text(json.dumps(metrics, indent=1))
    (folder / ".hydra").mkdir()
    for name, text in cell.hydra.items():
        (folder / ".hydra" / name).write_text(text)
    serves = "requests" in metrics and not cell.config["colocation"]
    labels = {**cell.labels, "cluster": cell.choices.get("pool", "")} if serves else cell.labels
    manifest = {
        **_row(cell), "labels": labels,
        "inputs": cell.inputs, "seed": cell.config["seed"], **about, "wall_s": round(time.perf_counter() - began, 6),
        "peak_memory_mib": _peak_memory_mib(), "git_commit": _git_commit(), "versions": _versions(),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, default=str))


@lru_cache
def _git_commit() -> str | None:
    done = run(["git", "-C", str(PACKAGE), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


@lru_cache
def _versions() -> dict[str, str]:
    return {"harness": __version__, "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("numpy", "numba", "pyarrow", "hydra-core")}}


def _peak_memory_mib() -> int:
    """Peak resident memory of this program; where Linux tells it. What getrusage tells outlives exec, and may be that of who started us."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return int(found[1]) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (2**20 if sys.platform == "darwin" else 2**10)
