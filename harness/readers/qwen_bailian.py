"""Qwen-Bailian usage traces (Alibaba, Apache-2.0), one request per JSON line with prefix blocks of 16 tokens: Wang et al., ATC'25.

Written from the dataset's documentation: its files are stored in Git LFS and were not at hand. Fields: chat_id, parent_chat_id (-1 for
the first of a chat), timestamp (s from the start), input_length, output_length (tokens), type (text, search, image, file), turn,
hash_ids. Oddities, and the rule for each:

- hash_ids are ids of blocks within one file, of 16 tokens (Mooncake's have 512): those of each further file are shifted, so that
  files never seem to share a prefix.
- chat_id is a number within one file: it is carried along with parent_chat_id, type and turn as columns beyond the schema; the
  request is qwen-N, N the row from 0, counted on through the files. The service is the file's name, or ``service``.
- Clocks rounded to ticks: kept, or ``ticks=spread`` as for mooncake.
- An exact repetition: kept, see ``duplicates``. A request without tokens: dropped, see ``zero_tokens``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from harness.readers._prefixes import PrefixOptions, prefix_requests
from harness.readers._spool import Spool

CARRIED = {"chat_id": pa.int64(), "parent_chat_id": pa.int64(), "type": pa.string(), "turn": pa.int64()}


@dataclass(frozen=True)
class Options(PrefixOptions):
    pass


def read(paths: Sequence[Path], options: Options) -> tuple[Spool, list[str]]:
    """Requests and the report. Raises BadInput."""
    return prefix_requests(paths, options, "qwen", 1.0, 16, CARRIED)
