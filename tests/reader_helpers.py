"""What tests of readers share."""

from pathlib import Path

import pyarrow as pa

from harness.readers import reader
from harness.readers._spool import Spool
from harness.schema import JOBS, names
from harness.tables import validate


def run(form: str, /, *paths: Path, **options):
    """What the reader of the format ``form`` makes of ``paths``: a table or a cluster, and the report."""
    module = reader(form)
    result, report = module.read(list(paths), module.Options(**options))
    return (result.table() if isinstance(result, Spool) else result), report


def written(folder: Path, content: str | bytes, name: str = "file.csv") -> Path:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / name


def column(table: pa.Table, name: str) -> list:
    return table[name].to_pylist()


def counted(report: list[str], words: str) -> str:
    """The only line of ``report`` that has ``words``."""
    found = [line for line in report if words in line]
    assert len(found) == 1, report
    return found[0]


def sound(table: pa.Table) -> pa.Table:
    """``table``, which must be a jobs trace with every schema column first and in order of submission."""
    assert table.column_names[: len(JOBS)] == names(JOBS) and validate(table, JOBS, "t") == []
    assert not [name for name in table.column_names if name.startswith("_")]
    assert column(table, "submit_time") == sorted(column(table, "submit_time"))
    return table
