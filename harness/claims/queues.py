"""What is published about wait quotes and about sharing links (LEVELLER) beside what was measured. Both are RECONSTRUCTIONS.

specs/cluster-policies.md, Kueue-like admission and wait quotes; Communication fairness.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from harness import contention
from harness.claims.claim import Claim, Section, claim
from harness.figures import sharing_rules
from harness.figures.intervals import Interval, interval
from harness.figures.results import open_results
from harness.report_tables import Grid

QUOTES = "quotes"
JOBS, SEEDS, INSTANCES = 24, range(10), range(500)
"""Of the comparison of sharing rules: jobs of an instance, seeds; and small instances on which greedy meets the optimum."""


def gain(measured: dict[str, list[contention.Measured]], rival: str, field: str) -> Interval:
    """Percent by which LEVELLER exceeds ``rival``, seed by seed."""
    ours, theirs = (np.array([getattr(one, field) for one in measured[rule]]) for rule in ("leveller", rival))
    return interval(100 * (ours / theirs - 1))


def claims(done: dict[str, Path], seeds: Sequence[int] = SEEDS, instances: Sequence[int] = INSTANCES) -> list[Claim]:
    shared = contention.compare(seeds, JOBS)
    command = "python -m harness.contention"
    setup = (f"{JOBS} random jobs between six racks under two spines, against max-min per flow: CASSINI, CRUX, Symphony and Sincronia, the "
             "published rivals, are not built. ")
    found = [
        claim("leveller-min-progress", "leveller", "least progress rate against per-flow max-min", "%", 57.0,
              gain(shared, "max_min", "least"), reconstruction=True, command=command, setup_difference=setup),
        claim("leveller-fairness", "leveller", "Jain's index of the progress rates against per-flow max-min", "%", 17.0,
              gain(shared, "max_min", "jain"), reconstruction=True, command=command, setup_difference=setup),
        claim("leveller-approximation", "leveller", "least progress of greedy paths over the optimum, worst instance", "", (0.5, None),
              float(contention.ratios(instances).min()), reconstruction=True, command=command,
              setup_difference=f"{len(instances)} instances of at most 7 jobs on 2 or 3 equal parallel links; all choices are tried."),
    ]
    summary = open_results(done[QUOTES]).summary if QUOTES in done else None
    safe = gap = None
    if summary is not None:
        safe = interval(100 * summary.groupby("seed")["quote_safe_share"].mean())
        gap = float(summary["little_gap_max"].astype(float).max())
    command = f"harness -m +experiment={QUOTES}"
    return [*found,
        claim("quotes-little", "kueue", "largest distance of L to lambda W in any queue, over L", "", (None, 1e-9), gap,
              reconstruction=True, command=command, setup_difference="Finite replays from empty to empty, where the law is exact."),
        claim("quotes-safe", "kueue", "queues whose quoted mean wait was at least what was observed", "%", 100.0, safe,
              reconstruction=True, command=command,
              setup_difference="Erlang-C on k_eff = floor(quota / mean demand) is said to err on the safe side; loads 0.7 to 0.9. Under "
              "FIFO gangs block each other, which no M/G/k has."),
    ]


def figures(done: dict[str, Path]) -> dict[str, Figure]:
    """The rules of sharing links: they need no recipe."""
    return {"sharing-rules": sharing_rules.draw(contention.table())}


def sections(done: dict[str, Path]) -> list[Section]:
    shared = Grid(["jobs", "rule", "least progress", "Jain", "makespan (h)"], [], (1,))
    for n in (12, JOBS, 2 * JOBS):
        for rule, found in contention.compare(SEEDS, n).items():
            least, fair, end = np.mean(found, axis=0)
            name = "leveller (reconstruction)" if rule == "leveller" else rule
            shared.rows.append([str(n), name, f"{least:.3f}", f"{fair:.3f}", f"{end / 3600:.2f}"])
    sections = [Section("Sharing links", "\n".join([
        "Progressive filling on the progress rate (LEVELLER, a reconstruction), on iterations (FIFO) and on bytes (per-flow max-min)",
        "(`python -m harness.contention`). Means over seeds.", "", shared.markdown()]))]
    if QUOTES in done:
        summary = open_results(done[QUOTES]).summary
        grid = Grid(["policy", "load", "quoted mean wait (h)", "observed (h)", "within the quoted p95 (%)", "called unfeasible (%)",
                     "queues on the safe side (%)"], [], (0,))
        for (policy, load), rows in summary.groupby(["policy", "workload.load"]):
            means = [rows[m].astype(float).mean() for m in ("quote_s_mean", "quote_wait_s_mean", "quote_covered_p95",
                                                            "quote_unfeasible_share", "quote_safe_share")]
            grid.rows.append([str(policy), f"{load:g}", *(f"{m / 3600:.2f}" for m in means[:2]), *(f"{100 * m:.1f}" for m in means[2:])])
        sections.append(Section("Wait quotes", "\n".join([
            "Quoted at submission from the queue's own past (a reconstruction) against what was waited; one queue for all under fifo",
            f"and fifo_backfill, one for each of four tenants under kueue (`harness -m +experiment={QUOTES}`). Means over seeds.",
            "", grid.markdown()])))
    return sections
