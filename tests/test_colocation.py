"""Co-location end to end: the autoscaler by hand, two replicas by hand, conservation over the stages, and the halves alone."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from harness import schema
from harness.cluster.build import Rules
from harness.cluster.hooks import load_policy as cluster_policy
from harness.cluster.replay import replay as cluster_replay
from harness.colocation import autoscale, placements, stages
from harness.colocation.answers import answers, served
from harness.colocation.links import level_links
from harness.colocation.settings import Autoscaler, Links, Prices, parse
from harness.colocation.sizing import Promise, size, smallest
from harness.errors import BadInput
from harness.metrics.requests import requests_table
from harness.metrics.utilization import running_spans
from harness.serving.hooks import load_policy as serving_policy
from harness.serving.replay import replay as serving_replay
from harness.tables import checked, write_table
from harness.topology import build
from harness.topology import parse as parse_cluster
from harness.workload.common import jobs as jobs_of
from serving_worlds import EXACT, pool, trace

CONF = Path(__file__).resolve().parents[1] / "conf"


def cluster(name: str = "pcie_4gpu", servers: int = 2):
    """A cluster of conf/cluster with so many servers."""
    return build(parse_cluster(yaml.safe_load((CONF / "cluster" / f"{name}.yaml").read_text()) | {"servers": servers}))


def settings(**keys):
    section = yaml.safe_load((CONF / "colocation" / "day.yaml").read_text())
    return parse({**section, "offline": [], **keys})


def world(where, servers: int = 2, policy: str = "domain_first", shape: str = "pcie_4gpu") -> stages.World:
    there = cluster(shape, servers)
    return stages.World(there, there, Rules(), where, cluster_policy(policy), serving_policy("fcfs"))


def run(requests, chosen, where, servers: int = 2, policy: str = "domain_first", seed: int = 0, **keys) -> stages.Joined:
    return stages.run(requests, chosen, world(where, servers, policy), seed, **keys)


def scaled(load, **keys) -> list[int]:
    defaults = {"target": 0.5, "sync_s": 15.0, "down_window_s": 0.0, "up_pods": 100}
    return autoscale.scaled(np.array(load, float), Autoscaler(**(defaults | keys)))[1].tolist()


@pytest.mark.parametrize(("load", "keys", "wanted"), [
    ([0.4, 1.1, 4.9, 0.2], {}, [1, 3, 10, 1]),  # ceil(load / 0.5), at once in both directions
    ([1.0, 1.05, 1.15, 1.4, 0.85], {}, [2, 2, 3, 3, 2]),  # 1.05 and 1.4 are within 10 % of what 2 and 3 replicas should have
    ([9.0, 9.0, 9.0, 9.0], {"up_pods": 4}, [5, 10, 18, 18]),  # 1 + 4; max(5 + 4, 2 x 5); the 18 that it wants
    ([5.0, 0.1, 0.1, 0.1], {"down_window_s": 30.0}, [10, 10, 10, 1]),  # the most of the last two recommendations and this one
    ([0.4, 5.0, 5.0, 5.0], {"up_window_s": 30.0}, [1, 1, 1, 10]),  # the least of them
    ([5.0, 0.1, 0.1, 5.0], {"cooldown_s": 45.0}, [10, 10, 10, 10]),  # 15 and 30 s after a change nothing; at 45 s 10 are wanted again
    ([0.0, 90.0], {"min_replicas": 2, "max_replicas": 7}, [2, 7]),
])
def test_the_autoscaler_by_hand(load, keys, wanted):
    assert scaled(load, **keys) == wanted


def test_load_is_the_seconds_that_arrive_over_the_window():
    """Requests of 3 s at 5 s and of 1 s at 40 s, a window of 30 s: at 15 s it is as long as the trace, (3) / 15; at 30 s 3 / 30; at 45 s,
    and at 60 s, 1 / 30."""
    scaler = Autoscaler(window_s=30.0, sync_s=15.0)
    time, load = autoscale.load_of(np.array([5.0, 40.0]), np.array([3.0, 1.0]), scaler, 0.0, 75.0)
    assert time.tolist() == [0, 15, 30, 45, 60]
    assert load == pytest.approx([0, 3 / 15, 3 / 30, 1 / 30, 1 / 30])


@pytest.mark.parametrize(("out_s", "in_s", "expected"), [
    (0, 0, [(0, 2), (10, 5), (20, 1), (30, 4)]),
    (5, 0, [(0, 2), (15, 5), (20, 1), (35, 4)]),  # scale-outs 5 s later
    (0, 5, [(0, 2), (10, 5), (25, 1), (30, 4)]),  # scale-ins 5 s later
    (12, 0, [(0, 2), (20, 1), (42, 4)]),  # the 5 of 10 s lasts 10 s only: taken back before it had effect
    (0, 15, [(0, 2), (10, 5), (35, 4)]),  # the 1 of 20 s is wanted for 10 s only: nobody has gone by then, and 4 stay
])
def test_delays_by_hand(out_s, in_s, expected):
    at, replicas = autoscale.delayed(np.array([0.0, 10.0, 20.0, 30.0]), np.array([2, 5, 1, 4]), out_s, in_s)
    assert list(zip(at, replicas, strict=True)) == expected


def test_demand_is_a_pure_function_and_counts_every_second():
    requests = trace([(0.1 * i, 100 + 7 * i, 5 + i % 9) for i in range(300)], service=["a" if i % 3 else "b" for i in range(300)])
    where, scaler = pool(), Autoscaler(window_s=15.0, sync_s=15.0)
    one, other = (autoscale.demand(requests, where, scaler, 0.0, 60.0) for _ in range(2))
    assert one.equals(other) and set(one["service"].to_pylist()) == {"a", "b"}
    seconds = autoscale.request_seconds(requests, where, scaler.batch)
    assert float(pc.sum(one["load"]).as_py()) * 15.0 == pytest.approx(float(seconds.sum()))


def test_the_seconds_of_a_request_are_those_of_full_steps():
    """Llama-3-8B on an A100, chunk 512, of a prompt of 512: the step of 512 tokens over 512; and a decode step of 32 members over 32."""
    where = pool()
    step = 16.1e9 * 512 + 0.52e6 * 0.5 * 512 * 512
    prefill = (step / (0.38 * 312e12) + 32 * 32e-6 + 126e-6 + 4.4e-6) / 512
    context = 512 + 0.5 * 10
    decode = (16.06e9 + 131_072 * 32 * context) / (0.8 * 2.039e12) + 32 * 32e-6 + 126e-6 + 32 * 4.4e-6
    found = autoscale.request_seconds(trace([(0, 512, 10)]), where, 32)
    assert found[0] == pytest.approx(512 * prefill + 10 * decode / 32, rel=1e-9)


BATCH = {"gpus": 1, "cpus": 1.0, "priority": 1, "preemptible": True, "affinity": "best_effort", "kind": "batch", "duration": 1e5}


@pytest.mark.parametrize(("policy", "level", "across"), [("godel", "server", True), ("domain_first", "numa", False)])
def test_two_replicas_by_hand(policy: str, level: str, across: bool, tmp_path: Path):
    """One server, two sockets of one NUMA node with two GPUs. Jobs a, s, t, d take GPUs 0 to 3 at 0 s; s and t end at 10 s, and b and c
    take their places, GPUs 1 and 2, at 20 s. At 100 s two services want a replica of two GPUs each.

    Goedel's reprieve keeps what ran longest: a and d stay, b and c go, so chat sits on GPUs 1 and 2, and code, for which a and d go, on
    0 and 3: both across sockets. The topology-aware search frees one socket for each. Either way everything goes: 2 x 100 s and 2 x 80 s
    of work are lost; s and t kept 10 s each.

    The model of 16.06 GB loads in 1.8 + 0.13 x 16.06 = 3.8878 s. At 130 s each service gets a prompt of 1,000 tokens: chunks of 512
    and 488, largest caches 512 and 1,000. A step costs 2^-6 s + 2^-12 s x the largest cache; a token moves 524,288 bytes in its
    all-reduces, which takes 49.152 us more at 8 than at 32 GB/s."""
    services = pa.table({"service": ["chat", "code"], "time": [100.0] * 2, "replicas": pa.array([1, 1], pa.int32()),
                         "gpus": pa.array([2, 2], pa.int16()), "cpus": [2.0] * 2, "priority": pa.array([9, 9], pa.int32()),
                         "affinity": ["best_effort"] * 2, "kind": ["online"] * 2})
    write_table(services, tmp_path / "services.parquet")
    jobs = {"job_id": ["a", "s", "t", "d", "b", "c"], "submit_time": np.array([0.0, 0, 0, 0, 20, 20]),
            "duration": np.array([1e5, 10, 10, 1e5, 1e5, 1e5])}
    requests = trace([(30.0, 1000, 1), (30.0, 1000, 1)], service=["chat", "code"], ttft_slo_s=[0.41, 0.41])
    chosen = settings(services=str(tmp_path / "services.parquet"), start_s=100.0,
                      links={"pcie_gbs": 32.0, "cross_socket_gbs": 8.0, "hop_us": 0.0})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placements, "offline_jobs", lambda *_: [jobs_of(6, {**BATCH, **jobs})])
        joined = stages.run(requests, chosen, world(pool(gpu="rtx4090", tp=2, step_time=EXACT), 1, policy), 0)
    for row in joined.tables["replicas"].to_pylist():
        assert (row["start_time"], row["level"], row["ended"], row["stop_time"]) == (100.0, level, "open", None)
        assert row["ready_time"] == pytest.approx(103.8878)
    ttft = 2 * 2.0**-6 + 2.0**-12 * (512 + 1000) + across * 1000 * 49.152e-6
    assert joined.tables["requests"]["ttft_s"].to_pylist() == pytest.approx([ttft] * 2, rel=1e-9)
    metrics = joined.metrics
    assert (metrics["slo_violations"], metrics["slo_met_share"]) == ((2, 0.0) if across else (0, 1.0))
    assert (metrics["lost_gpu_s_offline"], metrics["goodput_gpu_s_offline"]) == (360.0, 20.0)
    assert (metrics["replica_wanted_s"], metrics["replica_missing_s"]) == (160.0, 0.0)
    assert metrics["replica_late_s"] == pytest.approx(2 * 3.8878) and metrics["replica_served_s"] == pytest.approx(160 - 2 * 3.8878)
    assert metrics["cost_per_mtoken"] == pytest.approx(4 * 80 / 3600 / (2002 / 1e6))
    assert metrics["cost_per_offline_gpu_h"] == pytest.approx((4 * 180 - 4 * 80) / 20)


def world_of_requests(seed: int, n: int = 60, span: float = 240.0):
    """Requests whose rate doubles in the middle, of two services."""
    rng = np.random.default_rng(seed)
    at = np.sort(np.concatenate([rng.uniform(0, span, n), rng.uniform(span / 3, span / 2, n)])).round(3)
    rows = [(a, int(p), int(o)) for a, p, o in zip(at, rng.integers(200, 3000, 2 * n), rng.integers(1, 40, 2 * n), strict=True)]
    return trace(rows, service=["chat" if i % 4 else "code" for i in range(2 * n)])


OFFLINE = [{"generator": "paper_mix", "preemptors": 0, "warmup_s": 2000.0, "batch_load": 1.0, "cores_per_card": 1}]


def busy(policy: str = "godel", **keys) -> tuple[stages.Joined, stages.World]:
    """Services that scale out and in on two servers full of offline work."""
    chosen = settings(offline=OFFLINE, start_s=60.0, cores_per_card=1.0,
                      autoscaler={"target": 0.06, "down_window_s": 15.0, "drain_s": 10.0, "window_s": 30.0}, **keys)
    there = world(pool("yi_34b", tp=2, chunk=512, batch=64, ttft_slo_s=0.5), 2, policy)
    return stages.run(world_of_requests(1), chosen, there, 0), there


@pytest.fixture(scope="module")
def joined() -> tuple[stages.Joined, stages.World]:
    return busy()


def test_every_wanted_replica_second_is_served_late_or_missing(joined):
    """Each counted by itself: served and late from the stays of replicas, missing from the jobs, wanted from the services trace."""
    found, _ = joined
    replicas, services = found.tables["replicas"].to_pylist(), found.tables["services"].to_pylist()
    end = float(found.tables["timeline"]["t_end"][-1].as_py())
    wanted = 0.0
    for name in ("chat", "code"):
        mine = [row for row in services if row["service"] == name]
        times = [*(row["time"] for row in mine), end]
        wanted += sum(row["replicas"] * (b - a) for row, a, b in zip(mine, times, times[1:], strict=False))
    served_s = sum((end if r["stop_time"] is None else r["stop_time"]) - r["ready_time"] for r in replicas if r["ready_time"] is not None)
    loading = sum(min(end if r["stop_time"] is None else r["stop_time"], r["ready_time"] or np.inf) - r["start_time"] for r in replicas)
    metrics = found.metrics
    assert metrics["replica_wanted_s"] == pytest.approx(wanted) and wanted > 500
    assert metrics["replica_served_s"] == pytest.approx(served_s)
    assert metrics["replica_late_s"] == pytest.approx(loading) and loading > 0
    assert wanted == pytest.approx(served_s + loading + metrics["replica_missing_s"])


def test_every_request_is_finished_dropped_or_open(joined):
    found, _ = joined
    words = found.tables["requests"]["status"].to_pylist()
    assert len(words) == 120 == found.metrics["requests"]
    assert sum(words.count(word) for word in ("finished", "rejected", "waiting", "running")) == 120
    assert found.metrics["slo_violations"] == round((1 - found.metrics["slo_met_share"]) * 120)
    assert found.tables["requests"]["request_id"].to_pylist() == [f"r{i}" for i in range(120)]


def test_replicas_are_on_the_gpus_that_the_cluster_gave_them(joined):
    """Against the log of the job-level replay: the stays of services are those of the table, one for one."""
    found, there = joined
    services = found.tables["services"]
    work = placements.offline_jobs(settings(offline=OFFLINE).offline, there.cluster, 0)
    end = float(found.tables["timeline"]["t_end"][-1].as_py())
    outcome = cluster_replay(placements.trace(services, work, end), there.cluster, there.policy, Rules(horizon_s=end))
    spans = running_spans(outcome)
    service = outcome.trace["service"].take(pa.array(outcome.order)).to_pylist()
    stays = sorted((a, b) for job, a, b in zip(spans.job, spans.since, spans.until, strict=True) if service[job])
    listed = sorted((r["start_time"], end if r["stop_time"] is None else r["stop_time"]) for r in found.tables["replicas"].to_pylist())
    assert listed == stays and len(stays) > 4


def test_slots_hold_one_replica_at_a_time(joined):
    rows = joined[0].tables["replicas"].to_pylist()
    for name in ("chat", "code"):
        for slot in {r["replica"] for r in rows if r["service"] == name}:
            mine = sorted((r["start_time"], r["stop_time"] or np.inf) for r in rows if (r["service"], r["replica"]) == (name, slot))
            assert all(before[1] <= after[0] for before, after in zip(mine, mine[1:], strict=False))


def test_the_stages_one_by_one_give_what_one_command_gives(joined, tmp_path: Path):
    whole, _ = joined
    first, _ = busy(until="demand")
    assert set(first.tables) == {"demand", "services"}
    write_table(first.tables["services"], tmp_path / "services.parquet")
    second, _ = busy(services=str(tmp_path / "services.parquet"), until="placements")
    assert {name: whole.metrics[name] for name in second.metrics if name != "search_wall_us_p50"} == {
        name: value for name, value in second.metrics.items() if name != "search_wall_us_p50"}
    assert set(second.tables) == {"jobs", "preemptions", "utilization", "replicas"}
    write_table(second.tables["replicas"], tmp_path / "replicas.parquet")
    third, there = busy(replicas=str(tmp_path / "replicas.parquet"))
    for stage in (first, second, third):
        for name, table in stage.tables.items():
            columns = [c for c in table.column_names if not c.endswith("_wall_us")]
            assert table.select(columns).equals(whole.tables[name].select(columns)), name
    end = float(whole.tables["timeline"]["t_end"][-1].as_py())
    again = answers(third.tables["requests"], second.tables["replicas"], second.tables["jobs"], there.cluster.gpus, end, Prices())
    assert {name: whole.metrics[name] for name in again} == again
    assert third.metrics == served(third.tables["requests"])


@pytest.mark.parametrize("policy", ["godel", "domain_first"])
def test_without_penalties_and_with_room_for_all_it_is_the_serving_half_alone(policy: str, tmp_path: Path):
    """Three replicas wanted from 0 on, an empty cluster, and links between sockets that are as fast as those inside."""
    requests = world_of_requests(2)
    requests = requests.set_column(requests.column_names.index("service"), "service", pa.array(["chat"] * requests.num_rows))
    services = pa.table({"service": ["chat"], "time": [0.0], "replicas": pa.array([3], pa.int32()), "gpus": pa.array([2], pa.int16()),
                         "kind": ["online"], "affinity": ["best_effort"]})
    write_table(services, tmp_path / "services.parquet")
    where = pool(gpu="rtx4090", tp=2, replicas=3)
    chosen = settings(services=str(tmp_path / "services.parquet"), start_s=60.0,
                      links={"pcie_gbs": None, "cross_socket_gbs": 32.0, "hop_us": 0.0})
    found = run(requests, chosen, where, 8, policy)
    alone = serving_replay(stages.shifted(requests, 60.0), where, serving_policy("fcfs"))
    assert found.tables["requests"].equals(requests_table(alone))
    assert found.metrics["replica_missing_s"] == 0.0


def test_what_users_lose_is_what_the_level_costs():
    """The same two replicas, both in a socket or both across: every token is later across, and no slower link helps."""
    requests = world_of_requests(3, 30)
    rows = {"service": ["chat", "code"], "job_id": ["a", "b"], "replica": pa.array([0, 0], pa.int32()), "start_time": [0.0, 0.0],
            "ready_time": [0.0, 0.0], "drain_time": pa.nulls(2, pa.float64()), "stop_time": pa.nulls(2, pa.float64()),
            "server": pa.array([0, 0], pa.int32()), "ended": ["open", "open"]}
    means = []
    for level, gbs in (("socket", 10.0), ("server", 24.0), ("server", 10.0)):
        table = checked(pa.table({**rows, "level": [level] * 2}), schema.REPLICAS, "test")
        where = pool(gpu="rtx4090", tp=2, links={"socket": {"gbs": 24.0}, "server": {"gbs": gbs}})
        found, _ = stages.tokens(requests, table, where, serving_policy("fcfs"), 0)
        means.append(float(pc.mean(found["ttft_s"]).as_py()))
    assert means[0] == means[1] < means[2]


@pytest.mark.parametrize(("shape", "slow"), [
    ("pcie_4gpu", {"numa": 24.0, "nvlink": 24.0, "socket": 24.0, "server": 10.0}),
    ("rtx4090_x41", {"numa": 24.0, "nvlink": 24.0, "socket": 24.0, "server": 10.0}),
    ("dgx_a100", {}),  # NVSwitch reaches everywhere: no level costs anything
])
def test_links_are_those_of_the_server(shape: str, slow: dict):
    where = pool(gpu="rtx4090", tp=2)
    links = dict(level_links(cluster(shape).shapes[0], where, Links(pcie_gbs=24.0)))
    assert {level: link.gbs for level, link in links.items()} == slow


def test_the_smallest_that_is_enough():
    asked = []
    assert smallest(lambda n: asked.append(n) or n >= 23, 4, 128) == 23
    assert len(asked) <= 9
    assert smallest(lambda n: False, 4, 128) is None and smallest(lambda n: True, 4, 128) == 4


def test_sizes_by_hand():
    """Topology-aware: enough from 10 servers on; blind: from 14. Apart: 5 for replicas in sockets, 8 where they are spread; offline 7."""
    def probe(arm: str, n: int) -> dict[str, float]:
        if arm.startswith("apart:offline"):
            return {"slo_met_share": 1.0, "goodput_gpu_s_offline": min(n / 7, 1.0) * 100}
        if arm.startswith("apart:online"):
            return {"slo_met_share": float(n >= (5 if "domain" in arm else 8)), "goodput_gpu_s_offline": 0.0}
        return {"slo_met_share": min(1.0, n / (10 if arm == "domain_first" else 14)), "goodput_gpu_s_offline": 50.0}

    found = size(probe, ["godel", "domain_first"], Promise(1.0, 1.0), 2, 32)
    assert found[["servers", "online", "offline"]].astype(object).where(lambda x: x.notna(), None).values.tolist() == [
        [14, None, None], [10, None, None], [15, 8, 7], [12, 5, 7]]
    with pytest.raises(BadInput, match="two numbers of servers"):
        size(probe, ["godel"], Promise(), 9, 9)
    with pytest.raises(BadInput, match="--slo 2"):
        Promise(2.0)


@pytest.mark.parametrize(("keys", "match"), [
    ({"until": "dinner"}, "colocation.until=dinner: must be one of demand"),
    ({"autoscaler": {"target": 0.0}}, "colocation.autoscaler.target=0.0: must be at least"),
    ({"autoscaler": {"sync": 3}}, "colocation.autoscaler.sync: there is no such key"),
    ({"autoscaler": 3}, "colocation.autoscaler=3: must be a mapping"),
    ({"autoscaler": {"min_replicas": 4, "max_replicas": 3}}, "max_replicas=3: must be at least 4"),
    ({"offline": [{"days": 1}]}, "colocation.offline.*must be a list of generators"),
    ({"prices": {"gpu_h": -1}}, "colocation.prices.gpu_h=-1: must be a number"),
    ({"replica": {"gpus": 3}}, "colocation.replica.gpus: must be a column"),
    ({"services": "a", "replicas": "b"}, "give one of them"),
    ({"start_s": None}, "colocation.start_s=None: must be a number"),
    ({"offline_servers": 1.5}, "colocation.offline_servers=1.5: must be a whole number"),
])
def test_settings_that_make_no_sense_are_refused(keys, match):
    with pytest.raises(BadInput, match=match):
        settings(**keys)


def test_requests_of_a_service_without_a_replica_wait():
    where, nobody = pool(gpu="rtx4090", tp=2), {"min_replicas": 0, "max_replicas": 0}
    found = run(trace([(1.0, 10, 1)], service=["chat"], ttft_slo_s=[1.0]), settings(offline=OFFLINE, autoscaler=nobody), where)
    assert found.tables["requests"]["status"].to_pylist() == ["waiting"]
    assert (found.metrics["slo_violations"], found.metrics["replica_wanted_s"], found.metrics["cost_per_mtoken"]) == (1, 0.0, None)
    with pytest.raises(BadInput, match="nothing to place"):
        run(trace([(1.0, 10, 1)]), settings(autoscaler=nobody), where)


def test_the_command_makes_a_cell_of_all_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Through the command, with one cell for each stage file, and the report of it."""
    from harness import report_app
    from harness.app import main

    monkeypatch.chdir(CONF.parent)
    words = ["colocation=day", "workload=azure_like", "workload.duration_s=60", "workload.load_scale=0.2", "cluster=pcie_4gpu",
             "cluster.servers=2", "pool=rtx4090_yi34b", "colocation.offline=[{generator: paper_mix, preemptors: 0, warmup_s: 900}]",
             "colocation.start_s=60", "policy=godel", f"out={tmp_path / 'out'}", "progress=false"]
    assert main(words) == 0
    manifest, = (tmp_path / "out").glob("*/manifest.json")
    folder, metrics = manifest.parent, json.loads((manifest.parent / "summary.json").read_text())
    assert {path.stem for path in folder.glob("*.parquet")} == {
        "demand", "services", "jobs", "preemptions", "utilization", "replicas", "requests", "serving", "timeline"}
    assert metrics["requests"] == pq.read_metadata(folder / "requests.parquet").num_rows
    assert json.loads(manifest.read_text())["labels"]["cluster"] == "pcie_4gpu"  # not the pool, as that of requests alone is named
    for name, table in (("replicas", schema.REPLICAS), ("demand", schema.DEMAND), ("timeline", schema.TIMELINE)):
        assert pq.read_schema(folder / f"{name}.parquet").names == schema.names(table)
    assert report_app.main([str(tmp_path / "out")]) == 0
    drawn = {path.stem for path in (tmp_path / "out" / "figures").glob("*.png")}
    assert {"colocation_pareto", "colocation_timeline", "colocation_demand"} <= drawn
    assert main([*words[:-2], "workload=paper_mix", f"out={tmp_path / 'other'}", "progress=false"]) == 2
