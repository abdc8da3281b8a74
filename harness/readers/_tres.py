"""Trackable resources as Slurm writes them: ``billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1``."""

import re
from typing import NamedTuple

MIB = {"": 1.0, "K": 2.0**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20, "P": 2.0**30}
THOUSANDS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)[nc]?")
_SLICE = re.compile(r"\d+g\.\d+gb")


class Resources(NamedTuple):
    """Totals of a job; ``known`` is 0 when nothing is said, ``model`` the types of its GPUs separated by |."""

    known: int
    nodes: float
    cpus: float
    memory_mib: float
    gpus: float
    model: str
    shares: float
    slices: float


NOTHING = Resources(0, 0.0, 0.0, 0.0, 0.0, "", 0.0, 0.0)


def parse_tres(text: str) -> Resources:
    """The resources in ``text``; NOTHING when it is blank. Raises ValueError when it is no such list."""
    if not text.strip():
        return NOTHING
    amounts: dict[str, float] = {}
    for pair in text.strip().split(","):
        name, _, word = pair.partition("=")
        match = _AMOUNT.fullmatch(word)
        if not name or not match:
            raise ValueError(pair)
        amounts[name] = float(match[1]) * (MIB if name == "mem" else THOUSANDS)[match[2]]
    typed = {name.removeprefix("gres/gpu:"): amount for name, amount in amounts.items() if name.startswith("gres/gpu:") and amount}
    return Resources(
        known=1,
        nodes=amounts.get("node", 1.0),
        cpus=amounts.get("cpu", 0.0),
        memory_mib=amounts.get("mem", 0.0),
        gpus=amounts.get("gres/gpu", sum(typed.values())),
        model="|".join(sorted(typed)),
        shares=amounts.get("gres/shard", 0.0) + amounts.get("gres/mps", 0.0),
        slices=sum(amount for name, amount in typed.items() if _SLICE.fullmatch(name)),
    )
