"""Strict FIFO with a blocking head in other simulators: one file for each, written as a user of it would.

Each file has ``prepare(jobs, folder, place) -> Prepared``, which imports its simulator and builds the model, so that ``run`` is the
replay alone. Nothing here imports more than NumPy: the memory of a process that runs a model is the simulator's.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

SERVER_GPUS = 8
"""Of every server of the common workload."""


class Jobs(NamedTuple):
    """The common workload in trace order: submit and duration f8 (jobs,) in whole s, gpus i8 (jobs,), and the number of servers."""

    submit: np.ndarray
    duration: np.ndarray
    gpus: np.ndarray
    servers: int

    @property
    def capacity(self) -> int:
        """GPUs of all servers."""
        return self.servers * SERVER_GPUS

    @property
    def slots(self) -> int:
        """How many jobs of mean size the cluster holds."""
        return max(1, round(self.capacity / self.gpus.mean()))


class Prepared(NamedTuple):
    """A model that is ready: ``run`` replays it once, and ``starts`` then says when every job started, f8 (jobs,) in s."""

    run: Callable[[], Any]
    starts: Callable[[], np.ndarray]


class Peer(NamedTuple):
    """A simulator: its name, the package it is installed with (None: a folder that the user names), and what its model places.

    ``places``: "servers" is what the harness does, best fit with ties to the lowest server and gangs on whole servers; "gpus" only
    counts free GPUs; "slots" gives each job, however large, one of so many servers as hold a job of mean size.
    """

    name: str
    package: str | None
    places: Literal["servers", "gpus", "slots"]
    remark: str = ""


PEERS = {
    "simpy": Peer("SimPy", "simpy", "gpus"),
    "ciw": Peer("Ciw", "ciw", "slots"),
    "cimba": Peer("Cimba", "cimba", "gpus"),
    "accasim": Peer("AccaSim", "accasim", "servers", "made importable by a shim for collections.Mapping; ties ranked by server, jobs "
                                                     "asked for in units of up to 8 GPUs, which it would else split across servers"),
    "helios": Peer("Helios", None, "servers", "advances by 1 s steps"),
}

PLACES = {
    "servers": "servers, best fit",
    "gpus": "GPU count only",
    "slots": "one slot for each job",
}

Prepare = Callable[[Jobs, Path, Path | None], Prepared]
"""From the jobs, a folder for the model's files, and the folder that holds the simulator if it is no package."""
