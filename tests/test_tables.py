"""Traces on disk: what is accepted, what is cast, what each violation says, and that files are whole or absent."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import BadInput
from harness.schema import JOBS, REQUESTS, SERVICES, TRACES, Table, names
from harness.tables import (
    cut,
    fill_defaults,
    kind_of,
    metadata_of,
    read_parquet,
    read_trace,
    seems,
    validate,
    write_atomically,
    write_table,
)

ROWS = 8


def jobs(**columns) -> pa.Table:
    """A sound jobs table of ROWS rows; ``columns`` replace or add columns, None takes one away."""
    plain = {
        "job_id": [f"j{i}" for i in range(ROWS)],
        "submit_time": np.arange(ROWS, dtype=np.float64),
        "duration": np.full(ROWS, 10.0),
        "gpus": pa.array([1] * ROWS, pa.int16()),
    } | columns
    return pa.table({name: values for name, values in plain.items() if values is not None})


def services(**columns) -> pa.Table:
    plain = {"service": ["a", "b"], "time": [0.0, 1.0], "replicas": [1, 2], "gpus": [1, 1]} | columns
    return pa.table(plain)


def requests(**columns) -> pa.Table:
    plain = {"request_id": ["a", "b"], "arrival_time": [0.0, 1.0], "prompt_tokens": [1, 2], "output_tokens": [1, 1]} | columns
    return pa.table(plain)


def violation(table: pa.Table, table_schema: Table = JOBS) -> str:
    """The only violation of ``table``."""
    found = validate(table, table_schema, "t")
    assert len(found) == 1, found
    return found[0]


def with_value(value, kind=None, row: int = 3, fill=1) -> pa.Array:
    values = [fill] * ROWS
    values[row] = value
    return pa.array(values, kind)


@pytest.mark.parametrize("build, kind", [(jobs, "jobs"), (services, "services"), (requests, "requests")])
def test_a_sound_trace_comes_back_with_its_defaults(build, kind: str, tmp_path: Path):
    write_table(build(extra=[["x"]] * build().num_rows), tmp_path / "t.parquet")
    table = read_trace(tmp_path / "t.parquet")
    _, table_schema = TRACES[kind]
    assert kind_of(table, "t") == kind
    assert table.column_names == [*names(table_schema), "extra"]
    assert [table.schema.field(c.name).type for c in table_schema] == [c.type for c in table_schema]
    assert validate(table, table_schema, "t") == []


def test_defaults_are_those_of_the_schema():
    row = fill_defaults(jobs(duration=np.arange(1.0, ROWS + 1)), JOBS).slice(4, 1).to_pylist()[0]
    assert row == {
        "job_id": "j4",
        "submit_time": 4.0,
        "duration": 5.0,
        "duration_estimate_s": 5.0,
        "end_time": None,
        "instances": 1,
        "gpus": 1,
        "gpu_milli": 1000,
        "cpus": 0.0,
        "memory_mib": 0,
        "priority": 0,
        "preemptible": False,
        "affinity": "none",
        "affinity_domain": "auto",
        "gpu_model": None,
        "kind": "batch",
        "tenant": "",
        "checkpoint_interval_s": None,
        "restart_cost_s": 0.0,
        "network_domain": "none",
        "network_mode": "none",
    }


def test_a_default_cannot_stand_for_a_required_column():
    with pytest.raises(BadInput, match="column duration: missing"):
        fill_defaults(jobs(duration=None), JOBS)


def test_columns_in_another_order_come_back_in_schema_order_and_unknown_ones_behind():
    table = jobs(zebra=[1] * ROWS, priority=pa.array([5] * ROWS, pa.int32()), ant=[2] * ROWS)
    shuffled = table.select(list(reversed(table.column_names)))
    assert fill_defaults(shuffled, JOBS).column_names == [*names(JOBS), "ant", "zebra"]


@pytest.mark.parametrize(
    "name, values, expected",
    [
        ("gpus", pa.array([2] * ROWS, pa.int64()), pa.array([2] * ROWS, pa.int16())),
        ("gpus", pa.array([2] * ROWS, pa.uint8()), pa.array([2] * ROWS, pa.int16())),
        ("gpus", pa.array([2.0] * ROWS), pa.array([2] * ROWS, pa.int16())),
        ("memory_mib", pa.array([2.0**40] * ROWS), pa.array([2**40] * ROWS, pa.int64())),
        ("submit_time", pa.array(range(ROWS), pa.int32()), pa.array(np.arange(ROWS, dtype=float))),
        ("submit_time", pa.array(range(ROWS), pa.uint64()), pa.array(np.arange(ROWS, dtype=float))),
        ("duration", pa.array([1.5] * ROWS, pa.float32()), pa.array([1.5] * ROWS)),
        ("kind", pa.array(["online"] * ROWS, pa.large_string()), pa.array(["online"] * ROWS)),
        ("kind", pa.array(["online"] * ROWS, pa.string_view()), pa.array(["online"] * ROWS)),
        ("kind", pa.array(["online"] * ROWS).dictionary_encode(), pa.array(["online"] * ROWS)),
        ("gpu_model", pa.nulls(ROWS), pa.nulls(ROWS, pa.string())),
    ],
)
def test_a_type_is_cast_where_nothing_is_lost(name: str, values: pa.Array, expected: pa.Array, tmp_path: Path):
    table = jobs(**{name: values})
    assert validate(table, JOBS, "t") == []
    write_table(table, tmp_path / "t.parquet")
    assert read_trace(tmp_path / "t.parquet")[name].combine_chunks().to_pylist() == expected.to_pylist()
    assert read_trace(tmp_path / "t.parquet")[name].type == expected.type


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)])
def test_lists_of_hashes_are_cast(kind: pa.DataType):
    assert validate(requests(prefix_hashes=pa.array([[1, 2], [3, 4]], kind)), REQUESTS, "t") == []


@pytest.mark.parametrize(
    "columns, words",
    [
        ({"duration": None}, "t: column duration: missing, must be there as a finite number > 0 (s)"),
        ({"job_id": list(range(ROWS))}, "t: column job_id: has type int64, must be string: a unique string"),
        ({"submit_time": ["1"] * ROWS}, "t: column submit_time: has type string, must be float64: a finite number >= 0 (s)"),
        ({"preemptible": [1] * ROWS}, "t: column preemptible: has type int64, must be bool: true or false"),
        ({"gpus": [True] * ROWS}, "t: column gpus: has type bool, must be int16: a whole number >= 0 and <= 32767 (GPUs)"),
        (
            {"duration": with_value(-1.0, fill=1.0)},
            "t: column duration, row 3: -1.0 is negative, must be a finite number > 0 (s)",
        ),
        ({"duration": with_value(0.0, fill=1.0)}, "t: column duration, row 3: 0.0 is out of range"),
        ({"duration": with_value(np.nan, fill=1.0)}, "t: column duration, row 3: nan is not finite"),
        ({"submit_time": with_value(np.inf, fill=1.0)}, "t: column submit_time, row 3: inf is not finite"),
        ({"submit_time": with_value(None, fill=1.0)}, "t: column submit_time, row 3: null, must be a finite number >= 0 (s)"),
        ({"submit_time": with_value(2**60)}, f"t: column submit_time, row 3: {2**60} is too large to be exact"),
        ({"end_time": with_value(np.nan, fill=100.0)}, "t: column end_time, row 3: nan is not finite"),
        (
            {"gpus": with_value(40_000)},
            "t: column gpus, row 3: 40000 does not fit int16, must be a whole number >= 0 and <= 32767",
        ),
        ({"gpus": with_value(-1)}, "t: column gpus, row 3: -1 is negative"),
        ({"gpus": with_value(1.5, fill=1.0)}, "t: column gpus, row 3: 1.5 is not a whole number"),
        ({"gpus": with_value(np.nan, fill=1.0)}, "t: column gpus, row 3: nan is not a whole number"),
        ({"gpus": with_value(np.inf, fill=1.0)}, "t: column gpus, row 3: inf does not fit int16"),
        ({"instances": with_value(2**31)}, "t: column instances, row 3: 2147483648 does not fit int32"),
        ({"instances": with_value(0)}, "t: column instances, row 3: 0 is out of range, must be a whole number >= 1"),
        ({"memory_mib": with_value(2**63, pa.uint64())}, "t: column memory_mib, row 3: 9223372036854775808 does not fit int64"),
        ({"memory_mib": with_value(2**62)}, "t: column memory_mib, row 3: 4611686018427387904 is too large to be counted"),
        ({"cpus": with_value(1e300, fill=1.0)}, "t: column cpus, row 3: 1e+300 is too large to be counted"),
        (
            {"gpu_milli": with_value(0, fill=1000)},
            "t: column gpu_milli, row 3: 0 is out of range, must be a whole number >= 1 and <= 1000",
        ),
        ({"gpu_milli": with_value(1001, fill=1000)}, "t: column gpu_milli, row 3: 1001 is out of range"),
        (
            {"gpus": [2] * ROWS, "gpu_milli": with_value(500, fill=1000)},
            "t: column gpu_milli, row 3: 500 with gpus = 2, must be 1000 unless gpus = 1",
        ),
        ({"gpus": [0] * ROWS, "gpu_milli": with_value(500, fill=1000)}, "t: column gpu_milli, row 3: 500 with gpus = 0"),
        (
            {"kind": with_value("service", fill="batch")},
            "t: column kind, row 3: 'service' is unknown, must be one of batch, online, training",
        ),
        ({"kind": with_value(None, fill="batch")}, "t: column kind, row 3: null, must be one of batch, online, training"),
        ({"preemptible": with_value(None, fill=True)}, "t: column preemptible, row 3: null, must be true or false"),
        ({"checkpoint_interval_s": with_value(-1.0, fill=None)}, "t: column checkpoint_interval_s, row 3: -1.0 is negative"),
        ({"restart_cost_s": with_value(-1.0, fill=0.0)}, "t: column restart_cost_s, row 3: -1.0 is negative"),
        ({"priority": with_value(None)}, "t: column priority, row 3: null"),
        (
            {"end_time": with_value(3.0, fill=None)},
            "t: column end_time, row 3: 3.0 is not after submit_time 3.0, must be > submit_time or null",
        ),
        (
            {"job_id": ["a", "b", "a", "c", "d", "e", "b", "f"]},
            "t: column job_id, rows 2, 6 (2 bad rows): 'a' was used by an earlier row",
        ),
        (
            {
                "job_id": with_value(None, row=0, fill="x")
                .take(pa.array([0] + list(range(7)), pa.int64()))
                .slice(0, 1)
                .to_pylist()
                + list("abcdefg")
            },
            "t: column job_id, row 0: null, must be a unique string",
        ),
    ],
)
def test_one_violation_is_one_line(columns: dict, words: str):
    assert violation(jobs(**columns)).startswith(words)


def test_only_the_first_five_rows_are_named_and_all_are_counted():
    assert ", rows 0, 1, 2, 3, 4, ... (8 bad rows): -1.0" in violation(jobs(duration=[-1.0] * ROWS))


def test_two_nulls_are_no_duplicate():
    ids = [None, None, *"abcdef"]
    assert "rows 0, 1 (2 bad rows): null" in violation(jobs(job_id=ids))


def test_every_violation_is_found_in_one_pass_and_a_read_names_the_first(tmp_path: Path):
    table = jobs(duration=None, submit_time=[-1.0] * ROWS, gpus=with_value(-2), kind=with_value("x", fill="batch"))
    assert [line.split(":")[1].split(",")[0] for line in validate(table, JOBS, "t")] == [
        " column submit_time",
        " column duration",
        " column gpus",
        " column kind",
    ]
    write_table(table, tmp_path / "t.parquet")
    with pytest.raises(BadInput) as error:
        read_trace(tmp_path / "t.parquet")
    message = str(error.value)
    assert message.count(str(tmp_path)) == 1 and "\n" not in message
    assert (
        "column submit_time" in message
        and "column gpus" in message
        and message.endswith("and 1 more (see `harness-traces validate`)")
    )


def test_a_column_that_is_there_twice_is_refused():
    table = jobs()
    for name in ("gpus", "extra"):
        twice = table.append_column(name, table["gpus"])
        twice = twice.append_column(name, table["gpus"]) if name == "extra" else twice
        assert f"t: column {name}: there 2 times" in violation(twice)


def test_services_and_requests_have_their_rules():
    assert "column replicas, row 1: -1 is negative" in violation(services(replicas=[0, -1]), SERVICES)
    assert "column gpu_milli, row 0: 500 with gpus = 2" in violation(services(gpus=[2, 1], gpu_milli=[500, 500]), SERVICES)
    assert "column prompt_tokens, row 0: 0 is out of range" in violation(requests(prompt_tokens=[0, 1]), REQUESTS)
    assert "column ttft_slo_s, row 1: 0.0 is out of range" in violation(requests(ttft_slo_s=[None, 0.0]), REQUESTS)
    assert "column prefix_hashes, row 1: a list that holds null" in violation(requests(prefix_hashes=[None, [1, None]]), REQUESTS)
    assert "column prefix_hashes: has type list<item: string>" in violation(requests(prefix_hashes=[None, ["a"]]), REQUESTS)


def test_the_kind_is_known_by_its_column():
    assert kind_of(jobs(replicas=[1] * ROWS), "t") == "jobs"
    assert kind_of(requests(replicas=[1, 1]), "t") == "requests"
    with pytest.raises(BadInput, match=r"t: not a trace: needs one of the columns job_id \(jobs\), .*; its columns are a$"):
        kind_of(pa.table({"a": [1]}), "t")


def test_the_kind_can_be_asked_for(tmp_path: Path):
    write_table(jobs(), tmp_path / "t.parquet")
    with pytest.raises(BadInput, match="column request_id: missing"):
        read_trace(tmp_path / "t.parquet", "requests")
    with pytest.raises(BadInput, match="unknown kind of trace 'job'"):
        read_trace(tmp_path / "t.parquet", "job")


def test_an_empty_table_is_a_trace(tmp_path: Path):
    write_table(jobs().slice(0, 0), tmp_path / "t.parquet")
    assert read_trace(tmp_path / "t.parquet").num_rows == 0


def test_many_chunks_are_one_column(tmp_path: Path):
    table = pa.concat_tables([jobs(job_id=[f"{k}-{i}" for i in range(ROWS)]) for k in range(3)])
    assert validate(table, JOBS, "t") == []
    again = pa.concat_tables([jobs(), jobs()])
    assert "rows 8, 9, 10, 11, 12, ... (8 bad rows): 'j0' was used" in violation(again)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "is empty"),
        (b"PAR1", "truncated or corrupt Parquet file"),
        (b"PAR1" + b"\0" * 40 + b"PAR1", "truncated or corrupt Parquet file"),
        (b"job_id,submit_time\na,1\n", "must be a Parquet trace, but seems to be text that begins with 'job_id,submit_time'"),
        (b"<!DOCTYPE html><html>", "seems to be an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "seems to be a Git-LFS pointer"),
        (b"\x1f\x8b\x08\0", "seems to be a gzip file"),
        (b'{"a": 1}', "seems to be JSON"),
    ],
)
def test_what_is_no_parquet_file_is_said(content: bytes, words: str, tmp_path: Path):
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(BadInput, match=words):
        read_trace(tmp_path / "t.parquet")


def test_absent_files_and_folders_are_said(tmp_path: Path):
    with pytest.raises(BadInput, match="no such file"):
        read_trace(tmp_path / "t.parquet")
    with pytest.raises(BadInput, match="is a folder, must be a file"):
        read_trace(tmp_path)
    with pytest.raises(BadInput, match="cannot be read|no such file"):
        read_trace(tmp_path / ("x" * 5000))


@pytest.mark.parametrize(
    "head, words",
    [
        (b"BZh91", "a bz2 file"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\xff\xfea\0", "text in UTF-16"),
        (b"<?xml", "an XML document"),
        (b"a\0b", "a binary file"),
        (b"   \n", "a blank file"),
        (b"kind: FlexTopo", "YAML"),
        (b"\xef\xbb\xbfa,b", "text that begins with"),
    ],
)
def test_other_files_are_recognized(head: bytes, words: str):
    assert seems(head).startswith(words)


def test_a_file_that_was_cut_anywhere_is_refused(tmp_path: Path):
    write_table(fill_defaults(jobs(), JOBS), tmp_path / "t.parquet", {"a": "b"})
    whole = (tmp_path / "t.parquet").read_bytes()
    for length in np.random.default_rng(1).integers(1, len(whole), 40):
        (tmp_path / "cut.parquet").write_bytes(whole[:length])
        with pytest.raises(BadInput):
            read_trace(tmp_path / "cut.parquet")


def test_a_flipped_bit_of_the_data_never_changes_a_value(tmp_path: Path):
    """Each page has a checksum. The footer, which has none, must at least not cause a traceback."""
    write_table(fill_defaults(jobs(), JOBS), tmp_path / "t.parquet", {"a": "b"})
    whole = (tmp_path / "t.parquet").read_bytes()
    sound = read_trace(tmp_path / "t.parquet")
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    rng = np.random.default_rng(1)
    refused = 0
    for at in [*rng.integers(4, footer, 150), *rng.integers(footer, len(whole), 150)]:
        broken = bytearray(whole)
        broken[at] ^= 1 << int(rng.integers(8))
        (tmp_path / "flip.parquet").write_bytes(broken)
        try:
            table = read_trace(tmp_path / "flip.parquet")
        except BadInput as error:
            assert "\n" not in str(error)
            refused += 1
        else:
            assert at >= footer or table.equals(sound), at
    assert refused > 100


def test_equal_tables_are_equal_bytes_and_metadata_travels(tmp_path: Path):
    for name in ("a", "b"):
        write_table(jobs(), tmp_path / name, {"seed": 3, "report": ["x", "y"]})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    table = read_trace(tmp_path / "a")
    assert metadata_of(table) == {"seed": 3, "report": ["x", "y"]}
    assert pq.read_schema(tmp_path / "a").metadata[b"harness"] == b'{"report": ["x", "y"], "seed": 3}'
    write_table(table, tmp_path / "c")
    assert metadata_of(read_parquet(tmp_path / "c")) == {}


def test_foreign_metadata_is_not_ours(tmp_path: Path):
    table = jobs().replace_schema_metadata({b"pandas": b"{}", b"harness": b"[1"})
    pq.write_table(table, tmp_path / "t.parquet")
    assert metadata_of(read_parquet(tmp_path / "t.parquet")) == {}
    assert b"pandas" not in read_parquet(tmp_path / "t.parquet").schema.metadata


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path):
    path = tmp_path / "new" / "t.parquet"
    write_table(jobs(), path)
    before = path.read_bytes()

    def fail(temporary: Path) -> None:
        temporary.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(BadInput, match=r"t.parquet: cannot be written \(.*No space left"):
        write_atomically(path, fail)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["t.parquet"]


@pytest.mark.parametrize("place", ["folder", "file/t.parquet"])
def test_a_place_that_cannot_be_written_is_said(place: str, tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="is a folder|cannot be written"):
        write_table(jobs(), tmp_path / place)


def test_a_cut_keeps_rows_by_time_kind_and_number():
    table = fill_defaults(
        jobs(kind=["batch", "online"] * 4, submit_time=[7.0, 1, 2, 3, 4, 5, 6, 0], end_time=with_value(9.0, fill=None)), JOBS
    )
    assert cut(table, 2.0, 6.0, None, None, False)["job_id"].to_pylist() == ["j2", "j3", "j4", "j5"]
    assert cut(table, 0.0, np.inf, "batch", 2, False)["job_id"].to_pylist() == ["j2", "j4"]
    moved = cut(table, 2.0, 6.0, "online", None, True)
    assert moved.select(["job_id", "submit_time", "end_time"]).to_pylist() == [
        {"job_id": "j3", "submit_time": 1.0, "end_time": 7.0},
        {"job_id": "j5", "submit_time": 3.0, "end_time": None},
    ]
    with pytest.raises(BadInput, match="requests have no kind"):
        cut(requests(), 0, 1, "batch", None, False)


def test_a_cut_of_services_begins_with_the_replicas_in_force():
    table = services(service=["a", "a", "b", "a", "b"], time=[0.0, 3, 1, 8, 5], replicas=[1, 2, 3, 4, 5], gpus=[1] * 5)
    part = cut(
        fill_defaults(
            table.cast(
                pa.schema([("service", pa.string()), ("time", pa.float64()), ("replicas", pa.int32()), ("gpus", pa.int16())])
            ),
            SERVICES,
        ),
        5.0,
        9.0,
        None,
        None,
        True,
    )
    assert part.select(["service", "time", "replicas"]).to_pylist() == [
        {"service": "a", "time": 0.0, "replicas": 2},
        {"service": "a", "time": 3.0, "replicas": 4},
        {"service": "b", "time": 0.0, "replicas": 5},
    ]


def test_validation_costs_little_more_than_reading(tmp_path: Path):
    """By processor time, side by side: a loop over rows in Python would take a hundred times as long as the plain read."""
    rows = 1_000_000
    rng = np.random.default_rng(0)
    write_table(
        pa.table(
            {
                "job_id": pa.array([f"job-{i}" for i in range(rows)]),
                "submit_time": np.cumsum(rng.exponential(1.0, rows)),
                "duration": rng.exponential(100.0, rows) + 1.0,
                "gpus": rng.integers(1, 9, rows),
                "kind": pa.array(["batch", "online"] * (rows // 2)),
            }
        ),
        tmp_path / "t.parquet",
    )

    def cost(work: Callable[[], pa.Table]) -> float:
        taken = []
        for _ in range(3):
            start = time.process_time()
            assert work().num_rows == rows
            taken.append(time.process_time() - start)
        return min(taken)

    assert cost(lambda: read_trace(tmp_path / "t.parquet")) < 20 * cost(lambda: pq.read_table(tmp_path / "t.parquet"))
