"""Ciw: a node of servers. Its customers take one server each, so that the sizes of jobs are lost."""

from importlib import import_module
from pathlib import Path

import numpy as np

from harness.bench.models import Jobs, Prepared


def prepare(jobs: Jobs, folder: Path, place: Path | None) -> Prepared:
    ciw = import_module("ciw")
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*np.diff(jobs.submit, prepend=0.0).tolist(), float("inf")])],
        service_distributions=[ciw.dists.Sequential(jobs.duration.tolist())],
        number_of_servers=[jobs.slots])
    simulation = ciw.Simulation(network)

    def starts() -> np.ndarray:
        records = sorted(simulation.get_all_records(), key=lambda record: record.id_number)
        return np.array([record.service_start_date for record in records])

    return Prepared(lambda: simulation.simulate_until_max_customers(len(jobs.submit)), starts)
