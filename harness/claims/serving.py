"""What is published about serving policies beside what was measured: claims and tables of REPRODUCTION.md from the serving recipes.

    python -m harness.claims.serving

prints the worst ratios of ISJL and its rivals to the exhaustive optimum, and their frontier of throughput, externality and profit.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations_with_replacement
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness import batching
from harness.claims.claim import Claim, Section, claim
from harness.figures import isjl_frontier, isjl_profit
from harness.figures.intervals import Interval, interval
from harness.figures.results import open_results
from harness.report_tables import Grid
from harness.workload import load

SYNTHETIC = ("Synthetic likeness of the Azure trace, so that nothing is downloaded (workload.paths takes the real one); replicas are "
             "simulated step by step instead of measured. ")
OVERLOADED = SYNTHETIC + "The published load cannot be a stable system; this is the preset `drain` (70B, 4.5 x, 0.2 % long). "


PRICES = (1.0, 1.5, 2.5)
"""Prices of a token for which profit is shown, over the one at which LJF breaks even."""


class Rule(NamedTuple):
    """A way to schedule batches: schedule(lengths, places, delta)."""

    name: str
    schedule: Callable[..., batching.Schedule]


RULES = (
    Rule("LJF", lambda lengths, places, delta: batching.ljf(lengths, places)),
    Rule("ISJL, head insertion", batching.isjl),
    Rule("ISJL, tail insertion", batching.isjl_tail),
    Rule("FCFS, worst order of two", lambda lengths, places, delta: max(
        (batching.fcfs(order, places, delta) for order in (lengths, lengths[::-1])), key=lambda s: s.cost())),
)


class Instances(NamedTuple):
    """Every multiset of up to ``jobs`` lengths up to ``longest``, on ``places``."""

    places: int
    jobs: int
    longest: int


SMALL = Instances(2, 6, 5)
"""Where the exhaustive optimum is affordable."""


class Worst(NamedTuple):
    """The least ratio of optimum to cost of a rule, and the instance and delta where it occurs."""

    ratio: float
    lengths: tuple[int, ...]
    delta: int


@cache
def worst_ratios(among: Instances) -> dict[str, Worst]:
    """For each rule the worst ratio over all instances and every delta: pure-max steps."""
    worst = {rule.name: Worst(np.inf, (), 0) for rule in RULES}
    for n in range(2, among.jobs + 1):
        for lengths in combinations_with_replacement(range(1, among.longest + 1), n):
            for delta in range(among.longest + 1):
                best = batching.optimum(lengths, among.places, delta)
                for rule in RULES:
                    ratio = best / rule.schedule(lengths, among.places, delta).cost()
                    if ratio < worst[rule.name].ratio:
                        worst[rule.name] = Worst(ratio, lengths, delta)
    return worst


@cache
def frontier(seeds: int = 10, places: int = 32) -> pd.DataFrame:
    """Each rule and delta against LJF, mean over seeds of lmsys_like: throughput, mean latency, and the price of a token at which profit
    is zero (over LJF's own); then externality, and alignment of caused with own cost."""
    rows = []
    for seed in range(seeds):
        lengths = load("lmsys_like", {}, None, seed)["output_tokens"].to_pylist()  # type: ignore[arg-type]
        base = batching.ljf(lengths, places)
        schedules = {("LJF", 0.0): base, ("FCFS", np.inf): batching.fcfs(lengths, places)}
        schedules |= {("ISJL", d): batching.isjl(lengths, places, d) for d in (64.0, 215.0, 512.0, np.inf)}
        for (rule, delta), schedule in schedules.items():
            price = schedule.cost() / base.cost()
            rows.append({"rule": rule, "delta": delta, "seed": seed, "throughput": 1 / price - 1,
                         "latency": np.mean(schedule.finishes()) / np.mean(base.finishes()) - 1, "price": price,
                         "externality": schedule.externality(), "alignment": schedule.alignment()})
    found = pd.DataFrame(rows).drop(columns="seed").groupby(["rule", "delta"], as_index=False, sort=False)
    return found.mean()


def profit(price: float, times: float) -> float:
    """Profit as a share of revenue when a token sells at ``times`` the price at which LJF breaks even; ``price`` is where the rule does."""
    return 1 - price / times


def claims(done: dict[str, Path]) -> list[Claim]:
    """Every claim whose recipe is among ``done`` (recipe -> results folder)."""
    found: list[Claim] = []
    if {"pecsched_drain", "pecsched_without"} <= set(done):
        found += _pecsched(done)
    if "isjl" in done:
        found += _isjl(done["isjl"])
    return found


def ratio(cells: pd.DataFrame, metric: str, policy: str, baseline: str) -> Interval:
    """``policy`` over ``baseline`` in ``metric``, seed by seed."""
    of = cells.set_index(["policy", "seed"])[metric]
    return interval((of.loc[policy] / of.loc[baseline]).to_numpy())


def _pecsched(done: dict[str, Path]) -> Iterator[Claim]:
    cells = open_results(done["pecsched_drain"]).summary
    without = open_results(done["pecsched_without"]).summary
    without = without[without["workload.load_scale"] == 4.5].set_index("seed")
    fifo = cells[cells["policy"] == "long_fifo"].set_index("seed")
    named = cells.assign(policy=cells["policy"].str.split(",").str[0])
    command = "harness -m +experiment=pecsched_drain"
    published: tuple[tuple[str, str, tuple[float, float], Interval], ...] = (
        ("fifo-longs-p99", "FIFO with long requests over FIFO without: p99 queueing of short ones", (2.5, 10.2),
         interval((fifo["queue_s_p99_short"] / without["queue_s_p99"]).to_numpy())),
        ("fifo-longs-throughput", "FIFO with long requests over FIFO without: throughput of short ones", (0.19, 0.64),
         interval((fifo["drain_rps_short"] / without["throughput_rps"]).to_numpy())),
        ("fifo-p99", "PecSched over FIFO: p99 queueing of short ones", (0.13, 0.42),
         ratio(named, "queue_s_p99_short", "pecsched", "long_fifo")),
        ("fifo-throughput", "PecSched over FIFO: throughput of short ones", (1.42, 4.18),
         ratio(named, "drain_rps_short", "pecsched", "long_fifo")),
        ("long-jct", "PecSched over FIFO: mean completion time of long ones", (1.04, 1.07),
         ratio(named, "e2e_s_mean_long", "pecsched", "long_fifo")),
        ("reservation-p99", "PecSched over Reservation: p99 queueing of short ones (the headline: 92 % less)", (0.08, 0.39),
         ratio(named, "queue_s_p99_short", "pecsched", "reservation")),
        ("reservation-throughput", "PecSched over Reservation: throughput of short ones (the headline: 595 % more)", (2.93, 6.95),
         ratio(named, "drain_rps_short", "pecsched", "reservation")),
        ("priority-starves", "Priority: share of long ones not started when the last short one completes", (0.92, 1.0),
         interval(cells.loc[cells["policy"] == "long_priority", "starved_share_long"].to_numpy())),
        ("reservation-idle", "Reservation: idle share of the replicas' time", (0.16, 0.41),
         interval(1 - cells.loc[cells["policy"] == "reservation", "busy_mean"].to_numpy())),
    )
    for name, quantity, between, measured in published:
        yield claim(f"pecsched-{name}", "pecsched", quantity, "", between, measured, command=command, setup_difference=OVERLOADED)


def _isjl(folder: Path) -> Iterator[Claim]:
    cells = open_results(folder).summary
    delta = cells["policy"].str.extract(r"delta ([\d.e+]+)")[0].astype(float)
    most, base = cells[delta == delta.max()].set_index("seed"), cells[delta == 0].set_index("seed")
    worst = worst_ratios(SMALL)["ISJL, head insertion"]
    setup = ("A reconstruction: the paper's steps are not public. Pure-max steps. ")
    yield claim("isjl-ratio", "isjl", "worst ratio of optimum to cost over small instances, two places", "", (0.75, None), worst.ratio,
                setup_difference=f"{setup}Every multiset of up to {SMALL.jobs} lengths up to {SMALL.longest} and every delta; worst at "
                f"{list(worst.lengths)}, delta {worst.delta}. No proof.", command="python -m harness.claims.serving", reconstruction=True)
    setup += "Log-normal lengths of the mean of LMSYS in place of its replay, 32 places, 512 requests; the largest delta (none). "
    yield claim("isjl-throughput", "isjl", "throughput against LJF", "%", (17.0, None),
                interval((base["makespan_s"] / most["makespan_s"] - 1).to_numpy()), scale=100, setup_difference=setup,
                command="harness -m +experiment=isjl", reconstruction=True)
    yield claim("isjl-latency", "isjl", "mean latency against LJF", "%", (None, -21.0),
                interval((most["e2e_s_mean"] / base["e2e_s_mean"] - 1).to_numpy()), scale=100, setup_difference=setup,
                command="harness -m +experiment=isjl", reconstruction=True)


def figures(done: dict[str, Path]) -> dict[str, Figure]:
    """Throughput, externality and profit of ISJL and its rivals."""
    if "isjl" not in done:
        return {}
    return {"isjl-frontier": isjl_frontier.draw(frontier()), "isjl-profit": isjl_profit.draw(frontier())}


def sections(done: dict[str, Path]) -> list[Section]:
    """Tables beside the claims: absolute seconds of PecSched's comparison, ISJL's ratios and frontier, and what the step-time model
    changes."""
    sections = []
    for name, title in (("pecsched_drain", "PecSched and its rivals, overloaded"), ("pecsched_stable", "PecSched and its rivals, stable")):
        if name in done:
            metrics = ("queue_s_p99_short", "ttft_s_p99_short", "decode_wait_s_p99_short", "drain_rps_short", "e2e_s_mean_long",
                       "starved_share_long", "preemptions", "busy_mean", "drain_ratio")
            sections.append(Section(title, _means(done[name], metrics, f"harness -m +experiment={name}")))
    if "pecsched_ablations" in done:
        sections.append(Section("PecSched's ablations, overloaded", _means(
            done["pecsched_ablations"], ("queue_s_p99_short", "drain_rps_short", "e2e_s_mean_long", "preemptions"),
            "harness -m +experiment=pecsched_ablations", ("pool.sp",))))
    if "step_models" in done:
        sections.append(Section("Whether the step-time model changes the ranking", _rankings(done["step_models"])))
    if "isjl" in done:
        sections.append(Section("ISJL (a reconstruction) beside LJF, FCFS and the optimum", _isjl_tables()))
    if "switching" in done:
        sections.append(Section("Two models on one GPU", _means(
            done["switching"], ("ttft_s_mean", "ttft_s_p99", "slo_met_share", "switches"), "harness -m +experiment=switching",
            ("workload.rate",))))
    return sections


def _means(folder: Path, metrics: tuple[str, ...], command: str, by: tuple[str, ...] = ()) -> str:
    summary = open_results(folder).summary
    by = tuple(column for column in by if column in summary)
    kept = [m for m in metrics if m in summary]
    table = Grid(["policy", *by, *kept], [], tuple(range(1 + len(by))))
    for names, cells in summary.groupby(["policy", *by], observed=True):
        table.rows.append([str(name) for name in names] + [f"{cells[m].astype(float).mean():.4g}" for m in kept])
    return f"Means over seeds, seconds (`{command}`).\n\n{table.markdown()}"


def _rankings(folder: Path) -> str:
    """Policies by mean end-to-end latency under each step-time model, and whether the order is the same under all."""
    summary = open_results(folder).summary
    orders = {}
    table = Grid(["step-time model", "policies, best mean end-to-end latency first (s)"], [], (0, 1))
    for model, cells in summary.groupby("pool/step_time", observed=True):
        means = cells.groupby("policy", observed=True)["e2e_s_mean"].mean().sort_values()
        orders[str(model)] = tuple(means.index)
        table.rows.append([str(model), ", ".join(f"{policy} {value:.3g}" for policy, value in means.items())])
    same = len(set(orders.values())) == 1
    verdict = f"The ranking is {'the same' if same else 'NOT the same'} under all of them."
    return f"{verdict} Means over seeds (`harness -m +experiment=step_models`).\n\n{table.markdown()}"


def _isjl_tables() -> str:
    table = Grid(["rule", "worst ratio, 2 places", "at", "delta"], [], (0, 2))
    for name, worst in worst_ratios(SMALL).items():
        table.rows.append([name, f"{worst.ratio:.3f}", str(list(worst.lengths)), str(worst.delta)])
    curve = Grid(["rule", "delta", "throughput against LJF", "mean latency against LJF", "externality", "cost alignment"], [], (0, 1))
    money = Grid(["rule", "delta", "price at which it breaks even (LJF's: 1)", *(f"profit at {times:g}" for times in PRICES)], [], (0, 1))
    for _, row in frontier().iterrows():
        gains = [f"{100 * row[metric]:+.1f} %" for metric in ("throughput", "latency")]
        names = [str(row["rule"]), f"{row['delta']:g}"]
        curve.rows.append([*names, *gains, f"{row['externality']:.2f}", f"{row['alignment']:.3f}"])
        money.rows.append([*names, f"{row['price']:.3f}", *(f"{100 * profit(row['price'], times):+.1f} %" for times in PRICES)])
    return "\n".join([
        f"Exhaustive optimum under the same delta, pure-max steps, every multiset of up to {SMALL.jobs} lengths up to {SMALL.longest}.",
        "With a constant part c0 of the step the bound of 3/4 holds only for c0 <= c1 Lmax / 4; under unit step times no rule holds it",
        "at every delta.",
        "", table.markdown(), "",
        "512 log-normal lengths, 32 places, means over 10 seeds (`python -m harness.claims.serving`). The published gains appear at large",
        "delta and 16 jobs for each place. Cost alignment: correlation over requests of the cost of the steps that a request is in with",
        "what it would cost alone.", "", curve.markdown(), "",
        "Profit under token pricing: price x tokens - sum of step costs, as a share of revenue. The unit of price is the one at which LJF",
        "breaks even, so that the sign says whether a rule earns more than LJF; every rule makes the same tokens.", "", money.markdown()])


def main() -> int:
    print(_isjl_tables())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
