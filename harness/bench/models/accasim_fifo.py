"""AccaSim: its FirstInFirstOut and BestFit, whose ranking gets the server's index as a last word, so that ties are those of the referees.

It is asked for GPUs as its resource "core", the one that it cannot do without: a job is one unit of up to 8, or several of 8.
"""

import collections
import collections.abc
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from harness.bench.models import SERVER_GPUS, Jobs, Prepared

FIRST = 10
"""Time of the first arrival in its clock, where 0 means that there was none yet."""


def prepare(jobs: Jobs, folder: Path, place: Path | None) -> Prepared:
    collections.__dict__["Mapping"] = collections.abc.Mapping  # AccaSim 1.1.3 asks for what Python 3.10 took away
    base = {name: import_module(f"accasim.base.{name}") for name in (
        "additional_data", "allocator_class", "event_class", "resource_manager_class", "scheduler_class", "simulator_class")}
    reading = import_module("accasim.utils.reader_class")
    starts = np.zeros(len(jobs.submit))

    class Reader(reading.Reader):
        """Hands out one job after the other; the simulator asks for None."""

        def __init__(self, factory: Any):
            super().__init__(factory)
            self.left = iter(enumerate(zip(jobs.submit.tolist(), jobs.duration.tolist(), jobs.gpus.tolist(), strict=True)))
            self.count = len(jobs.submit)

        def _read(self, current_time: int) -> dict[str, Any]:
            i, (at, runs, needs) = next(self.left)
            if i + 1 == self.count:
                self.stop_submission()
            return {"job_id": i, "queued_time": FIRST + int(at), "duration": int(runs), "requested_nodes": max(1, needs // SERVER_GPUS),
                    "requested_resources": {"core": min(needs, SERVER_GPUS)}}

    class Starts(base["additional_data"].AdditionalData):
        """Notes when each job started, once it has ended."""

        def exec_after_completion(self, removed: list[Any]) -> None:
            for job in removed:
                starts[int(job.id)] = job.start_time - FIRST

        def exec_before_dispatching(self, *_: Any) -> None: ...
        def exec_after_dispatching(self, *_: Any) -> None: ...
        def exec_before_submission(self, *_: Any) -> None: ...
        def exec_after_submission(self, *_: Any) -> None: ...
        def exec_before_completion(self, *_: Any) -> None: ...
        def stop(self) -> None: ...

    servers = base["resource_manager_class"].Resources({"server": {"core": SERVER_GPUS}}, {"server": jobs.servers})
    manager = base["resource_manager_class"].ResourceManager(servers)
    factory = base["event_class"].JobFactory(manager)
    allocator = base["allocator_class"].BestFit()
    index = {name: i for i, name in enumerate(servers.NODE_LIST)}
    allocator.ranking = lambda name: (allocator.avl_resources[name]["core"], index[name])
    simulator = base["simulator_class"].Simulator(
        str(folder / "jobs"), None, base["scheduler_class"].FirstInFirstOut(allocator), resource_manager=manager, job_factory=factory,
        reader=Reader(factory), additional_data=[Starts], scheduling_output=False, statistics_output=False, show_statistics=False,
        RESULTS_FOLDER_PATH=str(folder), LOG_LEVEL="ERROR")
    return Prepared(simulator.start_simulation, lambda: starts)
