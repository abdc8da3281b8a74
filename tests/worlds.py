"""Small random worlds for the replay: one to six servers, one to thirty jobs, and options, all from one seed.

Times are whole or quarter seconds and speeds multiples of 1/4, so that ties are many and most sums are exact. ``show``
prints a world so that a person can work it by hand, and ``literal`` as Python to paste into a test.
"""

from pprint import pformat
from random import Random
from typing import Any

from hypothesis import strategies as st

from harness import schema

World = tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]
MODELS = ("A100", "L40")


def worlds() -> st.SearchStrategy[World]:
    """Worlds as a Hypothesis strategy; shrinking goes towards small seeds, not towards small worlds."""
    return st.integers(0, 2**32 - 1).map(world)


def world(seed: int) -> World:
    """(jobs, servers, options) of the world ``seed``: rows of ``schema.JOBS``, server dicts and options of ``naive.replay``."""
    rng = Random(seed)
    servers = _servers(rng)
    jobs, options = _jobs(rng, servers), _options(rng)
    for row in jobs:
        row["tenant"] = rng.choice(("a", "b", "b", "c"))
    return jobs, servers, options


def _maybe(rng: Random, share: float, value: Any, otherwise: Any) -> Any:
    return value if rng.random() < share else otherwise


def _shape(rng: Random) -> dict[str, Any]:
    numa = rng.choice((1, 1, 2, 2, 2, 4, 4, 8))
    sockets = rng.choice([n for n in (1, 2, 2, 4) if n <= numa])
    gpus = rng.choice((0, 1, 2, 2, 3, 4, 4, 4, 6, 8, 8))
    socket = [n * sockets // numa for n in range(numa)]
    gpu_numa = [i * numa // gpus for i in range(gpus)]
    if rng.random() < 0.2:
        gpu_numa = [rng.randrange(numa) for _ in range(gpus)]
    pairs = [n // 2 for n in range(numa)]
    nested = all(socket[2 * pair] == socket[min(2 * pair + 1, numa - 1)] for pair in set(pairs))
    nvlink = rng.choice(([], [], socket, [0] * numa, pairs if nested else []))
    cores = rng.choice((2, 4, 8))
    return {
        "gpu_model": rng.choice(MODELS), "memory_mib": rng.choice((16, 64, 1024)), "numa_socket": socket, "gpu_numa": gpu_numa,
        "numa_cores": [_maybe(rng, 0.1, rng.randint(1, 8), cores) for _ in range(numa)], "nvlink": list(nvlink),
    }


def _servers(rng: Random) -> list[dict[str, Any]]:
    shapes = [_shape(rng) for _ in range(rng.choice((1, 1, 2)))]
    number = rng.choice((1, 1, 2, 2, 3, 4, 5, 6))
    several = rng.random() < 0.5
    rack = spine = 0
    servers = []
    for index in range(number):
        if index and several and rng.random() < 0.5:
            rack += 1
            spine += rng.random() < 0.4
        servers.append({**rng.choice(shapes), "rack": rack, "spine": spine})
    return servers


def _crowd(rng: Random, servers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Asks of a world of preemptions: small preemptible jobs of low priority, and guaranteed ones that evict them."""
    asks = []
    for priority, affinity in ((-1, "none"), (0, "best_effort"), (2, "guaranteed"), (3, "guaranteed")):
        server = rng.choice(servers)
        most, nodes = max(1, len(server["gpu_numa"])), len(server["numa_cores"])
        gpus = 1 if priority <= 0 else min(most, rng.choice((2, max(2, most // nodes), most // 2 or 1)))
        fair = float(gpus * sum(server["numa_cores"]) // most)
        asks.append({
            "instances": rng.choice((1, 1, 1, 2)), "gpus": gpus,
            "gpu_milli": 500 if priority < 0 and rng.random() < 0.3 else 1000, "cpus": rng.choice((0.0, fair, fair)),
            "memory_mib": 0, "priority": priority, "preemptible": priority <= 0 or rng.random() < 0.3, "affinity": affinity,
            "affinity_domain": rng.choice(("auto", "auto", "numa", "nvlink", "socket")), "gpu_model": None,
            "network_domain": "none", "network_mode": "none",
        })
    return asks


def _ask(rng: Random, servers: list[dict[str, Any]]) -> dict[str, Any]:
    """The columns that make a class of jobs, sized for one of the servers and sometimes too large for all."""
    server = rng.choice(servers)
    most, cores = len(server["gpu_numa"]), sum(server["numa_cores"])
    gpus = rng.choice([n for n in (1, 1, 1, 2, 2, 3, 4, 8) if n <= most] + [0])
    if rng.random() < 0.03:
        gpus = most + 1
    fair = cores * gpus / most if gpus and most else rng.choice((1.0, 2.0, cores / 2))
    cpus = rng.choice((0.0, 1.0, 0.5, fair, fair, fair / 2, float(int(fair)), _maybe(rng, 0.3, fair + 1, 1.25)))
    memory = rng.choice((0, 0, 0, 0, 1, server["memory_mib"] // 4, server["memory_mib"] // 2))
    if not gpus and not cpus and not memory:
        cpus = 1.0
    room = max(1, sum(len(other["gpu_numa"]) for other in servers) // max(1, gpus))
    return {
        "instances": min(rng.choice((1, 1, 1, 1, 2, 2, 3, 4)), _maybe(rng, 0.95, room, 99)), "gpus": gpus,
        "gpu_milli": rng.choice((250, 300, 500, 500, 750)) if gpus == 1 and rng.random() < 0.35 else 1000,
        "cpus": cpus, "memory_mib": memory, "priority": rng.randint(-1, 3), "preemptible": rng.random() < 0.7,
        "affinity": rng.choice(schema.AFFINITIES),
        "affinity_domain": _maybe(rng, 0.4, "auto", rng.choice(schema.AFFINITY_DOMAINS)),
        "gpu_model": _maybe(rng, 0.8, None, rng.choice((server["gpu_model"], "|".join(MODELS), "H100|L40"))),
        "network_domain": _maybe(rng, 0.6, "none", rng.choice(schema.NETWORK_DOMAINS)),
        "network_mode": rng.choice(schema.NETWORK_MODES),
    }


def _jobs(rng: Random, servers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    number, step = rng.choice((rng.randint(1, 8), rng.randint(8, 30), 30)), rng.choice((1, 1, 1, 0.25))
    asks = _crowd(rng, servers) if rng.random() < 0.4 else [_ask(rng, servers) for _ in range(rng.randint(1, 6))]
    span, longest = rng.choice((8, 20, 40)), rng.choice((8, 20, 40, 40))
    with_estimates, with_ends = rng.random() < 0.4, rng.random() < 0.3

    def time(least: float, most: float) -> float:
        return float(step * rng.randint(int(least / step), int(most / step)))

    jobs = []
    for index in range(number):
        submit, duration = time(0, span), time(1, longest)
        ask = dict(rng.choice(asks)) if rng.random() < 0.9 else _ask(rng, servers)
        if rng.random() < 0.2:
            ask["priority"] = rng.randint(-1, 3)
        row = {
            "job_id": f"j{index}", "submit_time": submit, "duration": duration,
            "duration_estimate_s": time(1, longest) if with_estimates else duration,
            "end_time": submit + time(1, longest) if with_ends and rng.random() < 0.4 else None,
            **ask, "kind": rng.choice(schema.KINDS), "tenant": "",
            "checkpoint_interval_s": rng.choice((None, 0.0, 1.0, 2.0, 2.5, 5.0)),
            "restart_cost_s": rng.choice((0.0, 0.0, 1.0, 2.5)),
        }
        jobs.append({name: row[name] for name in schema.names(schema.JOBS)})
    return jobs


def _options(rng: Random) -> dict[str, Any]:
    speed = {}
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 8)):
            where = rng.choice(schema.KINDS), rng.choice((None, *schema.LEVELS)), rng.choice(schema.NETWORK_LEVELS)
            speed[where] = rng.choice((0.25, 0.5, 0.75, 1.25, 2.0))
    return {
        "pinning": rng.choice(schema.PINNINGS), "grace_s": rng.choice((0.0, 0.0, 5.0, 1.0, 2.5)),
        "min_runtime_s": rng.choice((0.0, 0.0, 3.0)), "max_evictable": rng.choice((16, 16, 16, 4, 2)),
        "horizon_s": _maybe(rng, 0.25, float(rng.randint(1, 60)), float("inf")), "seed": rng.randint(0, 1000), "speed": speed,
        "rank_by": _maybe(rng, 0.7, "victims", "assigned"), "alpha": rng.choice((0.0, 0.0, 0.0, 0.5, 1.0)),
        "scan": _maybe(rng, 0.7, "sampled", "all"), "retry_s": rng.choice((60.0, 60.0, 4.0, 0.0)),
        "power": rng.choice((100.0, 50.0, 500.0, 0.0, 1000.0)), "period_s": rng.choice((300.0, 300.0, 600.0)),
        "limit_1_gpu_s": rng.choice((3250.0, 1024.0)), "limit_2_gpu_s": rng.choice((7200.0, 20480.0)),
        "quota": _maybe(rng, 0.6, "forecast", rng.choice(("none", "constant"))), "quota_share": rng.choice((0.25, 0.5, 0.75)),
        "forecaster": _maybe(rng, 0.5, "lin", rng.choice(("last", "seasonal", "oracle"))), "p": rng.choice((0.9, 0.5)),
        "day_h": rng.choice((1.0, 2.0)), "week_h": 3.0, "history_h": rng.choice((9.0, 672.0)),
        "without": _maybe(rng, 0.5, "nothing", rng.choice(("order", "victims", "placement"))),
        "blind": _maybe(rng, 0.5, "true", "false"),
        "profile": rng.choice(("mixed", "best_fit", "least_free")),
        "machine_s": rng.choice((0.0, 2.0, 5.0, 600.0)), "rack_s": rng.choice((0.0, 3.0, 10.0, 600.0)),
        "preempt": _maybe(rng, 0.7, "consolidate", "never"),
        "quota_by": _maybe(rng, 0.7, "equal", "demand"), "nominal_share": rng.choice((1.0, 1.0, 0.75, 0.5)),
        "queues_per_cohort": rng.choice((0.0, 0.0, 1.0, 2.0)), "borrowing_limit": rng.choice((1e9, 1e9, 0.5, 0.0)),
        "within_queue": rng.choice(("never", "lower_priority", "lower_or_newer_equal")),
        "reclaim": rng.choice(("never", "lower_priority", "any")),
        "fair_sharing": _maybe(rng, 0.6, "off", "on"),
    }


TIMES = ("submit_time", "duration", "duration_estimate_s", "end_time", "checkpoint_interval_s", "restart_cost_s")
LONG_WORLDS = ("tiresias", "hps", "sbs", "gfs", "yarn_cs", "lyra", "chronus")
"""Policies whose own times are minutes and hours."""


def world_for(policy: str, seed: int) -> World:
    """``world(seed)``; for a policy whose own times are minutes and hours all its times are 512 times as long."""
    jobs, servers, options = world(seed)
    if policy not in LONG_WORLDS:
        return jobs, servers, options
    jobs = [{**row, **{name: 512 * row[name] for name in TIMES if row[name] is not None}} for row in jobs]
    options = {**options, **{name: 512 * options[name] for name in ("grace_s", "min_runtime_s", "horizon_s", "retry_s")}}
    if seed % 8:  # else a day of ticks without anything follows
        options["horizon_s"] = min(options["horizon_s"], 512 * 60.0)
    return jobs, servers, options


def show(jobs: list[dict[str, Any]], servers: list[dict[str, Any]], options: dict[str, Any]) -> None:
    """Prints a world: servers, options, then jobs by submit time with their index and what differs from the defaults."""
    for index, server in enumerate(servers):
        nodes = []
        for node, cores in enumerate(server["numa_cores"]):
            gpus = "".join(f" g{i}" for i, n in enumerate(server["gpu_numa"]) if n == node)
            link = f" nvlink {server['nvlink'][node]}" if server["nvlink"] else ""
            nodes.append(f"socket {server['numa_socket'][node]}{link}: {cores} cores{gpus}")
        place = f"rack {server['rack']}, spine {server['spine']}"
        print(f"server {index}: {server['gpu_model']}, {server['memory_mib']} MiB, {place};", "; ".join(nodes))
    print("options:", ", ".join(f"{name}={value}" for name, value in options.items()))
    defaults = {column.name: column.default for column in schema.JOBS}
    always, apart = ("gpus", "cpus"), ("job_id", "submit_time", "duration")
    for index, job in enumerate(sorted(jobs, key=lambda job: job["submit_time"])):
        defaults["duration_estimate_s"] = job["duration"]
        shown = [name for name in job if name in always or (name not in apart and job[name] != defaults[name])]
        print(f"[{index}] {job['job_id']}: at {job['submit_time']:g} for {job['duration']:g}:",
              ", ".join(f"{name}={job[name]}" for name in shown))


def literal(jobs: list[dict[str, Any]], servers: list[dict[str, Any]], options: dict[str, Any]) -> str:
    """The world as Python source. An infinite horizon is left out, for it has no literal."""
    finite = {name: value for name, value in options.items() if value != float("inf")}
    return "\n".join(f"{name} = {pformat(value, width=128, sort_dicts=False)}"
                     for name, value in (("jobs", jobs), ("servers", servers), ("options", finite)))
