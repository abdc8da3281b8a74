"""From what a replay leaves behind to the result tables and the summary of one cell."""

from harness.metrics.identities import check_identities
from harness.metrics.jobs import jobs_table
from harness.metrics.preemptions import preemptions_table
from harness.metrics.summary import summary
from harness.metrics.utilization import utilization_table

__all__ = ["check_identities", "jobs_table", "preemptions_table", "summary", "utilization_table"]
