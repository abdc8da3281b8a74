"""FlowPrefill (arXiv 2602.16603) against each of its baselines: whole prompts, chunks, and pauses between layers.

Public notes on the paper name DistServe, which prefills whole prompts first come first served, as what the goodput of up to 5.6 x is
over, and pauses between layers as what blocking is 3.5 to 4.2 x lower than. We have not read it, so every baseline has its row.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.claims.claim import Claim, Section, claim
from harness.claims.switching import roofline_s
from harness.figures import goodput_load
from harness.figures.intervals import interval
from harness.figures.labels import number
from harness.figures.results import open_results
from harness.report_tables import Grid
from harness.serving.speed import HAS_PREFILL, LARGEST, ONE, PAIRS, PROMPTS, TOKENS

ATTAINMENT = 0.9
"""Share of requests that must meet their objectives at a load that counts as goodput."""

RATE = "workload.rate"
GOODPUT, BLOCKING = 5.6, (3.5, 4.2)
"""Published: up to; between."""

SETUP = ("Shares and lengths of the classes are ours, the objectives theirs; Llama-3-8B on one A100 by the roofline. Goodput is the "
         f"highest load at which {ATTAINMENT:.0%} meet their objectives. ")
CHUNKS = (512, 2048, 8192)
KINDS = {
    "fcfs": "FCFS, whole prompts", "edf": "EDF, whole prompts, without preemption",
    **{f"fcfs-{chunk}": f"FCFS, chunks of {chunk:,} tokens" for chunk in CHUNKS},
    **{f"edf-{chunk}": f"EDF, chunks of {chunk:,} tokens, paused between them" for chunk in CHUNKS},
}
"""The baselines: policy, and tokens of a chunk; without them whole prompts."""


def knee(cells: pd.DataFrame) -> float:
    """The highest load at which ATTAINMENT of the requests meet their objectives, linear between the loads that were run; 0 if none."""
    cells = cells.sort_values(RATE)
    at, share = cells[RATE].to_numpy(dtype=float), cells["slo_met_share"].to_numpy(dtype=float)
    below = np.flatnonzero(share < ATTAINMENT)
    if not len(below):
        return float(at[-1])
    i = int(below[0])
    if i == 0:
        return float(at[0] * max(share[0], 0.0) / ATTAINMENT)
    return float(at[i - 1] + (share[i - 1] - ATTAINMENT) / (share[i - 1] - share[i]) * (at[i] - at[i - 1]))


def cells_of(done: dict[str, Path]) -> pd.DataFrame:
    """The cells of ``flowprefill`` and, where they were run, of ``flowprefill_chunks``; ``kind`` is flowprefill or one of KINDS."""
    whole = open_results(done["flowprefill"]).summary
    parts = [whole.assign(kind=whole["policy"])]
    if "flowprefill_chunks" in done:
        chunks = open_results(done["flowprefill_chunks"]).summary
        parts.append(chunks.assign(kind=chunks["policy"] + "-" + chunks["pool.chunk"].astype(int).astype(str)))
    return pd.concat(parts, ignore_index=True)


def goodputs(cells: pd.DataFrame) -> pd.DataFrame:
    """Goodput (requests/s) by seed (rows) and kind (columns)."""
    return pd.DataFrame({str(kind): {seed: knee(of) for seed, of in rows.groupby("seed")} for kind, rows in cells.groupby("kind")})


def waits(cells: pd.DataFrame, rate: float = 1.0) -> pd.DataFrame:
    """Mean wait of the tightest class (s) at ``rate`` by seed (rows) and kind (columns)."""
    return cells[cells[RATE] == rate].pivot(index="seed", columns="kind", values="queue_s_mean_text")


def chunk_s(tokens: int) -> float:
    """Seconds of a step that prefills the first ``tokens`` of a prompt and nothing else, on the pool of the recipes."""
    return roofline_s("a100", "llama3_8b", {ONE: 1, HAS_PREFILL: 1, PROMPTS: 1, TOKENS: tokens, PAIRS: 0.5 * tokens**2, LARGEST: tokens})


def claims(done: dict[str, Path]) -> Iterator[Claim]:
    """The claims whose recipes are among ``done``."""
    if "flowprefill" in done:
        cells = cells_of(done)
        rates, waited = goodputs(cells), waits(cells)
        times = ", ".join(f"{number(chunk_s(chunk), 2)} s" for chunk in CHUNKS)
        chunked = f"{SETUP}A chunk of {', '.join(map(str, CHUNKS))} tokens takes {times}; the tightest objective is 0.25 s. "
        for kind in (kind for kind in KINDS if kind in rates):
            command = f"harness -m +experiment=flowprefill{'_chunks' if '-' in kind else ''}"
            name = "flowprefill-goodput" + ("" if kind == "fcfs" else f"-{kind}")
            yield claim(name, "flowprefill", f"goodput over {KINDS[kind]}, up to", "x", GOODPUT,
                        interval((rates["flowprefill"] / rates[kind]).to_numpy()), command=command,
                        setup_difference=chunked if "-" in kind else SETUP)
        for kind in (kind for kind in KINDS if kind in waited and kind.startswith("edf")):
            command = f"harness -m +experiment=flowprefill{'_chunks' if '-' in kind else ''}"
            name = "flowprefill-blocking" + ("" if kind == "edf" else f"-{kind}")
            yield claim(name, "flowprefill", f"mean wait of the tightest class over FlowPrefill's, under {KINDS[kind]}", "x", BLOCKING,
                        interval((waited[kind] / waited["flowprefill"]).to_numpy()), command=command,
                        setup_difference=(chunked if "-" in kind else SETUP)
                        + "At 1 request/s. This wait holds all that the queue does; theirs is for the pause alone.")
    if "flowprefill_layers" in done:
        blocked = open_results(done["flowprefill_layers"]).summary.pivot(index="seed", columns="pool.boundaries", values="blocking_s_mean")
        yield claim("flowprefill-blocking-layers", "flowprefill", "blocking: time to the pause, between layers over between operators", "x",
                    BLOCKING, interval((blocked[32] / blocked[64]).to_numpy()), command="harness -m +experiment=flowprefill_layers",
                    setup_difference="At 1 request/s. All our operators take equally long, and there are two in a layer, as in the public "
                    "code, so that twice the time is to be expected.")


def figures(done: dict[str, Path]) -> dict[str, Figure]:
    """Goodput over load, beside all baselines."""
    return {"flowprefill-baselines": goodput_load.draw(merged(done))} if {"flowprefill", "flowprefill_chunks"} <= set(done) else {}


def sections(done: dict[str, Path]) -> list[Section]:
    """Goodput, the wait of the tightest class and the time to a pause, absolute."""
    if "flowprefill" not in done:
        return []
    cells = cells_of(done)
    rates, waited = goodputs(cells).mean(), waits(cells).mean()
    table = Grid(["prefill", "goodput (requests/s)", "mean wait of the tightest class (s)"], [], (0,))
    for kind in ("flowprefill", *KINDS):
        if kind in rates:
            table.rows.append([KINDS.get(kind, "FlowPrefill"), f"{rates[kind]:.3g}", f"{waited[kind]:.4g}"])
    text = f"Means over seeds; waits at 1 request/s (`harness -m +experiment=flowprefill`, `_chunks`).\n\n{table.markdown()}"
    if "flowprefill_layers" in done:
        found = open_results(done["flowprefill_layers"]).summary.groupby("pool.boundaries")["blocking_s_mean"].mean()
        text += (f"\nA running prefill pauses {1e3 * found[64]:.2f} ms after it is asked to, between operators, and "
                 f"{1e3 * found[32]:.2f} ms after, between layers (`harness -m +experiment=flowprefill_layers`).\n")
    return [Section("FlowPrefill beside its baselines", text)]


def merged(done: dict[str, Path]) -> pd.DataFrame:
    """A summary for the figure of goodput over load: FlowPrefill, and its baselines as policies, without FCFS in chunks, which lies on
    FCFS."""
    cells = cells_of(done)
    names = {f"edf-{chunk}": f"edf, {chunk} a chunk" for chunk in CHUNKS}
    shown = cells[cells["kind"].isin(["flowprefill", "fcfs", "edf", *names])]
    return shown.assign(policy=shown["kind"].map(lambda kind: names.get(kind, kind)))
