"""Mooncake (Kimi serving, Apache-2.0), one request per JSON line with prefix blocks of 512 tokens: Qin et al., FAST'25.

Fields: timestamp (ms from the start), input_length, output_length (tokens), hash_ids. Oddities, and the rule for each:

- The arrivals of the conversation and tool traces sit on ticks 3 s apart, about ten at each: kept, which shows bursts that are
  the clock's; ``ticks=spread`` moves each uniformly into the ``tick_s`` behind it, drawn from ``seed`` in the order of the file. The
  synthetic trace has no ticks: keep it.
- hash_ids are ids of blocks within one file: those of each further file are shifted, so that files never seem to share a prefix.
  Equal leading ids are a reusable prefix. There are ceil(input_length / 512), so the last block is partial; others are counted.
- No request, session, model or user id: mooncake-N, N the row from 0, counted on through the files; the service is the file's
  name, or ``service``.
- An exact repetition: kept, see ``duplicates``. A request without tokens: dropped, see ``zero_tokens``.
- Prompts reach 191,000 tokens: kept; `workload.where` leaves out what a small model cannot hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.readers._prefixes import PrefixOptions, prefix_requests
from harness.readers._spool import Spool


@dataclass(frozen=True)
class Options(PrefixOptions):
    pass


def read(paths: Sequence[Path], options: Options) -> tuple[Spool, list[str]]:
    """Requests and the report. Raises BadInput."""
    return prefix_requests(paths, options, "mooncake", 1e-3, 512, {})
