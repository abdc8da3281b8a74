"""Outside referees on the same input: Ciw job by job, two values on which other simulators agree, and Kubernetes' documented rules."""

import math
from typing import Any

import ciw
import numpy as np
import pytest

from builders import job, play, server
from common_workload import common_workload
from engine_run import cluster_of
from harness.cluster.build import Rules
from harness.cluster.hooks import load_policy
from harness.cluster.outcome import Outcome
from harness.cluster.replay import replay
from harness.jit import JIT
from harness.metrics import check_identities, jobs_table
from harness.metrics.utilization import running_spans
from test_closed_forms import poisson, queue

# Ciw


class ByName(ciw.dists.Distribution):
    """Service times by the number that Ciw gives customers in order of arrival, from 1 on."""

    def __init__(self, durations: np.ndarray) -> None:
        self.durations = durations

    def sample(self, t: float | None = None, ind: ciw.Individual | None = None) -> float:
        return float(self.durations[ind.id_number - 1])


class Once(ciw.dists.Distribution):
    """Given times between arrivals, then no more."""

    def __init__(self, between: np.ndarray) -> None:
        self.between = iter(between.tolist())

    def sample(self, t: float | None = None, ind: ciw.Individual | None = None) -> float:
        return next(self.between, math.inf)


def dyadic(times: np.ndarray) -> np.ndarray:
    """Rounded to 2^-24 s and never 0, so that sums are exact in float64 and chance ties do not occur."""
    return np.maximum(np.rint(times * 2**24), 1) / 2**24


def trace(seed: int, n: int, rate: float, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Submission, duration and class (0 most important) of ``n`` jobs, without a tie in time."""
    rng = np.random.default_rng(seed)
    submit = np.cumsum(dyadic(np.diff(poisson(rng, rate, n + 1))))
    return submit, dyadic(rng.exponential(1.0, n)), rng.integers(0, classes, n)


Attempts = list[list[tuple[float, float]]]
"""Per job, from and until of each attempt."""


def by_ciw(submit: np.ndarray, duration: np.ndarray, kind: np.ndarray, servers: int, preempt: str | bool) -> Attempts:
    """Class k has Ciw's priority k, smaller before larger."""
    names = [f"class {k}" for k in range(kind.max() + 1)]
    network = ciw.create_network(
        arrival_distributions={name: [Once(np.diff(submit[kind == k], prepend=0.0))] for k, name in enumerate(names)},
        service_distributions={name: [ByName(duration)] for name in names},
        number_of_servers=[servers],
        priority_classes=({name: k for k, name in enumerate(names)}, [preempt]),
    )
    simulation = ciw.Simulation(network, exact=False)
    simulation.simulate_until_max_time(1e9)
    attempts: Attempts = [[] for _ in submit]
    for record in sorted(simulation.get_all_records(), key=lambda record: record.exit_date):
        assert record.arrival_date == submit[record.id_number - 1]
        attempts[record.id_number - 1].append((record.service_start_date, record.exit_date))
    return attempts


def by_engine(outcome: Outcome) -> Attempts:
    spans = running_spans(outcome)
    attempts: Attempts = [[] for _ in outcome.order]
    for row, since, until in zip(spans.job, spans.since, spans.until, strict=True):
        if until > since:
            attempts[row].append((float(since), float(until)))
    return attempts


@pytest.mark.parametrize(("servers", "classes", "policy", "preempt"), [
    (1, 1, "fifo", False), (5, 1, "fifo", False), (1, 3, "priority", False), (4, 3, "priority", False),
    (1, 3, "godel", "resume"), (4, 3, "godel", "resume"), (4, 3, "flextopo_imp", "resume"), (4, 3, "domain_first", "resume"),
])
def test_every_attempt_is_where_ciw_has_it(servers: int, classes: int, policy: str, preempt: str | bool):
    """Servers of one GPU. Ciw evicts a customer of the least important class, the latest to start among these, as we do.

    All times are multiples of 2^-24 and sums exact, so starts and ends are equal to the bit.
    """
    n = 2000 if JIT else 300
    submit, duration, kind = trace(servers + classes, n, 0.85 * servers, classes)
    columns: dict[str, Any] = {"priority": (-kind).astype(np.int32), "checkpoint_interval_s": np.zeros(n),
                               "preemptible": np.full(n, bool(preempt))}
    outcome = queue(submit, duration, [server()] * servers, policy, **columns)
    assert by_engine(outcome) == by_ciw(submit, duration, kind, servers, preempt)
    assert (outcome.decisions > n / 20) == bool(preempt)


# Other simulators


@pytest.mark.parametrize(("n", "servers", "waited_s", "makespan_s"), [
    # T1 and T3: Helios, Lucid and an independent replay agree on mean waits of 430.7464 and 10.80288 s and these makespans.
    (10_000, 64, 4_307_464, 226_840), (100_000, 256, 1_080_288, 535_934),
])
def test_the_common_workload_has_the_values_of_other_simulators(n: int, servers: int, waited_s: int, makespan_s: int):
    if not JIT and n > 10_000:
        pytest.skip("minutes without compiled code")
    outcome = replay(common_workload(n, servers), cluster_of([server(8)] * servers), load_policy("fifo"), Rules())
    check_identities(outcome)
    jobs = jobs_table(outcome)
    assert jobs["wait_s"].to_numpy().sum() == waited_s
    assert jobs["finish_time"].to_numpy().max() == makespan_s


# Kubernetes: "Pod Priority and Preemption" in its documentation, and the rules of the scheduler's default preemption


def pods(*victims: tuple[str, int, float, int]) -> list[dict[str, Any]]:
    """Preemptible jobs: model of the only server that takes them (its name), priority, start, GPUs."""
    return [job(f"{node}{i}", start, 1000, gpus, priority=priority, preemptible=True, gpu_model=node)
            for i, (node, priority, start, gpus) in enumerate(victims)]


def preempts(victims: list[dict], wanted: int, nodes: dict[str, int], priority: int = 100) -> tuple[str, list[str]] | None:
    """The node nominated for a pod that comes at 50 and wants so many GPUs, and who is evicted there."""
    servers = [server(gpus, gpu_model=name) for name, gpus in nodes.items()]
    rows = play([*victims, job("pod", 50, 10, wanted, priority=priority)], servers, "kubernetes", horizon_s=55.0, scan="all").rows
    return (list(nodes)[rows[0]["server"]], rows[0]["victims"]) if rows else None


def test_kubernetes_evicts_lower_priorities_only():
    # "... removing one or more Pods with lower priority than P": 100 is not lower than 100, 99 is.
    assert preempts(pods(("a", 100, 0, 1)), 1, {"a": 1}) is None
    assert preempts(pods(("a", 99, 0, 1)), 1, {"a": 1}) == ("a", ["a0"])


def test_kubernetes_leaves_a_node_on_which_removing_all_would_not_do():
    # Node a keeps a pod of priority 100: 2 of its 3 GPUs could be freed, too few for 3. Node b can free 3.
    victims = pods(("a", 100, 0, 1), ("a", 1, 0, 2), ("b", 50, 0, 3))
    assert preempts(victims, 3, {"a": 3, "b": 3}) == ("b", ["b2"])
    assert preempts(victims[:2], 3, {"a": 3}) is None


def test_kubernetes_does_not_evict_all_lower_priorities_where_fewer_do():
    # "... does not necessarily remove all lower-priority Pods". All four go at first; the most important are put back while the
    # pod (2 GPUs) fits: 40, then 30; 20 and 10 stay out.
    victims = pods(("a", 10, 0, 1), ("a", 40, 0, 1), ("a", 20, 0, 1), ("a", 30, 0, 1))
    assert preempts(victims, 2, {"a": 4}) == ("a", ["a0", "a2"])
    # The large one of priority 30 cannot be put back, the small one of priority 20 after it can.
    assert preempts(pods(("a", 20, 0, 1), ("a", 30, 0, 3)), 2, {"a": 4}) == ("a", ["a1"])


def test_kubernetes_takes_the_node_whose_highest_victim_is_lowest():
    # One victim of 20 on a, three of at most 19 on b: b, though it costs two victims more.
    victims = pods(("a", 20, 0, 3), ("b", 19, 0, 1), ("b", 1, 0, 1), ("b", 1, 0, 1))
    assert preempts(victims, 3, {"a": 3, "b": 3}) == ("b", ["b1", "b2", "b3"])


def test_kubernetes_then_takes_the_smallest_sum_of_priorities():
    # Highest 20 on both; 20 + 5 on a, 20 + 4 on b. Each victim counts 2^31 more, so a node with fewer victims has the smaller sum
    # even if its plain sum is larger: c with 20 alone against 20 - 30.
    assert preempts(pods(("a", 20, 0, 1), ("a", 5, 0, 1), ("b", 20, 0, 1), ("b", 4, 0, 1)), 2, {"a": 2, "b": 2}) == ("b", ["b2", "b3"])
    assert preempts(pods(("a", 20, 0, 1), ("a", -30, 0, 1), ("c", 20, 0, 2)), 2, {"a": 2, "c": 2}) == ("c", ["c2"])


def test_kubernetes_then_takes_the_latest_start_of_the_most_important_victims():
    # Equal sums and numbers. Among victims of priority 20 the earliest start is 3 on a and 4 on b; those of priority 5 do not
    # count. (Victims are listed in the order in which they came.)
    victims = pods(("a", 20, 3, 1), ("a", 20, 9, 1), ("a", 5, 9, 1), ("b", 20, 4, 1), ("b", 20, 5, 1), ("b", 5, 0, 1))
    assert preempts(victims, 3, {"a": 3, "b": 3}) == ("b", ["b5", "b3", "b4"])
    # All equal: the first node.
    victims = pods(("a", 20, 3, 1), ("b", 20, 3, 1))
    assert preempts(victims, 1, {"a": 1, "b": 1}) == ("a", ["a0"])


def test_kubernetes_preempts_only_when_no_node_has_room():
    # Node b has a free GPU: nobody is evicted on a.
    assert preempts(pods(("a", 1, 0, 1)), 1, {"a": 1, "b": 1}) is None


def test_a_kubernetes_pod_waits_for_its_victims_and_keeps_what_they_leave():
    # Grace 30: evicted at 50, the victim is gone at 80, when the pod starts. A pod of lower priority that comes meanwhile does not
    # get the nominated resources. (Kubernetes would let a pod of higher priority have them; here claims are final.)
    jobs = [*pods(("a", 1, 0, 1)), job("pod", 50, 10, priority=100), job("late", 60, 10, priority=50)]
    played = play(jobs, [server(gpu_model="a")], "kubernetes", grace_s=30.0, horizon_s=120.0)
    assert played.starts == [(0, "a0"), (80, "pod"), (90, "late"), (100, "a0")]


def test_kubernetes_looks_at_a_hundred_nodes_of_a_large_cluster():
    """With n nodes at most max(n / 10, 100) candidates are compared, from a seeded offset on."""
    jobs = [job(f"v{i}", i / 1024, 1000, priority=i % 7, preemptible=True) for i in range(128)]
    jobs.append(job("pod", 50, 10, priority=100))
    one = [server()] * 128
    everywhere = play(jobs, one, "kubernetes", horizon_s=55.0, scan="all").rows[0]
    # Lowest priority 0, then the latest start: the last multiple of 7 below 128.
    assert (everywhere["server"], everywhere["servers_scanned"]) == (126, 128)
    for seed, server_found in ((0, 126), (12, 98), (18, 119)):
        row = play(jobs, one, "kubernetes", horizon_s=55.0, seed=seed).rows[0]
        # x_1 = 48271 (1000003 seed + 12345) mod (2^31 - 1) gives the offset; 100 servers follow, around.
        first = 48271 * (1000003 * seed + 12345) % (2**31 - 1) % 128
        seen = [(first + i) % 128 for i in range(100)]
        assert max(s for s in seen if s % 7 == 0) == server_found
        assert (row["server"], row["servers_scanned"]) == (server_found, 100)
