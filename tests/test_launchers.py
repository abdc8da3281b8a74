"""The launchers: joblib, submitit, a real Slurm on loopback and a local Ray make the tables of the basic launcher."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import slurm_cluster

REPOSITORY = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.compiled
SWEEP = ("-m", "workload=paper_mix", "workload.preemptors=3", "cluster.servers=4", "policy=fifo,godel", "seed=range(3)")
CELLS = 6
TIMEOUT_S = 600
"""For one sweep of a few seconds; a machine that is shared may take far longer."""

QUEUE = ("hydra.launcher.timeout_min=10",)
HALVES = "hydra.sweeper.cells_per_job=3"
SLURM = ("hydra.launcher.cpus_per_task=1", "hydra.launcher.signal_delay_s=20")


def harness(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own; it may not hang."""
    command = [sys.executable, "-m", "harness", *words]
    environment = {**(environment or os.environ), "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests")])}
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)


def needs(*modules: str, extra: str) -> None:
    absent = [module for module in modules if find_spec(module) is None]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)} (uv pip install -e '.[{extra}]')")


def tables(out: Path) -> dict[str, bytes]:
    """The bytes of every table, without the columns of the wall clock."""
    found = {}
    for path in sorted(out.rglob("*.parquet")):
        table = pq.read_table(path)
        sink = pa.BufferOutputStream()
        pq.write_table(table.select([name for name in table.column_names if "_wall_us" not in name]), sink)
        found[str(path.relative_to(out))] = sink.getvalue().to_pybytes()
    return found


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("basic") / "out"
    done = harness(*SWEEP, f"out={out}")
    assert done.returncode == 0, done.stderr
    found = tables(out)
    assert len(found) == 3 * CELLS + 1
    return found


@pytest.fixture
def slurm() -> Iterator[slurm_cluster.Slurm]:
    reason = slurm_cluster.missing()
    if reason:
        pytest.skip(reason)
    with slurm_cluster.Slurm() as cluster:
        yield cluster


def check(basic: dict[str, bytes], out: Path, launcher: str, *words: str, environment: Mapping[str, str] | None = None) -> str:
    """A sweep through ``launcher`` has the tables of the basic one; run again, it makes nothing. Returns what it said."""
    words = (*SWEEP, f"hydra/launcher={launcher}", *words, f"out={out}")
    done = harness(*words, environment=environment)
    assert done.returncode == 0, done.stderr
    assert tables(out) == basic
    assert f"({CELLS} of {CELLS} cells" in done.stderr, done.stderr
    assert f"{out}" in done.stderr.splitlines()[-1]
    assert not (out / ".progress").exists()
    return done.stderr


def test_joblib_makes_the_same_tables_in_several_processes(basic: dict[str, bytes], tmp_path: Path):
    needs("hydra_plugins.hydra_joblib_launcher", extra="parallel")
    check(basic, tmp_path / "out", "joblib", "hydra.launcher.n_jobs=2", "hydra.sweeper.cells_per_job=2")


def test_submitit_local_makes_the_same_tables(basic: dict[str, bytes], tmp_path: Path):
    needs("submitit", "hydra_plugins.hydra_submitit_launcher", extra="slurm")
    check(basic, tmp_path / "out", "submitit_local", *QUEUE, HALVES)


def test_a_real_slurm_makes_the_same_tables(basic: dict[str, bytes], tmp_path: Path, slurm: slurm_cluster.Slurm):
    needs("submitit", "hydra_plugins.hydra_submitit_launcher", extra="slurm")
    out = tmp_path / "out"
    check(basic, out, "submitit_slurm", *QUEUE, *SLURM, HALVES, environment=slurm.environment)
    slurm.wait_until(lambda: slurm.log().count("WEXITSTATUS 0") == 2, 60, "not both jobs ended well")
    assert len({json.loads(path.read_text())["cell"] for path in out.glob("*/manifest.json")}) == CELLS


def test_a_job_that_slurm_kills_is_rows_with_its_error(tmp_path: Path, slurm: slurm_cluster.Slurm):
    """The second of two jobs kills itself in its only cell: the cell of the first is there, that of the second a failed row."""
    needs("submitit", "hydra_plugins.hydra_submitit_launcher", extra="slurm")
    deadly = tmp_path / "deadly.py"
    deadly.write_text("import os\n\nos.environ.get('SLURM_ARRAY_TASK_ID') == '1' and os.kill(os.getpid(), 9)\n"
                      "\n\ndef key(view, own, job):\n    return 0.0\n")
    out = tmp_path / "out"
    done = harness("-m", "workload=paper_mix", "workload.preemptors=3", "cluster.servers=4", f"policy.file={deadly}", "seed=0,1",
                   "hydra/launcher=submitit_slurm", *QUEUE, *SLURM, "hydra.sweeper.cells_per_job=1",
                   f"out={out}", environment=slurm.environment)
    assert done.returncode == 1, done.stderr
    rows = {row["seed"]: row for row in pq.read_table(out / "summary.parquet").to_pylist()}
    assert rows[0]["status"] == "ok" and rows[1]["status"] == "failed" and rows[1]["error"]
    assert "Traceback" not in done.stderr, done.stderr


def test_a_local_ray_makes_the_same_tables(basic: dict[str, bytes], tmp_path: Path):
    needs("ray", "hydra_plugins.hydra_ray_launcher", extra="ray")
    check(basic, tmp_path / "out", "ray", "+hydra.launcher.ray.init.num_cpus=2", HALVES)


def test_bad_input_is_one_line_under_any_launcher(tmp_path: Path):
    needs("hydra_plugins.hydra_joblib_launcher", extra="parallel")
    done = harness(*SWEEP, "hydra/launcher=joblib", "+seeed=1", f"out={tmp_path / 'out'}")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "did you mean seed" in done.stderr
