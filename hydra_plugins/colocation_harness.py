"""The sweeper of the command ``harness``: many cells in one job of a launcher. Hydra finds plugins only in this package."""

from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper


class CellSweeper(BasicSweeper):
    """Lists the cells as Hydra's basic sweeper does; docs/decisions/0007-sweeps.md says why it hands them out in batches."""

    def __init__(self, cells_per_job: int | None = None, params: dict[str, str] | None = None) -> None:
        super().__init__(max_batch_size=None, params=params)
        self.cells_per_job = cells_per_job

    def sweep(self, arguments: list[str]) -> Any:
        from harness.sweeping import sweep

        assert self.config is not None and self.launcher is not None and self.hydra_context is not None
        words = [*self._parse_config(), *arguments]
        return sweep(words, self.cells_per_job, self.config, self.hydra_context.config_loader, self.launcher)
