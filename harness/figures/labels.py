"""What a metric of ``summary`` is called on axes and in tables, its unit, and which way is better."""

import math
import re
from typing import NamedTuple

from harness.schema import KINDS, LEVELS


class Label(NamedTuple):
    """``scale`` turns the stored value into ``unit``; ``better`` is 1 (more), -1 (less) or 0 (neither)."""

    text: str
    unit: str
    better: int = 0
    scale: float = 1.0

    @property
    def axis(self) -> str:
        return f"{self.text} ({self.unit})" if self.unit else self.text


HOURS = 1 / 3600

LABELS = {
    "jobs": Label("jobs", ""),
    "jobs_finished": Label("jobs finished", "", 1),
    "jobs_rejected": Label("jobs rejected", "", -1),
    "jobs_waiting": Label("jobs left waiting", "", -1),
    "jobs_running": Label("jobs left running", ""),
    "jobs_expired": Label("jobs that ended unstarted", "", -1),
    "jobs_not_submitted": Label("jobs not submitted", ""),
    "events": Label("events", ""),
    "decisions": Label("preemption decisions", ""),
    "preempted": Label("victims", "", -1),
    "hit_rate_victims": Label("hit rate, victims", "%", 1, 100),
    "hit_rate_assigned": Label("hit rate, assigned", "%", 1, 100),
    "ran_share": Label("decisions that ran", "%", 1, 100),
    "useful_share": Label("GPUs placed per GPU freed", "%", 1, 100),
    "victims_per_placement": Label("victims per placement", "", -1),
    "subsets_tried_mean": Label("subsets tried, mean", "", -1),
    "search_wall_us_p50": Label("search time, median", "µs", -1),
    "lost_gpu_s_per_gpu_placed": Label("lost work per GPU placed", "GPU h", -1, HOURS),
    "lost_gpu_s": Label("lost work", "GPU h", -1, HOURS),
    "restart_gpu_s": Label("restart work", "GPU h", -1, HOURS),
    "goodput_gpu_s": Label("goodput", "GPU h", 1, HOURS),
    "shortfall_gpu_s": Label("shortfall", "GPU h", -1, HOURS),
    "grace_gpu_s": Label("grace periods", "GPU h", -1, HOURS),
    "claim_gpu_s": Label("claims", "GPU h", -1, HOURS),
    "gpu_alloc_mean": Label("GPUs allocated", "%", 1, 100),
    "gpu_busy_mean": Label("GPUs busy", "%", 1, 100),
    "cpu_alloc_mean": Label("cores allocated", "%", 0, 100),
    "fragmentation_mean": Label("fragmentation", "%", -1, 100),
    "quote_covered_p95": Label("waits within the quoted p95", "%", 0, 100),
    "quote_s_mean": Label("quoted wait, mean", "h", 0, HOURS),
    "quote_wait_s_mean": Label("wait of quoted jobs, mean", "h", -1, HOURS),
    "quote_unfeasible_share": Label("jobs called unfeasible", "%", 0, 100),
    "quote_safe_share": Label("queues quoted on the safe side", "%", 1, 100),
    "little_gap_max": Label("largest |L - λW| / L", ""),
    "energy_kwh": Label("energy", "kWh", -1),
    "offered_load": Label("offered load", ""),
    "guarantee_failed_share": Label("guaranteed hours that failed", "%", -1, 100),
    "quota_mean": Label("spot quota", "%", 0, 100),
    "capped": Label("victim searches cut to max_evictable", ""),
    "makespan_s": Label("makespan", "h", -1, HOURS),
    "wait_s_censored": Label("jobs that never started", "", -1),
    "unstable": Label("offered load > 1", ""),
    "requests": Label("requests", ""),
    "requests_finished": Label("requests finished", "", 1),
    "requests_rejected": Label("requests rejected", "", -1),
    "requests_waiting": Label("requests left waiting", "", -1),
    "requests_running": Label("requests left running", ""),
    "requests_expired": Label("requests that ended unstarted", "", -1),
    "requests_not_submitted": Label("requests not submitted", ""),
    "requests_dropped": Label("requests dropped", "", -1),
    "steps": Label("steps", ""),
    "throughput_rps": Label("throughput", "requests/s", 1),
    "output_tokens_s": Label("output", "tokens/s", 1),
    "busy_s_per_token": Label("replica time per output token", "ms", -1, 1e3),
    "goodput_rps": Label("goodput", "requests/s", 1),
    "slo_met_share": Label("objectives met", "%", 1, 100),
    "drain_ratio": Label("end over last arrival", "", -1),
    "preemptions": Label("preemptions", "", -1),
    "switches": Label("model switches", "", -1),
    "blocking_s_mean": Label("wait for a running prefill to pause, mean", "ms", -1, 1e3),
    "slo_violations": Label("objectives missed", "requests", -1),
    "goodput_gpu_s_offline": Label("offline goodput", "GPU h", 1, HOURS),
    "lost_gpu_s_offline": Label("offline work lost", "GPU h", -1, HOURS),
    "restart_gpu_s_offline": Label("offline restarts", "GPU h", -1, HOURS),
    "replica_wanted_s": Label("replicas wanted", "h", 0, HOURS),
    "replica_served_s": Label("replicas ready", "h", 1, HOURS),
    "replica_late_s": Label("replicas loading", "h", -1, HOURS),
    "replica_missing_s": Label("replicas missing", "h", -1, HOURS),
    "replicas_evicted": Label("replicas evicted", "", -1),
    **{f"replicas_{level}_share": Label(f"replicas' time at level {level}", "%", 0, 100) for level in LEVELS},
    "online_gpu_h": Label("GPU hours of replicas", "GPU h", -1),
    "offline_gpu_h": Label("GPU hours of offline work", "GPU h", 1),
    "cluster_gpu_h": Label("GPU hours of the cluster", "GPU h"),
    "cost_per_mtoken": Label("cost per million tokens", "", -1),
    "cost_per_offline_gpu_h": Label("cost per GPU h of offline goodput", "", -1),
    "batch_mean": Label("decode batch", "", 0),
    "busy_mean": Label("replicas busy", "%", 0, 100),
    "prefill_share": Label("time with prefill", "%", 0, 100),
    "decode_share": Label("time with decode", "%", 0, 100),
    "kv_used_mean": Label("KV cache used", "%", 0, 100),
    "prefix_hit_share": Label("prompt tokens reused", "%", 1, 100),
    "fairness_jain": Label("Jain's fairness", "", 1),
    "service_gap": Label("service gap", "", -1),
}

BY_TENANT = {"requests": "requests", "drain_rps": "throughput", "starved_share": "starved share", "slo_met_share": "objectives met",
             "slo_violations": "objectives missed"}
"""Metrics of a serving cell that come again with the tenant as suffix."""

LATENCIES = {
    "wait_s": Label("wait", "s", -1),
    "jct_s": Label("JCT", "s", -1),
    "slowdown": Label("slowdown", "", -1),
    "bounded_slowdown": Label("bounded slowdown", "", -1),
}

REQUEST_LATENCIES = {
    "queue_s": Label("queueing", "s", -1),
    "ttft_s": Label("time to first token", "s", -1),
    "decode_wait_s": Label("wait for decode", "s", -1),
    "tbt_mean_s": Label("mean time between tokens", "s", -1),
    "tbt_p99_s": Label("p99 time between tokens", "s", -1),
    "e2e_s": Label("end to end", "s", -1),
}
STATISTICS = {"mean": "mean", "p50": "median", "p95": "p95", "p99": "p99"}
_KIND = "|".join(KINDS)
_LATENCY = re.compile(rf"({'|'.join(LATENCIES)})_({'|'.join(STATISTICS)})(?:_({_KIND}))?")
_REQUEST = re.compile(rf"({'|'.join(REQUEST_LATENCIES)})_({'|'.join(STATISTICS)})(?:_(\w+))?")
_TENANT = re.compile(rf"({'|'.join(BY_TENANT)})_(\w+)")
_BY_KIND = re.compile(rf"(\w+?)_({_KIND})")


def label(metric: str) -> Label:
    """The label of any column of ``summary``; an unknown one keeps its name."""
    if metric in LABELS:
        return LABELS[metric]
    if found := _LATENCY.fullmatch(metric):
        kind, statistic, latency = found[3], STATISTICS[found[2]], LATENCIES[found[1]]
        return latency._replace(text=f"{kind or 'all'} {statistic} {latency.text}")
    if found := _REQUEST.fullmatch(metric):
        latency = REQUEST_LATENCIES[found[1]]
        return latency._replace(text=f"{found[3] or 'all'} {STATISTICS[found[2]]} {latency.text}")
    if found := _TENANT.fullmatch(metric):
        better = -1 if found[1] in ("starved_share", "slo_violations") else int(found[1] != "requests")
        return Label(f"{found[2]} {BY_TENANT[found[1]]}", "", better)
    if (found := _BY_KIND.fullmatch(metric)) and found[1] in LABELS:
        return LABELS[found[1]]._replace(text=f"{found[2]} {LABELS[found[1]].text}")
    return Label(metric, "")


def is_metric(column: str) -> bool:
    """Whether ``column`` is one of the metrics named here."""
    return label(column).text != column or column in LABELS


def number(value: float, digits: int = 3) -> str:
    """``value`` for people: ``digits`` significant ones at least, thousands separated; - when it is missing."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if value == int(value):
        text = f"{value:,.0f}"
    else:
        text = f"{value:,.{max(0, digits - 1 - size)}f}" if size >= -4 else f"{value:.{digits - 1}e}"
    return text.replace("-", "\N{MINUS SIGN}")
