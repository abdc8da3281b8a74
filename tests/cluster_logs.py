"""A small cluster's logs, drawn from a seed: this file stands in for the commands sacct and kubectl where they are asked for.

Eight nodes of eight GPUs and 64 cores under first come, first served, for three days. ``python cluster_logs.py sacct --parsable2 ...``
prints jobs as Slurm does, ``python cluster_logs.py kubectl get pods -A -o json`` pods as Kubernetes does.
"""

import heapq
import json
import os
import sys
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

NODES, GPUS, CORES = 8, 8, 64
START = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp())
DAYS, JOBS = 3, 240
FIELDS = ("JobID", "JobIDRaw", "JobName", "Submit", "Start", "End", "State", "AllocTRES", "ReqTRES", "Timelimit", "Priority", "QOS",
          "Account", "Partition", "User", "Elapsed", "NNodes")


class Job(NamedTuple):
    """Times in s since 1970; no ``start``: never placed, no ``end``: running."""

    number: int
    submit: int
    start: int | None
    end: int | None
    nodes: int
    gpus: int
    qos: str
    account: str


def jobs() -> list[Job]:
    """Jobs in order of submission, each started when enough GPUs are free in the whole cluster."""
    rng = np.random.default_rng(5)
    hours = np.sort(rng.choice(24 * DAYS, JOBS, p=_day()))
    free, running, clock, made = NODES * GPUS, [], 0, []
    for number, submit in enumerate(START + hours * 3600 + rng.integers(0, 3600, JOBS).astype(int)):
        gpus, nodes = [(0, 1), (1, 1), (2, 1), (4, 1), (8, 1), (16, 2), (32, 4)][rng.choice(7, p=[.08, .3, .15, .15, .2, .08, .04])]
        qos = str(rng.choice(["serve", "normal", "low"], p=[.2, .4, .4]))
        length = int(np.ceil(rng.lognormal(8.6, 1.1)))
        clock = max(clock, int(submit))
        while running and (running[0][0] <= clock or free < gpus):
            ended, held = heapq.heappop(running)
            clock, free = max(clock, ended), free + held
        heapq.heappush(running, (clock + length, gpus))
        free -= gpus
        end = clock + length
        made.append(Job(1000 + number, int(submit), clock, None if end > START + 86400 * DAYS else end, nodes, gpus, qos,
                        str(rng.choice(["vision", "language", "speech"]))))
    return sorted(made, key=lambda job: job.submit)


def _day() -> np.ndarray:
    """Twice as many arrivals from 9 to 18 o'clock."""
    weight = np.tile(np.where((np.arange(24) >= 9) & (np.arange(24) < 18), 2.0, 1.0), DAYS)
    return weight / weight.sum()


def sacct(words: list[str], epoch: bool) -> str:
    """What sacct prints for these options. Raises ValueError for what it would not understand."""
    options = dict(word.partition("=")[::2] for word in words)
    known = {"--allusers", "--parsable2", "--duplicates", "--starttime", "--endtime", "--format"}
    if set(options) - known or "--parsable2" not in options:
        raise ValueError(f"sacct: {' '.join(words)}")
    names = options["--format"].split(",")
    if set(names) - set(FIELDS):
        raise ValueError(f"sacct: Invalid field requested: {set(names) - set(FIELDS)}")
    lines = ["|".join(names)]
    for job in jobs():
        tres = f"cpu={max(1, job.gpus) * 4},gres/gpu={job.gpus},mem={max(1, job.gpus) * 16}G,node={job.nodes}"
        if not job.gpus:
            tres = tres.replace("gres/gpu=0,", "")
        state = "RUNNING" if job.end is None else "CANCELLED by 1001" if job.number % 9 == 0 else "COMPLETED"
        times = {name: _time(time, epoch) for name, time in (("Submit", job.submit), ("Start", job.start), ("End", job.end))}
        row = {"JobID": f"{job.number}", **times, "State": state, "AllocTRES": f"billing=4,{tres}", "ReqTRES": tres,
               "Timelimit": "1-00:00:00", "Priority": str(4_000 + job.number), "QOS": job.qos, "Account": job.account,
               "Partition": "gpu" if job.gpus else "cpu", "User": "u1"}
        lines.append("|".join(row.get(name, "") for name in names))
        step = row | {"JobID": f"{job.number}.batch", "ReqTRES": "", "QOS": "", "Partition": "", "Priority": "", "Timelimit": ""}
        lines.append("|".join(step.get(name, "") for name in names))
    return "\n".join(lines) + "\n"


def _time(seconds: int | None, epoch: bool) -> str:
    if seconds is None:
        return "Unknown"
    return str(seconds) if epoch else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def kubectl(words: list[str]) -> str:
    """What kubectl prints for ``get pods -A -o json`` and ``get nodes -o json``. Raises ValueError for anything else."""
    if words == ["get", "nodes", "-o", "json"]:
        return json.dumps({"kind": "List", "items": [_node(i) for i in range(NODES)]}, indent=1)
    if words == ["get", "pods", "-A", "-o", "json"]:
        return json.dumps({"kind": "List", "items": [pod for job in jobs() for pod in _pods(job)]}, indent=1)
    raise ValueError(f"kubectl: {' '.join(words)}")


def _node(number: int) -> dict:
    return {"kind": "Node", "metadata": {"name": f"n{number}", "labels": {"nvidia.com/gpu.product": "A100"}}, "spec": {},
            "status": {"allocatable": {"cpu": str(CORES), "memory": "527684096Ki", "nvidia.com/gpu": str(GPUS)}}}


def _pods(job: Job) -> list[dict]:
    """One pod for each node of a job."""
    owner = {"serve": "ReplicaSet", "normal": "PyTorchJob", "low": "Job"}[job.qos]
    iso = {name: None if time is None else datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
           for name, time in (("submit", job.submit), ("start", job.start), ("end", job.end))}
    status: dict = {"phase": "Running" if job.end is None else "Succeeded",
                    "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": iso["start"]}]}
    if job.end is not None:
        status["containerStatuses"] = [{"state": {"terminated": {"startedAt": iso["start"], "finishedAt": iso["end"]}}}]
    each = max(1, job.gpus) // job.nodes
    asked = {"cpu": str(4 * each), "memory": f"{16 * each}Gi", "nvidia.com/gpu": str(job.gpus // job.nodes)}
    return [{
        "kind": "Pod", "status": status,
        "metadata": {"name": f"j{job.number}-{i}", "namespace": job.account, "creationTimestamp": iso["submit"],
                     "ownerReferences": [{"kind": owner, "uid": f"uid-{job.number}", "controller": True}]},
        "spec": {"priority": {"serve": 1000, "normal": 500, "low": 0}[job.qos], "priorityClassName": job.qos,
                 "containers": [{"name": "main", "resources": {"requests": asked}}]},
    } for i in range(job.nodes)]


def main(words: list[str]) -> int:
    try:
        print(sacct(words[1:], os.environ.get("SLURM_TIME_FORMAT") == "%s") if words[0] == "sacct" else kubectl(words[1:]), end="")
    except (ValueError, KeyError, IndexError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
