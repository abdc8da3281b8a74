"""Helios: FirstInFirstOut and its placer "consolidate", from a copy of the public artifact that the user names.

The folder is the artifact's ``framework/QSSF Service``, in which ``job``, ``cluster`` and ``policies`` are modules. Its result files
are not written: only the replay is wanted.
"""

import logging
import sys
from importlib import import_module
from pathlib import Path

import numpy as np

from harness.bench.models import SERVER_GPUS, Jobs, Prepared

INSIDE = Path("framework/QSSF Service")
NEEDED = ("job.py", "cluster.py", "policies/__init__.py")


def simulator_in(folder: Path) -> Path | None:
    """The folder of the simulator in what the user named: itself, or within a clone of the artifact. None when it is in neither."""
    return next((place for place in (folder, folder / INSIDE) if all((place / name).is_file() for name in NEEDED)), None)


def prepare(jobs: Jobs, folder: Path, place: Path | None) -> Prepared:
    pandas = import_module("pandas")
    sys.path.insert(0, str(place))
    job, cluster, policies = (import_module(name) for name in ("job", "cluster", "policies"))
    frame = pandas.DataFrame({
        "job_id": np.arange(len(jobs.submit)), "vc": "all", "gpu_num": jobs.gpus, "submit_time": jobs.submit.astype(np.int64),
        "duration": jobs.duration.astype(np.int64), "start_time": sys.maxsize, "end_time": sys.maxsize, "queue": 0, "status": None})
    trace = job.Trace()
    for _, row in frame.iterrows():
        trace.append_job(job.Job(row))
    trace.sort_jobs("submit_time")
    servers = cluster.Cluster({"all": jobs.servers}, SERVER_GPUS, 96).vc_list[0]
    scheduler = policies.FirstInFirstOut(trace, servers, "consolidate", str(folder), logging.getLogger("helios"), 0)
    scheduler.log_recorder = lambda name: None
    return Prepared(scheduler.simulate, lambda: np.array([done["start_time"] for done in scheduler.trace.job_list], float))
