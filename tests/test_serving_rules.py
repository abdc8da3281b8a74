"""Admission, victims, pauses, faults and sizes of the serving engine, and rules of its policies, worked out by hand.

A step costs C0 + C1 x the largest KV cache of the batch, in binary fractions, so that sums are exact.
"""

from pathlib import Path

import numpy as np
import pytest

from harness.errors import BadInput, InvalidIntention
from harness.jit import JIT
from harness.metrics.requests import requests_table
from harness.serving import queue, run
from harness.serving.build import build_state, smallest_state
from harness.serving.hooks import load_policy
from harness.serving.replay import replay
from serving_worlds import EXACT, facts, play, pool, trace, world

C0, C1 = 2.0**-6, 2.0**-12
WHOLE = {"prefill": "whole", "chunk": 1}


def steps(*largest: int) -> float:
    return sum(C0 + C1 * n for n in largest)


def exact(**keys):
    return pool(step_time=EXACT, **{"replicas": 1, **keys})


def requests(rows, where, *args, **kwargs):
    return play(rows, where, *args, **kwargs).state.shown.requests


def policy(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "mine.py"
    file.write_text("from harness.serving.state import ADMIT, NOW, SKIP, STOP\n\n\n" + text)
    return file


def test_skip_leaves_one_out_and_stop_all_behind_it(tmp_path: Path):
    """The first may not enter before the third has come, at 1 s."""
    for prefill in ({}, WHOLE):
        for verdict, second in (("SKIP", 0.0), ("STOP", 1.0 + (steps(100) if prefill else 0.0))):
            file = policy(tmp_path, f"def admit(view, own, q, r):\n    return {verdict} if q == 0 and view.clock[NOW] < 1.0 else ADMIT\n")
            q = requests([(0, 100, 1), (0, 10, 1), (1.0, 10, 1)], exact(**prefill), file=file)
            assert q.start.tolist()[:2] == [1.0, second]


def test_a_victim_in_prefill_begins_again(tmp_path: Path):
    """One place. The first has prefilled 16 of 20 tokens when the second, of 8, takes its place; afterwards it prefills all 20."""
    file = policy(tmp_path, "def victim(view, own, r, q):\n    return view.prefills[r, 0] if q == 1 and view.replicas.filling[r] else -1\n")
    q = requests([(0, 20, 1), (C0 / 2, 8, 1)], exact(chunk=16, batch=1), file=file)
    assert q.first_token.tolist() == [steps(16, 8, 16, 20), steps(16, 8)] and q.preemptions.tolist() == [1, 0]


PAUSED = "def victim(view, own, r, q):\n    return view.members[r, 0] if q == 1 and view.replicas.batch[r] else -1\n"


def test_a_paused_cache_is_dropped_when_the_batch_grows_into_it(tmp_path: Path):
    """Three blocks of 4 tokens, one place. After its third token the first, with 6 tokens in 2 blocks, is paused for the second, which has
    one block. For its second token that needs another: the paused cache goes. The first prefills 4 + 3 tokens and makes the last two."""
    outcome = play([(0, 4, 5), (steps(4, 5) + C0 / 2, 4, 3)], exact(block=4, kv_blocks=3, batch=1, preemption="pause"),
                   file=policy(tmp_path, PAUSED))
    q = outcome.state.shown.requests
    assert outcome.log.spans.tokens.sum() == 4 + 4 + 7
    assert q.finish.tolist() == [steps(4, 5, 6, 4, 5, 6, 7, 8), steps(4, 5, 6, 4, 5, 6)]


def test_a_paused_cache_is_kept_when_there_is_room(tmp_path: Path):
    """The same with 8 blocks: the first goes on where it was, makes its fourth token with 7 in its cache, and prefills nothing again."""
    outcome = play([(0, 4, 5), (steps(4, 5) + C0 / 2, 4, 3)], exact(block=4, kv_blocks=8, batch=1, preemption="pause"),
                   file=policy(tmp_path, PAUSED))
    q = outcome.state.shown.requests
    assert outcome.log.spans.tokens.sum() == 4 + 4
    assert q.finish.tolist() == [steps(4, 5, 6, 4, 5, 6, 7, 8), steps(4, 5, 6, 4, 5, 6)]
    assert q.preemptions.tolist() == [1, 0]


def test_a_paused_cache_is_dropped_for_one_that_else_never_enters(tmp_path: Path):
    """The second needs 2 of 3 blocks and the paused first holds 2: with nobody in the batch they are freed."""
    file = policy(tmp_path, PAUSED + "\n\ndef key(view, own, q):\n    return -1.0 * q\n")
    q = requests([(0, 4, 5), (steps(4, 5) + C0 / 2, 8, 1)], exact(block=4, kv_blocks=3, batch=1, preemption="pause"), file=file)
    assert q.finish.tolist() == [steps(4, 5, 6, 8, 7, 8), steps(4, 5, 6, 8)]


def test_higher_priority_comes_first():
    """All wait for the one place while the first runs; a missing priority is 0."""
    q = requests([(0, 100, 1), *[(0.01, 10, 1)] * 4], exact(batch=1), "priority", priority=[0, None, 5, -1, 5])
    assert np.argsort(q.start, kind="stable").tolist() == [0, 2, 4, 1, 3]


def test_a_predictor_with_error_misleads_size_based_policies():
    """log(predicted / output) has the standard deviation that the pool states, within 5 % for 4,000; the same for the same seed."""
    table = trace([(0.0, 5, 400)] * 4000)
    state, _, _ = build_state(table, exact(predictor_sigma=0.5), 3)
    error = np.log(state.shown.requests.predicted / 400)
    assert error.std() == pytest.approx(0.5, rel=0.05) and error.mean() == pytest.approx(0.0, abs=0.03)
    again = build_state(table, exact(predictor_sigma=0.5), 3)[0]
    np.testing.assert_array_equal(again.shown.requests.predicted, state.shown.requests.predicted)
    rows = world(2)
    assert (requests(rows, exact(batch=2), "sjf").start != requests(rows, exact(batch=2, predictor_sigma=2.0), "sjf").start).any()


def test_a_model_that_there_is_not_and_too_many_replicas_for_gangs_are_refused():
    where = exact(models=[facts("model", "llama3_8b"), facts("model", "qwen_3b")])
    with pytest.raises(BadInput, match="requests, row 1: service='gpt' is none of pool.models, which are llama3_8b, qwen_3b"):
        play([(0, 1, 1), (1, 1, 1)], where, service=["qwen_3b", "gpt"])
    with pytest.raises(BadInput, match="pool.replicas=63: a policy with gangs takes at most 62"):
        play([(0, 1, 1)], exact(replicas=63), "reservation")


FAULTS = {
    "route names a replica too small for it": "def gang(view, own, q, found):\n    return 0",
    "gang names a replica that there is not": "def gang(view, own, q, found):\n    found[0] = 77\n    return 1",
    "gang names too few replicas for its KV cache": "def gang(view, own, q, found):\n    found[0] = 0\n    return 1",
    "victim is no member of the batch": "def victim(view, own, r, q):\n    return len(view.requests)",
    "victim holds a gang, which is not preempted":
        "def gang(view, own, q, found):\n    found[0] = 0\n    return 1 if q == 0 else 0\n\n\ndef victim(view, own, r, q):\n    return 0",
    "hand names a replica that does not decode": "def hand(view, own, q):\n    return 0",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_invalid_intention_names_policy_request_and_what_is_wrong(fault: str, tmp_path: Path):
    small = "too" in fault  # a request of 12 blocks of 16 tokens where a replica has 8
    keys = {"kv_blocks": 8} if small else {"batch": 1}
    keys |= {"replicas": 3, "decode_replicas": 1, **WHOLE} if fault.startswith("hand") else {"replicas": 2 - ("victim" in fault)}
    rows = [(0, 180, 9)] if small else [(0, 40, 90), (0.1, 10, 3), (0.1, 10, 3), (0.1, 10, 3)]
    with pytest.raises(InvalidIntention, match=f"policy mine, request r[0-3], replica -?[0-9]+, time .*{fault}"):
        play(rows, exact(**keys), file=policy(tmp_path, FAULTS[fault] + "\n"))


def test_a_long_output_outgrows_the_log_and_ends_when_its_steps_say():
    """10,000 tokens: caches 4, 5, ..., 10,003. Their 9,999 gaps run from C0 + 5 C1 to C0 + 10,003 C1, evenly."""
    outcome = play([(0, 4, 10_000)], exact(kv_blocks=2000))
    n, last = 10_000, 10_003
    assert outcome.state.shown.requests.finish[0] == n * C0 + C1 * (4 + last) * n / 2
    assert outcome.tbt_p99[0] == pytest.approx(C0 + C1 * (5 + 0.99 * (last - 5)), rel=1e-12)


def test_a_replay_in_slices_gives_the_same_tables(monkeypatch: pytest.MonkeyPatch):
    where, told = exact(replicas=2, kv_blocks=90, batch=12), []
    whole = requests_table(play(world(4), where, "srpt"))
    monkeypatch.setattr(run, "SLICE", 7)
    sliced = replay(trace(world(4)), where, load_policy("srpt"), progress=lambda instants, arrived: told.append((instants, arrived)))
    assert requests_table(sliced).equals(whole)
    assert len(told) > 5 and told == sorted(told) and told[-1] == (sliced.events, 60)


@pytest.mark.skipif(JIT, reason="kernels have no entry from Python")
def test_the_calendar_gives_events_in_order_and_forgets_stale_ones_when_full():
    """68 places; events of the one request at other times than it is due are stale."""
    view, calendar = smallest_state()[0].shown, queue.new_calendar(1, 1)
    times = np.random.default_rng(1).permutation(68).astype(float)
    for t in times:
        queue.schedule(view, calendar, t, queue.MOVE if t < 20 else queue.OPERATION, 0)
    view.requests.due[0] = 50.0
    queue.schedule(view, calendar, 19.5, queue.MOVE, 0)
    assert calendar.mark[queue.EVENTS] == 22
    seen = []
    while calendar.mark[queue.EVENTS]:
        seen.append((float(calendar.event.time[0]), queue.pop_event(calendar)[0]))
    assert seen == [*((float(t), queue.MOVE) for t in range(20)), (19.5, queue.MOVE), (50.0, queue.OPERATION)]


def test_flowprefill_fills_an_operation_with_small_prompts():
    """alone_tokens 100: behind the first operation 30 is the head, 60 joins (90), 40 would make 130 and is left out, 10 joins (100). The
    operation takes as long as its largest prompt; 40 comes after it."""
    rows = [(0, 200, 1), *[(0.01, n, 1) for n in (30, 60, 40, 10)]]
    where = exact(prefill="whole", chunk=2048)
    q = requests(rows, where, "flowprefill", params={"alone_tokens": 100.0, "preemption": "no"}, ttft_slo_s=[90.0, 91, 92, 93, 94])
    first = steps(200, 60)
    assert q.first_token.tolist() == [steps(200), first, first, first + steps(40), first]


@pytest.mark.parametrize("margin, together", [(0.1, False), (0.01, True)])
def test_flowprefill_leaves_a_head_with_little_time_alone(margin: float, together: bool):
    """An operation of 38,000 tokens ends at 9.29 s. Of the head's 10 s .71 are left: less than a tenth, more than a hundredth."""
    q = requests([(0, 38_000, 1), (0.01, 30, 1), (0.01, 20, 1)], exact(prefill="whole", chunk=50_000), "flowprefill",
                 params={"margin": margin, "preemption": "no"}, ttft_slo_s=[20.0, 10.0, 11.0])
    assert (q.first_token[1] == q.first_token[2]) == together
    assert q.first_token[1] == pytest.approx(steps(38_000, 30), rel=1e-12)


def test_flowprefill_stops_filling_when_the_head_would_come_late():
    """Both would end C0 + 600 C1 = .162 s on, when .15 s of the head's objective are left: it runs alone, C0 + 100 C1."""
    arrive = 0.05
    slo = steps(400) - arrive + 0.15
    q = requests([(0, 400, 1), (arrive, 100, 1), (arrive, 600, 1)], exact(prefill="whole", chunk=2048), "flowprefill",
                 params={"preemption": "no"}, ttft_slo_s=[90.0, slo, 91.0])
    assert q.first_token[1:].tolist() == pytest.approx([steps(400, 100), steps(400, 100, 600)], rel=1e-12)


def test_sand_before_pebbles_before_rocks():
    """Prefills of 1.3 s (rock), .26 s (pebble) and .02 s (sand) that have waited equally long; the operation before them takes 2 s."""
    q = requests([(0, 8128, 1), *[(0.01, n, 1) for n in (5300, 1000, 20)]], exact(**WHOLE), "rps")
    assert np.argsort(q.start).tolist() == [0, 3, 2, 1]


@pytest.mark.parametrize("delta, cost", [(2, 10), (1, 11)])
def test_isjl_at_the_tail_gives_a_free_place_to_a_job_that_ends_by_the_horizon(delta: int, cost: int):
    """Lengths 4, 2, 1 in two places, a step costs its largest cache. {4, 2}: 1 + 2 + 3 + 4 = 10. After two steps the 2 is done, and the 1
    ends by step 4: with delta 2 it runs beside the 4; with delta 1 it is a batch of its own, 1."""
    where = pool(step_time={"name": "max", "kind": "max_kv", "c1_s": 1.0}, replicas=1, batch=2, chunk=8)
    outcome = play([(0, 1, 4), (0, 1, 2), (0, 1, 1)], where, "isjl", params={"delta": float(delta), "insertion": "tail"})
    assert outcome.end == cost


@pytest.mark.parametrize("lookahead, where", [(32.0, [0, 1, 1, 0]), (1.0, [0, 1, 0, 1])])
def test_pecsched_holds_back_what_is_too_much_for_every_replica(lookahead: float, where: list[int]):
    """theta1 100, 90 tokens on each replica: 50 more are held. 5 more pass it, or with a look-ahead of 1 wait behind it; when the first two
    are done the held ones go to the least loaded replica."""
    params = {"theta1": 100.0, "theta2": 100.0, "lookahead": lookahead, "decode_share": 0.0}
    rows = [(0, 90, 1), (0, 90, 1), (0.001, 50, 1), (0.002, 5, 1)]
    q = requests(rows, exact(replicas=2, boundaries=0, **WHOLE), "pecsched", params=params)
    assert q.replica.tolist() == where and q.start[2:].tolist() == [steps(90)] * 2


def test_pecsched_spreads_short_requests_over_the_replicas_of_a_gang():
    """The gang of 2,000 tokens holds both replicas. 90 tokens preempt it on replica 0; 50 more would be over theta1 = 100 there and run on
    replica 1; the next 50 fill that up. The long one ends later by the time in which short work was anywhere."""
    params = {"theta1": 100.0, "long_tokens": 1000.0, "tokens_per_gpu": 1000.0, "decode_share": 0.0}
    where = exact(replicas=2, boundaries=0, **WHOLE)
    rows = [(0, 2000, 1), (0.02, 90, 1), (0.021, 50, 1), (0.022, 50, 1)]
    q = requests(rows, where, "pecsched", params=params)
    alone = requests(rows[:1], where, "pecsched", params=params)
    assert q.gang[0] == alone.gang[0] == 2 and q.replica.tolist() == [0, 0, 1, 1]
    assert q.first_token[1] == pytest.approx(0.02 + steps(90), rel=1e-12)
    assert q.first_token[2:] == pytest.approx([0.021 + steps(50), 0.021 + steps(50, 50)], rel=1e-12)
    assert q.first_token[0] == pytest.approx(alone.first_token[0] + 0.001 + steps(50, 50), rel=1e-12)


@pytest.mark.parametrize("params, started", [({"rule": "drain"}, 15.0), ({"rule": "patience", "patience_s": 2.0}, 2.2),
                                             ({"rule": "penalty", "patience_penalties": 1.5}, 0.2 + 1.5 * (1.8 + 0.13 * 16.06))])
def test_when_another_model_is_loaded(params: dict, started: float):
    """The 3B model has work for 15 s; a request for the 8B comes at .2 s. It is loaded when that work is done, after 2 s, or after 1.5
    times the 3.9 s that loading takes; the policy looks at it every .2 s."""
    names = ["qwen_3b", "llama3_8b"]
    where = pool(step_time={"name": "second", "kind": "max_kv", "c0_s": 2.0**-6}, gpu="a6000", replicas=1, batch=2,
                 models=[facts("model", name) for name in names])
    q = requests([(0, 10, 960), (0.2, 10, 1)], where, "switching", params=params, service=names)
    assert started <= q.start[1] <= started + 0.25
    assert q.preemptions[0] == (params["rule"] != "drain")


def test_models_that_stay_loaded_take_turns():
    """With offloading both are there: turns of .2 s, no model is loaded, and nothing is computed twice."""
    names = ["qwen_3b", "llama3_8b"]
    where = pool(gpu="a6000", replicas=1, batch=2, models=[facts("model", name) for name in names], offload=0.9)
    outcome = play([(0, 10, 40), (0, 10, 40)], where, "switching", service=names)
    q = outcome.state.shown.requests
    assert abs(q.finish[0] - q.finish[1]) < 0.5 * q.finish.max() and q.preemptions.min() >= 1
    assert (q.decoded == 40).all()


def test_a_switch_takes_prompts_off_their_replica(tmp_path: Path):
    """16 of the 20 tokens of the first are prefilled when the other model comes; they are prefilled again after it, all of them."""
    names = ["qwen_3b", "llama3_8b"]
    where = exact(chunk=16, batch=8, gpu="a6000", models=[facts("model", name) for name in names], offload=1.0)
    file = policy(tmp_path, "def switch(view, own, r):\n    q = view.queues.head[r]\n"
                            "    return 1 if view.requests.status[1] < 7 and view.clock[NOW] > 0 else 0\n")
    q = requests([(0, 20, 1), (C0 / 2, 8, 1)], where, file=file, service=names)
    assert q.first_token.tolist() == [steps(16, 8, 16, 20), steps(16, 8)]
