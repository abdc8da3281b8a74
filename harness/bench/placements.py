"""Pods placed per second in FGD's setting: the openb trace as a packing list on its 1,213 GPU servers."""

from collections.abc import Iterator
from pathlib import Path

from harness.bench.replays import SEED, cluster_of, timed
from harness.bench.rows import Row
from harness.bench.sizes import Sizes
from harness.cache import PACKAGE
from harness.cluster.build import Rules
from harness.readers import alibaba_openb
from harness.tables import write_batches
from harness.workload import load

PODS = PACKAGE.parent.parent / "shared/traces/alibaba-openb-v2023"
VARIANTS = ("default", "gpuspec33")
POLICIES = {"fgd": 100_000, "bestfit": None, "pwr_fgd": None}
"""Policies and their budgets, in pods per second; the simulator of FGD's authors places 6.3 with FGD and 14.9 with BestFit."""


def placements(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Pods that arrive per second of the compiled loop; nothing is measured where the public trace is absent."""
    cluster = cluster_of("openb", 1_213)
    for variant in VARIANTS:
        file = PODS / f"openb_pod_list_{variant}.csv"
        trace = None
        if file.is_file():
            pods, _ = alibaba_openb.read([file], alibaba_openb.Options(times="static"))
            write_batches(pods.batches(), folder / f"{variant}.parquet", {})
            trace = load("packing", {"path": str(folder / f"{variant}.parquet")}, cluster, SEED)
            trace = trace.slice(0, min(sizes.pods, trace.num_rows))
        for policy, target in POLICIES.items():
            what = f"{policy}: placing openb {variant} on {cluster.servers:,} servers"
            if trace is None:
                yield Row(what, None, "pods/s", target, ">=", True, f"{file.name} is not beside this checkout")
                continue
            best = min(timed(trace, cluster, policy, Rules(pinning="first_free")).run_s for _ in range(sizes.repeats))
            yield Row(what, trace.num_rows / best, "pods/s", target, ">=", True, f"{trace.num_rows:,} pods in {best:.3f} s")
