"""Which cells belong together: settings (everything but policy and seed), card mixes and loads.

In ``summary`` the columns before the first metric say what a cell is. A column that is empty in some rows was not overridden there.
"""

from collections.abc import Iterator, Sequence
from math import comb

import pandas as pd
import yaml

from harness.figures.labels import is_metric

NOT_KEYS = ("policy", "seed", "cell", "status", "error")
CARDS = ("online_cards", "online_card_weights", "batch_cards", "batch_card_weights")
"""Parameters of a card mix."""

LOADS = {
    "load": "offered load",
    "batch_load": "offered batch load",
    "load_scale": "load scale",
    "online_share": "share of the GPUs that online instances ask for",
    "batch_departures_per_online": "batch departures per online arrival",
}
"""Parameters that vary the load, the first that varies is drawn; with what they are called."""

PAPER_CARDS = {"online_cards": [2], "batch_cards": [1]}
"""Cards of paper_mix where they are not overridden (specs of the published workload)."""


class NotDrawn(Exception):
    """A figure whose data are not there. The message is the reason, for people."""


def key_columns(summary: pd.DataFrame) -> list[str]:
    """Columns that say what a cell is, but for policy and seed."""
    keys = []
    for column in summary.columns:
        if is_metric(column):
            break
        if column not in NOT_KEYS:
            keys.append(column)
    return keys


def varying(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    return [c for c in columns if frame[c].nunique(dropna=False) > 1]


def short(column: str) -> str:
    """The last part of a dotted key, without Hydra's + or ~."""
    return column.rsplit(".", 1)[-1].lstrip("+~")


def value_text(value: object) -> str:
    """One value of a key for people: numbers short, a missing one as 'default'."""
    if value is None or value != value or value is pd.NA:
        return "default"
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting_text(row: pd.Series | dict, columns: Sequence[str]) -> str:
    """A setting for people: cluster, workload and pinning by value, the others as 'key value', a card mix as one."""
    parts = [
        value_text(row[c]) if c in ("cluster", "workload", "pinning") else f"{short(c)} {value_text(row[c])}"
        for c in columns
        if short(c) not in CARDS
    ]
    if any(short(c) in CARDS for c in columns):
        parts.append(mix_text(row))
    return ", ".join(parts)


def split(summary: pd.DataFrame, inside: Sequence[str] = ()) -> Iterator[tuple[str, pd.DataFrame]]:
    """(text, cells) of each setting, where columns named ``inside`` (short names) may vary within one.

    The text names what tells the settings apart, cluster and workload always. In order of appearance.
    """
    keys = [c for c in key_columns(summary) if short(c) not in inside]
    shown = shown_columns(summary, keys)
    if not keys:
        yield "", summary
        return
    for _, cells in summary.groupby(keys, dropna=False, sort=False, observed=True):
        yield setting_text(cells.iloc[0], shown), cells


def shown_columns(summary: pd.DataFrame, keys: Sequence[str]) -> list[str]:
    """Which of ``keys`` are named for a setting: cluster and workload, and what varies. The cluster of requests is their pool."""
    vary = varying(summary, keys)
    return [c for c in keys if c in ("cluster", "workload") or c in vary and not (c == "pool" and summary[c].equals(summary["cluster"]))]


def load_column(summary: pd.DataFrame) -> str:
    """The column of the load that varies. Raises NotDrawn when none does."""
    found = {short(c): c for c in varying(summary, key_columns(summary))}
    for name in LOADS:
        if name in found:
            return found[name]
    raise NotDrawn(f"no load varies; sweep one of {', '.join(f'workload.{name}' for name in LOADS)}")


def mix_columns(summary: pd.DataFrame) -> list[str]:
    """All columns of the card mix. Raises NotDrawn when none of them varies."""
    found = [c for c in key_columns(summary) if short(c) in CARDS]
    if not varying(summary, found):
        raise NotDrawn("no card mix varies; sweep workload.online_cards with workload.online_card_weights")
    return found


def mix_of(row: pd.Series | dict, kind: str = "online") -> dict[int, float]:
    """Cards -> share (summing to 1) of one kind of instance of ``row``."""
    parameters = {short(str(key)): value for key, value in row.items()}
    cards = _listed(parameters.get(f"{kind}_cards")) or PAPER_CARDS[f"{kind}_cards"]
    weights = _listed(parameters.get(f"{kind}_card_weights")) or [1.0] * len(cards)
    if len(weights) != len(cards) or sum(weights) <= 0:
        raise NotDrawn(f"{kind} cards {cards} and weights {weights} do not belong together")
    return {int(c): w / sum(weights) for c, w in sorted(zip(cards, weights, strict=True)) if w > 0}


def mix_text(row: pd.Series | dict) -> str:
    """A card mix for people, such as 'online 2/4 cards 75:25'; the batch mix is named when it is not all 1-card."""
    parts = []
    for kind in ("online", "batch"):
        mix = mix_of(row, kind)
        if kind == "online" or mix != {1: 1.0}:
            shares = " " + ":".join(f"{100 * w:.0f}" for w in mix.values()) if len(mix) > 1 else ""
            parts.append(f"{kind} {'/'.join(map(str, mix))} card{'s' if list(mix) != [1] else ''}{shares}")
    return ", ".join(parts)


def random_hit_rate(mix: dict[int, float], gpus_per_socket: int = 4, sockets: int = 2) -> float:
    """Probability that k random 1-card victims on a full server share a socket, over the k of ``mix`` that one socket can hold.

    sockets * C(gpus_per_socket, k) / C(all GPUs, k): 3/7 for the paper's server and k = 2. nan when no k fits.
    """
    fitting = {k: w for k, w in mix.items() if k <= gpus_per_socket}
    hits = sum(w * min(1.0, sockets * comb(gpus_per_socket, k) / comb(sockets * gpus_per_socket, k)) for k, w in fitting.items())
    return hits / sum(fitting.values()) if fitting else float("nan")


def _listed(value: object) -> list:
    """A list as overrides hold it: a list, or its text."""
    if isinstance(value, str):
        value = yaml.safe_load(value)
    if value is None or isinstance(value, float) and value != value or value is pd.NA:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
