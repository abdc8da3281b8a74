"""The figures of describe, by hand."""

import numpy as np
import pyarrow as pa
import pytest

from harness.describe import as_text, describe
from harness.schema import JOBS, REQUESTS, SERVICES
from harness.tables import fill_defaults
from harness.topology import ClusterConfig, ShapeConfig, build


def jobs(rows: int = 6) -> pa.Table:
    return fill_defaults(
        pa.table(
            {
                "job_id": [f"j{i}" for i in range(rows)],
                "submit_time": np.arange(rows) * 100.0,
                "duration": np.full(rows, 150.0),
                "gpus": pa.array([1, 2] * (rows // 2), pa.int16()),
                "kind": ["batch", "online"] * (rows // 2),
            }
        ),
        JOBS,
    )


CLUSTER = build(ClusterConfig(name="small", groups=[ShapeConfig(servers=2, gpus=4, cores=8)]))


def test_describe_jobs_by_hand():
    """Jobs of 1, 2, 1, 2, 1, 2 GPUs arrive every 100 s and run 150 s, so at most two overlap: 3 GPUs from 100 s on.

    GPU seconds: 9 x 150 = 1350, over a span of 500 s and 8 GPUs: 0.3375.
    """
    figures = describe(jobs(), CLUSTER)
    assert (figures["kind"], figures["rows"], figures["span_s"]) == ("jobs", 6, 500.0)
    assert figures["arrivals"]["mean_per_hour"] == pytest.approx(43.2)
    assert (figures["arrivals"]["peak_hour"], figures["arrivals"]["peak_hour_starts_s"], figures["arrivals"]["gap_cv"]) == (
        6,
        0.0,
        0.0,
    )
    assert figures["jobs_by_gpus"] == {"1": 3, "2": 3}
    assert figures["duration_s"]["p99"] == 150.0
    assert figures["share_by_kind"]["online"] == {"jobs": 0.5, "gpu_s": pytest.approx(2 / 3)}
    demand = figures["demand"]
    assert (demand["peak_gpus"], demand["peak_gpus_at_s"], demand["peak_gpus_by_jobs"], demand["peak_jobs"], demand["gpu_s"]) == (
        3,
        100,
        2,
        2,
        1350,
    )
    assert figures["cluster"] == {
        "name": "small",
        "servers": 2,
        "gpus": 8,
        "cores": 16,
        "offered_load_gpus": pytest.approx(0.3375),
        "peak_over_gpus": 0.375,
        "offered_load_cores": 0.0,
        "peak_over_cores": 0.0,
    }


def test_describe_respects_gangs_shares_and_ends():
    """2 x 3 GPUs for 10 s, cut to 5 s by end_time, and a quarter of a GPU for 10 s: peak 6.25 GPUs, 32.5 GPU s."""
    table = fill_defaults(
        pa.table(
            {
                "job_id": ["a", "b"],
                "submit_time": [0.0, 0.0],
                "duration": [10.0, 10.0],
                "instances": pa.array([2, 1], pa.int32()),
                "gpus": pa.array([3, 1], pa.int16()),
                "gpu_milli": pa.array([1000, 250], pa.int16()),
                "end_time": [5.0, None],
            }
        ),
        JOBS,
    )
    figures = describe(table, CLUSTER)
    assert (figures["gangs"], figures["shared_gpu_jobs"], figures["jobs_by_gpus"]) == (1, 1, {"<1": 1, "6": 1})
    assert (figures["demand"]["peak_gpus"], figures["demand"]["gpu_s"]) == (6.25, 32.5)
    assert figures["arrivals"]["mean_per_hour"] is None and figures["cluster"]["offered_load_gpus"] is None


def test_describe_services_and_requests():
    """Service a holds 1 GPU, from 10 s on 3; b holds 2 x 2 in [5, 20): peak 7 GPUs at 10 s; 10 + 30 + 60 = 100 GPU s in 20 s."""
    services = fill_defaults(
        pa.table(
            {
                "service": ["a", "a", "b", "b"],
                "time": [0.0, 10.0, 5.0, 20.0],
                "replicas": pa.array([1, 3, 2, 0], pa.int32()),
                "gpus": pa.array([1, 1, 2, 2], pa.int16()),
            }
        ),
        SERVICES,
    )
    figures = describe(services, CLUSTER)
    assert figures["services"] == 2
    assert (figures["demand"]["peak_gpus"], figures["demand"]["peak_gpus_at_s"], figures["demand"]["gpu_s"]) == (7.0, 10.0, 100.0)
    assert figures["cluster"]["offered_load_gpus"] == pytest.approx(100 / 20 / 8)
    requests = fill_defaults(
        pa.table(
            {
                "request_id": ["a", "b"],
                "arrival_time": [0.0, 2.0],
                "prompt_tokens": pa.array([10, 30], pa.int32()),
                "output_tokens": pa.array([1, 3], pa.int32()),
                "service": ["x", "y"],
            }
        ),
        REQUESTS,
    )
    figures = describe(requests, CLUSTER)
    assert (figures["prompt_tokens"]["mean"], figures["prompt_tokens_per_s"], figures["requests_by_service"]) == (
        20.0,
        20.0,
        {"x": 1, "y": 1},
    )
    for table in (services, requests):
        assert "span_s" in as_text(describe(table))


def test_an_empty_trace_is_described():
    assert describe(jobs().slice(0, 0), CLUSTER) == {"kind": "jobs", "rows": 0}
    assert as_text({"kind": "jobs", "rows": 0}) == "kind  jobs\nrows  0"
