"""harness-traces slice, merge and scale: what is kept, renamed, moved, thinned and copied."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from harness.errors import BadInput
from harness.schema import JOBS, REQUESTS, SERVICES
from harness.tables import TraceFile, fill_defaults, merge, merge_sorted, metadata_of, read_trace, validate, write_batches, write_table
from harness.traces_app import main


def jobs(**more) -> pa.Table:
    return fill_defaults(pa.table({"job_id": ["a", "b", "c"], "submit_time": [0.0, 10.0, 20.0], "duration": [5.0, 5.0, 5.0],
                                   "gpus": pa.array([1, 2, 8], pa.int16()), **more}), JOBS)


def requests(rows: int = 3, step: float = 10.0, **more) -> pa.Table:
    return fill_defaults(pa.table({"request_id": [f"r{i}" for i in range(rows)], "arrival_time": np.arange(rows) * step,
                                   "prompt_tokens": pa.array([100] * rows, pa.int32()), "output_tokens": pa.array([10] * rows, pa.int32()),
                                   **more}), REQUESTS)


def column(table: pa.Table, name: str) -> list:
    return table[name].to_pylist()


def run(capsys, *words: object) -> str:
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def refused(capsys, *words: object) -> str:
    assert main([str(word) for word in words]) == 2
    return capsys.readouterr().err


def saved(folder: Path, **tables: pa.Table) -> list[Path]:
    for name, table in tables.items():
        write_table(table, folder / f"{name}.parquet", metadata_of(table) or None)
    return [folder / f"{name}.parquet" for name in tables]


def dated(table: pa.Table, when: str) -> pa.Table:
    return table.replace_schema_metadata({"harness": f'{{"report": ["time 0 is {when}"]}}'})


# merge


def test_merge_renames_marks_and_sorts():
    whole = merge({"x": jobs(tenant=["t", "", None]), "y": jobs(queue=["q"] * 3)})
    assert validate(whole, JOBS, "t") == []
    assert column(whole, "job_id") == ["x/a", "y/a", "x/b", "y/b", "x/c", "y/c"]  # ties in the order of the traces
    assert column(whole, "tenant") == ["x/t", "y", "x", "y", "x", "y"]
    assert column(whole, "queue") == [None, "q", None, "q", None, "q"]


def test_merge_of_requests_keeps_prefixes_apart_and_of_services_renames_them():
    hashes = [[0, 1], None, [2]]
    whole = merge({"x": requests(service=["s"] * 3, prefix_hashes=hashes), "y": requests(prefix_hashes=hashes)})
    assert column(whole, "service") == ["x/s", "y"] * 3 and column(whole, "request_id")[:2] == ["x/r0", "y/r0"]
    mine = [h for h in column(whole, "prefix_hashes") if h]
    assert mine[0] == [0, 1] and [h - mine[1][0] for h in mine[1]] == [0, 1] and not {0, 1, 2} & set(mine[1] + mine[3])
    services = fill_defaults(pa.table({"service": ["s"], "time": [0.0], "replicas": pa.array([2], pa.int32()),
                                       "gpus": pa.array([1], pa.int16())}), SERVICES)
    assert column(merge({"x": services, "y": services}), "service") == ["x/s", "y/s"]


def test_merge_moves_clocks_with_their_ends():
    whole = merge({"x": jobs(end_time=[None, 50.0, None]), "y": jobs()}, [100.0, 0.0])
    assert column(whole, "submit_time") == [0, 10, 20, 100, 110, 120] and column(whole, "end_time")[4] == 150.0
    with pytest.raises(BadInput, match="x: moved by -5 s its first arrival would be before time 0"):
        merge({"x": jobs(), "y": jobs()}, [-5.0, 0.0])


def test_merge_refuses_what_does_not_go_together():
    with pytest.raises(BadInput, match="y: holds requests, the first trace jobs"):
        merge({"x": jobs(), "y": requests()})
    with pytest.raises(BadInput, match="x, y: have columns of types that do not go together"):
        merge({"x": jobs(extra=["a"] * 3), "y": jobs(extra=[[1]] * 3)})


def test_the_command_merges_by_the_calendar(capsys, tmp_path: Path):
    """x begins an hour before y: y is moved by 3600 s."""
    paths = saved(tmp_path, x=dated(jobs(), "2023-11-16 18:00:00 UTC"), y=dated(jobs(), "2023-11-16 19:00:00 UTC"))
    out = run(capsys, "merge", *paths, "--clock", "calendar", "-o", tmp_path / "m.parquet")
    assert out == f"wrote {tmp_path}/m.parquet: jobs, 6 rows of 2 traces\n"
    table = read_trace(tmp_path / "m.parquet")
    assert column(table, "submit_time") == [0, 10, 20, 3600, 3610, 3620]
    origin = metadata_of(table)
    assert [t["moved_s"] for t in origin["traces"]] == [0, 3600] and origin["traces"][1]["origin"]["report"]
    run(capsys, "merge", *paths, "--names", "p,q", "-o", tmp_path / "n.parquet")
    assert column(read_trace(tmp_path / "n.parquet"), "job_id")[:2] == ["p/a", "q/a"]
    late = saved(tmp_path, late=jobs(submit_time=[7.0, 8.0, 9.0]))
    run(capsys, "merge", *late, paths[0], "--clock", "start", "-o", tmp_path / "s.parquet")
    assert column(read_trace(tmp_path / "s.parquet"), "submit_time") == [0, 0, 1, 2, 10, 20]


def random_trace(rng: np.random.Generator, kind: str) -> pa.Table:
    """Rows in order of arrival, many at one instant; a column beyond the schema in about half of the traces."""
    rows = int(rng.integers(1, 30))
    times = np.sort(rng.integers(0, 8, rows)).astype(float)
    own = {"note": pa.array(rng.integers(0, 9, rows), pa.int32() if rng.random() < 0.5 else pa.int64())} if rng.random() < 0.5 else {}
    if kind == "jobs":
        return fill_defaults(pa.table({"job_id": [f"j{i}" for i in range(rows)], "submit_time": times, "duration": times + 1,
                                       "gpus": pa.array(rng.integers(0, 8, rows), pa.int16()), "end_time": times + 2,
                                       "tenant": rng.choice(["", "a", "b"], rows), **own}), JOBS)
    hashes = [None if i % 3 else [i, i + 1] for i in range(rows)] if rng.random() < 0.5 else [None] * rows
    return requests(rows, **own, prefix_hashes=pa.array(hashes, pa.list_(pa.int64()))).set_column(1, "arrival_time", pa.array(times))


@pytest.mark.parametrize("kind", ["jobs", "requests"])
def test_sorted_files_are_merged_piece_by_piece_into_the_same_bytes(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Blocks of 1 to 5 rows, so that instants with several arrivals lie across them; the twin has whole tables in memory."""
    for seed in range(25):
        rng = np.random.default_rng(seed)
        monkeypatch.setattr("harness.tables.parquet.ROW_GROUP", int(rng.integers(1, 6)))
        tables = {name: random_trace(rng, kind) for name in ("x", "y", "z")[:int(rng.integers(1, 4))]}
        paths = dict(zip(tables, saved(tmp_path, **tables), strict=True))
        starts = [float(rng.integers(0, 5)) for _ in tables]
        whole = merge({name: read_trace(path) for name, path in paths.items()}, starts)
        pieces = list(merge_sorted({name: TraceFile(path) for name, path in paths.items()}, starts))
        assert pa.concat_tables(pieces).equals(whole), seed
        write_table(whole, tmp_path / "whole", {"of": "both"})
        write_batches(pieces, tmp_path / "pieces", {"of": "both"})
        assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes(), seed


def test_the_command_merges_what_is_not_sorted_too(capsys, tmp_path: Path):
    paths = saved(tmp_path, x=jobs(submit_time=[20.0, 0.0, 10.0]), y=jobs())
    run(capsys, "merge", *paths, "-o", tmp_path / "m.parquet")
    assert column(read_trace(tmp_path / "m.parquet"), "job_id") == ["x/b", "y/a", "x/c", "y/b", "x/a", "y/c"]


def test_the_command_refuses_equal_names_and_unknown_dates(capsys, tmp_path: Path):
    (path,) = saved(tmp_path, x=jobs())
    assert "--names x,x: must be 2 different names" in refused(capsys, "merge", path, path, "-o", tmp_path / "m.parquet")
    assert "for each file, without /" in refused(capsys, "merge", path, path, "--names", "p,p/q", "-o", tmp_path / "m.parquet")
    assert "does not say the date of its time 0" in refused(capsys, "merge", path, path, "--names", "p,q", "--clock", "calendar", "-o",
                                                            tmp_path / "m.parquet")
    assert "is the file to read" in refused(capsys, "merge", path, "-o", path)
    assert not (tmp_path / "m.parquet").exists()


# scale


def test_scale_thins_and_copies_on_the_same_clock(capsys, tmp_path: Path):
    """2.5 times 1,000 rows: all, all again, and about half again; 4 sd of a binomial of 1,000 at 1/2 are 63."""
    (path,) = saved(tmp_path, r=requests(1_000, 1.0, prefix_hashes=[[i, i + 1] for i in range(1_000)]))
    run(capsys, "scale", path, "--load", 2.5, "--jitter", 10, "--seed", 3, "-o", tmp_path / "s.parquet")
    table = read_trace(tmp_path / "s.parquet")
    assert abs(table.num_rows - 2_500) < 63 and table["arrival_time"].to_numpy().max() <= 999
    layer = np.array([name.count("+") and int(name.split("+")[1]) for name in column(table, "request_id")])
    blocks = [{h for r in table.filter(pa.array(layer == k)).to_pylist() for h in r["prefix_hashes"]} for k in range(3)]
    assert not blocks[0] & blocks[1] and not blocks[1] & blocks[2] and len(blocks[0]) == len(blocks[1]) == 1_001
    assert metadata_of(table)["scale"]["load"] == 2.5
    run(capsys, "scale", path, "--load", 2.5, "--jitter", 10, "--seed", 3, "-o", tmp_path / "again.parquet")
    assert read_trace(tmp_path / "again.parquet").equals(table)
    run(capsys, "scale", path, "--load", 0.25, "-o", tmp_path / "thin.parquet")
    thin = read_trace(tmp_path / "thin.parquet")
    assert abs(thin.num_rows - 250) < 55 and set(column(thin, "request_id")) < set(column(read_trace(path), "request_id"))


def test_clocks_are_squeezed_only_when_asked(capsys, tmp_path: Path):
    (path,) = saved(tmp_path, j=jobs(end_time=[None, 50.0, None]))
    run(capsys, "scale", path, "--squeeze-clock", 2, "-o", tmp_path / "s.parquet")
    table = read_trace(tmp_path / "s.parquet")
    assert column(table, "submit_time") == [0, 5, 10] and column(table, "duration") == [5, 5, 5] and column(table, "end_time")[1] == 45
    run(capsys, "scale", path, "-o", tmp_path / "same.parquet")
    assert read_trace(tmp_path / "same.parquet").equals(read_trace(path))


def test_services_scale_by_their_replicas(capsys, tmp_path: Path):
    services = fill_defaults(pa.table({"service": ["a", "a"], "time": [0.0, 5.0], "replicas": pa.array([2, 5], pa.int32()),
                                       "gpus": pa.array([1, 1], pa.int16())}), SERVICES)
    (path,) = saved(tmp_path, s=services)
    run(capsys, "scale", path, "--load", 1.5, "-o", tmp_path / "t.parquet")
    assert column(read_trace(tmp_path / "t.parquet"), "replicas") == [3, 8]  # 7.5 rounds to the even number


@pytest.mark.parametrize("words, message", [
    (("--load", "0"), "--load 0: must be a number > 0"), (("--load", "nan"), "--load nan: must be"), (("--load", "inf"), "--load inf"),
    (("--jitter", "-1"), "--jitter -1: must be a number >= 0"), (("--squeeze-clock", "0"), "--squeeze-clock 0: must be a number > 0"),
    (("--load", "1e-9"), "no row is left"), (("--seed", "-1", "--load", "2"), "seed=-1"),
])
def test_bad_scales_are_one_line(words: tuple[str, ...], message: str, capsys, tmp_path: Path):
    (path,) = saved(tmp_path, j=jobs())
    err = refused(capsys, "scale", path, *words, "-o", tmp_path / "s.parquet")
    assert message in err and err.count("\n") == 1 and not (tmp_path / "s.parquet").exists()


# validate


def test_validate_finds_every_violation_in_one_pass_with_rows(capsys, tmp_path: Path):
    table = requests().set_column(2, "prompt_tokens", pa.array([0, 5, -1], pa.int32()))
    table = table.set_column(0, "request_id", pa.array(["r", "s", "r"])).set_column(1, "arrival_time", pa.array([0.0, None, -2.0]))
    (path,) = saved(tmp_path, r=table)
    lines = refused(capsys, "validate", path).splitlines()
    found = [line.split(": ", 2)[2].split(":")[0] for line in lines]
    assert found == ["column request_id, row 2", "column arrival_time, row 1", "column arrival_time, row 2",
                     "column prompt_tokens, rows 0, 2 (2 bad rows)"]
