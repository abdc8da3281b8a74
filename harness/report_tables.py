"""The comparison tables of a report as people read them: settings, rounded numbers, intervals."""

from typing import NamedTuple

import pandas as pd

from harness.figures.comparisons import POLICY_METRICS
from harness.figures.intervals import FEW, UNDEFINED
from harness.figures.labels import Label, label, number
from harness.figures.settings import key_columns, setting_text, shown_columns, varying
from harness.figures.standings import CLASSES
from harness.figures.style import in_order, starred


class Grid(NamedTuple):
    """A table of text; ``text`` are the positions of the columns that are words. A line break begins the interval of a cell."""

    head: list[str]
    rows: list[list[str]]
    text: tuple[int, ...]

    def markdown(self) -> str:
        """The table in Markdown, aligned like the page's."""
        rule = ["---" if i in self.text else "---:" for i in range(len(self.head))]
        escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in [self.head, *self.rows]]
        return "\n".join(f"| {' | '.join(row)} |" for row in [escaped[0], rule, *escaped[1:]])


def policy_grids(summary: pd.DataFrame, rows: pd.DataFrame) -> list[tuple[str, Grid]]:
    """(setting, metrics x policies) from ``comparisons.by_policy``, in the order of ``summary``."""
    if rows.empty:
        return []
    keys = key_columns(summary)
    shown = shown_columns(summary, keys)
    grids = []
    for _, mine in rows.groupby(keys, dropna=False, sort=False, observed=True) if keys else [((), rows)]:
        policies = in_order(list(mine["policy"]))
        cells = {(row.metric, row.policy): spread(label(str(row.metric)), row.mean, row.ci_low, row.ci_high) for row in mine.itertuples()}
        metrics = [m for m in POLICY_METRICS if (mine["metric"] == m).any()]
        lines = [[label(m).axis, *(cells.get((m, p), "-") for p in policies)] for m in metrics]
        text = setting_text(mine.iloc[0], shown) if keys else ""
        grids.append((f"{text}, {seeds_text(mine['seeds'])}".lstrip(", "), Grid(["", *policies], lines, (0,))))
    return grids


def league_grid(table: pd.DataFrame, won: pd.DataFrame, baseline: str) -> Grid:
    """One line for each policy of ``standings.standings``: for each class its mean rank, its metric, and where it wins or keeps level."""
    kinds = [kind for kind in CLASSES if (table["kind"] == kind).any()]
    measures = {kind: list(dict.fromkeys(table.loc[table["kind"] == kind, "measure"])) for kind in kinds}
    head, names = ["policy"], {"rank": "rank", "relative": f"% of {baseline}'s"}
    for kind in kinds:
        head += [f"{kind} {names[m]}" if m in names else label(CLASSES[kind]).axis for m in measures[kind]] + [f"{kind} wins, level"]
    cells = table.set_index(["policy", "kind", "measure"])[["mean", "ci_low", "ci_high"]]
    lines = []
    for policy in dict.fromkeys(table["policy"]):
        line = [starred(str(policy))]
        for kind in kinds:
            for measure in measures[kind]:
                told = label(CLASSES[kind]) if measure == "value" else Label(measure, "", scale=100 if measure == "relative" else 1)
                middle, low, high = map(float, cells.loc[(policy, kind, measure)])
                line.append(spread(told, middle, low, high))
            mine = won[won["kind"] == kind]
            level = sum(policy in names.split() for names in mine["level"])
            line.append(f"{int((mine['winner'] == policy).sum())}, {level} of {len(mine)}")
        lines.append(line)
    return Grid(head, lines, (0,))


def winners_grid(won: pd.DataFrame) -> Grid:
    """One line for each class and setting of ``standings.winners``."""
    keys = [c for c in won.columns[1:list(won.columns).index("metric")] if c in ("cluster", "workload") or won[c].nunique(dropna=False) > 1]
    grid = Grid(["class", "setting", "winner", "mean", "runner-up", "lead", "level with the winner"], [], (0, 1, 2, 4, 6))
    for _, row in won.iterrows():
        told = label(str(row["metric"]))
        lead = spread(told, float(row["difference"]), float(row["ci_low"]), float(row["ci_high"]), signed=True)
        level = str(row["level"]).split()
        shown = ", ".join(map(starred, level[:6])) + (f" and {len(level) - 6} more" if len(level) > 6 else "")
        mean = f"{number(told.scale * float(row['mean']))} {told.unit}"
        winner, second = starred(str(row["winner"])), starred(str(row["runner_up"]))
        grid.rows.append([str(row["kind"]), setting_text(row, keys), winner, mean, second, lead, shown or "nobody: a clear lead"])
    return grid


def seeds_text(seeds: pd.Series) -> str:
    """How many seeds stand behind the means."""
    least, most = int(seeds.min()), int(seeds.max())
    return f"{most} seed{'s' if most > 1 else ''}" if least == most else f"{least} to {most} seeds"


def paired_grid(summary: pd.DataFrame, rows: pd.DataFrame, limit: int | None = None) -> Grid:
    """One line for each setting, policy and metric of ``comparisons.against``, at most ``limit``."""
    shown = varying(summary, key_columns(summary))
    grid = Grid(
        [*(["setting"] if shown else []), "policy", "metric", "policy's", "baseline's", "difference", "seeds", "verdict"],
        [],
        (0, 1, 2, 7) if shown else (0, 1, 6),
    )
    for _, row in (rows if limit is None else rows.head(limit)).iterrows():
        told = label(str(row["metric"]))
        difference = spread(told, row["difference"], row["ci_low"], row["ci_high"], signed=True)
        numbers = [number(told.scale * float(row[c])) for c in ("policy_mean", "baseline_mean")]
        grid.rows.append(
            [
                *([setting_text(row, shown)] if shown else []),
                str(row["policy"]),
                told.axis,
                *numbers,
                difference,
                str(row["seeds"]),
                str(row["verdict"]),
            ]
        )
    return grid


def paired_notes(rows: pd.DataFrame, reason: str, limit: int | None = None) -> list[str]:
    """What a reader of the paired table must know: which jobs it covers, and what it leaves out."""
    notes = []
    counted = rows[rows["jobs_compared"].notna()]
    if len(counted):
        jct = counted[counted["metric"].str.startswith("jct_s")]
        compared, left = int(jct["jobs_compared"].sum()), int(jct["jobs_left_out"].sum())
        notes.append(
            f"JCT covers jobs that finished under both policies: {compared:,} pairs of jobs; {left:,} pairs were left out because one "
            "or both did not finish. Waiting times cover the same jobs under every policy, those that never started included."
        )
    if reason:
        notes.append(f"JCT over jobs finished under both policies is missing: {reason}.")
    if rows["verdict"].isin([FEW, UNDEFINED]).any():
        notes.append(f"'{FEW}' means that the interval says too little to judge by; '{UNDEFINED}' that nothing could be compared.")
    if limit is not None and len(rows) > limit:
        notes.append(f"The first {limit} of {len(rows):,} rows are shown; all are in tables/paired.csv.")
    return notes


def spread(told: Label, middle: float, low: float, high: float, signed: bool = False) -> str:
    """A mean, and its interval on a line of its own where it has one of some width."""
    text = number(told.scale * middle)
    if signed and middle > 0:
        text = f"+{text}"
    if low != low or low == high:
        return text
    return f"{text}\n[{number(told.scale * low)}, {number(told.scale * high)}]"


def sizing_grid(found: pd.DataFrame) -> Grid:
    """The smallest clusters of ``colocation.sizing.size``: servers, and what users and offline work get on them."""
    metrics = ("slo_met_share", "goodput_gpu_s_offline")
    grid = Grid(["policy", "replicas and offline work", "servers", *(label(name).axis for name in metrics)], [], (0, 1))
    for row in found.itertuples():
        servers = "more than were tried" if row.servers is pd.NA else str(row.servers)
        where = "on one cluster" if row.colocated else f"apart ({_or_more(row.online)} and {_or_more(row.offline)} servers)"
        got = [number(label(name).scale * float(getattr(row, name))) for name in metrics]
        grid.rows.append([str(row.policy), where, servers, *got])
    return grid


def _or_more(servers: object) -> str:
    return "too many" if servers is pd.NA else str(servers)
