"""The page of describe --html: every kind of trace has one, its pictures say what is true of the trace, and it needs no other file."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from harness.describe import describe, monday_s, prefix_reuse, time_zero
from harness.figures import trace_pictures
from harness.figures.settings import NotDrawn
from harness.schema import JOBS, REQUESTS, SERVICES
from harness.tables import TraceColumns, TraceFile, fill_defaults, read_trace, write_table
from harness.topology import ClusterConfig, ShapeConfig, build
from harness.trace_page import pictures, trace_page
from harness.traces_app import main

CLUSTER = build(ClusterConfig(name="small", groups=[ShapeConfig(servers=2, gpus=4, cores=8)]))
HOUR, DAY = 3600.0, 86400.0


def jobs(times: np.ndarray, **more) -> pa.Table:
    rows = len(times)
    return fill_defaults(pa.table({"job_id": [f"j{i}" for i in range(rows)], "submit_time": times, "duration": np.full(rows, HOUR),
                                   "gpus": pa.array([1, 2] * (rows // 2), pa.int16()), "kind": ["batch", "online"] * (rows // 2)} | more),
                         JOBS)


def requests(times: np.ndarray, **more) -> pa.Table:
    rows = len(times)
    return fill_defaults(pa.table({"request_id": [f"r{i}" for i in range(rows)], "arrival_time": times,
                                   "prompt_tokens": pa.array(np.arange(rows) % 100 + 1, pa.int32()),
                                   "output_tokens": pa.array([10] * rows, pa.int32()), "service": ["a", "b"] * (rows // 2)} | more),
                         REQUESTS)


def services() -> pa.Table:
    replicas, gpus = pa.array([2, 3, 0], pa.int32()), pa.array([1, 2, 1], pa.int16())
    return fill_defaults(pa.table({"service": ["a", "b", "a"], "time": [0.0, 5 * HOUR, 10 * HOUR], "replicas": replicas, "gpus": gpus,
                                   "kind": ["online"] * 3}), SERVICES)


def headline(figure) -> str:
    return figure.texts[0].get_text().replace("\n", " ")


TRACES = {"jobs": jobs(np.arange(200) * 0.3 * HOUR), "requests": requests(np.arange(200.0)), "services": services()}


@pytest.mark.parametrize("kind", TRACES)
@pytest.mark.parametrize("cluster", [None, CLUSTER])
def test_every_kind_has_the_same_page(kind: str, cluster):
    page = trace_page(TRACES[kind], f"{kind}.parquet", cluster)
    assert all(f'id="{part}"' in page for part in ("facts", "figures", "quantiles", "counts"))
    assert all(f'id="{name}"' in page or f"<strong>{name}</strong>" in page for name in ("arrivals", "sizes", "demand", "classes"))
    assert len(re.findall(r'<img src="data:image/(?:svg\+xml|png);base64,', page)) >= 3
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    assert all(re.findall(r'alt="([^"]*)"', page))


def test_the_hours_of_the_page_are_rates_over_the_time_covered():
    """From Friday 22:00, 48 hours, one job every half hour but every 6 minutes from 23 to 24: 10 and 2 an hour; Sat and Sun 2 1/3."""
    every = np.concatenate([np.arange(0, 48, 0.5), [h + m / 10 for h in (1, 25) for m in range(1, 10) if m != 5]]) * HOUR
    figure = trace_pictures.by_hour_and_weekday(jobs(np.sort(every)), 4 * DAY + 22 * HOUR)
    left, right = figure.axes
    heights = [bar.get_height() for bar in left.patches]
    assert heights[23] == pytest.approx(10, rel=0.02) and heights[3] == pytest.approx(2)
    days = [bar.get_height() for bar in right.patches]
    assert days[4] == pytest.approx(6) and np.isnan(days[0]) and days[5] == pytest.approx(56 / 24)
    assert headline(figure) == "Arrivals peak at 23:00, with 5.0 times those of the quietest hour"
    assert [t.get_text() for t in right.get_xticklabels()][0] == "Mon"
    assert "No calendar" in trace_pictures.by_hour_and_weekday(jobs(np.sort(every)), None).texts[1].get_text()


def test_short_traces_are_shown_by_the_minute():
    figure = trace_pictures.by_hour_and_weekday(requests(np.concatenate([np.arange(120) * 0.5, np.arange(60, 240)])), None)
    assert headline(figure) == "The busiest minute has 120 requests, 1.6 times the mean of 75"  # 120, 60, 60, 60


def test_demand_is_a_time_mean_against_the_capacity():
    """1 GPU in [0, 10), 3 in [5, 15): means over [0, 5), [5, 10), [10, 15), [15, 20) are 1, 4, 3, 0."""
    edges = np.array([0.0, 5, 10, 15, 20])
    assert trace_pictures._time_mean(np.array([0.0, 5, 10, 15]), np.array([1.0, 3, -1, -3]), edges).tolist() == [1, 4, 3, 0]
    figure = trace_pictures.demand(TRACES["jobs"], 8, "small")
    assert "up to" in headline(figure) and any(line.get_ydata()[0] == 8 for line in figure.axes[0].lines)
    never = trace_pictures.demand(TRACES["jobs"], 1_000, "large")
    assert headline(never).endswith("1,000 GPUs of large would be held: it never fills") and not never.axes[0].lines
    with pytest.raises(NotDrawn, match="one instant"):
        trace_pictures.demand(requests(np.zeros(4)), None)


def test_cdfs_end_at_one_and_classes_are_told_apart():
    figure = trace_pictures.cdfs(TRACES["requests"])
    for axes in figure.axes:
        assert [line.get_ydata()[-1] for line in axes.lines] == [1.0, 1.0]
        assert len({line.get_linestyle() for line in axes.lines}) == len({line.get_color() for line in axes.lines}) == 2
    shares = trace_pictures.class_shares(TRACES["jobs"])
    assert headline(shares) in ("Kind batch: 50 % of the jobs, 33 % of the GPU time".replace(" %", "\N{NO-BREAK SPACE}%"),
                                "Kind online: 50 % of the jobs, 67 % of the GPU time".replace(" %", "\N{NO-BREAK SPACE}%"))
    with pytest.raises(NotDrawn, match="one class"):
        trace_pictures.class_shares(requests(np.arange(4.0), service=["a"] * 4))


def test_many_tenants_are_gathered():
    figure = trace_pictures.class_shares(jobs(np.arange(40.0), tenant=[f"t{i % 20}" for i in range(40)], kind=["batch"] * 40))
    labels = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert len(labels) == 7 and labels[-1] == "tenant 14 others"


def test_the_calendar_is_read_from_the_origin(tmp_path: Path):
    def told(line: str) -> pa.Table:
        return jobs(np.arange(4.0)).replace_schema_metadata({"harness": f'{{"report": ["{line}"]}}'})
    assert monday_s(told("time 0 is 2017-09-05 10:30:41 on it")) == (DAY + 10 * HOUR + 30 * 60 + 41, True)  # a Tuesday
    assert str(time_zero(told("time 0 is 2017-09-05 10:30:41 UTC"))) == "2017-09-05 10:30:41"
    assert monday_s(told("time 0 is local midnight of the first day")) == (0.0, False) and monday_s(jobs(np.arange(4.0))) is None


def test_prefix_reuse_counts_leading_blocks_seen_before():
    """0 1 | 0 1 2 | 1: 0 of 2, then 2 of 3, then 1 was seen, so 1 of 1: 3 of 6; a block behind an unseen one does not count."""
    hashes = [[0, 1], [0, 1, 2], [1], None]
    assert prefix_reuse(requests(np.arange(4.0), prefix_hashes=hashes)) == 3 / 6
    assert prefix_reuse(requests(np.arange(4.0), prefix_hashes=[[0], [9, 0], None, None])) == 0


def test_real_mooncake_has_its_published_prefix_hits(shared_traces: Path, tmp_path: Path, capsys):
    words = ["import", "mooncake", str(shared_traces / "mooncake-fast25/conversation_trace.jsonl"), "-o", str(tmp_path / "m.parquet")]
    assert main(words) == 0 and main(["describe", str(tmp_path / "m.parquet")]) == 0
    assert re.search(r"prefix_blocks_seen_before +0\.366", capsys.readouterr().out)  # SOURCE.md: 36.6 %


def test_the_command_writes_the_page(capsys, tmp_path: Path):
    write_table(TRACES["jobs"], tmp_path / "t.parquet", {"report": ["time 0 is 2017-09-05 10:30:41 on it", "a < b"]})
    assert main(["describe", str(tmp_path / "t.parquet"), "--cluster", "flat", "--html", str(tmp_path / "t.html")]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path}/t.html\n"
    page = (tmp_path / "t.html").read_text()
    assert "t.parquet: 200 jobs" in page and "a &lt; b" in page
    assert main(["describe", str(tmp_path / "t.parquet"), "--html", str(tmp_path / "t.parquet")]) == 2
    write_table(TRACES["jobs"].slice(0, 0), tmp_path / "empty.parquet")
    assert main(["describe", str(tmp_path / "empty.parquet"), "--html", str(tmp_path / "e.html")]) == 2
    assert not (tmp_path / "e.html").exists()


def test_pictures_are_the_same_bytes_every_time():
    first, second = (pictures(TRACES["services"], CLUSTER)[0] for _ in range(2))
    assert [one.svg for one in first] == [one.svg for one in second]


@pytest.mark.parametrize("kind", ["jobs", "requests"])
def test_a_column_at_a_time_gives_the_same_page(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In blocks of 7 rows; columns whose defaults are not in the file, nulls, counted texts beyond the schema."""
    monkeypatch.setattr("harness.tables.parquet.ROW_GROUP", 7)
    full = TRACES[kind].append_column("state", pa.array([None, "done", "failed", "done"] * 50))
    kept = ("job_id", "submit_time", "duration", "gpus", "kind", "request_id", "arrival_time", "prompt_tokens", "output_tokens", "state")
    tenants = pa.array([None, "a", "", "b", "a"] * 40)
    for table in (full.select([name for name in full.column_names if name in kept]), full.set_column(
            full.column_names.index("tenant"), "tenant", tenants)):
        write_table(table, tmp_path / "t.parquet", {"report": ["time 0 is 2017-09-05 10:30:41"]})
        whole, columns = read_trace(tmp_path / "t.parquet"), TraceColumns(TraceFile(tmp_path / "t.parquet"))
        assert describe(columns, CLUSTER) == describe(whole, CLUSTER)
        assert trace_page(columns, "t", CLUSTER) == trace_page(whole, "t", CLUSTER)
        assert all(columns[name].cast(whole[name].type).combine_chunks() == whole[name].combine_chunks() for name in whole.column_names)


def test_no_column_is_read_again_for_every_row(tmp_path: Path):
    class Counted(TraceColumns):
        reads: list[str] = []

        def __getitem__(self, name: str) -> pa.ChunkedArray:
            self.reads.append(name)
            return super().__getitem__(name)

    write_table(requests(np.arange(200.0), prefix_hashes=[[row // 2] for row in range(200)]), tmp_path / "t.parquet")
    columns = Counted(TraceFile(tmp_path / "t.parquet"))
    assert describe(columns)["prefix_blocks_seen_before"] == 0.5 and len(columns.reads) < 20


def test_describe_gives_burstiness_for_any_kind():
    for table in TRACES.values():
        assert {"gap_cv", "count_cv", "dispersion", "autocorrelation_1"} <= set(describe(table)["arrivals"])
