"""What the recipes of co-location answer: users, batch owners and cost by policy, and where topology awareness pays in tokens."""

from pathlib import Path

import pandas as pd

from harness.claims.claim import Section
from harness.figures.intervals import across_seeds, paired
from harness.figures.labels import label, number
from harness.figures.results import open_results
from harness.figures.settings import key_columns
from harness.figures.style import in_order
from harness.report_tables import Grid, spread

ANSWERS = ("slo_met_share", "slo_violations", "ttft_s_p50", "ttft_s_p99", "tbt_p99_s_p99", "lost_gpu_s_offline", "goodput_gpu_s_offline",
           "replicas_server_share", "online_gpu_h", "cost_per_mtoken", "cost_per_offline_gpu_h")
PAID = ("slo_met_share", "ttft_s_p99", "lost_gpu_s_offline", "goodput_gpu_s_offline")
AWARE, BLIND = "domain_first", "godel"
ABOUT = {
    "colocation_azure": ("The real Azure hour on 64 servers", (
        "Both services of the public trace four times over (106,000 requests counted, the first five minutes left out), Yi-34B on four RTX "
        "4090 each, on 64 servers of the FlexTopo paper that offline work fills. Objectives: first token within 2 s, 99th percentile "
        "between tokens within 0.2 s. Offline work has no checkpoints (batch) or one each half hour (training); a GPU hour costs 1.")),
    "colocation_day": ("A day of co-location", (
        "A synthetic day (lengths and burstiness fitted to the Azure trace, the course of the day assumed) on six such servers.")),
}


def sections(done: dict[str, Path]) -> list[Section]:
    """One section for each recipe that was run."""
    found = []
    for recipe, (title, about) in ABOUT.items():
        if recipe in done:
            summary = open_results(done[recipe]).summary
            lines = [f"{about} Means over seeds with 95 % intervals (`harness -m +experiment={recipe}`).", "",
                     by_policy(summary).markdown(), "", against(summary)]
            found.append(Section(title, "\n".join(lines)))
    if "colocation_pays" in done:
        about = (
            "Ten minutes of requests on twelve servers of three shapes with the same GPU (A100 on PCIe, or with NVSwitch in the DGX), "
            f"Qwen-14B on two or four of them, and two bandwidths between sockets: {AWARE} against {BLIND}, paired by seed (`harness -m "
            "+experiment=colocation_pays`). Where NVSwitch reaches every GPU the level costs nothing; where replicas of four cards never "
            "fit a socket there is nothing to choose.")
        table = where(open_results(done["colocation_pays"]).summary).markdown()
        found.append(Section("Where topology awareness pays in tokens", f"{about}\n\n{table}"))
    return found


def by_policy(summary: pd.DataFrame) -> Grid:
    """Answers by policy."""
    policies = in_order(list(summary["policy"]))
    grid = Grid(["", *policies], [], (0,))
    for metric in ANSWERS:
        means = across_seeds(summary, metric).set_index("policy")
        cells = [spread(label(metric), *means.loc[p, ["mean", "ci_low", "ci_high"]].astype(float)) if p in means.index else "-"
                 for p in policies]
        grid.rows.append([label(metric).axis, *cells])
    return grid


def against(summary: pd.DataFrame) -> str:
    """One line: what the topology-aware policy changes for users and batch owners against the blind one, paired by seed."""
    told = []
    for metric in ("slo_violations", "lost_gpu_s_offline"):
        rows = paired(summary, metric, AWARE, BLIND)
        if len(rows):
            row, scale = rows.iloc[0], label(metric).scale
            ends = ", ".join(number(scale * float(row[c])) for c in ("ci_low", "ci_high"))
            told.append(f"{label(metric).axis} {scale * float(row['difference']):+,.1f} [{ends}], {row['verdict']}")
    return f"{AWARE} against {BLIND}, paired by seed: {'; '.join(told)}."


def where(summary: pd.DataFrame) -> Grid:
    """Differences by setting."""
    keys = [key for key in key_columns(summary) if summary[key].nunique(dropna=False) > 1]
    rows = [paired(summary, metric, AWARE, BLIND, keys) for metric in PAID]
    names = {"cluster": "servers", "pool.tp": "cards of a replica", "colocation.links.cross_socket_gbs": "GB/s between sockets"}
    grid = Grid([*(names.get(key, key) for key in keys), *(label(metric).axis for metric in PAID)], [], (0,))
    for i in range(len(rows[0])):
        cells = []
        for metric, found in zip(PAID, rows, strict=True):
            row, scale = found.iloc[i], label(metric).scale
            difference = float(row["difference"]) * scale
            cells.append("0" if row["verdict"] == "no difference" and difference == 0 else f"{difference:+.3g} ({row['verdict']})")
        grid.rows.append([*(str(rows[0].iloc[i][key]) for key in keys), *cells])
    return grid
