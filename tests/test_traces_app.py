"""The command harness-traces: what it prints, what it writes, and that nothing makes it fall over."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from harness.readers import format_names
from harness.schema import JOBS
from harness.tables import fill_defaults, metadata_of, read_trace, write_table
from harness.traces_app import COMMANDS, main

REPOSITORY = Path(__file__).parents[1]
PHILLY = "timestamp,duration,num_gpus,cluster\n2017-09-05 00:00:00,60,1,a\n2017-09-04 23:00:00,3600,16,b\n"


def jobs(rows: int = 6) -> pa.Table:
    return fill_defaults(
        pa.table(
            {
                "job_id": [f"j{i}" for i in range(rows)],
                "submit_time": np.arange(rows) * 100.0,
                "duration": np.full(rows, 150.0),
                "gpus": pa.array([1, 2] * (rows // 2), pa.int16()),
                "kind": ["batch", "online"] * (rows // 2),
            }
        ),
        JOBS,
    )


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    write_table(jobs(), tmp_path / "jobs.parquet", {"made": "by a test"})
    return tmp_path / "jobs.parquet"


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that a refused command writes to stderr."""
    assert main([str(word) for word in words]) == 2
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("harness-traces: "), shown.err
    return lines[0].removeprefix("harness-traces: ")


def runs(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in words]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def test_help_is_there_for_all(capsys):
    assert all(name in runs(capsys, "--help") for name in COMMANDS)
    for name in COMMANDS:
        assert f"harness-traces {name}" in runs(capsys, name, "--help")
    assert "--duplicates keep|drop" in runs(capsys, "import", "philly", "--help")
    assert main([]) == 2


def test_formats_lists_every_reader(capsys):
    lines = runs(capsys, "formats").splitlines()
    assert [line.split()[0] for line in lines] == format_names()


def test_import_writes_the_trace_and_says_what_it_did(capsys, tmp_path: Path):
    (tmp_path / "p.csv").write_text(PHILLY)
    out = runs(
        capsys,
        "import",
        "philly",
        tmp_path / "p.csv",
        "-o",
        tmp_path / "p.parquet",
        "--gpus-per-instance",
        4,
        "--preemptible",
        "true",
    )
    assert out.splitlines()[-1] == f"wrote {tmp_path}/p.parquet: jobs, 2 rows"
    table = read_trace(tmp_path / "p.parquet")
    assert table["instances"].to_pylist() == [4, 1] and table["preemptible"].to_pylist() == [True, True]
    origin = metadata_of(table)
    assert origin["format"] == "philly" and origin["options"]["gpus_per_instance"] == 4
    assert origin["report"] == out.splitlines()[:-1]
    assert origin["files"][0]["name"] == "p.csv" and len(origin["files"][0]["sha256"]) == 64
    before = (tmp_path / "p.parquet").read_bytes()
    runs(
        capsys,
        "import",
        "philly",
        "-o",
        tmp_path / "p.parquet",
        "--gpus_per_instance",
        4,
        "--preemptible",
        "true",
        tmp_path / "p.csv",
    )
    assert (tmp_path / "p.parquet").read_bytes() == before


def test_import_of_nodes_writes_a_cluster_that_describe_takes(capsys, tmp_path: Path, trace: Path):
    (tmp_path / "n.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,1024,4,T4\nb,64000,1024,4,T4\n")
    runs(capsys, "import", "alibaba-openb-nodes", tmp_path / "n.csv", "-o", tmp_path / "n.yaml")
    assert (
        (tmp_path / "n.yaml")
        .read_text()
        .startswith("# Imported by harness-traces import alibaba-openb-nodes.\n# n.csv: 2 rows\n")
    )
    figures = json.loads(runs(capsys, "describe", trace, "--cluster", tmp_path / "n.yaml", "--json"))
    assert figures["cluster"]["name"] == "n" and figures["cluster"]["gpus"] == 8


@pytest.mark.parametrize(
    "words, message",
    [
        (["nonsense"], "unknown command 'nonsense', must be one of import, validate, describe, "),
        (["import"], "the format comes first: harness-traces import FORMAT FILE... -o OUT"),
        (["import", "-o", "x", "philly"], "the format comes first"),
        (["import", "phily", "x"], "unknown format 'phily', must be one of"),
        (
            ["import", "philly", "-o", "x"],
            "the following arguments are required: FILE; see `harness-traces import philly --help`",
        ),
        (["import", "philly", "{csv}"], "the following arguments are required: -o/--out"),
        (["import", "philly", "{csv}", "-o", "{csv}"], "is the file to read, the output must be another one"),
        (["import", "philly", "{csv}", "-o", "{out}", "--zone", "x"], "unrecognized arguments: --zone"),
        (["import", "philly", "{csv}", "-o", "{out}", "--duplicates", "both"], "--duplicates both: must be one of keep, drop"),
        (["import", "philly", "{csv}", "-o", "{out}", "--priority", "high"], "--priority high: must be a whole number"),
        (["import", "philly", "{csv}", "-o", "{out}", "--preemptible", "yes"], "--preemptible yes: must be true or false"),
        (
            ["import", "alibaba-openb", "{csv}", "-o", "{out}", "--static_duration_s", "x"],
            "--static_duration_s x: must be a number",
        ),
        (["import", "alibaba-openb", "{csv}", "-o", "{out}"], "columns missing: name, cpu_milli"),
        (["import", "philly", "{trace}", "-o", "{out}"], "must be CSV, but seems to be a Parquet file"),
        (["describe", "{csv}"], "must be a Parquet trace, but seems to be text that begins with 'timestamp,"),
        (["describe", "{trace}", "--cluster", "nowhere"], "--cluster nowhere: unknown, must be a YAML file or one of"),
        (["describe", "{trace}", "--cluster", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["describe", "{trace}", "--cluster", "{yaml}"], "is not YAML"),
        (["describe", "{trace}", "--cluster", "{list}"], "must be a mapping with the keys of a cluster"),
        (["describe", "{trace}", "--cluster", "{key}"], "cluster.gpu"),
        (["slice", "{trace}", "-o", "{out}", "--start", "9", "--end", "9"], "--start 9 --end 9: must be 0 <= start < end"),
        (["slice", "{trace}", "-o", "{out}", "--start", "nan"], "--start nan --end inf: must be"),
        (["slice", "{trace}", "-o", "{out}", "--first", "0"], "--first 0: must be at least 1"),
        (["slice", "{trace}", "-o", "{out}", "--first", "x"], "argument --first: invalid int value: 'x'"),
        (["slice", "{trace}", "-o", "{out}", "--kind", "x"], "argument --kind: invalid choice: 'x'"),
        (["slice", "{trace}", "-o", "{out}", "--start", "1e9"], "no row is left of 6"),
        (["generate", "nothing", "-o", "{out}"], "unknown generator 'nothing', must be one of"),
        (["generate", "paper_mix", "preemptors", "-o", "{out}"], "'preemptors': parameters are KEY=VALUE"),
        (["generate", "paper_mix", "cards=3", "-o", "{out}"], "workload.cards: paper_mix has no such parameter"),
        (["generate", "paper_mix", "preemptors=many", "-o", "{out}"], "workload.preemptors="),
        (["generate", "paper_mix", "preemptors=[", "-o", "{out}"], "preemptors=[: the value is not YAML"),
        (["generate", "paper_mix", "--seed", "-1", "-o", "{out}"], "seed=-1"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(words: list[str], message: str, capsys, tmp_path: Path, trace: Path):
    places = {name: tmp_path / f"in.{name}" for name in ("csv", "yaml", "list", "key")}
    contents = {"csv": PHILLY, "yaml": "a: [", "list": "- 1", "key": "gpu: 3"}
    for name, path in places.items():
        path = path.with_suffix(".csv" if name == "csv" else f".{name}.yaml")
        path.write_text(contents[name])
        places[name] = path
    before = sorted(tmp_path.iterdir())
    assert message in fails(capsys, *(word.format(trace=trace, out=tmp_path / "out.parquet", **places) for word in words))
    assert sorted(tmp_path.iterdir()) == before


def test_validate_lists_every_violation(capsys, tmp_path: Path, trace: Path):
    assert runs(capsys, "validate", trace) == f"{trace}: jobs, 6 rows, sound\n"
    bad = jobs().set_column(1, "submit_time", pa.array([-1.0] * 6)).drop_columns(["duration"])
    write_table(bad, tmp_path / "bad.parquet")
    assert main(["validate", str(trace), str(tmp_path / "bad.parquet"), str(tmp_path / "absent")]) == 2
    shown = capsys.readouterr()
    assert shown.out == f"{trace}: jobs, 6 rows, sound\n"
    lines = shown.err.splitlines()
    assert [line.split(": ")[2].split(",")[0] for line in lines] == ["column submit_time", "column duration", "no such file"]
    assert all(line.startswith("harness-traces: ") for line in lines)


def test_slice_keeps_the_origin(capsys, tmp_path: Path, trace: Path):
    runs(
        capsys,
        "slice",
        trace,
        "-o",
        tmp_path / "s.parquet",
        "--start",
        100,
        "--end",
        500,
        "--kind",
        "online",
        "--first",
        1,
        "--rebase",
    )
    table = read_trace(tmp_path / "s.parquet")
    assert table.select(["job_id", "submit_time"]).to_pylist() == [{"job_id": "j1", "submit_time": 0.0}]
    origin = metadata_of(table)
    assert origin["made"] == "by a test"
    assert {k: v for k, v in origin["slice"].items() if k != "sha256"} == {
        "start": 100.0,
        "end": 500.0,
        "kind": "online",
        "first": 1,
        "rebase": True,
        "of": "jobs.parquet",
    }


def test_generate_is_seeded_and_says_how_it_was_made(capsys, tmp_path: Path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        runs(
            capsys,
            "generate",
            "paper_mix",
            "--seed",
            seed,
            "preemptors=5",
            "warmup_s=60",
            "-o",
            tmp_path / name,
            "--cluster",
            "rtx4090_x41",
        )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()
    origin = metadata_of(read_trace(tmp_path / "a"))
    assert (origin["generator"], origin["seed"], origin["cluster"], origin["parameters"]["preemptors"]) == (
        "paper_mix",
        1,
        "rtx4090_x41",
        5,
    )


def test_debug_shows_the_traceback(capsys, monkeypatch):
    monkeypatch.setenv("HARNESS_DEBUG", "1")
    assert main(["describe", "absent.parquet"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_as_a_process(tmp_path: Path, trace: Path):
    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "harness.traces_app", *map(str, words)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            env=os.environ | {"HARNESS_DEBUG": "0"},
            timeout=120,
        )

    assert run("validate", trace).returncode == 0
    refused = run("describe", tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"harness-traces: {tmp_path}: is a folder, must be a file\n"


def test_the_text_shows_all_figures(capsys, trace: Path):
    text = runs(capsys, "describe", trace, "--cluster", "flat")
    for words in ("rows               6", "gpus_per_job", "peak_gpus_at_s", "offered_load_gpus", "origin: made       by a test"):
        assert words in text
    assert max(map(len, text.splitlines())) < 130


def test_describe_the_real_traces(shared_traces: Path, capsys, tmp_path: Path):
    for name, source, figures in (
        ("philly", "philly/philly.csv.gz", {"rows": 82_247, "gangs": 289}),
        ("alibaba-openb", "alibaba-openb-v2023/openb_pod_list_default.csv", {"rows": 7_255, "shared_gpu_jobs": 2_573}),
    ):
        runs(capsys, "import", name, shared_traces / source, "-o", tmp_path / "t.parquet")
        found = json.loads(runs(capsys, "describe", tmp_path / "t.parquet", "--json", "--cluster", "openb"))
        assert {key: found[key] for key in figures} == figures
        assert found["cluster"]["gpus"] == 6_212
