"""What the contract tests run in other processes: replays of seeded worlds to digests of their tables, and attempts to write to
the view.

As a script: ``python tests/contract_cells.py POLICY_FILE SEED...`` prints {policy: {seed: digest}} as JSON.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from builders import play
from harness.cluster.hooks import Policy, load_policy, policy_names
from harness.metrics import jobs_table, preemptions_table, utilization_table
from naive import DEFAULTS
from worlds import world


def loaded(name: str, options: dict[str, Any]) -> Policy:
    """The policy of that name, or of that file, with the options that it has."""
    where = {"file": name} if Path(name).is_absolute() else {"name": name}
    has = load_policy(**where).params
    return load_policy(**where, params={option: value for option, value in {**DEFAULTS, **options}.items() if option in has})


def digest(cell: tuple[str, int]) -> str:
    """sha256 of all bytes of the three tables of (policy, seed), wall-clock columns left out, and of the counts."""
    policy, seed = cell
    jobs, servers, options = world(seed)
    outcome = play(jobs, servers, loaded(policy, options), **options).outcome
    result = hashlib.sha256(f"{outcome.events} {outcome.decisions} {outcome.end!r} {outcome.capped}".encode())
    for table in (jobs_table(outcome), preemptions_table(outcome), utilization_table(outcome)):
        sink = pa.BufferOutputStream()
        kept = table.select([name for name in table.column_names if not name.endswith("_wall_us")])
        with pa.ipc.new_stream(sink, kept.schema) as writer:
            writer.write_table(kept.combine_chunks())
        result.update(sink.getvalue())
    return result.hexdigest()


def main(user_policy: str, *seeds: str) -> None:
    cells = {name: {seed: digest((name, int(seed))) for seed in seeds} for name in (*policy_names(), user_policy)}
    print(json.dumps(cells))


if __name__ == "__main__":
    main(*sys.argv[1:])
