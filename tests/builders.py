"""Small builders for cases worked by hand, and one way to play a case and look at what came of it."""

import textwrap
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

from engine_run import RULES, cluster_of, trace_of
from harness import schema
from harness.cluster import replay as replaying
from harness.cluster.build import Rules
from harness.cluster.hooks import Policy, load_policy
from harness.cluster.outcome import Outcome
from harness.cluster.state import Own, View
from harness.metrics import check_identities, jobs_table, preemptions_table, summary, utilization_table
from harness.metrics.utilization import running_spans
from naive import DEFAULTS
from twin import differences, starts


def job(job_id: str, at: float, runs: float, gpus: int = 1, **columns: Any) -> dict[str, Any]:
    """A trace row: submitted at ``at``, running for ``runs`` seconds; every other column has its default."""
    row = {column.name: column.default for column in schema.JOBS}
    row |= {"job_id": job_id, "submit_time": float(at), "duration": float(runs), "duration_estimate_s": float(runs), "gpus": gpus}
    assert set(columns) <= set(row), f"unknown columns {set(columns) - set(row)}"
    return row | columns


def server(gpus: int = 1, numa: int = 1, sockets: int = 1, cores: int = 8, **more: Any) -> dict[str, Any]:
    """A server whose GPUs and sockets are spread evenly over its NUMA nodes of ``cores`` cores each."""
    return {
        "gpu_model": "A", "memory_mib": 100, "numa_cores": [cores] * numa,
        "numa_socket": [n * sockets // numa for n in range(numa)], "gpu_numa": [i * numa // gpus for i in range(gpus)],
        "nvlink": [], "rack": 0, "spine": 0,
    } | more


@dataclass(frozen=True)
class Played:
    """What came of a case; ``own`` is what the policy wrote."""

    outcome: Outcome
    servers: list[dict[str, Any]]
    own: Own

    @cached_property
    def jobs(self) -> dict[str, dict[str, Any]]:
        return {row["job_id"]: row for row in jobs_table(self.outcome).to_pylist()}

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The preemptions table."""
        return preemptions_table(self.outcome).to_pylist()

    @property
    def starts(self) -> list[tuple[float, str]]:
        """(time, job_id) of every attempt."""
        return starts(self.outcome)

    def runs(self, job_id: str) -> list[tuple[float, float]]:
        """From and until of each attempt of a job."""
        spans, index = running_spans(self.outcome), self.index(job_id)
        return [(float(a), float(b)) for j, a, b in zip(spans.job, spans.since, spans.until, strict=True) if j == index]

    def index(self, job_id: str) -> int:
        row = self.outcome.trace["job_id"].to_pylist().index(job_id)
        return self.outcome.order.tolist().index(row)

    def gpus(self, job_id: str) -> list[list[int]]:
        """GPUs of each instance in its last attempt."""
        jobs, instances = self.outcome.state.jobs, self.outcome.state.instances
        index = self.index(job_id)
        masks = instances.gpus[jobs.first_instance[index]:jobs.end_instance[index]]
        return [[g for g in range(62) if int(mask) >> g & 1] for mask in masks]

    def cores(self, job_id: str) -> list[list[int]]:
        """Exclusive cores by NUMA node of each instance in its last attempt."""
        jobs, index = self.outcome.state.jobs, self.index(job_id)
        return self.outcome.state.instance_cores[jobs.first_instance[index]:jobs.end_instance[index]].tolist()

    @cached_property
    def summary(self) -> dict[str, Any]:
        utilization = utilization_table(self.outcome)
        return summary(self.outcome, cluster_of(self.servers), jobs_table(self.outcome), utilization)


def play(jobs: list[dict], servers: list[dict], policy: str | Path | Policy = "fifo_backfill", **options: Any) -> Played:
    """Replays a case under a policy of the folder, which must then agree with its twin, under a policy file, or under a policy.

    ``options`` are those of ``naive.replay``, and for a policy file its parameters too.
    """
    if isinstance(policy, str):
        found = differences(jobs, servers, options, policy)
        assert not found, "\n".join(found)
    known = {**DEFAULTS, **{name: value for name, value in options.items() if name in DEFAULTS}}
    if isinstance(policy, str):
        policy = load_policy(policy, params={name: known[name] for name in load_policy(policy).params})
    elif isinstance(policy, Path):
        policy = load_policy(file=str(policy), params={name: value for name, value in options.items() if name not in DEFAULTS})
    written: list[Own] = []

    def keep(policy: Policy, view: View) -> Own:
        written.append(fresh(policy, view))
        return written[0]

    fresh = Policy.own
    with mock.patch.object(Policy, "own", keep):
        outcome = replaying.replay(trace_of(jobs), cluster_of(servers), policy, Rules(**{name: known[name] for name in RULES}))
    check_identities(outcome)
    return Played(outcome, servers, written[0])


def policy_file(folder: Path, name: str, source: str) -> Path:
    """A policy file with this source, written into ``folder``."""
    path = folder / f"{name}.py"
    path.write_text(textwrap.dedent(source).strip() + "\n", encoding="utf-8")
    return path
