"""Sweeps in batches: what is composed once and changed is what Hydra composes, and nothing gets lost on the way to a job."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict

from harness.app import conf_dir, main
from harness.sweeping import MOST_JOBS, Batch, Composer, batches, cells_of

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture
def loader() -> Iterator[ConfigLoader]:
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


@pytest.mark.parametrize("words", [
    ["policy=godel", "seed=3"],
    ["seed=3", "cluster=flat", "cluster.servers=7", "policy=fifo"],
    ["workload=diurnal", "workload.service_cards=[1,8]", "workload.load=0.5", "horizon_s=null"],
    ["+experiment=pays", "speed.batch={server: 0.5}", "workload.load=1.1"],
    ["+policy.mine=1", "~warmup_s", "++seed=2", "cluster.name='\"a b\"'"],
    ["workload=trace", "workload.where={tenant: a, gpus: {min: 1}}", "workload.path=${oc.env:HOME}/x"],
])
def test_a_cell_is_what_hydra_composes(words: list[str], loader: ConfigLoader):
    whole = loader.load_configuration("config", words, RunMode.RUN)
    composed = Composer(loader, "config", []).compose(words)
    assert composed.choices == {group: str(choice) for group, choice in whole.hydra.runtime.choices.items()}
    with open_dict(whole):
        del whole["hydra"]
    assert composed.config == whole and list(composed.config) == list(whole)
    assert OmegaConf.to_container(composed.config, resolve=True) == OmegaConf.to_container(whole, resolve=True)


def test_cells_do_not_share_what_they_change(loader: ConfigLoader):
    composer = Composer(loader, "config", [])
    first = composer.compose(["policy=fifo", "seed=1", "speed.batch.numa=0.5"])
    second = composer.compose(["policy=fifo", "seed=2"])
    assert len(composer.bases) == 1
    assert (first.config.seed, second.config.seed, second.config.speed.batch.numa) == (1, 2, 1.0)


@pytest.mark.parametrize("words", ["seed=0,many", "nothing=1,2", "cluster.servers=1 policy=fifo,nope", "~seedd policy=fifo,godel"])
def test_a_wrong_word_is_found_before_anything_runs(words: str, loader: ConfigLoader):
    with pytest.raises(HydraException):
        Composer(loader, "config", []).check(cells_of(words.split()))


def test_words_that_are_added_may_differ_from_cell_to_cell(loader: ConfigLoader):
    assert len(Composer(loader, "config", []).check(cells_of(["policy=fifo,godel", "+policy.mine=1,2", "++seed=1,2"]))) == 2


def test_cells_are_the_product_in_hydras_order():
    found = cells_of(["policy=fifo,godel", "seed=range(2)", "pinning=spread"])
    grid = itertools.product(("fifo", "godel"), (0, 1))
    assert found == [[f"policy={policy}", f"seed={seed}", "pinning=spread"] for policy, seed in grid]


def launcher(name: str, module: str) -> object:
    return type(name, (SimpleNamespace,), {"__module__": module})()


@pytest.mark.parametrize(("name", "cells", "per_job", "sizes"), [
    ("BasicLauncher", 5, None, [5]),
    ("SlurmLauncher", 5, None, [1] * 5),
    ("SlurmLauncher", 2 * MOST_JOBS + 1, None, [3] * 43),
    ("SlurmLauncher", 5, 2, [2, 2, 1]),
])
def test_every_cell_is_in_one_batch(name: str, cells: int, per_job: int | None, sizes: list[int]):
    words = [f"seed=range({cells})", "cluster.name='\"ü, $ = +\"'"]
    found = list(batches(words, cells, per_job, launcher(name, "plugin.of.queue")))  # type: ignore[arg-type]
    assert [batch.count for batch in found] == sizes
    travelled = [Batch.decode(batch.encode()) for batch in found]
    assert travelled == found and all(batch.encode().replace("-", "").replace("_", "").isalnum() for batch in found)
    assert [cell for batch in travelled for cell in batch.cells] == cells_of(words)
    assert found[0].noted == (name != "BasicLauncher")


def test_batches_of_no_cells_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["-m", "policy=fifo", "hydra.sweeper.cells_per_job=0", f"out={tmp_path}"]) == 2
    assert "cells_per_job=0: must be a whole number >= 1" in capsys.readouterr().err


@pytest.mark.parametrize("empty", [(), ("seed=range(-1)",)])
def test_a_sweep_that_would_never_end_is_refused(empty: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["-m", "policy=fifo", *empty, "horizon_s=range(10000000000)", f"out={tmp_path}"]) == 2
    assert "the sweep would have more than 100,000 cells; split it" in capsys.readouterr().err


def test_peak_memory_is_that_of_the_process_and_not_of_the_one_that_became_it():
    """A process of more than 600 MiB replaces itself: what getrusage tells survives exec."""
    look = "from harness.cells import _peak_memory_mib; import json, resource; " \
           "print(json.dumps([_peak_memory_mib(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024]))"
    grow = f"import os, sys; large = b'x' * (600 << 20); os.execv(sys.executable, [sys.executable, '-c', {look!r}])"
    if not Path("/proc/self/status").is_file():
        pytest.skip("/proc/self/status is absent")
    done = subprocess.run([sys.executable, "-c", grow], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
    peak, of_both = json.loads(done.stdout)
    assert 20 < peak < 500 < 600 <= of_both
