"""One model in a process of its own: ``python -m harness.bench.models NAME JOBS.npz RESULT.npz [FOLDER OF THE SIMULATOR]``."""

import sys
import time
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from harness.bench.models import Jobs, Prepare


def main(name: str, source: str, target: str, place: str | None = None) -> None:
    """Replays the jobs of ``source`` and writes starts (jobs,), and prepare_s, replay_s and replay_cpu_s, to ``target``."""
    with np.load(source) as columns:
        jobs = Jobs(columns["submit"], columns["duration"], columns["gpus"], int(columns["servers"]))
    began = time.perf_counter()
    prepare: Prepare = import_module(f"harness.bench.models.{name}_fifo").prepare
    with TemporaryDirectory() as folder:
        prepared = prepare(jobs, Path(folder), Path(place) if place else None)
        ready, used = time.perf_counter(), time.process_time()
        prepared.run()
        done, used = time.perf_counter(), time.process_time() - used
    np.savez(target, starts=prepared.starts(), prepare_s=ready - began, replay_s=done - ready, replay_cpu_s=used)


if __name__ == "__main__":
    main(*sys.argv[1:])
