"""Stage 2, replicas to placements: the job-level replay of the services and of the offline work between them, and what it says of each
replica: when it really ran, where, at which topology level, and when its model was loaded."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness import schema
from harness.cluster.outcome import Outcome
from harness.cluster.state import RUNNING, View
from harness.errors import BadInput
from harness.metrics.utilization import running_spans
from harness.topology import SERVER, Cluster
from harness.workload import load
from harness.workload.common import in_order
from harness.workload.services import expand

Array = np.ndarray


def offline_jobs(sections: Sequence[Mapping[str, Any]], cluster: Cluster, seed: int) -> list[pa.Table]:
    """The jobs of each generator, sized for ``cluster``; with several, names get the generator's number in front.

    Raises BadInput for a generator of requests.
    """
    made = []
    for number, section in enumerate(sections):
        table = load(section["generator"], section, cluster, seed)
        if "job_id" not in table.column_names:
            raise BadInput(f"colocation.offline[{number}].generator={section['generator']}: makes requests; it must make jobs")
        if len(sections) > 1:
            named = pc.binary_join_element_wise(pa.scalar(f"{number}-"), table["job_id"], "")
            table = table.set_column(table.column_names.index("job_id"), table.schema.field("job_id"), named)
        made.append(table.select(schema.names(schema.JOBS)))
    return made


def trace(services: pa.Table, offline: Sequence[pa.Table], end_s: float) -> pa.Table:
    """schema.JOBS and ``service``, by submit_time: a job for each stay of a wanted replica, and the offline jobs submitted before
    ``end_s``, whose service is null."""
    columns = schema.arrow_schema(schema.JOBS).append(pa.field("service", pa.string()))
    parts = []
    if pc.any(pc.greater(services["replicas"], 0)).as_py():
        parts.append(expand(services, end_s).select(columns.names))
    for table in offline:
        table = table.filter(pc.less(table["submit_time"], end_s))
        parts.append(table.append_column("service", pa.nulls(table.num_rows, pa.string())))
    if not sum(part.num_rows for part in parts):
        raise BadInput("colocation: nothing to place, neither replicas (colocation.autoscaler) nor offline work (colocation.offline)")
    return in_order([part.cast(columns) for part in parts])


def replicas_table(outcome: Outcome, load_s: float, drain_s: float) -> pa.Table:
    """schema.REPLICAS from a replay of ``trace``: every stay of a replica; its model is loaded after ``load_s``, if it stays so long.

    It stops taking requests ``drain_s`` before its job ends, or at once when it is evicted. One that runs at the end of the replay stays.
    Slots are numbered within a service: each stay takes the lowest that is free at its start. Levels
    are of the GPUs alone, since it is their links that count.
    """
    service = outcome.trace["service"].take(pa.array(outcome.order)).to_numpy(zero_copy_only=False)
    spans = running_spans(outcome)
    of_service = np.array([word is not None for word in service], bool)[spans.job]
    evicted = _evicted(outcome)
    jobs, instances = outcome.state.jobs, outcome.state.instances
    names = outcome.trace["job_id"].take(pa.array(outcome.order))
    rows: list[dict[str, Any]] = []
    for i in np.flatnonzero(of_service):
        job, start, stop = int(spans.job[i]), float(spans.since[i]), float(spans.until[i])
        seat = evicted.get((job, start))
        server, gpus = seat or (int(instances.ran_on[jobs.first_instance[job]]), int(instances.gpus[jobs.first_instance[job]]))
        still = seat is None and jobs.status[job] == RUNNING
        ended = "open" if still else "evicted" if seat is not None else "scale_in"
        ready = start + load_s if start + load_s < stop else np.nan
        stop = np.nan if still else stop
        drain = stop if still or seat is not None else np.fmax(ready, stop - drain_s)
        rows.append({"service": service[job], "job_id": names[job].as_py(), "start_time": start, "ready_time": ready, "drain_time": drain,
                     "stop_time": stop, "server": server, "level": schema.LEVELS[_level(outcome.state, server, gpus)], "ended": ended})
    rows.sort(key=lambda row: (row["service"], row["start_time"], row["job_id"]))
    for row, slot in zip(rows, _slots(rows), strict=True):
        row["replica"] = slot
    columns = {c.name: pa.array([row[c.name] for row in rows], c.type, from_pandas=True) for c in schema.REPLICAS}
    return pa.table(columns, schema=schema.arrow_schema(schema.REPLICAS))


def _slots(rows: Sequence[dict[str, Any]]) -> list[int]:
    """The lowest slot of its service that is free at the start of each row, which are by service and start."""
    found, until, service = [], [], None
    for row in rows:
        if row["service"] != service:
            service, until = row["service"], []
        slot = next((k for k, stop in enumerate(until) if stop <= row["start_time"]), len(until))
        if slot == len(until):
            until.append(0.0)
        until[slot] = np.inf if np.isnan(row["stop_time"]) else row["stop_time"]
        found.append(slot)
    return found


def _evicted(outcome: Outcome) -> dict[tuple[int, float], tuple[int, int]]:
    """Server and mask of GPUs of the first instance in each attempt that ended in an eviction, by job and start."""
    attempts, seats = outcome.log.attempts[: outcome.log.size[2]], outcome.log.seats[: outcome.log.size[4]]
    jobs, found, seat = outcome.state.jobs, {}, 0
    for job, start, _ in attempts:
        found[int(job), float(start)] = int(seats[seat, 0]), int(seats[seat, 1])
        seat += int(jobs.end_instance[int(job)] - jobs.first_instance[int(job)])
    return found


def _level(state: View, server: int, gpus: int) -> int:
    """Smallest level of a domain of the server that holds all GPUs of the mask."""
    shape = int(state.servers.shape_id[server])
    domains = state.domain[shape][: state.shapes.domains[shape]]
    return min((int(domain.level) for domain in domains if not gpus & ~int(domain.gpus)), default=SERVER)
