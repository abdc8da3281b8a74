"""Traces on disk: Parquet in and out, validated against the tables of ``harness.schema``.

A trace that passes here needs no further checks downstream: every column of its table is there, of its type,
without nulls where none may be, finite and within its bounds.
"""

from harness.tables.blocks import TraceFile
from harness.tables.checks import checked, fill_defaults, kind_of, rows_text, summary, validate
from harness.tables.cut import TIME_COLUMN, cut
from harness.tables.parquet import TableWriter, metadata_of, read_parquet, read_trace, write_atomically, write_table
from harness.tables.sniff import one_line, seems

__all__ = [
    "TIME_COLUMN",
    "TableWriter",
    "TraceFile",
    "checked",
    "cut",
    "fill_defaults",
    "kind_of",
    "metadata_of",
    "one_line",
    "read_parquet",
    "read_trace",
    "rows_text",
    "seems",
    "summary",
    "validate",
    "write_atomically",
    "write_table",
]
