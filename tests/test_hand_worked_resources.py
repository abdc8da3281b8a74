"""Placements worked by hand: best fit, pinning, levels and speeds, shares of GPUs, cores, memory, gangs, network domains."""

from typing import Any

import pytest

from builders import job, play, server

PAIRS = server(4, numa=2, sockets=2)
"""GPUs 0, 1 in one NUMA node and socket, 2, 3 in another."""


def test_best_fit_takes_the_server_with_fewest_free_gpus():
    # Servers of 4, 3 and 3 GPUs. a (1 GPU): servers 1 and 2 have 3 free, the lower wins. b (2) and c (1): server 1 has 2, then 0
    # free, so c takes server 2 (3 free) rather than server 0 (4 free). d (3): only server 0 has room.
    jobs = [job("a", 0, 9), job("b", 0, 9, 2), job("c", 0, 9), job("d", 0, 9, 3)]
    played = play(jobs, [server(4), server(3), server(3)], "fifo")
    assert [row["servers"] for row in played.jobs.values()] == [[1], [1], [2], [0]]


def test_best_fit_counts_thousandths_of_gpus():
    # x takes half a GPU of server 0 (1,500 thousandths left of 2,000), so a whole GPU goes to server 0, not to server 1 (2,000).
    # Then server 0 has 500 free: y (300) goes there, z (300) finds 200 and goes to server 1.
    jobs = [job("x", 0, 9, gpu_milli=500), job("a", 0, 9), job("y", 0, 9, gpu_milli=300), job("z", 0, 9, gpu_milli=300)]
    played = play(jobs, [server(2), server(2)], "fifo")
    assert [row["servers"] for row in played.jobs.values()] == [[0], [0], [0], [1]]
    # x (500) on server 0 and y (500, model B) on server 1 leave 1,500 on each: the lower one.
    jobs = [job("x", 0, 9, gpu_milli=500), job("y", 0, 9, gpu_milli=500, gpu_model="B"), job("a", 0, 9)]
    played = play(jobs, [server(2), server(2, gpu_model="B")], "fifo")
    assert [row["servers"] for row in played.jobs.values()] == [[0], [1], [0]]


@pytest.mark.parametrize(("pinning", "one", "two", "level"), [
    # Free are GPUs 0, 2, 3. One GPU: packed takes the node with fewest free, first_free the lowest, spread the emptiest node.
    # Two: packed stays in node 1; first_free takes 0 and 2; spread takes 2, then ties at one each and takes 0.
    ("packed", [0], [2, 3], "numa"), ("first_free", [0], [0, 2], "server"), ("spread", [2], [0, 2], "server"),
])
def test_pinning_chooses_gpus(pinning: str, one: list[int], two: list[int], level: str):
    # x and y take GPUs 0 and 1, whatever the pinning, by asking for both; x ends at 1 so that GPU 0 comes free.
    fill = [job("x", 0, 1, gpu_milli=600), job("y", 0, 99, gpu_milli=600)]
    played = play([*fill, job("a", 2, 1)], [PAIRS], "fifo", pinning=pinning)
    assert (played.gpus("y"), played.gpus("a")) == ([[1]], [one])
    played = play([*fill, job("b", 2, 1, 2)], [PAIRS], "fifo", pinning=pinning)
    assert (played.gpus("b"), played.jobs["b"]["level"]) == ([two], level)


def test_packed_across_domains_starts_with_the_emptiest_node():
    # Four NUMA nodes of 2 GPUs. x holds GPU 0. Five GPUs fit no socket of 4: nodes 1, 2, 3 have 2 free each and come before node 0:
    # GPUs 2, 3, 4, 5 and 6.
    played = play([job("x", 0, 9), job("a", 0, 9, 5)], [server(8, numa=4, sockets=2)], "fifo")
    assert (played.gpus("a"), played.jobs["a"]["level"]) == ([[2, 3, 4, 5, 6]], "server")
    # Three fit socket 1 (4 free) and socket 0 (3 free): the fuller one, lowest GPUs.
    played = play([job("x", 0, 9), job("a", 0, 9, 3)], [server(8, numa=4, sockets=2)], "fifo")
    assert (played.gpus("a"), played.jobs["a"]["level"]) == ([[1, 2, 3]], "socket")


def test_an_nvlink_group_is_a_level_between_node_and_socket():
    # Four NUMA nodes of 1 GPU, linked in pairs, in one socket. x and y hold GPUs 0 and 2: of 1 and 3 no group holds both.
    linked = server(4, numa=4, nvlink=[0, 0, 1, 1])
    assert play([job("a", 0, 9, 2)], [linked], "fifo").jobs["a"]["level"] == "nvlink"
    played = play([job("x", 0, 9, 2), job("y", 0, 1), job("a", 0, 9)], [linked], "fifo")
    assert (played.gpus("y"), played.gpus("a")) == ([[2]], [[3]])
    assert play([job("a", 0, 9, 3)], [linked], "fifo").jobs["a"]["level"] == "socket"


def test_speed_goes_by_kind_and_level():
    # a, training over two sockets, works at half speed: 10 s of work take 20 s; b, online, is not concerned: [20, 30).
    # c, training inside a node, works at double speed: [30, 35).
    speed = {("training", "server", "server"): 0.5, ("training", "numa", "server"): 2.0}
    jobs = [job("a", 0, 10, 4, kind="training"), job("b", 0, 10, 4, kind="online"), job("c", 0, 10, 2, kind="training")]
    played = play(jobs, [PAIRS], "fifo", speed=speed)
    assert [row["finish_time"] for row in played.jobs.values()] == [20, 30, 35]
    # Goodput is work, not time: 4 GPUs x 10 s; what is slow shows in busy GPUs: (80 + 40 + 10) / (35 * 4).
    assert (played.jobs["a"]["goodput_gpu_s"], played.jobs["a"]["slowdown"]) == (40, 2)
    assert played.summary["gpu_busy_mean"] == pytest.approx(130 / 140, rel=1e-12)


def test_speed_goes_by_network_level():
    # Servers of 1 GPU: 0 and 1 in rack 0, 2 in rack 1, all under spine 0, 3 under spine 1. Gangs of 2, 3 and 4 reach as far as a
    # rack, a spine, the cluster: 8 s of work at 1/2, 1/4 and 1/8 take 16, 32 and 64 s, one after the other.
    servers = [server(), server(), server(rack=1), server(rack=2, spine=1)]
    speed = {("batch", "numa", name): 0.5 ** (i + 1) for i, name in enumerate(("rack", "spine", "cluster"))}
    jobs = [job(str(n), 0, 8, instances=n) for n in (2, 3, 4)]
    played = play(jobs, servers, "fifo", speed=speed)
    assert [row["finish_time"] for row in played.jobs.values()] == [16, 48, 112]
    assert [row["servers"] for row in played.jobs.values()] == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_shares_fill_the_tightest_gpu_first():
    # Two GPUs. a (600) opens GPU 0, b (500) finds 400 there and opens GPU 1. c (400): 400 left on 0 is tighter than 500 on 1.
    # d (300) goes to GPU 1 (500 left). e (300) fits neither (0 and 200 left) before a ends at 5: GPU 0.
    jobs = [job("a", 0, 5, gpu_milli=600), job("b", 0, 20, gpu_milli=500), job("c", 0, 20, gpu_milli=400),
            job("d", 0, 20, gpu_milli=300), job("e", 0, 20, gpu_milli=300)]
    played = play(jobs, [server(2)], "fifo")
    assert [played.gpus(name) for name in "abcde"] == [[[0]], [[1]], [[0]], [[1]], [[0]]]
    assert played.starts[-1] == (5, "e")
    # A whole GPU needs one without sharers: GPU 1 has b and d until 20; c and e leave GPU 0 at 20 and 25.
    played = play([*jobs, job("w", 6, 1)], [server(2)], "fifo")
    assert (played.runs("w"), played.gpus("w")) == ([(20, 21)], [[1]])


def test_exclusive_cores_are_whole_and_spare_the_shared_pool():
    # 8 cores. s shares 3.5 of them until 10. x wants 5 exclusive cores: 4.5 would be left for it. y wants 4.2, which makes 5. z
    # wants 4: 3.5 + 4 <= 8.
    jobs = [job("s", 0, 10, 0, cpus=3.5), job("x", 1, 5, 0, cpus=5.0, affinity="best_effort"),
            job("y", 1, 5, 0, cpus=4.2, affinity="best_effort"), job("z", 1, 20, 0, cpus=4.0, affinity="best_effort")]
    # z [1, 21). At 10 s ends, and 4 cores are left: x at 21 [21, 26), y after it.
    assert play(jobs, [server()]).starts == [(0, "s"), (1, "z"), (21, "x"), (26, "y")]
    # The other way round: 5 exclusive cores leave 3 to share. t (1.001 cores, three times: 3.003) does not fit whole.
    jobs = [job("x", 0, 10, 0, cpus=5.0, affinity="best_effort"), *(job(f"t{i}", 1, 5, 0, cpus=1.001) for i in range(3))]
    assert play(jobs, [server()]).starts == [(0, "x"), (1, "t0"), (1, "t1"), (6, "t2")]
    # With 1.0 each they do.
    for t in jobs[1:]:
        t["cpus"] = 1.0
    assert play(jobs, [server()]).starts == [(0, "x"), (1, "t0"), (1, "t1"), (1, "t2")]


def test_exclusive_cores_follow_the_gpus():
    # Two nodes of 4 cores in one socket. 1 GPU with 6 cores: no node holds 6; the GPU is on node 0, which gives its 4, node 1 the
    # other 2. 2 GPUs with 3 cores: ceil(3 * 1 / 2) = 2 from node 0, 1 left from node 1.
    servers = [server(2, numa=2, cores=4)]
    played = play([job("a", 0, 9, 1, cpus=6.0, affinity="best_effort")], servers, "fifo")
    assert (played.gpus("a"), played.cores("a"), played.jobs["a"]["level"]) == ([[0]], [[4, 2]], "socket")
    played = play([job("a", 0, 9, 2, cpus=3.0, affinity="best_effort")], servers, "fifo")
    assert (played.cores("a"), played.jobs["a"]["level"]) == ([[2, 1]], "socket")
    # Without affinity cores are shared: nothing is pinned but the GPU.
    played = play([job("a", 0, 9, 1, cpus=6.0)], servers, "fifo")
    assert (played.cores("a"), played.jobs["a"]["level"]) == ([[0, 0]], "numa")
    # Neither GPU nor exclusive core: no level.
    assert play([job("a", 0, 9, 0, cpus=6.0)], servers, "fifo").jobs["a"]["level"] is None


def test_memory_and_models_limit_placement():
    # 100 MiB each. a (60) and b (60) cannot share a server; c allows model B only, which is server 1: b is there until 5.
    jobs = [job("a", 0, 9, memory_mib=60), job("b", 0, 5, memory_mib=60), job("c", 0, 9, memory_mib=60, gpu_model="B|C")]
    played = play(jobs, [server(2), server(2, gpu_model="B")], "fifo")
    assert played.starts == [(0, "a"), (0, "b"), (5, "c")]
    assert [row["servers"] for row in played.jobs.values()] == [[0], [1], [1]]


def test_gangs_start_whole_or_not_at_all():
    # Two servers of 2 GPUs; x holds one GPU of server 0 until 5. g, 4 instances of 1 GPU, waits for it though 3 are free, and h
    # (3 instances) takes those: best fit fills server 0 first, then server 1.
    jobs = [job("x", 0, 5), job("g", 1, 9, instances=4), job("h", 1, 9, instances=3)]
    played = play(jobs, [server(2), server(2)])
    assert played.starts == [(0, "x"), (1, "h"), (10, "g")]
    assert (played.jobs["h"]["servers"], played.jobs["g"]["servers"]) == ([0, 1, 1], [0, 0, 1, 1])
    # Under fifo g blocks h: g [5, 14), then h.
    assert play(jobs, [server(2), server(2)], "fifo").starts == [(0, "x"), (5, "g"), (14, "h")]


def test_racks_required_and_preferred():
    # Racks {0, 1} and {2, 3} of 2-GPU servers. x (1 GPU) sits on server 0: rack 0 has 3 free GPUs, rack 1 has 4. g (2 instances
    # of 1 GPU) goes to the fuller rack, best fit: servers 0 and 1. h (4 instances) then needs rack 1: servers 2, 2, 3, 3.
    servers = [server(2, rack=i // 2) for i in range(4)]
    rack: dict[str, Any] = {"network_domain": "rack", "network_mode": "required"}
    jobs = [job("x", 0, 9), job("g", 0, 9, instances=2, **rack), job("h", 0, 9, instances=4, **rack)]
    played = play(jobs, servers)
    assert [row["servers"] for row in played.jobs.values()] == [[0], [0, 1], [2, 2, 3, 3]]
    # With 2 instances of 2 GPUs in the way of rack 1, h waits until 9 when it requires the rack, ...
    jobs = [job("x", 0, 9), job("y", 0, 9, 2, gpu_model="B"), job("h", 1, 9, instances=4, **rack)]
    servers[2]["gpu_model"] = "B"
    assert play(jobs, servers).starts == [(0, "x"), (0, "y"), (9, "h")]
    # ... and takes the 5 GPUs that are left in both when it prefers one: best fit over all servers.
    jobs[2]["network_mode"] = "preferred"
    played = play(jobs, servers)
    assert (played.starts[2], played.jobs["h"]["servers"]) == ((1, "h"), [0, 1, 1, 3])


def test_a_guarantee_waits_for_its_domain():
    # GPUs 0 and 3 stay with x and y (placed by filling node 0 with a pair, of which a half ends). g, guaranteed, wants 2 GPUs in
    # one node: 1 and 2 are free but apart until x ends at 20. u, unguaranteed, takes them at once, at level server.
    fill = [job("x", 0, 20), job("p", 0, 2), job("q", 0, 2), job("y", 0, 40)]
    g = job("g", 3, 5, 2, affinity="guaranteed")
    played = play([*fill, g], [PAIRS])
    assert [played.gpus(name) for name in "xpqyg"] == [[[0]], [[1]], [[2]], [[3]], [[0, 1]]]
    assert (played.runs("g"), played.jobs["g"]["level"]) == ([(20, 25)], "numa")
    played = play([*fill, g | {"affinity": "best_effort"}], [PAIRS])
    assert (played.runs("g"), played.gpus("g"), played.jobs["g"]["level"]) == ([(3, 8)], [[1, 2]], "server")
    # A guarantee of the server is no constraint; of 3 GPUs no node could ever hold, but a socket neither: never accepted.
    assert play([*fill, g | {"affinity_domain": "server"}], [PAIRS]).runs("g") == [(3, 8)]
    assert play([*fill, g | {"gpus": 3}], [PAIRS]).jobs["g"]["status"] == "rejected"


def test_auto_accepts_a_socket_where_no_node_could_ever_do():
    # Four nodes of 2 GPUs, two to a socket. 2 GPUs fit a node; 3 fit none, so a socket will do. x holds GPU 0: g takes GPUs 1, 2,
    # 3 of the fuller socket; first_free would take the lowest fitting socket, which is the same; h needs a whole node: 4, 5.
    servers = [server(8, numa=4, sockets=2)]
    jobs = [job("x", 0, 9), job("g", 0, 9, 3, affinity="guaranteed"), job("h", 0, 9, 2, affinity="guaranteed")]
    for pinning in ("packed", "first_free"):
        played = play(jobs, servers, "fifo", pinning=pinning)
        assert (played.gpus("g"), played.jobs["g"]["level"]) == ([[1, 2, 3]], "socket")
        assert (played.gpus("h"), played.jobs["h"]["level"]) == ([[4, 5]], "numa")
    # spread inside the socket that it must keep: GPU 1 or 2? Node 1 has 2 free, node 0 one: 2, then (tie) 1, then 3.
    assert play(jobs, servers, "fifo", pinning="spread").gpus("g") == [[1, 2, 3]]
