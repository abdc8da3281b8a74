"""Where the time of the command ``harness`` goes: ``python -m harness.bench.stages RESULT.json WORDS...`` runs it and takes its time.

Every instant belongs to one stage: a function that is named here begins its own and, when it returns, goes back to the one before.
What the command imports is timed wherever it does so.
"""

import builtins
import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

START, IMPORTS, CACHE, HYDRA = "start of the interpreter", "imports", "compiled code from Numba's cache", "Hydra"
READ, BUILD, REPLAY, TABLES = "reading the trace", "building the state", "replay", "result tables"
WRITE, CELL, END = "writing", "rest of the cell", "end of the process"
STAGES: tuple[str, ...] = (START, IMPORTS, CACHE, HYDRA, READ, BUILD, REPLAY, TABLES, WRITE, CELL, END)

FUNCTIONS = (
    ("numba.core.dispatcher", "Dispatcher.compile", CACHE),
    ("harness.app", "main", HYDRA),
    ("harness.app", "start_lightly", IMPORTS),
    ("harness.app", "run_cell", CELL),
    ("harness.halves", "_load", READ),
    ("harness.cluster.replay", "build", BUILD),
    ("harness.cluster.engine", "run", REPLAY),
    ("harness.metrics", "jobs_table", TABLES),
    ("harness.metrics", "preemptions_table", TABLES),
    ("harness.metrics", "utilization_table", TABLES),
    ("harness.metrics", "summary", TABLES),
    ("harness.halves", "_write", WRITE),
)
"""Module, name in it, and the stage that a call of it is."""


class Clock:
    """Seconds of every stage so far: (wall clock, processor)."""

    def __init__(self, began: float):
        self.spent = dict.fromkeys(STAGES, (0.0, 0.0))
        self.stage, self.since = START, (began, 0.0)

    def enter(self, stage: str) -> str:
        """Ends the stage that runs, begins another and returns the one that ended."""
        now = (time.perf_counter(), time.process_time())
        spent = self.spent[self.stage]
        self.spent[self.stage] = (spent[0] + now[0] - self.since[0], spent[1] + now[1] - self.since[1])
        former, self.stage, self.since = self.stage, stage, now
        return former

    def timed(self, function: Callable, stage: str) -> Callable:
        """``function`` as a stage."""
        @wraps(function)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            former = self.enter(stage)
            try:
                return function(*arguments, **named)
            finally:
                self.enter(former)

        return wrapper


def watch(clock: Clock) -> list[tuple[str, str, str]]:
    """Takes the time of all imports from now on, and of FUNCTIONS once their modules are there; returns those still awaited."""
    left, plain = list(FUNCTIONS), builtins.__import__

    def importing(*arguments: Any, **named: Any) -> Any:
        former, modules = clock.enter(IMPORTS), len(sys.modules)
        try:
            return plain(*arguments, **named)
        finally:
            if len(sys.modules) != modules:
                for one in [one for one in left if _replaced(clock, *one)]:
                    left.remove(one)
            clock.enter(former)

    builtins.__import__ = importing
    return left


def _replaced(clock: Clock, module: str, path: str, stage: str) -> bool:
    """Takes the time of a function that is there already; whether it was."""
    *outer, name = path.split(".")
    holder = sys.modules.get(module)
    for part in outer:
        holder = getattr(holder, part, None)
    if not hasattr(holder, name):
        return False
    setattr(holder, name, clock.timed(getattr(holder, name), stage))
    return True


def main(target: str, *words: str) -> None:
    """Runs the command and writes seconds by stage, (wall clock, processor), to ``target``. The last stage is left at 0."""
    clock = Clock(float(os.environ["HARNESS_BENCH_BEGAN"]))
    clock.enter(IMPORTS)
    left = watch(clock)
    sys.argv = ["harness", *words]
    try:
        runpy.run_module("harness", run_name="__main__", alter_sys=False)
    except SystemExit as stop:
        if stop.code:
            raise
    clock.enter(END)
    if left:
        raise LookupError(f"no such function, or never imported: {', '.join(f'{module}.{name}' for module, name, _ in left)}")
    Path(target).write_text(json.dumps(clock.spent), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
