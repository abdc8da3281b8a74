"""What holds in every replay of requests, closed forms with one place, and what the engine does with intentions that it must not follow."""

from pathlib import Path

import numpy as np
import pytest

from harness.errors import BadInput, InvalidIntention
from harness.metrics.requests import requests_table
from harness.metrics.serving import serving_summary, serving_utilization
from harness.serving.hooks import load_policy
from harness.serving.log import SPANS, STEP
from harness.serving.state import FINISHED
from serving_worlds import EXACT, play, pool, world

SHAPES = {
    "chunked": {}, "by key": {"kv_blocks": 70, "batch": 8, "chunk": 32, "chunk_order": "key"},
    "tight": {"kv_blocks": 70, "batch": 8}, "swap": {"kv_blocks": 70, "batch": 8, "preemption": "swap"},
    "pools": {"replicas": 3, "decode_replicas": 1, "kv_blocks": 90}, "whole": {"prefill": "whole", "chunk": 1},
}


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "srpt", "isjl", "vtc"])
@pytest.mark.parametrize("shape", SHAPES)
def test_tokens_are_conserved_and_kv_stays_within_its_budget(shape: str, policy: str):
    if policy == "isjl" and shape in ("pools", "whole"):
        pytest.skip("ISJL forms batches of one pool that decodes")
    where = pool(**({"replicas": 2} | SHAPES[shape]))
    rows = world(5, n=70, span=4.0)
    outcome = play(rows, where, policy, tenant=[f"t{i % 3}" for i in range(len(rows))])
    view, spans = outcome.state.shown, outcome.log.spans[: outcome.log.size[SPANS]]
    assert (view.requests.status == FINISHED).all() and (view.requests.decoded == outcome.state.work.output).all()
    step = spans.kind == STEP
    redone = int(view.requests.preemptions.sum()) if where.preemption == "recompute" else 0
    made = int(spans.batch[step].sum()) + len(rows)
    total = int(outcome.state.work.output.sum())
    assert total - redone <= made <= total  # a prefill after a preemption makes a token too
    if shape != "whole":
        assert int(spans.tokens.sum()) >= sum(p for _, p, _ in rows)
        if not redone:
            assert int(spans.tokens.sum()) == sum(p for _, p, _ in rows) and made == total
    assert (spans.used <= view.replicas.blocks[spans.replica]).all() and (spans.batch <= where.batch).all()
    assert (view.replicas.used == 0).all() and (view.phase == 0).all() and (view.replicas.context == 0).all()
    for r in range(where.replicas):
        mine = spans[spans.replica == r]
        assert (mine.begin[1:] >= mine.end[:-1]).all()


def test_fcfs_starves_nobody():
    """On each replica requests start in the order of arrival, whatever memory does."""
    requests = play(world(8, n=90, span=3.0), pool(replicas=2, kv_blocks=70, batch=8), "fcfs").state.shown.requests
    for r in range(2):
        mine = requests[requests.replica == r]
        assert (np.diff(mine.start) >= 0).all()


def test_utilization_and_summary_agree_with_the_log():
    rows = world(2)
    outcome = play(rows, pool(replicas=2))
    table = serving_utilization(outcome, interval_s=0.7)
    width = table["t_end"].to_numpy() - table["t_start"].to_numpy()
    summary = serving_summary(outcome, table)
    spans = outcome.log.spans[: outcome.log.size[SPANS]]
    assert summary["busy_mean"] == pytest.approx((spans.end - spans.begin).sum() / (2 * outcome.end))
    assert summary["batch_mean"] == pytest.approx(((spans.end - spans.begin) * spans.batch).sum() / (2 * outcome.end))
    assert float(width @ table["prefill_tokens"].to_numpy()) == pytest.approx(sum(p for _, p, _ in rows))
    assert float(width @ table["output_tokens"].to_numpy()) == pytest.approx(sum(o - 1 for _, _, o in rows))
    requests = outcome.state.shown.requests
    assert float(width @ table["present"].to_numpy()) == pytest.approx((requests.finish - requests.arrival).sum())  # Little's law
    assert float(width @ table["kv_used"].to_numpy()) / outcome.end == pytest.approx(summary["kv_used_mean"])


def test_rows_keep_the_order_of_the_trace():
    rows = world(1, n=20)[::-1]
    table = requests_table(play(rows, pool()))
    assert table["request_id"].to_pylist() == [f"r{i}" for i in range(20)]
    assert (table["first_token_time"].to_numpy() > table["arrival_time"].to_numpy()).all()


def test_a_horizon_cuts_the_replay():
    outcome = play(world(3), pool(replicas=1, batch=4), horizon_s=2.0)
    table = requests_table(outcome)
    assert outcome.end == 2.0 and {"finished", "waiting", "running", "not_submitted"} >= set(table["status"].to_pylist())
    finish = table["finish_time"].to_numpy(zero_copy_only=False)
    assert (finish[~np.isnan(finish)] < 2.0).all()


@pytest.mark.parametrize("mix, rho", [((64, 64), 0.5), ((64, 64), 0.8), ((16, 400), 0.6)])
def test_one_place_is_a_queue_with_one_server(mix: tuple[int, int], rho: float):
    """One place and one output token: M/D/1 for equal prompts, M/G/1 else. Pollaczek and Khinchine: W = lambda E[S^2] / (2 (1 - rho)).

    The tolerance is 4 standard errors of the mean over 20 batches of consecutive requests.
    """
    rng = np.random.default_rng(7)
    n = 8000
    prompt = rng.choice(mix, n)
    service = 2.0**-6 + 2.0**-12 * np.array(mix)
    rate = rho / service.mean()
    arrival = np.cumsum(rng.exponential(1 / rate, n))
    where = pool(step_time=EXACT, replicas=1, batch=1, chunk=1024)
    requests = play(list(zip(arrival.tolist(), prompt.tolist(), [1] * n, strict=True)), where).state.shown.requests
    wait = (requests.start - requests.arrival).reshape(20, -1).mean(axis=1)
    expected = rate * (service**2).mean() / (2 * (1 - rho))
    assert abs(wait.mean() - expected) < 4 * wait.std(ddof=1) / np.sqrt(20)


INVALID = {
    "route names a replica that there is not": "def route(view, own, q):\n    return 99",
    "route names a replica that only decodes": "def route(view, own, q):\n    return 2",
    "hand names a replica that does not decode": "def hand(view, own, q):\n    return 0",
    "victim is no member": "def victim(view, own, r, q):\n    return q",
    "gang names a replica twice": "def gang(view, own, q, found):\n    found[0] = found[1] = 0\n    return 2",
    "gang names more replicas": "def gang(view, own, q, found):\n    return 9",
    "switch names a model": "def switch(view, own, r):\n    return 3",
}


@pytest.mark.parametrize("fault", INVALID)
def test_an_invalid_intention_stops_the_replay(fault: str, tmp_path: Path):
    file = tmp_path / "wrong.py"
    file.write_text(INVALID[fault])
    where = pool(replicas=3, decode_replicas=1, batch=1)
    with pytest.raises(InvalidIntention, match=f"policy wrong, request (r[0-9]+|none), replica -?[0-9]+, time .*{fault}"):
        play(world(4, n=20, span=0.2), where, file=file)


def test_a_policy_cannot_see_output_lengths_or_write_to_the_view(tmp_path: Path):
    for name, text in (("peeks", "def key(view, own, q):\n    return view.work.output[q]"),
                       ("writes", "def key(view, own, q):\n    view.clock[0] = 1.0\n    return 0.0")):
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        with pytest.raises((BadInput, AttributeError, ValueError)):
            play(world(4, n=5), pool(), file=file)


def test_unknown_policies_and_parameters_are_refused():
    with pytest.raises(BadInput, match="there is no such policy"):
        load_policy("godel")
    with pytest.raises(BadInput, match="has no such parameter"):
        load_policy("isjl", params={"nope": 1})
