"""Fits: what they find in traces of known law, what is drawn from them, the fits that are shipped, and the spot workload."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from scipy.stats import kstest

from harness import workload
from harness.compare import compare, over_draws
from harness.describe import autocorrelation, burstiness, counts_per
from harness.errors import BadInput
from harness.schema import JOBS, REQUESTS, names
from harness.tables import checked, fill_defaults, read_trace, validate, write_table
from harness.traces_app import main
from harness.workload import arrivals
from harness.workload.fitted import SHARES, arrival_times, at_share
from harness.workload.fitting import fit
from workload_helpers import CONF, DAY, HOUR, SD, column, servers

SHIPPED = ("openb_fitted", "philly_fitted", "azure_fitted")


def drawn(classes: list[dict[str, Any]], seed: int = 0, **more: Any) -> pa.Table:
    return workload.load("fitted", {"classes": classes, **more}, servers(1), seed)


def job_class(**more: Any) -> dict[str, Any]:
    constant = {"from_gpus": 0, "quantiles": [10.0] * len(SHARES)}
    return {"name": "a", "per_hour": 60.0, "sizes": [[1.0, 1, 1, 1000, 4, 1024]], "durations": [constant]} | more


# Draws from known laws


def test_a_class_without_factors_is_a_poisson_process():
    """60 an hour for 100 days: 144,000 arrivals, sd 380; exponential gaps, uniform over the hours, counts with dispersion 1."""
    times = column(drawn([job_class()], days=100.0), "submit_time")
    assert abs(len(times) - 144_000) < SD * 380
    assert kstest(np.diff(times)[:20_000] / 60.0, "expon").pvalue > 1e-4
    found = burstiness(times)
    assert found["gap_cv"] == pytest.approx(1.0, abs=0.02) and found["dispersion"] == pytest.approx(1.0, abs=SD * np.sqrt(2 / 2_400))


def test_hours_and_weekdays_follow_their_factors_from_the_hour_given():
    """Time 0 is Friday 18:00. Only Saturdays at 5 o'clock have arrivals, 60 x 24 x 7 an hour: 11 hours after time 0."""
    hour, weekday = [0.0] * 24, [0.0] * 7
    hour[5], weekday[5] = 24.0, 7.0
    times = column(drawn([job_class(hour=hour, weekday=weekday)], start_hour=4 * 24 + 18.0, days=7.0), "submit_time")
    assert times.min() >= 11 * HOUR and times.max() < 12 * HOUR and abs(len(times) - 10_080) < SD * 101


def test_day_and_bin_factors_have_their_moments():
    """Log-normal AR(1) of mean 1: sd sqrt(exp(s^2) - 1), lag-1 autocorrelation (exp(rho s^2) - 1) / (exp(s^2) - 1). 40,000 draws."""
    factors = arrivals.lognormal_ar1(np.random.default_rng(0), 0.5, 0.6, 40_000)
    assert factors.mean() == pytest.approx(1.0, abs=0.03)
    assert factors.std() == pytest.approx(np.sqrt(np.exp(0.25) - 1), rel=0.06)
    assert autocorrelation(factors, 1) == pytest.approx((np.exp(0.15) - 1) / (np.exp(0.25) - 1), abs=0.03)
    gammas = arrivals.gamma_factors(np.random.default_rng(0), 0.4, 40_000)
    assert gammas.mean() == pytest.approx(1, abs=0.01) and gammas.std() == pytest.approx(0.4, abs=0.01)


def test_batches_keep_the_rate_and_have_their_sizes():
    """Mean 4: the counts of long bins have dispersion 2 x 4 - 1 = 7 (compound Poisson with geometric sizes); 2,400 hours."""
    times = column(drawn([job_class(batch=[4.0, 0.5])], days=100.0), "submit_time")
    assert abs(len(times) - 144_000) < SD * 380 * np.sqrt(7)
    assert burstiness(times)["dispersion"] == pytest.approx(7.0, rel=0.15)
    gaps = np.diff(times)
    assert (gaps < 3).mean() == pytest.approx(0.75 + 0.25 * (1 - np.exp(-3 * 15 / HOUR)), abs=0.02)


def test_silences_are_of_all_classes_at_once_and_as_often_and_long_as_said():
    """One in 5 days of 10 h on average, over 400 days: 80 of them, and (one in twelve of the time) 1 - exp(-1/12) = 8 % without arrivals.
    Two classes of 60 an hour: by chance no gap is above 20 minutes."""
    sections = [job_class(), {**job_class(), "name": "d"}]
    params = workload.parameters("fitted", {"classes": sections, "days": 400.0})
    times = arrival_times(replace(params, silent=[0.2, 36_000.0]), 0)
    gaps = np.diff(times)
    long = gaps[gaps > 1_200]
    assert abs(len(long) - 80) < SD * np.sqrt(80) and abs(long.mean() - 36_000) < SD * 36_000 / np.sqrt(80)
    assert long.sum() / (400 * DAY) == pytest.approx(1 - np.exp(-1 / 12), rel=0.35)
    with pytest.raises(BadInput, match="workload.silent=.1.0.: must be 2 numbers"):
        drawn(sections, silent=[1.0])
    assert burstiness(times)["gap_cv"] > 10 > 1.1 > burstiness(arrival_times(params, 0))["gap_cv"]


def test_a_fit_has_silences_where_the_process_falls_short():
    """Poisson, 60 an hour for 60 days, and two silences of 12 h and 36 h; without them none are fitted."""
    times = np.sort(np.random.default_rng(3).random(86_400) * 60 * DAY)
    quiet = ((times > 10 * DAY) & (times < 10.5 * DAY)) | ((times > 40 * DAY) & (times < 41.5 * DAY))

    def fitted(at: np.ndarray) -> dict:
        rows = len(at)
        return fit(checked(pa.table({"job_id": [f"j{i}" for i in range(rows)], "submit_time": at, "duration": np.ones(rows),
                                     "gpus": np.ones(rows, np.int16)}), JOBS, "t"), "t")

    found, plain = fitted(times[~quiet]), fitted(times)
    assert plain["silent"] == [0, 0]
    assert found["silent"] == pytest.approx([2 / 60, DAY], rel=0.01)
    assert found["classes"][0]["per_hour"] == pytest.approx(60, rel=0.01)
    assert found["classes"][0].get("day", [0, 0])[0] < 0.02 and found["classes"][0].get("bin", [0, 0])[0] < 0.03


def test_a_short_trace_is_fitted_by_minutes_and_seconds():
    """Two hours at 7,200 an hour: minutes with sigma .4 and rho .7 and 5 s bins with .5 and .5 come back, on average over 8 draws."""
    section = {"name": "chat", "per_hour": 7200.0, "prompt": [5.0] * len(SHARES), "output": [5.0] * len(SHARES)}
    params = {"bin_s": 5.0, "period_s": 60.0, "kind": "requests", "days": 2 / 24}
    slow, fast = [], []
    for seed in range(8):
        classes = [{**section, "day": [0.4, 0.7], "bin": [0.5, 0.5]}]
        found = fit(workload.load("fitted", {**params, "classes": classes}, servers(1), seed), "t")
        assert (found["bin_s"], found["period_s"]) == (5.0, 60.0)
        slow.append(found["classes"][0].get("day", [0.0, 0.0]))
        fast.append(found["classes"][0]["bin"])
    assert np.mean(slow, axis=0) == pytest.approx([0.4, 0.7], abs=0.15)
    assert np.mean(fast, axis=0) == pytest.approx([0.5, 0.5], abs=0.15)


def test_what_classes_have_in_common_is_a_factor_of_all_of_them():
    """Two classes of 7,200 an hour over 2 hours, whose minutes share sigma .4 and rho .7, one with 5 s bins of its own: on average over 8
    draws the shared factor comes back, and no class has it once more. Without it there is next to none."""
    section = {"name": "chat", "per_hour": 7200.0, "prompt": [5.0] * len(SHARES), "output": [5.0] * len(SHARES)}
    params = {"bin_s": 5.0, "period_s": 60.0, "kind": "requests", "days": 2 / 24, "classes": [section, {**section, "name": "code",
                                                                                                     "bin": [0.5, 0.5]}]}
    shared, alone, own = [], [], []
    for seed in range(8):
        found = fit(workload.load("fitted", {**params, "shared": [0.4, 0.7]}, servers(1), seed), "t")
        shared.append(found["shared"])
        own += [c.get("day", [0.0, 0.0])[0] for c in found["classes"]]
        alone.append(fit(workload.load("fitted", params, servers(1), seed), "t")["shared"][0])
    assert np.mean(shared, axis=0) == pytest.approx([0.4, 0.7], abs=0.15)
    assert np.mean(own) < 0.15 and np.mean(alone) < 0.05
    with pytest.raises(BadInput, match="workload.shared=.1.0.: must be 2 numbers"):
        drawn([job_class()], shared=[1.0])


def test_durations_depend_on_the_bucket_and_tenants_on_their_shares():
    ten, hundred = ({"from_gpus": start, "quantiles": [value] * len(SHARES)} for start, value in ((0, 10.0), (8, 100.0)))
    table = drawn([job_class(sizes=[[0.75, 1, 1, 500, 4, 0], [0.25, 2, 8, 1000, 8, 0]], durations=[ten, hundred],
                             tenants={"x": 0.9, "y": 0.1}, set={"priority": 3, "kind": "online"})], days=20.0)
    assert validate(table, JOBS, "t") == [] and set(column(table, "priority")) == {3}
    gpus = column(table, "instances") * column(table, "gpus")
    assert set(column(table, "duration")[gpus == 1]) == {10.0} and set(column(table, "duration")[gpus == 16]) == {100.0}
    assert abs((gpus == 16).mean() - 0.25) < SD * np.sqrt(0.25 * 0.75 / table.num_rows)
    assert abs((column(table, "tenant") == "y").mean() - 0.1) < SD * np.sqrt(0.09 / table.num_rows)


def test_quantiles_are_met_at_their_shares_and_log_linear_between():
    quantiles = [float(1 + i) for i in range(len(SHARES))]
    assert at_share(quantiles, np.array(SHARES)).tolist() == pytest.approx(quantiles)
    assert at_share(quantiles, np.array([0.975])) == pytest.approx(np.sqrt(quantiles[SHARES.index(0.97)] * quantiles[SHARES.index(0.98)]))


def test_requests_have_their_lengths_and_rank_correlation():
    uniform = np.interp(SHARES, [0, 1], [10, 1000]).tolist()
    table = drawn([{"name": "chat", "per_hour": 3600.0, "prompt": uniform, "output": uniform, "rank_correlation": -0.5}], days=0.25,
                  kind="requests")
    assert table.column_names == names(REQUESTS) and validate(table, REQUESTS, "t") == [] and set(column(table, "service")) == {"chat"}
    found = compare(table, table)["rank_correlation"]["a"]
    assert found == pytest.approx(-0.5, abs=SD / np.sqrt(table.num_rows))
    assert table["prompt_tokens"].to_numpy().min() >= 10 and abs(np.median(table["prompt_tokens"].to_numpy()) - 505) < 20


def test_a_longer_trace_begins_with_the_shorter_one_and_loads_scale():
    section = job_class(hour=[1.5, 0.5] * 12, day=[0.5, 0.5], bin=[0.5, 0.5], batch=[2.0, 1.0], tenants={"x": 0.5, "y": 0.5})
    short, long = drawn([section], days=3.0), drawn([section], days=6.0)
    head = long.filter(pc.less(long["submit_time"], 2.9 * DAY))
    assert head.equals(short.filter(pc.less(short["submit_time"], 2.9 * DAY)))
    assert drawn([job_class()], days=50.0, load_scale=2.0).num_rows == pytest.approx(144_000, abs=SD * 380)


def test_rules_map_classes():
    table = drawn([job_class()], map=[{"where": {"gpus": 1}, "set": {"priority": 7}}])
    assert set(column(table, "priority")) == {7}


# Fits of known laws


def test_a_fit_finds_the_parameters_it_was_drawn_from():
    """A month of months: 280 days of hourly counts near 60. Sampling errors: rate 1 / sqrt(400,000) beside those of the factors."""
    hour = (1.0 + 0.5 * np.sin(np.arange(24) / 24 * 2 * np.pi)).tolist()
    section = job_class(hour=hour, day=[0.3, 0.5], bin=[0.4, 0.6], sizes=[[0.7, 1, 1, 1000, 4, 0], [0.3, 4, 8, 1000, 8, 0]],
                        tenants={"x": 0.8, "y": 0.2}, set={"kind": "online", "priority": 5})
    trace = drawn([section], seed=3, days=280.0)
    found = fit(trace, "t", 0.0)
    (mine,) = found["classes"]
    assert found["kind"] == "jobs" and found["bin_s"] == 3600 and found["days"] == pytest.approx(280, abs=0.1)
    assert mine["per_hour"] == pytest.approx(60, rel=0.1)  # the mean of 280 days with sd 0.3 and rho 0.5 varies by 3 %
    assert np.abs(np.array(mine["hour"]) - hour).max() < 0.15
    assert mine["day"] == pytest.approx([0.3, 0.5], abs=0.15) and mine["bin"] == pytest.approx([0.4, 0.6], abs=0.06)
    assert "batch" not in mine and mine["set"] == {"kind": "online", "priority": 5}
    assert [entry[1:] for entry in mine["sizes"]] == [[1, 1, 1000, 4, 0], [4, 8, 1000, 8, 0]]
    assert mine["sizes"][0][0] == pytest.approx(0.7, abs=0.01) and mine["tenants"]["x"] == pytest.approx(0.8, abs=0.01)
    assert workload.parameters("fitted", found).kind == "jobs"


def test_a_fit_of_poisson_arrivals_finds_no_burstiness_and_one_of_batches_finds_them():
    (calm,) = fit(drawn([job_class()], days=60.0), "t")["classes"]
    assert calm.get("day", [0, 0])[0] < 0.05 and calm.get("bin", [0, 0])[0] < 0.06 and "batch" not in calm
    (bursts,) = fit(drawn([job_class(batch=[3.0, 0.2])], days=60.0), "t")["classes"]
    assert bursts["batch"] == pytest.approx([3.0, 0.2], rel=0.1)


def test_classes_are_told_apart_and_rare_sizes_go_to_the_nearest():
    rng = np.random.default_rng(0)
    cpus = np.concatenate([np.repeat(np.arange(1.0, 41.0), 5), [1000.0]])  # 41 sizes: the rarest becomes that of 40 cores
    rows = len(cpus)
    table = fill_defaults(pa.table({
        "job_id": [str(i) for i in range(rows)], "submit_time": np.sort(rng.random(rows) * 3 * DAY), "duration": rng.random(rows) + 1,
        "gpus": pa.array([1] * rows, pa.int16()), "cpus": cpus, "kind": ["online" if i % 3 else "batch" for i in range(rows)],
    }), JOBS)
    (whole,) = fit(table, "t", by=["priority"])["classes"]
    assert len(whole["sizes"]) == 40 and whole["sizes"][0] == [pytest.approx(6 / rows, rel=1e-4), 1, 1, 1000, 40, 0]
    assert [c["name"] for c in fit(table, "t")["classes"]] == ["online", "batch"]
    with pytest.raises(BadInput, match="--by colour: the trace has no such column"):
        fit(table, "t", by=["colour"])


def test_what_cannot_be_fitted_is_said():
    one = drawn([job_class()], days=1.0).slice(0, 1)
    with pytest.raises(BadInput, match="has no span"):
        fit(one, "t")


# Comparison


def test_a_comparison_by_hand():
    """Gaps 1, 1, 2 s against 2, 2, 4 s: half of nothing below 2 differs by 2/3. Durations {1, 2, 3, 4} against {3, 4, 5, 6}: 1/2."""
    def trace(times: list[float], durations: list[float], tenants: list[str]) -> pa.Table:
        return fill_defaults(pa.table({"job_id": list("abcd"), "submit_time": times, "duration": durations,
                                       "gpus": pa.array([1] * 4, pa.int16()), "tenant": tenants}), JOBS)
    found = compare(trace([0, 1, 2, 4], [1, 2, 3, 4], ["x"] * 4), trace([0, 2, 4, 8], [3, 4, 5, 6], ["x", "y", "y", "y"]))
    assert found["gap_s"] == {"a": pytest.approx(4 / 3), "b": pytest.approx(8 / 3), "distance": pytest.approx(2 / 3)}
    assert found["duration_s"] == {"a": 2.5, "b": 4.5, "distance": 0.5}
    assert found["tenant_shares"] == {"a": 1.0, "b": 0.75, "distance": 0.75}
    assert found["per_hour"] == {"a": 3600.0, "b": 1800.0}
    several = over_draws([found, found, {**found, "rows": {"a": 4, "b": 10}}])
    assert several["rows"] == {"a": 4, "b": 4.0, "low": 4, "high": 10} and several["duration_s"]["distance"] == 0.5


def test_burstiness_by_hand():
    """Minutes with 2, 0, 2, 0, ... arrivals: mean 1, variance 1, lag-1 autocorrelation near -1."""
    times = np.repeat(np.arange(0, 100, 2) * 60.0, 2)
    assert counts_per(times, 60.0).tolist() == [2, 0] * 49
    found = burstiness(times)
    assert (found["count_bin_s"], found["count_cv"], found["dispersion"]) == (60.0, 1.0, 1.0)
    assert found["autocorrelation_1"] == pytest.approx(-97 / 98) and found["autocorrelation_24"] == pytest.approx(74 / 98)


# The command


def test_fit_writes_a_workload_that_generate_draws_from(capsys, tmp_path: Path):
    write_table(drawn([job_class(tenants={"6214e9": 0.6, "0e4a51": 0.4})], days=20.0), tmp_path / "t.parquet")
    words = ["fit", str(tmp_path / "t.parquet"), "-o", str(tmp_path / "f.yaml"), "--draws", "3", "--days", "2", "--about", "a test"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "duration_s" in shown and "drawn / trace" in shown and shown.endswith("1 classes\n")
    text = (tmp_path / "f.yaml").read_text()
    assert "facts, not rows" in text and "'6214e9'" in text  # Hydra would read 6214e9 as a number
    section = yaml.safe_load(text)
    assert section["generator"] == "fitted" and section["label"] == "synthetic" and section["about"] == "a test" and section["days"] == 2.0
    for seed in ("1", "2"):
        assert main(["generate", str(tmp_path / "f.yaml"), "days=3", "--seed", seed, "-o", str(tmp_path / f"{seed}.parquet")]) == 0
    one, two = (read_trace(tmp_path / f"{seed}.parquet") for seed in (1, 2))
    assert not one.equals(two) and one["submit_time"][-1].as_py() > 2.9 * DAY
    assert main(["compare", str(tmp_path / "t.parquet"), str(tmp_path / "1.parquet"), "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{"):])["gpus_per_job"]["distance"] == 0


@pytest.mark.parametrize("words, message", [
    (["fit", "{t}", "--start", "1e9", "-o", "{out}"], "no row is left"),
    (["fit", "{t}", "--by", "colour", "-o", "{out}"], "--by colour: the trace has no such column"),
    (["fit", "{t}", "--draws", "0", "-o", "{out}"], "--draws 0: must be at least 1"),
    (["compare", "{t}", "{r}"], "two traces of jobs, or two of requests"),
    (["generate", "nowhere", "-o", "{out}"], "unknown generator 'nowhere', must be one of azure_day, azure_fitted"),
    (["generate", "nowhere.yaml", "-o", "{out}"], "nowhere.yaml: cannot be read"),
    (["generate", "{cluster}", "-o", "{out}"], "its key generator must be one of"),
])
def test_bad_fits_are_one_line(words: list[str], message: str, capsys, tmp_path: Path):
    write_table(drawn([job_class()], days=1.0), tmp_path / "t.parquet")
    constant = [5.0] * len(SHARES)
    write_table(drawn([{"name": "c", "per_hour": 99, "prompt": constant, "output": constant}], kind="requests"), tmp_path / "r.parquet")
    places = {name: tmp_path / f"{name}.parquet" for name in ("t", "r")}
    places |= {"out": tmp_path / "out", "cluster": CONF.parent / "cluster/flat.yaml"}
    assert main([word.format(**places) for word in words]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and not (tmp_path / "out").exists()


# Shipped fits


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_fit_is_a_sound_labelled_seeded_workload(name: str):
    section = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    params = workload.parameters(section["generator"], section)
    assert params.label == "synthetic" and params.about
    given = {**section, "days": min(params.days, 2.0)}
    table = workload.load("fitted", given, servers(1), 1)
    expected = sum(c["per_hour"] for c in params.classes) * given["days"] * 24
    schema = JOBS if params.kind == "jobs" else REQUESTS
    assert validate(table, schema, name) == [] and 0.2 * expected < table.num_rows < 5 * expected
    assert table.equals(workload.load("fitted", given, servers(1), 1))


@pytest.mark.parametrize("name, form, files, start, end", [
    ("philly_fitted", "philly", ["philly/philly.csv.gz"], 1_555_200.0, 8_640_000.0),
    ("openb_fitted", "alibaba-openb", ["alibaba-openb-v2023/openb_pod_list_default.csv"], 9_504_000.0, np.inf),
    ("azure_fitted", "azure-llm", [f"azure-llm-2023/AzureLLMInferenceTrace_{s}.csv" for s in ("code", "conv")], 0.0, np.inf),
])
def test_a_shipped_fit_is_that_of_the_public_trace(shared_traces: Path, tmp_path: Path, name: str, form: str, files: list[str],
                                                   start: float, end: float):
    """The committed numbers come out of the files again; draws are as close as the head of the YAML says.

    Bounds: medians of 5 draws; the distances are those of 10 draws in that table, rounded up.
    """
    assert main(["import", form, *(str(shared_traces / f) for f in files), "-o", str(tmp_path / "t.parquet")]) == 0
    words = ["fit", str(tmp_path / "t.parquet"), "--start", str(start), "-o", str(tmp_path / "f.yaml"), "--draws", "1"]
    assert main([*words, *(["--end", str(end)] if end < np.inf else [])]) == 0
    shipped, fresh = (yaml.safe_load(path.read_text()) for path in (CONF / f"{name}.yaml", tmp_path / "f.yaml"))
    assert fresh["classes"] == shipped["classes"] and all(fresh[k] == shipped[k] for k in ("bin_s", "period_s", "silent", "start_hour"))
    assert fresh["shared"] == shipped.get("shared", [0, 0])
    whole = read_trace(tmp_path / "t.parquet")
    time = "arrival_time" if form == "azure-llm" else "submit_time"
    trace = whole.filter(pa.array((column(whole, time) >= start) & (column(whole, time) < end)))
    found = over_draws([compare(trace, workload.load("fitted", fresh, servers(1), seed)) for seed in range(5)])
    marks = ("prompt_tokens", "output_tokens") if form == "azure-llm" else ("gpus_per_job", "duration_s", "gpu_s_per_job")
    for mark in marks:
        assert found[mark]["distance"] < 0.05, mark
    assert found["gap_cv"]["b"] > 0.4 * found["gap_cv"]["a"]
    assert 0.75 < found["rows"]["b"] / found["rows"]["a"] < 1.3
    assert 0.5 < found["count_cv"]["b"] / found["count_cv"]["a"] < 1.6
    if form == "azure-llm":  # 58 minutes say little of one draw: of 60 a tenth is below .13 and a tenth above .60
        params = workload.parameters("fitted", fresh)
        drawn_ones = [burstiness(arrival_times(params, seed), 60.0)["autocorrelation_1"] or 0.0 for seed in range(60)]
        # The trace has .52 with minutes from its first arrival; with those from 5, 10, ... 55 s on .38 to .52, .43 on average.
        starts = [trace["arrival_time"].to_numpy()[column(trace, "arrival_time") >= s] - s for s in range(0, 60, 5)]
        of_trace = float(np.mean([autocorrelation(np.bincount((t // 60).astype(int))[:-1], 1) for t in starts]))
        assert of_trace == pytest.approx(0.43, abs=0.01) and np.median(drawn_ones) == pytest.approx(of_trace, abs=0.08)
    else:
        assert found["autocorrelation_1"]["b"] > 0.5 * found["autocorrelation_1"]["a"]


# Spot


def test_the_spot_workload_has_the_published_aggregates():
    """432 x 8 A100, 49 days, means of 4 seeds. Targets (spec, cluster-policies): HP GPUs per job 4.89, spot GPU-s per job 64.6k, spot
    p50 / p90 2.11 / 22.3 ks, multi-worker 9.9 %, hourly CV 0.65, HP p90 20 ks. Margins: 3 % of medians and means of > 30,000 draws,
    10 % for tails and for what the random day factors move."""
    found = []
    for seed in range(4):
        table = workload.load("spot", {}, servers(432), seed)
        assert validate(table, JOBS, "spot") == []
        gpus = column(table, "gpus") * column(table, "instances").astype(float)
        duration, submit = column(table, "duration"), column(table, "submit_time")
        is_spot = table["preemptible"].to_numpy(zero_copy_only=False)
        hourly = np.bincount((submit[submit > 0] // HOUR).astype(int))
        found.append([gpus[~is_spot].mean(), (gpus * duration)[is_spot].mean(), *np.quantile(duration[is_spot], [0.5, 0.9]),
                      (column(table, "instances") > 1).mean(), hourly.std() / hourly.mean(), np.quantile(duration[~is_spot], 0.9)])
        assert submit[is_spot].min() >= 28 * DAY and (submit[~is_spot] == 0).sum() > 100 and submit.max() < 49 * DAY
        assert (gpus <= 3456 / 13).all()
    mean = np.mean(found, axis=0)
    assert mean[[0, 2, 4]] == pytest.approx([4.89, 2_110, 0.099], rel=0.03)
    assert mean[[1, 3, 5, 6]] == pytest.approx([64_600, 22_300, 0.65, 20_000], rel=0.1)


def test_spot_loads_are_met_without_their_random_factors():
    """Loads 0.8 and 0.3 of 3,456 GPUs over 60 days, factors off. Long jobs stand at 0.78 x 0.8 of the GPUs from t = 0 on."""
    calm = {"hp_day": [0.0, 0.0], "spot_day": [0.0, 0.0], "hour_cv": 0.0, "days": 60.0, "history_days": 0.0, "spot_load": 0.3}
    table = workload.load("spot", calm, servers(432), 0)
    gpus = column(table, "gpus") * column(table, "instances").astype(float)
    submit, duration = column(table, "submit_time"), column(table, "duration")
    is_spot = table["preemptible"].to_numpy(zero_copy_only=False)
    ids = np.array(table["job_id"].to_pylist())
    standing = np.char.startswith(ids, "hp-standing")
    assert gpus[standing].sum() == pytest.approx(0.624 * 3_456, abs=128) and (submit[standing] == 0).all()
    assert (gpus * duration)[is_spot].sum() / (3_456 * 60 * DAY) == pytest.approx(0.3, rel=0.05)
    short = ~is_spot & ~np.char.startswith(ids, "hp-long") & ~standing
    assert (gpus * duration)[short].sum() / (3_456 * 60 * DAY) == pytest.approx(0.176, rel=0.05)
    long = ~is_spot & ~short
    held = [(gpus * ((submit <= t) & (submit + duration > t)))[long].sum() / 3_456 for t in (0.0, 30 * DAY, 59 * DAY)]
    assert held == pytest.approx([0.624] * 3, abs=0.15)  # stationary: a hundred or so large gangs come and go


def test_spot_costs_are_those_of_its_specification():
    table = workload.load("spot", {"days": 2.0, "history_days": 0.0}, servers(432), 0)
    spot = table.filter(pc.equal(table["preemptible"], True))
    gpus = column(spot, "gpus") * column(spot, "instances")
    assert set(column(spot, "restart_cost_s")[gpus <= 8]) == {40.0} and set(column(spot, "restart_cost_s")[gpus > 8]) == {60.0}
    assert set(column(spot, "checkpoint_interval_s")) == {3_600.0} and set(column(spot, "priority")) == {0}
    assert len(pc.unique(table["tenant"])) == 20
