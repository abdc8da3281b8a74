"""Reading in chunks: sorted runs merged, repeated rows found over all of them, units, and files from nowhere for every format."""

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BadInput
from harness.readers._spool import ROW, Repeats, Spool, hashes, merge
from harness.schema import JOBS
from harness.tables import metadata_of, read_trace, write_batches, write_table
from harness.traces_app import main
from reader_helpers import column, run, written

PACKERS = {"gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zstd": lambda data: pa.compress(data, "zstd", asbytes=True)}
SWF = "; MaxNodes: 2\n; MaxProcs: 4\n 1 0 0 5 1 -1 -1 1 10 -1 1 1 1 -1 1 -1 -1 -1\n 2 3 0 7 2 -1 -1 2 10 -1 1 1 1 -1 1 -1 -1 -1\n"
SACCT = "JobID|Submit|Start|End|State|AllocTRES\n1|1729989600|1729990200|1729991400|COMPLETED|cpu=1,node=1\n"
PODS = """{"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "a", "creationTimestamp": "2026-01-31T12:00:00Z"},
"status": {"phase": "Succeeded", "startTime": "2026-01-31T12:00:00Z", "containerStatuses": [{"state": {"terminated":
{"finishedAt": "2026-01-31T12:01:00Z"}}}]}, "spec": {"containers": [{}]}}]}"""
SPOT = "job_name,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\na,1,1,1,0,10,HP\nb,1,1,1,3,10,Spot\n"
DLRM = ("instance_sn,role,app_name,cpu_request,gpu_request,memory_request,creation_time,scheduled_time,deletion_time\n"
        "a,HN,x,1,1,1,0,0,10\nb,CN,x,1,0,1,,,\n")
MURI = "job_id,num_gpu,submit_time,duration\n0,1,0,60000\n1,8,1000,90000\n"
HELIOS = ("job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time\n"
          "1,u,v,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:51:01\n")
ACME = HELIOS.replace("vc,", "type,")
PHILLY = "timestamp,duration,num_gpus,cluster\n2017-09-05 00:00:00,60,1,a\n2017-09-04 23:00:00,3600,16,b\n"
PODS_CSV = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,12000,16384,1,1000\np1,6500,12288,1,460\n"
SAMPLES = {"swf": SWF, "sacct": SACCT, "kubectl": PODS, "alibaba-spot": SPOT, "alibaba-dlrm": DLRM, "muri": MURI, "helios": HELIOS,
           "acme": ACME, "philly": PHILLY, "alibaba-openb": PODS_CSV}


def rows_of(submit: list[float], run_rows: int) -> Spool:
    """A spool of jobs named by their position, added one by one."""
    spool = Spool(run_rows=run_rows)
    for i, time in enumerate(submit):
        spool.add({"job_id": [str(i)], "submit_time": [time], "duration": [1.0], "gpus": [1]}, np.ones(1, bool), i, "t")
    spool.seal(np.empty(0, np.int64), lambda table: table, "t")
    return spool


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(1, 9))
def test_a_spool_is_a_stable_sort(times: list[int], run_rows: int):
    table = rows_of([float(time) for time in times], run_rows).table()
    assert column(table, "job_id") == [str(i) for i in np.argsort(times, kind="stable")]
    assert "_row" not in table.column_names


@given(st.lists(st.lists(st.integers(0, 4), max_size=12), min_size=1, max_size=5), st.integers(1, 4))
def test_a_merge_gives_every_row_once_in_order(runs: list[list[int]], size: int):
    """Each run is sorted by (key, row) and handed over in batches of ``size``."""
    number, batches, expected = 0, [], []
    for keys in runs:
        rows = list(zip(sorted(keys), range(number, number + len(keys)), strict=True))
        number += len(keys)
        expected += rows
        table = pa.table({"key": pa.array([k for k, _ in rows], pa.float64()), ROW: pa.array([r for _, r in rows], pa.int64())})
        batches.append(iter([table.slice(i, size) for i in range(0, len(rows), size)]))
    given_out = [row for table in merge(batches, "key") for row in zip(column(table, "key"), column(table, ROW), strict=True)]
    assert given_out == sorted(expected)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None]), st.sampled_from([0.5, None])), min_size=1, max_size=30),
       st.integers(1, 7))
def test_repeats_are_found_over_all_chunks(rows: list[tuple], size: int):
    repeats = Repeats()
    for start in range(0, len(rows), size):
        number, word, other = zip(*rows[start:start + size], strict=True)
        repeats.add([pa.array(number), pa.array(word, pa.string()), pa.array(other, pa.float64())])
    again, first = repeats.pairs()
    assert again.tolist() == [i for i, row in enumerate(rows) if row in rows[:i]]
    assert first.tolist() == [rows.index(rows[i]) for i in again]


def test_hashes_tell_columns_apart():
    """The same values in another order of columns, or shared out otherwise over them, are other rows."""
    a, b = pa.array(["x", "y", None, ""]), pa.array(["y", "x", "", None])
    assert not (hashes([a, b]) == hashes([b, a])).any()
    assert len({*hashes([a, b]), *hashes([b, a])}) == 4
    assert (hashes([pa.array([0.0, -0.0])]) == hashes([pa.array([0.0, 0.0])])).all()


def test_batches_are_written_as_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The same bytes as write_table gives of the whole, whatever the batches."""
    monkeypatch.setattr("harness.tables.parquet.ROW_GROUP", 3)
    spool = rows_of([5.0, 3.0, 1.0, 4.0, 2.0, 0.0, 6.0, 7.0], 2)
    assert spool.num_rows == 8
    schema = write_batches(spool.batches(), tmp_path / "a.parquet", {"x": 1})
    write_table(spool.table(), tmp_path / "b.parquet", {"x": 1})
    assert schema.names == spool.table().column_names
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert metadata_of(read_trace(tmp_path / "a.parquet")) == {"x": 1}
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 3


def test_nothing_is_left_where_a_batch_fails(tmp_path: Path):
    def broken():
        yield rows_of([1.0], 1).table()
        raise BadInput("no more")

    with pytest.raises(BadInput, match="no more"):
        write_batches(broken(), tmp_path / "a.parquet", {})
    assert list(tmp_path.iterdir()) == []


def test_runs_on_disk_go_with_the_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spool = rows_of([3.0, 2.0, 1.0], 1)
    assert len(list(tmp_path.glob("*/*.arrow"))) == 3 and spool.table().equals(spool.table())
    del spool
    assert list(tmp_path.iterdir()) == []


def test_a_chunk_later_in_the_file_names_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harness.readers._csv.CHUNK_BYTES", 256)
    rows = "".join(f"2017-09-05 00:00:{i:02},60,1,a\n" for i in range(40))
    head = "timestamp,duration,num_gpus,cluster\n"
    good, _ = run("philly", written(tmp_path, head + rows))
    assert good.num_rows == 40 and column(good, "job_id")[-1] == "philly-39"
    with pytest.raises(BadInput, match=r"file.csv: column duration, row 38: '6O' must be a number"):
        run("philly", written(tmp_path, head + rows.replace("00:38,60", "00:38,6O")))
    with pytest.raises(BadInput, match=r"file.csv, counted from row (\d+): column num_gpus, row (\d+): -1.0") as error:
        run("philly", written(tmp_path, head + rows.replace("00:38,60,1", "00:38,60,-1")))
    first, row = (int(word) for word in __import__("re").search(r"from row (\d+): .*row (\d+):", str(error.value)).groups())
    assert first > 0 and first + row == 38
    with pytest.raises(BadInput, match="line 40 is not text in UTF-8"):
        run("philly", written(tmp_path, (head + rows).replace("00:38,60,1,a", "00:38,60,1,\xe4").encode("latin-1")))
    with pytest.raises(BadInput, match="row 38: 3 fields, must be 4"):
        run("philly", written(tmp_path, head + rows.replace("00:38,60,1,a", "00:38,60,1")))


@pytest.mark.parametrize("name", ["philly", "muri", "sacct"])
def test_unsorted_rows_are_sorted_or_refused(name: str, tmp_path: Path):
    head, first, *_ = SAMPLES[name].splitlines()
    other = {"philly": "2017-09-04 23:00:00,3600,16,b", "muri": "9,1,-0,1000", "sacct": first.replace("1|172998", "2|172988")}[name]
    later = first.replace("0,1,0,", "0,1,5,")
    path = written(tmp_path, "\n".join([head, later, other]))
    table, report = run(name, path)
    assert table.num_rows == 2 and any(line.startswith("not sorted by submission: sorted") for line in report)
    with pytest.raises(BadInput, match="not sorted by submission, must be"):
        run(name, path, unsorted="refuse")
    assert run(name, written(tmp_path, "\n".join([head, other, later])), unsorted="refuse")[0].num_rows == 2


# Files from nowhere, for every format of jobs


@pytest.mark.parametrize("name", SAMPLES)
def test_every_format_reads_its_sample_packed_and_with_a_mark(name: str, tmp_path: Path):
    plain, _ = run(name, written(tmp_path, SAMPLES[name], "a"))
    for pack in PACKERS.values():
        assert run(name, written(tmp_path, pack(SAMPLES[name].encode()), "a"))[0].equals(plain)
    assert run(name, written(tmp_path, "\ufeff" + SAMPLES[name], "a"))[0].equals(plain)
    assert run(name, written(tmp_path, SAMPLES[name].replace("\n", "\r\n"), "a"))[0].equals(plain)
    assert run(name, written(tmp_path, SAMPLES[name].rstrip("\n"), "a"))[0].equals(plain)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("content, words", [
    (b"", "is empty"),
    (b"\n \n", "seems to be a blank file"),
    (b"<!DOCTYPE html><html><body>404</body></html>", "seems to be an HTML page, not the data"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "seems to be a Git-LFS pointer, not the data"),
    (b"PAR1xxxx", "seems to be a Parquet file"),
    (b"PK\x03\x04xxxx", "seems to be a zip archive"),
    (b"\x00\x01\x02\x03", "seems to be a binary file"),
    ("a,b\n1,2\n".encode("utf-16"), "seems to be text in UTF-16"),
    (gzip.compress(b"<html>404</html>", mtime=0), "seems to be an HTML page"),
    (gzip.compress(b"version https://git-lfs.github.com/spec/v1\n", mtime=0), "seems to be a Git-LFS pointer"),
    (gzip.compress(b"", mtime=0), "seems to be an empty file"),
    (gzip.compress(b"x" * 10_000, mtime=0)[:20], "truncated or corrupt gzip file"),
    (b"\x28\xb5\x2f\xfdxxxx", "truncated or corrupt zstd file"),
], ids=lambda value: value.split(",")[0] if isinstance(value, str) else "")
def test_every_format_says_what_a_wrong_file_seems_to_be(name: str, content: bytes, words: str, tmp_path: Path):
    path = written(tmp_path, content)
    with pytest.raises(BadInput, match=words) as error:
        run(name, path)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in ("swf", "kubectl")])
def test_columns_in_any_order_and_quoted_newlines_change_nothing(name: str, tmp_path: Path):
    sign = "|" if name == "sacct" else ","
    plain, _ = run(name, written(tmp_path, SAMPLES[name]))
    rows = [line.split(sign) for line in SAMPLES[name].splitlines()]
    assert run(name, written(tmp_path, "\n".join(sign.join(reversed(row)) for row in rows)))[0].equals(plain)
    if sign == ",":
        noted = "\n".join(sign.join(['"a\nb"' if i else "note", *row]) for i, row in enumerate(rows))
        assert run(name, written(tmp_path, noted))[0].equals(plain)
    for gone in range(len(rows[0])):
        fewer = "\n".join(sign.join(word for i, word in enumerate(row) if i != gone) for row in rows)
        try:
            run(name, written(tmp_path, fewer))
        except BadInput as error:
            assert f"columns missing: {rows[0][gone]}" in str(error) and "\n" not in str(error), error


def scaled(text: str, name: str, factor: float) -> str:
    """``text`` with the numbers of the column ``name`` multiplied."""
    header, *rows = [line.split(",") for line in text.splitlines()]
    at = header.index(name)
    for row in rows:
        row[at] = f"{float(row[at]) * factor:.15g}"
    return "\n".join(",".join(row) for row in [header, *rows])


MANY = {
    "philly": ("timestamp,duration,num_gpus\n" + "2017-09-05 00:00:00,1200,1\n" * 9, "duration"),
    "alibaba-spot": (SPOT.splitlines()[0] + "\n" + "".join(f"j{i},8,1,1,{i},1200,HP\n" for i in range(9)), "duration"),
    "muri": ("job_id,num_gpu,submit_time,duration\n" + "".join(f"{i},1,{i}000,1200000\n" for i in range(9)), "duration"),
}


@pytest.mark.parametrize("name, factor, unit", [("philly", 1000, "ms"), ("alibaba-spot", 1000, "ms"), ("muri", 0.001, "s")])
def test_durations_in_another_unit_are_refused_or_converted(name: str, factor: float, unit: str, tmp_path: Path):
    text, which = MANY[name]
    plain, _ = run(name, written(tmp_path, text))
    other = scaled(text, which, factor)
    other = scaled(other, "submit_time", factor) if "submit_time" in text else other
    path = written(tmp_path, other)
    with pytest.raises(BadInput, match=f"they seem to be in {unit}; --time_unit {unit} converts them"):
        run(name, path)
    assert run(name, path, time_unit=unit)[0].equals(plain)


@pytest.mark.parametrize("name, factor, option, unit", [
    ("cpu_milli", 0.001, "cpu_unit", "cores"), ("memory_mib", 2.0**20, "memory_unit", "bytes"),
    ("memory_mib", 2.0**-10, "memory_unit", "gib"),
])
def test_sizes_in_another_unit_are_refused_or_converted(name: str, factor: float, option: str, unit: str, tmp_path: Path):
    text = PODS_CSV.splitlines()[0] + "\n" + "".join(f"p{i},8000,32768,1,1000\n" for i in range(9))
    plain, _ = run("alibaba-openb", written(tmp_path, text))
    path = written(tmp_path, scaled(text, name, factor))
    with pytest.raises(BadInput, match=f"column {name}: its largest value, .* it seems to be in {unit}; --{option} {unit} converts it"):
        run("alibaba-openb", path)
    assert run("alibaba-openb", path, **{option: unit})[0].equals(plain)
    own = {"cpu_unit": "milli", "memory_unit": "mib"}[option]
    assert run("alibaba-openb", path, **{option: own})[0].num_rows == plain.num_rows


@pytest.mark.parametrize("name", SAMPLES)
def test_the_report_is_printed_and_kept_with_the_trace(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, out = written(tmp_path, SAMPLES[name]), tmp_path / "out.parquet"
    assert main(["import", name, str(path), "-o", str(out)]) == 0
    printed = capsys.readouterr().out.splitlines()
    table = read_trace(out)
    assert printed[-1] == f"wrote {out}: jobs, {table.num_rows:,} rows" and len(printed) > 1
    origin = metadata_of(table)
    assert origin["report"] == printed[:-1] and origin["format"] == name and origin["files"][0]["name"] == "file.csv"
    assert main(["validate", str(out)]) == 0 and set(names for names in (c.name for c in JOBS)) <= set(table.column_names)
