"""The stages one after the other, each of whose tables may also come from a file that an earlier run wrote."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness import schema
from harness.cluster.build import Rules
from harness.cluster.hooks import Policy as ClusterPolicy
from harness.cluster.replay import replay
from harness.colocation import autoscale, placements
from harness.colocation.answers import answers, placed, served
from harness.colocation.links import on_links
from harness.colocation.settings import Settings
from harness.colocation.timeline import timeline
from harness.colocation.tokens import tokens
from harness.metrics import jobs_table, preemptions_table, summary, utilization_table
from harness.serving.hooks import Policy as ServingPolicy
from harness.serving.models import load_s
from harness.serving.pool import Pool
from harness.tables import checked, read_parquet, read_trace
from harness.topology import Cluster

INTERVALS = 144
"""Rows of the timeline: ten minutes each for a day."""

END_S = 60.0
"""The cluster is looked at up to a multiple of this after the last arrival."""

FROM_CLUSTER = ("jobs_rejected", "decisions", "preempted", "hit_rate_victims", "hit_rate_assigned", "ran_share", "useful_share",
                "victims_per_placement", "lost_gpu_s_per_gpu_placed", "subsets_tried_mean", "search_wall_us_p50", "gpu_alloc_mean",
                "gpu_busy_mean", "offered_load", "wait_s_mean_online", "wait_s_p99_online", "wait_s_mean_batch", "lost_gpu_s",
                "restart_gpu_s", "goodput_gpu_s", "shortfall_gpu_s", "grace_gpu_s", "claim_gpu_s", "capped")
"""Metrics of the job-level replay that a co-located cell has too."""


class Joined(NamedTuple):
    """The tables of the stages that were run, by name, their metrics, and facts for the manifest."""

    tables: dict[str, pa.Table]
    metrics: dict[str, Any]
    about: dict[str, Any]


class World(NamedTuple):
    """What all stages share: ``cluster``, the cluster that offline work is sized for, rules, pool, and both policies."""

    cluster: Cluster
    reference: Cluster
    rules: Rules
    pool: Pool
    policy: ClusterPolicy
    serving: ServingPolicy


def run(requests: pa.Table, settings: Settings, world: World, seed: int, interval_s: float | None = None, warmup_s: float = 0.0,
        progress: Callable[[int, int], None] | None = None) -> Joined:
    """All stages up to ``settings.until``, beginning behind the one whose table ``settings`` names a file for.

    The clock of the requests begins at ``settings.start_s``. Raises BadInput and InvalidIntention.
    """
    requests = shifted(requests, settings.start_s)
    end_s = END_S * float(np.ceil((requests["arrival_time"].to_numpy()[-1] + 1e-9) / END_S))
    pool, tables, metrics, about = on_links(world.pool, world.cluster, settings.links), {}, {}, {"events": 0}
    if settings.replicas:
        replicas, jobs, outcome = checked(read_parquet(settings.replicas), schema.REPLICAS, settings.replicas), pa.table({}), None
    else:
        if settings.services:
            services = read_trace(settings.services, "services")
        else:
            tables["demand"] = autoscale.demand(requests, pool, settings.autoscaler, settings.start_s, end_s)
            services = autoscale.services(tables["demand"], settings.autoscaler, settings.instance(pool.tp), pool.tp)
            tables["services"] = services
        if settings.until == "demand":
            return Joined(tables, {"requests": requests.num_rows}, about)
        work = placements.offline_jobs(settings.offline, world.reference, seed)
        trace = placements.trace(services, work, end_s)
        outcome = replay(trace, world.cluster, world.policy, replace(world.rules, horizon_s=end_s), progress)
        jobs, cut = jobs_table(outcome), min(warmup_s, end_s)
        utilization = utilization_table(outcome, interval_s, cut)
        loading = load_s(pool.model, pool.gpu, pool.tp, settings.storage_gbs)
        replicas = placements.replicas_table(outcome, loading, settings.autoscaler.drain_s)
        tables |= {"jobs": jobs, "preemptions": preemptions_table(outcome), "utilization": utilization, "replicas": replicas}
        whole = summary(outcome, world.cluster, jobs, utilization, cut)
        metrics |= {name: whole[name] for name in FROM_CLUSTER} | placed(replicas, jobs, world.cluster.gpus, end_s)
        about |= {"events": outcome.events, "capped_servers": outcome.capped, "model_load_s": loading}
        if settings.until == "placements":
            return Joined(tables, metrics, about)
    tables["requests"], tables["serving"] = tokens(requests, replicas, pool, world.serving, seed, interval_s, warmup_s, progress)
    if outcome is not None:
        metrics |= answers(tables["requests"], replicas, jobs, world.cluster.gpus, end_s, settings.prices, warmup_s)
        usage = utilization_table(outcome, (end_s - settings.start_s) / INTERVALS, settings.start_s)
        tables["timeline"] = timeline(tables, usage, end_s)
    else:
        metrics |= served(tables["requests"], warmup_s)
    return Joined(tables, metrics, about | {"kv_blocks": pool.blocks})


def shifted(requests: pa.Table, by: float) -> pa.Table:
    """The requests, all ``by`` seconds later."""
    at = requests.column_names.index("arrival_time")
    return requests.set_column(at, requests.schema.field(at), pc.add(requests["arrival_time"], by))
