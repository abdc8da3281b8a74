"""Result tables and summary: equal to the naive twin's on random worlds, and to hand-worked cases."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from engine_run import cluster_of, run, trace_of
from harness import schema
from harness.cluster.build import Rules, build_state
from harness.cluster.log import new_log
from harness.cluster.outcome import Outcome
from harness.cluster.state import FINISHED
from harness.errors import BadInput
from harness.metrics import check_identities, jobs_table, preemptions_table, summary, utilization_table
from harness.metrics.utilization import Spans, means
from harness.topology import UNBOUNDED, Cluster, ServerShape
from worlds import literal, world

SEEDS = range(30)
INTEGRALS = {"rel": 1e-12, "abs": 1e-9}
"""The twin and the tables add up the same few hundred float64 terms in different orders."""


def a_job(job_id: str, at: float, duration: float, gpus: int = 1, **columns: Any) -> dict[str, Any]:
    row = {column.name: column.default for column in schema.JOBS}
    row |= {"job_id": job_id, "submit_time": float(at), "duration": float(duration), "duration_estimate_s": float(duration)}
    return row | {"gpus": gpus} | columns


def a_server(gpus: int = 4, numa: int = 1, sockets: int = 1, cores: int = 8, **columns: Any) -> dict[str, Any]:
    return {
        "gpu_model": "A", "memory_mib": 100, "numa_cores": [cores] * numa,
        "numa_socket": [n * sockets // numa for n in range(numa)], "gpu_numa": [i * numa // gpus for i in range(gpus)],
        "nvlink": [], "rack": 0, "spine": 0,
    } | columns


def rows_of(table: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["job_id"]: row for row in table.to_pylist()}


def summary_of(outcome: Outcome, servers: list[dict[str, Any]], warmup_s: float = 0.0) -> dict[str, Any]:
    return summary(outcome, cluster_of(servers), jobs_table(outcome), utilization_table(outcome, warmup_s=warmup_s), warmup_s)


def differences(twin: list[dict[str, Any]], table: pa.Table, apart: tuple[str, ...] = ()) -> list[str]:
    """Where a table says something else than the twin's rows. What the twin lost is summed in another order."""
    rows = table.to_pylist()
    if len(rows) != len(twin):
        return [f"{len(rows)} rows, the twin has {len(twin)}"]
    found = []
    for i, (wanted, row) in enumerate(zip(twin, rows, strict=True)):
        for name in wanted.keys() - set(apart):
            same = row[name] == (pytest.approx(wanted[name], rel=1e-12) if name == "lost_gpu_s" else wanted[name])
            if not same:
                found.append(f"row {i} {name}: {row[name]}, the twin has {wanted[name]}")
    return found


@pytest.mark.parametrize("policy", ["fifo", "priority", "godel", "domain_first"])
def test_tables_equal_those_of_the_twin(policy: str):
    for seed in SEEDS:
        jobs, servers, options = world(seed)
        twin, outcome = naive.replay(jobs, servers, policy, options), run(jobs, servers, policy, options)
        where = f"world {seed}, {policy}\n{literal(jobs, servers, options)}"
        assert (outcome.events, outcome.decisions, outcome.end) == (twin["events"], twin["decisions"], twin["end"]), where
        table = jobs_table(outcome)
        assert differences(twin["jobs"], table, ("reason",)) == [], where
        assert differences(jobs, table) == [], where
        assert [row["reason"] is None for row in table.to_pylist()] == [row["reason"] is None for row in twin["jobs"]], where
        # Only enumeration counts the same sets as the twin; domain_first exists to try fewer.
        apart = ("subsets_tried",) if policy == "domain_first" else ()
        assert differences(twin["preemptions"], preemptions_table(outcome), apart) == [], where
        check_identities(outcome)
        result = summary_of(outcome, servers)
        for name in ("grace_gpu_s", "claim_gpu_s"):
            assert result[name] == pytest.approx(twin[name], **INTEGRALS), where
        utilization = utilization_table(outcome)
        width = utilization["t_end"].to_numpy() - utilization["t_start"].to_numpy()
        assert width @ utilization["gpu_alloc"].to_numpy() == pytest.approx(twin["alloc_integral"], **INTEGRALS), where
        waited = sum(row["queue_s"] or 0.0 for row in twin["jobs"])
        assert width @ utilization["queue_len"].to_numpy() == pytest.approx(waited, **INTEGRALS), where


def test_tables_have_the_columns_and_types_of_the_schema():
    jobs, servers, options = world(3)
    outcome = run(jobs, servers, "godel", options)
    table = jobs_table(outcome)
    assert table.schema.names == schema.names(schema.JOBS) + schema.names(schema.RESULT_JOBS)
    assert table.select(schema.names(schema.RESULT_JOBS)).schema.equals(schema.arrow_schema(schema.RESULT_JOBS))
    assert preemptions_table(outcome).schema.equals(schema.arrow_schema(schema.PREEMPTIONS))
    assert utilization_table(outcome).schema.equals(schema.arrow_schema(schema.UTILIZATION))
    for one in (table, preemptions_table(outcome), utilization_table(outcome)):
        one.validate(full=True)


def test_unknown_columns_are_carried_and_renamed_when_they_collide():
    # Sorted by submit time they are b, a.
    jobs = [a_job("a", 1, 1, status="odd", trace_status="older", note=7), a_job("b", 0, 2, status="even", trace_status="old", note=8)]
    table = jobs_table(run(jobs, [a_server(1)], "fifo"))
    names = schema.names(schema.JOBS) + ["trace_trace_status", "trace_status", "note"] + schema.names(schema.RESULT_JOBS)
    assert table.schema.names == names
    assert table["trace_trace_status"].to_pylist() == ["odd", "even"] and table["trace_status"].to_pylist() == ["older", "old"]
    assert table["note"].to_pylist() == [7, 8]
    assert table["status"].to_pylist() == ["finished", "finished"]
    # One GPU: b runs [0, 2), a waits from 1 to 2.
    assert table["wait_s"].to_pylist() == [1, 0] and table["finish_time"].to_pylist() == [3, 2]


def test_an_open_attempt_counts_up_to_the_horizon():
    # One GPU until 10. v runs [0, 4), keeps 4 of 4 s (checkpoints every 2 s). p takes its GPU over [4, 6). From 6 on v restarts for
    # 2.5 s and makes 1.5 s of progress until 10. w never starts, nor does the replica e, gone at 9; l comes after the horizon; h is
    # too large. o runs on the other server until its end at 8 and makes 5 of 6 s: it came at 2 and waited 1 s for n.
    v = a_job("v", 0, 20, preemptible=True, checkpoint_interval_s=2.0, restart_cost_s=2.5, gpu_model="A")
    jobs = [v, a_job("p", 4, 2, priority=1, gpu_model="A"), a_job("w", 5, 1, gpu_model="A"), a_job("l", 10, 1),
            a_job("e", 5, 1, end_time=9.0, gpu_model="A"), a_job("h", 0, 1, gpus=2), a_job("n", 0, 3, gpu_model="B"),
            a_job("o", 2, 6, end_time=8.0, gpu_model="B"), a_job("s", 8, 20, end_time=15.0, gpu_model="B")]
    servers = [a_server(1), a_server(1, gpu_model="B")]
    outcome = run(jobs, servers, "flextopo_imp", {"horizon_s": 10.0})
    rows = rows_of(jobs_table(outcome))
    assert {name: row["status"] for name, row in rows.items()} == {
        "v": "running", "p": "finished", "w": "waiting", "l": "not_submitted", "e": "expired", "h": "rejected", "n": "finished",
        "o": "finished", "s": "running"}
    v = rows["v"]
    assert (v["goodput_gpu_s"], v["lost_gpu_s"], v["restart_gpu_s"], v["queue_s"], v["evictions"]) == (5.5, 0, 2.5, 2, 1)
    assert (v["first_start"], v["finish_time"], v["jct_s"], v["slowdown"], v["servers"], v["level"]) == (0, None, None, None, [0], "numa")
    w = rows["w"]
    assert (w["wait_s"], w["queue_s"], w["finish_time"], w["servers"], w["level"], w["first_start"]) == (5, 5, None, [], None, None)
    e = rows["e"]
    assert (e["wait_s"], e["queue_s"], e["finish_time"], e["jct_s"], e["slowdown"], e["shortfall_gpu_s"]) == (4, 4, 9, 4, 4, 4)
    for name in ("l", "h"):
        assert (rows[name]["wait_s"], rows[name]["queue_s"], rows[name]["jct_s"], rows[name]["servers"]) == (None, None, None, [])
    assert rows["h"]["reason"] == "gpus: an instance wants 2, a server has 1 at most" and rows["l"]["reason"] is None
    o = rows["o"]
    assert (o["goodput_gpu_s"], o["shortfall_gpu_s"], o["wait_s"], o["finish_time"], o["bounded_slowdown"]) == (5, 1, 1, 8, 1)
    # s came when o left and has run all the 2 s until the horizon.
    assert rows["s"]["shortfall_gpu_s"] == 0
    check_identities(outcome)
    result = summary_of(outcome, servers)
    assert [result[f"jobs_{status}"] for status in schema.STATUSES] == [3, 1, 1, 2, 1, 1]
    # Waits: v 0, p 0, w 5 (censored), n 0, o 1, s 0; e has expired and l and h never waited.
    assert (result["jobs"], result["wait_s_mean"], result["wait_s_censored"], result["makespan_s"]) == (9, 1, 1, 9)


def crowded() -> tuple[list[dict[str, Any]], list[dict[str, Any]], Outcome]:
    """v holds GPUs 0 and 1 from 0, w GPU 2 until 30. p asks for 3 at 10 and evicts v, whose 5 s of grace end at 15; p claims the free
    GPU 3 meanwhile and runs [15, 18). At 18 v takes two GPUs for its last 10 s and q one; r follows at 28, q ends last, at 48.
    """
    jobs = [a_job("v", 0, 20, 2, preemptible=True, checkpoint_interval_s=0.0, kind="training", cpus=4.0), a_job("w", 0, 30),
            a_job("p", 10, 3, 3, priority=1, kind="online", cpus=3.0), a_job("q", 11, 30), a_job("r", 12, 1)]
    return jobs, [a_server(4)], run(jobs, [a_server(4)], "flextopo_imp", {"grace_s": 5.0})


def test_utilization_by_hand():
    _, _, outcome = crowded()
    table = utilization_table(outcome, 10.0).to_pydict()
    assert (table["t_start"], table["t_end"]) == ([0, 10, 20, 30, 40], [10, 20, 30, 40, 48])
    # [10, 20): w 10, p 3 * 3, v 2 * 2, q 2 = 25. [20, 30): v 2 * 8, w 10, q 10, r 1 = 37.
    assert table["gpu_busy"] == pytest.approx([3, 2.5, 3.7, 1, 1], rel=1e-15)
    # and in [10, 15) the grace of v on 2 GPUs and the claim of p on 1: 25 + 10 + 5 = 40.
    assert table["gpu_alloc"] == pytest.approx([3, 4, 3.7, 1, 1], rel=1e-15)
    assert table["gpu_alloc_training"] == pytest.approx([2, (10 + 4) / 10, 1.6, 0, 0], rel=1e-15)
    assert table["gpu_alloc_online"] == pytest.approx([0, (5 + 9) / 10, 0, 0, 0], rel=1e-15)
    assert table["gpu_alloc_batch"] == pytest.approx([1, (10 + 2) / 10, 2.1, 1, 1], rel=1e-15)
    # v holds 4 cores over [0, 15) and [18, 28), p, whose claim is covered by them, 3 over [15, 18).
    assert table["cpu_alloc"] == pytest.approx([4, (20 + 9 + 8) / 10, 3.2, 0, 0], rel=1e-15)
    # Waiting: v [10, 18), p [10, 15), q [11, 18), r [12, 28).
    assert table["queue_len"] == pytest.approx([0, (8 + 5 + 7 + 8) / 10, 0.8, 0, 0], rel=1e-15)
    assert table["queue_gpus"] == pytest.approx([0, (16 + 15 + 7 + 8) / 10, 0.8, 0, 0], rel=1e-15)
    assert table["running_jobs"] == pytest.approx([2, (10 + 3 + 2 + 2) / 10, 2.9, 1, 1], rel=1e-15)


def test_utilization_intervals():
    _, _, outcome = crowded()
    whole = utilization_table(outcome)
    assert whole.num_rows == 200 and whole["t_start"][0].as_py() == 0 and whole["t_end"][199].as_py() == 48
    assert whole["t_start"][1:].equals(whole["t_end"][:-1])
    late = utilization_table(outcome, 25.0, warmup_s=20.0).to_pydict()
    assert (late["t_start"], late["t_end"]) == ([20, 45], [45, 48])
    # v 2 * 8, w 10, q 25, r 1.
    assert late["gpu_busy"] == pytest.approx([52 / 25, 1], rel=1e-15)
    assert utilization_table(outcome, 1e9)["t_end"].to_pylist() == [48]
    assert utilization_table(outcome, warmup_s=48.0).num_rows == 0
    for interval, said in ((0.0, "positive"), (-1.0, "positive"), (float("nan"), "positive"), (1e-6, "at least 4.8e-05")):
        with pytest.raises(BadInput, match=said):
            utilization_table(outcome, interval)
    # Nothing happens: the only job is rejected at 0.
    outcome = run([a_job("h", 0, 1, gpus=9)], [a_server(4)], "fifo")
    assert utilization_table(outcome).num_rows == 0
    empty = summary_of(outcome, [a_server(4)])
    assert (empty["jobs_rejected"], empty["gpu_alloc_mean"], empty["makespan_s"], empty["offered_load"]) == (1, None, None, None)
    check_identities(outcome)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 8)), max_size=20), st.integers(1, 13), st.integers(1, 40))
def test_means_are_the_overlaps(spans: list[tuple[int, int, int]], interval: int, end: int):
    # Quarter seconds keep every sum exact; the mean is one division.
    edges = np.append(np.arange(0, end, interval), end) / 4
    since, until, weight = (np.array([span[i] for span in spans], float) for i in range(3))
    found = means(edges, Spans(np.zeros(len(spans), int), since / 4, until / 4, 1000 * weight, 500 * weight))
    for i, (low, high) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        overlap = [max(0.0, min(b / 4, high) - max(a / 4, low)) for a, b, _ in spans]
        gpu = sum(n * seconds for (_, _, n), seconds in zip(spans, overlap, strict=True)) / (high - low)
        assert found[:, i] == pytest.approx([gpu, gpu / 2, sum(overlap) / (high - low)], rel=1e-12)


def test_summary_by_hand():
    _, servers, outcome = crowded()
    result = summary_of(outcome, servers)
    # Events: five arrivals, five finishes, one end of grace. The one decision evicts v (2 GPUs) and p runs on 3; nothing is lost.
    assert {name: result[name] for name in ("jobs", "jobs_finished", "events", "decisions", "preempted", "ran_share", "useful_share")} == {
        "jobs": 5, "jobs_finished": 5, "events": 11, "decisions": 1, "preempted": 1, "ran_share": 1, "useful_share": 1.5}
    assert (result["victims_per_placement"], result["subsets_tried_mean"], result["lost_gpu_s_per_gpu_placed"]) == (1, 1, 0)
    # Everything is on the only NUMA node.
    assert (result["hit_rate_victims"], result["hit_rate_assigned"]) == (1, 1) and result["search_wall_us_p50"] > 0
    assert (result["lost_gpu_s"], result["restart_gpu_s"], result["shortfall_gpu_s"], result["capped"]) == (0, 0, 0, 0)
    assert (result["goodput_gpu_s"], result["grace_gpu_s"], result["claim_gpu_s"]) == (40 + 30 + 9 + 30 + 1, 10, 5)
    # Allocated 30 + 40 + 37 + 10 + 8 GPU s of 4 * 48, busy 15 less; cores 40 + 37 + 32 of 8 * 48.
    assert result["gpu_alloc_mean"] == pytest.approx(125 / 192, rel=1e-14)
    assert result["gpu_busy_mean"] == pytest.approx(110 / 192, rel=1e-14)
    assert result["cpu_alloc_mean"] == pytest.approx(109 / 384, rel=1e-14)
    # 110 GPU s came within 12 s.
    assert result["offered_load"] == pytest.approx(110 / (4 * 12), rel=1e-14) and result["unstable"] is True
    assert (result["makespan_s"], result["wait_s_censored"], result["fragmentation_mean"]) == (48, 0, None)
    # wait: v 0, w 0, p 5, q 7, r 16. Linear: 0.95 * 4 = 3.8 is 7 + 0.8 * 9; 3.96 is 7 + 0.96 * 9.
    assert [result[f"wait_s_{s}"] for s in ("mean", "p50", "p95", "p99")] == pytest.approx([5.6, 5, 14.2, 15.64])
    # jct: v 28, w 30, p 8, q 37, r 17; of batch w, q and r.
    assert (result["jct_s_mean"], result["jct_s_p50"], result["jct_s_mean_batch"], result["jct_s_p50_batch"]) == (24, 28, 28, 30)
    assert result["slowdown_mean"] == pytest.approx((28 / 20 + 1 + 8 / 3 + 37 / 30 + 17) / 5)
    assert result["bounded_slowdown_mean"] == pytest.approx((28 / 20 + 1 + 1 + 37 / 30 + 1.7) / 5)
    assert (result["slowdown_p99_online"], result["wait_s_p95_online"], result["wait_s_mean_training"]) == (8 / 3, 5, 0)


def test_summary_has_the_metrics_of_the_design_and_is_json():
    jobs, servers, options = world(3)
    result = summary_of(run(jobs, servers, "godel", options), servers)
    named = """jobs jobs_finished jobs_rejected jobs_waiting jobs_running jobs_expired jobs_not_submitted events decisions preempted
        hit_rate_victims hit_rate_assigned ran_share useful_share victims_per_placement subsets_tried_mean search_wall_us_p50 lost_gpu_s
        restart_gpu_s goodput_gpu_s shortfall_gpu_s gpu_alloc_mean gpu_busy_mean cpu_alloc_mean fragmentation_mean makespan_s
        wait_s_censored unstable""".split()
    named += [f"{name}_{statistic}{kind}" for name in ("wait_s", "jct_s", "slowdown", "bounded_slowdown")
              for statistic in ("mean", "p50", "p95", "p99") for kind in ("", "_online", "_batch", "_training")]
    assert set(named) <= set(result)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert {type(value) for value in result.values()} <= {int, float, bool, type(None)}


def test_summary_leaves_the_warm_up_out():
    _, servers, outcome = crowded()
    result = summary_of(outcome, servers, warmup_s=11.0)
    # q and r are left: waits 7 and 16, jct 37 and 17. p, who evicted, is not.
    assert (result["jobs"], result["decisions"], result["preempted"], result["ran_share"]) == (2, 0, 0, None)
    assert (result["wait_s_mean"], result["jct_s_mean"], result["goodput_gpu_s"]) == (11.5, 27, 31)
    assert (result["hit_rate_victims"], result["search_wall_us_p50"], result["wait_s_mean_online"]) == (None, None, None)
    assert (result["grace_gpu_s"], result["claim_gpu_s"], result["events"]) == (0, 0, 11)
    # Over [11, 48): 125 GPU s less 30 until 10, 4 in [10, 11).
    assert result["gpu_alloc_mean"] == pytest.approx(91 / (4 * 37), rel=1e-14)
    # 31 GPU s came within 1 s.
    assert result["offered_load"] == 31 / 4
    late = summary_of(outcome, servers, warmup_s=100.0)
    assert (late["jobs"], late["jct_s_p99"], late["goodput_gpu_s"], late["gpu_busy_mean"], late["unstable"]) == (0, None, 0, None, False)


def test_shares_are_null_without_a_limit():
    servers = [a_server(0, cores=8, gpu_numa=[])]
    result = summary_of(run([a_job("a", 0, 2, 0, cpus=4.0), a_job("b", 2, 2, 0)], servers, "fifo"), servers)
    assert (result["gpu_alloc_mean"], result["cpu_alloc_mean"], result["offered_load"], result["unstable"]) == (None, 0.25, None, False)
    servers = [a_server(1, cores=UNBOUNDED)]
    result = summary_of(run([a_job("a", 0, 2), a_job("b", 0, 2)], servers, "fifo"), servers)
    assert (result["gpu_alloc_mean"], result["cpu_alloc_mean"]) == (1, None)
    # All at once: there is no span in which they came.
    assert (result["offered_load"], result["unstable"]) == (None, False)


def test_fragmentation_is_the_mean_over_time():
    _, servers, outcome = crowded()
    table = utilization_table(outcome, 40.0).append_column("fragmentation", pa.array([0.5, 1.0]))
    result = summary(outcome, cluster_of(servers), jobs_table(outcome), table)
    assert result["fragmentation_mean"] == pytest.approx((0.5 * 40 + 1.0 * 8) / 48)


def pairs(*priorities: int) -> list[dict[str, Any]]:
    """One-card jobs of these priorities, one every second, that fill servers of 2 sockets with 2 GPUs each, in order."""
    return [a_job(f"v{i}", i, 100, priority=p, preemptible=True) for i, p in enumerate(priorities)]


def test_a_decision_hits_when_all_its_rows_do():
    servers = [a_server(4, 2, 2), a_server(4, 2, 2)]
    # Server 0 gives up its first and last GPU (priority 0), one in each socket; server 1 its first two.
    full = pairs(0, 1, 1, 0, 0, 0, 1, 1)
    outcome = run([*full, a_job("p", 10, 5, 2, instances=2, priority=2)], servers, "godel")
    rows = preemptions_table(outcome).to_pylist()
    assert [(row["server"], row["victims"], row["level_victims"], row["hit_victims"]) for row in rows] == [
        (0, ["v0", "v3"], "server", False), (1, ["v4", "v5"], "numa", True)]
    assert [(row["level_assigned"], row["hit_assigned"]) for row in rows] == [("server", False), ("numa", True)]
    # At 10 the four have run for 10, 7, 6 and 5 s; what they lost is on the first row.
    assert [row["lost_gpu_s"] for row in rows] == [28, 0] and [row["decision_id"] for row in rows] == [0, 0]
    result = summary_of(outcome, servers)
    assert (result["hit_rate_victims"], result["hit_rate_assigned"], result["decisions"], result["preempted"]) == (0, 0, 1, 4)
    assert (result["victims_per_placement"], result["useful_share"], result["lost_gpu_s_per_gpu_placed"]) == (4, 1, 7)
    # FlexTopo finds pairs that share a NUMA node: v4 and v5 first (both of priority 0), then v2 and v3 (v2 came later than v1). v2,
    # evicted, takes the card of v0 in its turn. At 20 v0, v3, v4 and v5 wait and o evicts v6 and v7.
    jobs = [*full, a_job("p", 10, 90, 2, instances=2, priority=2), a_job("o", 20, 5, 2, priority=2)]
    outcome = run(jobs, servers, "flextopo_imp")
    victims = [row["victims"] for row in preemptions_table(outcome).to_pylist()]
    assert victims == [["v2", "v3"], ["v4", "v5"], ["v0"], ["v6", "v7"]]
    result = summary_of(outcome, servers)
    assert (result["decisions"], result["preempted"], result["hit_rate_victims"]) == (3, 7, 1)


def test_hits_count_only_where_an_empty_server_could():
    # Four GPUs are never in one of the two sockets.
    servers = [a_server(4, 2, 2)]
    result = summary_of(run([*pairs(0, 0, 0, 0), a_job("p", 10, 5, 4, priority=2)], servers, "godel"), servers)
    assert (result["decisions"], result["hit_rate_victims"], result["hit_rate_assigned"], result["ran_share"]) == (1, None, None, 1)
    # Victims that hold no GPU and no exclusive core have no level.
    servers = [a_server(1, cores=4)]
    jobs = [a_job("v", 0, 100, 0, cpus=4.0, preemptible=True), a_job("p", 10, 5, 1, cpus=2.0, priority=1)]
    outcome = run(jobs, servers, "godel")
    row = preemptions_table(outcome).to_pylist()[0]
    assert (row["level_victims"], row["hit_victims"], row["level_assigned"], row["hit_assigned"]) == (None, None, "numa", True)
    assert (row["cpus_freed"], row["gpus_freed"], row["gpus_needed"]) == (4, 0, 1)
    result = summary_of(outcome, servers)
    assert (result["hit_rate_victims"], result["hit_rate_assigned"], result["useful_share"]) == (None, 1, None)


def test_a_victim_on_several_servers_counts_once():
    # The gang x holds both servers; p evicts it for one GPU, o for both.
    servers = [a_server(1), a_server(1)]
    x = a_job("x", 0, 100, instances=2, preemptible=True)
    outcome = run([x, a_job("p", 10, 5, priority=1)], servers, "godel")
    assert [(row["gpus_freed"], row["gpus_freed_elsewhere"]) for row in preemptions_table(outcome).to_pylist()] == [(1, 1)]
    assert summary_of(outcome, servers)["useful_share"] == 0.5
    outcome = run([x, a_job("o", 10, 5, instances=2, priority=1)], servers, "godel")
    rows = preemptions_table(outcome).to_pylist()
    assert [(row["victims"], row["victims_n"], row["gpus_freed_elsewhere"], row["lost_gpu_s"]) for row in rows] == [
        (["x"], 1, 0, 20), (["x"], 1, 0, 0)]
    result = summary_of(outcome, servers)
    assert (result["preempted"], result["victims_per_placement"], result["useful_share"]) == (1, 1, 1)


def test_a_claim_that_is_pending_at_the_horizon_did_not_run():
    _, servers, _ = crowded()
    jobs = [a_job("v", 0, 20, 4, preemptible=True), a_job("p", 10, 3, 2, priority=1)]
    outcome = run(jobs, servers, "godel", {"grace_s": 5.0, "horizon_s": 12.0})
    result = summary_of(outcome, servers)
    assert (result["ran_share"], result["useful_share"], result["victims_per_placement"], result["jobs_waiting"]) == (0, None, None, 2)
    # v lost 10 s on 4 GPUs, then holds them for the 2 s that are left.
    assert (result["lost_gpu_s"], result["lost_gpu_s_per_gpu_placed"], result["grace_gpu_s"]) == (40, None, 8)
    assert result["gpu_alloc_mean"] == 1
    check_identities(outcome)


def test_broken_identities_are_found():
    jobs, servers, _ = crowded()
    for field, said in (("running", "running time of the log"), ("progress", "running = progress"), ("start", "running time of the log")):
        outcome = run(jobs, servers, "flextopo_imp", {"grace_s": 5.0})
        outcome.state.jobs[field][3] += 1.0
        with pytest.raises(AssertionError, match=f"{said}.*: broken by job 3"):
            check_identities(outcome)
    outcome = run(jobs, servers, "flextopo_imp", {"grace_s": 5.0})
    outcome.log.size[2] = 0
    with pytest.raises(AssertionError, match="running time of the log: broken by job 0"):
        check_identities(outcome)
    outcome = run(jobs, servers, "flextopo_imp", {"grace_s": 5.0})
    outcome.state.shapes.gpus[0] = 3
    with pytest.raises(AssertionError, match="GPUs held: 4000 thousandths of 3000"):
        check_identities(outcome)


def test_a_hundred_thousand_jobs():
    # Each starts when it comes, on a cluster that never fills up: no replay is needed to know the outcome.
    n = 100_000
    rng = np.random.default_rng(7)
    submit, duration, gpus = np.sort(rng.uniform(0, 1e6, n)), rng.exponential(100.0, n), rng.integers(1, 5, n)
    base = trace_of([a_job("0", 0, 1)]).to_pydict()
    columns = {c.name: pa.repeat(pa.scalar(base[c.name][0], c.type), n) for c in schema.JOBS} | {
        "job_id": pa.array(np.arange(n)).cast(pa.string()), "submit_time": pa.array(submit), "duration": pa.array(duration),
        "gpus": pa.array(gpus.astype(np.int16))}
    trace = pa.table(list(columns.values()), schema=schema.arrow_schema(schema.JOBS))
    shape = ServerShape("large", "A", 1, (UNBOUNDED,), (0,), (0,) * 8)
    zeros = np.zeros(1000, np.int32)
    cluster = Cluster("large", (shape,), zeros, zeros, zeros)
    state, order = build_state(trace, cluster, Rules())
    jobs = state.jobs
    jobs.status, jobs.first_start, jobs.start, jobs.finish = FINISHED, submit, submit, submit + duration
    jobs.progress, jobs.running = duration, jobs.finish - submit
    state.instances.ran_on = np.arange(n) % 1000
    outcome = Outcome(trace, order, state, new_log(), {}, 2 * n, 0, float(jobs.finish.max()), 0)
    check_identities(outcome)
    table, utilization = jobs_table(outcome), utilization_table(outcome)
    assert table["servers"][99_999].as_py() == [999] and table["status"].unique().to_pylist() == ["finished"]
    result = summary(outcome, cluster, table, utilization)
    busy = (gpus * duration).sum()
    # Finish times near 1e6 s are rounded to 1e-10 s, durations near 100 s: 1e-12 of the sum, on average far less.
    assert result["gpu_busy_mean"] == pytest.approx(busy / (8000 * outcome.end), rel=1e-11)
    assert result["wait_s_p99"] == 0 and result["slowdown_mean"] == pytest.approx(1, abs=1e-9)
    assert utilization["queue_len"].to_numpy().max() == 0
    half = float(submit[n // 2])
    late = summary(outcome, cluster, table, utilization_table(outcome, warmup_s=half), half)
    assert late["jobs"] == n // 2 and late["goodput_gpu_s"] == pytest.approx((gpus * duration)[n // 2:].sum(), rel=1e-12)
