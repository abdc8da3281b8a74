"""The requests table of a serving cell: the trace, and what became of each request."""

import numpy as np
import pyarrow as pa

from harness import schema
from harness.metrics.jobs import words
from harness.serving.outcome import Outcome
from harness.serving.state import DROPPED, FINISHED, HELD, NOBODY, REJECTED, STORE_BLOCKS, UNSUBMITTED, WAITING, Array

REASONS = ("its KV cache fits no replica", "its replica went")
"""Why a request was rejected or dropped."""

FROM_TRACE = ("request_id", "service", "arrival_time", "prompt_tokens", "output_tokens")


def status_words(outcome: Outcome) -> Array:
    """Index into schema.REQUEST_STATUSES of each request (Q,). One that waits after it had begun is running."""
    requests = outcome.state.shown.requests
    word = np.full(len(requests), schema.STATUSES.index("running"), np.int8)
    word[((requests.status == WAITING) | (requests.status == HELD)) & np.isnan(requests.start)] = schema.STATUSES.index("waiting")
    for status, name in ((FINISHED, "finished"), (REJECTED, "rejected"), (UNSUBMITTED, "not_submitted"), (DROPPED, "dropped")):
        word[requests.status == status] = schema.REQUEST_STATUSES.index(name)
    return word


def slo_met(outcome: Outcome) -> tuple[Array, Array]:
    """Whether each request (Q,) finished with its time to first token and 99th percentile between tokens within its objectives, and
    whether it has any."""
    requests = outcome.state.shown.requests
    late = requests.first_token - requests.arrival > requests.ttft_slo
    slow = outcome.tbt_p99 > requests.tbt_slo
    return (requests.status == FINISHED) & ~late & ~slow, (requests.ttft_slo < np.inf) | (requests.tbt_slo < np.inf)


def requests_table(outcome: Outcome) -> pa.Table:
    """schema.RESULT_REQUESTS, with prefix stores schema.PREFIXES too, rows in the order of the trace. Times in seconds."""
    requests, end = outcome.state.shown.requests, outcome.end
    word = status_words(outcome)
    absent = (requests.status == REJECTED) | (requests.status == UNSUBMITTED)
    queued = np.where(np.isnan(requests.start), end, requests.start) - requests.arrival
    queued[absent] = np.nan
    met, has_slo = slo_met(outcome)
    columns = {
        "start_time": _nullable(requests.start), "first_token_time": _nullable(requests.first_token),
        "finish_time": _nullable(requests.finish), "queue_s": _nullable(queued),
        "ttft_s": _nullable(requests.first_token - requests.arrival), "tbt_mean_s": _nullable(outcome.tbt_mean),
        "tbt_p99_s": _nullable(outcome.tbt_p99), "e2e_s": _nullable(requests.finish - requests.arrival),
        "preemptions": pa.array(requests.preemptions.astype(np.int32)),
        "replica": pa.array(requests.replica.astype(np.int32), mask=requests.replica == NOBODY),
        "slo_met": pa.array(met, mask=~has_slo | absent), "status": words(word, schema.REQUEST_STATUSES),
        "reason": words(requests.status == DROPPED, REASONS, (requests.status != DROPPED) & (requests.status != REJECTED)),
    }
    prefixes = ()
    if outcome.state.shown.count[STORE_BLOCKS]:
        columns["cached_tokens"], prefixes = pa.array(requests.loaded.astype(np.int32)), schema.PREFIXES
    if (np.diff(outcome.order) < 0).any():
        row = np.empty(len(outcome.order), np.int64)
        row[outcome.order] = np.arange(len(row))
        columns = {name: column.take(pa.array(row)) for name, column in columns.items()}
    kept = {name: outcome.trace[name] for name in FROM_TRACE}
    table = pa.table({**kept, **columns})
    return table.cast(schema.arrow_schema((*schema.RESULT_REQUESTS, *prefixes)))


def _nullable(values: Array) -> pa.Array:
    return pa.array(np.ascontiguousarray(values), from_pandas=True)
