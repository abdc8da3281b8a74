"""A plain twin of the serving engine for continuous batching: every step is made one by one, every request is looked at in each.

It shares nothing with the engine but its rules, and knows static keys alone: chunked or whole prefill, one pool or two, recompute and swap,
replicas that come and go, and prefix stores, which are lists of blocks with the most recent last.
"""

from dataclasses import dataclass, field
from math import ceil, inf


@dataclass
class Request:
    arrival: float
    prompt: int
    output: int
    key: float
    index: int
    made: int = 0  # tokens made
    target: int = 0
    done: int = 0
    kept: bool = False  # its cache waits elsewhere: it only needs a place
    swapped: bool = False
    entered: int = -1
    start: float | None = None
    times: list[float] = field(default_factory=list)  # of its tokens
    preemptions: int = 0
    replica: int = -1
    blocks: list = field(default_factory=list)  # whole blocks of its prompt
    loaded: int = 0

    @property
    def cache(self) -> int:
        return self.prompt + self.made - 1


@dataclass
class Replica:
    role: str
    waiting: list[Request] = field(default_factory=list)
    prefills: list[Request] = field(default_factory=list)
    members: list[Request] = field(default_factory=list)
    used: int = 0
    due: float = inf
    work: list[tuple[Request, int]] = field(default_factory=list)  # chunks of the step under way
    op: Request | None = None
    decoding: bool = False
    turn: bool = False
    changed: bool = False
    stall: float = 0.0
    accepts: bool = True
    store: list = field(default_factory=list)


def replay(rows, replicas, blocks, block, batch, chunk, step_s, key, whole=False, decoders=0, swap_s=None, move_s=0.0,
           changes=None, drops=False, by_key=False, hashes=None, stores=None, load_s=0.0, by_prefix=False):
    """``rows``: (arrival, prompt, output) by arrival. ``step_s``: seconds of a step from (prompt chunks as (done, tokens), caches of the
    members after the step). Requests go to the replica with the fewest present, ties to the lowest. ``changes``: (time, go | drain | come,
    replica) in order; without any all replicas are there. What is on one that goes is sent on, or dropped. ``by_key``: a chunk goes to the
    prompts in the order of their keys, and one that would get nothing of it does not enter.

    ``hashes``: of the prefix blocks of each row; ``stores``: (blocks of a store, tokens of a block, whether all share one); ``load_s``:
    seconds for a token from there; ``by_prefix``: requests go where they and those before them have the fewest tokens to prefill.
    Returns the requests."""
    requests = [Request(a, p, o, key(a, p, o), i, target=p) for i, (a, p, o) in enumerate(rows)]
    pool = [Replica("decode" if decoders and r >= replicas - decoders else "prefill" if decoders else "mixed") for r in range(replicas)]
    coming, moving, entries, held, changes = list(requests), [], [0], [], changes
    most, size, shared = stores or (0, 1, False)
    for q, mine in zip(requests, hashes or [], strict=False):
        q.blocks = list(mine or [])[:q.prompt // size] if most else []
    for r in pool:
        r.accepts = changes is None
        r.store = pool[0].store if shared else r.store
    changes = list(changes or [])

    def fill(tokens):
        return ceil(tokens / block)

    def enqueue(r, q):
        q.replica = pool.index(r)
        r.waiting.append(q)
        r.waiting.sort(key=lambda one: (one.key, one.index))
        r.changed = True

    def enter(r, q):
        r.waiting.remove(q)
        q.entered = entries[0]
        entries[0] += 1
        q.start = now if q.start is None else q.start

    def in_store(r, q):
        """Tokens of its prompt that it does not have to prefill."""
        n = 0
        while n < len(q.blocks) and q.blocks[n] in r.store:
            n += 1
        return min(n * size, q.target - 1)

    def put(r, q):
        """Its blocks go to the end of the list, the first of them last; the list is cut at its beginning after each."""
        for one in reversed(q.blocks):
            if one in r.store:
                r.store.remove(one)
            r.store.append(one)
            del r.store[:-most]

    def token(r, q):
        """A prefill ends with a token."""
        q.made += 1
        q.times.append(now)
        r.changed = True
        if q.made == q.output:
            r.used -= fill(q.cache)
        elif r.role == "prefill":
            r.used -= fill(q.cache)
            to = min((d for d in pool if d.role == "decode"), key=lambda d: d.used + len(d.waiting) * fill(q.cache))
            moving.append((now + q.cache * move_s, q.index, q, to))
        else:
            r.members.append(q)

    def growth(r):
        return sum(q.cache % block == 0 for q in r.members)

    def preempt(r, q):
        q.preemptions += 1
        if q in r.members:
            r.members.remove(q)
            r.used -= fill(q.cache)
            if swap_s is not None:
                r.stall += q.cache * swap_s
                q.kept = q.swapped = True
            else:
                q.target, q.done = q.cache + 1, 0
        else:
            r.prefills.remove(q)
            r.used -= fill(q.target)
            q.done = 0
        enqueue(r, q)

    def begin(r):
        """Puts the next step or operation of an idle replica together."""
        turn, r.turn = r.turn and bool(r.members), False
        if whole and r.changed and not turn:
            for q in [q for q in r.waiting if not q.kept][:1]:
                if r.used + fill(q.target) <= blocks and len(r.members) < batch:
                    enter(r, q)
                    r.used += fill(q.target)
                    r.op, r.due = q, now + (step_s([(0, q.target)], []) + r.stall)
                    r.stall = 0.0
                    return
        lost = False
        while r.used + growth(r) > blocks:
            preempt(r, max(r.members + r.prefills, key=lambda q: q.entered))
            lost = True
        if r.changed and not lost:
            budget = chunk - len(r.members) - sum(q.target - q.done for q in r.prefills)
            for q in list(r.waiting):
                if whole and not q.kept:
                    continue
                if by_key:
                    budget = chunk - len(r.members) - sum(p.target - p.done for p in r.prefills if (p.key, p.index) < (q.key, q.index))
                if not q.kept and budget <= 0:
                    break
                present = len(r.members) + len(r.prefills)
                need = fill(q.cache) + (q.cache % block == 0) if q.kept else fill(q.target)
                if present >= batch or r.used + growth(r) + need + (blocks // 100 if present else 0) > blocks:
                    break
                enter(r, q)
                if q.kept:
                    r.used += fill(q.cache)
                    r.stall += q.cache * swap_s if q.swapped else 0.0
                    q.kept = q.swapped = False
                    r.members.append(q)
                    budget -= 1
                else:
                    r.used += fill(q.target)
                    r.prefills.append(q)
                    q.done = in_store(r, q)
                    q.loaded = q.done if not q.times else q.loaded
                    r.stall += q.done * load_s
                    budget -= q.target - q.done
        r.changed = lost or (turn and bool(r.waiting))
        budget, r.work = chunk - len(r.members), []
        for q in sorted(r.prefills, key=lambda q: (q.key, q.index)) if by_key else r.prefills:
            n = min(budget, q.target - q.done)
            if n > 0:
                r.work.append((q, n))
                budget -= n
        if r.members or r.work:
            r.used += growth(r)
            seconds = step_s([(q.done, n) for q, n in r.work], [q.cache + 1 for q in r.members])
            r.due, r.decoding, r.stall = now + (r.stall + seconds), True, 0.0

    def go(r):
        """The replica is gone, and the step under way with it."""
        r.due, r.work, r.stall = inf, [], 0.0
        for q in r.prefills[::-1] + r.members[::-1]:
            preempt(r, q)
        for q in list(r.waiting):
            r.waiting.remove(q)
            if not drops:
                held.append(q)
        r.used = 0
        if not shared:
            r.store.clear()

    while True:
        now = min([r.due for r in pool] + [m[0] for m in moving] + [q.arrival for q in coming[:1]] + [c[0] for c in changes[:1]])
        if now == inf or not (coming or moving or held or any(r.due < inf for r in pool)):
            return requests
        touched = []
        ended = [r for r in pool if r.due == now]
        for r in sorted(ended, key=lambda r: (r.op is not None, r.op.index if r.op else 0)):
            r.due = inf
            touched.append(r)
            if r.op is not None:
                q, r.op, r.turn = r.op, None, True
                token(r, q)
                continue
            r.decoding = False
            for q in list(r.members):
                q.made += 1
                q.times.append(now)
                if q.made == q.output:
                    r.members.remove(q)
                    r.used -= fill(q.cache)
                    r.changed = True
            for q, n in r.work:
                q.done += n
                if q.done == q.target:
                    r.prefills.remove(q)
                    put(r, q)
                    token(r, q)
            r.changed = r.changed or bool(r.prefills)
        for one in sorted(m for m in moving if m[0] == now):
            moving.remove(one)
            one[2].kept = True
            enqueue(one[3], one[2])
            touched.append(one[3])
        while changes and changes[0][0] == now:
            _, what, number = changes.pop(0)
            if what == "go":
                go(pool[number])
            pool[number].accepts = what == "come"
        arrived = [q for q in coming if q.arrival == now]
        coming = coming[len(arrived):]
        held += arrived
        for q in sorted(held, key=lambda q: (q.key, q.index)):
            able = [r for r in pool if r.role != "decode" and r.accepts]
            if not able:
                break
            held.remove(q)
            if by_prefix:
                r = min(able, key=lambda r: sum(o.target - o.done for o in r.waiting + r.prefills) - in_store(r, q))
            else:
                r = min(able, key=lambda r: len(r.waiting) + len(r.prefills) + len(r.members) + (r.op is not None))
            enqueue(r, q)
            touched.append(r)
        for r in pool:
            if r in touched and r.due == inf:
                begin(r)
