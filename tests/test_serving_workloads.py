"""The generators of requests against what their parameters say, and the cuts of recorded requests."""

from pathlib import Path

import numpy as np
import pytest

from harness.errors import BadInput
from harness.schema import JOBS
from harness.tables import checked, write_table
from harness.workload import load
from serving_worlds import trace


def made(name: str, seed: int = 0, **params):
    return load(name, params, None, seed)  # type: ignore[arg-type]


def test_multi_slo_draws_its_classes():
    """20,000 requests in expectation. Shares within 4 standard deviations; medians within 4 standard errors of the median of a log-normal,
    sigma sqrt(pi / 2n)."""
    table = made("multi_slo", duration_s=10_000, rate=2.0, slo_scale=0.5, longest=10**6)
    n, tenant, prompt = table.num_rows, np.array(table["tenant"].to_pylist()), table["prompt_tokens"].to_numpy()
    assert abs(n - 20_000) < 4 * np.sqrt(20_000) and (np.diff(table["arrival_time"].to_numpy()) >= 0).all()
    for name, share, median, sigma, slo in (("text", 0.6, 500, 0.6, 0.25), ("image", 0.2, 1200, 0.3, 0.5), ("search", 0.15, 6000, 0.5, 4.0),
                                            ("file", 0.05, 20_000, 0.4, 6.0)):
        mine = tenant == name
        assert abs(mine.mean() - share) < 4 * np.sqrt(share * (1 - share) / n)
        assert abs(np.log(np.median(prompt[mine]) / median)) < 4 * sigma * np.sqrt(np.pi / 2 / mine.sum())
        assert np.log(prompt[mine]).std() == pytest.approx(sigma, rel=0.1)
        assert set(table["ttft_slo_s"].to_numpy()[mine]) == {0.5 * slo}
    assert set(table["output_tokens"].to_pylist()) == {1}


def test_multi_slo_cuts_long_prompts():
    assert max(made("multi_slo", longest=900)["prompt_tokens"].to_pylist()) == 900


@pytest.mark.parametrize("params, message", [
    ({"classes": []}, "shares must be >= 0"), ({"classes": [{"name": "a", "share": 1}]}, "every class needs name, share, median, sigma"),
    ({"classes": [{"name": "a", "share": 1, "median": "x", "sigma": 1, "slo_s": 1}]}, "every class needs"),
    ({"classes": [{"name": "a", "share": -1, "median": 5, "sigma": 1, "slo_s": 1}]}, "shares must be >= 0"),
    ({"classes": [{"name": "a", "share": 1, "median": 5, "sigma": 1, "slo_s": 0}]}, "objectives above 0"),
    ({"rate": 0}, "workload.rate=0"), ({"longest": 0}, "workload.longest=0"), ({"rate": 1e-9}, "no request arrives")])
def test_bad_parameters_of_multi_slo_are_refused(params: dict, message: str):
    with pytest.raises(BadInput, match=message):
        made("multi_slo", **params)


def test_two_models_are_asked_one_after_the_other():
    """Each is asked in a quarter of each period of 100 s, the second half a period later, at four times the mean rate: 5,000 requests each.
    Tokens are geometric with means 500 and 100 (standard error of the mean: mean / sqrt(n))."""
    table = made("two_models", duration_s=50_000, rate=0.1, active_share=0.25, period_s=100)
    at, service = table["arrival_time"].to_numpy(), np.array(table["service"].to_pylist())
    for i, name in enumerate(("qwen_3b", "llama3_8b")):
        mine = at[service == name]
        assert abs(len(mine) - 5000) < 4 * np.sqrt(5000)
        phase = np.mod(mine / 100 - i / 2, 1.0)
        assert phase.max() < 0.25 and np.histogram(phase, 5, (0, 0.25))[0].min() > 800
    for column, mean in (("prompt_tokens", 500), ("output_tokens", 100)):
        assert table[column].to_numpy().mean() == pytest.approx(mean, abs=4 * mean / np.sqrt(table.num_rows))
    assert (np.diff(at) >= 0).all() and table["tenant"].equals(table["service"])


@pytest.mark.parametrize("params, message", [({"active_share": 1.5}, "workload.active_share=1.5"), ({"period_s": 0}, "workload.period_s=0"),
                                             ({"prompt": 0}, "workload.prompt=0"), ({"duration_s": 1e-6}, "no request arrives")])
def test_bad_parameters_of_two_models_are_refused(params: dict, message: str):
    with pytest.raises(BadInput, match=message):
        made("two_models", **params)


def test_lmsys_like_has_its_mean_spread_and_cut():
    """Log-normal of mean 215 and sigma 1 before the cut: median 215 / sqrt(e) = 130; P(> 2,048) = P(z > ln(2048 / 130.4)) = P(z > 2.754) =
    .0029."""
    output = made("lmsys_like", requests=40_000)["output_tokens"].to_numpy()
    assert np.median(output) == pytest.approx(130.4, rel=0.03) and np.log(output).std() == pytest.approx(1.0, rel=0.03)
    assert (output == 2048).mean() == pytest.approx(0.0029, abs=0.001) and output.max() == 2048
    table = made("lmsys_like", requests=40_000, cap=10**9, prompt=7)
    assert table["output_tokens"].to_numpy().mean() == pytest.approx(215, rel=0.03)
    assert set(table["prompt_tokens"].to_pylist()) == {7} and set(table["arrival_time"].to_pylist()) == {0.0}
    assert set(made("lmsys_like", sigma=0.0)["output_tokens"].to_pylist()) == {215}


@pytest.mark.parametrize("name", ["multi_slo", "two_models", "lmsys_like", "requests", "azure_like"])
def test_the_seed_decides(name: str):
    assert made(name, 5).equals(made(name, 5)) and not made(name, 5).equals(made(name, 6))


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "r.parquet"
    write_table(trace([(float(t), 10 * t + 1, t + 1) for t in range(10)]), path)
    return str(path)


def kept(**params) -> list[float]:
    return made("requests", **params)["arrival_time"].to_pylist()


def test_requests_are_cut_by_time_tokens_and_number(file: str):
    assert kept(path=file, start_s=2.0, end_s=5.0) == [2.0, 3.0, 4.0]
    assert kept(path=file, max_tokens=35) == [0.0, 1.0, 2.0, 3.0]  # 10 t + 1 + t + 1 <= 35
    assert kept(path=file, start_s=2.0, first=2) == [2.0, 3.0]
    assert kept(path=file, offsets_s=[7.5], first=1) == [7.5]


def test_load_is_scaled_by_thinning_and_superposition(file: str):
    """Half of 10 are kept, with their times; at 3 every request comes three times, copies up to 0.25 s later or wrapped around."""
    half = kept(path=file, load_scale=0.5)
    assert 0 < len(half) < 10 and set(half) <= set(map(float, range(10)))
    assert len(kept(path=file, load_scale=3.0, jitter_s=0.25)) == 30


def test_long_drop_decides_what_becomes_of_the_rest_of_the_longest(file: str):
    """At or above the 0.5 quantile are five prompts. One in ten becomes long: with seed 1 a known few; the others go, or stay short."""
    dropped = made("requests", 1, path=file, long_share=0.1, long_quantile=0.5)
    stays = made("requests", 1, path=file, long_share=0.1, long_quantile=0.5, long_drop=False)
    long = [t == "long" for t in stays["tenant"].to_pylist()]
    assert stays.num_rows == 10 and 0 < sum(long) < 5 and dropped.num_rows == 5 + sum(long)
    assert min(np.array(stays["prompt_tokens"].to_pylist())[long]) >= 100_000


@pytest.mark.parametrize("params, message", [
    ({"start_s": 99.0}, "no request is left after start_s"), ({"offsets_s": [1.0, 2.0]}, "must give one number for each of the 1 files"),
    ({"long_quantile": 1.5}, "workload.long_quantile=1.5"), ({"long_share": -0.1}, "workload.long_share"),
    ({"load_scale": 0.0}, "workload.load_scale=0"), ({"long_min": 9, "long_max": 5}, "workload.long_max=5"),
    ({"repeats": 0}, "workload.repeats=0")])
def test_bad_parameters_of_requests_are_refused(file: str, params: dict, message: str):
    with pytest.raises(BadInput, match=message):
        made("requests", path=file, **params)


def test_a_file_of_jobs_is_no_file_of_requests(tmp_path: Path):
    import pyarrow as pa

    path = tmp_path / "jobs.parquet"
    write_table(checked(pa.table({"job_id": ["a"], "submit_time": [0.0], "duration": [1.0], "gpus": [1]}), JOBS, "test"), path)
    with pytest.raises(BadInput, match="holds no requests; workload=trace takes jobs and services"):
        made("requests", path=str(path))


def test_turns_of_a_session_repeat_what_was_said():
    """Each prompt is longer than the one before and its answer; its whole blocks begin with theirs. Within the system prompt, of two whole
    blocks, all sessions that have it agree; a partial block is nobody else's."""
    table = made("sessions", duration_s=2000.0, rate=0.1, systems=2, system_tokens=1100, sigma=0.7)
    assert (np.diff(table["arrival_time"].to_numpy()) >= 0).all() and table["arrival_time"].to_numpy()[-1] < 2000
    rows = table.to_pylist()
    sessions: dict[int, list[dict]] = {}
    for row in rows:
        sessions.setdefault(row["session"], []).append(row)
        assert len(row["prefix_hashes"]) == -(-row["prompt_tokens"] // 512) and row["prompt_tokens"] + row["output_tokens"] <= 32_000
    whole = [row["prefix_hashes"][: row["prompt_tokens"] // 512] for row in rows]
    for turns in sessions.values():
        for one, after in zip(turns, turns[1:], strict=False):
            n = one["prompt_tokens"] // 512
            assert after["prompt_tokens"] > one["prompt_tokens"] + one["output_tokens"] and after["arrival_time"] >= one["arrival_time"]
            assert after["prefix_hashes"][:n] == one["prefix_hashes"][:n]
    assert len({hashes[0] for hashes in whole}) == len({hashes[1] for hashes in whole}) == 2
    assert len({hashes[2] for hashes in whole if len(hashes) > 2}) == len({r["session"] for r, h in zip(rows, whole, strict=True) if h[2:]})
    partial = [row["prefix_hashes"][-1] for row in rows if row["prompt_tokens"] % 512]
    assert len(set(partial)) == len(partial) and not {block for hashes in whole for block in hashes} & set(partial)


def test_sessions_follow_their_parameters():
    """20,000 sessions in expectation, mean 4 turns: geometric, its standard deviation sqrt(1 - 1/4) x 4. Exponential times between."""
    table = made("sessions", duration_s=200_000.0, rate=0.1, turns=4.0, think_s=10.0, longest=10**9)
    session, at = table["session"].to_numpy(), table["arrival_time"].to_numpy()
    turns = np.bincount(session)[:-100]
    assert abs(len(np.unique(session)) - 20_000) < 4 * np.sqrt(20_000)
    assert turns.mean() == pytest.approx(4.0, abs=4 * np.sqrt(0.75) * 4 / np.sqrt(len(turns)))
    order = np.lexsort((at, session))
    gaps = np.diff(at[order])[np.diff(session[order]) == 0]
    assert gaps.mean() == pytest.approx(10.0, abs=4 * 10 / np.sqrt(len(gaps)))
    output = table["output_tokens"].to_numpy()
    assert abs(np.log(np.median(output) / 200)) < 4 * np.sqrt(np.pi / 2 / len(output)) + 0.005  # tokens are whole


def test_a_longer_trace_of_sessions_begins_with_the_shorter_one():
    short, long = (made("sessions", duration_s=seconds).to_pylist() for seconds in (100.0, 300.0))
    kept = [{key: row[key] for key in ("arrival_time", "prompt_tokens", "output_tokens", "session")} for row in long
            if row["arrival_time"] < 100]
    assert [{key: row[key] for key in kept[0]} for row in short] == kept


@pytest.mark.parametrize("key", ["rate", "turns", "systems", "think_s", "block_tokens"])
def test_bad_parameters_of_sessions_are_refused(key: str):
    with pytest.raises(BadInput, match=f"workload.{key}=-1"):
        made("sessions", **{key: -1})
    with pytest.raises(BadInput, match="no request arrives"):
        made("sessions", longest=1)


def test_files_rounds_and_long_prompts_share_no_blocks(tmp_path: Path):
    """Two files with the same ids, played twice: four users. Of the requests that become long none has a prefix."""
    table = trace([(0.0, 1000, 1), (1.0, 2000, 1)], prefix_hashes=[[0, 1], [0, 1, 2, 3]])
    for name in "ab":
        write_table(table, tmp_path / f"{name}.parquet")
    paths = [str(tmp_path / f"{name}.parquet") for name in "ab"]
    rows = made("requests", paths=paths, repeats=2).to_pylist()
    assert len(rows) == 8 and len({row["prefix_hashes"][0] for row in rows}) == 4
    assert [len(set(row["prefix_hashes"])) for row in rows] == [2, 2, 4, 4] * 2
    long = made("requests", path=paths[0], long_share=0.5, long_quantile=0.9)
    assert long["prefix_hashes"].to_pylist() == [[0, 1], None] and long["tenant"].to_pylist() == ["short", "long"]
