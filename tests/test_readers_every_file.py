"""Every public file is read, or is no trace and refused in one line: none is left out. tests/test_readers_public.py has more figures."""

from pathlib import Path

import pyarrow as pa
import pytest

from harness.errors import BadInput
from reader_helpers import run

ROWS = {
    "alibaba-dlrm-v2025/disaggregated_DLRM_trace.csv": ("alibaba-dlrm", 23_871 - 16),
    "alibaba-genai-v2026/lora_request_trace.csv": ("alibaba-genai", 26_823 - 30),  # 30 without an execution time
    "alibaba-openb-v2023/openb_pod_list_default.csv": ("alibaba-openb", 8_152 - 897),
    "alibaba-openb-v2023/openb_pod_list_gpuspec33.csv": ("alibaba-openb", 8_152 - 897),
    "alibaba-openb-v2023/openb_pod_list_multigpu50.csv": ("alibaba-openb", 9_061),
    "alibaba-spot-v2026/derived-aggregates/outlier_job_rows.csv": ("alibaba-spot", 1_392),
    "azure-llm-2023/AzureLLMInferenceTrace_code.csv": ("azure-llm", 8_819),
    "azure-llm-2023/AzureLLMInferenceTrace_conv.csv": ("azure-llm", 19_366),
    "burstgpt/BurstGPT_1.first400.csv": ("burstgpt", 400 - 17),  # 17 failures
    "mooncake-fast25/conversation_trace.jsonl": ("mooncake", 12_031),
    "muri-philly-vc/trace1.csv": ("muri", None), "muri-philly-vc/trace2.csv": ("muri", None),
    "philly/philly.csv.gz": ("philly", 82_247),
    "swf/RICC-2010-2.first330000.swf.gz": ("swf", None),
    "swf/lublin_256.swf": ("swf", 10_000),
}
"""File -> format, and rows with the default rules (16 of no length and 897 that never ran are left out); None: counted in
tests/test_readers_public.py."""

CLUSTERS = {"alibaba-openb-v2023/openb_node_list_all_node.csv": "alibaba-openb-nodes",
            "alibaba-openb-v2023/openb_node_list_gpu_node.csv": "alibaba-openb-nodes",
            "alibaba-spot-v2026/node_info_df.csv": "alibaba-spot", "flextopo/node-a-flextopo.yaml": "flextopo"}
"""Servers, not jobs."""

SERIES = ("basemodel_update_latency", "lora_update_latency", "model_predict_data", "pipeline_inference_data", "pipeline_update_latency",
          "pod_gpu_duty_cycle", "pod_gpu_memory_used_bytes", "queue_rt_raw", "queue_size_raw")
METRICS = ("alibaba-genai-v2026/qps.csv.gz", *(f"alibaba-genai-v2026/{name}_anon.csv.gz" for name in SERIES))
AGGREGATES = ("bucket_duration", "bucket_gpu_demand", "daily_capacity_pressure", "daily_summary", "demand_by_model", "duration_quantiles",
              "fleet_by_model", "hour_of_day_patterns", "hourly_concurrency", "hourly_summary", "job_type_summary",
              "long_job_slices_by_type", "org_model_mix_share", "worker_count_distribution")
NO_TRACES = {
    **{name: ("alibaba-genai", "is a metric series (timestamp_anon, value), not requests") for name in METRICS},
    **{f"alibaba-spot-v2026/derived-aggregates/{name}.csv": ("alibaba-spot", "columns missing: job_name") for name in AGGREGATES},
    "alibaba-spot-v2026/derived-aggregates/summary.txt": ("alibaba-spot", "columns missing: job_name"),
    "alibaba-openb-v2023/fgd_orders.npz": ("alibaba-openb", "must be CSV, but seems to be a zip archive"),  # orders of arrival
    **{f"helios/{name}": ("helios", "columns missing: job_id") for name in (  # quotas by day, and a series of demand
        "Earth_gpu_number.csv", "Earth_vc6YE_cluster_sequence.csv.gz", "Venus_cluster_gpu_number.csv", "philly_node_sequence.csv.gz")},
    "helios/helios_cluster_summary.csv": ("helios", "columns missing: job_id"),
}
"""Aggregates, quotas and metric series -> the format that they are taken for here, and what is said."""


def test_no_public_file_is_left_out(shared_traces: Path):
    there = {path.relative_to(shared_traces).as_posix() for path in shared_traces.rglob("*") if path.is_file()}
    documents = {name for name in there if name.endswith(("SOURCE.md", "SHA256SUMS"))}
    assert there - documents == {*ROWS, *CLUSTERS, *NO_TRACES}


@pytest.mark.parametrize("name", [name for name, (_, rows) in ROWS.items() if rows])
def test_a_trace_has_the_rows_that_its_source_says(shared_traces: Path, name: str):
    form, rows = ROWS[name]
    table, report = run(form, shared_traces / name)
    assert isinstance(table, pa.Table) and table.num_rows == rows and len(report) > 3


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_list_of_servers_becomes_a_cluster(shared_traces: Path, name: str):
    assert run(CLUSTERS[name], shared_traces / name)[0]["groups"]


@pytest.mark.parametrize("name", NO_TRACES)
def test_what_is_no_trace_is_refused_in_one_line(shared_traces: Path, name: str):
    form, said = NO_TRACES[name]
    with pytest.raises(BadInput) as caught:
        run(form, shared_traces / name)
    assert said in str(caught.value) and "\n" not in str(caught.value) and name in str(caught.value)
