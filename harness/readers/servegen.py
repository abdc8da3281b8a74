"""ServeGen clients (Alibaba Model Studio), rates and length distributions of each client: Xiang et al., NSDI'26.

Written from the documentation and from other public readers of the format: the data were not at hand. These files hold no requests;
the reader draws them, seeded, so that what it writes is **synthetic**. Give the pairs chunk-N-trace.csv and chunk-N-dataset.json of
one model together: each pair is a client. Oddities, and the rule for each:

- chunk-N-trace.csv has no header: start of a window (s), rate (requests/s), coefficient of variation of the gaps, their distribution
  (Gamma, Weibull or nothing), and two parameters: shape and scale. The rate holds; the shape is the fitted one, or for Gamma without one
  1 / cv^2; no distribution, or none of both, means Poisson arrivals. The scale is not used: it follows from rate and shape. The first
  gap of a window is drawn as a renewal process in equilibrium has it, so that a window of w s has rate x w arrivals on average.
- A window lasts until the next one of its client starts, the last as long as the shortest before it (``window_s`` when there is one
  only). Windows with rate 0 are silence.
- chunk-N-dataset.json: start of a window -> input_tokens and output_tokens, each a Python dict as text, length -> probability. An
  arrival takes the last window with lengths at or before it, or the client's first one; probabilities are scaled to sum 1; lengths
  below 1 are raised to 1. Prompt and output are drawn independently, because the files hold no joint distribution.
- Time 0 is time 0 of the files (midnight of the first day), or ``start_s``. The client is the tenant.
"""

import ast
import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from math import gamma
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from harness.errors import BadInput
from harness.readers._json import read_json
from harness.readers._options import option
from harness.readers._requests import RequestOptions, RequestRows
from harness.readers._rules import Tally
from harness.readers._spool import Spool
from harness.readers._stream import raw_head, read_text
from harness.tables import one_line
from harness.tables.sniff import HEAD_BYTES, seems

MOST_REQUESTS = 1_000_000_000


@dataclass(frozen=True)
class Options(RequestOptions):
    seed: int = option(0, "seed of the draws")
    start_s: float = option(0.0, "draw requests from then on, which becomes time 0 (s)")
    end_s: float = option(float("inf"), "draw requests before then (s)")
    window_s: float = option(600.0, "length of a client's only window (s)")
    rate_scale: float = option(1.0, "multiplies every rate")
    service: str = option("servegen", "service of the requests")


class Window(NamedTuple):
    """Arrivals of one client in [start, end): requests/s, and the distribution of the gaps."""

    start: float
    end: float
    rate: float
    pattern: str
    shape: float


Lengths = tuple[np.ndarray, np.ndarray]


def read(paths: Sequence[Path], options: Options) -> tuple[Spool, list[str]]:
    """Requests and the report. Raises BadInput."""
    if not (0 <= options.start_s < options.end_s and options.window_s > 0 and options.rate_scale > 0 and options.seed >= 0):
        raise BadInput("--start_s, --end_s, --window_s, --rate_scale, --seed: must be 0 <= start_s < end_s, > 0, > 0 and >= 0")
    tally = Tally()
    rows = RequestRows(paths, tally, options, "servegen")
    number = 0
    for index, (client, (trace, dataset)) in enumerate(_clients(paths).items()):
        windows, lengths = _windows(trace, options), _lengths(dataset)
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([options.seed, index])))
        expected = sum(window.rate * (window.end - window.start) for window in windows)
        if number + expected > MOST_REQUESTS:
            raise BadInput(f"{trace}: its rates come to {expected:.3g} requests; --end_s or --rate_scale make it shorter")
        began = number
        for window in windows:
            times = arrivals(window, random)
            times = times[(times >= options.start_s) & (times < options.end_s)]
            if len(times):
                prompt, output = (_drawn(lengths[what], times, random) for what in ("input_tokens", "output_tokens"))
                rows.add(number, str(trace), {
                    "arrival_time": times - options.start_s, "prompt_tokens": prompt, "output_tokens": output,
                    "service": pa.repeat(options.service, len(times)), "tenant": pa.repeat(client, len(times)),
                })
            number += len(times)
        tally.add("clients: {:,}, of which {:,} were silent; {:,} requests drawn; {:,} windows name no distribution of gaps (Poisson)",
                  1, number == began, number - began, sum(not window.pattern for window in windows), always=True)
    tally.say(f"synthetic: drawn from rates and length distributions, seed {options.seed}, not a recording")
    return rows.done(), tally.lines()


def _clients(paths: Sequence[Path]) -> dict[str, tuple[Path, Path]]:
    """Name of the client -> its trace and its dataset file."""
    found: dict[str, dict[str, Path]] = {}
    for path in paths:
        name = re.fullmatch(r"(chunk-[^.]*?)-(trace|dataset)\.(csv|json)(\..*)?", path.name)
        if not name:
            what = seems(raw_head(path, HEAD_BYTES))
            raise BadInput(f"{path}: must be named chunk-N-trace.csv or chunk-N-dataset.json, and seems to be {what}")
        found.setdefault(name[1], {})[name[2]] = path
    for client, files in found.items():
        if len(files) < 2:
            path = next(iter(files.values()))
            lacking = "dataset.json" if "trace" in files else "trace.csv"
            raise BadInput(f"{path}: {client}-{lacking} is not among the files; a client needs both")
    return {client: (files["trace"], files["dataset"]) for client, files in sorted(found.items(), key=lambda c: _natural(c[0]))}


def _natural(name: str) -> list[int | str]:
    return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", name)]


def _windows(path: Path, options: Options) -> list[Window]:
    """The windows of a client that overlap [start_s, end_s)."""
    text = read_text(path, "CSV without a header").decode()
    parsed: list[tuple[float, float, str, float]] = []
    for row, fields in enumerate(csv.reader(StringIO(text))):
        try:
            start, rate, cv = (float(field) for field in fields[:3])
            pattern = fields[3].strip() if len(fields) > 3 else ""
            shape = float(fields[4]) if len(fields) > 4 and fields[4].strip() else 0.0
            if not (0 <= start < np.inf and 0 <= rate < np.inf and cv >= 0 and shape >= 0 and pattern in ("Gamma", "Weibull", "")):
                raise ValueError
        except ValueError as error:
            raise BadInput(f"{path}: row {row}: '{one_line(','.join(fields), 60)}', must be start_s, rate, cv, Gamma | Weibull | nothing, "
                           "shape, scale") from error
        if pattern == "Gamma" and not shape and cv:
            shape = 1.0 / (cv * cv)
        parsed.append((start, rate, pattern if shape else "", shape))
    parsed.sort(key=lambda window: window[0])
    starts = np.array([window[0] for window in parsed])
    gaps = np.diff(starts)
    if (gaps == 0).any():
        raise BadInput(f"{path}: two windows start at {starts[int(np.argmax(gaps == 0))]:g} s, must be one")
    ends = np.append(starts[1:], starts[-1:] + (gaps.min() if len(gaps) else options.window_s))
    return [Window(start, float(end), rate * options.rate_scale, pattern, shape)
            for (start, rate, pattern, shape), end in zip(parsed, ends, strict=True)
            if rate > 0 and end > options.start_s and start < options.end_s]


def _lengths(path: Path) -> dict[str, list[tuple[float, Lengths]]]:
    """input_tokens and output_tokens -> (start of the window, lengths and cumulative probabilities), in order of time."""
    windows = read_json(path)
    result: dict[str, list[tuple[float, Lengths]]] = {"input_tokens": [], "output_tokens": []}
    try:
        for start, window in sorted(((float(key), value) for key, value in windows.items()), key=lambda pair: pair[0]):
            for name, known in result.items():
                found = window.get(name) or {}
                shares = ast.literal_eval(found) if isinstance(found, str) else found
                if shares:
                    values = np.array([float(key) for key in shares])
                    weights = np.cumsum([float(value) for value in shares.values()])
                    if not (np.isfinite(values).all() and (np.diff(weights, prepend=0) >= 0).all() and weights[-1] > 0):
                        raise ValueError(f"{name} of window {start:g}")
                    known.append((start, (np.maximum(np.rint(values), 1).astype(np.int64), weights / weights[-1])))
    except (ValueError, SyntaxError, AttributeError, TypeError) as error:
        raise BadInput(f"{path}: must map starts of windows to input_tokens and output_tokens, each {{length: probability}} "
                       f"({one_line(error, 80)})") from error
    for name, known in result.items():
        if not known:
            raise BadInput(f"{path}: no window has {name}")
    return result


def _drawn(windows: list[tuple[float, Lengths]], times: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Token counts of requests at ``times``, i64 (n,)."""
    which = np.maximum(np.searchsorted([start for start, _ in windows], times, side="right") - 1, 0)
    uniform, result = random.random(len(times)), np.empty(len(times), np.int64)
    for window in np.unique(which):
        here = which == window
        values, edges = windows[window][1]
        result[here] = values[np.minimum(np.searchsorted(edges, uniform[here], side="right"), len(values) - 1)]
    return result


def arrivals(window: Window, random: np.random.Generator) -> np.ndarray:
    """Arrivals (s, ascending) of a renewal process in equilibrium in [start, end): gaps of mean 1 / rate, Gamma, Weibull or exponential."""
    length, shape = window.end - window.start, window.shape
    batch = max(int(window.rate * length * 1.1) + 16, 16)
    if window.pattern == "Gamma":
        biased = random.gamma(shape + 1.0) / (shape * window.rate)
    elif window.pattern == "Weibull":
        scale = 1.0 / (window.rate * gamma(1.0 + 1.0 / shape))
        biased = scale * random.gamma(1.0 + 1.0 / shape) ** (1.0 / shape)
    else:
        biased = random.gamma(2.0) / window.rate
    gaps = [np.array([biased * random.random()])]
    reached = float(gaps[0][0])
    while reached < length:
        if window.pattern == "Gamma":
            more = random.gamma(shape, 1.0 / (shape * window.rate), batch)
        elif window.pattern == "Weibull":
            more = random.weibull(shape, batch) / (window.rate * gamma(1.0 + 1.0 / shape))
        else:
            more = random.exponential(1.0 / window.rate, batch)
        gaps.append(more)
        reached += float(more.sum())
    times = np.cumsum(np.concatenate(gaps))
    return window.start + times[times < length]
