"""What the policies do to the real job traces: tables without a published value to compare with."""

from pathlib import Path

from harness.claims.claim import Section
from harness.figures.intervals import paired
from harness.figures.results import open_results
from harness.figures.settings import NotDrawn
from harness.report_tables import Grid


def sections(done: dict[str, Path]) -> list[Section]:
    """One for each real trace that was replayed."""
    return [Section(f"The real {name} trace", real_trace(done[name], name)) for name in ("openb", "philly") if name in done]


def real_trace(folder: Path, name: str) -> str:
    summary = open_results(folder).summary
    metrics = ("jobs", "jobs_finished", "jobs_rejected", "decisions", "hit_rate_victims", "wait_s_mean_online", "lost_gpu_s")
    table = Grid(["policy", *metrics], [], (0,))
    for policy, cells in summary.groupby("policy"):
        table.rows.append([str(policy), *(f"{cells[m].mean():.4g}" for m in metrics)])
    lines = [f"Means over seeds (`harness -m +experiment={name}`; every job is finished, rejected or still open, none is lost).", "",
             table.markdown()]
    try:
        rows = paired(summary, "wait_s_mean_online", "domain_first", "godel")
        row = rows.iloc[0]
        lines += ["", f"Online mean wait, domain_first against Gödel: {row['difference']:+.3g} s, {row['verdict']}."]
    except (NotDrawn, IndexError):
        pass
    return "\n".join(lines)
