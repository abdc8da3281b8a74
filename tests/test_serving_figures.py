"""Figures of serving sweeps: what they say, when they are not drawn, and that everything fits on the page."""

import itertools

import numpy as np
import pandas as pd
import pytest

from harness.figures import goodput_load, prefix_stores, serving_cdf, serving_policies
from harness.figures.settings import NotDrawn
from harness.figures.style import image, looks, settle, styled
from test_figures import visible_texts

POLICIES = ("fcfs", "sjf", "srpt", "pecsched")


def fits(figure) -> bool:
    """Whether every text is on the page and none covers another."""
    settle(figure)
    with styled():
        figure.draw_without_rendering()
        page = figure.bbox.padded(1.0)
        boxes = [t.get_window_extent() for t in visible_texts(figure)]
    inside = all(page.x0 <= b.x0 and b.x1 <= page.x1 and page.y0 <= b.y0 and b.y1 <= page.y1 for b in boxes)
    apart = all(min(a.x1, b.x1) - max(a.x0, b.x0) < 2 or min(a.y1, b.y1) - max(a.y0, b.y0) < 2 for a, b in itertools.combinations(boxes, 2))
    return len(boxes) > 5 and inside and apart


def sweep(metrics, policies=POLICIES, seeds=3, rates=(1.0,)) -> pd.DataFrame:
    """A summary: ``metrics(policy index, rate)`` times 1, 1.1, 1.2 .. over the seeds."""
    rows = [{"cluster": "flat", "workload": "requests", "policy": name, "seed": seed, "workload.rate": rate,
             **{key: value * (1 + 0.1 * seed) for key, value in metrics(p, rate).items()}}
            for p, name in enumerate(policies) for rate in rates for seed in range(seeds)]
    return pd.DataFrame(rows)


def test_the_knee_is_where_attainment_falls_below_nine_tenths():
    """From 1 at load 2 to .8 at 4: .9 at 3. Always above: none; below from the start: none."""
    at = np.array([1.0, 2.0, 4.0])
    assert goodput_load.knee(at, np.array([1.0, 1.0, 0.8])) == pytest.approx(3.0)
    assert np.isnan(goodput_load.knee(at, np.array([1.0, 1.0, 0.9]))) and np.isnan(goodput_load.knee(at, np.array([0.5, 0.4, 0.3])))


def test_goodput_over_load_names_the_best_and_the_worst_knee():
    """One seed: shares fall by .1 a load from 1 at load p + 1, and so cross .9 one load later: at 2 for fcfs, at 5 for pecsched."""
    summary = sweep(lambda p, rate: {"slo_met_share": 1 - 0.1 * max(0.0, rate - p - 1)}, seeds=1, rates=(1, 2.5, 4, 6, 9))
    figure = goodput_load.draw(summary, "requests on a100")
    said = figure.texts[0].get_text().replace("\n", " ")
    assert said == "90 % of requests meet their objectives up to 5 requests per second under pecsched, 2.00 under fcfs"
    assert fits(figure)


def test_goodput_over_load_needs_a_load_that_varies_and_objectives():
    for summary in (sweep(lambda p, rate: {"slo_met_share": 1.0}), sweep(lambda p, rate: {"ttft_s_p99": 1.0}, rates=(1, 2)),
                    sweep(lambda p, rate: {"slo_met_share": np.nan}, rates=(1, 2))):
        with pytest.raises(NotDrawn, match="no load of requests with objectives varies"):
            goodput_load.draw(summary)
    assert goodput_load.message({"fcfs": np.nan, "sjf": 3.0}, "load scale") == "Requests within their objectives over the load"
    assert goodput_load.message({"fcfs": 2.0, "sjf": 3.5}, "load scale") == (
        "90 % of requests meet their objectives up to load scale 3.50 under sjf, 2 under fcfs")


def test_short_and_long_requests_by_policy():
    summary = sweep(lambda p, rate: {"queue_s_p99_short": 100.0 / 10**p, "drain_rps_short": 2.0 + p, "e2e_s_mean_long": 50.0 * (p + 1)},
                    seeds=1)
    figure = serving_policies.draw(summary, "requests on a100")
    assert figure.texts[0].get_text().replace("\n", " ") == (
        "Short requests wait 0.100 s at p99 under pecsched, 100 s under fcfs; 5 against 2 of them complete per second")
    assert fits(figure)
    wait, rate = (figure.axes[i] for i in (0, 1))
    assert wait.get_xscale() == "log" and rate.get_xscale() == "linear"
    assert image(figure, "svg") == image(serving_policies.draw(summary, "requests on a100"), "svg")


def test_a_single_policy_is_compared_with_nothing_and_no_classes_with_nobody():
    one = sweep(lambda p, rate: {"queue_s_p99_short": 2.0, "drain_rps_short": 1.0, "e2e_s_mean_long": 3.0}, ("fcfs",))
    assert serving_policies.draw(one).texts[0].get_text() == "Short requests wait 2.20 s at p99 under fcfs"
    with pytest.raises(NotDrawn, match="no requests are told apart as short and long"):
        serving_policies.draw(sweep(lambda p, rate: {"queue_s_p99_short": 2.0}))


def test_latency_cdfs():
    """1,000 evenly spread times to first token per policy, 1 to 10 s under fcfs and half of that under sjf; sjf's requests of one token
    have no times between tokens."""
    first = np.linspace(1, 10, 1000)
    requests = pd.DataFrame({"policy": ["fcfs"] * 1000 + ["sjf"] * 1000, "ttft_s": [*first, *first / 2],
                             "tbt_p99_s": [*np.full(1000, 0.05), *np.full(1000, np.nan)]})
    figure = serving_cdf.draw(requests, "requests on a100")
    assert figure.texts[0].get_text().replace("\n", " ").replace("\xa0", " ") == (
        "99 % of requests have their first token within 4.96 s under sjf, 9.91 s under fcfs")
    assert fits(figure)
    fcfs = looks(("fcfs", "sjf"))["fcfs"].colour
    x, y = next(line for line in figure.axes[0].lines if line.get_color() == fcfs).get_data()
    assert np.interp(0.5, y, x) == pytest.approx(5.5, rel=0.01) and len(figure.axes[1].lines) == 1
    alone = serving_cdf.message(requests[requests["policy"] == "sjf"])
    assert alone.replace("\xa0", " ") == "99 % of requests have their first token within 4.96 s under sjf"


def test_latency_cdfs_of_nothing_are_not_drawn():
    nothing = pd.DataFrame({"policy": ["fcfs"], "ttft_s": [np.nan], "tbt_p99_s": [np.nan]})
    with pytest.raises(NotDrawn, match="no request made a token"):
        serving_cdf.draw(nothing)
    assert serving_cdf.message(nothing) == "No request made a token"


def stores(sizes=(0.0, 8.0, 64.0), rules=("fewest_tokens", "prefix"), policies=("fcfs",)) -> pd.DataFrame:
    """Times to first token of 4 s without stores, less 1 s a step, and .5 s more off for prefix; hit shares of .2 a step. Without stores
    there is no hit share."""
    rows = [{"cluster": "pool", "workload": "sessions", "pool.prefix_cache_gb": size, "pool.routing": rule, "policy": policy, "seed": seed,
             "ttft_s_mean": 4.0 - i - 0.5 * (i > 0) * (rule == "prefix") + 0.01 * seed, "prefix_hit_share": 0.2 * i if i else None}
            for policy in policies for i, size in enumerate(sizes) for rule in rules for seed in range(3)]
    return pd.DataFrame(rows)


def test_prefix_stores_by_size_and_routing():
    figure = prefix_stores.draw(stores(), "sessions on a100")
    said = figure.texts[0].get_text().replace("\n", " ").replace("\xa0", " ")
    assert said == ("Stores of 64 GB spare 40.0 % of the prompt tokens under routing prefix: "
                    "first tokens come after 1.51 s instead of 4.01 s")
    assert fits(figure)
    left, right = figure.axes
    assert [list(line.get_ydata()) for line in right.lines] == [[0, pytest.approx(20), pytest.approx(40)]] * 2
    assert list(left.lines[0].get_xdata()) == [0, 1, 2] and [t.get_text() for t in left.get_xticklabels()] == ["0", "8", "64"]
    one_rule = prefix_stores.draw(stores(rules=("fewest_tokens",)).drop(columns="pool.routing"))
    assert "under routing one rule" in one_rule.texts[0].get_text().replace("\n", " ")


def test_prefix_stores_need_sizes_and_one_policy():
    for summary in (stores(sizes=(8.0,)), stores(policies=("fcfs", "sjf")), stores().drop(columns="prefix_hit_share"),
                    stores().drop(columns="pool.prefix_cache_gb")):
        with pytest.raises(NotDrawn, match="no size of prefix stores varies under one policy"):
            prefix_stores.draw(summary)
