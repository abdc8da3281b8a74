"""Conversations: each turn's prompt is what was said before, the answers too, and something new, so that turns share long prefixes.

The likeness of Mooncake's conversation trace (FAST'25) in kind, not in numbers, which are ours: that trace names no sessions. Prefix blocks
are equal in the turns of a session as far as they are whole, and within a system prompt in all sessions that have it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.schema import REQUESTS
from harness.tables import checked
from harness.workload.common import Stream, check_number, generator, milliseconds, numbered, poisson_arrivals

if TYPE_CHECKING:
    from harness.topology import Cluster


@dataclass(frozen=True)
class Params:
    """Parameters of sessions.

    duration_s: how long requests arrive (s).
    rate: sessions that begin per second, Poisson.
    turns: mean of the turns of a session, geometric.
    think_s: mean time from the arrival of a turn to that of the next (s), exponential, whether or not the answer was there by then.
    systems: different system prompts; the k-th is had with weight 1/k.
    system_tokens: tokens of each.
    first_tokens, user_tokens, output_tokens: medians of what the user says first and in later turns, and of the answers (tokens).
    sigma: standard deviation of the logarithm of all three.
    longest: a session ends before a turn whose prompt and output have more tokens.
    block_tokens: tokens of a prefix block.
    """

    duration_s: float = 600.0
    rate: float = 0.5
    turns: float = 5.0
    think_s: float = 40.0
    systems: int = 4
    system_tokens: int = 1024
    first_tokens: float = 2000.0
    user_tokens: float = 200.0
    output_tokens: float = 200.0
    sigma: float = 1.0
    longest: int = 32_000
    block_tokens: int = 512


def generate(params: Params, cluster: "Cluster", seed: int) -> pa.Table:
    """The requests of one seed, sorted by arrival_time, with prefix_hashes and the column session; ``cluster`` is not looked at.

    Raises BadInput for parameters out of range.
    """
    for key in ("duration_s", "rate", "first_tokens", "user_tokens", "output_tokens"):
        check_number(key, getattr(params, key), above=0)
    for key in ("turns", "systems", "longest", "block_tokens"):
        check_number(key, getattr(params, key), low=1)
    for key in ("think_s", "system_tokens", "sigma"):
        check_number(key, getattr(params, key), low=0)
    begin = poisson_arrivals(generator(seed, Stream.REQUEST_ARRIVAL), params.rate, 0.0, params.duration_s)
    turns = generator(seed, Stream.SESSION_TURNS).geometric(1.0 / params.turns, len(begin))
    weight = 1.0 / np.arange(1, params.systems + 1)
    system = generator(seed, Stream.SESSION_SYSTEM).choice(params.systems, len(begin), p=weight / weight.sum())
    session, first = np.repeat(np.arange(len(begin)), turns), np.cumsum(turns) - turns
    opens = np.zeros(len(session), bool)
    opens[first] = True
    think = generator(seed, Stream.SESSION_THINK).exponential(params.think_s, len(session))
    arrival = milliseconds(begin[session] + _since(np.where(opens, 0.0, think), first, session))
    said = _lengths(seed, Stream.REQUEST_PROMPT, np.where(opens, params.first_tokens, params.user_tokens), params.sigma)
    output = _lengths(seed, Stream.REQUEST_OUTPUT, np.full(len(session), params.output_tokens), params.sigma)
    prompt = params.system_tokens + _since(said + output, first, session) - output
    kept = np.flatnonzero((arrival < params.duration_s) & (prompt + output <= params.longest))
    kept = kept[np.argsort(arrival[kept], kind="stable")]
    if not len(kept):
        raise BadInput("workload: no request arrives; raise rate, duration_s or longest")
    return checked(pa.table({
        "request_id": numbered("r", len(kept)), "arrival_time": arrival[kept], "prompt_tokens": prompt[kept].astype(np.int32),
        "output_tokens": output[kept].astype(np.int32), "session": session[kept],
        "prefix_hashes": _hashes(prompt[kept], session[kept], system[session[kept]], params),
    }), REQUESTS, "sessions")


def _lengths(seed: int, stream: Stream, median: np.ndarray, sigma: float) -> np.ndarray:
    """Log-normal tokens with these medians, at least one."""
    normal = generator(seed, stream).standard_normal(len(median))
    return np.maximum(1, np.rint(np.exp(np.log(median) + sigma * normal))).astype(np.int64)


def _since(values: np.ndarray, first: np.ndarray, session: np.ndarray) -> np.ndarray:
    """Running sums within each session, whose turns begin at ``first``."""
    sums = np.cumsum(values)
    return sums - (sums - values)[first][session]


def _hashes(prompt: np.ndarray, session: np.ndarray, system: np.ndarray, params: Params) -> pa.ListArray:
    """Numbers of the prefix blocks of each prompt: of its system prompt, of its session, and for a partial last one of its own."""
    blocks = -(-prompt // params.block_tokens)
    row, end = np.repeat(np.arange(len(prompt)), blocks), np.cumsum(blocks)
    place = np.arange(len(row)) - (end - blocks)[row]
    shared = (place + 1) * params.block_tokens <= params.system_tokens
    partial = (place + 1) * params.block_tokens > prompt[row]
    owner = np.where(shared, system[row], np.where(partial, row, session[row]))
    number = ((2 * partial + shared) << 48) + (owner << 20) + place
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], end]), pa.int32()), pa.array(number, pa.int64()))
