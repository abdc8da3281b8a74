"""Replicas that come and go, worked out by hand and against the twin. A step costs C0 + C1 x the largest KV cache of the batch."""

import numpy as np
import pyarrow as pa
import pytest

import naive_serving
from harness.errors import BadInput
from harness.metrics.requests import requests_table
from harness.serving.hooks import load_policy
from harness.serving.lifetimes import changes_of
from harness.serving.models import Link, all_reduce_s, load_s
from harness.serving.replay import replay
from harness.serving.state import COME, DRAIN, GO
from serving_worlds import EXACT, pool, trace, world
from test_serving_hand_worked import C0, exact, steps


def stays(*rows) -> pa.Table:
    """Replicas from (slot, ready, drain, stop, level); None: not during the replay."""
    slot, ready, drain, stop, level = zip(*rows, strict=True)
    return pa.table({"replica": pa.array(slot, pa.int32()), "ready_time": pa.array(ready, pa.float64()),
                     "drain_time": pa.array(drain, pa.float64()), "stop_time": pa.array(stop, pa.float64()), "level": pa.array(level)})


def play(rows, where, *replicas, policy="fcfs", **columns):
    return replay(trace(rows, **columns), where, load_policy(policy), replicas=stays(*replicas))


def requests(*args, **keys):
    return play(*args, **keys).state.shown.requests


def test_requests_wait_for_the_first_replica():
    """One replica comes at 2 s. The request of 1 s is held till then; the prompt of 4 tokens takes a step of 4."""
    q = requests([(1.0, 4, 1)], exact(), (0, 2.0, None, None, "numa"))
    assert (q.start[0], q.finish[0]) == (2.0, 2.0 + steps(4))


def test_a_request_is_sent_on_with_its_tokens_when_its_replica_goes():
    """It makes tokens at the ends of steps 4, 5 and is in the middle of the step with 6 when the replica goes: that one is lost. On the
    other, there from then on, prompt and two tokens are prefilled again, 6 tokens, which makes the third; then caches 7."""
    gone = steps(4, 5) + C0 / 2
    outcome = play([(0, 4, 4)], exact(), (0, 0.0, gone, gone, "numa"), (1, gone, None, None, "numa"))
    q = outcome.state.shown.requests
    assert q.finish[0] == gone + steps(6, 7) and (q.preemptions[0], q.replica[0]) == (1, 1)
    gaps = [steps(5), gone - steps(4, 5) + steps(6), steps(7)]
    assert outcome.tbt_mean[0] == pytest.approx(np.mean(gaps), rel=1e-12)


def test_a_step_that_ends_as_its_replica_goes_counts():
    gone = steps(4, 5)
    q = requests([(0, 4, 2)], exact(), (0, 0.0, gone, gone, "numa"))
    assert q.finish[0] == gone and q.preemptions[0] == 0


def test_a_replica_that_drains_finishes_what_it_has():
    """Both come to replica 0. It drains before the second request: that one waits until replica 1 is there."""
    q = requests([(0, 4, 9), (C0, 2, 1)], exact(), (0, 0.0, C0 / 2, 9.0, "numa"), (1, 1.0, None, None, "numa"))
    assert q.finish[0] == steps(4, 5, 6, 7, 8, 9, 10, 11, 12) and q.replica[0] == 0
    assert (q.start[1], q.finish[1], q.replica[1]) == (1.0, 1.0 + steps(2), 1)


def test_what_is_unfinished_may_be_dropped():
    """Three requests on the replica that goes: in decode, in the middle of its prefill, and waiting for a place in the batch of 2."""
    where = exact(unfinished="drop", batch=2, chunk=4)
    outcome = play([(0, 2, 9), (C0, 40, 2), (C0, 2, 1)], where, (0, 0.0, 0.1, 0.1, "numa"), (1, 1.0, None, None, "numa"))
    table = requests_table(outcome)
    assert table["status"].to_pylist() == ["dropped"] * 3
    assert table["reason"].to_pylist() == ["its replica went"] * 3 and table["slo_met"].null_count == 3
    assert outcome.end <= 0.1


def test_two_replicas_one_across_sockets():
    """Hand-worked: two GPUs a replica, PCIe at 32 GB/s inside a socket, 8 GB/s and 2 us a hop across. Llama-3-8B has 32 layers of 4,096
    wide: an all-reduce of a token moves 2 (2 - 1) / 2 x 4,096 x 2 = 8,192 bytes, twice a layer: 524,288 bytes, 16.384 us at 32 GB/s and
    65.536 us at 8 GB/s. Both prefill 100 tokens: the one across takes 100 x 49.152 us + 32 x 2 x 2 hops x 2 us = 5.1712 ms more. Then one
    token each: 49.152 us + 256 us more."""
    where = pool(gpu="rtx4090", tp=2, links={"server": {"gbs": 8.0, "latency_us": 2.0}})
    q = requests([(0, 100, 2), (0, 100, 2)], where, (0, 0.0, None, None, "socket"), (1, 0.0, None, None, "server"))
    assert list(q.replica) == [0, 1]
    assert q.first_token[1] - q.first_token[0] == pytest.approx(5.1712e-3, rel=1e-9)
    assert q.finish[1] - q.finish[0] == pytest.approx(5.1712e-3 + 49.152e-6 + 256e-6, rel=1e-9)


def test_replicas_that_are_always_there_change_nothing():
    """Infinite capacity and equal links: the same bits as the pool alone."""
    rows, where = world(3), pool(replicas=3, kv_blocks=90, batch=12)
    alone = replay(trace(rows), where, load_policy("fcfs"))
    always = play(rows, where, *((r, 0.0, None, None, "numa") for r in range(3)))
    assert requests_table(alone).equals(requests_table(always))
    for field in ("used_s", "ordinal", "used", "context"):
        assert (alone.state.shown.replicas[field] == always.state.shown.replicas[field]).all()


@pytest.mark.parametrize("links", [{}, {"server": {"gbs": 32.0}, "socket": {"gbs": 32.0}}])
def test_links_as_fast_as_the_gpus_own_change_nothing(links):
    rows, where = world(4), pool(gpu="rtx4090", tp=2)
    one = play(rows, where, (0, 0.0, None, None, "numa"), (1, 0.0, None, None, "numa"))
    other = play(rows, pool(gpu="rtx4090", tp=2, links=links), (0, 0.0, None, None, "server"), (1, 0.0, None, None, "socket"))
    assert requests_table(one).equals(requests_table(other))


def lives(seed: int, span: float = 8.0) -> list[tuple]:
    """Stays in three slots that now and then leave nobody."""
    rng = np.random.default_rng([seed, 5])
    rows = []
    for slot in range(3):
        at = 0.0
        while at < span:
            ready = at + rng.integers(0, 64) / 64
            stop = ready + rng.integers(16, 256) / 64
            rows.append((slot, ready, max(ready, stop - rng.integers(0, 32) / 64), stop, "numa"))
            at = stop + rng.integers(0, 64) / 64
    return [*rows, (3, 12.0, None, None, "numa")]


def step_s(chunks, caches):
    return 2.0**-6 + 2.0**-12 * max([done + n for done, n in chunks] + caches)


@pytest.mark.parametrize("unfinished", ["retry", "drop"])
def test_the_engine_equals_its_twin(unfinished: str):
    for seed in range(4):
        where = pool(step_time=EXACT, kv_blocks=60, batch=6, chunk=64, unfinished=unfinished)
        rows, there = world(seed), lives(seed)
        outcome = play(rows, where, *there)
        q = outcome.state.shown.requests
        changes = changes_of(stays(*there))
        events = [(c.time, {GO: "go", DRAIN: "drain", COME: "come"}[c.what], c.replica) for c in changes]
        twins = naive_serving.replay(rows, 4, where.blocks, 16, where.batch, where.chunk, step_s, lambda a, p, o: 0.0,
                                     changes=events, drops=unfinished == "drop")
        got = [(a.start, a.first_token, a.finish, a.preemptions) for a in q]
        want = [(t.start, t.times[0] if t.times else None, t.times[-1] if len(t.times) == t.output else None, t.preemptions) for t in twins]
        np.testing.assert_array_equal(np.array(got, float), np.array(want, float), err_msg=f"seed {seed}")
        assert q.preemptions.sum() > 20
        slow = play(rows, pool(step_time=EXACT, kv_blocks=60, batch=6, chunk=64, unfinished=unfinished, skip_ahead=False), *there)
        assert requests_table(outcome).equals(requests_table(slow))


def test_every_request_is_finished_dropped_or_open():
    rows = [*world(7), (90.0, 4, 4)]
    there = [row for row in lives(7) if row[3] is not None]
    outcome = play(rows, pool(kv_blocks=90, batch=12), *there)
    words = requests_table(outcome)["status"].to_pylist()
    assert words.count("finished") + words.count("waiting") + words.count("running") == len(rows)
    assert words[-1] == "waiting"


@pytest.mark.parametrize(("row", "match"), [
    ((0, 2.0, 1.0, 3.0, "numa"), "row 0: must have ready_time"), ((0, 2.0, 2.0, 2.0, "numa"), "row 0: must have ready_time"),
])
def test_times_out_of_order_are_refused(row, match):
    with pytest.raises(BadInput, match=match):
        changes_of(stays(row))


def test_two_replicas_in_one_slot_are_refused():
    with pytest.raises(BadInput, match="row 1: slot 0 is still taken"):
        changes_of(stays((0, 0.0, 5.0, 5.0, "numa"), (0, 4.0, None, None, "numa")))


@pytest.mark.parametrize(("keys", "policy"), [({"prefill": "whole"}, "fcfs"), ({"decode_replicas": 1}, "fcfs"), ({}, "long_fifo")])
def test_pools_and_policies_whose_replicas_cannot_come_and_go_are_refused(keys, policy):
    with pytest.raises(BadInput, match="come and"):
        play([(0, 4, 1)], pool(**keys), (0, 0.0, None, None, "numa"), policy=policy)


def test_loading_takes_the_slower_of_storage_and_pcie():
    """8.03 billion parameters, 16.06 GB: the fit of an A100 says 1.8 s + 0.13 s/GB; over 100 GB/s of storage PCIe at 32 GB/s is slower,
    two of them are not."""
    where = pool()
    assert load_s(where.model, where.gpu, 1) == pytest.approx(1.8 + 0.13 * 16.06)
    assert load_s(where.model, where.gpu, 1, 100.0) == pytest.approx(1.8 + 16.06 / 32)
    assert load_s(where.model, where.gpu, 4, 50.0) == pytest.approx(1.8 + 16.06 / 50)


def test_the_all_reduce_of_a_published_model():
    """Llama-2-70B on 8 GPUs: 80 layers x 2 x 2 x 7/8 x 8,192 x 2 bytes = 4.5875 MB a token, 15.29 us at 300 GB/s."""
    assert all_reduce_s(pool("llama2_70b", tp=8).model, 8, 300.0) == pytest.approx(15.2917e-6, rel=1e-4)
    assert Link(300.0).latency_us == 0.0
