"""Comparison tables: every policy by setting, and every policy against a baseline, paired by seed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from harness.figures.intervals import PAIRED, across_seeds, compared, paired
from harness.figures.results import Results
from harness.figures.settings import NotDrawn, key_columns
from harness.figures.style import in_order
from harness.schema import KINDS

DECISIONS = (
    "hit_rate_victims",
    "hit_rate_assigned",
    "ran_share",
    "useful_share",
    "victims_per_placement",
    "lost_gpu_s_per_gpu_placed",
    "subsets_tried_mean",
)
WAITS = tuple(f"wait_s_{statistic}_{kind}" for kind in ("online", "batch", "training") for statistic in ("mean", "p99"))
JCTS = tuple(f"jct_s_mean_{kind}" for kind in ("online", "batch", "training"))
WORK = ("lost_gpu_s", "restart_gpu_s", "shortfall_gpu_s", "goodput_gpu_s", "goodput_gpu_s_batch", "gpu_busy_mean")
SERVING = (
    "queue_s_mean", "queue_s_p99", "ttft_s_mean", "ttft_s_p99", "tbt_mean_s_mean", "tbt_p99_s_mean", "e2e_s_mean", "e2e_s_p99",
    "throughput_rps", "goodput_rps", "slo_met_share", "fairness_jain", "queue_s_p99_short", "drain_rps_short", "e2e_s_mean_long",
    "starved_share_long",
)
COLOCATED = (
    "slo_violations", "goodput_gpu_s_offline", "lost_gpu_s_offline", "restart_gpu_s_offline", "replica_missing_s", "replica_late_s",
    "replicas_socket_share", "replicas_server_share", "online_gpu_h", "cost_per_mtoken", "cost_per_offline_gpu_h",
)

POLICY_METRICS = ("decisions", *DECISIONS, "search_wall_us_p50", "guarantee_failed_share", "quota_mean", *WAITS, *JCTS,
                  "wait_s_censored", *WORK, "makespan_s", *SERVING, *COLOCATED, "drain_ratio", "preemptions", "switches", "batch_mean",
                  "kv_used_mean")
PAIRED_METRICS = (*DECISIONS, *WAITS, *WORK, *SERVING, *COLOCATED)
BASELINES = ("godel", "kubernetes", "priority", "fifo", "long_fifo", "fcfs")
COUNTS = ("jobs_compared", "jobs_left_out")


def by_policy(summary: pd.DataFrame, metrics: Sequence[str] = POLICY_METRICS) -> pd.DataFrame:
    """One row for each setting, policy and metric that has values: keys, policy, metric, mean, ci_low, ci_high, seeds; stored units."""
    keys = key_columns(summary)
    there = [m for m in metrics if m in summary and summary[m].notna().any()]
    parts = [across_seeds(summary, metric, [*keys, "policy"]) for metric in there]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=pd.Index([*keys, "policy", "metric"]))


def with_batch_goodput(results: Results) -> Results:
    """The same results whose summary also has goodput_gpu_s_batch, summed from the jobs of each cell; nan for one without jobs."""
    if "goodput_gpu_s_batch" in results.summary:
        return results
    sums = []
    for position in range(len(results.summary)):
        try:
            jobs = results.table("jobs", ("kind", "goodput_gpu_s"), results.summary.iloc[[position]])
            sums.append(float(jobs.loc[jobs["kind"] == "batch", "goodput_gpu_s"].sum()))
        except NotDrawn:
            sums.append(np.nan)
    return replace(results, summary=results.summary.assign(goodput_gpu_s_batch=sums))


def default_baseline(summary: pd.DataFrame) -> str | None:
    """The policy that the others are compared with: the first of BASELINES that was run, else the first; None for a single policy."""
    there = in_order(list(summary["policy"]))
    if len(there) < 2:
        return None
    return next((p for p in BASELINES if p in there), there[0])


def against(results: Results, baseline: str) -> tuple[pd.DataFrame, str]:
    """All policies against ``baseline`` in every setting: keys, columns of ``intervals.paired``, then jobs_compared and jobs_left_out.

    Metrics of the summary cover the same jobs under every policy. Mean JCT and slowdown by kind cover the jobs that finished under
    both policies: these counts, summed over seeds, say how many those are and how many were left out. The text says why the latter
    are missing, "" when they are there.
    """
    summary, keys = results.summary, key_columns(results.summary)
    parts, reason = [], ""
    for policy in in_order(list(summary["policy"])):
        if policy == baseline:
            continue
        for metric in PAIRED_METRICS:
            if metric in summary and summary.loc[summary["policy"] == policy, metric].notna().any():
                parts.append(paired(summary, metric, policy, baseline, keys))
        try:
            if results.holds("jobs") or not results.holds("requests"):
                parts.append(finished_under_both(results, policy, baseline))
        except NotDrawn as missing:
            reason = str(missing)
    parts = [part for part in parts if len(part)]
    columns = pd.Index([*keys, *PAIRED, *COUNTS])
    return (pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()).reindex(columns=columns), reason


def finished_under_both(results: Results, policy: str, baseline: str) -> pd.DataFrame:
    """Differences in mean JCT and slowdown by kind over the jobs that finished under both policies with the same setting and seed."""
    keys = key_columns(results.summary)
    cells = results.summary[[*keys, "policy", "seed", "cell"]]
    if "warmup_s" in results.summary and "warmup_s" not in cells:
        cells = cells.assign(warmup_s=results.summary["warmup_s"])
    pairs = cells[cells["policy"] == policy].merge(cells[cells["policy"] == baseline], on=[*keys, "seed"], suffixes=("", "_baseline"))
    rows = []
    for names, group in pairs.groupby(keys, dropna=False, sort=False, observed=True) if keys else [((), pairs)]:
        means: dict[tuple[str, str], list[tuple[float, float, int, int]]] = {}
        for _, pair in group.iterrows():
            both = _both_finished(results, pair)
            for kind in KINDS:
                mine = both[both["kind"] == kind]
                done = mine[mine["both"]]
                for metric in ("jct_s", "slowdown"):
                    if len(done):
                        values = (done[metric].mean(), done[f"{metric}_baseline"].mean(), len(done), len(mine) - len(done))
                        means.setdefault((metric, kind), []).append(values)
        for (metric, kind), values in means.items():
            ours, theirs, count, left = (np.array(v, dtype=float) for v in zip(*values, strict=True))
            row = compared(f"{metric}_mean_{kind}", policy, baseline, ours, theirs, ours - theirs)
            rows.append((*names, *row, int(count.sum()), int(left.sum())))
    return pd.DataFrame(rows, columns=pd.Index([*keys, *PAIRED, *COUNTS]))


def _both_finished(results: Results, pair: pd.Series) -> pd.DataFrame:
    """Jobs of two cells side by side, ``both`` true for those that finished in both."""
    columns = ("job_id", "kind", "status", "jct_s", "slowdown")
    arms = []
    for suffix in ("", "_baseline"):
        cell = pair.drop(labels=["policy", "cell"]).to_dict() | {"policy": pair[f"policy{suffix}"], "cell": pair[f"cell{suffix}"]}
        arms.append(results.table("jobs", columns, pd.DataFrame([cell]))[list(columns)])
    both = arms[0].merge(arms[1], on="job_id", suffixes=("", "_baseline"))
    return both.assign(both=(both["status"] == "finished") & (both["status_baseline"] == "finished"))
