"""The plain-Python twin of the job-level replay: objects and sorted lists, obviously right rather than fast.

Written from the text of the replay semantics alone; it shares only ``harness.schema`` with the package. Free amounts are
summed afresh from what everybody holds after every change, the next event is found by looking at every job, and a victim
set is tested by taking it off a copy.

Units: GPUs and cores in thousandths, exclusive cores in whole cores, memory in MiB (integers); times in seconds (floats).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harness import schema
from naive_policies import POLICIES as ORDINARY
from naive_spot import POLICIES as SPOT

POLICIES = {**ORDINARY, **SPOT}

INF = math.inf
MODULUS = 2**31 - 1
CLASS_COLUMNS = ("instances", "gpus", "gpu_milli", "cpus", "memory_mib", "affinity", "affinity_domain", "gpu_model",
                 "network_domain", "network_mode", "priority")
DEFAULTS: dict[str, Any] = {
    "pinning": "packed", "grace_s": 0.0, "min_runtime_s": 0.0, "max_evictable": 16, "horizon_s": INF, "seed": 0, "speed": {},
    "rank_by": "victims", "alpha": 0.0, "scan": "sampled", "retry_s": 60.0, "power": 100.0, "period_s": 300.0, "limit_1_gpu_s": 3250.0,
    "limit_2_gpu_s": 7200.0, "quota": "forecast", "quota_share": 0.1, "forecaster": "lin", "p": 0.9, "day_h": 24.0, "week_h": 168.0,
    "history_h": 672.0, "without": "nothing", "blind": "false",
    "profile": "mixed", "machine_s": 600.0, "rack_s": 1200.0, "preempt": "consolidate",
    "quota_by": "equal", "nominal_share": 1.0, "queues_per_cohort": 0.0, "borrowing_limit": 1e9, "within_queue": "never",
    "reclaim": "never", "fair_sharing": "off",
}


class Server:
    """One server: its NUMA nodes, GPUs and topology domains. ``domains[level]`` lists sets of NUMA nodes in index order."""

    def __init__(self, index: int, row: dict[str, Any]) -> None:
        self.index = index
        self.gpu_model: str = row["gpu_model"]
        self.numa_cores: list[int] = list(row["numa_cores"])
        self.gpu_numa: list[int] = list(row["gpu_numa"])
        self.memory_mib: int = row["memory_mib"]
        self.rack: int = row["rack"]
        self.spine: int = row["spine"]
        socket, nvlink = list(row["numa_socket"]), list(row["nvlink"])
        nodes = range(len(self.numa_cores))
        self.domains: dict[str, list[set[int]]] = {"numa": [{n} for n in nodes]}
        groups = [{n for n in nodes if nvlink[n] == g} for g in sorted(set(nvlink))]
        self.nvlink_spans_sockets = any(len({socket[n] for n in group}) > 1 for group in groups)
        if groups and not self.nvlink_spans_sockets:
            self.domains["nvlink"] = groups
        self.domains["socket"] = [{n for n in nodes if socket[n] == s} for s in sorted(set(socket))]
        self.domains["server"] = [set(nodes)]

    @property
    def capacity(self) -> list[int]:
        return [1000] * len(self.gpu_numa) + self.numa_cores + [1000 * sum(self.numa_cores), self.memory_mib]

    def accepted_level(self, ask: "Ask") -> str:
        """The largest level that a guaranteed instance accepts on this server."""
        if ask.domain == "auto":
            holds = any(self.gpu_numa.count(n) >= ask.gpus and cores >= ask.exclusive for n, cores in enumerate(self.numa_cores))
            return "numa" if holds else "socket"
        if ask.domain == "nvlink" and "nvlink" not in self.domains:
            return "server" if self.nvlink_spans_sockets else "numa"
        return ask.domain

    def accepted_levels(self, ask: "Ask") -> list[str]:
        levels = list(self.domains)
        return levels[:levels.index(self.accepted_level(ask)) + 1]

    def level(self, nodes: set[int]) -> str | None:
        """The smallest level with a domain that holds ``nodes``; None for no node."""
        if not nodes:
            return None
        return next(level for level, domains in self.domains.items() if any(nodes <= domain for domain in domains))


@dataclass(frozen=True)
class Ask:
    """What one instance asks for. Cores are exclusive (whole) or shared (thousandths), never both."""

    gpus: int
    gpu_milli: int
    exclusive: int
    shared: int
    memory: int
    guaranteed: bool
    domain: str
    models: tuple[str, ...] | None

    @property
    def fractional(self) -> bool:
        return self.gpus == 1 and self.gpu_milli < 1000

    @property
    def cores_milli(self) -> int:
        return 1000 * self.exclusive + self.shared


@dataclass(frozen=True)
class Hold:
    """What one instance holds on one server: thousandths by GPU, exclusive cores by NUMA node, shared cores, memory."""

    server: Server
    gpus: dict[int, int]
    exclusive: dict[int, int]
    shared: int
    memory: int

    @cached_property
    def amounts(self) -> list[int]:
        """In the order of ``Server.capacity``."""
        gpus = [self.gpus.get(i, 0) for i in range(len(self.server.gpu_numa))]
        cores = [self.exclusive.get(n, 0) for n in range(len(self.server.numa_cores))]
        return gpus + cores + [self.cores_milli, self.memory]

    @property
    def cores_milli(self) -> int:
        return 1000 * sum(self.exclusive.values()) + self.shared

    @property
    def gpu_milli(self) -> int:
        return sum(self.gpus.values())

    @property
    def nodes(self) -> set[int]:
        return {self.server.gpu_numa[i] for i in self.gpus} | set(self.exclusive)

    @property
    def level(self) -> str | None:
        return self.server.level(self.nodes)


def total(server: Server, holds: Iterable[Hold]) -> list[int]:
    """The summed amounts of those of ``holds`` that are on ``server``."""
    rows = [hold.amounts for hold in holds if hold.server is server]
    return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * len(server.capacity)


@dataclass
class Free:
    """What is free on one server, in the order of ``Server.capacity``."""

    server: Server
    amounts: list[int]

    def copy(self) -> "Free":
        return Free(self.server, list(self.amounts))

    def give(self, hold: Hold) -> None:
        self.amounts = [a + b for a, b in zip(self.amounts, hold.amounts, strict=True)]

    def take(self, hold: Hold) -> None:
        self.amounts = [a - b for a, b in zip(self.amounts, hold.amounts, strict=True)]
        assert min(self.amounts) >= 0, "a placement took more than is free"

    @property
    def gpus(self) -> list[int]:
        return self.amounts[:len(self.server.gpu_numa)]

    @property
    def exclusive(self) -> list[int]:
        return self.amounts[len(self.server.gpu_numa):-2]

    def whole(self, domain: set[int]) -> list[int]:
        """The wholly free GPUs of the NUMA nodes of ``domain``, by index."""
        return [i for i, milli in enumerate(self.gpus) if milli == 1000 and self.server.gpu_numa[i] in domain]

    def holds(self, domain: set[int], ask: Ask) -> bool:
        return len(self.whole(domain)) >= ask.gpus and sum(self.exclusive[n] for n in domain) >= ask.exclusive

    def share(self, ask: Ask) -> int | None:
        """The GPU of a fractional instance: the tightest partly used one that fits, else the lowest free one."""
        usable = [(milli == 1000, milli, i) for i, milli in enumerate(self.gpus)
                  if milli >= ask.gpu_milli and self.exclusive[self.server.gpu_numa[i]] >= ask.exclusive]
        return min(usable)[2] if usable else None

    def fits(self, ask: Ask, guarantee: bool = True) -> bool:
        """Whether the counts fit and, with ``guarantee``, a domain of an accepted level does for a guaranteed instance."""
        if ask.models is not None and self.server.gpu_model not in ask.models:
            return False
        if ask.cores_milli > self.amounts[-2] or ask.memory > self.amounts[-1]:
            return False
        if ask.fractional:
            return self.share(ask) is not None
        level = self.server.accepted_level(ask) if guarantee and ask.guaranteed else "server"
        return any(self.holds(domain, ask) for domain in self.server.domains[level])

    def shares(self, ask: Ask) -> list[int]:
        """The GPUs that a fractional instance could have."""
        return [i for i, milli in enumerate(self.gpus)
                if milli >= ask.gpu_milli and self.exclusive[self.server.gpu_numa[i]] >= ask.exclusive]

    def pin(self, ask: Ask, pinning: str, gpu: int | None = None) -> Hold:
        """The GPUs and cores that ``ask`` gets; a guarantee that cannot be kept (claims of blind policies) is left aside.

        ``gpu`` is the one that the policy chose for a fractional instance.
        """
        server, keep = self.server, ask.guaranteed and self.fits(ask)
        if ask.fractional:
            gpu = self.share(ask) if gpu is None else gpu
            assert gpu is not None
            cores = {server.gpu_numa[gpu]: ask.exclusive} if ask.exclusive else {}
            return Hold(server, {gpu: ask.gpu_milli}, cores, ask.shared, ask.memory)
        if pinning == "packed":
            levels = server.accepted_levels(ask) if keep else list(server.domains)
            level = next(level for level in levels if any(self.holds(domain, ask) for domain in server.domains[level]))
            domain = min((d for d in server.domains[level] if self.holds(d, ask)), key=lambda d: len(self.whole(d)))
            gpus = self.whole(domain)
            if level == "server":
                gpus.sort(key=lambda i: (-len(self.whole({server.gpu_numa[i]})), server.gpu_numa[i], i))
            gpus = gpus[:ask.gpus]
        else:
            level = server.accepted_level(ask) if keep else "server"
            domain = next(d for d in server.domains[level] if self.holds(d, ask))
            gpus = self.whole(domain)[:ask.gpus] if pinning == "first_free" else self.spread(domain, ask.gpus)
        return Hold(server, dict.fromkeys(gpus, 1000), self.cores(domain, gpus, ask.exclusive), ask.shared, ask.memory)

    def spread(self, domain: set[int], number: int) -> list[int]:
        """GPUs taken one at a time from the NUMA node with most free GPUs left."""
        left, taken = self.whole(domain), []
        for _ in range(number):
            nodes = [self.server.gpu_numa[i] for i in left]
            node = min(nodes, key=lambda n: (-nodes.count(n), n))
            taken.append(next(i for i in left if self.server.gpu_numa[i] == node))
            left.remove(taken[-1])
        return taken

    def cores(self, domain: set[int], gpus: list[int], exclusive: int) -> dict[int, int]:
        """Exclusive cores by NUMA node: in proportion to the GPUs first, then from the lowest nodes of the domain."""
        taken = dict.fromkeys(sorted(domain), 0)
        nodes = [self.server.gpu_numa[i] for i in gpus]
        for node in sorted(set(nodes)):
            share = -(-exclusive * nodes.count(node) // len(nodes))
            taken[node] += min(share, self.exclusive[node], exclusive - sum(taken.values()))
        for node in taken:
            taken[node] += min(self.exclusive[node] - taken[node], exclusive - sum(taken.values()))
        assert sum(taken.values()) == exclusive
        return {node: cores for node, cores in taken.items() if cores}


@dataclass(eq=False)
class Job:
    """A job of the trace and all that happened to it so far. ``status`` adds ``evicted`` (in grace) and ``claiming``."""

    index: int
    row: dict[str, Any]
    status: str = "not_submitted"
    reason: str | None = None
    attempts: int = 0
    first_start: float | None = None
    finish_time: float | None = None
    start: float = 0.0
    restart: float = 0.0
    speed: float = 1.0
    holds: list[Hold] = field(default_factory=list)
    servers: list[int] = field(default_factory=list)
    level: str | None = None
    progress: float = 0.0
    ran: float = 0.0
    lost: float = 0.0
    restarting: float = 0.0
    evictions: int = 0
    evicted_at: float = -INF
    may_evict_from: float = -INF

    def __post_init__(self) -> None:
        row, exclusive = self.row, self.row["affinity"] != "none"
        models = row["gpu_model"]
        self.submit: float = row["submit_time"]
        self.duration: float = row["duration"]
        self.estimate: float = row["duration_estimate_s"]
        self.end_time: float = INF if row["end_time"] is None else row["end_time"]
        self.priority: int = row["priority"]
        self.instances: int = row["instances"]
        self.gpus: float = row["instances"] * row["gpus"] * row["gpu_milli"] / 1000
        self.ask_class = tuple(row[name] for name in CLASS_COLUMNS)
        self.ask = Ask(row["gpus"], row["gpu_milli"], math.ceil(row["cpus"]) if exclusive else 0,
                       0 if exclusive else math.ceil(round(row["cpus"] * 1000, 6)), row["memory_mib"], row["affinity"] == "guaranteed",
                       row["affinity_domain"], None if models is None else tuple(models.split("|")))

    @property
    def next_restart(self) -> float:
        """Seconds without progress at the start of the next attempt."""
        return self.row["restart_cost_s"] if self.attempts else 0.0

    @property
    def completes(self) -> float:
        """When the running attempt reaches the duration."""
        return self.start + self.restart + (self.duration - self.progress) / self.speed

    @property
    def next_event(self) -> float:
        """When this job submits, finishes or reaches its end time."""
        if self.status == "not_submitted":
            return self.submit
        if self.status == "running":
            return min(self.completes, self.end_time)
        return self.end_time if self.status in ("waiting", "evicted", "claiming") else INF

    def ran_for(self, now: float) -> float:
        """Seconds of running in this attempt, restart excluded."""
        return max(0.0, now - (self.start + self.restart))

    def kept_for(self, now: float) -> float:
        """Of these, the seconds that an eviction now would keep."""
        r, interval = self.ran_for(now), self.row["checkpoint_interval_s"]
        if interval is None:
            return 0.0
        return r if interval == 0 else interval * math.floor(r / interval)

    def would_lose(self, now: float) -> float:
        """Seconds of progress that an eviction now would lose."""
        return self.speed * (self.ran_for(now) - self.kept_for(now))

    def account(self, now: float, progress: float) -> None:
        """Books the running attempt up to ``now``, with the ``progress`` that it leaves behind."""
        self.progress = progress
        self.ran += now - self.start
        self.restarting += min(now - self.start, self.restart)


@dataclass(eq=False)
class Decision:
    """An eviction on its way: the victims hold until ``maturity`` and the preemptor claims; None once the claim is dropped."""

    time: float
    maturity: float
    job: Job
    claims: list[Hold]
    victims: list[tuple[Job, list[Hold]]]
    rows: list[dict[str, Any]]
    claiming: bool = True

    def claimed(self) -> list[Hold]:
        return self.claims if self.claiming else []

    def held(self) -> list[Hold]:
        return [hold for _, holds in self.victims for hold in holds]

    def visible(self, server: Server) -> list[int]:
        """What others see taken on ``server``: in each pool the larger of the victims' hold and the claim."""
        return [max(pair) for pair in zip(total(server, self.held()), total(server, self.claimed()), strict=True)]

    def beyond(self) -> float:
        """GPUs claimed and not held by the victims."""
        servers = {hold.server for hold in self.claimed()}
        return sum(sum(self.visible(s)[:len(s.gpu_numa)]) - sum(total(s, self.held())[:len(s.gpu_numa)]) for s in servers) / 1000


Choose = Callable[[Job, int, list[Free], list[int], list[Hold]], tuple[int | None, int | None]]


class Look:
    """What a policy sees when one instance of ``job`` searches victims on the simulated state ``sim``.

    ``tried`` counts the victim sets of sourcing; ``servers`` are those in scope.
    """

    def __init__(self, replay: "Replay", job: Job, position: int, sim: list[Free], scope: list[int], gone: list[Job]) -> None:
        self.replay, self.job, self.sim, self.servers, self.gone = replay, job, sim, scope, gone
        self.options, self.now, self.tried = replay.options, replay.now, 0
        seed = 1000003 * replay.options["seed"] + 7919 * replay.decisions + 104729 * position + 12345
        self.x = seed % MODULUS or 1

    def draw(self, n: int) -> int:
        """The next draw modulo ``n``."""
        self.x = 48271 * self.x % MODULUS
        return self.x % n

    def on(self, server: int, victims: Iterable[Job]) -> list[Hold]:
        return [hold for victim in victims for hold in victim.holds if hold.server.index == server]

    def evictable(self, server: int) -> list[Job]:
        """Jobs with an instance on ``server`` that nothing protects, by index."""
        return [
            job for job in self.replay.jobs
            if job.status == "running" and job not in self.gone and self.on(server, [job])
            and job.row["preemptible"] and (job.priority < self.job.priority or self.replay.policy.unbound or (
                job.priority == self.job.priority and self.replay.policy.outranks(self.job, job)))
            and not self.now - job.start < self.options["min_runtime_s"] and job.evicted_at != self.now
        ]

    def without(self, server: int, victims: Sequence[Job]) -> Free:
        free = self.sim[server].copy()
        for hold in self.on(server, victims):
            free.give(hold)
        return free

    def fits(self, server: int, victims: Sequence[Job], guarantee: bool) -> bool:
        """Whether the instance fits ``server`` once ``victims`` are gone."""
        return self.without(server, victims).fits(self.job.ask, guarantee)

    def worth(self, server: int, evictable: Sequence[Job], guarantee: bool) -> bool:
        """The remove-all test; a candidate has at least one victim."""
        return bool(evictable) and not self.fits(server, [], guarantee) and self.fits(server, evictable, guarantee)

    def level_victims(self, server: int, victims: Sequence[Job]) -> str | None:
        return self.sim[server].server.level(set().union(*(hold.nodes for hold in self.on(server, victims))))

    def level_assigned(self, server: int, victims: Sequence[Job]) -> str | None:
        return self.without(server, victims).pin(self.job.ask, self.options["pinning"]).level


def worst(levels: Iterable[str | None]) -> str | None:
    return max((level for level in levels if level is not None), key=schema.LEVELS.index, default=None)


class Replay:
    """One replay; ``replay`` below is its front door."""

    def __init__(self, jobs: list[dict], servers: list[dict], policy: str, options: dict | None) -> None:
        unknown = set(options or {}) - set(DEFAULTS)
        assert not unknown, f"unknown options {unknown}"
        self.options = {**DEFAULTS, **(options or {})}
        self.order = sorted(range(len(jobs)), key=lambda i: jobs[i]["submit_time"])
        self.jobs = [Job(index, jobs[i]) for index, i in enumerate(self.order)]
        for job in self.jobs:
            if job.end_time <= job.submit:
                raise ValueError(f"{job.row['job_id']}: end_time must be after submit_time")
        self.servers = [Server(index, row) for index, row in enumerate(servers)]
        self.now, self.events, self.decisions = 0.0, 0, 0
        self.open: list[Decision] = []
        self.rows: list[dict[str, Any]] = []
        self.starts: list[tuple[float, str]] = []
        self.alloc_integral = self.claim_gpu_s = self.grace_gpu_s = 0.0
        self.refresh()
        self.gone: list[Job] = []
        self.policy = POLICIES[policy](self)

    # The state

    def refresh(self) -> None:
        """Sums what is free afresh, and checks that no pool of any server is overdrawn."""
        self.free = []
        running = [hold for job in self.jobs if job.status == "running" for hold in job.holds]
        for server in self.servers:
            taken = [total(server, running)] + [decision.visible(server) for decision in self.open]
            free = [c - sum(column) for c, column in zip(server.capacity, zip(*taken, strict=True), strict=True)]
            assert min(free) >= 0, f"server {server.index} is overdrawn at {self.now}"
            self.free.append(Free(server, free))
        for job in self.jobs:
            assert job.status != "running" or (len(job.holds) == job.instances and self.kept_guarantee(job, job.holds))
            assert job.status == "running" or not job.holds

    @staticmethod
    def kept_guarantee(job: Job, holds: list[Hold]) -> bool:
        """Whether every instance is inside a domain of an accepted level."""
        levels = [hold.server.accepted_levels(job.ask) + [None] for hold in holds]
        return not job.ask.guaranteed or all(hold.level in accepted for hold, accepted in zip(holds, levels, strict=True))

    def network_level(self, holds: list[Hold]) -> str:
        """The smallest network level that holds all instances."""
        places = [(hold.server.index, hold.server.rack, hold.server.spine) for hold in holds]
        distinct = [len(set(column)) for column in zip(*places, strict=True)]
        return schema.NETWORK_LEVELS[distinct.index(1)] if 1 in distinct else "cluster"

    def advance(self, now: float) -> None:
        """Moves the clock and adds one step of the integral of allocated GPUs."""
        assert now >= self.now
        allocated = sum(1000 - milli for free in self.free for milli in free.gpus) / 1000
        self.alloc_integral += allocated * (now - self.now)
        self.now = now

    # Placement

    @staticmethod
    def empty(server: Server) -> Free:
        return Free(server, server.capacity)

    def look(self, job: Job) -> Look:
        """What the first instance of ``job`` sees, wherever it may go."""
        return Look(self, job, 0, self.free, list(range(len(self.servers))), [])

    def best_fit(self, ask: Ask, sim: list[Free], scope: list[int]) -> int | None:
        """The server with fewest free GPU thousandths among those that fit, the lowest on ties."""
        return min((s for s in scope if sim[s].fits(ask)), key=lambda s: (sum(sim[s].gpus), s), default=None)

    def place(self, job: Job, state: list[Free], scope: list[int], choose: Choose | None = None) -> list[Hold] | None:
        """Places all instances in turn on a copy of ``state``, or none."""
        plan = self.plan(job, state, scope, False, choose)
        return None if plan is None else plan[0]

    def plan(self, job: Job, state: list[Free], scope: list[int], evict: bool,
             choose: Choose | None = None) -> tuple[list[Hold], list[Job]] | None:
        """Claims of all instances, and the jobs to evict for them: each instance tries to fit before it evicts.

        ``choose`` stands in for best fit: it gives the server, and the GPU of a fractional instance.
        """
        sim = [free.copy() for free in state]
        claims: list[Hold] = []
        gone: list[Job] = []
        self.gone = gone
        for position in range(job.instances):
            server, gpu = choose(job, position, sim, scope, claims) if choose else (self.best_fit(job.ask, sim, scope), None)
            if server is None and evict:
                look = Look(self, job, position, sim, scope, gone)
                found = self.policy.victims(look)
                self.tried += look.tried
                if found is not None:
                    server, victims = found
                    for hold in (hold for victim in victims for hold in victim.holds):
                        sim[hold.server.index].give(hold)
                    gone.extend(victims)
            if server is None:
                return None
            claims.append(sim[server].pin(job.ask, self.options["pinning"], gpu))
            sim[server].take(claims[-1])
        return claims, sorted(gone, key=lambda victim: victim.index)

    def scopes(self, job: Job, state: list[Free]) -> list[list[list[int]]]:
        """Groups of lists of servers: within a group all lists are tried by placement alone, then all with victims."""
        everywhere = [list(range(len(self.servers)))]
        level, mode = job.row["network_domain"], job.row["network_mode"]
        if level == "none" or mode == "none" or job.row["instances"] == 1:
            return [everywhere]
        place = {server.index: getattr(server, level) for server in self.servers}
        domains = [[s for s in place if place[s] == name] for name in sorted(set(place.values()))]
        domains.sort(key=lambda domain: sum(sum(state[s].gpus) for s in domain))
        return [domains] if mode == "required" else [domains, everywhere]

    def place_anywhere(self, job: Job, state: list[Free]) -> list[Hold] | None:
        """The first placement in the order of the network domains, on ``state``, whatever the policy."""
        tries = (self.place(job, state, scope) for group in self.scopes(job, state) for scope in group)
        return next((claims for claims in tries if claims is not None), None)

    def attempt(self, job: Job) -> bool:
        """Starts ``job`` or decides to evict for it; False when nothing can be done."""
        self.tried = 0
        may_evict = self.policy.preempts and self.now >= job.may_evict_from
        for group in self.scopes(job, self.free):
            for scope in group:
                claims = self.policy.place(job, scope)
                if claims is not None:
                    self.start(job, claims)
                    return True
            for scope in group if may_evict else []:
                plan = self.policy.plan(job, scope)
                if plan is not None:
                    self.decide(job, *plan)
                    return True
        return False

    # Changes

    def start(self, job: Job, holds: list[Hold]) -> None:
        job.status, job.start, job.restart, job.holds = "running", self.now, job.next_restart, holds
        job.attempts += 1
        if job.first_start is None:
            job.first_start = self.now
        job.servers, job.level = [hold.server.index for hold in holds], worst(hold.level for hold in holds)
        job.speed = self.options["speed"].get((job.row["kind"], job.level, self.network_level(holds)), 1.0)
        self.starts.append((self.now, job.row["job_id"]))
        self.policy.changed(job)
        self.refresh()

    def evict(self, job: Job) -> list[Hold]:
        job.lost += job.would_lose(self.now)
        job.account(self.now, job.progress + job.speed * job.kept_for(self.now))
        job.evictions += 1
        job.status, job.evicted_at = "evicted", self.now
        holds, job.holds = job.holds, []
        self.policy.changed(job)
        return holds

    def decide(self, job: Job, claims: list[Hold], victims: list[Job]) -> None:
        """Commits an eviction: one row per server where victims hold something and the preemptor claims something."""
        lost = sum(victim.gpus * victim.would_lose(self.now) for victim in victims)
        held = [(victim, self.evict(victim)) for victim in victims]
        decision = Decision(self.now, self.now + self.options["grace_s"], job, claims, held, [])
        freed = {hold.server.index for hold in decision.held()}
        taken = {hold.server.index for hold in claims}
        servers = sorted(freed & taken | ({min(taken)} if self.policy.unbound else set()))
        assert servers
        elsewhere = sum(hold.gpu_milli for hold in decision.held() if hold.server.index not in servers) / 1000
        for server in servers:
            there = [(victim, [hold for hold in holds if hold.server.index == server]) for victim, holds in held]
            apart = [victim for victim, holds in held if self.policy.unbound and not taken & {hold.server.index for hold in holds}]
            names = [victim for victim, holds in there if holds or (victim in apart and server == servers[0])]
            holds = [hold for _, holds in there for hold in holds]
            mine = [hold for hold in claims if hold.server.index == server]
            level_victims = self.servers[server].level(set().union(*(hold.nodes for hold in holds)))
            level_assigned = worst(hold.level for hold in mine)
            first = server == servers[0]
            decision.rows.append({
                "decision_id": self.decisions, "time": self.now, "job_id": job.row["job_id"], "server": server,
                "victims": [victim.row["job_id"] for victim in names], "victims_n": len(names),
                "victim_priority_sum": sum(victim.priority for victim in names),
                "gpus_needed": sum(hold.gpu_milli for hold in mine) / 1000,
                "gpus_freed": sum(hold.gpu_milli for hold in holds) / 1000,
                "gpus_freed_elsewhere": elsewhere if first else 0.0,
                "cpus_freed": sum(hold.cores_milli for hold in holds) / 1000,
                "level_victims": level_victims, "hit_victims": None if level_victims is None else level_victims != "server",
                "level_assigned": level_assigned, "hit_assigned": None if level_assigned is None else level_assigned != "server",
                "ran": False, "lost_gpu_s": lost if first else 0.0, "subsets_tried": self.tried,
            })
        self.rows.extend(decision.rows)
        self.decisions += 1
        job.status = "claiming"
        self.open.append(decision)
        if decision.maturity == self.now:
            self.mature(decision)
        self.refresh()

    def drop(self, decision: Decision) -> None:
        """The claim ends here, whether it becomes a start or not."""
        self.claim_gpu_s += decision.beyond() * (self.now - decision.time)
        decision.claiming = False

    def mature(self, decision: Decision) -> None:
        """The end of grace: the victims let go; the claim starts, or fails its guarantee and is released."""
        self.events += 1
        self.open.remove(decision)
        self.settle_grace(decision)
        for victim, _ in decision.victims:
            if victim.status == "evicted":
                victim.status = "waiting"
        if not decision.claiming:
            return
        self.drop(decision)
        job = decision.job
        if self.kept_guarantee(job, decision.claims):
            for row in decision.rows:
                row["ran"] = True
            self.start(job, decision.claims)
        else:
            job.status, job.may_evict_from = "waiting", self.now + self.options["retry_s"]

    def settle_grace(self, decision: Decision) -> None:
        self.grace_gpu_s += sum(victim.gpus for victim, _ in decision.victims) * (self.now - decision.time)

    def finish(self, job: Job) -> None:
        """A job completes, or its end time comes while it runs, waits or claims."""
        self.events += 1
        ran = job.status == "running"
        if ran:
            whole = job.completes <= self.now
            job.account(self.now, job.duration if whole else job.progress + job.speed * job.ran_for(self.now))
            job.holds = []
        for decision in self.open:
            if decision.job is job and decision.claiming:
                self.drop(decision)
        job.status = "finished" if job.attempts else "expired"
        job.finish_time = self.now
        if ran:
            self.policy.changed(job)

    def arrive(self, job: Job) -> None:
        """A job that an empty cluster cannot hold is rejected; the others wait."""
        self.events += 1
        empty = [self.empty(server) for server in self.servers]
        if self.place_anywhere(job, empty) is None:
            job.status, job.reason = "rejected", "an empty cluster cannot hold it"
        else:
            job.status = "waiting"

    # The loop

    def run(self) -> None:
        ticks, alive = 0, 0.0
        while True:
            coming = min([job.next_event for job in self.jobs] + [decision.maturity for decision in self.open], default=INF)
            tick = (ticks + 1) * self.policy.period
            now = min(coming, tick)
            if now >= self.options["horizon_s"] or now == INF or (coming == INF and now - alive > 24 * 3600):
                break
            alive = alive if coming == INF else now
            self.advance(now)
            due = [job for job in self.jobs if job.next_event == now]
            for job in due:
                if job.status != "not_submitted":
                    self.finish(job)
            ended = [decision for decision in self.open if decision.maturity == now]
            for decision in ended:
                self.mature(decision)
            if tick == now:
                ticks += 1
                self.events += 1
                self.policy.tick()
            for job in due:
                if job.status == "not_submitted":
                    self.arrive(job)
            if due or ended:
                self.refresh()
            while self.one_pass():
                pass
        if self.options["horizon_s"] < INF:
            self.advance(self.options["horizon_s"])
        for decision in self.open:
            self.settle_grace(decision)
            self.claim_gpu_s += decision.beyond() * (self.now - decision.time)

    def one_pass(self) -> bool:
        """One pass over a snapshot of the waiting jobs; whether it changed anything."""
        changed, failed = False, set()
        waiting = [job for job in self.jobs if job.status == "waiting"]
        self.policy.begin_pass()
        for job in sorted(waiting, key=lambda job: (self.policy.key(job), job.submit, job.index)):
            if job.ask_class in failed or not self.policy.admit(job):
                continue
            if self.attempt(job):
                changed = True
                continue
            if not self.policy.speaks(job) or self.now < job.may_evict_from:
                continue
            failed.add(job.ask_class)
            if self.policy.blocked(job):
                break
        return changed

    # The tables

    def job_result(self, job: Job) -> dict[str, Any]:
        """The row of ``schema.RESULT_JOBS``, without changing the job."""
        progress, ran, restarting, status = job.progress, job.ran, job.restarting, job.status
        if status == "running":
            progress += job.speed * job.ran_for(self.now)
            ran += self.now - job.start
            restarting += min(self.now - job.start, job.restart)
        if status in ("evicted", "claiming"):
            status = "waiting"
        absent = status in ("rejected", "not_submitted")
        until = self.now if job.finish_time is None else job.finish_time
        jct = None if job.finish_time is None else job.finish_time - job.submit
        window = 0.0
        if job.end_time < INF and status != "not_submitted":
            is_open = status in ("running", "waiting")
            window = (min(job.end_time, self.now) if is_open else job.end_time) - job.submit - ran
        wait = None if absent else (until if job.first_start is None else job.first_start) - job.submit
        result = {
            "first_start": job.first_start, "finish_time": job.finish_time, "wait_s": wait,
            "queue_s": None if absent else until - job.submit - ran, "jct_s": jct,
            "slowdown": None if jct is None else jct / job.duration,
            "bounded_slowdown": None if jct is None else max(1.0, jct / max(job.duration, 10.0)),
            "evictions": job.evictions, "goodput_gpu_s": job.gpus * progress, "lost_gpu_s": job.gpus * job.lost,
            "restart_gpu_s": job.gpus * restarting, "shortfall_gpu_s": job.gpus * window, "level": job.level,
            "servers": job.servers, "status": status, "reason": job.reason,
        }
        assert list(result) == schema.names(schema.RESULT_JOBS)
        assert ran >= -1e-9 and window >= -1e-9 and progress <= job.duration * (1 + 1e-12) + 1e-9
        return result

    def result(self) -> dict[str, Any]:
        results = [self.job_result(job) for job in self.jobs]
        ran = sum(job.gpus * (job.ran + (self.now - job.start if job.status == "running" else 0.0)) for job in self.jobs)
        parts = ran + self.grace_gpu_s + self.claim_gpu_s
        assert math.isclose(self.alloc_integral, parts, rel_tol=1e-9, abs_tol=1e-6), (self.alloc_integral, parts)
        by_row = dict(zip(self.order, results, strict=True))
        return {
            "jobs": [by_row[i] for i in range(len(results))], "preemptions": self.rows, "events": self.events,
            "decisions": self.decisions, "end": self.now, "claim_gpu_s": self.claim_gpu_s, "grace_gpu_s": self.grace_gpu_s,
            "alloc_integral": self.alloc_integral, "starts": self.starts,
        }


def replay(jobs: list[dict], servers: list[dict], policy: str, options: dict | None = None) -> dict[str, Any]:
    """Replays ``jobs`` on ``servers`` under the policy of that name.

    Args:
        jobs: one dict per trace row with every column of ``schema.JOBS``, in any order.
        servers: dicts with gpu_model, memory_mib, numa_cores, numa_socket, gpu_numa, nvlink (per NUMA node, or []), rack, spine.
        policy: a key of ``naive_policies.POLICIES``.
        options: overrides of ``DEFAULTS``; ``speed`` maps (kind, level or None, network level) to a factor.

    Returns:
        jobs (rows of ``schema.RESULT_JOBS`` in the order given), preemptions, events, decisions, end, claim_gpu_s, grace_gpu_s,
        alloc_integral (GPU s) and starts, a list of (time, job_id).

    Raises:
        ValueError: an end time is not after its submit time.
        AssertionError: the replay broke a rule of its own.
    """
    twin = Replay(jobs, servers, policy, options)
    twin.run()
    return twin.result()
