"""Traces on disk: Parquet in and out, validated against the tables of ``harness.schema``.

A trace that passes here needs no further checks downstream: every column of its table is there, of its type,
without nulls where none may be, finite and within its bounds.
"""

from harness.tables.arrays import read_array
from harness.tables.blocks import TraceColumns, TraceFile
from harness.tables.checks import TIME_COLUMN, checked, fill_defaults, kind_of, rows_text, summary, validate
from harness.tables.cut import cut
from harness.tables.merge import merge, merge_sorted, own_blocks
from harness.tables.parquet import TableWriter, metadata_of, read_parquet, read_trace, write_atomically, write_batches, write_table
from harness.tables.sniff import one_line, seems

__all__ = [
    "TIME_COLUMN",
    "TableWriter",
    "TraceColumns",
    "TraceFile",
    "checked",
    "cut",
    "fill_defaults",
    "kind_of",
    "merge",
    "merge_sorted",
    "metadata_of",
    "one_line",
    "own_blocks",
    "read_array",
    "read_parquet",
    "read_trace",
    "rows_text",
    "seems",
    "summary",
    "validate",
    "write_atomically",
    "write_batches",
    "write_table",
]
