"""``make reproduce``: every experiment of the main paper, its figures, and REPRODUCTION.md with a verdict for each claim."""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cache import PACKAGE, sources_hash
from harness.claims import colocation, fgd, flextopo, flowprefill, gfs, hps, network, pwr, queues, real_traces, serving, switching
from harness.claims.claim import regressions, write_claims, write_expected, write_markdown
from harness.errors import BadInput
from harness.figures.style import save
from harness.report import build_report

REPOSITORY = PACKAGE.parent
PUBLIC_TRACES = REPOSITORY.parent / "shared" / "traces"


@dataclass(frozen=True)
class Recipe:
    """An experiment of conf/experiment, what a quick run changes of it, and the figures of it that are kept."""

    name: str
    quick: tuple[str, ...]
    figures: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


RECIPES = (
    Recipe("hit_rate", ("workload.preemptors=200",), ("hit_rate", "search_cost", "preemption_efficiency")),
    Recipe("card_mix", ("workload.preemptors=50",), ("card_mix",)),
    Recipe("guarantees", ("workload.preemptors=50",)),
    Recipe("pays", ("workload.days=1.0", "horizon_s=86400"), ("pays", "policy_load_heatmap")),
    Recipe("day", ("workload.days=1.0",), ("latency_cdf", "utilization_day", "preemption_efficiency")),
    Recipe("pecsched_drain", ("workload.synthetic_s=300",), ("serving_policies",)),
    Recipe("pecsched_stable", ("workload.synthetic_s=900",), ("serving_policies",)),
    Recipe("pecsched_without", ("workload.synthetic_s=300",)),
    Recipe("pecsched_ablations", ("workload.synthetic_s=300", "seed=0")),
    Recipe("step_models", ("workload.duration_s=60",), ("serving_cdf",)),
    Recipe("isjl", ("workload.requests=256",)),
    Recipe("flowprefill", ("workload.duration_s=200",), ("goodput_load", "serving_cdf")),
    Recipe("flowprefill_chunks", ("workload.duration_s=200", "seed=0,1")),
    Recipe("flowprefill_layers", ("workload.duration_s=200",)),
    Recipe("switching", ("workload.duration_s=200",), ("goodput_load",)),
    Recipe("prefix", ("workload.duration_s=120", "seed=0,1"), ("prefix_stores",)),
    Recipe("offloading", ("workload.requests=8", "seed=0")),
    Recipe("openb", (), ("latency_cdf",), ("openb.parquet",)),
    Recipe("philly", ("seed=0",), ("latency_cdf",), ("philly.parquet",)),
    Recipe("fgd", ("seed=42",), ("packing_curve",),
           ("openb_default.parquet", "openb_gpuspec33.parquet", "openb_nodes.yaml", "fgd_orders.npz")),
    Recipe("fgd_own_orders", ("seed=0",), (), ("openb_default.parquet", "openb_gpuspec33.parquet")),
    Recipe("pwr", ("seed=0",), ("power_curve",), ("openb_default.parquet",)),
    Recipe("dally", ("workload.jobs=200", "seed=0")),
    Recipe("dally_rivals", ("workload.jobs=200", "seed=0")),
    Recipe("gang_preemption", ("workload.jobs=200", "seed=0")),
    Recipe("quotes", ("workload.jobs=500", "seed=0"), ("quote_calibration",)),
    Recipe("hps", ("seed=0",)),
    Recipe("gfs", ("seed=0", "cluster.groups.0.servers=54"), ("spot_costs",)),
    Recipe("gfs_loads", ("seed=0", "cluster.groups.0.servers=54")),
    Recipe("gfs_parts", ("seed=0", "cluster.groups.0.servers=54")),
    Recipe("gfs_forecasters", ("seed=0", "cluster.groups.0.servers=54")),
    Recipe("colocation_day", ("seed=0", "workload.load_scale=0.1"), ("colocation_timeline", "colocation_demand", "colocation_pareto")),
    Recipe("colocation_azure", ("seed=0", "workload.end_s=600"), ("colocation_pareto", "colocation_demand"), ("azure.parquet",)),
    Recipe("colocation_pays", ("seed=0", "workload.duration_s=120", "warmup_s=600"), ()),
)

OPENB = "alibaba-openb-v2023"
IMPORTS = {
    "openb.parquet": (f"{OPENB}/openb_pod_list_default.csv", ("alibaba-openb",)),
    "philly.parquet": ("philly/philly.csv.gz", ("philly",)),
    "openb_default.parquet": (f"{OPENB}/openb_pod_list_default.csv", ("alibaba-openb", "--times", "static")),
    "openb_gpuspec33.parquet": (f"{OPENB}/openb_pod_list_gpuspec33.csv", ("alibaba-openb", "--times", "static")),
    "openb_nodes.yaml": (f"{OPENB}/openb_node_list_gpu_node.csv", ("alibaba-openb-nodes", "--order", "file")),
    "fgd_orders.npz": (f"{OPENB}/fgd_orders.npz", ()),
    "azure.parquet": ("azure-llm-2023/AzureLLMInferenceTrace_*.csv", ("azure-llm",)),
}
"""What is made in traces/imported: from which file (or files, by a pattern) below the folder of public traces, and by which words of
``harness-traces import``; by none when the file is taken as it is."""


def main(argv: Sequence[str] | None = None) -> int:
    """0: done, no claim is worse than expected; 1: one is, or a cell failed; 2: bad input."""
    parser = argparse.ArgumentParser(prog="python -m harness.reproduce", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small forms of all experiments, written to results/quick")
    parser.add_argument("--results", type=Path, help="where to write (default: results, or results/quick)")
    parser.add_argument("--accept", action="store_true", help="make the verdicts of this run the expected ones")
    options = parser.parse_args(argv)
    results = options.results or REPOSITORY / "results" / ("quick" if options.quick else "")
    try:
        return reproduce(results, options.quick, options.accept)
    except BadInput as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return 2


def reproduce(results: Path, quick: bool, accept: bool) -> int:
    began = time.perf_counter()
    runs, done = results / "runs", {}
    for recipe in RECIPES:
        absent = next(filter(None, map(import_trace, recipe.needs)), None)
        if absent:
            print(f"{recipe.name}: skipped, {absent}")
            continue
        print(f"{recipe.name} ...", flush=True)
        if not sweep(recipe, runs / recipe.name, quick):
            return 1
        done[recipe.name] = runs / recipe.name
    figures = keep_figures(done, results / "figures")
    for module in (serving, flowprefill, switching, queues, gfs):
        for name, figure in module.figures(done).items():
            save(figure, results / "figures", name)
            figures.append(name)
    claims = [one for module in (flextopo, fgd, pwr, gfs, hps, network, queues, serving, flowprefill, switching)
              for one in module.claims(done)]
    write_claims(claims, results / "reproduction.csv")
    facts = {"package sources": sources_hash()[:16], "form": "quick: fewer preemptors, shorter days" if quick else "full"}
    sections = [one for module in (flextopo, fgd, pwr, gfs, hps, network, queues, colocation, real_traces, serving, flowprefill, switching)
                for one in module.sections(done)]
    write_markdown(claims, results / "REPRODUCTION.md", sections, facts, [(name, f"figures/{name}.png") for name in figures])
    for one in claims:
        print(f"{one.verdict:>10}  {one.claim_id}: published {one.published_text}, measured {one.measured_text}")
    print(f"{results / 'REPRODUCTION.md'}, {time.perf_counter() - began:.0f} s")
    expected = REPOSITORY / "results" / "expected_verdicts.csv"
    if accept:
        write_expected(claims, expected)
    worse = regressions(claims, expected) if not quick else []
    for line in worse:
        print(f"regression: {line}", file=sys.stderr)
    return 1 if worse else 0


def sweep(recipe: Recipe, out: Path, quick: bool) -> bool:
    """Runs a recipe through the command, on all cores where joblib is there; whether all of its cells ended well."""
    words = [sys.executable, "-m", "harness", "-m", f"+experiment={recipe.name}", f"out={out}", "progress=false"]
    if importlib.util.find_spec("hydra_plugins") and importlib.util.find_spec("hydra_plugins.hydra_joblib_launcher"):
        words.append("hydra/launcher=joblib")
    return subprocess.run([*words, *(recipe.quick if quick else ())], cwd=REPOSITORY, check=False).returncode == 0


def import_trace(name: str) -> str | None:
    """Imports a public trace unless that was done; says why it cannot be, else None."""
    target = REPOSITORY / "traces" / "imported" / name
    file, words = IMPORTS[name]
    if target.is_file():
        return None
    found = sorted(PUBLIC_TRACES.glob(file))
    if not found:
        return f"the public trace {file} is not beside this checkout"
    target.parent.mkdir(parents=True, exist_ok=True)
    if not words:
        shutil.copyfile(PUBLIC_TRACES / file, target)
        return None
    form, *options = words
    command = [sys.executable, "-m", "harness.traces_app", "import", form, *map(str, found), *options, "-o", str(target)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()


def keep_figures(done: dict[str, Path], folder: Path) -> list[str]:
    """Makes each recipe's report and copies its figures, named after the recipe, to ``folder``; returns their names."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kept = []
    for recipe in RECIPES:
        if recipe.name not in done:
            continue
        build_report(done[recipe.name])
        for figure in recipe.figures:
            for png in sorted((done[recipe.name] / "figures").glob(f"{figure}*.png")):
                name = png.stem if png.stem.startswith(recipe.name) else f"{recipe.name}-{png.stem}"
                for kind in ("png", "svg"):
                    shutil.copyfile(png.with_suffix(f".{kind}"), folder / f"{name}.{kind}")
                kept.append(name)
    return kept


if __name__ == "__main__":
    os.chdir(REPOSITORY)
    sys.exit(main())
