"""What each half makes of a configuration: the job-level replay on a cluster, or the request-level replay on a pool of replicas.

The kind of the workload decides: a trace of requests goes to the serving half, everything else to the cluster half. With a section
``colocation`` requests go through both: the cluster places the replicas that serve them, and the policy is one of the cluster's.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness import schema
from harness.errors import BadInput
from harness.tables import TraceFile, write_table
from harness.topology import Cluster, build, parse

Report = Callable[[int, int, int], None]
"""Is told events, arrivals, and rows of the trace."""

Made = tuple[dict[str, Any], dict[str, Any]]
"""The metrics of a cell, and facts for its manifest."""

CLUSTER_TIES = "instants: finish, end of grace, tick, arrival, by index; queue: key, submit_time, index; servers: lowest index"
SERVING_TIES = "instants: steps by replica, operations and moves, tick, arrivals, by index; queues: key, index; replicas: lowest index"


def replay_into(folder: Path, config: Mapping[str, Any], inputs: Mapping[str, str], report: Report | None) -> Made:
    """Replays a configuration and writes its tables into ``folder``; ``inputs`` are the hashes of its files.

    Raises BadInput or InvalidIntention.
    """
    from harness.workload import stream

    workload = dict(config["workload"])
    source = stream(workload.pop("generator"), workload)
    if source is not None:
        return (_streamed if source.kind == "jobs" else _served)(folder, config, source, report)
    sections = json.dumps([config["cluster"], config["workload"], inputs], sort_keys=True)
    cluster, trace = _load(sections, config["seed"])
    half = _serving if "request_id" in trace.column_names else _cluster
    if config["colocation"]:
        if half is _cluster:
            raise BadInput("colocation: needs a workload of requests, for instance workload=requests; jobs go to colocation.offline")
        half = _colocated
    return half(folder, config, cluster, trace, report)


def _cluster(folder: Path, config: Mapping[str, Any], cluster: Cluster, trace: pa.Table, report: Report | None) -> Made:
    from harness.cluster.replay import replay
    from harness.metrics import (
        arrivals_table,
        history,
        jobs_table,
        preemptions_table,
        quote_metrics,
        summary,
        utilization_table,
        with_energy,
        with_fragmentation,
        with_quotes,
    )

    policy, rules = _policy(config["policy"], serves=False), _rules(config)
    began = time.perf_counter()
    outcome = replay(trace, cluster, policy, rules, report and (lambda events, arrived: report(events, arrived, trace.num_rows)))
    replayed = time.perf_counter() - began
    jobs = jobs_table(outcome)
    utilization = utilization_table(outcome, config["interval_s"], config["warmup_s"])
    tables, measured = {"jobs": jobs, "preemptions": preemptions_table(outcome)}, config["metrics"]
    if measured["fragmentation"] or measured["energy"]:
        found = history(outcome, cluster)
        utilization = with_fragmentation(utilization, outcome, found) if measured["fragmentation"] else utilization
        utilization = with_energy(utilization, found) if measured["energy"] else utilization
        tables["arrivals"] = arrivals_table(outcome, found)
    metrics = summary(outcome, cluster, jobs, utilization, config["warmup_s"])
    if measured["quotes"]:
        tables["jobs"], tables["queues"] = with_quotes(jobs, outcome, cluster, dict(config["policy"]))
        metrics |= quote_metrics(tables["queues"])
    _write(folder, {**tables, "utilization": utilization})
    return metrics, _cluster_facts(outcome, cluster, replayed)


def _streamed(folder: Path, config: Mapping[str, Any], source: TraceFile, report: Report | None) -> Made:
    """The job-level half for a trace that is read block by block."""
    from harness.stream import replay_to_files

    for name, wanted in config["metrics"].items():
        if wanted:
            raise BadInput(f"metrics.{name}=true: needs the whole replay at once; not with a trace that is streamed")
    cluster = _built(json.dumps(config["cluster"], sort_keys=True))
    done = replay_to_files(source, cluster, _policy(config["policy"], serves=False), _rules(config), folder, config["warmup_s"],
                           config["interval_s"], report and (lambda events, arrived: report(events, arrived, source.rows)))
    _write(folder, {"utilization": done.utilization})
    return done.metrics, _cluster_facts(done.outcome, cluster, done.replay_s)


def _serving(folder: Path, config: Mapping[str, Any], cluster: Cluster, trace: pa.Table, report: Report | None) -> Made:
    """The request-level half: the pool takes the cluster's place."""
    from harness.metrics.requests import requests_table
    from harness.metrics.serving import serving_summary, serving_utilization
    from harness.serving.pool import parse as parse_pool
    from harness.serving.replay import replay

    pool, policy, horizon = parse_pool(config["pool"]), _policy(config["policy"], serves=True), config["horizon_s"]
    tell = report and (lambda events, arrived: report(events, arrived, trace.num_rows))
    began = time.perf_counter()
    outcome = replay(trace, pool, policy, config["seed"], np.inf if horizon is None else horizon, tell)
    replayed = time.perf_counter() - began
    utilization = serving_utilization(outcome, config["interval_s"], config["warmup_s"])
    _write(folder, {"requests": requests_table(outcome), "utilization": utilization})
    return serving_summary(outcome, utilization, config["warmup_s"]), _serving_facts(outcome, pool, replayed)


def _served(folder: Path, config: Mapping[str, Any], source: TraceFile, report: Report | None) -> Made:
    """The request-level half for a trace that is read block by block."""
    from harness.serving.pool import parse as parse_pool
    from harness.stream import serve_to_files

    pool, horizon = parse_pool(config["pool"]), config["horizon_s"]
    done = serve_to_files(source, pool, _policy(config["policy"], serves=True), folder, config["seed"],
                          np.inf if horizon is None else horizon, config["warmup_s"], config["interval_s"],
                          report and (lambda events, arrived: report(events, arrived, source.rows)))
    _write(folder, {"utilization": done.utilization})
    return done.metrics, _serving_facts(done.outcome, pool, done.replay_s)


def _colocated(folder: Path, config: Mapping[str, Any], cluster: Cluster, trace: pa.Table, report: Report | None) -> Made:
    """Both halves, joined by tables."""
    from harness.colocation.settings import parse as parse_settings
    from harness.colocation.stages import World, run
    from harness.serving.pool import parse as parse_pool

    settings, pool = parse_settings(config["colocation"]), parse_pool(config["pool"])
    servers = settings.offline_servers
    reference = cluster if servers is None else _built(json.dumps({**config["cluster"], "servers": servers}, sort_keys=True))
    world = World(cluster, reference, _rules(config), pool, _policy(config["policy"], serves=False), _policy(settings.serving, serves=True))
    began = time.perf_counter()
    joined = run(trace, settings, world, config["seed"], config["interval_s"], config["warmup_s"],
                 report and (lambda events, arrived: report(events, arrived, trace.num_rows)))
    _write(folder, joined.tables)
    about = {"tie_rules": f"{CLUSTER_TIES}; {SERVING_TIES}", "cluster_notes": list(cluster.notes), **joined.about,
             "replay_wall_s": round(time.perf_counter() - began, 6)}
    return joined.metrics, about


def _write(folder: Path, tables: Mapping[str, pa.Table]) -> None:
    for name, table in tables.items():
        write_table(table, folder / f"{name}.parquet")


def _serving_facts(outcome: Any, pool: Any, replayed: float) -> dict[str, Any]:
    return {"tie_rules": SERVING_TIES, "events": outcome.events, "kv_blocks": pool.blocks, "replay_wall_s": round(replayed, 6)}


def _cluster_facts(outcome: Any, cluster: Cluster, replayed: float) -> dict[str, Any]:
    return {"tie_rules": CLUSTER_TIES, "events": outcome.events, "capped_servers": outcome.capped, "cluster_notes": list(cluster.notes),
            "replay_wall_s": round(replayed, 6)}


@lru_cache(maxsize=4)
def _built(section: str) -> Cluster:
    cluster = build(parse(json.loads(section)))
    for line in cluster.notes:
        print(f"cluster {cluster.name}: {line}", file=sys.stderr)
    return cluster


@lru_cache(maxsize=4)
def _load(sections: str, seed: int) -> tuple[Cluster, pa.Table]:
    """The cluster and the trace: cells of a sweep that share them load them once."""
    from harness.workload import load

    cluster_section, workload_section, _ = json.loads(sections)
    cluster = _built(json.dumps(cluster_section, sort_keys=True))
    workload_section = dict(workload_section)
    return cluster, load(workload_section.pop("generator"), workload_section, cluster, seed)


def _policy(section: Mapping[str, Any], serves: bool) -> Any:
    """The policy of a section with its parameters; with a file, those of the policy whose place it takes are left out."""
    if serves:
        from harness.serving.hooks import declared_params, load_policy
    else:
        from harness.cluster.hooks import declared_params, load_policy
    params = {key: value for key, value in section.items() if key not in ("name", "file")}
    if section.get("file"):
        own = declared_params(None, section["file"])
        try:
            replaced = declared_params(section["name"], None)
        except BadInput:  # the policy whose place the file takes is of the other half
            replaced = params
        params = {key: value for key, value in params.items() if key in own or key not in replaced}
    return load_policy(section["name"], section.get("file"), params)


def _rules(config: Mapping[str, Any]) -> Any:
    from harness.cluster.build import Rules

    preemption, horizon = config["preemption"], config["horizon_s"]
    return Rules(config["pinning"], preemption["grace_s"], preemption["min_runtime_s"], preemption["max_evictable"],
                 np.inf if horizon is None else horizon, config["seed"], _speeds(config))


def _speeds(config: Mapping[str, Any]) -> dict[tuple[str, str | None, str], float]:
    speeds: dict[tuple[str, str | None, str], float] = {}
    for kind in schema.KINDS:
        for network in schema.NETWORK_LEVELS:
            far = config["network_speed"][kind][network]
            speeds[kind, None, network] = far
            for level in schema.LEVELS:
                speeds[kind, level, network] = config["speed"][kind][level] * far
    return speeds
