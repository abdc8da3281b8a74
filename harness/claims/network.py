"""What is published about placement above the server (Kueue's profiles, Dally) beside what was measured, and preemption for gangs.

specs/cluster-policies.md, Kueue-like admission and Consolidation for distributed training. Dally is a RECONSTRUCTION.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from harness import schema
from harness.claims.claim import Claim, Section, claim
from harness.figures.intervals import Interval, interval
from harness.figures.results import open_results
from harness.report_tables import Grid

DALLY, RIVALS, GANGS = "dally", "dally_rivals", "gang_preemption"
ALWAYS = 1_000_000_000
"""machine_s, s, of the scheduler that always waits to consolidate: the published baseline."""

TRIED = (600, 3600)
"""machine_s of the timers that were tried, s."""

FREE = (3, 3, 2, 1)
PODS = 7
"""Kueue's example: GPUs free on four servers, and instances of one GPU."""


def example(profile: str) -> list[int]:
    """Instances that each server of FREE is given under a profile of kueue_tas, in the order in which servers are chosen."""
    from harness.cluster.build import Rules
    from harness.cluster.hooks import load_policy
    from harness.cluster.replay import replay
    from harness.metrics import jobs_table
    from harness.topology import Cluster, ServerShape

    shapes = tuple(ServerShape(f"free-{s}", f"model-{s}", 2**30, (2**30,), (0,), (0,) * n) for s, n in enumerate(FREE))
    row = {column.name: column.default for column in schema.JOBS} | {
        "job_id": "gang", "submit_time": 0.0, "duration": 1.0, "duration_estimate_s": 1.0, "instances": PODS, "gpus": 1}
    trace = pa.Table.from_pylist([row], schema=schema.arrow_schema(schema.JOBS))
    servers = np.arange(len(FREE), dtype=np.int32)
    cluster = Cluster("example", shapes, servers, servers, servers)
    outcome = replay(trace, cluster, load_policy("kueue_tas", params={"profile": profile}), Rules())
    placed = jobs_table(outcome)["servers"].to_pylist()[0]
    return [placed.count(s) for s in dict.fromkeys(placed)]


def cells(folder: Path) -> pd.DataFrame:
    """machine_s, preempt, policy, network_mode, seed, makespan and mean JCT (s), and the communication overhead: running time beyond the
    jobs' durations that was neither lost nor restarting, over the durations, in GPU time."""
    rows = []
    for cell in open_results(folder).summary.itertuples():
        section = _config(folder / str(cell.cell))
        policy = section["policy"]
        rows.append({
            "policy": policy["name"], "machine_s": policy.get("machine_s"), "preempt": policy.get("preempt"), "seed": cell.seed,
            "network_mode": section["workload"]["network_mode"], "makespan_s": cell.makespan_s, "jct_s": cell.jct_s_mean,
            "overhead": overhead(folder / str(cell.cell) / "jobs.parquet"),
        })
    return pd.DataFrame(rows)


def _config(cell: Path) -> dict:
    import json

    return json.loads((cell / "manifest.json").read_text(encoding="utf-8"))["config"]


def overhead(path: Path) -> float:
    names = ["instances", "gpus", "gpu_milli", "duration", "jct_s", "queue_s", "lost_gpu_s", "restart_gpu_s", "status"]
    jobs = pq.read_table(path, columns=names).to_pandas()
    jobs = jobs[jobs["status"] == "finished"]
    gpus = jobs["instances"] * jobs["gpus"] * jobs["gpu_milli"] / schema.MILLI
    slow = gpus * (jobs["jct_s"] - jobs["queue_s"] - jobs["duration"]) - jobs["lost_gpu_s"] - jobs["restart_gpu_s"]
    return float(slow.sum() / (gpus * jobs["duration"]).sum())


def change(ours: pd.DataFrame, theirs: pd.DataFrame, metric: str) -> Interval:
    """Percent by which ``ours`` differs from ``theirs``, seed by seed."""
    both = ours.set_index("seed")[metric] / theirs.set_index("seed")[metric] - 1
    return interval(100 * both.to_numpy(dtype=float))


def claims(done: dict[str, Path]) -> list[Claim]:
    found = cells(done[DALLY]) if DALLY in done else None
    rivals = cells(done[RIVALS]) if RIVALS in done else None
    beside = {"makespan_s": "", "jct_s": ""}
    measured: dict[str, Interval | None] = {"makespan_s": None, "jct_s": None, "overhead": None}
    if found is not None:
        theirs = found[(found["machine_s"] == ALWAYS) & (found["preempt"] == "never")]
        for metric in ("makespan_s", "jct_s"):
            tried = [change(found[(found["machine_s"] == t) & (found["preempt"] == "consolidate")], theirs, metric) for t in TRIED]
            measured[metric] = min(tried, key=lambda one: one.mean)
        if rivals is not None:
            blind = rivals[(rivals["policy"] == "fifo_backfill") & (rivals["network_mode"] == "none")]
            last = found[(found["machine_s"] == TRIED[-1]) & (found["preempt"] == "consolidate")]
            beside = {metric: f"Against placement that is blind to the network: {change(last, blind, metric).mean:+.0f} %."
                      for metric in ("makespan_s", "jct_s")}
            tried = [change(found[(found["machine_s"] == t) & (found["preempt"] == "consolidate")], blind, "overhead") for t in TRIED]
            measured["overhead"] = min(tried, key=lambda one: one.mean)
    setup = ("Published as 'up to', on their traces, against schedulers of theirs. Synthetic gangs on 32 servers of 8 GPUs in racks of 4, "
             "assumed slowdowns by network tier, fixed timers, the better of 600 and 3,600 s. ")
    by_hand = "pytest tests/test_hand_worked_network.py"
    best, least = example("best_fit"), example("least_free")
    return [
        claim("kueue-best-fit", "kueue", "servers that BestFit uses for 7 pods with 3, 3, 2, 1 free (3 + 3 + 1)", "", 3, len(best),
              command=by_hand, setup_difference=f"Placed: {best}."),
        claim("kueue-least-free", "kueue", "servers that LeastFreeCapacity uses for 7 pods with 3, 3, 2, 1 free (1 + 2 + 3 + 1)", "", 4,
              len(least), command=by_hand, setup_difference=f"Placed: {least}."),
        claim("dally-makespan", "dally", "makespan against always waiting to consolidate", "%", -69.0, measured["makespan_s"],
              reconstruction=True, command=f"harness -m +experiment={DALLY}", setup_difference=setup + beside["makespan_s"]),
        claim("dally-jct", "dally", "mean JCT against always waiting to consolidate", "%", -83.0, measured["jct_s"], reconstruction=True,
              command=f"harness -m +experiment={DALLY}", setup_difference=setup + beside["jct_s"]),
        claim("dally-communication", "dally", "communication overhead against placement that is blind to the network", "%", -98.0,
              measured["overhead"], reconstruction=True, command=f"harness -m +experiment={RIVALS}", setup_difference=setup),
    ]


def sections(done: dict[str, Path]) -> list[Section]:
    sections = []
    if DALLY in done:
        grid = Grid(["policy", "evicts to sit closer", "makespan (h)", "mean JCT (h)",
                     "communication overhead (%)"], [], (0, 1))
        found = cells(done[DALLY])
        for (wait, preempt), rows in found.groupby(["machine_s", "preempt"]):
            waits = "always waits" if wait == ALWAYS else f"waits {wait:g} s for a server, then for a rack"
            grid.rows.append([f"dally (reconstruction), {waits}", "yes" if preempt == "consolidate" else "no", *_means(rows)])
        if RIVALS in done:
            for (policy, mode), rows in cells(done[RIVALS]).groupby(["policy", "network_mode"]):
                if policy == "kueue_tas" or mode == "none":
                    grid.rows.append([f"{policy}, rack {mode}" if mode != "none" else str(policy), "", *_means(rows)])
        sections.append(Section("Waiting to sit close", "\n".join([
            "Gangs that lose speed by distance (assumed), under the reconstruction of Dally and its rivals on the same jobs",
            f"(`harness -m +experiment={DALLY}`, `{RIVALS}`). Means over seeds.", "", grid.markdown()])))
    if GANGS in done:
        summary = open_results(done[GANGS]).summary
        metrics = ("jct_s_mean_training", "jct_s_mean_batch", "victims_per_placement", "lost_gpu_s", "subsets_tried_mean")
        grid = Grid(["policy", "mean JCT, sensitive (h)", "mean JCT, others (h)", "victims per placement", "lost GPU h",
                     "sets tried"], [], (0,))
        for policy, rows in summary.groupby("policy"):
            means = [rows[m].astype(float).mean() for m in metrics]
            texts = (f"{means[0] / 3600:.2f}", f"{means[1] / 3600:.2f}", f"{means[2]:.2f}", f"{means[3] / 3600:.0f}", f"{means[4]:.0f}")
            grid.rows.append([str(policy), *("-" if text == "nan" else text for text in texts)])
        sections.append(Section("Preemption for gangs across servers", "\n".join([
            "Gangs that prefer a rack evict others on a full cluster: the whole gang at once in the cheapest smallest domain",
            f"(domain_first_gang, ours), or instance by instance (`harness -m +experiment={GANGS}`). Means over seeds.", "",
            grid.markdown()])))
    return sections


def _means(rows: pd.DataFrame) -> list[str]:
    return [f"{rows['makespan_s'].mean() / 3600:.1f}", f"{rows['jct_s'].mean() / 3600:.2f}", f"{100 * rows['overhead'].mean():.1f}"]
