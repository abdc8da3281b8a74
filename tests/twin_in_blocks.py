"""The twin of domain-first search while what it keeps is kept in blocks of two servers: small worlds have many then, cut by racks too.

As a script: ``python tests/twin_in_blocks.py POLICY...`` with NUMBA_DISABLE_JIT=1 prints the first difference.
"""

import sys

from harness.cluster import domain_search
from twin import complaint, report
from worlds import world

WORLDS = range(60)


def main(*policies: str) -> None:
    domain_search.BLOCK = 2
    for policy in policies:
        for seed in WORLDS:
            if complaint(world(seed), policy):
                sys.exit(f"world {seed}, {report(world(seed), policy)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
