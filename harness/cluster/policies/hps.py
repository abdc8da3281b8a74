"""HPS, hybrid priority (arXiv 2512.10980) [code, abstract]: short jobs of few GPUs first, and those that have waited long.

score = 1 / (1 + remaining hours) * aging * 1 / (1 + GPUs / 4); aging is 1 below 300 s of waiting, else 2 min(wait / 1800 s, 1). So from 300
to 900 s it is a penalty, which we keep. Jobs that do not fit are passed over.
"""

from harness.cluster.service import gpus_of, remaining
from harness.cluster.state import NOW

DYNAMIC = True


def key(view, own, job):
    waited = view.clock[NOW] - view.jobs.submit[job]
    aging = 1.0 if waited < 300.0 else 2.0 * min(waited / 1800.0, 1.0)
    return -(1.0 / (1.0 + remaining(view, job) / 3600.0) * aging * (1.0 / (1.0 + gpus_of(view, job) / 4.0)))
