"""The command ``harness``: the only file that knows Hydra."""

import atexit
import difflib
import gc
import io
import os
import re
import sys
import time
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from importlib.abc import MetaPathFinder
from itertools import islice
from pathlib import Path
from traceback import walk_tb
from typing import Any

import hydra
import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, RangeSweep
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.cells import FAILED, Cell, clean, events_of, is_whole, note_failure, run_cell
from harness.errors import BadInput, InvalidIntention
from harness.progress import Note, Progress
from harness.sweep import aggregate
from harness.sweeping import Batch, Composed, Composer
from harness.tables import one_line

PACKAGE = Path(__file__).resolve().parent
MOST_CELLS = 100_000
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass
class Preemption:
    grace_s: float = 0.0
    min_runtime_s: float = 0.0
    max_evictable: int = 16


@dataclass
class Metrics:
    fragmentation: bool = False
    energy: bool = False
    quotes: bool = False


@dataclass
class Levels:
    numa: float = 1.0
    nvlink: float = 1.0
    socket: float = 1.0
    server: float = 1.0


@dataclass
class NetworkLevels:
    server: float = 1.0
    rack: float = 1.0
    spine: float = 1.0
    cluster: float = 1.0


@dataclass
class Speed:
    online: Levels = field(default_factory=Levels)
    batch: Levels = field(default_factory=Levels)
    training: Levels = field(default_factory=Levels)


@dataclass
class NetworkSpeed:
    online: NetworkLevels = field(default_factory=NetworkLevels)
    batch: NetworkLevels = field(default_factory=NetworkLevels)
    training: NetworkLevels = field(default_factory=NetworkLevels)


@dataclass
class Settings:
    """Types of the configuration; the sections without one are checked where they are used."""

    cluster: dict[str, Any] = field(default_factory=dict)
    pool: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    colocation: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    pinning: str = "packed"
    preemption: Preemption = field(default_factory=Preemption)
    speed: Speed = field(default_factory=Speed)
    network_speed: NetworkSpeed = field(default_factory=NetworkSpeed)
    metrics: Metrics = field(default_factory=Metrics)
    horizon_s: float | None = None
    warmup_s: float = 0.0
    interval_s: float | None = None
    load: float | None = None
    out: str | None = None
    force: bool = False
    report: bool = False
    dry_run: bool = False
    progress: bool = True


ConfigStore.instance().store(name="base_config", node=Settings)


def job_policies() -> str:
    """All policies of the job-level half, as the choices of a sweep: ``${job_policies:}`` in a recipe."""
    from harness.cluster.hooks import policy_names

    return ",".join(policy_names())


OmegaConf.register_new_resolver("job_policies", job_policies, replace=True)
OmegaConf.register_new_resolver("times", lambda one, other: one * other, replace=True)


def conf_dir() -> str:
    """The configuration folder: that of the checkout, else the copy in the installed package."""
    checkout = PACKAGE.parent / "conf"
    return str(checkout if (checkout / "config.yaml").is_file() else PACKAGE / "conf")


stopped_by: list[BadInput | InvalidIntention] = []
"""The error of a single cell: raised after Hydra has returned, for Hydra would comment on it."""


@hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")
def task(config: DictConfig) -> str:
    """Runs one cell, or the batch of cells that a sweep gives to this job; returns what is wrong with its input, if something is."""
    if "cells" in config:
        return run_batch(Batch.decode(config.cells), config)
    try:
        about = HydraConfig.get()
        choices = {group: str(choice) for group, choice in about.runtime.choices.items()}
        run_single(cell_of(Composed(config, choices, list(about.overrides.task))))
    except (BadInput, InvalidIntention) as error:
        stopped_by.append(error)
    except OmegaConfBaseException as error:
        stopped_by.append(BadInput(in_one_line(error)))
    return ""


def run_single(cell: Cell) -> None:
    if cell.config["dry_run"]:
        return tell(cell)
    began = time.perf_counter()
    there = is_whole(cell.folder()) and not cell.config["force"]
    clean(cell.folder().parent)
    folder = run_cell(cell, Reporter(cell.title) if cell.config["progress"] else None)
    if cell.config["progress"]:
        print(f"done    {cell.title}: {'was there' if there else f'{time.perf_counter() - began:.2f} s'}", file=sys.stderr)
    print(folder)


def run_batch(batch: Batch, config: DictConfig) -> str:
    """Runs the cells of a batch. An error in one becomes a row, so that the others still run; the first bad input is returned."""
    composer = Composer(GlobalHydra.instance().config_loader(), "config", HydraConfig.get().overrides.hydra)
    progress: Progress | None = None
    wrong = ""
    for words in batch.cells:
        try:
            cell = cell_of(composer.compose(words))
        except (BadInput, OmegaConfBaseException, HydraException) as error:
            wrong = wrong or in_one_line(error)
            continue
        if cell.config["dry_run"]:
            tell(cell)
            continue
        if progress is None:
            clean(cell.folder().parent)
            out = Path(cell.config["out"])
            progress = Note(batch.count, out, batch.first) if batch.noted else Progress(batch.count, cell.config["progress"])
        began = time.perf_counter()
        there = is_whole(cell.folder()) and not cell.config["force"]
        try:
            events = 0 if there else events_of(run_cell(cell))
            progress.cell(f"done    {cell.title}: {'was there' if there else f'{time.perf_counter() - began:.2f} s'}", events)
        except (BadInput, InvalidIntention) as error:
            note_failure(cell, f"{type(error).__name__}: {error}")
            progress.say(f"failed  {cell.title}: {error}")
            progress.cell("", 0)
    if progress is not None:
        progress.close()
    return wrong


def tell(cell: Cell) -> None:
    """What a dry run says of a cell."""
    print(f"{'there' if is_whole(cell.folder()) else 'to do'}  {cell.folder()}  {cell.title}")


def check_cell(composed: Composed) -> None:
    """Raises BadInput for a configuration that no cell can have."""
    try:
        cell_of(composed)
    except OmegaConfBaseException as error:
        raise BadInput(in_one_line(error)) from error


def give_up(cells: Iterable[Composed], error: str) -> None:
    """Keeps a row for each cell of a sweep that is neither there nor known to have failed: its job ended with ``error``."""
    print(f"failed  jobs of the launcher: {error}", file=sys.stderr)
    for composed in cells:
        cell = cell_of(composed)
        if not is_whole(cell.folder()) and not (cell.folder().parent / FAILED / f"{cell.key}.json").is_file():
            note_failure(cell, error)


def cell_of(composed: Composed) -> Cell:
    plain = OmegaConf.to_container(composed.config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    plain = _with_text_keys(plain)
    _require(needed(), plain, "")
    file = plain["policy"].get("file")
    if not isinstance(file, str | None):
        raise BadInput(f"policy.file={file}: must be the name of a Python file, or null")
    for key in plain:
        if key not in Settings.__dataclass_fields__:
            raise BadInput(f"{key}: there is no such key{_nearest(str(key))}; harness --cfg job shows all keys")
    overrides = dict(override.lstrip("+").split("=", 1) for override in composed.words if "=" in override)
    files = {name: yaml.dump(content, Dumper=DUMPER, sort_keys=False, allow_unicode=True)
             for name, content in (("config.yaml", plain), ("overrides.yaml", composed.words))}
    groups = ("cluster", "workload", "policy", "experiment", "league", "out", "force", "dry_run", "progress", "report")
    return Cell(plain, composed.choices, {key: value for key, value in overrides.items() if key not in groups}, files)


@cache
def needed() -> Any:
    """The keys that every cell must have."""
    keys = OmegaConf.to_container(OmegaConf.structured(Settings))
    assert isinstance(keys, dict)
    return {**keys, "workload": {"generator": ""}, "policy": {"name": ""}}


def _with_text_keys(value: Any) -> Any:
    """``value`` with every key of its mappings as text, so that they have an order."""
    if isinstance(value, dict):
        return {str(key): _with_text_keys(inner) for key, inner in value.items()}
    return [_with_text_keys(inner) for inner in value] if isinstance(value, list) else value


def _require(needed: Any, plain: Any, at: str) -> None:
    """Raises BadInput for a key of ``needed`` that an override took out of ``plain``."""
    for key, inner in needed.items():
        if not isinstance(plain, dict) or key not in plain:
            raise BadInput(f"{at}{key}: is missing; do not take it out with ~, every cell needs it")
        if isinstance(inner, dict):
            _require(inner, plain[key], f"{at}{key}.")


class Reporter:
    """Progress of one replay on standard error: a bar on a terminal, nothing elsewhere."""

    def __init__(self, name: str):
        self.name, self.bar, self.began = name, None, time.perf_counter()

    def __call__(self, events: int, arrived: int, jobs: int) -> None:
        from tqdm import tqdm

        if self.bar is None:
            self.bar = tqdm(total=jobs, unit=" jobs", desc=self.name[:60], disable=None, leave=False)
        self.bar.set_postfix_str(f"{events / max(time.perf_counter() - self.began, 1e-9):,.0f} events/s")
        self.bar.update(arrived - self.bar.n)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns 0 (all well), 1 (a cell failed) or 2 (bad input)."""
    if argv is None:
        start_lightly()
    words = list(sys.argv[1:] if argv is None else argv)
    words = ["dry_run=true" if word == "--dry-run" else word for word in words]
    words.sort(key=lambda word: word not in ("-m", "--multirun"))  # overrides may stand on both sides of it
    informs = any(word in ("--help", "-h", "--hydra-help", "--cfg", "-c", "--info", "-i", "--version", "--shell-completion", "-sc")
                  or word.startswith(("--cfg=", "--info=")) for word in words)
    if not informs and not any(word.startswith("out=") for word in words):
        words.append(f"out={default_out(words)}")
    debug = os.environ.get("HARNESS_DEBUG") == "1"
    began = time.time()
    before = sys.argv
    sys.argv = ["harness", *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    stopped_by.clear()
    try:
        check_words(words)
        task()
        if stopped_by:
            raise stopped_by[0]
        if informs:
            return 0
        out = Path(next(word for word in reversed(words) if word.startswith("out="))[4:].strip("'\""))
        quiet = any(word in ("progress=false", "dry_run=true") for word in words)
        return conclude(out, began, quiet) if "-m" in words or "--multirun" in words else 0
    except (BadInput, HydraException, OmegaConfBaseException) as error:
        if debug:
            raise
        print(f"harness: {in_one_line(error)}", file=sys.stderr)
        return 2
    except InvalidIntention as error:
        if debug:
            raise
        print(f"harness: {in_one_line(error)}", file=sys.stderr)
        return 1
    except SystemExit as stop:
        return int(stop.code or 0)
    except Exception as error:
        codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
        if debug or any((code.co_filename, code.co_name) == (__file__, "task") for code in codes):
            raise  # a defect of ours; what Hydra raises before a cell begins is about the words
        print(f"harness: {in_one_line(error)}", file=sys.stderr)
        return 2
    finally:
        sys.argv = before


def check_words(words: list[str]) -> None:
    """Raises BadInput for options that Hydra would answer with its usage, or that make no sense here."""
    for word in words:
        if not word.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in word):
            raise BadInput(f"{one_line(word)}: is not valid UTF-8")
    told = io.StringIO()
    try:
        with redirect_stderr(told), redirect_stdout(io.StringIO()):
            options = get_args_parser().parse_args(words)
    except SystemExit as stop:
        if stop.code:
            raise BadInput(f"{told.getvalue().rpartition('error: ')[2].strip()}; harness --help shows what there is") from stop
        return
    if options.multirun:
        _count_cells(options.overrides)
    if options.experimental_rerun:
        raise BadInput("--experimental-rerun: does not work here; the overrides of a cell are in its .hydra/overrides.yaml")


def _count_cells(words: list[str]) -> None:
    """Raises BadInput for a sweep that would never end: Hydra lists all its cells before the first begins."""
    cells = 1
    for override in OverridesParser.create().parse_overrides(words):
        values = override.value()
        if isinstance(values, RangeSweep):
            cells *= max(1, sum(1 for _ in islice(values.range(), MOST_CELLS + 1)))
        elif isinstance(values, ChoiceSweep):
            cells *= max(1, len(values.list))
        if cells > MOST_CELLS:
            raise BadInput(f"{one_line(override.input_line)}: the sweep would have more than {MOST_CELLS:,} cells; split it")


def start_lightly() -> None:
    """Keeps two large imports, and most garbage collection, out of the command: docs/decisions/0002-start-up.md says why, and what they
    cost."""
    gc.set_threshold(50_000, 20, 50)  # importing makes many objects and hardly any cycles
    atexit.register(gc.freeze)  # what is left at the end need not be searched for cycles
    hidden = Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        import numba.core.registry
        import pyarrow

        context: Any = numba.core.registry.cpu_target.target_context
        context.refresh()
        pyarrow.array([0])
    finally:
        sys.meta_path.remove(hidden)


class Hidden(MetaPathFinder):
    """Makes pandas, scipy and coverage look as if they were not installed."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.partition(".")[0] in ("pandas", "scipy", "coverage"):
            raise ModuleNotFoundError(f"{fullname} is hidden while the command starts", name=fullname)


def conclude(out: Path, began: float, quiet: bool) -> int:
    """Writes the summary of a sweep and says where it is, and unless ``quiet`` where all tables are."""
    if not out.is_dir() or not any(out.glob("[!.]*/manifest.json")) and not any((out / FAILED).glob("*.json")):
        return 0
    summary = aggregate(out)
    failed = [path for path in (out / FAILED).glob("*.json") if path.stat().st_mtime >= began]
    print(f"{summary}{f': {len(failed)} cells failed' if failed else ''}", flush=True)
    if OmegaConf.select(OmegaConf.load(out / "multirun.yaml"), "report"):
        from harness.report import build_report

        print(build_report(out)[-1], flush=True)
    if not quiet:
        cells = sum(1 for _ in out.glob("[!.]*/manifest.json"))
        print(f"sweep   {time.time() - began:.1f} s; {cells:,} cells are there, {len(failed):,} failed; tables of each in "
              f"{out}/<cell>, a row for each in {summary}", file=sys.stderr)
    return 1 if failed else 0


def default_out(words: list[str]) -> str:
    """results/runs/<experiment or policy name>; a sweep over policies is named after all of them."""
    named: dict[str, str] = {}
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        named[key] = value
    policy = Path(named["policy.file"]).stem if "policy.file" in named else named.get("policy", "domain_first")
    name = named.get("experiment") or policy
    return "results/runs/" + re.sub(r"[^\w.+-]+", "+", name).strip("+")


def in_one_line(error: BaseException) -> str:
    """The message of an error as one line that says what is wrong and what would be right."""
    if isinstance(error, HydraException) and isinstance(error.__cause__, OmegaConfBaseException) and "merging" in str(error):
        error = error.__cause__
    text = " ".join(str(error).split())
    if isinstance(error, OverrideParseException) and error.override:
        why = re.sub(rf"^(Error parsing override '{re.escape(error.override)}')? ?(LexerNoViableAltException: .*)?", "", text)
        why = re.sub(r" expecting \{.*", "", why)
        hint = "an override is key=value, and a value with special characters needs quotes within quotes: key='\"a b\"'"
        return one_line(f"{one_line(error.override)}: cannot be read{f' ({why})' if why else ''}; {hint}", 1_000)
    if isinstance(error, OSError) and error.strerror:
        return one_line(f"{error.filename}: {error.strerror}" if error.filename else error.strerror, 1_000)
    option = re.search(r"Could not find '([^']+)' Available options in '([^']+)': (.*?)(?: Config search path.*)?$", text)
    if option:
        wrong, group, known = option.groups()
        return one_line(f"{group}={wrong.removeprefix(f'{group}/')}: there is no such {group}; there are {', '.join(known.split())}", 1_000)
    key = re.search(r"Could not override '([^']+)'", text)
    if key:
        return one_line(f"{key[1]}: there is no such key{_nearest(key[1])}; harness --cfg job shows all keys", 1_000)
    group = re.search(r"Could not override '([^']+)'\. No match in the defaults list", text)
    if group:
        return f"{group[1]}: there is no such group of options"
    text = re.sub(r" (full_key|object_type|reference_type)[:=] ?\S*", "", text)
    wrong_type = re.search(r"full_key: (\S+)", " ".join(str(error).split()))
    if wrong_type and wrong_type[1] not in text:
        text = f"{wrong_type[1]}: {text}"
    return one_line(re.sub(r" See https?://\S+ for details", "", text) or type(error).__name__, 1_000)


def _nearest(key: str) -> str:
    """A key that looks like ``key``."""
    ours = (Path(conf_dir()) / "config.yaml").read_text().partition("\nhydra:")[0]
    known = re.findall(r"^(?:  - | *)(\w+):", ours, re.MULTILINE)
    near = difflib.get_close_matches(key.split(".")[-1], [name for name in known if name != key], 1)
    return f" (did you mean {near[0]}?)" if near else ""


if __name__ == "__main__":
    sys.exit(main())
