"""What a replay writes down: decisions, attempts that were cut short, and resources held without running.

When a decision might not fit, the engine leaves the loop and the log is doubled outside.
"""

from typing import NamedTuple

import numpy as np

from harness.cluster.state import Array
from harness.jit import kernel

(DECISION, PREEMPTOR, SERVER_ID, VICTIM_FROM, VICTIMS, NEEDED, FREED, ELSEWHERE, CPUS, LEVEL_VICTIMS, LEVEL_ASSIGNED, CAN_HIT, RAN,
 TRIED, SCANNED) = range(15)
"""Columns of Log.rows. GPUs and cores in thousandths, levels as in state, VICTIM_FROM an index into Log.victims."""

TIME, LOST, WALL = 0, 1, 2
"""Columns of Log.numbers: s, GPU seconds, us."""

GRACE, CLAIM = 0, 1
HOLDER, WHAT, SINCE, UNTIL, HELD_GPU, HELD_CPU = 0, 1, 2, 3, 4, 5
"""Columns of Log.held: job, GRACE or CLAIM, from and until (s), GPU and core thousandths."""


class Log(NamedTuple):
    size: Array  # i8 (5,) rows, victims, attempts, held, seats
    rows: Array  # i8 (., 15)
    numbers: Array  # f8 (., 3)
    victims: Array  # i8 (.,) job
    attempts: Array  # f8 (., 3) job, start, stop of attempts that ended in an eviction
    held: Array  # f8 (., 6)
    seats: Array  # i8 (., 2) server and mask of GPUs of each instance of those attempts, in their order


def new_log(room: int = 1024) -> Log:
    """An empty log with room for ``room`` rows of each kind."""
    return Log(np.zeros(5, np.int64), np.zeros((room, 15), np.int64), np.zeros((room, 3)), np.zeros(room, np.int64), np.zeros((room, 3)),
               np.zeros((room, 6)), np.zeros((room, 2), np.int64))


def doubled(log: Log) -> Log:
    """The same log with twice the room of every kind."""
    larger = new_log(2 * max(len(field) for field in log[1:]))
    for field, source in zip(larger, log, strict=True):
        field[: len(source)] = source
    return larger


@kernel
def has_room(log, rows, victims, attempts, seats):
    """Whether a decision that adds at most so many entries fits."""
    size = log.size
    return (
        size[0] + rows <= len(log.rows)
        and size[1] + victims <= len(log.victims)
        and size[2] + attempts <= len(log.attempts)
        and size[3] + attempts + 1 <= len(log.held)
        and size[4] + seats <= len(log.seats)
    )


@kernel
def add_row(log):
    """Index of one more, zeroed, row."""
    log.size[0] += 1
    return log.size[0] - 1


@kernel
def add_victim(log, job):
    log.victims[log.size[1]] = job
    log.size[1] += 1


@kernel
def add_attempt(log, job, start, stop):
    n = log.size[2]
    log.attempts[n, 0], log.attempts[n, 1], log.attempts[n, 2] = job, start, stop
    log.size[2] += 1


@kernel
def add_seat(log, server, gpus):
    n = log.size[4]
    log.seats[n, 0], log.seats[n, 1] = server, gpus
    log.size[4] += 1


@kernel
def add_held(log, job, what, since, until, gpu, cpu):
    n = log.size[3]
    log.held[n, HOLDER], log.held[n, WHAT], log.held[n, SINCE], log.held[n, UNTIL] = job, what, since, until
    log.held[n, HELD_GPU], log.held[n, HELD_CPU] = gpu, cpu
    log.size[3] += 1
