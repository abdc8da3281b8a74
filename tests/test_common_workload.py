"""The common workload: the draws of the referees' script, and their results on it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness import workload
from harness.cluster.build import Rules
from harness.cluster.hooks import load_policy
from harness.cluster.replay import replay
from harness.errors import BadInput
from harness.metrics import jobs_table
from harness.schema import JOBS
from harness.tables import validate
from workload_helpers import column, servers

SCRIPT = Path(__file__).resolve().parents[1] / "../shared/peers/common_workload.py"


@pytest.mark.parametrize("jobs, count, wait, makespan", [
    (10_000, 64, 430.7464, 226_840.0),  # T1
    (100_000, 256, 10.80288, 535_934.0),  # T3
])
def test_fifo_meets_the_referees_to_every_digit(jobs: int, count: int, wait: float, makespan: float):
    cluster = servers(count)
    table = jobs_table(replay(workload.load("common_workload", {"jobs": jobs}, cluster, 1), cluster, load_policy("fifo"), Rules()))
    assert column(table, "wait_s").mean() == wait
    assert column(table, "finish_time").max() == makespan


@pytest.mark.parametrize("jobs, count, seed", [(10_000, 64, 1), (500, 7, 4)])
def test_the_draws_are_those_of_the_script(tmp_path, jobs: int, count: int, seed: int):
    if not SCRIPT.is_file():
        pytest.skip("../shared/peers is absent")
    command = [sys.executable, str(SCRIPT), str(jobs), str(count), str(seed), str(tmp_path / "common")]
    subprocess.run(command, check=True, capture_output=True)
    theirs = pq.read_table(tmp_path / "common.parquet")
    ours = workload.load("common_workload", {"jobs": jobs}, servers(count), seed)
    assert column(ours, "submit_time").tolist() == column(theirs, "submit_time").tolist()
    assert column(ours, "duration").tolist() == column(theirs, "duration").tolist()
    assert (column(ours, "gpus") * column(ours, "instances")).tolist() == column(theirs, "num_gpu").tolist()


def test_it_is_a_valid_sorted_trace_whose_large_jobs_are_gangs_of_whole_servers():
    table = workload.load("common_workload", {"jobs": 3_000}, servers(16), 2)
    assert validate(table, JOBS, "common_workload") == []
    assert table["submit_time"][0].as_py() == 0 and (np.diff(column(table, "submit_time")) >= 0).all()
    sizes = set(zip(column(table, "instances").tolist(), column(table, "gpus").tolist(), strict=True))
    assert sizes == {(1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8)}


def test_load_squeezes_the_arrivals_and_nothing_else():
    cluster = servers(16)
    light, heavy = (workload.load("common_workload", {"jobs": 2_000, "load": load}, cluster, 2) for load in (0.4, 0.8))
    assert light["duration"].equals(heavy["duration"]) and light["gpus"].equals(heavy["gpus"])
    # Whole seconds: the last arrival is floored.
    assert column(light, "submit_time")[-1] / column(heavy, "submit_time")[-1] == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("given, words", [
    ({"jobs": 0}, ("workload.jobs=0", ">= 1")), ({"load": 0.0}, ("workload.load=0.0", "> 0")), ({"load": float("nan")}, ("load=nan",)),
])
def test_bad_parameters_give_one_line(given: dict[str, float], words: tuple[str, ...]):
    with pytest.raises(BadInput) as error:
        workload.load("common_workload", given, servers(2), 1)
    assert "\n" not in str(error.value) and all(word in str(error.value) for word in words)


def test_a_negative_seed_and_servers_that_are_too_small_are_bad_input():
    with pytest.raises(BadInput, match="seed=-1"):
        workload.load("common_workload", {}, servers(2), -1)
    with pytest.raises(BadInput, match="largest server has 4 GPUs; the common workload needs 8"):
        workload.load("common_workload", {}, servers(2, gpus=4), 1)
