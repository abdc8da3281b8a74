"""How every figure looks: colours, marks, fonts, and how it is written to disk.

Colours are those of Okabe and Ito (2008), which people with any common colour vision deficiency can tell apart; policies also
differ in line and mark, so that no reader depends on colour. The same figure gives the same bytes.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

from harness.tables import write_atomically

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
GREY, PALE, INK = "#8C8C8C", "#D9D9D9", "#333333"
WIDTH = 7.2
"""Inches: a text column of a paper, or of the report."""

RC: dict[str, Any] = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "grid.color": PALE,
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "white",
    "savefig.dpi": 150,
    "text.hinting": "none",  # hinted text is wider at some resolutions: a layout would not fit all images of a figure
    "svg.hashsalt": "colocation-harness",
    "svg.fonttype": "path",
}


class Look(NamedTuple):
    """Colour, line and mark of one policy."""

    colour: str
    line: str
    mark: str


LOOKS = {
    "fifo": Look(GREY, "-", "o"),
    "fifo_backfill": Look(GREY, "--", "s"),
    "easy_backfill": Look(GREY, ":", "^"),
    "conservative_backfill": Look(GREY, "--", "D"),
    "sjf": Look(GREY, "-.", "v"),
    "priority": Look(BLACK, "-", "D"),
    "srgt": Look(SKY, "-.", "v"),
    "tiresias": Look(ORANGE, "-.", "o"),
    "hps": Look(GREEN, "-.", "^"),
    "pbs": Look(PURPLE, "-.", "s"),
    "sbs": Look(VERMILLION, "-.", "P"),
    "random_victim": Look(BLACK, ":", "<"),
    "godel": Look(VERMILLION, "-", "s"),
    "kubernetes": Look(ORANGE, "-", "^"),
    "volcano_topology": Look(PURPLE, "-", "v"),
    "flextopo_exhaustive": Look(SKY, "--", "P"),
    "flextopo_imp": Look(GREEN, "-", "D"),
    "domain_first": Look(BLUE, "-", "o"),
    "domain_first_cost": Look(BLUE, "--", "X"),
    "random_fit": Look(GREY, "-", "*"),
    "dotprod": Look(ORANGE, "--", "^"),
    "clustering": Look(PURPLE, "--", "v"),
    "packing": Look(SKY, "-", "P"),
    "bestfit": Look(GREEN, "--", "D"),
    "fgd": Look(BLUE, "-", "s"),
    "pwr_fgd": Look(VERMILLION, "-", "v"),
    "yarn_cs": Look(VERMILLION, "--", "s"),
    "chronus": Look(ORANGE, "--", "^"),
    "lyra": Look(GREEN, "--", "v"),
    "gfs": Look(BLUE, "-", "D"),
    "kueue_tas": Look(SKY, "-", "^"),
    "kueue": Look(GREEN, "-", "^"),
    "dally": Look(VERMILLION, "-", "D"),
    "domain_first_gang": Look(BLUE, ":", "o"),
    "fcfs": Look(BLACK, "--", "o"),
    "long_fifo": Look(GREY, "-", "s"),
    "reservation": Look(VERMILLION, "-", "s"),
    "long_priority": Look(ORANGE, "-", "^"),
    "ljf": Look(PURPLE, "--", "o"),
    "srpt": Look(SKY, "-.", "^"),
    "edf": Look(ORANGE, "--", "v"),
    "rps": Look(PURPLE, "-.", "v"),
    "vtc": Look(GREEN, "-", "D"),
    "switching": Look(GREEN, "--", "P"),
    "isjl": Look(BLUE, "-.", "P"),
    "flowprefill": Look(BLUE, "-", "X"),
    "pecsched": Look(BLUE, "-", "D"),
}
"""Look of the policies that come with the harness, in the order in which figures show them."""

OTHERS = tuple(Look(colour, line, mark) for line, mark in (("-.", "*"), (":", "h")) for colour in (PURPLE, GREEN, ORANGE, SKY, BLACK))
TOPOLOGY_AWARE = ("flextopo_exhaustive", "flextopo_imp", "domain_first", "domain_first_cost", "domain_first_gang")
BLIND = ("godel", "kubernetes", "random_victim")
"""Policies whose victim search tests counts only (specs of the policies)."""

RECONSTRUCTED = ("chronus", "dally", "pbs", "sbs")
"""Job-level policies that were built from a description, not from code or a full text."""

KINDS = {"online": ORANGE, "training": GREEN, "batch": SKY}
"""Colour of each class of workload, in the order in which they are stacked."""


def base_policy(policy: str) -> str:
    """The policy's name without the parameters that tell its variants apart."""
    return policy.split(",")[0]


def starred(policy: str) -> str:
    """The policy's name, with a star when it is a reconstruction."""
    return f"{policy}*" if base_policy(policy) in RECONSTRUCTED else policy


def in_order(policies: Sequence[str]) -> list[str]:
    """Distinct ``policies``: shipped ones as in LOOKS, then the others by name."""
    known = list(LOOKS)
    rank = {p: known.index(base_policy(p)) if base_policy(p) in LOOKS else len(known) for p in policies}
    return sorted(set(policies), key=lambda p: (rank[p], p))


def looks(policies: Sequence[str]) -> dict[str, Look]:
    """Look of each policy; those outside the harness, and variants of one policy, get looks of their own."""
    chosen: dict[str, Look] = {}
    spare = iter(OTHERS * (1 + len(policies) // len(OTHERS)))
    for policy in in_order(policies):
        look = LOOKS.get(base_policy(policy))
        chosen[policy] = look if look and look not in chosen.values() else next(spare)
    return chosen


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib's defaults replaced by RC, whatever the user's own settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)  # pyright: ignore[reportCallIssue, reportArgumentType]
        yield


def canvas(height: float, message: str, note: str = "", width: float = WIDTH) -> Figure:
    """A figure of ``width`` x about ``height`` inches under a headline that says its one message, and a smaller ``note``."""
    line, small = 0.19, 0.165
    head, notes = balanced(message, int(width * 11.8)), textwrap.wrap(note, int(width * 15))
    strip = 0.12 + line * len(head) + small * len(notes)
    total = height + strip
    figure = Figure(figsize=(width, total), layout="constrained")
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0.0, 0.0, 1.0, 1 - strip / total))  # pyright: ignore[reportCallIssue]
    top = 1 - 0.06 / total
    figure.text(0.08 / width, top, "\n".join(head), va="top", fontweight="bold", fontsize=10, linespacing=1.25)
    if notes:
        below = top - (line * len(head) + 0.02) / total
        figure.text(0.08 / width, below, "\n".join(notes), va="top", fontsize=8, color="#555555", linespacing=1.25)
    return figure


def balanced(text: str, width: int) -> list[str]:
    """``text`` in as few lines of at most ``width`` characters as it takes, all about equally long. A no-break space does not break."""
    lines = textwrap.wrap(text, width, break_on_hyphens=False)
    while lines and width > 1 and len(textwrap.wrap(text, width - 1, break_on_hyphens=False)) == len(lines):
        width -= 1
        lines = textwrap.wrap(text, width, break_on_hyphens=False)
    return lines


def percent(share: float, digits: int = 1) -> str:
    """A share between 0 and 1 as a percentage that does not break across lines; whole hundreds without decimals."""
    text = f"{100 * share:.{digits}f}"
    return f"{'100' if float(text) == 100 else text}\N{NO-BREAK SPACE}%"


def legend_below(figure: Figure, handles: Sequence[Artist], columns: int = 4) -> None:
    """One legend for the whole figure, below everything, so that it never covers data."""
    if handles:
        figure.legend(handles=list(handles), loc="outside lower center", ncols=min(columns, len(handles)))


def rows_axis(axes: Axes, labels: Sequence[str]) -> None:
    """Makes the y axis a list of ``labels``, first on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def interval_mark(axes: Axes, y: float, ends: np.ndarray, look: Look, filled: bool = True, size: float = 6) -> None:
    """A mark at ``y`` for ``ends`` = (middle, low, high), on a bar from low to high; the bar is left out where they are nan."""
    axes.plot(ends[1:], [y, y], color=look.colour, linewidth=2, solid_capstyle="butt", zorder=3)
    face = look.colour if filled else "white"
    axes.plot(ends[0], y, look.mark, color=look.colour, markerfacecolor=face, markersize=size, clip_on=False, zorder=4)


def curve_handle(name: str, look: Look, mark: bool = True, width: float = 1.5) -> Line2D:
    """A legend entry for a curve."""
    return Line2D([], [], color=look.colour, linestyle=look.line, marker=look.mark if mark else "", linewidth=width, label=name)  # pyright: ignore[reportArgumentType]


def log_axis(axes: Axes, low: float, high: float, most: int = 5) -> None:
    """A logarithmic x axis from ``low`` to ``high`` (> 0) with at most ``most`` plain labels: powers of ten, or 1-2-5 where few fit."""
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [10.0**d for d in decades if low <= 10.0**d <= high]
    if len(ticks) < 2:
        ticks = [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]
    ticks = ticks[:: -(-len(ticks) // most)] if ticks else []
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{t:,.0f}" if 1 <= t < 1e6 else f"{t:g}" for t in ticks]))
    axes.xaxis.set_minor_formatter(NullFormatter())


def settle(figure: Figure) -> None:
    """Makes the layout final, once, so that all images of a figure agree. It takes two passes: ticks change when axes do."""
    if figure.get_layout_engine() is not None:
        with styled():
            figure.draw_without_rendering()
            figure.draw_without_rendering()
        figure.set_layout_engine("none")


def image(figure: Figure, kind: str) -> bytes:
    """The figure as an image, ``kind`` is png or svg; without a date or version, and with fixed element names."""
    settle(figure)
    with styled():
        target = BytesIO()
        figure.savefig(target, format=kind, metadata={"Software": None} if kind == "png" else {"Date": None, "Creator": None})
    return target.getvalue()


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes ``folder/name.png`` and ``folder/name.svg``. Raises BadInput when the place cannot be written."""
    files = []
    for kind in ("png", "svg"):
        data, path = image(figure, kind), folder / f"{name}.{kind}"
        write_atomically(path, lambda temporary, data=data: temporary.write_bytes(data))
        files.append(path)
    return files
