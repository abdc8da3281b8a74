"""One measured quantity beside its budget, and the table of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

HEADINGS = ("what", "target", "measured", "measured / target", "met", "detail")


@dataclass(frozen=True)
class Row:
    """A quantity as it was measured.

    ``what`` says with which sizes; ``target`` is None for what has no budget, and ``sense`` how the two compare; ``of_machine`` is True
    when the number depends on the speed of this machine. ``measured`` is None when nothing could be, and ``detail`` says why.
    """

    what: str
    measured: float | bool | None
    unit: str = ""
    target: float | bool | None = None
    sense: Literal["<=", ">=", "=="] = "<="
    of_machine: bool = False
    detail: str = ""

    @property
    def ratio(self) -> float | None:
        """measured / target; None where there is no number to divide by."""
        if self.measured is None or not self.target or isinstance(self.target, bool):
            return None
        return self.measured / self.target

    @property
    def met(self) -> bool | None:
        """Whether the budget holds; None without a budget or a measurement."""
        if self.measured is None or self.target is None:
            return None
        if self.sense == "==":
            return self.measured == self.target
        return bool(self.measured <= self.target if self.sense == "<=" else self.measured >= self.target)

    def plain(self) -> dict[str, Any]:
        """The row as JSON holds it."""
        return {
            "what": self.what, "unit": self.unit, "target": self.target, "sense": self.sense, "measured": self.measured,
            "ratio": self.ratio, "met": self.met, "of_machine": self.of_machine, "detail": self.detail,
        }


def render(rows: Sequence[Row]) -> str:
    """The table as text: counts and ratios first, then what depends on the machine."""
    parts = [("counts, ratios, memory", [row for row in rows if not row.of_machine]),
             ("rates and wall times of this machine", [row for row in rows if row.of_machine])]
    lines = [list(HEADINGS)]
    for title, part in parts:
        if part:
            lines += [[f"-- {title}"], *(_cells(row) for row in part)]
    widths = [max(len(line[i]) for line in lines if len(line) > 1) for i in range(len(HEADINGS))]
    return "\n".join("  ".join(_aligned(cell, width, i) for i, (cell, width) in enumerate(zip(line, widths, strict=False))).rstrip()
                     for line in lines)


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.rjust(width) if 0 < column < 4 else cell.ljust(width)


def _cells(row: Row) -> list[str]:
    exact = row.sense == "=="
    target = "" if row.target is None else f"{row.sense} {number(row.target, exact)} {row.unit}".rstrip()
    measured = "-" if row.measured is None else f"{number(row.measured, exact)} {row.unit}".rstrip()
    ratio = "" if row.ratio is None else number(row.ratio)
    return [row.what, target, measured, ratio, {None: "", True: "yes", False: "NO"}[row.met], row.detail]


def number(value: float | bool, exact: bool = False) -> str:
    """A number with three significant digits, or with all of them; yes or no for a truth."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if exact or value == int(value) and abs(value) < 1e15:
        return f"{value:,.10g}"
    digits = max(0, 2 - len(str(int(abs(value)))) + 1) if abs(value) >= 1 else 4
    return f"{value:,.{digits}f}" if abs(value) >= 0.001 else f"{value:.2e}"
