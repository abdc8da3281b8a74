"""Services against a stack, recorded traces step by step, the public traces through their YAML, and what traces/ holds."""

import json
from collections import Counter
from dataclasses import fields
from math import sqrt
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml

from harness import readers, workload
from harness.errors import BadInput
from harness.schema import JOBS, REQUESTS, SERVICES, names
from harness.tables import fill_defaults, read_trace, validate, write_table
from harness.workload import embedded
from harness.workload.services import expand
from workload_helpers import CONF, SD, column, of_kind, servers

# services


def services_table(rows: list[tuple[str, float, int]], **columns: Any) -> pa.Table:
    table = pa.table({"service": [r[0] for r in rows], "time": [float(r[1]) for r in rows],
                      "replicas": pa.array([r[2] for r in rows], pa.int32()), "gpus": pa.array([1] * len(rows), pa.int16())})
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return fill_defaults(table, SERVICES)


def test_scale_in_ends_the_newest_replica():
    # At 10 two replicas, at 20 a third with 4 GPUs, at 30 back to one: replicas 2 and 1 end. At 40 a new one, until the end, 50.
    table = services_table([("a", 10, 2), ("a", 20, 3), ("a", 30, 1), ("a", 40, 2), ("b", 50, 0)])
    table = table.set_column(table.column_names.index("gpus"), "gpus", pa.array([1, 4, 1, 2, 1], pa.int16()))
    jobs = expand(table)
    assert jobs.select(["job_id", "submit_time", "end_time", "duration", "gpus"]).to_pylist() == [
        {"job_id": "a-0", "submit_time": 10, "end_time": 50, "duration": 40, "gpus": 1},
        {"job_id": "a-1", "submit_time": 10, "end_time": 30, "duration": 20, "gpus": 1},
        {"job_id": "a-2", "submit_time": 20, "end_time": 30, "duration": 10, "gpus": 4},
        {"job_id": "a-3", "submit_time": 40, "end_time": 50, "duration": 10, "gpus": 2},
    ]
    assert validate(jobs, JOBS, "services") == []


def test_the_last_row_of_an_instant_counts_and_the_end_can_be_given():
    table = services_table([("a", 0, 5), ("a", 0, 1), ("b", 3, 2), ("a", 8, 4)], note=["p", "q", "r", "s"])
    jobs = expand(table, 5.0)
    assert [(j["job_id"], j["submit_time"], j["end_time"], j["note"], j["service"]) for j in jobs.to_pylist()] == [
        ("a-0", 0, 5, "q", "a"), ("b-0", 3, 5, "r", "b"), ("b-1", 3, 5, "r", "b")]
    assert jobs.column_names == [*names(JOBS), "service", "note"]


def test_a_services_trace_of_one_instant_needs_an_end():
    table = services_table([("a", 4, 2)])
    with pytest.raises(BadInput, match="services_end_s"):
        expand(table)
    assert expand(table, 9.0).num_rows == 2


def stack_twin(rows: list[tuple[str, float, int]], end: float) -> list[tuple[str, float, float]]:
    """Replicas kept on a stack per service, in plain Python: sorted (service, submit, end)."""
    last = {}
    for service, time, replicas in rows:
        last[service, time] = replicas
    done, stacks = [], {}
    for (service, time), replicas in sorted(last.items(), key=lambda item: item[0][1]):
        stack = stacks.setdefault(service, [])
        if time >= end:
            continue
        while len(stack) > replicas:
            done.append((service, stack.pop(), time))
        while len(stack) < replicas:
            stack.append(time)
    return sorted(done + [(s, t, end) for s, stack in stacks.items() for t in stack])


@pytest.mark.parametrize("seed", range(50))
def test_expansion_equals_a_stack(seed: int):
    rng = Random(seed)
    rows = [(rng.choice("abc"), float(rng.randrange(12)), rng.randrange(6)) for _ in range(rng.randrange(1, 25))]
    end = rng.choice([float(max(t for _, t, _ in rows)), 6.0, 15.0])
    expected = stack_twin(rows, end)
    if not expected:
        with pytest.raises(BadInput):
            expand(services_table(rows), end)
        return
    jobs = expand(services_table(rows), end)
    found = zip(*(jobs[c].to_pylist() for c in ("service", "submit_time", "end_time")), strict=True)
    assert sorted(found) == expected
    assert len(set(jobs["job_id"].to_pylist())) == jobs.num_rows


# trace


@pytest.fixture
def jobs_file(tmp_path: Path) -> Path:
    """1,000 jobs, one each 10 s, in descending order of time, with a class and an end_time on every fourth."""
    time = np.arange(1000.0)[::-1] * 10
    table = pa.table({
        "job_id": [f"j{int(t // 10)}" for t in time], "submit_time": time, "duration": np.full(1000, 5.0),
        "end_time": pa.array([t + 50 if t % 40 == 0 else None for t in time], pa.float64()),
        "gpus": pa.array(np.arange(1000) % 4, pa.int16()), "qos": [["LS", "BE", None][i % 3] for i in range(1000)],
    })
    write_table(table, tmp_path / "jobs.parquet")
    return tmp_path / "jobs.parquet"


def load(path: Path, seed: int = 0, **given: Any) -> pa.Table:
    table = workload.load("trace", {"path": str(path), **given}, servers(1), seed)
    assert (np.diff(column(table, "submit_time" if "job_id" in table.column_names else "arrival_time")) >= 0).all()
    return table


def test_a_trace_passes_unchanged_but_for_its_order(jobs_file: Path):
    read = read_trace(jobs_file)
    assert load(jobs_file).equals(read.take(pa.array(np.arange(1000)[::-1])).combine_chunks())
    assert load(jobs_file).column_names == [*names(JOBS), "qos"]


def test_a_relative_path_starts_at_the_working_directory(jobs_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(jobs_file.parent)
    assert load(Path("jobs.parquet")).num_rows == 1000
    with pytest.raises(BadInput, match="nowhere.parquet"):
        load(Path("nowhere.parquet"))


def test_cutting_by_time_number_and_condition(jobs_file: Path):
    assert load(jobs_file, start_s=100.0, end_s=200.0)["job_id"].to_pylist() == [f"j{i}" for i in range(10, 20)]
    assert load(jobs_file, start_s=101.0, first=2)["job_id"].to_pylist() == ["j11", "j12"]
    ls = load(jobs_file, where={"qos": "LS"})
    assert set(ls["qos"].to_pylist()) == {"LS"} and ls.num_rows == 334
    with pytest.raises(BadInput, match="no row is left.*0 to 9990 s"):
        load(jobs_file, start_s=1e6)
    with pytest.raises(BadInput, match="no row meets"):
        load(jobs_file, where={"qos": "XX"})


def test_moving_to_zero_and_squeezing_the_clock_keep_durations_and_stays(jobs_file: Path):
    moved = load(jobs_file, start_s=1000.0, shift_to_zero=True)
    assert moved["submit_time"][0].as_py() == 0 and moved["job_id"][0].as_py() == "j100"
    squeezed = load(jobs_file, time_scale=0.25)
    assert np.array_equal(column(squeezed, "submit_time"), column(load(jobs_file), "submit_time") / 4)
    for table in (moved, squeezed):
        stays = pc.drop_null(pc.subtract(table["end_time"], table["submit_time"])).to_pylist()
        assert set(stays) == {50.0} and set(table["duration"].to_pylist()) == {5.0}


def test_thinning_keeps_a_seeded_share(jobs_file: Path):
    whole, thin = load(jobs_file), load(jobs_file, load_scale=0.3)
    assert thin.num_rows == pytest.approx(300, abs=SD * sqrt(1000 * 0.3 * 0.7))
    assert thin.equals(whole.filter(pc.is_in(whole["job_id"], value_set=thin["job_id"].combine_chunks())).combine_chunks())
    assert thin.equals(load(jobs_file, load_scale=0.3)) and not thin.equals(load(jobs_file, seed=1, load_scale=0.3))
    assert set(thin["job_id"].to_pylist()) < set(load(jobs_file, load_scale=0.6)["job_id"].to_pylist())


def test_superposition_adds_jittered_copies(jobs_file: Path):
    table = load(jobs_file, load_scale=3.4, jitter_s=500.0)
    counts = Counter(column_id.split("+")[-1] if "+" in column_id else "" for column_id in table["job_id"].to_pylist())
    assert counts[""] == counts["1"] == counts["2"] == 1000
    assert counts["3"] == pytest.approx(400, abs=SD * sqrt(1000 * 0.4 * 0.6))
    assert len(set(table["job_id"].to_pylist())) == table.num_rows
    rows = {row["job_id"]: row for row in table.to_pylist()}
    originals = {row["job_id"]: row for row in load(jobs_file).to_pylist()}
    late = []
    for name, row in rows.items():
        original = originals[name.split("+")[0]]
        late.append((row["submit_time"] - original["submit_time"]) % 9990)
        assert row["end_time"] is None or row["end_time"] - row["submit_time"] == pytest.approx(50)
        assert row["gpus"] == original["gpus"] and 0 <= row["submit_time"] <= 9990
    copies = np.array(late)[["+" in name for name in rows]]
    assert copies.max() <= 500.001
    assert copies.mean() == pytest.approx(250, abs=SD * 500 / sqrt(12 * len(copies)))


def test_scaling_to_a_whole_number_draws_no_rows_and_by_1_nothing(jobs_file: Path):
    assert load(jobs_file, load_scale=2.0).num_rows == 2000
    assert load(jobs_file, load_scale=1.0).equals(load(jobs_file))
    twins = load(jobs_file, load_scale=2.0, jitter_s=0.0)
    assert np.array_equal(column(twins, "submit_time")[::2], column(twins, "submit_time")[1::2])


def test_copies_of_names_with_a_plus_stay_unique(tmp_path: Path):
    table = pa.table({"job_id": ["a", "a+1"], "submit_time": [0.0, 1.0], "duration": [1.0, 1.0],
                      "gpus": pa.array([1, 1], pa.int16())})
    write_table(table, tmp_path / "t.parquet")
    assert len(set(load(tmp_path / "t.parquet", load_scale=2.0)["job_id"].to_pylist())) == 4


def test_rules_set_classes_in_turn(jobs_file: Path):
    table = load(jobs_file, map=[
        {"set": {"priority": 1}},
        {"where": {"qos": ["BE"]}, "set": {"priority": 0, "preemptible": True, "checkpoint_interval_s": 60}},
        {"where": {"qos": None}, "set": {"kind": "training"}},
        {"where": {"gpus": {"min": 2, "max": 3}, "priority": 1}, "set": {"affinity": "guaranteed"}},
    ])
    for row in table.to_pylist():
        evictable = row["qos"] == "BE"
        assert (row["priority"], row["preemptible"]) == ((0, True) if evictable else (1, False))
        assert row["checkpoint_interval_s"] == (60 if evictable else None)
        assert row["kind"] == ("training" if row["qos"] is None else "batch")
        assert row["affinity"] == ("guaranteed" if row["gpus"] >= 2 and not evictable else "none")
    assert [f.type for f in table.schema][: len(JOBS)] == [c.type for c in JOBS]


def test_a_rule_can_take_a_seeded_share(jobs_file: Path):
    rule = {"where": {"qos": "LS"}, "share": 0.25, "set": {"priority": 9}}
    table = load(jobs_file, map=[rule])
    chosen = table.filter(pc.equal(table["priority"], 9))
    assert set(chosen["qos"].to_pylist()) == {"LS"}
    assert chosen.num_rows == pytest.approx(334 / 4, abs=SD * sqrt(334 * 3 / 16))
    assert table.equals(load(jobs_file, map=[rule])) and not table.equals(load(jobs_file, seed=1, map=[rule]))


@pytest.mark.parametrize("given, words", [
    ({"map": [{"where": {"qos": "BE"}}]}, ("workload.map[0]", "sets at least one")),
    ({"map": [{"set": {"priority": 1}, "when": {}}]}, ("workload.map[0]", "where, set and share")),
    ({"map": [{"set": {"priority": 1}}, {"where": {"qoz": "BE"}, "set": {"kind": "batch"}}]}, ("workload.map[1].where", "qoz")),
    ({"map": [{"set": {"priority": "high"}}]}, ("workload.map[0].set.priority=high", "int32")),
    ({"map": [{"set": {"priority": None}}]}, ("workload.map[0].set.priority", "null")),
    ({"map": [{"set": {"kind": "web"}}]}, ("workload.map[0].set.kind=web", "online")),
    ({"map": [{"set": {"duration": 0}}]}, ("workload.map[0].set.duration=0", "> 0")),
    ({"map": [{"set": {"job_id": "x"}}]}, ("workload.map[0].set.job_id", "priority")),
    ({"map": [{"set": {"qos": "x"}}]}, ("workload.map[0].set.qos", "priority")),
    ({"map": [{"set": {"priority": 1}, "share": 2}]}, ("workload.map[0].share=2", "<= 1")),
    ({"map": [{"set": {"gpu_milli": 500}}]}, ("workload.map", "gpu_milli")),
    ({"map": [3]}, ("workload.map[0]=3", "mapping")),
    ({"where": {"qos": 12e3}}, ("workload.where.qos=12000.0", "quotes")),
    ({"where": {"gpus": {"above": 1}}}, ("workload.where.gpus", "min")),
    ({"where": {"gpus": 1.5}}, ("workload.where.gpus=1.5", "int16")),
    ({"where": {"gpus": {"min": "x"}}}, ("workload.where.gpus.min=x", "int16")),
    ({"load_scale": 0}, ("workload.load_scale=0", "> 0")),
    ({"load_scale": 1e-9}, ("workload.load_scale", "no row is left")),
    ({"first": 0}, ("workload.first=0", ">= 1")),
    ({"time_scale": -1}, ("workload.time_scale=-1", "> 0")),
])
def test_bad_steps_give_one_line(jobs_file: Path, given: dict[str, Any], words: tuple[str, ...]):
    with pytest.raises(BadInput) as error:
        load(jobs_file, **given)
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_services_are_expanded_and_requests_stay_requests(tmp_path: Path):
    write_table(services_table([("a", 0, 2), ("a", 10, 1)]), tmp_path / "s.parquet")
    jobs = load(tmp_path / "s.parquet", services_end_s=30.0, map=[{"set": {"kind": "online"}}])
    assert list(zip(*(jobs[c].to_pylist() for c in ("submit_time", "end_time", "kind")), strict=True)) == [
        (0, 30, "online"), (0, 10, "online")]
    tokens = pa.array([1, 2, 3], pa.int32())
    requests = pa.table({"request_id": ["x", "y", "z"], "arrival_time": [5.0, 3.0, 9.0], "prompt_tokens": tokens,
                         "output_tokens": tokens})
    write_table(requests, tmp_path / "r.parquet")
    table = load(tmp_path / "r.parquet", first=2, shift_to_zero=True, load_scale=2.0, jitter_s=0.0,
                 map=[{"set": {"ttft_slo_s": 1.0}}])
    assert table.column_names == names(REQUESTS)
    assert Counter(table["request_id"].to_pylist()) == Counter(["y", "x", "y+1", "x+1"])
    assert set(table["ttft_slo_s"].to_pylist()) == {1.0} and table["arrival_time"][0].as_py() == 0


# The public traces, through their YAML


def composed(name: str) -> dict[str, Any]:
    """A YAML laid over trace.yaml, as Hydra's defaults list does it."""
    section = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    assert section.pop("defaults") == ["trace", "_self_"]
    return {**yaml.safe_load((CONF / "trace.yaml").read_text()), **section}


@pytest.mark.parametrize("name", sorted(f.stem for f in CONF.glob("*.yaml") if "defaults" in yaml.safe_load(f.read_text())))
def test_a_composition_sets_known_parameters(name: str):
    section = composed(name)
    assert workload.parameters(section["generator"], section).path == f"traces/imported/{name}.parquet"


def imported(name: str, source: Path, folder: Path) -> dict[str, Any]:
    reader = readers.reader(name)
    spool, _ = reader.read([source], reader.Options())
    write_table(spool.table(), folder / "t.parquet")
    return {"path": str(folder / "t.parquet")}


def test_openb_gets_the_paper_s_priorities(shared_traces: Path, tmp_path: Path):
    path = imported("alibaba-openb", shared_traces / "alibaba-openb-v2023/openb_pod_list_default.csv", tmp_path)
    table = workload.load("trace", composed("openb") | path, servers(10), 0)
    # 8,152 pods, of which 897 never ran and 19 come before day 110 (SOURCE.md: "around").
    assert table.num_rows == pytest.approx(8152 - 897 - 19, abs=5)
    assert table["submit_time"][0].as_py() == 0
    classes = {(r["qos"], r["priority"], r["preemptible"], r["kind"]) for r in table.to_pylist()}
    assert classes == {("LS", 80, False, "online"), ("Guaranteed", 80, False, "online"), ("Burstable", 60, False, "batch"),
                       ("BE", 0, True, "batch")}
    assert set(table.filter(pc.less(table["gpu_milli"], 1000))["affinity"].to_pylist()) == {"none"}


def test_philly_gets_a_seeded_online_share(shared_traces: Path, tmp_path: Path):
    path = imported("philly", shared_traces / "philly/philly.csv.gz", tmp_path)
    table = workload.load("trace", composed("philly") | path, servers(10), 0)
    assert table.num_rows == 82247
    small = 76627 + 1818
    online = of_kind(table, "online")
    assert online.num_rows == pytest.approx(small / 5, abs=SD * sqrt(small * 0.16))
    assert column(online, "gpus").max() == 2 and online["checkpoint_interval_s"].null_count == online.num_rows
    gangs = workload.load("trace", composed("philly") | path | {"where": {"tenant": "ee9e8c"}}, servers(10), 0)
    assert gangs.num_rows == 1511 and set(gangs["tenant"].to_pylist()) == {"ee9e8c"}


# traces/


def test_the_embedded_traces_are_as_their_generators_make_them():
    assert embedded.check() == []
    for trace in embedded.EMBEDDED:
        assert (embedded.FOLDER / trace.file).stat().st_size < 500_000
        assert validate(read_trace(embedded.FOLDER / trace.file), JOBS, trace.file) == []


def test_writing_them_again_gives_the_same_rows_and_leaves_them_alone_the_second_time(tmp_path: Path):
    assert embedded.write(tmp_path) == [*(t.file for t in embedded.EMBEDDED), embedded.MANIFEST]
    assert embedded.write(tmp_path) == []
    for trace in embedded.EMBEDDED:
        assert read_trace(tmp_path / trace.file).equals(read_trace(embedded.FOLDER / trace.file))


def test_a_changed_missing_or_foreign_file_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert embedded.main(["--check", "--folder", str(tmp_path)]) == 1
    assert embedded.main(["--folder", str(tmp_path)]) == 0
    assert embedded.main(["--check", "--folder", str(tmp_path)]) == 0
    capsys.readouterr()
    first, second = (tmp_path / t.file for t in embedded.EMBEDDED)
    write_table(read_trace(first).slice(1), first)
    second.unlink()
    manifest = json.loads((tmp_path / embedded.MANIFEST).read_text())
    manifest["traces"].append({"file": "other.parquet"})
    (tmp_path / embedded.MANIFEST).write_text(json.dumps(manifest))
    assert embedded.main(["--check", "--folder", str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["other.parquet", first.name, second.name]
    assert embedded.main(["--folder", str(tmp_path)]) == 0 and embedded.check(tmp_path) == []


def test_the_manifest_holds_every_parameter():
    for entry in json.loads((embedded.FOLDER / embedded.MANIFEST).read_text())["traces"]:
        name = entry["generator"].rsplit(".", 1)[1]
        workload.parameters(name, entry["parameters"])
        assert list(entry["parameters"]) == [f.name for f in fields(workload.generators()[name].Params)]
