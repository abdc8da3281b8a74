"""JSON lines as they are found in the wild, in chunks of rows."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from harness.errors import BadInput
from harness.readers._csv import CHUNK_BYTES, Chunk
from harness.readers._stream import TextStream
from harness.tables import one_line


def read_json_lines(paths: Sequence[Path], fields: Mapping[str, pa.DataType], required: tuple[str, ...]) -> Iterator[Chunk]:
    """The ``fields`` of the rows of all files in turn, about CHUNK_BYTES of text at a time; an absent field is null, others are left out.

    Raises BadInput when a file is no JSON, a line is no object, a field has another type, or a row lacks one of ``required``.
    """
    from pyarrow import json as arrow_json

    number = 0
    for path in paths:
        first = 0
        stream = TextStream(path, "JSON")
        try:
            reader = arrow_json.open_json(
                pa.PythonFile(stream, mode="r"),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=CHUNK_BYTES),
                parse_options=arrow_json.ParseOptions(explicit_schema=pa.schema(list(fields.items())), unexpected_field_behavior="ignore"),
            )
            for batch in reader:
                table = pa.Table.from_batches([batch])
                for name in required:
                    if table[name].null_count:
                        row = first + table[name].is_null().to_pylist().index(True)
                        raise BadInput(f"{path}: row {row}: field {name} is missing; a row must have {', '.join(required)}")
                yield Chunk(table, path, f"{path}, counted from row {first}" if first else str(path), first, number, ())
                first += table.num_rows
                number += table.num_rows
        except pa.ArrowException as error:
            found = re.sub(r" in row (\d+)", lambda match, before=first: f" in row {before + int(match[1])}", str(error))
            raise BadInput(f"{path}: is not JSON lines with {', '.join(required)} ({one_line(found)})") from error
        finally:
            stream.close()
        if not first:
            raise BadInput(f"{path}: has no rows")
