"""From what a replay leaves behind to the result tables and the summary of one cell."""

from harness.metrics.fragmentation import arrivals_table, history, with_energy, with_fragmentation
from harness.metrics.identities import check_identities
from harness.metrics.jobs import jobs_table
from harness.metrics.preemptions import preemptions_table
from harness.metrics.quotes import quote_metrics, with_quotes
from harness.metrics.summary import summary
from harness.metrics.utilization import utilization_table

__all__ = ["arrivals_table", "check_identities", "history", "jobs_table", "preemptions_table", "quote_metrics", "summary",
           "utilization_table", "with_energy", "with_fragmentation", "with_quotes"]
