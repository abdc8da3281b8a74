"""The policies of the naive twin: each a small class with key, admit, place, blocked and victims, and no-op defaults.

A policy reads the replay (``self.replay``) and the ``Look`` of a victim search and returns what it proposes; it changes neither.
"""

from collections.abc import Sequence
from itertools import combinations
from math import ceil, exp, floor, inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from naive import Ask, Free, Hold, Job, Look, Replay, Server

Found = tuple[int, Sequence["Job"]] | None

T = {None: 15, "numa": 15, "nvlink": 12, "socket": 12, "server": 7}
"""The topology score of the FlexTopo family by level: NVLink groups of several NUMA nodes lie within one socket."""


class Policy:
    """Best fit, in order of submission, never stopped and never evicting."""

    preempts = False
    unbound = False
    choose: Any = None
    """Stands in for best fit, see naive.Choose."""

    def __init__(self, replay: "Replay") -> None:
        self.replay = replay

    def begin_pass(self) -> None:
        """Called before each pass."""

    def key(self, job: "Job") -> Any:
        """Smaller goes first; ties by submit time, then index."""
        return job.submit

    def admit(self, job: "Job") -> bool:
        """Whether the job may be tried in this pass."""
        return True

    def place(self, job: "Job", scope: list[int]) -> "list[Hold] | None":
        """Servers of ``scope`` for all instances, or none."""
        return self.replay.place(job, self.replay.free, scope)

    def plan(self, job: "Job", scope: list[int]) -> "tuple[list[Hold], list[Job]] | None":
        """Claims of all instances and the jobs to evict for them, or None."""
        return self.replay.plan(job, self.replay.free, scope, True, self.choose)

    def speaks(self, job: "Job") -> bool:
        """Whether the failure of ``job`` holds for its whole class."""
        return True

    def blocked(self, job: "Job") -> bool:
        """Nothing could be done for ``job``: whether the pass stops."""
        return False

    def victims(self, look: "Look") -> Found:
        """A server and the jobs to evict there, for one instance that fits nowhere."""
        return None

    def outranks(self, job: "Job", victim: "Job") -> bool:
        """Whether ``job`` may evict a job of its own priority."""
        return False

    def changed(self, job: "Job") -> None:
        """The job has started or stopped to run."""

    @property
    def period(self) -> float:
        """Seconds between two ticks."""
        return inf

    def tick(self) -> None:
        """Called at every multiple of the period."""


class Fifo(Policy):
    def blocked(self, job: "Job") -> bool:
        return True


class EasyBackfill(Policy):
    """The first blocked job of a pass gets a reservation; later ones end before it or avoid its servers."""

    shadow: float | None = None
    reserved: set[int] = set()

    def begin_pass(self) -> None:
        self.shadow = None

    def blocked(self, job: "Job") -> bool:
        if self.shadow is None:
            self.reserve(job)
        return False

    def reserve(self, job: "Job") -> None:
        replay = self.replay
        ends = []
        for other in replay.jobs:
            if other.status == "running":
                expected = max(replay.now, other.start + other.restart + (other.estimate - other.progress) / other.speed)
                ends.append((min(expected, other.end_time), other.index))
        state = [free.copy() for free in replay.free]
        for end, index in sorted(ends):
            for hold in replay.jobs[index].holds:
                state[hold.server.index].give(hold)
            claims = replay.place_anywhere(job, state)
            if claims is not None:
                self.shadow, self.reserved = end, {hold.server.index for hold in claims}
                return
        raise AssertionError("an accepted job fits an empty cluster")

    def held_back(self, job: "Job") -> bool:
        now = self.replay.now
        return self.shadow is not None and not now + job.next_restart + (job.estimate - job.progress) <= self.shadow

    def place(self, job: "Job", scope: list[int]) -> "list[Hold] | None":
        return super().place(job, [s for s in scope if s not in self.reserved] if self.held_back(job) else scope)

    def speaks(self, job: "Job") -> bool:
        return not self.held_back(job)


class ConservativeBackfill(Policy):
    """Each job of a pass is booked at the earliest time at which the GPUs of the whole cluster are enough."""

    def begin_pass(self) -> None:
        replay = self.replay
        self.booked: dict[int, float] = {}
        self.plan: list[tuple[float, float, float]] = []
        """(from, until, GPUs) of what runs and what is booked"""
        self.gpus = sum(sum(free.gpus) for free in replay.free) / 1000
        for job in replay.jobs:
            if job.status == "running":
                end = max(replay.now, job.start + job.restart + (job.estimate - job.progress) / job.speed)
                self.plan.append((replay.now, min(end, job.end_time), job.gpus))
                self.gpus += job.gpus

    def start_of(self, job: "Job") -> float:
        runs, now = job.next_restart + (job.estimate - job.progress), self.replay.now
        for start in sorted({now, *(end for _, end, _ in self.plan)}):
            times = [start, *(time for since, _, _ in self.plan for time in [since] if start < time < start + runs)]
            if all(sum(g for since, end, g in self.plan if since <= time < end) + job.gpus <= self.gpus + 1e-6 for time in times):
                self.plan.append((start, start + runs, job.gpus))
                return start
        raise AssertionError("an accepted job fits an empty cluster")

    def place(self, job: "Job", scope: list[int]) -> "list[Hold] | None":
        if job.index not in self.booked:
            self.booked[job.index] = self.start_of(job)
        return super().place(job, scope) if self.booked[job.index] == self.replay.now else None

    def speaks(self, job: "Job") -> bool:
        return False


class ShortestFirst(Policy):
    def key(self, job: "Job") -> Any:
        return job.estimate


class Priority(Policy):
    def key(self, job: "Job") -> Any:
        return -job.priority


def ties(victims: Sequence["Job"]) -> tuple:
    """Smaller wins: highest priority, priority sum, number, and latest earliest start among the highest-priority victims."""
    highest = max(victim.priority for victim in victims)
    earliest = min(victim.start for victim in victims if victim.priority == highest)
    return highest, sum(victim.priority + 2**31 for victim in victims), len(victims), -earliest


def reprieve_order(jobs: Sequence["Job"]) -> list["Job"]:
    return sorted(jobs, key=lambda job: (-job.priority, job.start, job.index))


class Preempting(Priority):
    """``guarantee``: whether victim sets are tested for the guarantee, or for counts only (the blind policies)."""

    preempts = True
    guarantee = False

    def trial(self, look: "Look", server: int, victims: Sequence["Job"]) -> bool:
        """One feasibility test of sourcing."""
        look.tried += 1
        return look.fits(server, victims, self.guarantee)

    def put_back(self, look: "Look", server: int, victims: Sequence["Job"]) -> list["Job"]:
        """Reprieves one by one whoever may stay while the request still fits."""
        left = list(victims)
        for job in reprieve_order(victims):
            fewer = [victim for victim in left if victim is not job]
            if self.trial(look, server, fewer):
                left = fewer
        return left

    def evict_until(self, look: "Look", server: int, order: Sequence["Job"]) -> list["Job"]:
        """The shortest prefix of ``order`` without which the request fits."""
        return list(next(order[:n] for n in range(1, len(order) + 1) if self.trial(look, server, order[:n])))


class RandomVictim(Preempting):
    def victims(self, look: "Look") -> Found:
        servers = [s for s in look.servers if look.worth(s, look.evictable(s), self.guarantee)]
        if not servers:
            return None
        server = servers[look.draw(len(servers))]
        order = look.evictable(server)
        for i in range(len(order) - 1, 0, -1):
            j = look.draw(i + 1)
            order[i], order[j] = order[j], order[i]
        return server, self.evict_until(look, server, order)


class Godel(Preempting):
    """Per server one candidate by reprieve; the best by the tie rules, the one found first on ties."""

    def window(self, look: "Look") -> tuple[int, int]:
        """Offset of the first server to try, and how many candidates are enough."""
        return 0, len(look.servers)

    def source(self, look: "Look", server: int, evictable: list["Job"]) -> list["Job"]:
        return self.put_back(look, server, evictable)

    def victims(self, look: "Look") -> Found:
        offset, enough = self.window(look)
        candidates: list[tuple[int, list[Job]]] = []
        for server in look.servers[offset:] + look.servers[:offset]:
            evictable = look.evictable(server)
            if len(candidates) < enough and look.worth(server, evictable, self.guarantee):
                candidates.append((server, self.source(look, server, evictable)))
        return min(candidates, key=lambda found: ties(found[1]), default=None)


class Kubernetes(Godel):
    def window(self, look: "Look") -> tuple[int, int]:
        n = len(look.servers)
        return (0, n) if look.options["scan"] == "all" else (look.draw(n), min(n, max(n // 10, 100)))


class VolcanoTopology(Godel):
    guarantee = True

    def window(self, look: "Look") -> tuple[int, int]:
        n = len(look.servers)
        return (0, n) if look.options["scan"] == "all" else (look.draw(n), min(max(n // 10, 1), 100))

    def source(self, look: "Look", server: int, evictable: list["Job"]) -> list["Job"]:
        return self.put_back(look, server, self.evict_until(look, server, reprieve_order(evictable)[::-1]))


class FlexTopo(Preempting):
    """Every non-empty feasible subset of every server is a candidate."""

    guarantee = True

    def feasible(self, look: "Look", server: int, evictable: list["Job"]) -> list[Sequence["Job"]]:
        sets = [subset for size in range(1, len(evictable) + 1) for subset in combinations(evictable, size)]
        return [subset for subset in sets if self.trial(look, server, subset)]

    def topology(self, look: "Look", server: int, victims: Sequence["Job"]) -> int:
        by_victims = look.options["rank_by"] == "victims"
        return T[look.level_victims(server, victims) if by_victims else look.level_assigned(server, victims)]

    def rank(self, look: "Look", server: int, victims: Sequence["Job"]) -> tuple:
        alpha, priorities = look.options["alpha"], sum(victim.priority + 2**31 for victim in victims)
        return (-(alpha / max(priorities, 1) + (1 - alpha) * self.topology(look, server, victims)),)

    def victims(self, look: "Look") -> Found:
        best = None
        for server in look.servers:
            evictable = sorted(look.evictable(server), key=lambda job: (job.priority, -job.start, job.index))
            evictable = evictable[:look.options["max_evictable"]]
            if look.worth(server, evictable, self.guarantee):
                for victims in self.feasible(look, server, evictable):
                    indices = sorted(victim.index for victim in victims)
                    rank = (*self.rank(look, server, victims), *ties(victims), server, indices)
                    if best is None or rank < best[0]:
                        best = rank, server, victims
        return best and best[1:]


class FlexTopoImp(FlexTopo):
    """Subsets by size; the first size with a feasible one is the last."""

    def feasible(self, look: "Look", server: int, evictable: list["Job"]) -> list[Sequence["Job"]]:
        for size in range(1, len(evictable) + 1):
            found = [subset for subset in combinations(evictable, size) if self.trial(look, server, subset)]
            if found:
                return found
        return []


class DomainFirstCost(FlexTopo):
    """The candidates of exhaustive search, by topology and then by the GPU seconds that an eviction now would waste."""

    def rank(self, look: "Look", server: int, victims: Sequence["Job"]) -> tuple:
        by_index = sorted(victims, key=lambda victim: victim.index)
        cost = sum(victim.gpus * (victim.would_lose(look.now) + victim.row["restart_cost_s"]) for victim in by_index)
        return -self.topology(look, server, victims), cost


class Behind(Policy):
    """Evicts jobs that are behind in the order of the queue; ``measure`` says how far."""

    preempts = True

    def measure(self, job: "Job") -> float:
        raise NotImplementedError

    def outranks(self, job: "Job", victim: "Job") -> bool:
        return self.key(victim) > self.key(job)

    def victims(self, look: "Look") -> Found:
        best = None
        for server in look.servers:
            behind = [job for job in look.evictable(server) if self.outranks(look.job, job)]
            if not look.worth(server, behind, True):
                continue
            order = sorted(behind, key=lambda job: (self.measure(job), job.index), reverse=True)
            n = 0
            while not look.fits(server, order[:n], True):
                n += 1
            look.tried += 2 * n
            left = order[:n]
            for job in order[:n][::-1]:
                fewer = [victim for victim in left if victim is not job]
                if look.fits(server, fewer, True):
                    left = fewer
            rank = -min(map(self.measure, left)), len(left)
            if best is None or rank < best[0]:
                best = rank, server, left
        return best and best[1:]


class Tiresias(Behind):
    def measure(self, job: "Job") -> float:
        return job.gpus * (job.ran + (self.replay.now - job.start if job.status == "running" else 0.0))

    def key(self, job: "Job") -> Any:
        options = self.replay.options
        had = self.measure(job)
        return 0 if had < options["limit_1_gpu_s"] else 1 if had < options["limit_2_gpu_s"] else 2

    @property
    def period(self) -> float:
        return self.replay.options["period_s"]


def left(job: "Job", now: float) -> float:
    """Seconds of work that the job still needs by its estimate."""
    return job.estimate - job.progress - (job.speed * job.ran_for(now) if job.status == "running" else 0.0)


class Srgt(Behind):
    def measure(self, job: "Job") -> float:
        return job.gpus * left(job, self.replay.now)

    def key(self, job: "Job") -> Any:
        return self.measure(job)


class Hps(Policy):
    def key(self, job: "Job") -> Any:
        waited = self.replay.now - job.submit
        aging = 2 * min(waited / 1800, 1) if waited >= 300 else 1
        return -(1 / (1 + left(job, self.replay.now) / 3600) * aging * (1 / (1 + job.gpus / 4)))


class Pbs(Policy):
    def key(self, job: "Job") -> Any:
        need = left(job, self.replay.now)
        per_iteration = job.gpus * need / job.estimate
        if per_iteration < 10:
            return 0, per_iteration
        if job.gpus <= 2:
            return 1, need
        return (2, job.gpus) if need < 3600 else (3, need)


class Sbs(Policy):
    """The best window of three to five neighbours of one tenant first, then the shortest."""

    def begin_pass(self) -> None:
        best, self.chosen = -1.0, []
        tenants: dict[str, list[Job]] = {}
        for job in self.replay.jobs:
            tenants.setdefault(job.row["tenant"], [])
            if job.status == "waiting":
                tenants[job.row["tenant"]].append(job)
        for family in tenants.values():
            for first in range(len(family)):
                for window in (family[first:first + size] for size in (3, 4, 5) if first + size <= len(family)):
                    score = self.score(window)
                    if score > best:
                        best, self.chosen = score, window

    def score(self, window: list["Job"]) -> float:
        gpus, hours = [job.gpus for job in window], [left(job, self.replay.now) / 3600 for job in window]
        if sum(gpus) > 8:
            return -1.0
        apart = sum(sum(x * x for x in values) / len(values) - (sum(values) / len(values)) ** 2 for values in (hours, gpus))
        efficiency = sum(job.estimate / (max(job.gpus, 0.001) * left(job, self.replay.now)) for job in window)
        return efficiency / len(window) / (1 + apart)

    def key(self, job: "Job") -> Any:
        return job not in self.chosen, 0.0 if job in self.chosen else left(job, self.replay.now)


def room(job: "Job", free: "Free", pinning: str) -> int:
    """Instances that one server takes one after another, up to 1,024."""
    free, n = free.copy(), 0
    while n < 1024 and free.fits(job.ask):
        free.take(free.pin(job.ask, pinning))
        n += 1
    return n


class DomainFirstGang(FlexTopo):
    """A gang's victims are those of the cheapest way to host all of it in the smallest network domain that can: all ways are tried."""

    def plan(self, job: "Job", scope: list[int]) -> "tuple[list[Hold], list[Job]] | None":
        if job.instances == 1:
            return super().plan(job, scope)
        everywhere = len(scope) == len(self.replay.servers)
        level = job.row["network_domain"] if job.row["network_mode"] != "none" else "none"
        if level == "none" or (everywhere and job.row["network_mode"] != "required"):
            level = "cluster"
        return self.plan_up_to(job, scope, level)

    def plan_up_to(self, job: "Job", scope: list[int], level: str) -> "tuple[list[Hold], list[Job]] | None":
        """The plan in the smallest domain, up to ``level``, over the whole cluster; None if that is not inside ``scope``."""
        servers = self.replay.servers
        ways = [self.ways(job, server.index) for server in servers]
        for smaller in ("server", "rack", "spine", "cluster"):
            name = {s.index: s.index if smaller == "server" else 0 if smaller == "cluster" else getattr(s, smaller) for s in servers}
            best = None
            for domain in sorted(set(name.values())):
                inside = [s for s in name if name[s] == domain]
                for split in self.splits(job.instances, [max(ways[s]) for s in inside]):
                    chosen = [ways[s][k] for s, k in zip(inside, split, strict=True)]
                    rank = (sum(way[0] for way in chosen), sum(way[1] for way in chosen), domain, [-k for k in split])
                    if best is None or rank < best[0]:
                        best = rank, [(s, k, way[2]) for s, k, way in zip(inside, split, chosen, strict=True)]
            if best is not None:
                inside = [s for s in name if name[s] == best[0][2]]
                return self.carry_out(job, best[1]) if set(inside) <= set(scope) else None
            if smaller == level:
                return None
        return None

    def ways(self, job: "Job", server: int) -> dict[int, tuple]:
        """The cheapest set to evict on one server to host k instances: k -> (15 - T, priorities, indices, victims)."""
        look = self.replay.look(job)
        evictable = sorted(look.evictable(server), key=lambda other: (other.priority, -other.start, other.index))
        evictable = sorted(evictable[:look.options["max_evictable"]], key=lambda other: other.index)
        found: dict[int, tuple] = {}
        for size in range(len(evictable) + 1):
            for victims in combinations(evictable, size):
                tier = 15 - T[look.level_victims(server, victims)] if victims else 0
                way = tier, sum(v.priority + 2**31 for v in victims), [v.index for v in victims]
                for k in range(min(job.instances, room(job, look.without(server, victims), look.options["pinning"])) + 1):
                    if k not in found or way < found[k]:
                        found[k] = way
        return found

    def splits(self, n: int, most: list[int]) -> "list[list[int]]":
        if not most:
            return [[]] if n == 0 else []
        return [[k, *rest] for k in range(min(n, most[0]) + 1) for rest in self.splits(n - k, most[1:])]

    def carry_out(self, job: "Job", split: list[tuple]) -> "tuple[list[Hold], list[Job]] | None":
        """Servers that evict come first; each lets its victims go, then takes its instances."""
        sim, claims, gone = [free.copy() for free in self.replay.free], [], []
        for server, k, victims in sorted(split, key=lambda part: (not part[2], part[0])):
            for victim in (self.replay.jobs[index] for index in victims if k):
                if victim not in gone:
                    gone.append(victim)
                    for hold in victim.holds:
                        sim[hold.server.index].give(hold)
            for _ in range(k):
                if not sim[server].fits(job.ask):
                    return None
                claims.append(sim[server].pin(job.ask, self.replay.options["pinning"]))
                sim[server].take(claims[-1])
        return claims, sorted(gone, key=lambda victim: victim.index)


class Packing(Policy):
    """The server with the highest integer score that fits, the lowest on ties."""

    def place(self, job: "Job", scope: list[int]) -> "list[Hold] | None":
        return self.replay.place(job, self.replay.free, scope, self.choose)

    def choose(self, job: "Job", position: int, sim: "list[Free]", scope: list[int],
               claims: "list[Hold]") -> tuple[int | None, int | None]:
        self.claims = claims
        scores = [(*self.score(job.ask, sim[s]), s) for s in scope if sim[s].fits(job.ask)]
        if not scores:
            return None, None
        most = max(score for score, _, _ in scores)
        return next((s, gpu) for score, gpu, s in scores if score == most)

    def score(self, ask: "Ask", free: "Free") -> tuple[int, int | None]:
        """Score of a server, and the GPU for a fractional instance where the policy chooses it."""
        if ask.gpus == 0:
            return 0, None
        if all(milli == 1000 for milli in free.gpus):
            return max(33 - len(free.gpus), len(free.gpus)), None
        if ask.fractional:
            tightest = min(milli for milli in free.gpus if milli >= ask.gpu_milli)
            if tightest < 1000:
                return max(100 - 100 * tightest // 1000 // 10, 50), None
        return max(50 - ask.gpus, 33), None

    def largest(self) -> tuple[float, float]:
        """Most core and GPU thousandths of one server, at least 1 and one GPU."""
        servers = self.replay.servers
        return max(1, *(server.capacity[-2] for server in servers)), 1000 * max(1, *(len(server.gpu_numa) for server in servers))


class DotProd(Packing):
    def score(self, ask: "Ask", free: "Free") -> tuple[int, int | None]:
        cpu, gpu = self.largest()
        aligned = free.amounts[-2] / cpu * (ask.cores_milli / cpu) + sum(free.gpus) / gpu * (ask.gpus * ask.gpu_milli / gpu)
        return int(100 * (1 - aligned / 2)), None


class BestFit(Packing):
    def score(self, ask: "Ask", free: "Free") -> tuple[int, int | None]:
        cpu, gpu = self.largest()
        return int(100 * (1 - (free.amounts[-2] - ask.cores_milli) / cpu / 2 - (sum(free.gpus) - ask.gpus * ask.gpu_milli) / gpu / 2)), None


class Clustering(Packing):
    def score(self, ask: "Ask", free: "Free") -> tuple[int, int | None]:
        if ask.gpus == 0:
            return 0, None
        groups = set()
        for hold in [hold for job in self.replay.jobs for hold in job.holds] + self.claims:
            if hold.server is free.server and hold.gpus:
                shares = set(hold.gpus.values())
                groups.add("share" if shares != {1000} else len(hold.gpus))
        mine = "share" if ask.fractional else ask.gpus
        alike = 75 if groups == {mine} else 50 if mine in groups else 0 if groups else 25
        most = self.largest()[1]
        return int(25 * (most - sum(free.gpus)) / most) + alike, None


class RandomFit(Packing):
    """One draw for the server and the next for the GPU, from seed, instance and the number of the job among those not rejected."""

    def choose(self, job: "Job", position: int, sim: "list[Free]", scope: list[int],
               claims: "list[Hold]") -> tuple[int | None, int | None]:
        modulus = 2**31 - 1
        number = sum(other.status != "rejected" for other in self.replay.jobs[:job.index + 1])
        x = (1000003 * self.replay.options["seed"] + 7919 * number + 104729 * position + 12345) % modulus
        draw = 48271 * (x * x % (modulus - 1) + 1) % modulus
        servers = [s for s in scope if sim[s].fits(job.ask)]
        if not servers:
            return None, None
        server = servers[draw % len(servers)]
        if not job.ask.fractional:
            return server, None
        gpus = sim[server].shares(job.ask)
        return server, gpus[48271 * draw % modulus % len(gpus)]


class Fgd(Packing):
    """The least growth of fragmentation, over the typical classes of the whole trace."""

    def __init__(self, replay: "Replay") -> None:
        super().__init__(replay)
        counts: dict[tuple, list] = {}
        for job in replay.jobs:
            row = job.row
            key = row["cpus"], row["gpu_milli"] if row["gpus"] else 0, row["gpus"], row["gpu_model"] or ""
            counts.setdefault(key, [0, job.ask])[0] += row["instances"]
        ranked = sorted(((n, *key, ask) for key, (n, ask) in counts.items()), key=lambda found: found[:5], reverse=True)
        everything, covered, typical = sum(found[0] for found in ranked), 0, []
        for n, _, milli, _, _, ask in ranked:
            if covered < 0.95 * everything:
                typical.append((n, milli, ask))
                covered += n
        self.typical = [(n / covered, milli, ask) for n, milli, ask in typical]

    def fragments(self, server: "Server", cores: int, gpus: list[int]) -> float:
        """F of a server with these thousandths of cores, and of each GPU, free."""
        total, parts = sum(gpus), [0.0] * 7
        for share, milli, ask in self.typical:
            has_cores = cores >= ask.cores_milli
            if ask.gpus == 0:
                parts[4 if has_cores else 5] += share * total
            elif ask.models is not None and server.gpu_model not in ask.models:
                parts[6] += share * total
            elif sum(free >= milli for free in gpus) < ask.gpus:
                parts[1 if has_cores else 0] += share * total
            elif not has_cores:
                parts[3] += share * total
            else:
                parts[1] += share * sum(free for free in gpus if free < milli)
        return sum(parts[n] for n in (0, 1, 3, 4, 5, 6))

    def score(self, ask: "Ask", free: "Free") -> tuple[int, int | None]:
        before, cores = self.fragments(free.server, free.amounts[-2], free.gpus), free.amounts[-2] - ask.cores_milli

        def rated(gpus: list[int]) -> int:
            return int(100 * (1 / (1 + exp(-(before - self.fragments(free.server, cores, gpus)) / 1000))))

        if not ask.fractional:
            whole = [i for i, milli in enumerate(free.gpus) if milli == 1000][:ask.gpus]
            return rated([0 if i in whole else milli for i, milli in enumerate(free.gpus)]), None
        options = [(rated([milli - ask.gpu_milli * (i == gpu) for i, milli in enumerate(free.gpus)]), gpu) for gpu in free.shares(ask)]
        return max(options, key=lambda option: option[0])


WATTS = {"T4": (10, 70), "A10": (30, 150), "P100": (25, 250), "V100": (30, 300), "V100M16": (30, 300), "V100M32": (30, 300),
         "A100": (50, 400), "A100-80": (50, 400), "G2": (30, 150), "G3": (50, 400)}
"""Idle and full watts of a GPU; (25, 250) for any other. A socket of 32 threads draws 15 W idle and 120 W with a busy one."""


class PwrFgd(Fgd):
    """Watts saved, scaled to 0 .. 100 over the servers that fit, against the growth of fragmentation."""

    def watts(self, server: "Server", cores: int, gpus: list[int]) -> float:
        """What a server draws with these thousandths of cores, and of each GPU, free."""
        idle, full = WATTS.get(server.gpu_model, (25, 250))
        busy = server.capacity[-2] - cores
        return sum(idle if free == 1000 else full for free in gpus) + 120 * ceil(busy / 32000) + 15 * floor(cores / 32000)

    def saving(self, ask: "Ask", free: "Free") -> tuple[float, int | None]:
        before, cores = self.watts(free.server, free.amounts[-2], free.gpus), free.amounts[-2] - ask.cores_milli
        if not ask.fractional:
            whole = [i for i, milli in enumerate(free.gpus) if milli == 1000][:ask.gpus]
            return before - self.watts(free.server, cores, [0 if i in whole else milli for i, milli in enumerate(free.gpus)]), None
        options = [(before - self.watts(free.server, cores, [milli - ask.gpu_milli * (i == gpu) for i, milli in enumerate(free.gpus)]), gpu)
                   for gpu in free.shares(ask)]
        return max(options, key=lambda option: option[0])

    def choose(self, job: "Job", position: int, sim: "list[Free]", scope: list[int],
               claims: "list[Hold]") -> tuple[int | None, int | None]:
        weight = self.replay.options["power"]
        servers = [s for s in scope if sim[s].fits(job.ask)]
        if not servers:
            return None, None
        saved = {s: self.saving(job.ask, sim[s]) for s in servers}
        grown = {s: self.score(job.ask, sim[s]) for s in servers}
        least, most = min(found[0] for found in saved.values()), max(found[0] for found in saved.values())

        def total(s: int) -> float:
            scaled = 100 if least == most else int((saved[s][0] - least) * 100 / (most - least))
            return weight * scaled + (1000 - weight) * grown[s][0]

        server = max(servers, key=total)
        return server, (saved if weight == 1000 else grown)[server][1]


class Planned(Policy):
    """Policies that lay out a whole gang beforehand: ``plan`` names the server of each instance, or None."""

    def place(self, job: "Job", scope: list[int]) -> "list[Hold] | None":
        servers = self.layout(job)
        if servers is None or not set(servers) <= set(scope):
            return None
        return self.replay.place(job, self.replay.free, scope, lambda job, position, sim, scope, claims: (servers[position], None))

    def layout(self, job: "Job") -> list[int] | None:
        raise NotImplementedError

    def room(self, job: "Job", free: "Free") -> int:
        return room(job, free, self.replay.options["pinning"])


class KueueTas(Planned):
    def layout(self, job: "Job") -> list[int] | None:
        replay, level = self.replay, job.row["network_domain"]
        if job.row["network_mode"] == "none" or job.instances == 1:
            level = "none"
        servers = replay.servers
        names = {"none": [s.index for s in servers], "rack": [s.rack for s in servers], "spine": [s.spine for s in servers]}
        leaves = {s: self.room(job, free) for s, free in enumerate(replay.free)}
        rooms = {wish: {d: sum(leaves[s] for s in leaves if names[wish][s] == d) for d in names[wish]} for wish in names}
        profile = replay.options["profile"]
        best = profile == "best_fit" or (profile == "mixed" and level != "none")
        while True:
            fitting = [d for d in rooms[level] if rooms[level][d] >= job.instances]
            if fitting:
                given = {min(fitting, key=lambda d: (rooms[level][d], d)): job.instances}
                break
            if level != "none" and job.row["network_mode"] == "required":
                return None
            if level in ("none", "spine"):
                given = self.spread(rooms[level], job.instances, best)
                break
            level = "spine"
        if given is None:
            return None
        for lower in {"none": [], "rack": ["none"], "spine": ["rack", "none"]}[level]:
            inside = {d: n for d, n in rooms[lower].items() if any(names[level][s] in given for s in leaves if names[lower][s] == d)}
            given, level = self.spread(inside, job.instances, best), lower
            assert given is not None
        return [s for s, n in given.items() for _ in range(n)]

    @staticmethod
    def spread(rooms: dict[int, int], n: int, best: bool) -> dict[int, int] | None:
        """Who gets how many, in the order in which they are chosen."""
        order = sorted((d for d in rooms if rooms[d]), key=lambda d: (-rooms[d] if best else rooms[d], d))
        given: dict[int, int] = {}
        for d in order:
            if best and rooms[d] >= n:
                d = min((e for e in order if e not in given and rooms[e] >= n), key=lambda e: (rooms[e], e))
            given[d] = min(n, rooms[d])
            n -= given[d]
            if not n:
                return given
        return None


LEVELS = ("server", "rack", "spine", "cluster")


class Dally(DomainFirstGang):
    """Gangs wait for a server, then for a rack, then for nothing; what they wait for they may make by evicting."""

    def held(self, job: "Job") -> bool:
        """Whether a wider placement than the gang accepts by now is there."""
        found = self.closest(job, {s: room(job, free, self.replay.options["pinning"]) for s, free in enumerate(self.replay.free)})
        return found is not None and LEVELS.index(found[0]) > self.accepted(job)

    def accepted(self, job: "Job") -> int:
        options, waited = self.replay.options, self.replay.now - job.submit
        level = 0 if waited < options["machine_s"] else 1 if waited < options["machine_s"] + options["rack_s"] else 3
        servers = self.replay.servers
        empty = {server.index: min(job.instances, room(job, self.replay.empty(server), options["pinning"])) for server in servers}
        possible = self.closest(job, empty)
        least = 3 if possible is None or possible[0] == "spine" else LEVELS.index(possible[0])
        return max(level, least)

    def closest(self, job: "Job", rooms: dict[int, int]) -> tuple[str, list[int]] | None:
        """The smallest level with a domain that takes the gang, and the servers of its instances."""
        servers, n = self.replay.servers, job.instances
        names = {level: {s.index: s.index if level == "server" else getattr(s, level) for s in servers} for level in LEVELS[:3]}
        sums = {level: {d: sum(rooms[s] for s in rooms if names[level][s] == d) for d in names[level].values()} for level in names}
        start = next((level for level in names if max(sums[level].values()) >= n), None)
        if start is None:
            given = KueueTas.spread(sums["spine"], n, True)
            found, start = "cluster", "spine"
        else:
            given = {min((d for d in sums[start] if sums[start][d] >= n), key=lambda d: (sums[start][d], d)): n}
            found = start
        for level in ("rack", "server"):
            if given is not None and LEVELS.index(level) < LEVELS.index(start):
                inside = {d: k for d, k in sums[level].items() if any(names[start][s] in given for s in rooms if names[level][s] == d)}
                given, start = KueueTas.spread(inside, n, True), level
        return None if given is None else (found, [s for s, k in given.items() for _ in range(k)])

    def place(self, job: "Job", scope: list[int]) -> "list[Hold] | None":
        if job.instances == 1:
            return super().place(job, scope)
        found = self.closest(job, {s: room(job, free, self.replay.options["pinning"]) for s, free in enumerate(self.replay.free)})
        if found is None or not set(found[1]) <= set(scope) or LEVELS.index(found[0]) > self.accepted(job):
            return None
        return self.replay.place(job, self.replay.free, scope, lambda job, position, sim, scope, claims: (found[1][position], None))

    def plan(self, job: "Job", scope: list[int]) -> "tuple[list[Hold], list[Job]] | None":
        if job.instances == 1 or self.replay.options["preempt"] == "never":
            return None
        wish, mode = job.row["network_domain"], job.row["network_mode"]
        free = "none" in (wish, mode) or (len(scope) == len(self.replay.servers) and mode != "required")
        return self.plan_up_to(job, scope, LEVELS[min(self.accepted(job), 3 if free else LEVELS.index(wish))])

    def speaks(self, job: "Job") -> bool:
        return job.instances == 1 or not self.held(job)


class Kueue(Policy):
    """Queues with quotas in cohorts; amounts in GPU thousandths."""

    preempts = unbound = True

    def __init__(self, replay: "Replay") -> None:
        super().__init__(replay)
        options, jobs = replay.options, replay.jobs
        self.tenants = list(dict.fromkeys(job.row["tenant"] for job in jobs))
        everything = 1000 * sum(len(server.gpu_numa) for server in replay.servers)
        asked = [sum(job.gpus * job.duration for job in jobs if job.row["tenant"] == t) for t in self.tenants]
        equal = [1 / len(self.tenants)] * len(self.tenants)
        shares = [a / max(sum(asked), 1e-300) for a in asked] if options["quota_by"] == "demand" else equal
        self.nominal = [floor(options["nominal_share"] * (share * everything)) for share in shares]
        per = options["queues_per_cohort"]
        self.cohort = [0 if per == 0 else q // per for q in range(len(shares))]

    def queue(self, job: "Job") -> int:
        return self.tenants.index(job.row["tenant"])

    def ask(self, job: "Job") -> int:
        return job.instances * job.ask.gpus * job.ask.gpu_milli

    def used(self, gone: "Sequence[Job]" = ()) -> list[int]:
        claiming = [decision.job for decision in self.replay.open if decision.claiming]
        holders = [job for job in self.replay.jobs if job.status == "running" and job not in gone] + claiming
        return [sum(self.ask(job) for job in holders if self.queue(job) == q) for q in range(len(self.nominal))]

    def fits_quota(self, job: "Job", used: list[int]) -> bool:
        q, more = self.queue(job), self.ask(job)
        mates = [p for p in range(len(used)) if self.cohort[p] == self.cohort[q]]
        if used[q] + more > self.nominal[q] * (1 + self.replay.options["borrowing_limit"]):
            return False
        return more <= sum(self.nominal[p] - used[p] for p in mates)

    def share(self, q: int, used: list[int], more: int) -> int:
        lendable = sum(n for p, n in enumerate(self.nominal) if self.cohort[p] == self.cohort[q])
        return 1000 * max(0, used[q] + more - self.nominal[q]) // max(lendable, 1)

    def key(self, job: "Job") -> Any:
        q, used = self.queue(job), self.used()
        if self.replay.options["fair_sharing"] == "on":
            return self.share(q, used, self.ask(job)), -job.priority
        return used[q] + self.ask(job) > self.nominal[q], -job.priority

    def speaks(self, job: "Job") -> bool:
        return False

    def place(self, job: "Job", scope: list[int]) -> "list[Hold] | None":
        return super().place(job, scope) if self.fits_quota(job, self.used()) else None

    def plan(self, job: "Job", scope: list[int]) -> "tuple[list[Hold], list[Job]] | None":
        """All victims go for the first instance; the others are placed by best fit."""
        replay = self.replay
        return replay.plan(job, replay.free, scope, True, lambda job, position, sim, scope, claims: (
            replay.best_fit(job.ask, sim, scope) if position else None, None))

    def victims(self, look: "Look") -> Found:
        if look.gone:
            return None
        job, options = look.job, look.options
        q, used = self.queue(job), self.used()
        fair, under = options["fair_sharing"] == "on", used[q] + self.ask(job) <= self.nominal[q]
        order = [other for server in look.servers for other in look.evictable(server) if other.holds[0].server.index == server]
        order = [other for other in dict.fromkeys(order) if self.may_take(job, other, used, fair or under)]
        order.sort(key=lambda other: (self.queue(other) == q, other.priority, -other.start, other.index))
        if fair:
            found = self.by_share(look, order)
        else:
            found = (self.in_order(look, order, False) if under else None) or self.in_order(look, order, True)
        if not found:
            return None
        for victim in found[-2::-1]:
            fewer = [other for other in found if other is not victim]
            if self.admissible(look, fewer):
                found = fewer
        frees = {s: self.after(look, s, found) for s in look.servers}
        server = min((s for s in frees if frees[s].fits(job.ask)), key=lambda s: (sum(frees[s].gpus), s))
        return server, found

    def may_take(self, job: "Job", other: "Job", used: list[int], others: bool) -> bool:
        options, p, q = self.replay.options, self.queue(other), self.queue(job)
        if p == q:
            newer = other.priority == job.priority and (other.submit, other.index) > (job.submit, job.index)
            return options["within_queue"] != "never" and (
                other.priority < job.priority or (options["within_queue"] == "lower_or_newer_equal" and newer))
        lent = others and self.cohort[p] == self.cohort[q] and used[p] > self.nominal[p]
        return lent and (options["reclaim"] == "any" or (options["reclaim"] == "lower_priority" and other.priority < job.priority))

    def after(self, look: "Look", server: int, gone: "Sequence[Job]") -> "Free":
        return look.without(server, gone)

    def admissible(self, look: "Look", gone: "Sequence[Job]") -> bool:
        look.tried += 1
        rooms = sum(min(look.job.instances, room(look.job, self.after(look, s, gone), look.options["pinning"])) for s in look.servers)
        return self.fits_quota(look.job, self.used(gone)) and rooms >= look.job.instances

    def in_order(self, look: "Look", order: "list[Job]", own_only: bool) -> "list[Job] | None":
        gone: list[Job] = []
        for other in order:
            p = self.queue(other)
            if p != self.queue(look.job) and (own_only or self.used(gone)[p] <= self.nominal[p]):
                continue
            gone.append(other)
            if self.admissible(look, gone):
                return gone
        return None

    def by_share(self, look: "Look", order: "list[Job]") -> "list[Job] | None":
        gone: list[Job] = []
        q, more = self.queue(look.job), self.ask(look.job)
        for final in (True, False):
            again = []
            while order:
                used = self.used(gone)
                p = min({self.queue(other) for other in order}, key=lambda p: (-self.share(p, used, 0), p))
                other = next(other for other in order if self.queue(other) == p)
                order.remove(other)
                mine, theirs, after = self.share(q, used, more), self.share(p, used, 0), self.share(p, used, -self.ask(other))
                if p == q or (used[p] > self.nominal[p] and (mine <= after if final else mine < theirs)):
                    gone.append(other)
                    if self.admissible(look, gone):
                        return gone
                else:
                    again.append(other)
            order = again
        return None


POLICIES: dict[str, type[Policy]] = {
    "fifo": Fifo, "conservative_backfill": ConservativeBackfill, "tiresias": Tiresias, "srgt": Srgt, "hps": Hps, "pbs": Pbs, "sbs": Sbs,
    "fifo_backfill": Policy, "easy_backfill": EasyBackfill, "sjf": ShortestFirst, "priority": Priority,
    "random_victim": RandomVictim, "godel": Godel, "kubernetes": Kubernetes, "volcano_topology": VolcanoTopology,
    "flextopo_exhaustive": FlexTopo, "flextopo_imp": FlexTopoImp, "domain_first": FlexTopo, "domain_first_cost": DomainFirstCost,
    "random_fit": RandomFit, "dotprod": DotProd, "clustering": Clustering, "packing": Packing, "bestfit": BestFit, "fgd": Fgd,
    "pwr_fgd": PwrFgd, "kueue_tas": KueueTas, "domain_first_gang": DomainFirstGang, "dally": Dally, "kueue": Kueue,
}
