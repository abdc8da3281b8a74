"""Readers of request traces: each stated rule on a small fixture of our own, each published figure on the real file."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from harness.errors import BadInput
from harness.readers import _requests, servegen
from harness.readers._spool import Spool
from harness.schema import REQUESTS, names
from harness.tables import metadata_of, read_trace, validate
from harness.traces_app import main
from reader_helpers import column, counted, run, written

CODE = ("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319601,3180,8\r\n"
        "2023-11-16 18:17:04.0319601,3180,8\r\n")
CONV = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.5000000,100,7\r\n2023-11-16 18:17:03.9799600,50,0\r\n"
WEEK = ("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,10,2\n"
        "2024-05-10 02:00:00.5+02:00,7,3\n")
BURST = ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n45,ChatGPT,1087,230,1317,Conversation log\n"
         "5,GPT-4,472,18,490,API log\n5,ChatGPT,472,18,491,Conversation log\n1106,ChatGPT,0,0,0,Conversation log\n")
MOON = [{"timestamp": 0, "input_length": 1025, "output_length": 490, "hash_ids": [0, 14, 15]},
        {"timestamp": 3000, "input_length": 512, "output_length": 1, "hash_ids": [0]},
        {"timestamp": 0, "input_length": 1025, "output_length": 490, "hash_ids": [0, 14, 15]},
        {"timestamp": 0, "input_length": 1025, "output_length": 490, "hash_ids": [0, 14, 16]},
        {"timestamp": 3000, "input_length": 600, "output_length": 3, "hash_ids": [0]}]
QWEN = [{"chat_id": 55, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 17, "output_length": 4, "type": "text", "turn": 1,
         "hash_ids": [7, 8]},
        {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 33, "output_length": 132, "type": "search", "turn": 2,
         "hash_ids": [7, 8, 9], "beyond": "x"}]
GENAI = ("gmt_create,predict_type,predict_status,exec_time_seconds,groupId,prompt_length,num_lora\n"
         "2024-11-15 18:16:14,TXT_2_IMG,SUCCEED,43.0,G1,93.0,0\n2024-11-15 16:57:50,TXT_2_IMG,FAILED,32.0,G0,63.0,1\n"
         "2024-11-15 16:57:50,TXT_2_IMG,FAILED,32.0,G0,63.0,1\n2024-11-15 16:57:51,TXT_2_IMG,PENDING,0.0,G0,,0\n")


def lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def lower(table: pa.Table, name: str, *shares: float) -> list[float]:
    return np.quantile(table[name].to_numpy(), shares, method="lower").tolist()


def sound_requests(table: pa.Table) -> pa.Table:
    """``table``, which must be a requests trace with every schema column and in order of arrival."""
    assert set(names(REQUESTS)) <= set(table.column_names) and validate(table, REQUESTS, "t") == []
    assert not [name for name in table.column_names if name.startswith("_")]
    assert column(table, "arrival_time") == sorted(column(table, "arrival_time"))
    return table


# Azure


def test_two_azure_services_share_a_clock_that_keeps_seven_digits(tmp_path: Path):
    """Time 0 is 18:17:03.5 of conv; code comes 0.4799600, 0.5319601 and (a repetition) 0.5319601 s later; conv's failure goes."""
    paths = [written(tmp_path, CODE, "AzureLLMInferenceTrace_code.csv"), written(tmp_path, CONV, "AzureLLMInferenceTrace_conv.csv")]
    table, report = run("azure-llm", *paths)
    sound_requests(table)
    assert column(table, "arrival_time") == [0.0, 0.47996, 0.5319601, 0.5319601]
    assert column(table, "service") == ["conv", "code", "code", "code"]
    assert column(table, "request_id") == ["azure-3", "azure-0", "azure-1", "azure-2"]
    assert column(table, "prompt_tokens") == [100, 4808, 3180, 3180]
    counted(report, "zone: none given")
    assert counted(report, "time 0") == "time 0 is 2023-11-16 18:17:03 on it"
    assert counted(report, "failures").endswith(": 1 dropped") and counted(report, "repetitions").endswith(": 1 kept")
    assert counted(report, "services") == "services: code 3, conv 1"
    one, _ = run("azure-llm", *paths, duplicates="drop", zero_tokens="raise_to_1", service="both")
    assert column(one, "output_tokens") == [7, 10, 1, 8] and set(column(one, "service")) == {"both"}
    with pytest.raises(BadInput, match="conv.csv: row 1: no prompt or no output tokens, must be at least 1"):
        run("azure-llm", *paths, zero_tokens="refuse")


def test_azure_in_a_zone_with_two_hours_alike(tmp_path: Path):
    """In Los Angeles 01:30 of 2023-11-05 is read as the first (UTC 08:30), 03:00 standard time is UTC 11:00: 2.5 h later."""
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-05 01:30:00.0000001,1,1\n2023-11-05 03:00:00.0000001,1,1\n"
    table, report = run("azure-llm", written(tmp_path, text), tz="America/Los_Angeles")
    assert column(table, "arrival_time") == [0.0, 9000.0]
    assert counted(report, "time 0") == "time 0 is 2023-11-05 08:30:00 UTC"
    assert "1 times that the clock showed twice" in counted(report, "zone")
    assert column(run("azure-llm", tmp_path / "file.csv")[0], "arrival_time") == [0.0, 5400.0]


def test_azure_of_2024_states_its_offset_and_some_times_have_no_fraction(tmp_path: Path):
    table, report = run("azure-llm", written(tmp_path, WEEK, "AzureLLMInferenceTrace_code_1week.csv"))
    assert column(sound_requests(table), "arrival_time") == [0.0, 0.49007, 0.99007]  # 02:00:00.5 at +02:00 is 00:00:00.5 UTC
    assert set(column(table, "service")) == {"code"} and counted(report, "time 0") == "time 0 is 2024-05-10 00:00:00 UTC"
    with pytest.raises(BadInput, match="state their offset from UTC, so --tz UTC has no meaning"):
        run("azure-llm", tmp_path / "AzureLLMInferenceTrace_code_1week.csv", tz="UTC")
    with pytest.raises(BadInput, match=r"file.csv: its times have no offset, those of .*1week.csv have one"):
        run("azure-llm", tmp_path / "AzureLLMInferenceTrace_code_1week.csv", written(tmp_path, CODE))


@pytest.mark.parametrize("change, words", [
    (("4808", "-1"), "column ContextTokens, row 0: -1.0, must be a whole number >= 0"),
    (("4808", "1.5"), "column ContextTokens, row 0: 1.5, must be a whole number"),
    (("3180,8", "3180,"), r"column GeneratedTokens, rows 1, 2 .*: empty"),
    (("3180", "99999999999"), "must be a whole number >= 0 and <= 2.14748e"),
    (("2023-11-16 18:17:04.0319601", "later"), "column TIMESTAMP, rows 1, 2 .*: 'later' must be a time"),
    (("2023-11-16 18:17:04.0319601", ""), "column TIMESTAMP, rows 1, 2 .*: empty, must be a time"),
])
def test_bad_azure_rows_are_named(change: tuple[str, str], words: str, tmp_path: Path):
    with pytest.raises(BadInput, match=words) as error:
        run("azure-llm", written(tmp_path, CODE.replace(*change)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("service, rows, span, rate, gap, context, generated", [
    ("code", 8_819, 3_435.9, 2.57, 217, [3, 1469, 7436, 7437], [6, 13, 249, 1899]),
    ("conv", 19_366, 3_501.7, 5.53, 4.3, [2, 1020, 4142, 14050], [7, 129, 601, 1000]),
])
def test_real_azure(shared_traces: Path, service: str, rows: int, span: float, rate: float, gap: float, context: list, generated: list):
    table, report = run("azure-llm", shared_traces / f"azure-llm-2023/AzureLLMInferenceTrace_{service}.csv")
    times = sound_requests(table)["arrival_time"].to_numpy()
    assert table.num_rows == rows and round(times[-1], 1) == span and times[0] == 0
    assert round(rows / times[-1], 2) == rate and np.diff(times).max() == pytest.approx(gap, abs=0.5 if gap > 100 else 0.05)
    shares = (0.0, 0.5, 0.99, 1.0)
    assert lower(table, "prompt_tokens", *shares) == context and lower(table, "output_tokens", *shares) == generated
    assert counted(report, "failures").endswith(": 0 dropped") and counted(report, "repetitions").endswith(": 0 kept")
    assert not [line for line in report if "before the row above" in line] and "2023-11-16" in counted(report, "time 0")
    assert service == "conv" or times[1] == 0.052  # 18:17:03.9799600 and 18:17:04.0319600


def test_real_azure_services_together(shared_traces: Path):
    folder = shared_traces / "azure-llm-2023"
    table, report = run("azure-llm", *(folder / f"AzureLLMInferenceTrace_{service}.csv" for service in ("code", "conv")))
    assert counted(report, "services") == "services: code 8,819, conv 19,366" and sound_requests(table).num_rows == 28_185
    alone = run("azure-llm", folder / "AzureLLMInferenceTrace_code.csv")[0]["arrival_time"].to_numpy()
    code = table.filter(pc.equal(table["service"], "code"))["arrival_time"].to_numpy()
    assert np.allclose(np.diff(code), np.diff(alone), rtol=0, atol=2e-7)  # one clock: a constant shift, up to the seventh decimal


# BurstGPT


def test_burstgpt_keeps_its_midnight_and_drops_failures(tmp_path: Path):
    table, report = run("burstgpt", written(tmp_path, BURST))
    assert column(sound_requests(table), "arrival_time") == [5.0, 5.0, 45.0]
    assert column(table, "service") == ["GPT-4", "ChatGPT", "ChatGPT"] and column(table, "request_id")[0] == "burstgpt-1"
    assert column(table, "log_type") == ["API log", "Conversation log", "Conversation log"]
    assert "in 1 rows" in counted(report, "Total tokens") and counted(report, "failures").endswith(": 1 dropped")
    counted(report, "time 0 is local midnight")
    kept, report = run("burstgpt", tmp_path / "file.csv", zero_tokens="raise_to_1")
    assert column(kept, "output_tokens")[-1] == 1 and counted(report, "failures").endswith(": 1 raised to 1 token")
    with pytest.raises(BadInput, match="row 3: no prompt or no output tokens"):
        run("burstgpt", tmp_path / "file.csv", zero_tokens="refuse")
    assert counted(report, "before the row above").startswith("requests that come before the row above in their file: 1,")
    with pytest.raises(BadInput, match="row 1: comes before the row above, must be sorted by arrival"):
        run("burstgpt", tmp_path / "file.csv", unsorted="refuse")
    with pytest.raises(BadInput, match="column Timestamp, row 1: -5.0, must be a number >= 0"):
        run("burstgpt", written(tmp_path, BURST.replace("\n5,GPT", "\n-5,GPT")))


def test_burstgpt_release_3_has_columns_in_the_middle(tmp_path: Path):
    text = "\n".join(",".join([line.split(",")[0], extra, *line.split(",")[1:]]) for line, extra in zip(
        BURST.splitlines(), ("Session ID,Elapsed time", "s1,0.5", "s2,1.5", "s1,2.5", "s3,0"), strict=True))
    table, _ = run("burstgpt", written(tmp_path, text))
    assert column(table, "session_id") == ["s2", "s1", "s1"] and column(table, "elapsed_s") == [1.5, 2.5, 0.5]
    assert column(table, "prompt_tokens") == [472, 472, 1087]


def test_real_burstgpt(shared_traces: Path):
    path = shared_traces / "burstgpt/BurstGPT_1.first400.csv"
    table, report = run("burstgpt", path, zero_tokens="raise_to_1")
    assert sound_requests(table).num_rows == 400 and counted(report, "failures").endswith(": 17 raised to 1 token")
    times = table["arrival_time"].to_numpy()
    assert times[-1] - times[0] == 37_269 and round(400 / 37_269, 3) == 0.011
    assert counted(report, "services") == "services: ChatGPT 320, GPT-4 80"
    assert lower(table, "prompt_tokens", 0.5, 0.95, 1.0) == [308, 1_637, 2_126] and lower(table, "output_tokens", 0.5, 1.0) == [229, 2_019]
    assert run("burstgpt", path)[0].num_rows == 383


# Mooncake and Qwen-Bailian


def test_mooncake_ticks_are_kept_or_spread(tmp_path: Path):
    path = written(tmp_path, lines(MOON), "conversation_trace.jsonl")
    table, report = run("mooncake", path)
    assert column(sound_requests(table), "arrival_time") == [0.0, 0.0, 0.0, 3.0, 3.0]
    assert column(table, "prefix_hashes")[:3] == [[0, 14, 15], [0, 14, 15], [0, 14, 16]]
    assert column(table, "service")[0] == "conversation_trace"
    assert counted(report, "repetitions").endswith(": 1 kept")  # the third line has another last block
    assert counted(report, "arrivals") == "arrivals: at 2 instants up to 3.000 s, at most 3 at one (at 0.000 s)"
    assert counted(report, "prefix blocks").endswith("in 1 rows")  # 600 tokens have 2 blocks
    assert run("mooncake", path, duplicates="drop")[0].num_rows == 4
    spread, report = run("mooncake", path, ticks="spread", seed=3)
    times = spread["arrival_time"].to_numpy()
    assert (times[:3] < 3).all() and (times[3:] > 3).all() and (times < 6).all() and len(set(times)) == 5
    assert spread.equals(run("mooncake", path, ticks="spread", seed=3)[0])
    assert not spread.equals(run("mooncake", path, ticks="spread", seed=4)[0])
    counted(report, "spread uniformly over the 3 s behind them, seed 3")
    with pytest.raises(BadInput, match="--tick_s 0 --seed 0: must be > 0 and >= 0"):
        run("mooncake", path, ticks="spread", tick_s=0.0)


def test_hashes_of_different_files_are_never_equal(tmp_path: Path):
    second = lines(MOON[1:2] + [{**MOON[0], "hash_ids": None}])
    paths = [written(tmp_path, lines(MOON[:2]), "a.jsonl"), written(tmp_path, second, "b.jsonl")]
    table, report = run("mooncake", *paths)
    by_service = {s: {h for r in table.to_pylist() if r["service"] == s for h in r["prefix_hashes"] or []} for s in ("a", "b")}
    assert by_service["a"] == {0, 14, 15} and by_service["b"] == {1 << 40}
    counted(report, "their own file only")


def test_qwen_keeps_chats_and_turns(tmp_path: Path):
    table, report = run("qwen-bailian", written(tmp_path, lines(QWEN), "qwen_traceA_blksz_16.jsonl"))
    assert column(sound_requests(table), "arrival_time") == [0.5, 61.114]
    carried = [column(table, name) for name in ("chat_id", "parent_chat_id", "turn", "type")]
    assert carried == [[55, 159], [-1, 55], [1, 2], ["text", "search"]]
    assert counted(report, "prefix blocks of 16").endswith("in 0 rows") and "beyond" not in table.column_names


@pytest.mark.parametrize("text, words", [
    (lines(MOON)[:-20], "is not JSON lines"),
    ('{"timestamp": 0, "output_length": 3}\n', "row 0: field input_length is missing; a row must have timestamp, input_length"),
    (lines(MOON).replace("3000", '"soon"'), "is not JSON lines with timestamp, input_length, output_length"),
    (lines(MOON).replace("3000", "-3"), "column timestamp, rows 1, 4 .*: -3.0, must be a number >= 0"),
    (lines(MOON).replace("[0]", "[-1]"), "hash_ids must be whole numbers from 0"),
    (lines(MOON).replace("512", "512.5"), "column input_length, row 1: 512.5, must be a whole number"),
    ("timestamp,input_length\n1,2\n", "must be JSON, but seems to be text that begins"),
])
def test_bad_json_lines_are_named(text: str, words: str, tmp_path: Path):
    with pytest.raises(BadInput, match=words) as error:
        run("mooncake", written(tmp_path, text))
    assert "\n" not in str(error.value)


def test_real_mooncake(shared_traces: Path):
    path = shared_traces / "mooncake-fast25/conversation_trace.jsonl"
    table, report = run("mooncake", path)
    assert sound_requests(table).num_rows == 12_031 and round(table["arrival_time"][-1].as_py()) == 3_537
    assert round(12_031 / table["arrival_time"][-1].as_py(), 2) == 3.40
    assert lower(table, "prompt_tokens", 0.0, 0.5, 0.99, 1.0) == [891, 6_909, 85_399, 126_195]
    assert lower(table, "output_tokens", 0.0, 0.5, 0.99, 1.0) == [1, 350, 1_115, 2_000]
    assert counted(report, "arrivals").startswith("arrivals: at 1,180 instants") and "at most 28 at one" in counted(report, "arrivals")
    gaps = np.diff(np.unique(table["arrival_time"].to_numpy()))
    assert round(float(np.median(gaps)), 1) == 3.0
    assert counted(report, "repetitions").endswith(": 1 kept") and counted(report, "prefix blocks").endswith("in 0 rows")
    spread = run("mooncake", path, ticks="spread")[0]["arrival_time"].to_numpy()
    assert len(np.unique(spread)) > 12_000 and abs(spread.mean() - table["arrival_time"].to_numpy().mean() - 1.5) < 0.05


# ServeGen


def client(folder: Path, name: str = "chunk-1") -> list[Path]:
    trace = "0,2.0,1.5,Gamma,0.25,2.0\n600,0,0,,,\n1200,4.0,1.2,Weibull,0.8,0.2\n1800,1.0,1,,,\n"
    dataset = {"0": {"input_tokens": "{100: 0.5, 200: 0.5}", "output_tokens": "{10: 1.0}"},
               "1200": {"input_tokens": "{0: 1e0,}", "output_tokens": "{}"}}
    return [written(folder, trace, f"{name}-trace.csv"), written(folder, json.dumps(dataset), f"{name}-dataset.json")]


def test_servegen_draws_windows_and_lengths(tmp_path: Path):
    """Expected 1200 + 0 + 2400 + 600 requests; four standard deviations of a renewal count are 4 cv sqrt(n)."""
    table, report = run("servegen", *client(tmp_path), *client(tmp_path, "chunk-10"))
    sound_requests(table)
    times, tenant = table["arrival_time"].to_numpy(), np.array(column(table, "tenant"))
    assert set(tenant) == {"chunk-1", "chunk-10"} and set(column(table, "service")) == {"servegen"}
    for start, expected, cv in ((0, 1200, 2.0), (600, 0, 0), (1200, 2400, 1.3), (1800, 600, 1)):
        here = (times >= start) & (times < start + 600) & (tenant == "chunk-1")
        assert abs(here.sum() - expected) <= 4 * cv * np.sqrt(expected)
    early = table.filter(pa.array(times < 1200))
    assert set(column(early, "prompt_tokens")) == {100, 200} and set(column(table, "output_tokens")) == {10}
    assert set(column(table.filter(pa.array(times >= 1200)), "prompt_tokens")) == {1}  # length 0 is raised to 1
    assert "synthetic" in counted(report, "seed 0") and "2 windows name no distribution" in counted(report, "clients: 2")
    again = run("servegen", *client(tmp_path), *client(tmp_path, "chunk-10"))[0]
    assert again.equals(table) and not run("servegen", *client(tmp_path), seed=1)[0].equals(run("servegen", *client(tmp_path))[0])
    part, _ = run("servegen", *client(tmp_path), start_s=1200.0, end_s=1500.0, rate_scale=2.0)
    assert part["arrival_time"][-1].as_py() < 300 and abs(part.num_rows - 2400) <= 4 * 1.3 * np.sqrt(2400)


@pytest.mark.parametrize("pattern, shape, cv", [("Gamma", 0.25, 2.0), ("Weibull", 0.5, np.sqrt(5)), ("", 0, 1.0), ("Gamma", 4, 0.5)])
def test_gaps_have_the_rate_and_the_variation_of_their_distribution(pattern: str, shape: float, cv: float):
    """Gamma of shape k: cv 1 / sqrt(k). Weibull of shape 1/2: E X = 2 s, E X^2 = 24 s^2, so cv^2 = 24 / 4 - 1 = 5. 10^5 gaps."""
    rng = np.random.default_rng(1)
    times = servegen.arrivals(servegen.Window(50.0, 50.0 + 10_000, 10.0, pattern, shape), rng)
    gaps = np.diff(times)
    assert times[0] >= 50 and times[-1] < 10_050
    assert abs(len(times) - 100_000) < 4 * cv * np.sqrt(100_000)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


@pytest.mark.parametrize("pattern, shape", [("Gamma", 0.25), ("Weibull", 0.5), ("", 0.0)])
def test_short_windows_have_the_rate_too(pattern: str, shape: float):
    """In equilibrium a window of 1 s at rate 1 has one arrival on average, however bursty; 20,000 windows, variance below 8."""
    rng = np.random.default_rng(2)
    counts = [len(servegen.arrivals(servegen.Window(0.0, 1.0, 1.0, pattern, shape), rng)) for _ in range(20_000)]
    assert abs(np.mean(counts) - 1.0) < 4 * np.sqrt(8 / 20_000)


@pytest.mark.parametrize("file, text, words", [
    ("chunk-1-trace.csv", "0,x,1,Gamma,1,1\n", "row 0: '0,x,1,Gamma,1,1', must be start_s, rate, cv"),
    ("chunk-1-trace.csv", "0,1,1,Pareto,1,1\n", "must be start_s, rate, cv, Gamma"),
    ("chunk-1-trace.csv", "0,1,1,,,\n0,1,1,,,\n", "two windows start at 0 s"),
    ("chunk-1-dataset.json", '{"0": {"input_tokens": "{1: 1}"}}', "no window has output_tokens"),
    ("chunk-1-dataset.json", '{"0": {"input_tokens": "{1: ", "output_tokens": "{1: 1}"}}', "must map starts of windows"),
])
def test_bad_servegen_files_are_named(file: str, text: str, words: str, tmp_path: Path):
    paths = client(tmp_path)
    written(tmp_path, text, file)
    with pytest.raises(BadInput, match=words) as error:
        run("servegen", *paths)
    assert "\n" not in str(error.value)


def test_servegen_needs_both_files_of_a_client(tmp_path: Path):
    with pytest.raises(BadInput, match="chunk-1-dataset.json is not among the files; a client needs both"):
        run("servegen", client(tmp_path)[0])


# GenAI


def test_genai_requests_are_jobs_of_one_gpu(tmp_path: Path):
    table, report = run("alibaba-genai", written(tmp_path, GENAI))
    assert column(table, "submit_time") == [0.0, 0.0, 4704.0] and column(table, "duration") == [32.0, 32.0, 43.0]
    assert column(table, "gpus") == [1, 1, 1] and set(column(table, "kind")) == {"online"} and column(table, "tenant") == ["G0", "G0", "G1"]
    assert column(table, "status") == ["FAILED", "FAILED", "SUCCEED"] and column(table, "num_lora") == [1, 1, 0]
    assert counted(report, "repetitions").endswith(": 1 kept") and counted(report, "zero or negative").endswith(": 1 dropped")
    assert counted(report, "status FAILED") == "status FAILED: 2 rows"
    assert column(run("alibaba-genai", tmp_path / "file.csv", failed="drop")[0], "job_id") == ["genai-0"]
    with pytest.raises(BadInput, match="is a metric series"):
        run("alibaba-genai", written(tmp_path, "timestamp_anon,value,container_ip\n1,2,a\n"))


def test_real_genai(shared_traces: Path):
    folder = shared_traces / "alibaba-genai-v2026"
    table, report = run("alibaba-genai", folder / "lora_request_trace.csv", nonpositive="raise_to_1s")
    assert table.num_rows == 26_823 and counted(report, "repetitions").endswith(": 19 kept")
    assert counted(report, "zero or negative").endswith(": 30 raised to 1 s")
    for status, count in (("SUCCEED", 26_392), ("FAILED", 398), ("PENDING", 30), ("PROCESSING", 3)):
        assert counted(report, f"status {status}").endswith(f": {count:,} rows")
    assert lower(table, "duration", 0.5, 0.99, 1.0) == [23, 106, 567]
    assert len(pc.unique(table["tenant"])) == 4_247
    assert len(pc.unique(table["base_model"])) == 87 and table["base_model"].null_count == 25  # so 86 models, and blank
    lora = table["num_lora"].to_numpy()
    assert [(lora == 0).sum(), (lora == 1).sum(), (lora > 1).sum()] == [22_329, 4_195, 299]
    assert table["prompt_length"].null_count == 25
    span = np.datetime64("2024-12-08T17:33:57") - np.datetime64("2024-11-15T16:57:50")
    assert table["submit_time"][-1].as_py() == span / np.timedelta64(1, "s")
    with pytest.raises(BadInput, match="is a metric series"):
        run("alibaba-genai", folder / "qps.csv.gz")


# Large files


def test_a_trace_in_many_runs_is_the_same_as_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """1,000 requests of two services in runs of 64 rows: the same rows and report, ties and repetitions across runs included."""
    rng = np.random.default_rng(0)
    for service in ("code", "conv"):
        at = np.sort(rng.integers(0, 200, 500))
        rows = "".join(f"2023-11-16 18:{m:02d}:{s:02d}.0000000,{p},1\n" for m, s, p in
                       zip(at // 60, at % 60, rng.integers(1, 3, 500), strict=True))
        written(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows, f"Trace_{service}.csv")
    paths = [tmp_path / f"Trace_{service}.csv" for service in ("code", "conv")]
    whole, report = run("azure-llm", *paths)
    original = Spool.__init__
    monkeypatch.setattr(_requests.Spool, "__init__", lambda self, *more: original(self, *more, run_rows=64))
    monkeypatch.setattr("harness.readers._spool.BATCH_ROWS", 7)
    pieces, second = run("azure-llm", *paths)
    assert pieces.equals(whole) and second == report
    dropped = run("azure-llm", *paths, duplicates="drop")[0]
    keys = {(r["arrival_time"], r["prompt_tokens"], r["service"]) for r in whole.to_pylist()}
    assert dropped.num_rows == len(keys) and int(counted(report, "repetitions").split(": ")[1].split()[0]) == 1_000 - len(keys)


def test_import_writes_requests_with_their_origin(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    written(tmp_path, CODE, "Trace_code.csv")
    assert main(["import", "azure-llm", str(tmp_path / "Trace_code.csv"), "-o", str(tmp_path / "t.parquet")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"wrote {tmp_path}/t.parquet: requests, 3 rows"
    table = read_trace(tmp_path / "t.parquet")
    assert metadata_of(table)["format"] == "azure-llm" and metadata_of(table)["options"]["zero_tokens"] == "drop"
    assert table.column_names == names(REQUESTS)
