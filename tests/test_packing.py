"""The packing family (FGD and what it is compared with, PWR), worked by hand; the packing list; fragmentation, power and energy."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from builders import Played, job, play, policy_file, server
from engine_run import cluster_of, run, trace_of
from harness.cluster.build import Rules
from harness.cluster.fragmentation import ALLOWED, SHARE, fragments, typical_of
from harness.cluster.hooks import load_policy
from harness.cluster.replay import replay
from harness.errors import BadInput, InvalidIntention
from harness.jit import JIT
from harness.metrics import arrivals_table, history, utilization_table, with_energy, with_fragmentation
from harness.tables import write_table
from harness.topology import build, parse
from harness.traces_app import main
from harness.workload import load
from worlds import world

TWO_SINGLES = [server(), server()]


def placed(jobs: list[dict], servers: list[dict], policy: str, **options: float) -> list[int]:
    """The server of each job's first instance."""
    return [row["servers"][0] for row in play(jobs, servers, policy, **options).jobs.values()]


def share(name: str, at: float, milli: int, **more: object) -> dict:
    return job(name, at, 100, gpu_milli=milli, **more)


# Placement


def test_fgd_keeps_what_the_typical_instance_can_use():
    # Typical are 500 and 300, half each. x ties (F is 0 before and after) and takes server 0, which has 500 left: F = 0.
    # a on server 0 would leave 200, which neither could use: F = 200, 100 sigmoid(-0.2) = 45.02. Server 1 keeps 700: F = 0, 50.
    jobs = [share("x", 0, 500), share("a", 1, 300)]
    assert placed(jobs, TWO_SINGLES, "fgd") == [0, 1]
    assert placed(jobs, TWO_SINGLES, "bestfit") == [0, 0]


def test_fgd_chooses_the_gpu_too():
    # The same on the two GPUs of one server: a leaves [200, 1000] (200 is too small for both: F = 200) or [500, 700] (F = 0).
    jobs = [share("x", 0, 500), share("a", 1, 300)]
    assert [play(jobs, [server(2)], policy).gpus("a") for policy in ("fgd", "packing")] == [[[1]], [[0]]]


def test_fgd_rounds_before_it_compares():
    # Typical are shares of 990 alone, 40 of 42. x (only on server 1) leaves 10 there, of no use: F = 10. y (10) would use it up: F falls
    # by 10, 100 sigmoid(0.01) = 50.25; on server 0 it leaves 990 and F stays 0: 50. Both are 50 when truncated: the lower server.
    crowd = [share(f"t{n}", 2, 990) for n in range(40)]
    jobs = [job("x", 0, 100, gpu_milli=990, gpu_model="B"), share("y", 1, 10), *crowd]
    assert placed(jobs, [server(), server(gpu_model="B")], "fgd")[:2] == [1, 0]


def test_packing_prefers_used_gpus_then_used_servers():
    # Servers of 2 GPUs. All empty: max(33 - 2, 2) = 31 each, so x goes to 0. w, a whole GPU: 50 - 1 = 49 on server 0. y (500): the GPU of x
    # has 500 free: 100 - 50 // 10 = 95. v (whole): only servers 1 and 2, 31 each. u (300): server 1 has a free GPU in use: 49, 2 has 31.
    jobs = [share("x", 0, 500), job("w", 1, 100), share("y", 2, 500), job("v", 3, 100), share("u", 4, 300)]
    assert placed(jobs, [server(2), server(2), server(2)], "packing") == [0, 0, 0, 1, 1]


def test_clustering_puts_like_with_like():
    # Servers of 4 GPUs, the largest has 4: floor(25 * used / 4). x (share): 25 on each, server 0. w (1 GPU): others alone on 0 give 0 + 3,
    # server 1 is empty: 25. y (share): 75 + 3 on 0. p (2 GPUs): 0 + 4 and 0 + 6 where others are, 25 on server 2. v (1 GPU): 75 + 6 on 1.
    jobs = [share("x", 0, 500), job("w", 1, 100), share("y", 2, 100), job("p", 3, 100, 2), job("v", 4, 100)]
    assert placed(jobs, [server(4)] * 3, "clustering") == [0, 1, 0, 2, 1]
    # Mine among others: q (1 GPU) fits only server 1 (model B), which has a share: 50 + ...; r (1 GPU) prefers it to 25 on the empty one.
    jobs = [share("x", 0, 500, gpu_model="B"), job("q", 1, 100, gpu_model="B"), job("r", 2, 100)]
    assert placed(jobs, [server(4), server(4, gpu_model="B")], "clustering") == [1, 1, 1]


def test_dotprod_goes_where_the_demand_aligns_least():
    # 2 GPUs and 8 cores each. x (1 GPU): 100 (1 - (1 * 0.5) / 2) = 75 on both, server 0. a (1 GPU, 4 cores): server 0 has 1 of 2 GPUs:
    # 100 (1 - (0.5 + 0.25) / 2) = 62, server 1 100 (1 - (0.5 + 0.5) / 2) = 50. c (6 cores): 4 cores are free on 0; server 1.
    # d (1 core): 100 (1 - 0.5 / 8 / 2) = 96 on server 0, 100 (1 - 0.25 / 8 / 2) = 98 on server 1.
    jobs = [job("x", 0, 100), job("a", 1, 100, cpus=4.0), job("c", 2, 100, 0, cpus=6.0), job("d", 3, 100, 0, cpus=1.0)]
    assert placed(jobs, [server(2), server(2)], "dotprod") == [0, 0, 1, 1]


def test_bestfit_counts_what_is_left_of_cores_too():
    # Server 0 has 1 GPU and 64 cores, server 1 two GPUs and 8 cores; the largest 64 and 2. a (1 GPU, 4 cores) leaves 60 cores on 0:
    # 100 (1 - 0.9375 / 2 - 0) = 53, and 4 cores and a GPU on 1: 100 (1 - 0.0625 / 2 - 0.5 / 2) = 71.
    jobs = [job("a", 0, 100, cpus=4.0)]
    servers = [server(1, cores=64), server(2)]
    assert (placed(jobs, servers, "bestfit"), placed(jobs, servers, "fifo_backfill")) == ([1], [0])


def test_random_placement_draws_server_and_gpu():
    # Job n of seed 0, from 0: x = 7919 (n + 1) + 12345, draw 48271 (x^2 mod (2^31 - 2) + 1) mod (2^31 - 1), next 48271 times that.
    # Job 0: x = 20264, x^2 = 410629696, draw 232042077, next 1775879762.
    assert _draws(0) == (232042077, 1775879762)
    jobs = [share(str(n), n, 100) for n in range(4)]
    played = play(jobs, [server(2), server(2)], "random_fit")
    assert [row["servers"][0] for row in played.jobs.values()] == [draw % 2 for draw, _ in map(_draws, range(4))]
    assert [played.gpus(str(n))[0][0] for n in range(4)] == [follows % 2 for _, follows in map(_draws, range(4))]


def _draws(n: int) -> tuple[int, int]:
    x = 7919 * (n + 1) + 12345
    draw = 48271 * (x * x % (2**31 - 2) + 1) % (2**31 - 1)
    return draw, 48271 * draw % (2**31 - 1)


def test_pwr_takes_the_server_that_draws_least_more():
    # A P100 in use draws 225 W more, a T4 60 W. PWR alone: the T4. FGD alone: neither fragments, the lower server.
    servers = [server(gpu_model="P100"), server(gpu_model="T4")]
    assert [placed([job("a", 0, 9)], servers, "pwr_fgd", power=power) for power in (1000.0, 0.0)] == [[1], [0]]
    # A share on a GPU in use costs nothing, on a free T4 60 W.
    jobs = [job("x", 0, 99, gpu_milli=500, gpu_model="P100"), share("a", 1, 300)]
    assert placed(jobs, servers, "pwr_fgd", power=1000.0) == [0, 0]
    # 36 cores of 64 threads wake a second socket on server 0, where 32 are busy: 105 W more; on server 1, two: 210 W.
    jobs = [job("x", 0, 99, 0, cpus=32.0), job("a", 1, 9, 0, cpus=4.0), job("b", 2, 9, 0, cpus=28.0)]
    assert placed(jobs, [server(cores=64), server(cores=64)], "pwr_fgd", power=1000.0) == [0, 0, 0]


def test_pwr_weighs_watts_against_fragmentation():
    # x leaves 500 on the T4. a (300) there would cost no watts and F = 200 (45); on the free P100 225 W and F = 0 (50).
    # 1000: scaled 100 against 0. At weight w: w 100 + (1000 - w) 45 against (1000 - w) 50: the T4 from w = 48 on (4800 > 4760).
    servers = [server(gpu_model="T4"), server(gpu_model="P100")]
    jobs = [share("x", 0, 500), share("a", 1, 300)]
    assert [placed(jobs, servers, "pwr_fgd", power=power)[1] for power in (1000.0, 48.0, 47.0, 0.0)] == [0, 0, 1, 1]


@pytest.mark.parametrize("seed", range(0, 40, 5))
def test_pwr_without_weight_is_fgd(seed: int):
    jobs, servers, options = world(seed)
    same = [run(jobs, servers, policy, {**options, "power": 0.0}).state.instances.server.tolist() for policy in ("fgd", "pwr_fgd")]
    assert same[0] == same[1]


# The hooks that they need


def test_a_policy_may_only_name_a_gpu_that_fits(tmp_path: Path):
    names = policy_file(tmp_path, "names", """
        from harness.cluster.fit import on_gpu

        PARAMS = {"gpu": 0}

        def place(view, own, job):
            return on_gpu(0, int(own.params[0]))
        """)
    jobs = [share("a", 0, 600), share("b", 1, 300)]
    assert play(jobs, [server(2)], names, gpu=1).gpus("b") == [[1]]
    for wrong in ([*jobs, share("c", 2, 200)], [job("w", 2, 9)]):
        with pytest.raises(InvalidIntention, match=f"job {wrong[-1]['job_id']}, server 0, time 2 s: places it where it does not fit"):
            play(wrong, [server(2)], names, gpu=1)
    with pytest.raises(InvalidIntention, match="job a, server 0, time 0 s: places it where it does not fit"):
        play(jobs, [server(2)], names, gpu=2)


def test_prepare_fills_the_table_and_may_fail(tmp_path: Path):
    source = """
        import numpy as np

        def prepare(view, requests, cluster):
            return {0}

        def key(view, own, job):
            return own.table[0, view.jobs.klass[job]]
        """
    # The table gives the classes of a, b and x, by their memory, the keys 0, 2 and 1.
    jobs = [job("a", 0, 5), job("b", 0, 5, memory_mib=2), job("x", 0, 1, memory_mib=1)]
    keys = "np.array([requests.columns()['memory_mib']])"
    first = policy_file(tmp_path, "first", source.replace("{0}", keys))
    assert play(jobs, [server()], first).starts == [(0, "a"), (5, "x"), (6, "b")]
    for what, said in (("np.zeros(3)", "must return an array of two dimensions, it has 1"), ("1 / 0", "ZeroDivisionError")):
        with pytest.raises(BadInput, match=f"policy wrong: prepare.*{said}"):
            play(jobs, [server()], policy_file(tmp_path, "wrong", source.replace("{0}", what)))


# Fragmentation


def test_f_by_hand():
    # Classes: 1 share of 500 with 2 cores (0.5), 2 whole GPUs with 1 core (0.3), no GPU (0.2).
    jobs = [*(share(f"s{n}", n, 500, cpus=2.0) for n in range(5)), *(job(f"w{n}", 9, 9, 2, cpus=1.0) for n in range(3)),
            *(job(f"c{n}", 9, 9, 0, cpus=4.0) for n in range(2))]
    view = run(jobs, [server(4)], "fifo").state
    table = typical_of(view, trace_of(jobs))
    assert table[SHARE].tolist() == [0.5, 0.3, 0.2]
    plain = getattr(fragments, "py_func", fragments)  # kernels cannot be entered from Python
    for cpu, gpu, expected in (
        (8000, [1000, 1000, 1000, 1000], 0.2 * 4000),  # only the class without GPU has no use for them
        (8000, [1000, 400, 0, 0], 0.5 * 400 + 0.3 * 1400 + 0.2 * 1400),  # 400 is too small for 500; there are no 2 free GPUs
        (1000, [1000, 1000, 300, 0], 0.5 * 2300 + 0.3 * 300 + 0.2 * 2300),  # cores are short for the first
        (0, [1000, 1000, 0, 0], 2000.0), (0, [0, 0, 0, 0], 0.0),
    ):
        assert plain(table, 0, cpu, np.array(gpu, float), 4) == pytest.approx(expected, rel=1e-12)


def test_typical_classes_cover_95_percent():
    # 18 of a, 1 of b, 1 of c, the larger first among equals (c has more cores): 19 of 20 are 95 %. Clones do not count.
    jobs = [*(job(f"a{n}", n, 9) for n in range(18)), job("b", 20, 9, cpus=1.0), job("c", 21, 9, cpus=2.0)]
    view = run(jobs, [server(gpu_model="A"), server(gpu_model="B")], "fifo").state
    assert typical_of(view, trace_of(jobs))[SHARE].tolist() == [18 / 19, 1 / 19]
    clones = [{**row, "clone": row["job_id"] in ("c", "a0")} for row in jobs]
    assert typical_of(view, trace_of(clones))[SHARE].tolist() == [17 / 18, 1 / 18]
    only = [{**row, "gpu_model": "B"} for row in jobs]
    view = run(only, [server(gpu_model="A"), server(gpu_model="B")], "fifo").state
    assert typical_of(view, trace_of(only))[ALLOWED:].T.tolist() == [[0, 1], [0, 1]]
    # Lists are told apart by their text: a0, a1, a10 to a17, a2, a3 and a4 come first, then a5 to a9.
    written = [{**row, "gpu_model": "B|B" if row["job_id"] < "a5" else "B"} for row in jobs]
    view = run(written, [server(gpu_model="A"), server(gpu_model="B")], "fifo").state
    assert typical_of(view, trace_of(written))[SHARE].tolist() == [13 / 19, 5 / 19, 1 / 19]


def measured(played: Played):
    cluster = cluster_of(played.servers)
    found = history(played.outcome, cluster)
    utilization = utilization_table(played.outcome, 1.0)
    return with_energy(with_fragmentation(utilization, played.outcome, found), found), arrivals_table(played.outcome, found)


def test_fragmentation_and_energy_over_time():
    # One server of two P100. x (500) over [0, 4), a (300) over [1, 3) on the same GPU: [500, 1000], then [200, 1000], then [500, 1000],
    # then all free. Of 500 and 300, half each, neither can use 200: F = 200 of 1200 over [1, 3).
    jobs = [job("x", 0, 4, gpu_milli=500), job("a", 1, 2, gpu_milli=300), job("late", 6, 1, gpu_milli=500),
            job("last", 7, 1, gpu_milli=300)]
    utilization, arrivals = measured(play(jobs, [server(2, gpu_model="P100")], "fifo"))
    assert utilization["fragmentation"].to_pylist() == pytest.approx([0, 1 / 6, 1 / 6, 0, 0, 0, 0, 0])
    # A P100 in use draws 250 W, an idle one 25 W; 8 threads are less than a socket, and none is busy.
    watts = [275, 275, 275, 275, 50, 50, 275, 275]
    assert utilization["energy_kwh"].to_pylist() == pytest.approx([w / 3.6e6 for w in watts])
    assert arrivals.to_pydict() == {"arrived": [0.25, 0.4, 0.65, 0.8], "allocated": [0.25, 0.4, 0.25, 0.15],
                                    "fragmented": [0, 0.1, 0, 0], "watts": [275, 275, 275, 275]}


def test_sockets_draw_power():
    # 64 threads are two sockets. Over [0, 1) nothing but idle sockets: 30 W, and an idle GPU of an unknown model: 25 W. 33 busy cores
    # wake both over [1, 2): 240 W.
    utilization, _ = measured(play([job("n", 0, 1, 0), job("a", 1, 1, 0, cpus=33.0)], [server(cores=64)], "fifo"))
    assert utilization["energy_kwh"].to_pylist() == pytest.approx([55 / 3.6e6, 265 / 3.6e6])


@pytest.mark.parametrize("policy", ["godel", "random_victim", "easy_backfill", "fgd"])
def test_history_holds_what_runs(policy: str):
    """What single instances hold, evicted attempts included, is in sum what is busy; at the end all is as at the beginning."""
    for seed in range(30):
        jobs, servers, options = world(seed)
        outcome = run(jobs, servers, policy, options)
        found = history(outcome, cluster_of(servers))
        assert (found.gpu >= 0).all() and found.gpu.max() <= 1000 * cluster_of(servers).gpus
        utilization = utilization_table(outcome)
        busy = utilization["gpu_busy"].to_numpy() @ (utilization["t_end"].to_numpy() - utilization["t_start"].to_numpy())
        held = found.gpu[:-1] @ np.diff(found.time) / 1000 if len(found.time) > 1 else 0.0
        assert held == pytest.approx(busy, rel=1e-9, abs=1e-9), seed
        if found.gpu[-1] == 0:
            assert found.fragments[-1] == pytest.approx(found.fragments[0], abs=1e-6)
            assert found.watts[-1] == pytest.approx(found.watts[0], abs=1e-6)


# The packing list


@pytest.fixture
def listed(tmp_path: Path) -> str:
    """Ten jobs of half a GPU and of two GPUs in turn: 12.5 GPUs in all."""
    jobs = [job(f"p{n}", 50 - n, 9, 2 if n % 2 else 1, gpu_milli=1000 if n % 2 else 500, priority=n) for n in range(10)]
    write_table(trace_of(jobs), tmp_path / "list.parquet")
    return str(tmp_path / "list.parquet")


def packing(path: str, gpus: int, seed: int = 0, **parameters: object) -> pa.Table:
    return load("packing", {"path": path, **parameters}, cluster_of([server(gpus)]), seed)


def test_a_packing_list_is_shuffled_and_filled_up(listed: str):
    table = packing(listed, 20)
    asked = table["gpus"].to_numpy() * table["gpu_milli"].to_numpy() / 1000
    names = table["job_id"].to_pylist()
    assert sorted(names[:10]) == [f"p{n}" for n in range(10)] and names[:10] != sorted(names[:10])
    assert table["clone"].to_pylist() == [False] * 10 + [True] * (len(names) - 10) and len(set(names)) == len(names)
    # Whether the next one goes beyond 26 is asked of one of its GPUs: two of 2 GPUs may overshoot by 1.
    assert 25 < asked.sum() <= 27 and asked[:-1].sum() <= 26
    assert table["submit_time"].to_pylist() == list(range(len(names)))
    assert set(table["end_time"].to_pylist()) == {float(len(names))} and set(table["priority"].to_pylist()) == {0}
    assert packing(listed, 20)["job_id"] == table["job_id"] and packing(listed, 20, 1)["job_id"] != table["job_id"]
    few = packing(listed, 5)
    assert few.num_rows < 10 and not any(few["clone"].to_pylist())
    assert (few["gpus"].to_numpy() * few["gpu_milli"].to_numpy()).sum() <= 6500


def test_an_order_of_arrival_comes_from_a_file(listed: str, tmp_path: Path):
    np.savez(tmp_path / "orders.npz", mine=np.array([3, 0, 3, 9, 3]), much=np.array([10]), words=np.array(["a"]))
    table = packing(listed, 20, order=f"{tmp_path}/orders.npz:mine")
    assert table["job_id"].to_pylist() == ["p3", "p0", "p3+1", "p9", "p3+2"]
    assert table["clone"].to_pylist() == [False, False, True, False, True]
    for key, said in (("much", "row numbers from 0 to 9"), ("words", "must be a row of whole numbers"), ("none", "has no array 'none'")):
        with pytest.raises(BadInput, match=said):
            packing(listed, 20, order=f"{tmp_path}/orders.npz:{key}")
    with pytest.raises(BadInput, match="cannot be read"):
        packing(listed, 20, order=f"{listed}:mine")
    with pytest.raises(BadInput, match="workload.path"):
        packing("", 20)


def test_nothing_is_placed_later(listed: str):
    played = play(packing(listed, 8).select(trace_of([]).column_names).to_pylist(), [server(8)], "fgd")
    statuses = {row["status"] for row in played.jobs.values()}
    assert statuses == {"finished", "expired"}
    for row in played.jobs.values():
        assert row["first_start"] in (None, row["submit_time"]) and row["finish_time"] == len(played.jobs)


# Clusters in another order


def test_servers_stand_in_the_order_that_is_asked_for(tmp_path: Path):
    a, b = ({"name": name, "gpu_model": name, "gpus": gpus, "cores": 8} for name, gpus in (("a", 1), ("b", 2)))
    groups = [{**a, "servers": 2}, {**b, "servers": 3}, {**a, "servers": 1}]
    plain = build(parse({"groups": groups}))
    # Equal groups share a shape.
    assert (len(plain.shapes), plain.shape_of.tolist()) == (2, [0, 0, 1, 1, 1, 0])
    (tmp_path / "nodes.yaml").write_text(f"name: x\ngroups: {groups}\n")
    np.savez(tmp_path / "ranks.npz", mine=np.array([5, 0, 4, 1, 2, 3]), twice=np.array([0, 0, 1, 2, 3, 4]))
    section = {"from_file": str(tmp_path / "nodes.yaml"), "order": f"{tmp_path}/ranks.npz:mine"}
    # Server 1 (a) has rank 0, then 3 (b), 4 (b), 5 (a), 2 (b), 0 (a).
    assert build(parse(section)).shape_of.tolist() == [0, 1, 1, 0, 1, 0]
    shuffled = [build(parse({"groups": groups, "order": seed})).shape_of.tolist() for seed in (0, 0, 1, 2)]
    assert shuffled[0] == shuffled[1] and len(set(map(tuple, shuffled))) > 1 and all(sorted(s) == [0, 0, 0, 1, 1, 1] for s in shuffled)
    for wrong, said in (({"order": f"{tmp_path}/ranks.npz:twice"}, "must be the ranks 0 to 5"), ({"order": -1}, "whole number >= 0"),
                        ({"order": "absent.npz:mine"}, "cannot be read"), ({"from_file": "absent.yaml"}, "cannot be read"),
                        ({"from_file": str(tmp_path / "ranks.npz")}, "cannot be read")):
        with pytest.raises(BadInput, match=said):
            build(parse({**section, **wrong}))


# The real trace


@pytest.mark.skipif(not JIT, reason="ten thousand pods on a thousand servers take minutes interpreted")
@pytest.mark.parametrize(("policy", "allocated"), [("fgd", 95.29), ("packing", 91.57)])
def test_published_figures_of_seed_42(policy: str, allocated: float, shared_traces: Path, tmp_path: Path):
    """Percent of all GPUs, mean over the arrivals whose load rounds to 130 %: single runs of the authors (specs, FGD)."""
    folder = shared_traces / "alibaba-openb-v2023"
    pods, nodes = tmp_path / "pods.parquet", tmp_path / "nodes.yaml"
    assert main(["import", "alibaba-openb", str(folder / "openb_pod_list_default.csv"), "--times", "static", "-o", str(pods)]) == 0
    assert main(["import", "alibaba-openb-nodes", str(folder / "openb_node_list_gpu_node.csv"), "--order", "file", "-o", str(nodes)]) == 0
    cluster = build(parse({"from_file": str(nodes), "order": f"{folder}/fgd_orders.npz:rank_42"}))
    trace = load("packing", {"path": str(pods), "order": f"{folder}/fgd_orders.npz:default_42"}, cluster, 42)
    outcome = replay(trace, cluster, load_policy(policy), Rules(pinning="first_free"))
    table = arrivals_table(outcome, history(outcome, cluster))
    last = np.rint(100 * table["arrived"].to_numpy()) == 130
    assert round(float(np.round(100 * table["allocated"].to_numpy(), 2)[last].mean()), 2) == allocated
