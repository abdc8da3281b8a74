"""GFS, its quota and its baselines in the naive twin: every sum is made afresh from who runs where and from lists of what happened."""

from collections.abc import Sequence
from math import erfc, floor, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from naive_policies import Found, Policy, RandomVictim

if TYPE_CHECKING:
    from naive import Free, Hold, Job, Look, Replay

HOUR, WINDOW, DAY = 12, 48, 288
"""Periods of an hour, of the time over which failures count, and of a day."""


class Gated(Policy):
    """HP before spot, first in, first out, best fit; spot jobs within the quota of the GPU model on which they run."""

    preempts = True

    def __init__(self, replay: "Replay") -> None:
        super().__init__(replay)
        self.ticks = self.passes = 0
        self.models = list(dict.fromkeys(server.gpu_model for server in replay.servers))
        self.gpus = {m: sum(len(server.gpu_numa) for server in replay.servers if server.gpu_model == m) for m in self.models}
        self.series: dict[str, list[float]] = {m: [] for m in self.models}
        self.peak = dict.fromkeys(self.models, 0.0)
        self.quota = dict.fromkeys(self.models, 0.0)
        self.eta = dict.fromkeys(self.models, 1.0)
        self.fitted: dict[str, Any] = dict.fromkeys(self.models)
        self.head: dict[str, tuple[int, float]] = dict.fromkeys(self.models, (-1, 0.0))
        self.hours: list[tuple[int, str, int, int]] = []
        """(tick that ends the period, model, hours that failed, hours that were kept)"""
        self.counted: dict[int, int] = {}
        self.struck: list[tuple[int, int]] = []
        """(ticks before it, server) of each evicted instance"""

    @property
    def period(self) -> float:
        return self.replay.options["period_s"]

    @property
    def hour(self) -> float:
        return HOUR * self.period

    @staticmethod
    def spot(job: "Job") -> bool:
        return job.row["preemptible"]

    def used(self, model: str, spot: bool) -> float:
        """GPUs that running jobs of one kind hold."""
        return sum(hold.gpu_milli for job in self.replay.jobs if job.status == "running" and self.spot(job) == spot
                   for hold in job.holds if hold.server.gpu_model == model) / 1000

    # The quota

    def begin_pass(self) -> None:
        self.passes += 1

    def changed(self, job: "Job") -> None:
        for model in self.models:
            self.peak[model] = max(self.peak[model], self.used(model, False))
        if not self.spot(job):
            return
        if job.status == "running":
            self.counted[job.index] = 0
            return
        self.count(job, self.ticks + 1)
        model = self.replay.servers[job.servers[0]].gpu_model
        if job.status == "evicted":
            self.hours.append((self.ticks + 1, model, 1, 0))
            self.struck += [(self.ticks, server) for server in job.servers]
        elif self.replay.now - job.start > self.counted[job.index] * self.hour:
            self.hours.append((self.ticks + 1, model, 0, 1))

    def count(self, job: "Job", tick: int) -> None:
        full = floor((self.replay.now - job.start) / self.hour)
        self.hours.append((tick, self.replay.servers[job.servers[0]].gpu_model, 0, full - self.counted[job.index]))
        self.counted[job.index] = full

    def lately(self, model: str) -> tuple[int, int]:
        """Hours that failed and were kept in the last WINDOW whole periods."""
        rows = [row for row in self.hours if row[1] == model and self.ticks - WINDOW < row[0] <= self.ticks]
        return sum(row[2] for row in rows), sum(row[3] for row in rows)

    def tick(self) -> None:
        for job in self.replay.jobs:
            if job.status == "running" and self.spot(job):
                self.count(job, self.ticks + 1)
        self.ticks += 1
        for model in self.models:
            if self.ticks % HOUR == 0:
                self.series[model].append(self.peak[model])
                self.peak[model] = self.used(model, False)
            mean, sigma = self.forecast(model)
            self.feed_back(model)
            demand = floor(round(mean + self.z() * sigma, 6))
            self.quota[model] = self.eta[model] * (self.gpus[model] - min(max(demand, 0), self.gpus[model]))

    def z(self) -> float:
        low, high = -40.0, 40.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if erfc(-middle / sqrt(2)) / 2 < self.replay.options["p"] else (low, middle)
        return (low + high) / 2

    def forecast(self, model: str) -> tuple[float, float]:
        """Mean and deviation of the demand of the hour that has begun."""
        options, y = self.replay.options, self.series[model]
        n, rule, history = len(y), options["forecaster"], int(options["history_h"])
        day, week = int(options["day_h"]), int(options["week_h"])
        rows = [j for j in range(max(week, n - history + week), n)]
        if n % day == 0 and self.ticks % HOUR == 0:
            x = np.array([[1.0, y[j - 1], y[j - day], y[j - week]] for j in rows]).reshape(-1, 4)
            self.fitted[model] = None
            if len(rows) > 4 and np.linalg.matrix_rank(x) == 4:
                target = np.array([y[j] for j in rows])
                line = np.linalg.lstsq(x, target, rcond=None)[0]
                self.fitted[model] = line, float(np.sqrt(np.mean((target - x @ line) ** 2)))
        if rule == "oracle":
            ideal = self.ideal(model)
            return ideal[min(n, len(ideal) - 1)], 0.0
        if n == 0:
            return self.peak[model], 0.0
        if rule == "lin" and n >= week and self.fitted[model] is not None:
            line, sigma = self.fitted[model]
            return float(line @ np.array([1.0, y[n - 1], y[n - day], y[n - week]])), sigma
        lag = week if rule == "seasonal" and n >= week else 1
        differences = [y[j] - y[j - lag] for j in range(max(lag, n - history), n)]
        return y[n - lag], sqrt(sum(d * d for d in differences) / len(differences)) if differences else 0.0

    def ideal(self, model: str) -> list[float]:
        """Most GPUs in each 3600 s that HP jobs would hold if each ran as it came."""
        replay = self.replay
        empty = [free for free in self.empty()]
        jobs = [job for job in replay.jobs if not self.spot(job) and (job.ask.models is None or model in job.ask.models)
                and replay.place_anywhere(job, empty) is not None]
        hours = int(max(job.submit for job in replay.jobs) // 3600) + 2
        times = [job.submit for job in jobs] + [3600.0 * h for h in range(hours)]
        level = {t: sum(job.gpus for job in jobs if job.submit <= t < job.submit + job.duration) for t in times}
        return [max(level[t] for t in times if t // 3600 == h) for h in range(hours)]

    def empty(self) -> "list[Free]":
        free = [free.copy() for free in self.replay.free]
        for one in free:
            one.amounts = list(one.server.capacity)
        return free

    def feed_back(self, model: str) -> None:
        allowed, (failed, kept) = 1 - self.replay.options["p"], self.lately(model)
        share = failed / (failed + kept) if failed + kept else 0.0
        seen, since = self.head[model]
        if share >= 1.5 * allowed:
            self.eta[model] *= allowed / share
        elif share <= 0.5 * allowed and seen == self.passes and self.replay.now - since > self.hour:
            self.eta[model] *= 1.5 - share / allowed
        self.eta[model] = min(max(self.eta[model], 0.2), 1.2)

    def within(self, job: "Job", model: str) -> bool:
        rule = self.replay.options["quota"]
        if rule == "none" or not self.spot(job):
            return True
        quota = self.replay.options["quota_share"] * self.gpus[model] if rule == "constant" else self.quota[model]
        return self.used(model, True) + job.gpus <= quota

    def held_back(self, job: "Job") -> bool:
        """Nothing of this class is to happen in this pass."""
        models = [m for m in self.models if job.ask.models is None or m in job.ask.models]
        return not any(self.within(job, m) for m in models)

    def waits(self, job: "Job") -> None:
        for m in self.models if self.spot(job) else ():
            if (job.ask.models is None or m in job.ask.models) and self.head[m][0] != self.passes:
                self.head[m] = self.passes, max(job.submit, job.evicted_at + self.replay.options["grace_s"])

    # The order and the places

    def key(self, job: "Job") -> Any:
        return self.spot(job)

    def place(self, job: "Job", scope: list[int]) -> "list[Hold] | None":
        if self.held_back(job):
            self.waits(job)
            return None
        return self.replay.place(job, self.replay.free, scope, self.choose)

    def spot_held(self, server: int) -> int:
        """Thousandths of spot jobs that run there and are not about to be evicted."""
        return sum(hold.gpu_milli for job in self.replay.jobs if job.status == "running" and self.spot(job) and job not in self.replay.gone
                   for hold in job.holds if hold.server.index == server)

    def choose(self, job: "Job", position: int, sim: "list[Free]", scope: list[int],
               claims: "list[Hold]") -> tuple[int | None, int | None]:
        if self.held_back(job):
            return None, None
        fits = [s for s in scope if sim[s].fits(job.ask) and self.within(job, sim[s].server.gpu_model)]
        return min(fits, key=lambda s: (*self.rank(job, s, sim[s]), s), default=None), None

    def rank(self, job: "Job", server: int, free: "Free") -> tuple:
        return sum(free.gpus) // 1000, sum(free.gpus)

    def blocked(self, job: "Job") -> bool:
        self.waits(job)
        return False

    # The victims

    def order(self, look: "Look", victims: Sequence["Job"]) -> list["Job"]:
        """The first to go first."""
        raise NotImplementedError

    def cost(self, look: "Look", server: int, victims: Sequence["Job"]) -> float:
        return 0.0

    def source(self, look: "Look", server: int, evictable: Sequence["Job"]) -> list["Job"]:
        order, n = self.order(look, evictable), 0
        while not look.fits(server, order[:n], True):
            n += 1
            look.tried += 1
        return sorted(order[:n], key=lambda job: job.index)

    def victims(self, look: "Look") -> Found:
        if self.spot(look.job):
            return None
        best = None
        for server in look.servers:
            evictable = look.evictable(server)
            if not look.worth(server, evictable, True):
                continue
            gpus = sum(look.sim[server].gpus) + sum(hold.gpu_milli for hold in look.on(server, evictable))
            if best is not None and self.passes_by(gpus, best[0]):
                continue
            victims = self.source(look, server, evictable)
            rank = self.rank_found(gpus, self.cost(look, server, victims))
            if best is None or rank < best[0]:
                best = rank, server, victims
        return best and best[1:]

    def rank_found(self, gpus: int, cost: float) -> tuple:
        return gpus, cost

    def passes_by(self, gpus: int, rank: tuple) -> bool:
        """Whether a server with so many GPUs free or evictable cannot be better."""
        return gpus > rank[0]


class YarnCs(Gated):
    def order(self, look: "Look", victims: Sequence["Job"]) -> list["Job"]:
        return sorted(victims, key=lambda job: (-job.start, -job.index))

    def passes_by(self, gpus: int, rank: tuple) -> bool:
        return gpus >= rank[0]

    def choose(self, job: "Job", position: int, sim: "list[Free]", scope: list[int],
               claims: "list[Hold]") -> tuple[int | None, int | None]:
        if self.replay.options["blind"] == "true" and not self.spot(job):
            enough = []
            for s in scope:
                free, below = sim[s].copy(), sim[s].copy()
                for other in self.replay.jobs:
                    if other.status == "running" and self.spot(other) and other not in self.replay.gone:
                        for hold in (hold for hold in other.holds if hold.server.index == s):
                            free.give(hold)
                            if other.priority < job.priority:
                                below.give(hold)
                allowed = job.ask.models is None or free.server.gpu_model in job.ask.models
                if allowed and sum(below.gpus) >= job.ask.gpus * job.ask.gpu_milli and below.amounts[-2] >= job.ask.cores_milli:
                    enough.append((sum(free.gpus), s))
            if not enough:
                return None, None
            s = min(enough)[1]
            return (s if sim[s].fits(job.ask) else None), None
        return super().choose(job, position, sim, scope, claims)


class Chronus(YarnCs):
    """Starts at ticks, and evictions at every fourth."""

    def held_back(self, job: "Job") -> bool:
        return self.replay.now != self.ticks * self.period or super().held_back(job)

    def choose(self, *arguments: Any) -> tuple[int | None, int | None]:
        return Gated.choose(self, *arguments)

    def victims(self, look: "Look") -> Found:
        return None if self.ticks % 4 or self.held_back(look.job) else super().victims(look)


class Lyra(Gated):
    def order(self, look: "Look", victims: Sequence["Job"]) -> list["Job"]:
        return sorted(victims, key=lambda job: (-job.gpus, -job.index))

    def cost(self, look: "Look", server: int, victims: Sequence["Job"]) -> float:
        return sum(1 / max(job.gpus, 1e-9) for job in victims)

    def rank_found(self, gpus: int, cost: float) -> tuple:
        return (cost,)

    def passes_by(self, gpus: int, rank: tuple) -> bool:
        return False


class Gfs(Gated):
    """Large instances first, where jobs alike are; victims by waste from both ends."""

    def begin_pass(self) -> None:
        super().begin_pass()
        self.failed: dict[bool, float] = {}

    @staticmethod
    def size(job: "Job") -> float:
        return job.ask.gpus * job.ask.gpu_milli / 1000

    def key(self, job: "Job") -> Any:
        if self.replay.options["without"] == "order":
            return self.spot(job)
        return (1, -self.size(job), job.instances) if self.spot(job) else (0, -self.size(job))

    def held_back(self, job: "Job") -> bool:
        passed = self.replay.options["without"] != "order" and self.size(job) >= self.failed.get(self.spot(job), float("inf"))
        return passed or super().held_back(job)

    def blocked(self, job: "Job") -> bool:
        if not self.held_back(job):
            self.failed[self.spot(job)] = self.size(job)
        return super().blocked(job)

    def rank(self, job: "Job", server: int, free: "Free") -> tuple:
        if self.replay.options["without"] == "placement":
            return super().rank(job, server, free)
        spot = self.spot_held(server)
        alike = spot if self.spot(job) else 1000 * len(free.gpus) - sum(free.gpus) - spot
        when = [self.ticks - tick for tick, s in self.struck if s == server]
        hour, day = (sum(ago < span for ago in when) for span in (HOUR, DAY))
        quiet = 10000 * max(0.0, 1 - 0.01 * 2 ** (0.8 * hour + 0.2 * day))
        return sum(free.gpus) // 1000, -alike, -quiet if self.spot(job) else quiet

    def waste(self, job: "Job") -> float:
        return job.gpus * (self.replay.now - job.start)

    def source(self, look: "Look", server: int, evictable: Sequence["Job"]) -> list["Job"]:
        order, out, dear = sorted(evictable, key=lambda job: (-self.waste(job), job.index)), list(evictable), True
        evicted = []
        while order:
            job = order.pop(0 if dear else -1)
            look.tried += 1
            if look.fits(server, [other for other in out if other is not job], True):
                out = [other for other in out if other is not job]
            else:
                evicted.append(job)
                dear = not dear
        return sorted(evicted, key=lambda job: job.index)

    def cost(self, look: "Look", server: int, victims: Sequence["Job"]) -> float:
        model, n = look.sim[server].server.gpu_model, len(victims)
        failed, kept = self.lately(model)
        wasted = sum(self.waste(job) for job in victims)
        usage = wasted / (self.gpus[model] * (WINDOW * self.period)) if self.gpus[model] else 0.0
        return (failed + n) / (failed + kept + n) + 5 * usage

    def victims(self, look: "Look") -> Found:
        if self.spot(look.job) or self.held_back(look.job):
            return None
        return RandomVictim.victims(RandomVictim(self.replay), look) if look.options["without"] == "victims" else super().victims(look)


POLICIES: dict[str, type[Policy]] = {"gfs": Gfs, "yarn_cs": YarnCs, "lyra": Lyra, "chronus": Chronus}
