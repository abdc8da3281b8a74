"""The cells of a sweep: composed by Hydra once for every choice of groups, and handed to a launcher in batches.

Beside app.py the only file that knows Hydra; docs/decisions/0007-sweeps.md says why it does not compose cell by cell.
"""

import base64
import json
import math
import os
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from harness.errors import BadInput
from harness.progress import watching
from harness.tables import one_line

BATCHES_PER_CORE = 4
MOST_JOBS = 64
"""Jobs for a launcher that queues them elsewhere: a job of Slurm costs seconds."""


class Composed(NamedTuple):
    """The configuration of a cell, the option chosen in each group, and the words that it was made of."""

    config: DictConfig
    choices: dict[str, str]
    words: list[str]


class Composer:
    """Makes the configurations of cells. ``hydra_words`` are the overrides of Hydra's own section."""

    def __init__(self, loader: ConfigLoader, config_name: str, hydra_words: Sequence[str]) -> None:
        assert isinstance(loader, ConfigLoaderImpl)
        self.loader, self.config_name, self.hydra_words = loader, config_name, list(hydra_words)
        self.bases: dict[tuple[str, ...], Composed] = {}

    def is_choice(self, override: Override) -> bool:
        """Whether a word picks an option of a group, and so decides which files are read."""
        key = override.key_or_group
        return override.package is not None or (self.loader.repository.group_exists(key) and not isinstance(override.value(), dict))

    def base(self, choosing: Sequence[str]) -> Composed:
        """The configuration with these choices and nothing else changed."""
        found = self.bases.get(tuple(choosing))
        if found is None:
            whole = self.loader.load_configuration(self.config_name, [*self.hydra_words, *choosing], RunMode.RUN)
            choices = {group: str(choice) for group, choice in whole.hydra.runtime.choices.items()}
            with open_dict(whole):
                del whole["hydra"]
            found = self.bases[tuple(choosing)] = Composed(whole, choices, list(choosing))
        return found

    def compose(self, words: Sequence[str]) -> Composed:
        """The configuration of one cell. Raises HydraException as Hydra's own composing does."""
        choosing, changing = self.split(words)
        base = self.base(choosing)
        config = deepcopy(base.config)
        self.loader._apply_overrides_to_config(changing, config)
        return Composed(config, base.choices, list(words))

    def split(self, words: Sequence[str]) -> tuple[list[str], list[Override]]:
        overrides = [parsed(word) for word in words]
        choices = [self.is_choice(override) for override in overrides]
        return ([word for word, chooses in zip(words, choices, strict=True) if chooses],
                [override for override, chooses in zip(overrides, choices, strict=True) if not chooses])

    def check(self, cells: Sequence[Sequence[str]]) -> list[Composed]:
        """Tries every word once with every choice of groups. Returns one cell for each; raises HydraException."""
        changes: dict[tuple[str, ...], dict[str, Override]] = {}
        firsts: dict[tuple[str, ...], Sequence[str]] = {}
        for words in cells:
            choosing, changing = self.split(words)
            firsts.setdefault(tuple(choosing), words)
            changes.setdefault(tuple(choosing), {}).update({str(override.input_line): override for override in changing})
        for choosing, changing in changes.items():
            trial = deepcopy(self.base(choosing).config)
            for override in changing.values():
                if override.is_delete() or override.is_add():
                    self.loader._apply_overrides_to_config([override], deepcopy(trial))
                else:
                    self.loader._apply_overrides_to_config([override], trial)
        return [self.compose(words) for words in firsts.values()]


@lru_cache(maxsize=100_000)
def parsed(word: str) -> Override:
    return OverridesParser.create().parse_override(word)


def cells_of(words: Sequence[str]) -> list[list[str]]:
    """The words of every cell of a sweep, in Hydra's order."""
    (cells,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(list(words)), None)
    return cells


@dataclass(frozen=True)
class Batch:
    """Cells ``first`` to ``first + count`` of the sweep over ``words``; ``noted``: whether its progress is told in the sweep's folder."""

    words: list[str]
    first: int
    count: int
    noted: bool

    @property
    def cells(self) -> list[list[str]]:
        return list(islice(cells_of(self.words), self.first, self.first + self.count))

    def encode(self) -> str:
        """As a value that needs no quotes, for the words may hold anything."""
        return base64.urlsafe_b64encode(json.dumps(vars(self)).encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> "Batch":
        return cls(**json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))


def batches(words: list[str], cells: int, per_job: int | None, launcher: Launcher) -> Iterator[Batch]:
    """All cells in one batch in this process; else at most ``per_job`` in each, or so many that the cores are kept busy."""
    here = type(launcher).__name__ == "BasicLauncher"  # Hydra loads its plugins as other classes than an import does
    if per_job is None:
        many = BATCHES_PER_CORE * (os.cpu_count() or 1) if "joblib" in type(launcher).__module__ else MOST_JOBS
        per_job = cells if here else math.ceil(cells / many)
    for first in range(0, cells, per_job):
        yield Batch(words, first, min(per_job, cells - first), not here)


def sweep(words: list[str], per_job: int | None, config: DictConfig, loader: ConfigLoader, launcher: Launcher) -> None:
    """Runs a sweep through a launcher. Raises BadInput for cells that can not be; HydraException likewise, before any has begun."""
    from harness.app import check_cell, give_up

    if per_job is not None and per_job < 1:
        raise BadInput(f"hydra.sweeper.cells_per_job={per_job}: must be a whole number >= 1")
    out = Path(str(config.hydra.sweep.dir))
    cells = cells_of(words)
    composer = Composer(loader, config.hydra.job.config_name, config.hydra.overrides.hydra)
    for composed in composer.check(cells):
        check_cell(composed)
    out.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(config, out / "multirun.yaml")
    mine = [word for word in cells[0] if word.startswith("out=")]
    found = list(batches(words, len(cells), per_job, launcher))
    jobs = [[*mine, f"+cells={batch.encode()}"] for batch in found]
    if not found[0].noted:
        _raise_bad_input(launcher.launch(jobs, initial_job_idx=0))
        return
    with watching(out, len(cells), bool(config.progress) and not config.dry_run):
        try:
            returned = launcher.launch(jobs, initial_job_idx=0)
            _raise_bad_input(returned)
        except (BadInput, HydraException):
            raise
        except Exception as error:  # a job that was killed, or ran out of time: its other cells are rows all the same
            give_up((composer.compose(words) for words in cells), f"{type(error).__name__}: {one_line(error)}")


def _raise_bad_input(returned: Sequence[JobReturn]) -> None:
    for job in returned:
        if job.return_value:
            raise BadInput(job.return_value)
