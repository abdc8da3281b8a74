"""How much is measured."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Sizes of everything that is measured; the defaults are those of the budgets.

    - ``jobs``, ``servers``: of the FIFO replay, once more on ``full_servers``, where the queue is never empty.
      Growth goes from a tenth of these jobs, and a tenth of these servers, to all.
    - ``referees``: which of the referee values of the common workload are checked.
    - ``command_jobs``: of T4, the whole command.
    - ``preemptors``: online arrivals of paper_mix on ``mix_servers``; ``wide_preemptors`` on ``wide_servers``, and the
      first ``compared_preemptors`` of those under exhaustive search too.
    - ``cells``: of a sweep of small cells.
    - ``pods``: of the openb trace that are placed, at most.
    - ``peer_jobs``: jobs of T1 that the peers are given.
    - ``import_rows``: jobs of the traces that are imported; ``request_rows``: requests.
    - ``large_jobs``, ``large_servers``: of the trace that is streamed; ``large_served``: requests of the other one that is;
      ``large_requests``: of the one that is imported.
    - ``serving_s``: seconds of request trace.
    - ``repeats``: measurements of which the best, or for growth the median, is taken.
    """

    jobs: int = 1_000_000
    servers: int = 1_024
    full_servers: int = 900
    referees: tuple[str, ...] = ("T1", "T3")
    command_jobs: int = 100_000
    mix_servers: int = 100
    preemptors: int = 2_000
    wide_servers: int = 10_000
    wide_preemptors: int = 300
    compared_preemptors: int = 30
    cells: int = 1_000
    pods: int = 20_000
    peer_jobs: int = 10_000
    import_rows: int = 10_000_000
    request_rows: int = 10_000_000
    large_jobs: int = 100_000_000
    large_servers: int = 10_000
    large_served: int = 20_000_000
    large_requests: int = 100_000_000
    serving_s: float = 3_500.0
    repeats: int = 3


QUICK = Sizes(jobs=100_000, command_jobs=20_000, preemptors=200, wide_servers=1_000, wide_preemptors=100, cells=100,
              import_rows=300_000, request_rows=300_000, large_jobs=2_000_000, large_served=500_000, large_requests=2_000_000,
              serving_s=350.0, repeats=2)
TINY = Sizes(jobs=200, servers=10, full_servers=9, referees=("T1",), command_jobs=100, mix_servers=4, preemptors=20, wide_servers=8,
             wide_preemptors=6, compared_preemptors=3, cells=4, pods=5, peer_jobs=100, import_rows=2_000, request_rows=2_000,
             large_jobs=300, large_servers=8, large_served=300, large_requests=2_000, serving_s=20.0, repeats=1)
