"""Deliberately broken engines and policies, each of which must be caught by the tests that are named here.

A sabotage is applied to a copy of the package, against which the tests then run, interpreted, in a process of their own. They run
from the folder of the copy, which comes first on their path.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "harness"

EVENTS, RESOURCES, PREEMPTION = "test_hand_worked.py", "test_hand_worked_resources.py", "test_hand_worked_preemption.py"
PLACEMENT = "test_packing.py"
WORLD = "test_twin.py::test_equal_on_named_worlds"
WINDOW = "test_stream.py::test_any_window_gives_the_same_replay_on_named_worlds"
WATCHED = "test_properties.py::test_nothing_is_held_twice_and_nobody_waits_in_vain"


class Sabotage(NamedTuple):
    """``old`` occurs once in ``file`` of harness/cluster and becomes ``new``; all ``caught_by`` must then fail."""

    name: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]


SABOTAGES = [
    Sabotage("off by one in reprieve: the last candidate is never put back", "sourcing.py",
             "for position in range(n - out, n):", "for position in range(n - out, n - 1):",
             (f"{PREEMPTION}::test_reprieve_spares_high_priority_then_the_longest_running", f"{WORLD}[godel-27]")),
    Sabotage("reprieve spares the youngest", "sourcing.py",
             "candidates.of.start[a] < candidates.of.start[b]", "candidates.of.start[a] > candidates.of.start[b]",
             (f"{PREEMPTION}::test_reprieve_spares_high_priority_then_the_longest_running", f"{WORLD}[kubernetes-35]")),
    Sabotage("double booking: memory is not looked at", "fit.py",
             "if cpu < view.classes.cpu[c] or memory < view.classes.memory[c] or not", "if cpu < view.classes.cpu[c] or not",
             (f"{RESOURCES}::test_memory_and_models_limit_placement", f"{WATCHED}[godel]")),
    Sabotage("double booking: exclusive cores may eat up the shared pool", "fit.py",
             "if cpu < view.classes.cpu[c] or memory < view.classes.memory[c] or not", "if memory < view.classes.memory[c] or not",
             (f"{RESOURCES}::test_exclusive_cores_are_whole_and_spare_the_shared_pool", f"{WORLD}[random_victim-6]")),
    Sabotage("wrong tie-break: best fit takes the highest server", "fit.py",
             "view.servers.gpu[s] >= fewest", "view.servers.gpu[s] > fewest",
             (f"{RESOURCES}::test_best_fit_counts_thousandths_of_gpus",)),
    Sabotage("wrong tie-break: the largest indices among equal victim sets", "preempt.py",
             "return not a > first", "return a > first", (f"{PREEMPTION}::test_the_last_tie_goes_to_the_smallest_indices",)),
    Sabotage("wrong tie-break: indices are compared from the last", "preempt.py",
             "return b > first", "return b < first", (f"{PREEMPTION}::test_indices_are_compared_as_sorted_lists",)),
    Sabotage("wrong tie-break: the earliest start among equal servers", "preempt.py",
             "rank[START] = max(rank[START], -candidates.of.start[m])", "rank[START] = min(rank[START], -candidates.of.start[m])",
             (f"{PREEMPTION}::test_servers_are_ranked_rule_by_rule[godel-latest earliest start]",)),
    Sabotage("forgotten restart cost", "lifecycle.py",
             "jobs.restart[job] = jobs.restart_cost[job] if jobs.evictions[job] else 0.0", "jobs.restart[job] = 0.0",
             (f"{PREEMPTION}::test_restarts_cost_from_the_second_attempt_on", f"{WORLD}[godel-27]")),
    Sabotage("checkpoints in the future", "lifecycle.py", "np.floor(ran / checkpoint)", "np.ceil(ran / checkpoint)",
             (f"{PREEMPTION}::test_an_eviction_keeps_work_up_to_the_last_checkpoint[2.0-6]", f"{WORLD}[flextopo_imp-41]")),
    # It changes no result: the aggregates are a filter, and too large ones let more through.
    Sabotage("stale aggregate after an eviction", "decide.py",
             "        leave_evictable(state, victim)\n", "", (f"{WATCHED}[godel]",)),
    Sabotage("lost event: of two jobs that end at one instant the second waits for the next", "engine.py",
             "while queue.mark[CALENDAR] and queue.event.time[0] == now:", "if queue.mark[CALENDAR] and queue.event.time[0] == now:",
             (f"{EVENTS}::test_all_events_of_an_instant_come_before_its_passes", f"{WORLD}[godel-27]")),
    Sabotage("lost event: of two jobs that come at one instant the second waits for the next", "engine.py",
             "while tally[ARRIVED] < n_jobs and jobs.submit[tally[ARRIVED]] == now:",
             "if tally[ARRIVED] < n_jobs and jobs.submit[tally[ARRIVED]] == now:",
             (f"{EVENTS}::test_all_events_of_an_instant_come_before_its_passes", f"{WORLD}[godel-27]")),
    Sabotage("wrong grace hold: what is not claimed is free at once", "decide.py", "max(gpu[g] - claim_gpu[g], 0)", "0",
             (f"{PREEMPTION}::test_what_is_not_claimed_is_invisible_until_grace_ends", f"{WORLD}[godel-27]")),
    Sabotage("wrong grace hold: fungible pools are withheld twice", "decide.py",
             "max(cpu - claim_cpu, 0), max(memory", "cpu, max(memory",
             (f"{PREEMPTION}::test_of_fungible_pools_the_larger_part_is_withheld", f"{WORLD}[random_victim-6]")),
    Sabotage("guarantee ignored at maturity", "decide.py",
             "if state.classes.affinity[c] == GUARANTEED:\n        for i", "if False:\n        for i",
             (f"{PREEMPTION}::test_a_blind_claim_that_breaks_the_guarantee_is_released", f"{WORLD}[godel-27]")),
    Sabotage("protection ends one instant late", "preempt.py", ">= view.clock[MIN_RUNTIME_S]", "> view.clock[MIN_RUNTIME_S]",
             (f"{PREEMPTION}::test_a_job_is_protected_while_it_is_young[godel]",)),
    Sabotage("two sockets are as good as one", "preempt.py",
             "return 12.0 if level == NVLINK or level == SOCKET else 7.0", "return 12.0",
             (f"{PREEMPTION}::test_tiers_prefer_victims_of_one_node",)),
    Sabotage("a failed gang leaves its victims evicted", "decide.py",
             "        put_back(state, pending.claim.evicted[v])", "        pass",
             (f"{PREEMPTION}::test_a_gang_evicts_whole_or_not_at_all",)),
    Sabotage("events at the horizon still happen", "engine.py", "if now >= clock[HORIZON] or", "if now > clock[HORIZON] or",
             (f"{EVENTS}::test_the_horizon_cuts_what_runs_and_what_waits",)),
    Sabotage("EASY: a job that ends at the shadow time counts as late", "policies/easy_backfill.py",
             "expected_run(view, job) <= own.state[SHADOW]", "expected_run(view, job) < own.state[SHADOW]",
             (f"{EVENTS}::test_fifo_blocks_where_backfill_goes_on_and_easy_keeps_a_reservation",)),
    Sabotage("domain-first: what is kept of a server outlives a change there", "ledger.py",
             "    state.version[s] += 1\n    if classes.milli", "    if classes.milli", (f"{WORLD}[domain_first-4]",)),
    Sabotage("domain-first: the bound on supersets is too tight", "domain_search.py",
             "bound[COUNT] += more\n", "bound[COUNT] += more + 1\n",
             (f"{PREEMPTION}::test_the_later_pair_wins_though_an_earlier_one_is_met_first[domain_first]",)),
    Sabotage("packing: ties between servers go to the last", "packing.py", "if known[s, SCORE] > most:", "if known[s, SCORE] >= most:",
             (f"{PLACEMENT}::test_packing_prefers_used_gpus_then_used_servers",)),
    Sabotage("packing: a score outlives a change of the server", "packing.py", "version = view.version[s] + 1.0", "version = 1.0",
             (f"{PLACEMENT}::test_packing_prefers_used_gpus_then_used_servers",)),
    Sabotage("FGD: the first GPU that fits", "fragmentation.py", "if rated > best:", "if best < 0:",
             (f"{PLACEMENT}::test_fgd_chooses_the_gpu_too",)),
    Sabotage("FGD: scores are not truncated", "fragmentation.py", "return int(100.0 * (1.0 / (1.0 + exp(-decrease / MILLI))))",
             "return 100.0 * (1.0 / (1.0 + exp(-decrease / MILLI)))", (f"{PLACEMENT}::test_fgd_rounds_before_it_compares",)),
    Sabotage("energy: a shared GPU draws part of its power", "fragmentation.py",
             "draws += watts[k, 0] if gpu[s, g] == MILLI else watts[k, 1]",
             "draws += watts[k, 0] + (watts[k, 1] - watts[k, 0]) * (1.0 - gpu[s, g] / MILLI)",
             (f"{PLACEMENT}::test_fragmentation_and_energy_over_time",)),
    Sabotage("streaming: the log of a claim whose grace runs is taken for final", "window.py", "    if not len(claimants):", "    if True:",
             (f"{WINDOW}[godel-27]", f"{WINDOW}[random_victim-6]")),
]


def failing(folder: Path, checks: tuple[str, ...]) -> list[str]:
    """Which of the ``checks`` fail against the package in ``folder``; all of them must run."""
    paths = os.pathsep.join((str(folder), str(TESTS)))
    environment = {**os.environ, "PYTHONPATH": paths, "NUMBA_DISABLE_JIT": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist",
               "-o", f"pythonpath={folder}", f"--rootdir={TESTS}", *(str(TESTS / check) for check in checks)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return re.findall(r"^FAILED (?:.*/)?(test_\w+\.py::[^\s\[]+(?:\[.*\])?)(?: - .*)?$", done.stdout, re.MULTILINE)


def copied(folder: Path) -> Path:
    """A copy of the package."""
    shutil.copytree(PACKAGE, folder / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "harness"


@pytest.mark.compiled
@pytest.mark.parametrize("sabotage", SABOTAGES, ids=[sabotage.name for sabotage in SABOTAGES])
def test_a_sabotage_is_caught(sabotage: Sabotage, tmp_path: Path):
    file = copied(tmp_path) / "cluster" / sabotage.file
    source = file.read_text(encoding="utf-8")
    assert source.count(sabotage.old) == 1, f"{sabotage.file} has changed: {sabotage.old!r} occurs {source.count(sabotage.old)} times"
    file.write_text(source.replace(sabotage.old, sabotage.new), encoding="utf-8")
    caught = failing(tmp_path, sabotage.caught_by)
    print(f"{sabotage.name}: caught by", *caught, sep="\n  ")
    missed = [check for check in sabotage.caught_by if not any(name.startswith(check) for name in caught)]
    assert sabotage.caught_by and not missed, f"{sabotage.name}: not caught by {missed}"


@pytest.mark.compiled
def test_the_sound_package_passes_the_same_way(tmp_path: Path):
    copied(tmp_path)
    assert failing(tmp_path, (f"{EVENTS}::test_a_finish_comes_before_the_end_of_grace", WORLD)) == []
