"""How many servers it takes: for each policy the smallest cluster on which users and batch owners get what they were promised.

Offline work is that of a cluster of a fixed size. A cluster of N servers is enough when, as means over seeds, requests meet their
objectives often enough, and offline work gets at least so much of the goodput that it has on the largest cluster looked at. Bisection
over ``cluster.servers`` takes for granted that more servers never hurt. Every probe is a cell that the command ``harness`` makes, so that
an interrupted search goes on where it stopped, and a second one with other promises only replays what is new.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.errors import BadInput
from harness.sweep import read_rows

ONLINE, OFFLINE = "slo_met_share", "goodput_gpu_s_offline"
ALONE = ("colocation.offline=[]",)
WITHOUT_REPLICAS = ("colocation.until=placements", "colocation.autoscaler.min_replicas=0", "colocation.autoscaler.max_replicas=0")
APART = "apart"
"""Name of what needs two clusters, one for replicas and one for offline work."""


@dataclass(frozen=True)
class Promise:
    """slo: least share of the requests that meet their objectives; goodput: least share of the offline goodput of the largest cluster."""

    slo: float = 0.9
    goodput: float = 0.9

    def __post_init__(self):
        for name, value in (("slo", self.slo), ("goodput", self.goodput)):
            if not 0 <= value <= 1:
                raise BadInput(f"--{name} {value}: must be a share, 0 to 1")


Probe = Callable[[str, int], dict[str, float]]
"""Means over seeds of the metrics of an arm (its name) on a cluster of so many servers."""


def size(probe: Probe, policies: Sequence[str], promise: Promise, low: int, high: int) -> pd.DataFrame:
    """One row for each policy, co-located, and for each policy's replicas apart from the offline work: policy, colocated, servers (None:
    not even ``high`` are enough), of these online and offline where apart, and what users and offline work get on them.

    Offline work apart runs under the first policy. Raises BadInput when ``low`` is not less than ``high``.
    """
    if not 1 <= low < high:
        raise BadInput(f"--between {low} {high}: must be two numbers of servers, the smaller first")
    rows = []
    for policy in policies:
        most = probe(policy, high)[OFFLINE]

        def enough(n: int, policy: str = policy, most: float = most) -> bool:
            found = probe(policy, n)
            return found[ONLINE] >= promise.slo and found[OFFLINE] >= promise.goodput * most

        servers = smallest(enough, low, high)
        rows.append({"policy": policy, "colocated": True, "servers": servers, "online": None, "offline": None,
                     **_got(probe(policy, high if servers is None else servers))})
    rest = f"{APART}:offline:{policies[0]}"
    most = probe(rest, high)[OFFLINE]
    offline = smallest(lambda n: probe(rest, n)[OFFLINE] >= promise.goodput * most, low, high)
    for policy in policies:
        arm = f"{APART}:online:{policy}"
        online = smallest(lambda n, arm=arm: probe(arm, n)[ONLINE] >= promise.slo, low, high)
        both = None if online is None or offline is None else online + offline
        rows.append({"policy": policy, "colocated": False, "servers": both, "online": online, "offline": offline,
                     ONLINE: probe(arm, online or high)[ONLINE], OFFLINE: probe(rest, offline or high)[OFFLINE]})
    columns = ["policy", "colocated", "servers", "online", "offline", ONLINE, OFFLINE]
    return pd.DataFrame(rows, columns=pd.Index(columns)).astype({name: "Int64" for name in ("servers", "online", "offline")})


def _got(found: dict[str, float]) -> dict[str, float]:
    return {name: found[name] for name in (ONLINE, OFFLINE)}


def smallest(enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """The smallest number from ``low`` to ``high`` that is enough, if more never hurts; None when ``high`` is not."""
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high


def prober(folder: Path, words: Sequence[str], seeds: int, tell: Callable[[str], None] = print) -> Probe:
    """Probes that are cells in ``folder``; ``words`` are overrides of the command ``harness``, one of which says how much offline work
    there is.

    Raises BadInput when none does, and when a cell cannot be made.
    """
    if not any(word.startswith("colocation.offline_servers=") for word in words):
        raise BadInput("--size: add colocation.offline_servers=N, the servers that the offline work is sized for whatever the cluster")
    known: dict[tuple[str, int], dict[str, float]] = {}

    def probe(arm: str, servers: int) -> dict[str, float]:
        if (arm, servers) not in known:
            *apart, policy = arm.split(":")
            more = {(): (), (APART, "online"): ALONE, (APART, "offline"): WITHOUT_REPLICAS}[tuple(apart)]
            out = folder / "cells" / f"{arm.replace(':', '-')}-{servers}"
            command = [sys.executable, "-m", "harness", "-m", *words, *more, f"policy={policy}", f"cluster.servers={servers}",
                       f"seed=range({seeds})", f"out={out}", "progress=false"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise BadInput(f"--size: {(done.stderr.strip() or done.stdout.strip() or 'a cell failed').splitlines()[-1]}")
            known[arm, servers] = _means(out)
            tell(f"{arm}, {servers} servers: " + ", ".join(f"{name} {value:.4g}" for name, value in known[arm, servers].items()))
        return known[arm, servers]

    return probe


def _means(out: Path) -> dict[str, float]:
    """Means over the cells of ``out``; where no requests were replayed nobody is discontent."""
    rows = pd.DataFrame(read_rows(out))
    return {ONLINE: float(rows[ONLINE].mean()) if ONLINE in rows else 1.0, OFFLINE: float(rows[OFFLINE].mean())}
