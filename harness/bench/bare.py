"""The least that a FIFO replay can be: one heap of ends and a count of free GPUs, compiled. No servers, no topology, no policy."""

import numpy as np

from harness.jit import entry


@entry
def fifo_by_count(submit, duration, gpus, capacity, start):
    """Strict FIFO on ``capacity`` GPUs that all are alike; fills ``start`` and returns the number of events.

    ``submit`` and ``duration`` f8 (jobs,) in seconds, ``submit`` ascending; ``gpus`` i8 (jobs,); ``start`` f8 (jobs,) in seconds.
    """
    n = len(submit)
    end, held = np.empty(n), np.empty(n, np.int64)
    arrived = started = running = events = 0
    free = capacity
    while arrived < n or running:
        now = submit[arrived] if arrived < n else np.inf
        if running:
            now = min(now, end[0])
        while running and end[0] == now:
            free += held[0]
            running -= 1
            time, size, at = end[running], held[running], 0
            while True:
                below = 2 * at + 1
                if below >= running:
                    break
                if below + 1 < running and end[below + 1] < end[below]:
                    below += 1
                if end[below] >= time:
                    break
                end[at], held[at], at = end[below], held[below], below
            end[at], held[at] = time, size
            events += 1
        while arrived < n and submit[arrived] == now:
            arrived += 1
            events += 1
        while started < arrived and gpus[started] <= free:
            free -= gpus[started]
            start[started] = now
            time, at = now + duration[started], running
            running += 1
            while at and end[(at - 1) // 2] > time:
                end[at], held[at], at = end[(at - 1) // 2], held[(at - 1) // 2], (at - 1) // 2
            end[at], held[at] = time, gpus[started]
            started += 1
    return events
