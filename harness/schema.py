"""Every table of the harness, once: column, type, unit, meaning, default.

Times are float64 seconds. A column with a default may be missing from a trace; a nullable one may hold nulls.
Columns that a table does not name are carried through unchanged.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

KINDS = ("batch", "online", "training")
AFFINITIES = ("none", "best_effort", "guaranteed")
AFFINITY_DOMAINS = ("auto", "numa", "nvlink", "socket", "server")
NETWORK_DOMAINS = ("none", "rack", "spine")
NETWORK_MODES = ("none", "preferred", "required")
PINNINGS = ("packed", "first_free", "spread")
LEVELS = ("numa", "nvlink", "socket", "server")
NETWORK_LEVELS = ("server", "rack", "spine", "cluster")
STATUSES = ("finished", "rejected", "waiting", "running", "expired", "not_submitted")
REQUEST_STATUSES = (*STATUSES, "dropped")

MILLI = 1000
"""GPUs and cores are counted in thousandths."""


class Required:
    """Marks a column without which a trace is refused."""


@dataclass(frozen=True)
class Column:
    """One column: Arrow type, unit, meaning, default when it is missing, and the values it may take.

    ``low`` and ``high`` bound numbers inclusively (``above`` exclusively from below); ``values`` lists the words
    of a string column. A string default that names another column copies that column.
    """

    name: str
    type: pa.DataType
    meaning: str
    unit: str = ""
    default: Any = Required
    nullable: bool = False
    low: float | None = None
    above: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()
    unique: bool = False

    @property
    def required(self) -> bool:
        return self.default is Required


Table = tuple[Column, ...]

F8, I8, I4, I2, STRING, BOOL = pa.float64(), pa.int64(), pa.int32(), pa.int16(), pa.string(), pa.bool_()
WORDS = pa.list_(pa.string())

INSTANCE: Table = (
    Column("gpus", I2, "GPUs of each instance", "GPUs", low=0),
    Column("gpu_milli", I2, "share of each GPU", "1/1000 GPU", default=1000, low=1, high=1000),
    Column("cpus", F8, "cores of each instance", "cores", default=0.0, low=0),
    Column("memory_mib", I8, "memory of each instance", "MiB", default=0, low=0),
    Column("priority", I4, "higher wins", default=0),
    Column("preemptible", BOOL, "may be evicted", default=False),
    Column("affinity", STRING, "how much its topology level matters", default="none", values=AFFINITIES),
    Column("affinity_domain", STRING, "largest domain a guaranteed instance accepts", default="auto", values=AFFINITY_DOMAINS),
    Column("gpu_model", STRING, "allow-list of GPU models, separated by |; null = any", default=None, nullable=True),
    Column("kind", STRING, "class of workload", default="batch", values=KINDS),
    Column("tenant", STRING, "who submitted it", default="", nullable=True),
    Column("checkpoint_interval_s", F8, "null: an eviction loses the attempt; 0: nothing; c: back to the last multiple of c",
           "s", default=None, nullable=True, low=0),
    Column("restart_cost_s", F8, "running time without progress at the start of each attempt but the first", "s", default=0.0, low=0),
    Column("network_domain", STRING, "domain above the server that should hold the whole gang", default="none", values=NETWORK_DOMAINS),
    Column("network_mode", STRING, "whether that domain is required or preferred", default="none", values=NETWORK_MODES),
)

JOBS: Table = (
    Column("job_id", STRING, "name", unique=True),
    Column("submit_time", F8, "arrival", "s", low=0),
    Column("duration", F8, "running time at speed 1", "s", above=0),
    Column("duration_estimate_s", F8, "what the user says it takes", "s", default="duration", above=0),
    Column("end_time", F8, "when it ends whatever its progress", "s", default=None, nullable=True),
    Column("instances", I4, "instances of the gang", "instances", default=1, low=1),
    *INSTANCE,
)

SERVICES: Table = (
    Column("service", STRING, "name"),
    Column("time", F8, "when the number of replicas changes", "s", low=0),
    Column("replicas", I4, "replicas wanted from then on", "instances", low=0),
    *INSTANCE,
)

REQUESTS: Table = (
    Column("request_id", STRING, "name", unique=True),
    Column("arrival_time", F8, "arrival", "s", low=0),
    Column("prompt_tokens", I4, "prompt length", "tokens", low=1),
    Column("output_tokens", I4, "output length", "tokens", low=1),
    Column("service", STRING, "service asked", default="", nullable=True),
    Column("tenant", STRING, "who asks", default="", nullable=True),
    Column("ttft_slo_s", F8, "objective for the time to first token", "s", default=None, nullable=True, above=0),
    Column("tbt_slo_s", F8, "objective for the time between tokens", "s", default=None, nullable=True, above=0),
    Column("prefix_hashes", pa.list_(I8), "hashes of the prompt's prefix blocks", default=None, nullable=True),
)

RESULT_JOBS: Table = (
    Column("first_start", F8, "start of the first attempt", "s", nullable=True),
    Column("finish_time", F8, "end; null while it runs or waits", "s", nullable=True),
    Column("wait_s", F8, "first_start - submit_time; the waiting so far when it never started", "s", nullable=True),
    Column("queue_s", F8, "all time not running since submit_time", "s", nullable=True),
    Column("jct_s", F8, "job completion time, finish_time - submit_time", "s", nullable=True),
    Column("slowdown", F8, "jct_s / duration", nullable=True),
    Column("bounded_slowdown", F8, "max(1, jct_s / max(duration, 10 s))", nullable=True),
    Column("evictions", I4, "times it was evicted"),
    Column("goodput_gpu_s", F8, "GPUs x progress kept", "GPU s"),
    Column("lost_gpu_s", F8, "GPUs x progress lost to evictions", "GPU s"),
    Column("restart_gpu_s", F8, "GPUs x restarting time", "GPU s"),
    Column("shortfall_gpu_s", F8, "GPUs x the part of [submit_time, end_time) in which it did not run", "GPU s"),
    Column("level", STRING, "topology level of its worst instance in the last attempt", nullable=True, values=LEVELS),
    Column("servers", pa.list_(I4), "server of each instance in the last attempt"),
    Column("status", STRING, "how it ended", values=STATUSES),
    Column("reason", STRING, "why it was rejected", nullable=True),
)

RESULT_REQUESTS: Table = (
    Column("request_id", STRING, "name"),
    Column("service", STRING, "service asked", nullable=True),
    Column("arrival_time", F8, "arrival", "s"),
    Column("prompt_tokens", I4, "prompt length", "tokens"),
    Column("output_tokens", I4, "output length", "tokens"),
    Column("start_time", F8, "its prefill first began", "s", nullable=True),
    Column("first_token_time", F8, "its first token was made", "s", nullable=True),
    Column("finish_time", F8, "its last token was made", "s", nullable=True),
    Column("queue_s", F8, "start_time - arrival_time; the waiting so far when it never started", "s", nullable=True),
    Column("ttft_s", F8, "time to first token, first_token_time - arrival_time", "s", nullable=True),
    Column("tbt_mean_s", F8, "mean time between its tokens", "s", nullable=True),
    Column("tbt_p99_s", F8, "99th percentile of the times between its tokens", "s", nullable=True),
    Column("e2e_s", F8, "finish_time - arrival_time", "s", nullable=True),
    Column("preemptions", I4, "times it lost its place, or its prefill was paused"),
    Column("replica", I4, "replica it last was on", nullable=True),
    Column("slo_met", BOOL, "finished within its objectives; null: it has none", nullable=True),
    Column("status", STRING, "how it ended", values=REQUEST_STATUSES),
    Column("reason", STRING, "why it was rejected or dropped", nullable=True),
)

PREFIXES: Table = (
    Column("cached_tokens", I4, "prompt tokens that the prefill which made its first token had from a prefix store", "tokens"),
)
"""Further column of RESULT_REQUESTS with pool.prefix_cache_gb."""

REPLICAS: Table = (
    Column("service", STRING, "service that it serves"),
    Column("job_id", STRING, "job of the services trace that runs it"),
    Column("replica", I4, "slot of the service's pool: replicas that are there at one time have different ones", low=0),
    Column("start_time", F8, "it was placed on its server and began to load its model", "s", low=0),
    Column("ready_time", F8, "it takes requests from then on; null: it went before its model was loaded", "s", nullable=True, low=0),
    Column("drain_time", F8, "it takes no more requests from then on; null: not during the replay", "s", nullable=True),
    Column("stop_time", F8, "it is gone; null: not during the replay", "s", nullable=True),
    Column("server", I4, "server that it runs on", low=0),
    Column("level", STRING, "smallest topology level that holds its GPUs", nullable=True, values=LEVELS),
    Column("ended", STRING, "why it went", values=("scale_in", "evicted", "open")),
)
"""Where and when replicas of services ran: a row for each stay. Input of the serving half, for which the columns replica, ready_time,
drain_time, stop_time and level count."""

DEMAND: Table = (
    Column("service", STRING, "service asked"),
    Column("time", F8, "when the autoscaler looked", "s", low=0),
    Column("load", F8, "replica seconds that the requests of the window before ask for, per second", "replicas", low=0),
    Column("recommended", I4, "replicas that would bring the utilization to its target", "replicas", low=0),
    Column("wanted", I4, "replicas wanted from then on, before the delays", "replicas", low=0),
)

PREEMPTIONS: Table = (
    Column("decision_id", I8, "decisions counted from 0"),
    Column("time", F8, "when it was taken", "s"),
    Column("job_id", STRING, "preemptor"),
    Column("server", I4, "server on which victims free claimed resources, or the lowest of a preemptor that was short of quota"),
    Column("victims", WORDS, "evicted jobs that hold something on this server, or (first row) on none of the preemptor's; in trace order"),
    Column("victims_n", I4, "their number"),
    Column("victim_priority_sum", I8, "sum of their priorities"),
    Column("gpus_needed", F8, "GPUs the preemptor claims on this server", "GPUs"),
    Column("gpus_freed", F8, "GPUs the victims held on this server", "GPUs"),
    Column("gpus_freed_elsewhere", F8, "GPUs the decision's victims held on servers without a row; first row only", "GPUs"),
    Column("cpus_freed", F8, "cores the victims held on this server", "cores"),
    Column("level_victims", STRING, "smallest level that holds all the victims held there", nullable=True, values=LEVELS),
    Column("hit_victims", BOOL, "level_victims is not server", nullable=True),
    Column("level_assigned", STRING, "smallest level that holds all the preemptor was given there", nullable=True, values=LEVELS),
    Column("hit_assigned", BOOL, "level_assigned is not server", nullable=True),
    Column("ran", BOOL, "the claim became a start"),
    Column("lost_gpu_s", F8, "work the decision's victims lost; first row only", "GPU s"),
    Column("subsets_tried", I8, "victim sets whose feasibility was tested, in the whole decision"),
    Column("servers_scanned", I8, "servers looked at beyond the aggregate filter, in the whole decision"),
    Column("search_wall_us", F8, "wall-clock time of the victim search", "us"),
)

UTILIZATION: Table = (
    Column("t_start", F8, "start of the interval", "s"),
    Column("t_end", F8, "end of the interval", "s"),
    Column("gpu_alloc", F8, "mean GPUs held, claims and grace included", "GPUs"),
    Column("gpu_busy", F8, "mean GPUs of running jobs", "GPUs"),
    Column("gpu_alloc_online", F8, "of gpu_alloc, held by online jobs", "GPUs"),
    Column("gpu_alloc_batch", F8, "of gpu_alloc, held by batch jobs", "GPUs"),
    Column("gpu_alloc_training", F8, "of gpu_alloc, held by training jobs", "GPUs"),
    Column("cpu_alloc", F8, "mean cores held", "cores"),
    Column("queue_len", F8, "mean waiting jobs", "jobs"),
    Column("queue_gpus", F8, "mean GPUs of waiting jobs", "GPUs"),
    Column("running_jobs", F8, "mean running jobs", "jobs"),
)

TIMELINE: Table = (
    Column("t_start", F8, "start of the interval", "s"),
    Column("t_end", F8, "end of the interval", "s"),
    Column("load", F8, "mean load of all services", "replicas"),
    Column("wanted", F8, "mean replicas that the services trace asks for", "replicas"),
    Column("ready", F8, "mean replicas with their model loaded", "replicas"),
    Column("gpu_online", F8, "mean GPUs held by replicas", "GPUs"),
    Column("gpu_offline", F8, "mean GPUs held by batch and training", "GPUs"),
    Column("victims", I8, "offline jobs evicted"),
    Column("requests", I8, "requests that arrive"),
    Column("ttft_p99_s", F8, "99th percentile of their time to first token; inf: more than 1 % never had one", "s", nullable=True),
    Column("violations", I8, "of those, requests that missed their objectives"),
)

FRAGMENTATION: Table = (Column("fragmentation", F8, "mean of FGD's F / free GPUs"),)
ENERGY: Table = (Column("energy_kwh", F8, "energy that the servers' GPUs and sockets draw", "kWh"),)
"""Further columns of UTILIZATION, with metrics.fragmentation=true and metrics.energy=true."""

QUOTE_WORDS = ("quotable", "unfeasible", "unknown")

QUOTES: Table = (
    Column("quote", STRING, "whether its wait could be bounded at submission; unknown: too few jobs of its queue came before",
           values=QUOTE_WORDS),
    Column("quote_s", F8, "quoted mean wait", "s", nullable=True),
    Column("quote_p95_s", F8, "quoted 95th percentile of the wait", "s", nullable=True),
)
"""Further columns of RESULT_JOBS with metrics.quotes=true (a reconstruction)."""

QUEUES: Table = (
    Column("tenant", STRING, "the queue; all: without quotas"),
    Column("jobs", I8, "jobs submitted to it and not rejected"),
    Column("quota_gpus", F8, "its quota", "GPUs"),
    Column("k_eff", F8, "mean over its jobs of the effective servers", nullable=True),
    Column("offered_servers", F8, "mean over its jobs of lambda E[S]", nullable=True),
    Column("quoted", I8, "jobs with a quote"),
    Column("unfeasible", I8, "jobs whose wait has no bound"),
    Column("quote_s_mean", F8, "quoted mean wait, mean over the jobs with a quote", "s", nullable=True),
    Column("wait_s_mean", F8, "mean wait of the same jobs", "s", nullable=True),
    Column("quote_p95_s_mean", F8, "quoted 95th percentile, mean over the same jobs", "s", nullable=True),
    Column("wait_s_p95", F8, "95th percentile of their waits", "s", nullable=True),
    Column("covered_p95", F8, "share of them that waited at most the quoted 95th percentile", nullable=True),
    Column("arrival_rate", F8, "jobs over the length of the replay (lambda)", "1/s"),
    Column("queue_s_mean", F8, "mean time not running of all its jobs (W)", "s"),
    Column("queue_len_mean", F8, "time mean of its jobs that do not run (L)", "jobs"),
    Column("little_gap", F8, "|L - lambda W| / L"),
)

ARRIVALS: Table = (
    Column("arrived", F8, "GPUs that the jobs so far ask for, over those of the cluster"),
    Column("allocated", F8, "GPUs that running jobs hold, over those of the cluster"),
    Column("fragmented", F8, "GPUs that the typical instance could not use (FGD's F), over those of the cluster"),
    Column("watts", F8, "what the servers' GPUs and sockets draw", "W"),
)

SERVING_UTILIZATION: Table = (
    Column("t_start", F8, "start of the interval", "s"),
    Column("t_end", F8, "end of the interval", "s"),
    Column("busy", F8, "share of the replicas' time in steps and prefill operations"),
    Column("prefill", F8, "share of the replicas' time in steps and operations that prefill"),
    Column("decode", F8, "share of the replicas' time in steps that decode"),
    Column("batch", F8, "mean decode members of a replica, 0 while it makes no tokens", "requests"),
    Column("kv_used", F8, "mean share of the KV blocks in use in steps and operations, 0 outside them"),
    Column("prefill_tokens", F8, "prompt tokens prefilled in steps", "tokens/s"),
    Column("output_tokens", F8, "tokens made in steps by decode members", "tokens/s"),
    Column("queue_len", F8, "mean requests that have not started", "requests"),
    Column("present", F8, "mean requests that have arrived and not finished", "requests"),
)

TRACES: dict[str, tuple[str, Table]] = {
    "jobs": ("job_id", JOBS),
    "services": ("replicas", SERVICES),
    "requests": ("request_id", REQUESTS),
}
"""Kind of trace -> (the column it is known by, its table)."""


def arrow_schema(table: Table) -> pa.Schema:
    """The Arrow schema of ``table``, its units and meanings as field metadata."""
    return pa.schema([
        pa.field(c.name, c.type, metadata={"unit": c.unit, "meaning": c.meaning}) for c in table
    ])


def names(table: Table) -> list[str]:
    return [c.name for c in table]
