"""The policies of the naive twin: each a small class with key, admit, place, blocked and victims, and no-op defaults.

A policy reads the replay (``self.replay``) and the ``Look`` of a victim search and returns what it proposes; it changes neither.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from naive import Hold, Job, Look, Replay

Found = tuple[int, Sequence["Job"]] | None

T = {None: 15, "numa": 15, "nvlink": 12, "socket": 12, "server": 7}
"""The topology score of the FlexTopo family by level: NVLink groups of several NUMA nodes lie within one socket."""


class Policy:
    """Best fit, in order of submission, never stopped and never evicting."""

    preempts = False

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

    def speaks(self, job: "Job") -> bool:
        """Whether the failure of ``job`` holds for its whole class."""
        return True

    def blocked(self, job: "Job") -> bool:
        """Nothing could be done for ``job``: whether the pass stops."""
        return False

    def victims(self, look: "Look") -> Found:
        """A server and the jobs to evict there, for one instance that fits nowhere."""
        return None


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


POLICIES: dict[str, type[Policy]] = {
    "fifo": Fifo, "fifo_backfill": Policy, "easy_backfill": EasyBackfill, "sjf": ShortestFirst, "priority": Priority,
    "random_victim": RandomVictim, "godel": Godel, "kubernetes": Kubernetes, "volcano_topology": VolcanoTopology,
    "flextopo_exhaustive": FlexTopo, "flextopo_imp": FlexTopoImp, "domain_first": FlexTopo, "domain_first_cost": DomainFirstCost,
}
