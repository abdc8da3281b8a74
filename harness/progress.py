"""How a sweep goes, on standard error: one bar on a terminal, a line for each cell elsewhere."""

import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = ".progress"
"""Where jobs of a launcher tell how far they are, inside the folder of the sweep."""

POLL_S = 0.5


class Progress:
    """Cells done of ``cells``, events per second and time left. Shows nothing unless ``shown``."""

    def __init__(self, cells: int, shown: bool) -> None:
        self.cells, self.shown = cells, shown
        self.done, self.events, self.began = 0, 0, time.perf_counter()
        self.bar: Any = None
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            columns, lines = shutil.get_terminal_size((100, 24))  # tqdm believes terminals that say they are 0 by 0
            self.bar = tqdm(total=cells, unit=" cells", desc="sweep", file=sys.stderr, ncols=columns, nrows=lines)

    def cell(self, line: str, events: int) -> None:
        """One more cell is done; ``line`` says which, and how."""
        self.reached(self.done + 1, self.events + events, line)

    def reached(self, done: int, events: int, line: str = "") -> None:
        """So many cells are done, and so many events were replayed in them."""
        passed = max(time.perf_counter() - self.began, 1e-9)
        rate = f"{events / passed:,.0f} events/s"
        if self.bar is not None:
            self.bar.set_postfix_str(rate, refresh=False)
            self.bar.update(done - self.done)
        elif self.shown and done > self.done:
            left = passed / done * (self.cells - done)
            print(f"{line or 'sweep  '} ({done:,} of {self.cells:,} cells, {rate}, {left:.0f} s left)", file=sys.stderr)
        self.done, self.events = done, events

    def say(self, line: str) -> None:
        """A line that stays, above the bar."""
        if self.bar is not None:
            self.bar.clear()
        print(line, file=sys.stderr)
        if self.bar is not None:
            self.bar.refresh()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class Note(Progress):
    """Tells the process that started the sweep how far one of its jobs is."""

    def __init__(self, cells: int, out: Path, job: int) -> None:
        super().__init__(cells, shown=False)
        self.path = out / FOLDER / f"{job}.json"

    def reached(self, done: int, events: int, line: str = "") -> None:
        super().reached(done, events, line)
        temporary = self.path.with_suffix(".new")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps([done, events]))
        temporary.replace(self.path)


@contextmanager
def watching(out: Path, cells: int, shown: bool) -> Iterator[None]:
    """Shows the progress of jobs elsewhere as long as the context lasts, then removes their notes."""
    progress, over = Progress(cells, shown), threading.Event()

    def look() -> None:
        while not over.wait(POLL_S):
            _look(out, progress)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _look(out, progress)
        progress.close()
        for path in (out / FOLDER).glob("*"):
            path.unlink(missing_ok=True)
        if (out / FOLDER).is_dir():
            (out / FOLDER).rmdir()


def _look(out: Path, progress: Progress) -> None:
    notes = [json.loads(path.read_text()) for path in (out / FOLDER).glob("*.json")]
    progress.reached(sum(done for done, _ in notes), sum(events for _, events in notes))
