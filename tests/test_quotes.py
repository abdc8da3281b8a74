"""Wait quotes: Erlang-C and its neighbours in closed form, a queue that is one, what has no bound, and Little's law."""

import json
from math import log
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from builders import job, server
from engine_run import cluster_of, run
from harness.app import main
from harness.figures import quote_calibration
from harness.figures.settings import NotDrawn
from harness.metrics import jobs_table, quote_metrics, utilization_table, with_quotes
from harness.metrics.quotes import HISTORY, erlang_c, quote
from harness.schema import QUEUES, QUOTES, names
from naive import DEFAULTS

QUOTAS = {"name": "kueue", "quota_by": "equal", "nominal_share": 1.0}


def test_erlang_c_in_closed_form():
    # M/M/1: rho. M/M/2 with a = 1: (a^2 / 2) / (1 - a/2) = 1 over 1 + a + 1 = 3. Nobody waits without load, everybody at k.
    assert erlang_c(np.array([1, 1, 2, 3, 2]), np.array([0.5, 0.9, 1.0, 0.0, 2.0])) == pytest.approx([0.5, 0.9, 1 / 3, 0, 1])
    # M/M/10, a = 8: by the sum a^n / n!.
    terms = np.cumprod([1.0, *(8 / n for n in range(1, 11))])
    tail = terms[10] * 10 / (10 - 8)
    assert erlang_c(np.array(10), np.array(8.0)) == pytest.approx(tail / (terms[:10].sum() + tail))


def test_quotes_in_closed_form():
    # M/M/1, lambda 0.5, S 1: wait 1 s; P(W > t) = 0.5 exp(-t / 2), so the p95 is 2 ln 10. Constant service halves both.
    made = quote(np.array([0.5, 0.5, 1.5, 0.01]), np.ones(4), np.array([1.0, 0.0, 1.0, 1.0]), np.ones(4))
    assert made.mean[:2] == pytest.approx([1.0, 0.5]) and made.p95[:2] == pytest.approx([2 * log(10), log(10)])
    assert np.isnan(made.mean[2]) and np.isnan(made.p95[2])  # 1.5 servers are asked for: no bound
    assert made.p95[3] == 0.0  # fewer than 5 % wait at all
    # Towards saturation the wait grows as 1 / (1 - rho).
    slow = quote(np.array([0.99, 0.999]), np.ones(2), np.ones(2), np.ones(2)).mean
    assert slow[1] / slow[0] == pytest.approx(10, rel=0.02)


def quoted(jobs: list[dict], servers: list[dict], policy: str = "fifo", **section: object) -> tuple[list[dict], list[dict]]:
    outcome = run(jobs, servers, policy, dict(DEFAULTS))
    table, queues = with_quotes(jobs_table(outcome), outcome, cluster_of(servers), {"name": policy, **section})
    assert table["job_id"].to_pylist() == [row["job_id"] for row in jobs]
    return table.to_pylist(), queues.to_pylist()


def poisson(n: int, rate: float, mean_s: float, seed: int = 3) -> list[dict]:
    rng = np.random.default_rng(seed)
    at, runs = np.cumsum(rng.exponential(1 / rate, n)), rng.exponential(mean_s, n)
    return [job(f"j{i}", a, max(b, 1e-3)) for i, (a, b) in enumerate(zip(at, runs, strict=True))]


def test_a_queue_is_quoted_from_its_past_alone():
    # One server of 1 GPU. Jobs every 10 s of 5 s: lambda of the past is n / (10 n), E[S] 5, cv 0: k 1, a 0.5, quote 1/2 x 5 / 2 / 0.5.
    jobs = [job(f"j{i}", 10 * i, 5) for i in range(HISTORY + 2)]
    rows, queues = quoted(jobs, [server(1)])
    assert [row["quote"] for row in rows] == ["unknown"] * HISTORY + ["quotable"] * 2
    assert [rows[-1][name] for name in ("quote_s", "quote_p95_s")] == pytest.approx([2.5, 5 * log(10)])
    assert (queues[0]["tenant"], queues[0]["quoted"], queues[0]["covered_p95"], queues[0]["k_eff"]) == ("all", 2, 1.0, 1.0)
    # Later jobs change no earlier quote.
    again, _ = quoted([*jobs, job("long", 1000, 900), job("last", 1001, 1)], [server(1)])
    assert again[HISTORY]["quote_s"] == rows[HISTORY]["quote_s"]
    # Twice as long, a is 1 >= k: unfeasible. So is a job that asks for more than the quota, 2 of 2 GPUs shared by two tenants.
    rows, _ = quoted([job(f"j{i}", 10 * i, 10) for i in range(HISTORY + 1)], [server(1)])
    assert rows[-1]["quote"] == "unfeasible" and rows[-1]["quote_s"] is None
    jobs = [job(f"j{i}", 10 * i, 5, tenant="ab"[i % 2]) for i in range(2 * HISTORY)] + [
        job("wide", 9000, 5, 2, tenant="a"), job("fits", 9001, 5, tenant="a")]
    rows, queues = quoted(jobs, [server(2)], "kueue", **QUOTAS)
    assert [row["quote"] for row in rows[-2:]] == ["unfeasible", "quotable"]
    assert [(row["tenant"], row["quota_gpus"], row["unfeasible"]) for row in queues] == [("a", 1.0, 1), ("b", 1.0, 0)]


def test_k_eff_is_that_of_the_scarcest_resource():
    # 8 GPUs and 8 cores, jobs of 1 GPU and 4 cores: 2 fit, not 8.
    jobs = [job(f"j{i}", 10 * i, 5, cpus=4.0) for i in range(HISTORY + 1)]
    assert quoted(jobs, [server(8, cores=8)])[1][0]["k_eff"] == 2.0


def test_an_m_m_k_queue_waits_as_it_was_quoted_and_obeys_littles_law():
    # 4 GPUs at rho 0.8: Erlang-C says a mean wait of C(4, 3.2) / (4 - 3.2) = 0.746 E[S]. One run of 4,000 jobs; quotes settle as the past
    # grows, so the second half is compared. The margin is five standard errors of independent blocks of 500 jobs (about 25 %).
    jobs = poisson(4000, 0.8 * 4 / 10, 10.0)
    outcome = run(jobs, [server(4)], "fifo", dict(DEFAULTS))
    table, queues = with_quotes(jobs_table(outcome), outcome, cluster_of([server(4)]), {"name": "fifo"})
    half = table.slice(2000)
    expected = float(erlang_c(np.array(4), np.array(3.2))) * 10 / 0.8
    wait = half["wait_s"].to_numpy()
    margin = 5 * wait.reshape(-1, 250).mean(axis=1).std(ddof=1) / np.sqrt(8)
    assert float(half["quote_s"].to_numpy().mean()) == pytest.approx(expected, rel=0.25)
    assert float(wait.mean()) == pytest.approx(expected, abs=margin)
    assert quote_metrics(queues)["quote_covered_p95"] == pytest.approx(0.95, abs=0.05)
    # Little's law, and its L against the mean of the utilization table, which is made in another way.
    row, utilization = queues.to_pylist()[0], utilization_table(outcome)
    assert row["little_gap"] < 1e-9
    widths = utilization["t_end"].to_numpy() - utilization["t_start"].to_numpy()
    assert row["queue_len_mean"] == pytest.approx(float(widths @ utilization["queue_len"].to_numpy()) / outcome.end, rel=1e-9)


def test_the_calibration_figure():
    frame = pd.DataFrame({"quote_s": np.arange(1.0, 101), "quote_p95_s": 50.0, "wait_s": np.arange(1.0, 101), "policy": "fifo", "seed": 0})
    rows = quote_calibration.calibration(frame)
    assert rows["quoted"].to_numpy() == pytest.approx(np.arange(5.5, 100, 10)) and rows["covered"].tolist() == [1.0] * 5 + [0.0] * 5
    assert "50.0" in " ".join(text.get_text() for text in quote_calibration.draw(frame).texts)
    with pytest.raises(NotDrawn):
        quote_calibration.draw(frame.assign(quote_s=np.nan))




def test_a_cell_writes_quotes_beside_waits(tmp_path: Path):
    words = ("workload=gangs", "workload.jobs=150", "workload.instances=[1]", "workload.instance_weights=[1]", "workload.tenants=2",
             "cluster=flat", "cluster.servers=2", "policy=kueue", "metrics.quotes=true", "progress=false", f"out={tmp_path}")
    assert main(words) == 0
    cell = next(tmp_path.glob("*/queues.parquet")).parent
    jobs, queues = pq.read_table(cell / "jobs.parquet"), pq.read_table(cell / "queues.parquet")
    assert [name for name in jobs.column_names if name.startswith("quote")] == names(QUOTES)
    assert queues.column_names == names(QUEUES) and set(queues["tenant"].to_pylist()) == {"tenant-0", "tenant-1"}
    # Two queues, of which the first 30 jobs have no past: 150 - 60 others.
    assert sum(word != "unknown" for word in jobs["quote"].to_pylist()) == 90 == sum(queues["quoted"].to_pylist()) + sum(
        queues["unfeasible"].to_pylist())
    found = json.loads((cell / "summary.json").read_text())
    assert found["little_gap_max"] < 1e-9 and 0.5 < found["quote_covered_p95"] <= 1
