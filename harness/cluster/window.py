"""A replay of a trace of any length in bounded memory: only the jobs that have not ended are in the state.

The loop stops when all jobs that it knows have arrived. Then what has become final is handed out (the log, the jobs that have ended),
the other jobs move to the front of the tables, in their order, and the next block of the trace joins behind them. Since the order
stays, so do all ties; every number of a job or an instance that is kept anywhere is translated. A replay in a window is therefore, bit
for bit, the replay of the whole trace at once (tests/test_stream.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from harness.cluster import engine
from harness.cluster.build import (
    Requests,
    Rules,
    build_empty,
    fresh_instances,
    fresh_jobs,
    no_instances,
    no_jobs,
    why_impossible,
    with_room,
)
from harness.cluster.decide import CAPPED, Pending
from harness.cluster.hooks import Policy
from harness.cluster.log import HOLDER, PREEMPTOR, VICTIM_FROM, Log, new_log
from harness.cluster.outcome import Outcome
from harness.cluster.preempt import FIRST_VICTIM
from harness.cluster.queue import CALENDAR, FINISH, FRONT, HELD, KIND_SHIFT, Queue, enqueue
from harness.cluster.run import Run
from harness.cluster.state import CLAIMING, DECISIONS, HORIZON, RUNNING, UNSUBMITTED, WAITING, Array, Table
from harness.errors import BadInput, InvalidIntention
from harness.jit import entry
from harness.topology import Cluster

JOB_MASK = (1 << KIND_SHIFT) - 1


class Sink(Protocol):
    """Takes what a replay in a window leaves behind, piece by piece."""

    def opened(self, first_row: int, jobs: Table) -> None:
        """A block of the trace that begins at ``first_row`` has joined; its instances are numbered from 0."""

    def logged(self, piece: Outcome, rows: Array) -> None:
        """The log of ``piece`` is final, and its end the latest that there may be. Its jobs are at ``rows`` of the trace."""

    def left(self, rows: Array, jobs: Table, ran_on: Array, end: float) -> None:
        """These jobs, rows ascending, have ended, or at the ``end`` (s, before it inf) are as they are.

        ``ran_on`` has the servers of their instances, job by job.
        """


class Window(Run):
    """A replay that knows a part of its trace. ``rows`` and ``names``: row of the trace and job_id of each job of the state."""

    def __init__(self, requests: Requests, cluster: Cluster, policy: Policy, rules: Rules, sink: Sink):
        if policy.needs_trace:
            raise BadInput(f"policy {policy.name}: with these parameters it needs the whole trace, must be run with workload.stream=false")
        super().__init__(build_empty(requests, cluster, rules, 1), policy, requests, cluster)
        self.requests, self.sink, self.tenants = requests, sink, {}
        self.reasons = {int(c): why_impossible(self.state, int(c)) for c in np.flatnonzero(self.state.classes.possible == 0)}
        self.rows, self.names = np.zeros(0, np.int64), pa.array([], pa.string())
        self.loaded = 0
        self.where.tally[engine.KNOWN] = 0

    def piece(self, end: float, log: Log) -> Outcome:
        """The state as it is, and this log."""
        trace = pa.table({"job_id": self.names})
        return Outcome(trace, np.arange(len(self.rows)), self.state, log, self.reasons, int(self.where.tally[engine.EVENTS]),
                       int(self.state.count[DECISIONS]), end, int(self.pending.fault[CAPPED]), self.reports())

    def add(self, block: pa.Table, more: bool) -> None:
        """Loads the next block of the trace; ``more`` says whether another one follows."""
        state, tally, n = self.state, self.where.tally, len(self.rows)
        fresh = fresh_jobs(block, self.requests.number(block), state.classes, self.tenants)
        instances = fresh_instances(fresh)
        self.sink.opened(self.loaded, fresh)
        first = int(state.jobs.end_instance[n - 1]) if n else 0
        self._make_room(n + len(fresh), first + len(instances))
        state = self.state
        fresh.first_instance += first
        fresh.end_instance += first
        instances.job += n
        state.jobs[n:n + len(fresh)] = fresh
        state.instances[first:first + len(instances)] = instances
        self.rows = np.concatenate([self.rows, np.arange(self.loaded, self.loaded + len(fresh))])
        self.names = pa.concat_arrays([self.names, *block["job_id"].chunks])
        self.loaded += len(fresh)
        # Jobs that may share their instant with the next block wait for it.
        known = len(self.rows)
        tally[engine.KNOWN] = np.searchsorted(state.jobs.submit[:known], state.jobs.submit[known - 1]) if more and known else known
        tally[engine.MORE] = more

    def _make_room(self, jobs: int, instances: int) -> None:
        """Makes the tables long enough for so many jobs and instances."""
        state, queue, pending = self.state, self.queue, self.pending
        if jobs > len(state.jobs):
            slots = max(jobs, len(state.jobs) * 3 // 2)
            self.state = state = state._replace(jobs=_longer(state.jobs, no_jobs(slots)))
            self.queue = queue._replace(node=_longer(queue.node, _zeros(queue.node, slots)),
                                        event=_longer(queue.event, _zeros(queue.event, 3 * slots + 64)))
            self.pending = pending = pending._replace(claim=_longer(pending.claim, _zeros(pending.claim, slots)),
                                                      found=_longer(pending.found, np.zeros(FIRST_VICTIM + slots, np.int64)))
            self.own = self.own._replace(job_state=_longer(self.own.job_state, _zeros(self.own.job_state, slots)))
        if instances > len(state.instances):
            slots = max(instances, len(state.instances) * 3 // 2)
            self.state = state._replace(instances=_longer(state.instances, no_instances(slots)),
                                        instance_cores=_longer(state.instance_cores, _zeros(state.instance_cores, slots)))
            self.pending = pending._replace(**{name: _longer(table, _zeros(table, slots)) for name, table in (
                ("hold", pending.hold), ("hold_gpu", pending.hold_gpu), ("hold_cores", pending.hold_cores))})

    def hand_out(self) -> None:
        """Gives the sink what is final, and takes it out of the state."""
        state, queue, pending, log = self.state, self.queue, self.pending, self.log
        n = len(self.rows)
        jobs: Any = state.jobs[:n]
        code = queue.event.code[:queue.mark[CALENDAR]]
        claimants = code[code >> KIND_SHIFT != FINISH] & JOB_MASK
        cut = _final_part(pending, log, claimants)
        self.sink.logged(self.piece(state.clock[HORIZON], log._replace(size=np.array(cut))), self.rows)

        kept = (jobs.status == WAITING) | (jobs.status == CLAIMING) | (jobs.status == RUNNING) | (jobs.status == UNSUBMITTED)
        kept[log.rows[cut[0]:log.size[0], PREEMPTOR]] = True
        kept[log.victims[cut[1]:log.size[1]]] = True
        kept[log.held[cut[3]:log.size[3], HOLDER].astype(np.int64)] = True
        kept[claimants] = True
        self._leave(np.flatnonzero(~kept), np.inf)

        waiting = jobs.status == WAITING
        waiting[queue.node.held[:queue.mark[HELD]]] = False
        for job in claimants:  # victims in grace are in no queue
            victim = pending.claim.victim[job]
            while victim >= 0:
                waiting[victim] = False
                victim = pending.claim.next_victim[victim]
        self._compact(np.flatnonzero(kept), waiting[kept], cut)
        self.arrived_before += n - int(kept.sum())

    def _leave(self, jobs: Array, end: float) -> None:
        """Tells the sink about these jobs, by ascending number."""
        state = self.state
        length = state.jobs.end_instance[jobs] - state.jobs.first_instance[jobs]
        within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        ran_on = state.instances.ran_on[np.repeat(state.jobs.first_instance[jobs], length) + within]
        leaving: Any = state.jobs.take(jobs)
        self.sink.left(self.rows[jobs], leaving, ran_on, end)

    def _compact(self, kept: Array, waiting: Array, cut: list[int]) -> None:
        """Moves the jobs ``kept`` to the front and translates their numbers everywhere; ``waiting`` of them are in the queue."""
        state, queue, pending, log, tally = self.state, self.queue, self.pending, self.log, self.where.tally
        filled, n = len(self.rows), len(kept)
        job_to = _numbers_after(kept, filled)
        used = int(state.jobs.end_instance[filled - 1]) if filled else 0
        stays = np.flatnonzero(job_to[state.instances.job[:used]] >= 0)
        instance_to = _numbers_after(stays, used)

        for links in (state.instances.next, state.instances.prev):
            links[stays] = instance_to[links[stays]]
        state.servers.first = instance_to[state.servers.first]
        state.instances.job[stays] = job_to[state.instances.job[stays]]
        for table in (state.instances, state.instance_cores):
            table[:len(stays)] = table.take(stays, axis=0)

        length = state.jobs.end_instance[kept] - state.jobs.first_instance[kept]
        claim = pending.claim
        claim.victim[kept], claim.next_victim[kept] = job_to[claim.victim[kept]], job_to[claim.next_victim[kept]]
        claim.row[kept] -= cut[0]
        claim.held[kept] -= cut[3]
        held = job_to[queue.node.held[:queue.mark[HELD]]]
        for table in (state.jobs, queue.node, claim, self.own.job_state):
            table[:n] = table.take(kept, axis=0)
        state.jobs.end_instance[:n] = np.cumsum(length)
        state.jobs.first_instance[:n] = state.jobs.end_instance[:n] - length
        state.jobs.status[n:filled] = UNSUBMITTED  # nothing else of what is there is looked at before the next block replaces it
        claim.victim[n:filled] = claim.next_victim[n:filled] = -1
        self.own.job_state[n:filled] = 0.0

        held = held[held >= 0]
        queue.mark[HELD] = len(held)
        queue.node.held[:len(held)] = held
        _translate_calendar(queue, job_to, state.jobs)
        _enqueue_all(queue, state.jobs.klass, np.flatnonzero(waiting))

        _drop_head(log, cut)
        log.rows[:log.size[0], PREEMPTOR] = job_to[log.rows[:log.size[0], PREEMPTOR]]
        log.rows[:log.size[0], VICTIM_FROM] -= cut[1]
        log.victims[:log.size[1]] = job_to[log.victims[:log.size[1]]]
        log.held[:log.size[3], HOLDER] = job_to[log.held[:log.size[3], HOLDER].astype(np.int64)]

        self.rows, self.names = self.rows[kept], self.names.take(pa.array(kept))
        for column in (engine.ARRIVED, engine.KNOWN):
            tally[column] = np.searchsorted(kept, tally[column])

    def finish(self, never_met: Iterator[pa.Table]) -> Outcome:
        """Gives the sink all that is left once the loop is done, and the blocks that the loop had no need of.

        Returns the counts and the end of the replay, with an empty state and log.
        """
        last = self.piece(self.ended_at(), self.log)
        self.sink.logged(last, self.rows)
        self._leave(np.arange(len(self.rows)), last.end)
        for block in never_met:
            fresh = fresh_jobs(block, self.requests.number(block), self.state.classes, self.tenants)
            self.sink.opened(self.loaded, fresh)
            rows, instances = np.arange(self.loaded, self.loaded + len(fresh)), fresh.end_instance[-1]
            self.sink.left(rows, fresh, np.full(instances, -1), last.end)
            self.loaded += len(fresh)
        return replace(last, trace=last.trace.slice(0, 0), order=last.order[:0], log=new_log(0),
                       state=with_room(self.state, no_jobs(0), no_instances(0)))


def replay_in_window(blocks: Iterator[pa.Table], requests: Requests, cluster: Cluster, policy: Policy, rules: Rules, sink: Sink,
                     progress: Callable[[int, int], None] | None = None) -> Outcome:
    """Replays a trace that comes in ``blocks`` (schema.JOBS, sorted by submit_time), of which ``requests`` are the classes.

    ``sink`` is given all jobs, once each, and the whole log. Returns the counts and the end of the replay, with an empty state and
    log. Raises InvalidIntention as ``replay`` does.
    """
    window = Window(requests, cluster, policy, rules, sink)
    block = next(blocks, None)
    while True:
        following = next(blocks, None)
        if block is not None:
            window.add(block, following is not None)
        answer = window.go(progress)
        if answer == engine.BROKEN:
            raise InvalidIntention(window.complaint(lambda job: str(window.names[job])))
        if answer == engine.DONE:
            return window.finish(chain([following] if following else [], blocks))
        window.hand_out()
        block = following


def _final_part(pending: Pending, log: Log, claimants: Array) -> list[int]:
    """Length of the part of the log (rows, victims, attempts, held, seats) that no claim of ``claimants`` can change any more."""
    if not len(claimants):
        return [int(size) for size in log.size]
    row, held = int(pending.claim.row[claimants].min()), int(pending.claim.held[claimants].min())
    return [row, int(log.rows[row, VICTIM_FROM]), int(log.size[2]), held, int(log.size[4])]


def _drop_head(log: Log, cut: list[int]) -> None:
    """Takes out the first entries of each kind."""
    for kind, fields in enumerate(((log.rows, log.numbers), (log.victims,), (log.attempts,), (log.held,), (log.seats,))):
        rest = int(log.size[kind]) - cut[kind]
        for field in fields:
            field[:rest] = field[cut[kind]:cut[kind] + rest].copy()
            field[rest:rest + cut[kind]] = 0
        log.size[kind] = rest


def _numbers_after(kept: Array, n: int) -> Array:
    """For each of ``n`` old numbers the new one, -1 for those that are gone; one more entry, so that -1 leads to -1."""
    new = np.full(n + 1, -1)
    new[kept] = np.arange(len(kept))
    return new


def _translate_calendar(queue: Queue, job_to: Array, jobs: Table) -> None:
    """Drops what is stale and renames the jobs of the others; ``jobs`` have moved already. A sorted array is a heap."""
    n = queue.mark[CALENDAR]
    time, code = queue.event.time[:n].copy(), queue.event.code[:n].copy()
    kind, job = code >> KIND_SHIFT, job_to[code & JOB_MASK]
    stands = (job >= 0) & ((kind != FINISH) | (jobs.due[job] == time))
    time, code = time[stands], (kind << KIND_SHIFT | job)[stands]
    order = np.lexsort((code, time))
    queue.mark[CALENDAR] = len(order)
    queue.event.time[:len(order)], queue.event.code[:len(order)] = time[order], code[order]


@entry
def _enqueue_all(queue, klass, jobs):
    """Builds the heaps anew from ``jobs``, their keys as they are."""
    queue.mark[FRONT] = -1
    for c in range(len(queue.line.root)):
        queue.line.root[c] = -1
    for job in range(len(queue.node.in_front)):
        queue.node.in_front[job] = 0
    for i in range(len(jobs)):
        enqueue(queue, klass[jobs[i]], jobs[i])


def _zeros(table: Array, n: int) -> Any:
    """``n`` zeroed rows like those of ``table``."""
    rows = np.zeros((n, *table.shape[1:]), table.dtype)
    return rows.view(np.recarray) if isinstance(table, np.recarray) else rows


def _longer(table: Array, longer: Any) -> Any:
    """``longer`` beginning with what ``table`` holds."""
    longer[:len(table)] = table
    return longer
