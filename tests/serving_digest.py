"""Prints a digest of the requests table of some worlds for every policy: the same with the compiler on and off."""

import hashlib
import json

from harness.metrics.requests import requests_table
from harness.serving.hooks import policy_names
from serving_worlds import families, play, pool, suited, world

WITH_STORES = {"fcfs with prefix stores": "fewest_tokens", "fcfs with prefix stores, routing prefix": "prefix"}
"""Further replays, with their rule of routing."""


def digests() -> dict[str, str]:
    found = {}
    for policy in policy_names():
        rows = world(11, n=40, span=3.0)
        keys: dict = {"kv_blocks": 90, "batch": 12, "replicas": 2}
        slo = (0.25, 0.5, 4.0)
        columns: dict = {"tenant": [f"t{i % 3}" for i in range(len(rows))], "ttft_slo_s": [slo[i % 3] for i in range(len(rows))]}
        rows, keys, columns = suited(policy, rows, keys, columns)
        table = requests_table(play(rows, pool(**keys), policy, **columns))
        found[policy] = hashlib.sha256(json.dumps(table.to_pydict()).encode()).hexdigest()
    rows = world(12, n=40, span=3.0)
    for name, routing in WITH_STORES.items():
        where = pool(kv_blocks=90, batch=12, replicas=2, prefix_block_tokens=8, prefix_cache_gb=0.05, routing=routing)
        table = requests_table(play(rows, where, prefix_hashes=families(12, rows, 8)))
        found[name] = hashlib.sha256(json.dumps(table.to_pydict()).encode()).hexdigest()
    return found


if __name__ == "__main__":
    print(json.dumps(digests()))
