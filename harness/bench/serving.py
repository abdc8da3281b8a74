"""Replays of requests in this process: requests per second, times real time, and sched-sim on the same requests where it is installed."""

import time
import timeit
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from harness.bench.rows import Row
from harness.bench.sizes import Sizes
from harness.cache import PACKAGE
from harness.serving.hooks import load_policy
from harness.serving.pool import Pool, parse
from harness.serving.replay import replay
from harness.workload import load

REQUESTS_PER_S, TIMES_REAL_TIME = 60_000.0, 1_000.0
CONV = {"code_share": 0.0, "max_tokens": 4096}
"""Conversation requests alone, cut as the peers were measured."""

WIDE = 32
"""Replicas of the larger pool; its load is so many times heavier."""


def pool_of(**keys: Any) -> Pool:
    """conf/pool/a100_llama8b.yaml with other keys."""
    folder = next(folder for folder in (PACKAGE.parent / "conf", PACKAGE / "conf") if (folder / "config.yaml").is_file()) / "pool"
    section = yaml.safe_load((folder / "a100_llama8b.yaml").read_text(encoding="utf-8"))
    chosen = {group: name for entry in section.pop("defaults") if isinstance(entry, dict) for group, name in entry.items()}
    facts = {group: yaml.safe_load((folder / group / f"{name}.yaml").read_text(encoding="utf-8")) for group, name in chosen.items()}
    return parse({**section, **facts, **keys})


def requests_like_azure(duration_s: float, load_scale: float = 1.0) -> pa.Table:
    """Conversation requests of azure_like."""
    return load("azure_like", {**CONV, "duration_s": duration_s, "load_scale": load_scale}, None, 1)  # type: ignore[arg-type]


def serving(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """The step-level replay of conversation requests on 4 replicas and on 32, step by step, and beside sched-sim."""
    policy = load_policy("fcfs")
    for replicas, seconds_of_trace in ((4, sizes.serving_s), (WIDE, sizes.serving_s)):
        trace, where = requests_like_azure(seconds_of_trace, replicas / 4), pool_of(replicas=replicas)
        replay(trace.slice(0, 10), where, policy)
        taken = [_timed(trace, where, policy) for _ in range(sizes.repeats)]
        wall, cpu = (min(run[i] for run in taken) for i in (0, 1))
        what = f"FCFS, {trace.num_rows:,} requests, {replicas} replicas"
        detail = f"{wall:.3f} s, of processor time {cpu:.3f} s; {taken[0][2]:,} steps"
        if replicas == 4:
            yield Row(what, trace.num_rows / wall, "requests/s", REQUESTS_PER_S, ">=", True, detail)
        else:
            yield Row(what, seconds_of_trace / wall, "x real time", TIMES_REAL_TIME, ">=", True, detail)
    trace, where = requests_like_azure(sizes.serving_s), pool_of()
    single = min(_timed(trace, pool_of(skip_ahead=False), policy)[1] for _ in range(sizes.repeats))
    skipped = min(_timed(trace, where, policy)[1] for _ in range(sizes.repeats))
    yield Row("step by step over runs of steps at once, same result", single / skipped, "x", detail="processor time")
    yield from beside_sched_sim(sizes, folder)


def _timed(trace: pa.Table, where: Pool, policy: Any) -> tuple[float, float, int]:
    """Wall and processor seconds of a replay, and its steps."""
    began, cpu = time.perf_counter(), time.process_time()
    outcome = replay(trace, where, policy)
    return time.perf_counter() - began, time.process_time() - cpu, int(outcome.log.size[0])


def beside_sched_sim(sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Both on the same requests: sched-sim has one engine, so those of one replica of four."""
    trace, policy = requests_like_azure(sizes.serving_s / 4, 0.25), load_policy("fcfs")
    what = f"{trace.num_rows:,} requests, 1 replica"
    if find_spec("sched_sim") is None:
        yield Row(f"{what}: sched-sim", None, detail="not installed")
        return
    ours = min(_timed(trace, pool_of(replicas=1), policy)[0] for _ in range(sizes.repeats))
    rate = trace.num_rows / min(timeit.repeat(lambda: sched_sim(trace), number=1, repeat=sizes.repeats))
    yield Row(f"{what}: sched-sim, chunked prefill", rate, "requests/s", of_machine=True)
    yield Row(f"{what}: the harness over sched-sim", trace.num_rows / ours / rate, "x", detail="requests/s, side by side in this run")


def sched_sim(trace: pa.Table) -> int:
    """Requests that sched-sim completes of ``trace``, with chunked prefill of 512 tokens on an A100."""
    presets, engine = import_module("sched_sim.hardware.presets"), import_module("sched_sim.core.event_engine")
    factory, request = import_module("sched_sim.schedulers.factory"), import_module("sched_sim.core.request")
    hardware = next(profile for name, profile in presets.PRESETS.items() if "a100" in name)
    simulator = engine.Simulator(hardware, factory.create_scheduler("chunked", hardware, token_budget=512, max_batch_size=256))
    columns = (trace[name].to_pylist() for name in ("request_id", "arrival_time", "prompt_tokens", "output_tokens"))
    simulator.submit_workload([request.Request(request_id=i, arrived_at=at, prompt_tokens=p, output_tokens=o)
                               for i, at, p, o in zip(*columns, strict=True)])
    simulator.run()
    return int(np.sum([one.completed_at is not None for one in simulator.all_requests]))
