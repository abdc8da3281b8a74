"""``make compile``: compiles the replay loop and every policy into the cache, so that many processes can start at once."""

import sys
import time


def main() -> int:
    began = time.perf_counter()
    from harness.cluster import engine
    from harness.cluster.hooks import load_policy, policy_names

    assert engine.run is not None
    for name in policy_names():
        load_policy(name)
    print(f"compiled: {len(policy_names())} policies, {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
