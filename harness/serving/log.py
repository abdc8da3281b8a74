"""What a replay writes down: every step, every span of an operation, and when each request was in a decode batch.

When there might not be room for what one instant adds, the engine leaves the loop and the log is doubled outside.
"""

from typing import Any, NamedTuple

import numpy as np

from harness.jit import inlined
from harness.serving.state import Array, Table, table

STEP, OPERATION_SPAN = 0, 1

SPAN = table(
    begin="f8",  # s
    end="f8",
    replica="i4",
    kind="i4",  # STEP or OPERATION_SPAN
    batch="i4",  # decode members, each of which got a token at ``end``
    prompts="i4",  # prompts in prefill
    tokens="i4",  # prompt tokens prefilled in a step
    used="i4",  # KV blocks in use
)

STAY = table(
    request="i4",
    replica="i4",
    since="i8",  # ordinals of the replica: its tokens came at the ends of steps since + 1 .. until
    until="i8",
    time="f8",  # s, of the one token that a prefill made after a preemption; else nan, and the tokens are those of the steps
)


class Log(NamedTuple):
    size: Array  # i8 (2,) spans, stays
    spans: Table  # SPAN (.,)
    stays: Table  # STAY (.,) stays in a decode batch, by their end


SPANS, STAYS = 0, 1


def new_log(room: int = 4096) -> Log:
    """An empty log with room for ``room`` entries of each kind."""
    return Log(np.zeros(2, np.int64), np.zeros(room, SPAN).view(np.recarray), np.zeros(room, STAY).view(np.recarray))


def doubled(log: Log) -> Log:
    """The same log with twice the room of every kind."""
    larger = new_log(2 * len(log.spans))
    larger.size[:] = log.size
    larger.spans[: log.size[SPANS]] = log.spans[: log.size[SPANS]]
    larger.stays[: log.size[STAYS]] = log.stays[: log.size[STAYS]]
    return larger


def spans_of(log: Log) -> Any:
    """The spans that were written (n,), SPAN."""
    return log.spans[: log.size[SPANS]]


def stays_of(log: Log) -> Any:
    """The stays that were written (n,), STAY."""
    return log.stays[: log.size[STAYS]]


@inlined
def has_room(log, n):
    """Whether ``n`` more entries of each kind fit."""
    return log.size[SPANS] + n <= len(log.spans.end) and log.size[STAYS] + n <= len(log.stays.since)


@inlined
def add_span(log, begin, end, replica, kind, batch, prompts, tokens, used):
    n = log.size[SPANS]
    span = log.spans
    span.begin[n], span.end[n], span.replica[n], span.kind[n] = begin, end, replica, kind
    span.batch[n], span.prompts[n], span.tokens[n], span.used[n] = batch, prompts, tokens, used
    log.size[SPANS] = n + 1


@inlined
def add_stay(log, q, replica, since, until, time):
    n = log.size[STAYS]
    log.stays.time[n] = time
    log.stays.request[n], log.stays.replica[n], log.stays.since[n], log.stays.until[n] = q, replica, since, until
    log.size[STAYS] = n + 1
