"""``make compile``: compiles the replay loops of both halves and every policy into the cache, so that many processes can start at once."""

import sys
import time


def main() -> int:
    began = time.perf_counter()
    from harness.cluster import engine, hooks
    from harness.serving import engine as serving_engine
    from harness.serving import hooks as serving_hooks

    assert engine.run is not None and serving_engine.run is not None
    for half in (hooks, serving_hooks):
        for name in half.policy_names():
            half.load_policy(name)
    count = len(hooks.policy_names()) + len(serving_hooks.policy_names())
    print(f"compiled: {count} policies, {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
