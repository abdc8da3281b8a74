"""paper_mix and diurnal against what theory says of their draws."""

from collections import Counter
from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from harness import workload
from harness.schema import JOBS
from harness.tables import validate
from harness.workload import diurnal, paper_mix
from workload_helpers import DAY, HOUR, REPOSITORY, SD, column, gpu_seconds, of_kind, servers, shipped


@pytest.fixture(scope="module")
def mix() -> pa.Table:
    return workload.load("paper_mix", {}, servers(100), 7)


@pytest.fixture(scope="module")
def week() -> pa.Table:
    return workload.load("diurnal", {}, servers(64), 7)


# paper_mix


def test_the_rates_of_the_paper_mix_are_those_of_its_specification():
    # 800 GPUs, 1 h: 1.3 x 800 batch arrivals/h, 0.8 x 800 departures/h, a twentieth of these online; 160 GPUs / 2 = 80 held,
    # 80 / 32 per h = 2.5 h.
    rates = paper_mix.rates(paper_mix.Params(), 800)
    assert np.allclose(np.array(rates[:3]) * HOUR, [1040, 640, 32]) and rates.online_duration_s == pytest.approx(2.5 * HOUR)


def test_the_rates_with_mixed_cards_conserve_gpus():
    # Mean cards 1.5 (batch) and 3 (online): (0.7 x 90) / 1.5 / 0.5 h = 84 departures/h, 21 online/h, 27 GPUs / 3 / 21 = 3/7 h.
    params = paper_mix.Params(batch_cards=[1, 2], batch_card_weights=[1, 1], online_cards=[2, 4], online_card_weights=[1, 1],
                              batch_duration_s=1800, online_share=0.3, batch_departures_per_online=4)
    rates = paper_mix.rates(params, 90)
    assert np.allclose(np.array(rates) * [HOUR, HOUR, HOUR, 1 / HOUR], [156, 84, 21, 3 / 7])


def test_the_two_kinds_of_instance_are_those_of_the_sample_server(mix: pa.Table):
    batch, online = of_kind(mix, "batch"), of_kind(mix, "online")
    for table, cards, cores, priority, preemptible in ((batch, 1, 7.0, 60, True), (online, 2, 14.0, 80, False)):
        assert pc.unique(table["gpus"]).to_pylist() == [cards]
        assert pc.unique(table["cpus"]).to_pylist() == [cores]
        assert pc.unique(table["priority"]).to_pylist() == [priority]
        assert pc.unique(table["preemptible"]).to_pylist() == [preemptible]
        assert pc.unique(table["affinity"]).to_pylist() == ["best_effort"]
        assert pc.unique(table["checkpoint_interval_s"]).to_pylist() == [None]
    assert online.num_rows == 5000
    assert batch.num_rows + online.num_rows == mix.num_rows


def test_online_arrivals_are_poisson_after_the_warmup_and_end_the_trace(mix: pa.Table):
    submit = column(of_kind(mix, "online"), "submit_time")
    gaps = np.diff(submit, prepend=2 * HOUR)
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(HOUR / 32, rel=SD / sqrt(5000))
    assert (gaps > 3 * HOUR / 32).mean() == pytest.approx(exp(-3), abs=SD * sqrt(exp(-3) * (1 - exp(-3)) / 5000))
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < SD / sqrt(5000)
    assert mix["submit_time"][-1].as_py() == submit[-1]


def test_online_durations_hold_their_share(mix: pa.Table):
    online = of_kind(mix, "online")
    duration = column(online, "duration")
    assert duration.mean() == pytest.approx(2.5 * HOUR, rel=SD / sqrt(5000))
    assert (duration > 7.5 * HOUR).mean() == pytest.approx(exp(-3), abs=SD * sqrt(exp(-3) * (1 - exp(-3)) / 5000))
    span = float(column(online, "submit_time")[-1]) - 2 * HOUR
    # A compound Poisson sum of exponentials over a random span: squared relative sd = 1/N (gaps) + 1/N (durations).
    assert gpu_seconds(online) / span / 800 == pytest.approx(0.2, rel=SD * sqrt(2 / 5000))


def test_batch_keeps_a_backlog(mix: pa.Table):
    batch = of_kind(mix, "batch")
    submit, duration = column(batch, "submit_time"), column(batch, "duration")
    standing = submit == 0
    assert standing.sum() == 880
    later = int((~standing).sum())
    expected = 1040 / HOUR * float(mix["submit_time"][-1].as_py())
    assert abs(later - expected) < SD * sqrt(expected)
    for part in (duration[standing], duration[~standing]):
        assert part.mean() == pytest.approx(HOUR, rel=SD / sqrt(len(part)))
        assert (part > 3 * HOUR).mean() == pytest.approx(exp(-3), abs=SD * sqrt(exp(-3) * (1 - exp(-3)) / len(part)))
    quarters = np.histogram(submit[~standing], bins=4, range=(0, float(submit[-1])))[0]
    assert np.abs(quarters - later / 4).max() < SD * sqrt(later * 3 / 16)


@pytest.mark.parametrize("backlog, cards, jobs", [(0.0, [1], 0), (1.0, [1], 800), (1.0, [2], 400), (1.1, [4], 220),
                                                  (0.5, [3], 134)])
def test_the_standing_backlog_just_reaches_its_gpus(backlog: float, cards: list[int], jobs: int):
    table = workload.load("paper_mix", {"batch_backlog": backlog, "batch_cards": cards, "preemptors": 5}, servers(100), 0)
    assert int((column(table, "submit_time") == 0).sum()) == jobs


def test_a_longer_paper_mix_begins_with_the_shorter_one():
    short, long = (workload.load("paper_mix", {"preemptors": n}, servers(10), 2) for n in (50, 120))
    assert short.equals(long.slice(0, short.num_rows))


def test_affinity_shares_change_nothing_else():
    base = workload.load("paper_mix", {"preemptors": 4000}, servers(50), 2)
    table = workload.load("paper_mix", {"preemptors": 4000, "guaranteed_share": 0.5, "none_share": 0.2}, servers(50), 2)
    counts = Counter(of_kind(table, "online")["affinity"].to_pylist())
    for word, share in (("guaranteed", 0.5), ("none", 0.2), ("best_effort", 0.3)):
        assert counts[word] == pytest.approx(4000 * share, abs=SD * sqrt(4000 * share * (1 - share)))
    assert table.drop_columns("affinity").equals(base.drop_columns("affinity"))


def test_card_mixes_follow_their_weights_on_both_sides():
    given = {"preemptors": 4000, "batch_cards": [1, 2, 4], "batch_card_weights": [2, 1, 1], "online_cards": [2, 4],
             "online_card_weights": [0.9, 0.1]}
    table = workload.load("paper_mix", given, servers(50), 2)
    for kind, shares in (("batch", {1: 0.5, 2: 0.25, 4: 0.25}), ("online", {2: 0.9, 4: 0.1})):
        part = of_kind(table, kind)
        counts = Counter(part["gpus"].to_pylist())
        assert set(counts) == set(shares)
        for cards, share in shares.items():
            assert counts[cards] == pytest.approx(part.num_rows * share, abs=SD * sqrt(part.num_rows * share * (1 - share)))
        assert np.array_equal(column(part, "cpus"), 7.0 * column(part, "gpus"))


def test_without_preemptors_only_the_warmup_is_left():
    table = workload.load("paper_mix", {"preemptors": 0, "warmup_s": 600.0}, servers(10), 0)
    assert pc.unique(table["kind"]).to_pylist() == ["batch"]
    assert column(table, "submit_time").max() < 600


# diurnal


def wanted_over_time(services: pa.Table, params: diurnal.Params) -> tuple[np.ndarray, np.ndarray]:
    """(time, GPUs wanted by all services) at every scaling step."""
    time = np.arange(0.0, params.days * DAY, params.scale_interval_s)
    total = np.zeros(len(time))
    for service in pc.unique(services["service"]).to_pylist():
        rows = services.filter(pc.equal(services["service"], service))
        at = np.searchsorted(column(rows, "time"), time, side="right") - 1
        total += np.where(at >= 0, (column(rows, "replicas") * column(rows, "gpus"))[np.maximum(at, 0)], 0)
    return time, total


def test_the_shape_of_a_day_has_mean_0_and_its_trough_at_minus_1():
    hours = np.arange(0, 24, 0.25)
    shape = diurnal.day_shape(hours)
    assert shape.mean() == pytest.approx(0, abs=1e-12)
    assert shape.min() == pytest.approx(-1) and hours[shape.argmin()] == 12
    assert shape.max() < 0.7 and abs(diurnal.day_shape(np.array([1.0, -1.0]))).min() > 0.55


def test_services_follow_the_day_and_hold_their_share():
    params = diurnal.Params(days=5.0, noise=0.0, phase_spread_h=0.0)
    cluster = servers(64)
    time, wanted = wanted_over_time(diurnal.services(params, cluster, 0), params)
    # Rounding to whole replicas moves each service by at most half a replica: (1 + 1 + 2 + 2 + 4 + 8) / 2 = 9 GPUs.
    expected = 0.35 * 512 * (1 + 0.6 * diurnal.day_shape(time / HOUR - 15))
    assert np.abs(wanted - expected).max() <= 9
    assert wanted.mean() == pytest.approx(0.35 * 512, abs=9)
    assert abs(time[wanted.argmin()] / HOUR % 24 - 3) < 2


def test_phases_differ_and_noise_has_its_standard_deviation():
    params = diurnal.Params(days=20.0, amplitude=0.0, noise=0.1, weekend_factor=1.0, service_cards=[1])
    _, wanted = wanted_over_time(diurnal.services(params, servers(500), 1), params)
    relative = wanted / (0.35 * 4000) - 1
    # Of 240 decay times about 240 / 2 samples are independent; the sd of a sample sd is sd / sqrt(2 n).
    assert relative.std() == pytest.approx(0.1, rel=SD / sqrt(2 * 120))
    assert abs(relative.mean()) < SD * 0.1 / sqrt(120)
    assert np.corrcoef(relative[12:], relative[:-12])[0, 1] == pytest.approx(exp(-1), abs=SD / sqrt(120))
    peaks = set()
    params = replace(params, days=1.0, amplitude=0.6, noise=0.0, service_cards=[1, 1, 1])
    services = diurnal.services(params, servers(500), 1)
    for service in pc.unique(services["service"]).to_pylist():
        rows = services.filter(pc.equal(services["service"], service))
        trough = column(rows, "time")[column(rows, "replicas").argmin()] / HOUR
        assert abs(trough - 3) <= 3.5
        peaks.add(trough)
    assert len(peaks) == 3


def test_weekends_want_less():
    params = diurnal.Params(noise=0.0, start_weekday=4)
    time, wanted = wanted_over_time(diurnal.services(params, servers(64), 0), params)
    days = wanted.reshape(7, -1).mean(axis=1)
    assert np.allclose(days[[0, 3, 4, 5, 6]], 0.35 * 512, atol=9)
    assert np.allclose(days[1:3], 0.7 * 0.35 * 512, atol=9)


def test_without_day_and_noise_services_are_constant():
    table = workload.load("diurnal", {"amplitude": 0.0, "noise": 0.0, "days": 2.0}, servers(64), 0)
    online = of_kind(table, "online")
    # 0.35 x 512 / 6 = 29.9 GPUs for each service: 30, 30, 15, 15, 7 and 4 replicas.
    assert Counter(online["tenant"].to_pylist()).most_common() == [
        ("service-0", 30), ("service-1", 30), ("service-2", 15), ("service-3", 15), ("service-4", 7), ("service-5", 4)]
    assert set(column(online, "submit_time")) == {0.0} and set(column(online, "end_time")) == {2 * DAY}


def test_replicas_end_with_their_scale_in_or_with_the_trace(week: pa.Table):
    online = of_kind(week, "online")
    submit, end = column(online, "submit_time"), column(online, "end_time")
    assert np.array_equal(end - submit, column(online, "duration"))
    assert (end > submit).all() and end.max() == 7 * DAY
    assert pc.unique(online["preemptible"]).to_pylist() == [False]
    assert week["end_time"].null_count == week.num_rows - online.num_rows


def test_batch_and_training_ask_for_what_the_load_leaves(week: pa.Table):
    capacity = 512 * 7 * DAY
    # Compound Poisson: variance = N E[GPUs^2] E[duration^2], and E[duration^2] = mean^2 exp(sigma^2) with sigma = 1.
    for kind, share, gpus, squares, mean in (("batch", 0.35, 1.3, 0.7 + 0.3 * 4, HOUR),
                                             ("training", 0.25, 8 * 1.6, 64 * (0.6 + 0.3 * 4 + 0.1 * 16), 6 * HOUR)):
        part = of_kind(week, kind)
        expected = share * capacity / (gpus * mean)
        assert part.num_rows == pytest.approx(expected, abs=SD * sqrt(expected))
        assert gpu_seconds(part) == pytest.approx(share * capacity, abs=SD * sqrt(expected * squares * mean**2 * exp(1.0)))
        logs = np.log(column(part, "duration"))
        assert logs.mean() == pytest.approx(np.log(mean) - 0.5, abs=SD / sqrt(part.num_rows))
        assert logs.std() == pytest.approx(1.0, rel=SD / sqrt(2 * part.num_rows))
    training = of_kind(week, "training")
    assert set(column(training, "gpus")) == {8} and set(column(training, "instances")) == {1, 2, 4}
    assert pc.unique(training["checkpoint_interval_s"]).to_pylist() == [1800.0]


def test_all_card_counts_occur(week: pa.Table):
    assert set(week["gpus"].to_pylist()) == {1, 2, 4, 8}


@pytest.mark.parametrize("name", sorted(f.stem for f in (REPOSITORY / "conf/cluster").glob("*.yaml")))
def test_diurnal_fits_every_cluster_shipped(name: str):
    cluster = shipped(name)
    table = workload.load("diurnal", {"days": 0.5}, cluster, 0)
    assert validate(table, JOBS, name) == []
    for gpus, cpus, instances in {*zip(*(table[c].to_pylist() for c in ("gpus", "cpus", "instances")), strict=True)}:
        fits = [shape.gpus // gpus if shape.cores >= cpus else 0 for shape in cluster.shapes]
        assert sum(fits[s] for s in cluster.shape_of) >= instances


def test_diurnal_on_one_small_server_stays_within_it():
    table = workload.load("diurnal", {"days": 2.0}, servers(1, gpus=2, cores=4), 0)
    assert column(table, "gpus").max() <= 2 and column(table, "cpus").max() <= 4 and column(table, "instances").max() == 1


def test_diurnal_without_online_or_training_is_batch_alone():
    table = workload.load("diurnal", {"online_share": 0.0, "training_share": 0.0, "days": 1.0}, servers(4), 0)
    assert pc.unique(table["kind"]).to_pylist() == ["batch"]
