"""Prefix reuse: worked out by hand, against the plain twin, against sets of blocks, and on the real Mooncake trace.

A step costs C0 + C1 x the largest KV cache. A block has 4 tokens; Llama-3-8B has 131,072 bytes of KV cache a token, and the host is at
32 GB/s: LOAD = 4.096 us a token.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import naive_serving
from harness import traces_app
from harness.app import main
from harness.colocation.answers import served
from harness.describe import prefix_reuse
from harness.errors import BadInput
from harness.metrics.requests import requests_table
from harness.metrics.serving import serving_summary, serving_utilization
from harness.serving.hooks import load_policy
from harness.serving.outcome import Outcome
from harness.serving.prefix import ABSENT, NEWER, OLDER
from harness.serving.replay import replay
from harness.serving.state import STORE_BLOCKS
from harness.tables import read_trace, write_table
from serving_worlds import EXACT, facts, families, play, pool, trace, world
from test_serving_hand_worked import steps
from test_serving_twin import KEYS, SHAPES, exact

LOAD = 131_072 / 32e9


def gb(blocks: int, tokens: int = 4) -> float:
    """Size of a store of so many blocks."""
    return (blocks + 0.5) * tokens * 131_072 / 1e9


def store(blocks: int, **keys):
    return pool(**({"step_time": EXACT, "replicas": 1, "chunk": 4, "batch": 2, "prefix_block_tokens": 4,
                    "prefix_cache_gb": gb(blocks)} | keys))


def reused(rows, hashes, where, **columns) -> tuple[Outcome, list[int]]:
    outcome = play(rows, where, prefix_hashes=hashes, **columns)
    return outcome, requests_table(outcome)["cached_tokens"].to_pylist()


def held(outcome: Outcome, s: int = 0) -> list[int]:
    """Numbers of the blocks in a store, the least recent first; the ring is whole in both directions."""
    view = outcome.state.shown
    ring, found = view.stores[s, :-1].reshape(-1, 2), []
    mark = len(ring) - 1
    block = int(ring[mark, NEWER])
    while block != mark:
        assert ring[ring[block, NEWER], OLDER] == block
        found.append(block)
        block = int(ring[block, NEWER])
    assert len(found) == view.stores[s, -1] <= view.count[STORE_BLOCKS] and (ring[:mark] != ABSENT).sum() == 2 * len(found)
    return found


def test_a_prompt_loads_its_whole_blocks_and_computes_the_rest():
    """Ten tokens in chunks of 4: three steps. The same prompt a second later has its two whole blocks, of 8 tokens, not the partial third:
    one step of the two that are left, after a stall of 8 LOAD."""
    outcome, cached = reused([(0, 10, 1), (1, 10, 1)], [[1, 2, 3]] * 2, store(9))
    q = outcome.state.shown.requests
    assert q.first_token[0] == steps(4, 8, 10) and q.first_token[1] == 1 + (8 * LOAD + steps(10))
    assert cached == [0, 8] and outcome.log.spans.tokens[: outcome.log.size[0]].tolist() == [4, 4, 2, 2]
    table = serving_utilization(outcome)
    assert serving_summary(outcome, table)["prefix_hit_share"] == served(requests_table(outcome))["prefix_hit_share"] == 8 / 20


def test_the_last_token_is_always_computed():
    """A prompt of two whole blocks, both in the store: seven tokens are loaded, one is computed and makes the next."""
    outcome, cached = reused([(0, 8, 1), (1, 8, 1)], [[1, 2]] * 2, store(9))
    assert cached == [0, 7] and outcome.state.shown.requests.first_token[1] == 1 + (7 * LOAD + steps(8))


def test_a_run_ends_at_the_first_block_that_is_not_there():
    """The second shares its first block and, behind one of its own, the third; the third has no hashes; the fourth begins otherwise."""
    rows = [(0, 12, 1), (1, 12, 1), (2, 12, 1), (3, 12, 1)]
    assert reused(rows, [[1, 2, 3], [1, 9, 3], None, [8, 2, 3]], store(9))[1] == [0, 4, 0, 0]


def test_the_least_recent_blocks_go_first_and_tails_before_heads():
    """Room for two blocks. 1-2 are put in, 2 first; 5 takes the place of 2. The third finds 1 alone, and puts 2 and 1 in the place of
    both. The fourth, 5, is gone; the fifth finds 1, since 5 took the place of 2 again. Three blocks then fill the store with
    their first two, which are all that the last one finds."""
    rows = [(float(i), 4 * n, 1) for i, n in enumerate((2, 1, 2, 1, 2, 3, 3))]
    outcome, cached = reused(rows, [[1, 2], [5], [1, 2], [5], [1, 2], [6, 7, 8], [6, 7, 8]], store(2))
    assert cached == [0, 0, 4, 0, 4, 0, 8]
    known = sorted({1, 2, 5, 6, 7, 8})
    assert [known[b] for b in held(outcome)] == [7, 6]


def test_a_prompt_is_in_the_store_when_its_prefill_is_complete():
    """Both start in one step: neither finds anything. The budget of the step that they share is 8."""
    assert reused([(0, 4, 1), (0, 4, 1), (1, 4, 1)], [[1]] * 3, store(9, chunk=8))[1] == [0, 0, 3]


def test_a_loaded_prefix_leaves_room_in_the_step():
    """A budget of 8. The third has 4 of its 6 tokens loaded, so the fourth, of 6 too, starts in the same step: 2 + 6 tokens, stalled by 4
    LOAD. Without a store the fourth would have 2 tokens in that step, and be done one later."""
    rows = [(0, 4, 1), (1, 6, 1), (1, 6, 1)]
    hashes = [[1], [1, 2], [3, 4]]
    q = reused(rows, hashes, store(9, chunk=8))[0].state.shown.requests
    assert q.first_token.tolist()[1:] == [1 + (4 * LOAD + steps(6))] * 2
    q = play(rows, store(0, chunk=8, prefix_cache_gb=0), prefix_hashes=hashes).state.shown.requests
    assert q.first_token.tolist()[1:] == [1 + steps(6), 1 + steps(6, 6)]


def test_what_is_computed_again_loads_its_prompt():
    """As test_preemption_by_recompute: the second is dropped with one token made. Of the five tokens to prefill again its prompt of four
    is in the store. That does not count as reuse: its first token was made before."""
    outcome, cached = reused([(0, 4, 5), (0, 4, 4)], [[1], [2]], store(9, chunk=512, block=4, kv_blocks=3))
    q = outcome.state.shown.requests
    assert q.preemptions.tolist() == [0, 1] and cached == [0, 0]
    assert q.finish[1] == pytest.approx(steps(4, 5, 6, 7, 8) + 4 * LOAD + steps(5, 6, 7), rel=1e-14)


def test_stores_are_of_a_replica_or_shared():
    rows, hashes = [(0, 8, 1), (1, 8, 1), (2, 8, 1)], [[1, 2]] * 3
    keys: dict = {"replicas": 2, "routing": "round_robin"}
    assert reused(rows, hashes, store(9, **keys))[1] == [0, 0, 7]
    assert reused(rows, hashes, store(9, prefix_store="shared", **keys))[1] == [0, 7, 7]


def test_prefix_routing_weighs_what_is_cached_against_what_is_pending():
    """A on 0, B on 1 where nothing is pending. Then C, like B: 4 tokens to compute on 1, 44 on 0. D, like B too, has 44 pending on 1
    and 4 of its own, against 44 on 0."""
    a, b = list(range(10)), list(range(20, 30))
    rows = [(0, 40, 1), (0, 40, 1), (5, 44, 1), (5, 44, 1)]
    hashes = [a, b, [*b, 30], [*b, 31]]
    outcome, cached = reused(rows, hashes, store(99, replicas=2, routing="prefix"))
    assert outcome.state.shown.requests.replica.tolist() == [0, 1, 1, 0] and cached == [0, 0, 40, 0]


def test_the_most_cached_blocks_alone_would_send_all_to_one_replica(tmp_path: Path):
    """All prompts share their first block. After the first, a policy that looks at cached blocks alone sends all to its replica, however
    many wait there; the rule prefix sends the second of the two at 5 s elsewhere."""
    file = tmp_path / "most_cached.py"
    file.write_text("from harness.serving.routing import stored\n\n\ndef route(view, own, q):\n"
                    "    best = 0\n    for r in range(len(view.replicas)):\n"
                    "        if stored(view, r, q) > stored(view, best, q):\n            best = r\n    return best\n")
    rows = [(0, 40, 1), (5, 40, 1), (5, 40, 1), (5, 40, 1)]
    hashes = [[0, *range(10 * i, 10 * i + 9)] for i in range(1, 5)]
    for which, replicas in (({"file": file}, [0, 0, 0, 0]), ({"policy": "fcfs"}, [0, 0, 1, 0])):
        requests = play(rows, store(99, replicas=2, routing="prefix"), prefix_hashes=hashes, **which).state.shown.requests
        assert requests.replica.tolist() == replicas


def test_a_replica_that_goes_takes_its_store_along():
    """One slot, empty from 0.5 to 1 s: the replica that comes then has an empty store, unless the store is the pool's."""
    there = pa.table({"replica": [0, 0], "ready_time": [0.0, 1.0], "drain_time": [0.5, None], "stop_time": [0.5, None],
                      "level": ["numa", "numa"]})
    table = trace([(0, 8, 1), (0.4, 8, 1), (1, 8, 1)], prefix_hashes=[[1, 2]] * 3)
    for kind, cached in (("replica", [0, 7, 0]), ("shared", [0, 7, 7])):
        outcome = replay(table, store(9, prefix_store=kind), load_policy("fcfs"), replicas=there)
        assert requests_table(outcome)["cached_tokens"].to_pylist() == cached


CHUNKED = [shape for shape in SHAPES if not shape.startswith("whole")]


@pytest.mark.parametrize("kind", ["replica", "shared"])
@pytest.mark.parametrize("shape", CHUNKED)
def test_the_engine_equals_its_twin(shape: str, kind: str):
    for seed, blocks, routing in ((0, 12, "shortest_queue"), (1, 60, "prefix"), (2, 10_000, "prefix")):
        where = pool(step_time=EXACT, transfer="whole", prefix_block_tokens=8, prefix_cache_gb=gb(blocks, 8), prefix_store=kind,
                     routing=routing, **({"replicas": 2, "batch": 16} | SHAPES[shape]))
        rows = world(seed)
        hashes = families(seed, rows, 8)
        outcome = play(rows, where, "sjf", prefix_hashes=hashes)
        twins = naive_serving.replay(
            rows, where.replicas, where.blocks, 16, where.batch, where.chunk, exact, KEYS["sjf"], False, where.decode_replicas,
            LOAD if where.preemption == "swap" else None, where.move_s()[1], by_key=where.chunk_order == "key", hashes=hashes, load_s=LOAD,
            stores=(blocks, 8, kind == "shared"), by_prefix=routing == "prefix")
        view = outcome.state.shown
        got = [(q.start, q.first_token, q.finish, q.preemptions, q.replica, q.loaded) for q in view.requests]
        want = [(q.start, q.times[0], q.times[-1], q.preemptions, q.replica, q.loaded) for q in twins]
        np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=f"seed {seed}")
        assert view.requests.loaded.sum() > 100
        slow = play(rows, dataclasses.replace(where, skip_ahead=False), "sjf", prefix_hashes=hashes)
        assert requests_table(slow).equals(requests_table(outcome))
        assert slow.state.shown.stores.tobytes() == view.stores.tobytes()
        for s in range(len(view.stores)):
            now = set(held(outcome, s))
            for q in view.requests:
                inside = [int(block) in now for block in view.prefix[q.prefix:q.prefix + q.prefix_n]]
                assert inside == sorted(inside, reverse=True)  # a store has all that a block continues


def test_without_hashes_nothing_changes():
    rows = world(7)
    keys: dict = {"replicas": 2, "kv_blocks": 60, "batch": 6, "chunk": 64}
    hashes = families(7, rows, 8)
    off, blind = play(rows, pool(**keys), prefix_hashes=hashes), play(rows, pool(**keys))
    on = play(rows, pool(**keys, prefix_block_tokens=8, prefix_cache_gb=gb(40, 8)))
    assert requests_table(off).equals(requests_table(blind))
    assert requests_table(on).drop_columns("cached_tokens").equals(requests_table(blind))
    assert "cached_tokens" not in requests_table(off).column_names and set(requests_table(on)["cached_tokens"].to_pylist()) == {0}
    assert off.state.shown.requests.tobytes() == blind.state.shown.requests.tobytes() == on.state.shown.requests.tobytes()
    assert "prefix_hit_share" not in served(requests_table(off)) | serving_summary(off, serving_utilization(off))
    by_prefix, by_tokens = (play(rows, pool(**keys, routing=rule), prefix_hashes=hashes) for rule in ("prefix", "fewest_tokens"))
    assert requests_table(by_prefix).equals(requests_table(by_tokens))


def spared(table: pa.Table, tokens: int) -> int:
    """Prompt tokens that an unbounded store spares when each prompt is complete before the next begins."""
    seen: set[int] = set()
    total = 0
    for prompt, hashes in zip(table["prompt_tokens"].to_pylist(), table["prefix_hashes"].to_pylist(), strict=True):
        whole = (hashes or [])[: prompt // tokens]
        run = next((i for i, block in enumerate(whole) if block not in seen), len(whole))
        total += min(run * tokens, prompt - 1)
        seen.update(whole)
    return total


def one_by_one(tokens: int, **keys):
    return pool(replicas=1, batch=1, prefix_block_tokens=tokens, prefix_cache_gb=1e6, chunk=8192, **keys)


def test_an_unbounded_store_spares_what_sets_of_blocks_say():
    rows = [(a, p, 1) for a, p, _ in world(3, n=300, longest=2000)]
    table = trace(rows, prefix_hashes=families(3, rows, 8))
    outcome = replay(table, one_by_one(8), load_policy("fcfs"))
    assert outcome.state.shown.requests.loaded.sum() == spared(table, 8) > 1000
    smaller = replay(table, pool(replicas=3, prefix_block_tokens=8, prefix_cache_gb=gb(300, 8)), load_policy("fcfs"))
    assert 0 < smaller.state.shown.requests.loaded.sum() < spared(table, 8)


def test_the_real_mooncake_trace_is_reused_as_its_hashes_say(shared_traces: Path, tmp_path: Path):
    """The first 500 requests one by one, with an unbounded store; then on four replicas with stores of 200 GB, which spare less."""
    path = tmp_path / "mooncake.parquet"
    assert traces_app.main(["import", "mooncake", str(shared_traces / "mooncake-fast25/conversation_trace.jsonl"), "-o", str(path)]) == 0
    table = read_trace(path).slice(0, 500)
    at = table.column_names.index("output_tokens")
    table = table.set_column(at, "output_tokens", pa.array(np.ones(table.num_rows, np.int32)))
    kv = {"kv_blocks": 20_000}
    outcome = replay(table, one_by_one(512, **kv), load_policy("fcfs"))
    prompts = sum(table["prompt_tokens"].to_pylist())
    found = outcome.state.shown.requests.loaded.sum()
    assert found == spared(table, 512) and found / prompts == pytest.approx(prefix_reuse(table), abs=0.05)
    small = replay(table, pool(replicas=4, prefix_cache_gb=200, routing="prefix", chunk=8192, **kv), load_policy("fcfs"))
    assert 0.1 * prompts < small.state.shown.requests.loaded.sum() < found


@pytest.mark.parametrize("keys, message", [
    ({"prefill": "whole", "chunk": 1}, "needs pool.prefill=chunked and one model"),
    ({"models": [facts("model", name) for name in ("llama3_8b", "qwen_3b")]}, "needs pool.prefill=chunked and one model"),
    ({"prefix_cache_gb": 0.01}, "holds no block of 512 tokens; one takes 0.0671 GB"),
    ({"prefix_store": "host"}, "pool.prefix_store=host: must be one of replica, shared"),
    ({"prefix_cache_gb": -1.0}, "pool.prefix_cache_gb"), ({"prefix_block_tokens": 0}, "pool.prefix_block_tokens=0: must be at least 1")])
def test_pools_that_cannot_reuse_are_refused(keys: dict, message: str):
    with pytest.raises(BadInput, match=message):
        pool(**{"prefix_cache_gb": 10.0, **keys})


@pytest.mark.parametrize("blocks", [1, 4])
def test_hashes_of_other_blocks_are_refused(blocks: int):
    """1,100 tokens are two blocks of 512 and a partial third."""
    with pytest.raises(BadInput, match=f"requests, row 1: {blocks} prefix_hashes for a prompt of 1100 tokens, but pool.prefix_block"):
        play([(0, 1100, 1)] * 2, pool(prefix_cache_gb=1.0), prefix_hashes=[[1, 2, 3], list(range(blocks))])
    play([(0, 1100, 1)] * 2, pool(prefix_cache_gb=1.0), prefix_hashes=[[1, 2], []])


def test_gangs_and_streams_reuse_nothing(tmp_path: Path, capsys: pytest.CaptureFixture):
    with pytest.raises(BadInput, match="policy long_fifo places requests on several replicas"):
        play([(0, 10, 1)], pool(prefix_cache_gb=1.0), "long_fifo")
    write_table(trace(world(3, n=30)), tmp_path / "t.parquet")
    words = ["workload=requests", f"workload.path={tmp_path / 't.parquet'}", f"out={tmp_path / 'out'}", "progress=false", "policy=fcfs",
             "pool.prefix_cache_gb=1"]
    assert main([*words, "workload.stream=true"]) == 2
    assert "pool.prefix_cache_gb=1: prefixes are reused where the whole trace is loaded" in capsys.readouterr().err
    assert main([*words, "workload.stream=false"]) == 0
