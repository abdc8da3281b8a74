"""What every policy must keep to, in the folder or outside it, and what the engine does with one that does not."""

import json
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from builders import job, play, policy_file, server
from contract_cells import digest
from harness.cluster.hooks import policy_names
from harness.errors import BadInput, InvalidIntention
from harness.jit import JIT

TESTS = Path(__file__).resolve().parent
SEEDS = (27, 41, 113)
"""Worlds that have between them gangs, shares, guarantees kept and broken, grace, end times, racks, speeds and horizons."""

USER = """
    from harness.cluster.fit import NO_FIT, fits_server
    from harness.cluster.preempt import draw
    from harness.cluster.sourcing import search_at_random, search_by_reprieve
    from harness.cluster.state import NOW, SCOPE_FROM, SCOPE_TO

    PARAMS = {"patience_s": 5.0, "victims": ("reprieve", "random")}
    STATE, JOB_STATE, SERVER_STATE = 1, 1, 1
    PERIOD_S = 7.0

    def key(view, own, job):
        return -view.classes.priority[view.jobs.klass[job]] - own.state[0] * 0.01

    def admit(view, own, job):
        own.job_state[job, 0] += 1
        return own.job_state[job, 0] != 2

    def place(view, own, job):
        best = NO_FIT
        for s in range(view.count[SCOPE_FROM], view.count[SCOPE_TO]):
            if fits_server(view, s, view.jobs.klass[job]) and (best < 0 or view.servers.gpu[s] > view.servers.gpu[best]):
                best = s
        if best >= 0:
            own.server_state[best, 0] += 1
        return best

    def victims(view, own, job, found):
        if view.clock[NOW] - view.jobs.submit[job] < own.params[0]:
            return 0
        if own.params[1] == 0:
            return search_by_reprieve(view, job, found, True, False, view.count[SCOPE_FROM], view.count[SCOPE_TO])
        return search_at_random(view, job, found, draw(view))

    def tick(view, own):
        own.state[0] += 1
    """


@pytest.fixture(scope="session")
def user_policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A policy with all hooks and scratch arrays, outside the folder."""
    return str(policy_file(tmp_path_factory.mktemp("outside"), "patient", USER))


def script(name: str, *arguments: str, **environment: str) -> str:
    """The output of a script of this folder in a process of its own."""
    paths = os.pathsep.join(filter(None, (str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH"))))
    done = subprocess.run([sys.executable, str(TESTS / name), *arguments], env={**os.environ, "PYTHONPATH": paths, **environment},
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("policy", [*policy_names(), "a user's"])
def test_the_same_replay_gives_the_same_tables(policy: str, user_policy: str):
    name = user_policy if policy == "a user's" else policy
    for seed in (*SEEDS, *range(100, 110)):
        assert digest((name, seed)) == digest((name, seed)), seed


@pytest.mark.compiled
def test_compiled_and_interpreted_code_give_the_same_tables(user_policy: str):
    other = json.loads(script("contract_cells.py", user_policy, *map(str, SEEDS), NUMBA_DISABLE_JIT="1" if JIT else "0"))
    assert other == {name: {str(seed): digest((name, seed)) for seed in SEEDS} for name in (*policy_names(), user_policy)}


@pytest.mark.compiled
def test_one_process_and_two_give_the_same_tables(user_policy: str):
    cells = [(name, seed) for seed in SEEDS for name in (*policy_names(), user_policy)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(digest, cells)) == [digest(cell) for cell in cells]


WRITES = {
    "a field": "view.jobs.start[job] = 5.0", "an array": "view.clock[0] = 9.0", "a slice": "view.clock[:][0] = 9.0",
    "a field kept by name": "column = view.jobs.duration\n    column[job] = 1.0", "an element of a matrix": "view.cores[0, 0] = 0",
}
THROUGH_RECORDS = {
    "a record": "record = view.jobs[job]\n    record.duration = 1.0", "a record at once": "view.jobs[job].duration = 1.0",
    "a record by key": "record = view.jobs[job]\n    record['duration'] = 1.0", "a record of a matrix": "view.on_shape[0, 0].allowed = 0",
}


def writes(folder: Path, statement: str) -> Path:
    return policy_file(folder, "writes", f"def key(view, own, job):\n    {statement}\n    return 0.0")


@pytest.mark.parametrize("what", WRITES)
def test_the_view_is_read_only(what: str, tmp_path: Path):
    with pytest.raises(BadInput if JIT else ValueError, match="does not compile" if JIT else "read-only"):
        play([job("a", 0, 10)], [server()], writes(tmp_path, WRITES[what]))


@pytest.mark.xfail(JIT, strict=True, reason="Numba lets compiled code write to a record of a read-only array")
@pytest.mark.parametrize("what", THROUGH_RECORDS)
def test_the_view_is_read_only_through_records_too(what: str, tmp_path: Path):
    with pytest.raises((BadInput, ValueError)):
        play([job("a", 0, 10)], [server()], writes(tmp_path, THROUGH_RECORDS[what]))


@pytest.mark.skipif(not JIT, reason="the test above does it")
def test_the_view_is_read_only_in_interpreted_code(tmp_path: Path):
    for i, statement in enumerate((*WRITES.values(), *THROUGH_RECORDS.values())):
        writes(tmp_path, statement).rename(tmp_path / f"writes{i}.py")
    source = """
        import sys
        from pathlib import Path
        from builders import job, play, server
        for path in sorted(Path(sys.argv[1]).glob("writes*.py")):
            try:
                play([job("a", 0, 10)], [server()], path)
                print("written")
            except ValueError as error:
                print(error)
        """
    said = script(str(policy_file(tmp_path, "tries", source)), str(tmp_path), NUMBA_DISABLE_JIT="1").split("\n")[:-1]
    assert len(said) == len(WRITES) + len(THROUGH_RECORDS) and all("read-only" in line for line in said), said


INVALID = """
    from harness.cluster.fit import best_fit
    from harness.cluster.preempt import FIRST_VICTIM, SERVER_FOUND

    PARAMS = {"place": -9, "server": 0, "first": 0, "second": 0, "number": 0}
    PLACE, SERVER, FIRST, SECOND, NUMBER = 0, 1, 2, 3, 4

    def key(view, own, job):
        return -view.classes.priority[view.jobs.klass[job]]

    def place(view, own, job):
        return int(own.params[PLACE]) if own.params[PLACE] > -9 else best_fit(view, job)

    def victims(view, own, job, found):
        found[SERVER_FOUND] = int(own.params[SERVER])
        found[FIRST_VICTIM], found[FIRST_VICTIM + 1] = int(own.params[FIRST]), int(own.params[SECOND])
        return int(own.params[NUMBER])
    """

BOOKED_TWICE, NO_SERVER = "places it where it does not fit", "proposes a server that does not exist"
PROTECTED, TWICE, TOO_LITTLE = "evicts a job that may not be evicted", "names a victim twice", "evicts too little"
INTENTIONS = [
    # What the policy proposes, and the job, server, victim and complaint that must be named.
    ("a full server", {"place": 0}, "w", 0, "", BOOKED_TWICE),
    ("a server out of range", {"place": 7}, "e", 7, "", NO_SERVER),
    ("a protected job", {"first": 2, "number": 1}, "p", 0, "n", PROTECTED),
    ("a job of equal priority", {"first": 1, "number": 1}, "p", 0, "e", PROTECTED),
    ("the preemptor itself", {"first": 4, "number": 1}, "p", 0, "p", "or one that is not on the server"),
    ("a job that is not there", {"first": 99, "number": 1}, "p", 0, "number 99", PROTECTED),
    ("a victim twice", {"first": 0, "second": 0, "number": 2}, "p", 0, "v", TWICE),
    ("a victim on another server", {"server": 1, "first": 0, "number": 1}, "p", 1, "v", "or one that is not on the server"),
    ("too little", {"first": 3, "number": 1}, "p", 0, "", TOO_LITTLE),
    ("victims on a server out of range", {"server": -3, "first": 0, "number": 1}, "p", -3, "", NO_SERVER),
    ("more victims than jobs", {"number": 6}, "p", 0, "", "more than there are jobs"),
]


@pytest.fixture(scope="session")
def invalid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return policy_file(tmp_path_factory.mktemp("outside"), "wrong", INVALID)


@pytest.mark.parametrize(("proposal", "who", "where", "victim", "complaint"), [case[1:] for case in INTENTIONS],
                         ids=[case[0] for case in INTENTIONS])
def test_an_invalid_intention_stops_the_replay(proposal: dict, who: str, where: int, victim: str, complaint: str, invalid: Path):
    """e, of p's own priority, is placed first, on server 1 of 1 GPU. v (2 GPUs), n (not preemptible) and w fill server 0. p wants 2.

    Where everybody is sent to server 0, e, v and n fill its 4 GPUs and w is one too many.
    """
    jobs = [job("v", 0, 100, 2, preemptible=True), job("e", 0, 100, preemptible=True, priority=1), job("n", 0, 100),
            job("w", 0, 100, preemptible=True), job("p", 5, 5, 2, priority=1)]
    with pytest.raises(InvalidIntention) as raised:
        play(jobs, [server(4), server()], invalid, **proposal)
    said = str(raised.value)
    time = 5 if who == "p" else 0
    assert said.startswith(f"policy wrong, job {who}, server {where}{', victim ' + victim if victim else ''}, time {time} s: ")
    assert complaint in said and "\n" not in said


def test_a_young_job_is_protected_from_any_policy(invalid: Path):
    jobs = [job("v", 0, 100, preemptible=True), job("p", 5, 5, priority=1)]
    with pytest.raises(InvalidIntention, match="job p, server 0, victim v, time 5 s: evicts a job that may not be evicted"):
        play(jobs, [server()], invalid, first=0, number=1, min_runtime_s=6.0)
    assert play(jobs, [server()], invalid, first=0, number=1, min_runtime_s=5.0).runs("p") == [(5, 10)]


def test_a_gang_may_not_book_one_gpu_twice(invalid: Path):
    with pytest.raises(InvalidIntention, match="job g, server 0, time 3 s: places it where it does not fit"):
        play([job("g", 3, 5, instances=2)], [server(), server()], invalid, place=0)


def test_a_guarantee_may_not_be_broken_by_placement(invalid: Path):
    # x and y leave one GPU in either node of server 0, and nothing fits the guarantee until one of them ends.
    jobs = [job("x", 0, 9), job("p", 0, 1), job("q", 0, 1), job("y", 0, 9), job("g", 2, 5, 2, affinity="guaranteed")]
    with pytest.raises(InvalidIntention, match="job g, server 0, time 2 s: places it where it does not fit"):
        play(jobs, [server(4, numa=2, sockets=2)], invalid, place=0)
