"""One preemption on paper_mix: how many victim sets are tried, how long the search takes, and whether the winners are the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from harness.bench.replays import LARGEST_GROWTH_BY_JOBS, SEED, cluster_of, growth_of
from harness.bench.rows import Row
from harness.bench.sizes import Sizes
from harness.cluster.build import Rules
from harness.cluster.hooks import load_policy
from harness.cluster.replay import replay
from harness.metrics import preemptions_table
from harness.topology import Cluster
from harness.workload import load

CLUSTER = "rtx4090_x100"
SEARCH_COST = ("subsets_tried", "servers_scanned", "search_wall_us")
"""Columns of the preemptions table that say how the winner was found, not which."""

TARGETS_US = {"flextopo_exhaustive": 1000.0, "flextopo_imp": None, "domain_first": 50.0, "godel": None}
WIDE_TARGET_US = 200.0
SUBSETS_TARGET = 5.0
"""Victim sets that domain_first may try, in % of those of exhaustive search."""


class Searched(NamedTuple):
    """Preemptions table of a replay, its decisions, mean subsets tried and median wall time (us) of a decision."""

    table: pa.Table
    decisions: int
    subsets: float
    wall_us: float


def searched(trace: pa.Table, cluster: Cluster, policy: str) -> Searched:
    """Replays ``trace`` and looks at its decisions."""
    table = preemptions_table(replay(trace, cluster, load_policy(policy), Rules()))
    _, first = np.unique(table["decision_id"].to_numpy(), return_index=True)
    subsets, wall = (table[name].to_numpy()[first] for name in ("subsets_tried", "search_wall_us"))
    if not len(first):
        return Searched(table, 0, float("nan"), float("nan"))
    return Searched(table, len(first), float(subsets.mean()), float(np.median(wall)))


def same_winners(a: pa.Table, b: pa.Table) -> bool:
    """Whether two preemptions tables differ in nothing but the cost of the search."""
    return a.drop_columns(list(SEARCH_COST)).equals(b.drop_columns(list(SEARCH_COST)))


def mix(preemptors: int, servers: int, **more: float) -> pa.Table:
    """The trace of paper_mix, seed 1."""
    return load("paper_mix", {"preemptors": preemptors, **more}, cluster_of(CLUSTER, servers), SEED)


def searches(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Decisions of every kind of search on the paper's 100 servers."""
    servers = sizes.mix_servers
    trace, cluster = mix(sizes.preemptors, servers), cluster_of(CLUSTER, servers)
    found = {policy: searched(trace, cluster, policy) for policy in TARGETS_US}
    where = f"paper_mix, {servers:,} servers"
    for policy, target in TARGETS_US.items():
        one = found[policy]
        yield Row(f"{where}: one search of {policy}", one.wall_us, "us", target, "<=", True, f"median of {one.decisions:,} decisions")
        yield Row(f"{where}: victim sets tried by {policy}", one.subsets, "per decision", detail=f"mean of {one.decisions:,} decisions")
    exhaustive, ours, imp = found["flextopo_exhaustive"], found["domain_first"], found["flextopo_imp"]
    yield Row(f"{where}: domain_first decides as flextopo_exhaustive", same_winners(ours.table, exhaustive.table), "", True, "==",
              detail=f"{ours.decisions:,} decisions")
    yield Row(f"{where}: victim sets of domain_first, of exhaustive's", 100 * ours.subsets / exhaustive.subsets, "%", SUBSETS_TARGET)
    yield Row(f"{where}: search time of domain_first over exhaustive's", ours.wall_us / exhaustive.wall_us, "x", detail="medians")
    yield Row(f"{where}: search time of flextopo_imp over exhaustive's", imp.wall_us / exhaustive.wall_us, "x",
              detail="medians; published: 0.66 to 0.67")
    few = max(1, sizes.preemptors // 10)
    pair = [(mix(n, servers, warmup_s=0.0), cluster) for n in (few, 10 * few)]
    yield growth_of(f"10 x the preemptors: {few:,} to {10 * few:,} on {where}, domain_first", pair, "domain_first", sizes.repeats,
                    LARGEST_GROWTH_BY_JOBS)


def wide_searches(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Decisions on a cluster of many servers."""
    cluster, where = cluster_of(CLUSTER, sizes.wide_servers), f"paper_mix, {sizes.wide_servers:,} servers"
    ours = searched(mix(sizes.wide_preemptors, sizes.wide_servers), cluster, "domain_first")
    yield Row(f"{where}: one search of domain_first", ours.wall_us, "us", WIDE_TARGET_US, "<=", True,
              f"median of {ours.decisions:,} decisions, {ours.subsets:,.0f} victim sets each")
    fewer = mix(min(sizes.compared_preemptors, sizes.wide_preemptors), sizes.wide_servers)
    one, other = (searched(fewer, cluster, policy) for policy in ("domain_first", "flextopo_exhaustive"))
    yield Row(f"{where}: domain_first decides as flextopo_exhaustive", same_winners(one.table, other.table), "", True, "==",
              detail=f"{one.decisions:,} decisions")
    yield Row(f"{where}: victim sets of domain_first, of exhaustive's", 100 * one.subsets / other.subsets, "%", SUBSETS_TARGET,
              detail=f"{other.subsets:,.0f} by exhaustive search")
