"""Results folders that look like those of a sweep, drawn at random instead of replayed: enough to try figures and reports on."""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa

from harness.figures.settings import mix_of, random_hit_rate
from harness.schema import JOBS, PREEMPTIONS, RESULT_JOBS, UTILIZATION, arrow_schema
from harness.tables import write_table

AWARE = ("flextopo_exhaustive", "flextopo_imp", "domain_first", "domain_first_cost")
PREEMPTING = ("godel", "kubernetes", "volcano_topology", "random_victim", *AWARE)
SUBSETS = {"flextopo_exhaustive": 25_500, "flextopo_imp": 3_600, "domain_first": 420, "domain_first_cost": 450}
LABELS = {"cluster": "rtx4090_x100", "workload": "paper_mix", "policy": "", "pinning": "packed", "seed": 0}
GPUS = 800


def make_sweep(
    folder: Path,
    policies: Sequence[str] = ("godel", "flextopo_imp", "domain_first"),
    seeds: Sequence[int] = range(10),
    settings: Sequence[dict] = ({},),
    jobs: int = 120,
    failing: Sequence[int] = (),
) -> Path:
    """Writes a sweep to ``folder``: every policy, seed and setting (override columns), summary.parquet and a folder for each cell.

    Cells whose position is in ``failing`` have an error and no folder.
    """
    rows = []
    overrides = list(dict.fromkeys(key for setting in settings for key in setting if key not in LABELS))
    for setting in settings:
        for policy in policies:
            for seed in seeds:
                row = {**LABELS, "policy": policy, "seed": seed, **dict.fromkeys(overrides), **setting}
                cell = sha256(repr(row).encode()).hexdigest()[:24]
                if len(rows) in failing:
                    rows.append({**row, "status": "failed", "error": "policy <b>broke</b> a guarantee", "cell": cell})
                else:
                    rows.append({**row, **write_cell(folder / cell, row, jobs), "status": "ok", "error": None, "cell": cell})
    last = ("status", "error", "cell")
    names = [*dict.fromkeys(key for row in sorted(rows, key=len, reverse=True) for key in row if key not in last), *last]
    write_table(pa.Table.from_pylist([{n: row.get(n) for n in names} for row in rows]), folder / "summary.parquet")
    return folder


def write_summary(folder: Path, rows: Sequence[dict]) -> Path:
    """Writes a results folder that has these rows of a summary (policy, seed, overrides, metrics) and no tables of cells."""
    folder.mkdir(parents=True)
    whole = [{**LABELS, **row, "cell": f"c{i}", "jobs": 1, "status": "ok", "error": None} for i, row in enumerate(rows)]
    write_table(pa.Table.from_pylist(whole), folder / "summary.parquet")
    return folder


def write_cell(folder: Path, row: dict, n: int) -> dict[str, float | None]:
    """Writes the tables of one cell and returns its metrics."""
    shape = np.random.default_rng([row["seed"], 1])
    rng = np.random.default_rng([row["seed"], *row["policy"].encode()])
    load = float(row.get("workload.batch_load") or row.get("workload.load") or row.get("load") or 1.0)
    jobs, preemptions, utilization = job_table(shape, rng, row, n, load), decision_table(rng, row, n // 3), usage_table(rng, load)
    for name, table in (("jobs", jobs), ("preemptions", preemptions), ("utilization", utilization)):
        write_table(table, folder / f"{name}.parquet")
    metrics = metrics_of(jobs, preemptions, utilization)
    (folder / "summary.json").write_text(json.dumps(metrics), encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps({"seed": row["seed"], "versions": {"harness": "0.1.0"}}), encoding="utf-8")
    return metrics


def job_table(shape: np.random.Generator, rng: np.random.Generator, row: dict, n: int, load: float) -> pa.Table:
    """Online jobs start soon, batch and training ones wait the longer the higher the load."""
    kind = shape.choice(["batch", "online", "training"], n, p=[0.7, 0.2, 0.1])
    submit, duration = np.sort(shape.uniform(0, 86_400, n)), shape.exponential(3600, n) + 1
    typical = load**2 * np.where(kind == "online", 4.0 if row["policy"] in AWARE else 9.0, 900.0 * load)
    wait = np.where(shape.random(n) < 0.3, 0.0, shape.exponential(1.0, n) * typical * rng.uniform(0.95, 1.05, n))
    if row["policy"] not in PREEMPTING:
        wait = np.where(kind == "online", wait * 60, wait)
    status = np.where(shape.random(n) < 0.04, "waiting", "finished")
    done, lost = status == "finished", np.where(kind == "batch", rng.exponential(400, n), 0.0)
    jct, cards = wait + duration + lost, np.where(kind == "online", 2, 1)
    columns = {
        "job_id": [f"job-{i}" for i in range(n)], "submit_time": submit, "duration": duration, "duration_estimate_s": duration,
        "instances": np.ones(n, np.int32), "gpus": cards, "gpu_milli": np.full(n, 1000), "cpus": 7.0 * cards,
        "memory_mib": np.zeros(n, np.int64), "priority": np.where(kind == "online", 80, 60), "preemptible": kind != "online",
        "affinity": ["best_effort"] * n, "affinity_domain": ["auto"] * n, "kind": kind, "tenant": [""] * n, "restart_cost_s": np.zeros(n),
        "network_domain": ["none"] * n, "network_mode": ["none"] * n, "first_start": np.where(done, submit + wait, np.nan),
        "finish_time": np.where(done, submit + jct, np.nan), "wait_s": wait, "queue_s": wait, "jct_s": np.where(done, jct, np.nan),
        "slowdown": np.where(done, jct / duration, np.nan), "bounded_slowdown": np.where(done, np.maximum(1, jct / duration), np.nan),
        "evictions": (lost > 600).astype(np.int32), "goodput_gpu_s": cards * duration - lost / 2, "lost_gpu_s": lost,
        "restart_gpu_s": np.zeros(n), "shortfall_gpu_s": np.zeros(n), "level": ["numa"] * n, "servers": [[0]] * n, "status": status,
    }
    return typed(columns, (*JOBS, *RESULT_JOBS), n)


def decision_table(rng: np.random.Generator, row: dict, n: int) -> pa.Table:
    """Hit rates as theory has them: blind search hits as random victims do, topology-aware search always."""
    aware, n = row["policy"] in AWARE, n if row["policy"] in PREEMPTING else 0
    rate = 1.0 if aware else random_hit_rate(mix_of(row))
    hit, assigned = rng.random(n) < rate, rng.random(n) < min(1.0, rate + 0.1)
    tried = rng.poisson(SUBSETS.get(row["policy"], 800), n) + 1
    columns = {
        "decision_id": np.arange(n), "time": np.sort(rng.uniform(0, 86_400, n)), "job_id": [f"job-{i}" for i in range(n)],
        "server": rng.integers(0, 100, n), "victims": [["a", "b"]] * n, "victims_n": np.full(n, 2),
        "victim_priority_sum": np.full(n, 120), "gpus_needed": np.full(n, 2.0), "gpus_freed": np.full(n, 2.0),
        "gpus_freed_elsewhere": np.zeros(n), "cpus_freed": np.full(n, 14.0), "level_victims": np.where(hit, "socket", "server"),
        "hit_victims": hit, "level_assigned": np.where(assigned, "socket", "server"), "hit_assigned": assigned,
        "ran": rng.random(n) < (1.0 if aware else 0.8), "lost_gpu_s": rng.exponential(1800, n) * 2, "subsets_tried": tried,
        "servers_scanned": np.full(n, 100), "search_wall_us": tried * 0.03 * rng.lognormal(0, 0.3, n) + 5,
    }
    return typed(columns, PREEMPTIONS, n)


def usage_table(rng: np.random.Generator, load: float) -> pa.Table:
    """A day in 200 intervals: online follows the day, batch fills the valley."""
    edges = np.linspace(0, 86_400, 201)
    online = 220 + 140 * np.sin((edges[:-1] / 86_400 - 0.4) * 2 * np.pi) + rng.normal(0, 5, 200)
    training = np.full(200, 120.0)
    batch = np.clip(GPUS - online - training, 0, 500 * load) * rng.uniform(0.96, 1, 200)
    held, queue = online + training + batch, np.maximum(0, np.cumsum(rng.normal(0.3 * load, 2, 200)))
    columns = {
        "t_start": edges[:-1], "t_end": edges[1:], "gpu_alloc": held, "gpu_busy": held * 0.985, "gpu_alloc_online": online,
        "gpu_alloc_batch": batch, "gpu_alloc_training": training, "cpu_alloc": 7 * held, "queue_len": queue, "queue_gpus": queue * 1.3,
        "running_jobs": held / 1.3,
    }
    return typed(columns, UTILIZATION, 200)


def metrics_of(jobs: pa.Table, preemptions: pa.Table, utilization: pa.Table) -> dict[str, float | None]:
    """The main metrics, by the plainest arithmetic; None for what only decisions have."""
    j, p = jobs.to_pandas(), preemptions.to_pandas()
    found: dict[str, float | None] = {"jobs": len(j), "jobs_finished": (j["status"] == "finished").sum(),
                                         "jobs_rejected": 0, "decisions": len(p)}
    if len(p):
        ran = p["ran"].mean()
        found |= {
            "preempted": p["victims_n"].sum(), "hit_rate_victims": p["hit_victims"].mean(), "hit_rate_assigned": p["hit_assigned"].mean(),
            "ran_share": ran, "useful_share": 0.9 * ran, "victims_per_placement": 2 / ran, "subsets_tried_mean": p["subsets_tried"].mean(),
            "search_wall_us_p50": p["search_wall_us"].median(), "lost_gpu_s_per_gpu_placed": p["lost_gpu_s"].mean() / 2 / ran,
        }
    found |= {name: j[name].sum() for name in ("lost_gpu_s", "restart_gpu_s", "goodput_gpu_s", "shortfall_gpu_s")}
    found |= {"gpu_busy_mean": np.mean(utilization["gpu_busy"]) / GPUS, "makespan_s": j["finish_time"].max(), "wait_s_censored": 0}
    for kind, rows in j.groupby("kind"):
        found |= {f"wait_s_mean_{kind}": rows["wait_s"].mean(), f"wait_s_p99_{kind}": rows["wait_s"].quantile(0.99),
                  f"jct_s_mean_{kind}": rows["jct_s"].mean(), f"queue_s_mean_{kind}": rows["queue_s"].mean(),
                  f"goodput_gpu_s_{kind}": rows["goodput_gpu_s"].sum()}
    return {k: float(v) for k, v in found.items() if v is not None}


def typed(columns: dict, table: tuple, n: int) -> pa.Table:
    """The columns in the types of a table of the schema, nulls for nullable ones that are not given."""
    schema = arrow_schema(table)
    assert set(columns) <= set(schema.names)
    return pa.table({f.name: pa.array(columns.get(f.name, [None] * n), f.type, from_pandas=True) for f in schema}, schema=schema)
