"""Published claims beside what was measured: verdicts, results/reproduction.csv, REPRODUCTION.md and the check for regressions."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.errors import BadInput
from harness.figures.intervals import MIN_SEEDS, Interval
from harness.figures.labels import number
from harness.tables import one_line, write_atomically

HOLDS, PARTLY, NOT, CALIBRATED, NOT_MEASURABLE, SKIPPED = "holds", "partly", "not", "calibrated", "not_measurable", "skipped"
VERDICTS = {
    HOLDS: "the interval meets the published range",
    PARTLY: "same sign, and at least half of what was published",
    NOT: "neither",
    CALIBRATED: "the interval meets the published range, but an input was chosen to meet it",
    NOT_MEASURABLE: "the harness has no such quantity",
    SKIPPED: "its data, or enough seeds, are absent",
}
RANK = {HOLDS: 4, CALIBRATED: 3, PARTLY: 2, NOT: 1, NOT_MEASURABLE: 0}


@dataclass(frozen=True)
class Claim:
    """One row of results/reproduction.csv. An open end of the published range, and what was not measured, are None."""

    claim_id: str
    system: str
    quantity: str
    unit: str
    published_low: float | None
    published_high: float | None
    measured: float | None
    measured_ci_low: float | None
    measured_ci_high: float | None
    verdict: str
    reconstruction: bool
    setup_difference: str
    command: str

    @property
    def published_text(self) -> str:
        low, high = self.published_low, self.published_high
        if low is None or high is None:
            text = f"at least {number(low)}" if low is not None else f"at most {number(high)}" if high is not None else "-"
        else:
            text = number(low) if low == high else f"{number(low)} to {number(high)}"
        return f"{text} {self.unit}".strip()

    @property
    def measured_text(self) -> str:
        if self.measured is None:
            return "-"
        text = f"{number(self.measured)} {self.unit}".strip()
        if self.measured_ci_low is None or self.measured_ci_high is None or self.measured_ci_low == self.measured_ci_high:
            return text
        return f"{text} [{number(self.measured_ci_low)}, {number(self.measured_ci_high)}]"


class Section(NamedTuple):
    """A part of REPRODUCTION.md after the claims, in Markdown."""

    title: str
    text: str


def verdict(
    published_low: float | None,
    published_high: float | None,
    ci_low: float | None,
    ci_high: float | None,
    measured: float | None = None,
    *,
    calibrated: bool = False,
    measurable: bool = True,
    skipped: bool = False,
) -> str:
    """``holds`` when [ci_low, ci_high] meets [published_low, published_high] (None: open end); ``calibrated`` instead if an input was
    chosen to meet it; ``partly`` when ``measured`` (by default the middle of the interval) has the published sign and is at least half
    of the published value nearest to zero; else ``not``. Raises ValueError without any published value.
    """
    if skipped:
        return SKIPPED
    if not measurable:
        return NOT_MEASURABLE
    if published_low is None and published_high is None:
        raise ValueError("a claim needs a published value")
    if ci_low is None or ci_high is None:
        return SKIPPED
    low, high = -math.inf if published_low is None else published_low, math.inf if published_high is None else published_high
    if ci_low <= high and ci_high >= low:
        return CALIBRATED if calibrated else HOLDS
    nearest = low if low > 0 else high if high < 0 else 0.0
    value = (ci_low + ci_high) / 2 if measured is None else measured
    return PARTLY if nearest and value * nearest > 0 and abs(value) >= abs(nearest) / 2 else NOT


def claim(
    claim_id: str,
    system: str,
    quantity: str,
    unit: str,
    published: tuple[float | None, float | None] | float,
    measured: Interval | float | None,
    *,
    setup_difference: str,
    command: str,
    reconstruction: bool = False,
    calibrated: bool = False,
    measurable: bool = True,
    scale: float = 1.0,
) -> Claim:
    """A judged claim.

    ``measured`` is an interval over seeds, a value that needs none (a count, a closed form), or None when its data are absent;
    ``scale`` turns it into ``unit``. An interval over fewer than MIN_SEEDS seeds is skipped, and the set-up says so.
    """
    low, high = (None if end is None else float(end) for end in (published if isinstance(published, tuple) else (published, published)))
    value = ci_low = ci_high = None
    skipped = measured is None and measurable
    if isinstance(measured, Interval):
        skipped = measured.n < MIN_SEEDS
        if measured.n:
            value = scale * measured.mean
        if skipped:
            setup_difference = f"{setup_difference} Only {measured.n} of at least {MIN_SEEDS} seeds were run.".strip()
        else:
            ci_low, ci_high = sorted((scale * measured.low, scale * measured.high))
    elif measured is not None:
        value = ci_low = ci_high = scale * float(measured)
    judged = verdict(low, high, ci_low, ci_high, value, calibrated=calibrated, measurable=measurable, skipped=skipped)
    return Claim(claim_id, system, quantity, unit, low, high, value, ci_low, ci_high, judged, reconstruction, setup_difference, command)


def write_claims(claims: Sequence[Claim], path: Path) -> None:
    """Writes results/reproduction.csv: the columns of Claim, nothing for None. Raises BadInput when it cannot be written."""
    target = StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([f.name for f in fields(Claim)])
    for one in claims:
        values = (getattr(one, f.name) for f in fields(Claim))
        writer.writerow([str(v).lower() if isinstance(v, bool) else "" if v is None else v for v in values])
    _write(path, target.getvalue())


def read_claims(path: Path) -> list[Claim]:
    """What ``write_claims`` wrote. Raises BadInput when it is absent or something else."""
    claims = []
    for line, row in enumerate(_rows(path, [f.name for f in fields(Claim)]), 2):
        try:
            numbers = {k: float(row[k]) if row[k] else None for k in row if k.startswith(("published_", "measured"))}
        except ValueError as error:
            raise BadInput(f"{path}, line {line}: {one_line(error)}") from error
        claims.append(Claim(**{**row, **numbers, "reconstruction": row["reconstruction"] == "true"}))
    return claims


def write_markdown(
    claims: Sequence[Claim],
    path: Path,
    sections: Sequence[Section] = (),
    facts: Mapping[str, str] | None = None,
    figures: Sequence[tuple[str, str]] = (),
) -> None:
    """Writes REPRODUCTION.md: every claim with its verdict, then ``sections``, ``figures`` (title, path from the file) and ``facts``."""
    environment = Environment(
        loader=PackageLoader("harness", "templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["cell"] = lambda text: one_line(text, 10_000).replace("|", "\\|")
    counts = {v: sum(c.verdict == v for c in claims) for v in VERDICTS}
    text = environment.get_template("reproduction.md").render(
        claims=claims,
        counts={v: n for v, n in counts.items() if n},
        meanings=VERDICTS,
        sections=sections,
        facts=facts or {},
        figures=figures,
    )
    _write(path, text)


def write_expected(claims: Sequence[Claim], path: Path) -> None:
    """Writes the verdicts that later runs are held to: claim_id, verdict."""
    _write(path, "".join(["claim_id,verdict\n", *(f"{c.claim_id},{c.verdict}\n" for c in claims)]))


def regressions(claims: Sequence[Claim], expected_csv: Path) -> list[str]:
    """One line for each claim whose verdict is worse than the expected one (claim_id, verdict), or that is gone.

    From best to worst: holds, calibrated, partly, not, not_measurable. ``skipped``, then or now, never counts, nor do claims without
    an expectation. Raises BadInput when the file is absent or not such a table.
    """
    now = {c.claim_id: c for c in claims}
    found = []
    for line, row in enumerate(_rows(expected_csv, ["claim_id", "verdict"]), 2):
        name, before = row["claim_id"], row["verdict"]
        if before not in VERDICTS:
            raise BadInput(f"{expected_csv}, line {line}: verdict '{one_line(before, 40)}', must be one of {', '.join(VERDICTS)}")
        if name not in now:
            found.append(f"{name}: was {before}, is gone")
        elif SKIPPED not in (before, now[name].verdict) and RANK[now[name].verdict] < RANK[before]:
            found.append(
                f"{name}: was {before}, is {now[name].verdict} (published {now[name].published_text}, measured {now[name].measured_text})"
            )
    return found


def _rows(path: Path, columns: list[str]) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(StringIO(path.read_text(encoding="utf-8"))))
    except (OSError, UnicodeError, csv.Error) as error:
        raise BadInput(f"{path}: cannot be read ({one_line(error)})") from error
    for line, row in enumerate(rows, 2):
        if any(row.get(c) is None for c in columns):
            raise BadInput(f"{path}, line {line}: must have the columns {', '.join(columns)}")
    return [{c: row[c] for c in columns} for row in rows]


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda temporary: temporary.write_bytes(text.encode()))
