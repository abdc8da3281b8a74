"""From a trace table and a cluster to the state of a fresh replay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness import schema
from harness.cluster.fit import CPU, FREE, MEMORY, empty_room, fill_empty_server, fits, pin, take
from harness.cluster.state import (
    ANYWHERE,
    CLASS,
    DOMAIN,
    EVICTABLE,
    GUARANTEED,
    INSTANCE_STATE,
    JOB,
    NUMA,
    ON_SHAPE,
    PINNING,
    RACK,
    RANK,
    SERVER,
    SERVER_STATE,
    SHAPE,
    SOCKET,
    UNPINNED,
    UNSUBMITTED,
    Array,
    Table,
    View,
)
from harness.errors import BadInput
from harness.jit import entry
from harness.schema import MILLI
from harness.topology import Cluster, ServerShape

MAX_GPUS = 62
"""GPUs of one server: they are bits of an int64 with room to spare."""


@dataclass(frozen=True)
class Rules:
    """What holds for every policy of a replay. Times in seconds; ``speed`` maps (kind, level, network level) to a factor, default 1.

    ``level`` is one of schema.LEVELS or None (nothing pinned), the network level one of schema.NETWORK_LEVELS.
    """

    pinning: str = "packed"
    grace_s: float = 0.0
    min_runtime_s: float = 0.0
    max_evictable: int = 16
    horizon_s: float = np.inf
    seed: int = 0
    speed: Mapping[tuple[str, str | None, str], float] = field(default_factory=dict)

    def __post_init__(self):
        if self.pinning not in schema.PINNINGS:
            raise BadInput(f"pinning={self.pinning}: must be one of {', '.join(schema.PINNINGS)}")
        for name, low in (("grace_s", 0.0), ("min_runtime_s", 0.0)):
            if not low <= getattr(self, name) < np.inf:
                raise BadInput(f"preemption.{name}={getattr(self, name)}: must be a finite number >= 0")
        if not 1 <= self.max_evictable <= 24:
            raise BadInput(f"preemption.max_evictable={self.max_evictable}: must be 1 to 24")
        if not self.horizon_s > 0:
            raise BadInput(f"horizon_s={self.horizon_s}: must be positive")
        if not 0 <= self.seed < 2**31:
            raise BadInput(f"seed={self.seed}: must be a whole number from 0 to 2^31 - 1")

    def speeds(self) -> np.ndarray:
        """Factors by (kind, level + 1, network level)."""
        table = np.ones((len(schema.KINDS), len(schema.LEVELS) + 1, len(schema.NETWORK_LEVELS)))
        for (kind, level, network), factor in self.speed.items():
            if not 0 < factor < np.inf:
                raise BadInput(f"speed of {kind}, {level}, {network} is {factor}: must be positive")
            at = 0 if level is None else schema.LEVELS.index(level) + 1
            table[schema.KINDS.index(kind), at, schema.NETWORK_LEVELS.index(network)] = factor
        return table


def build_state(trace: pa.Table, cluster: Cluster, rules: Rules) -> tuple[View, Array]:
    """Fresh state, writable, and the row of the trace behind each job index (stable order of submit_time)."""
    return build(trace, cluster, rules)[:2]


def build(trace: pa.Table, cluster: Cluster, rules: Rules) -> tuple[View, Array, "Requests"]:
    """``build_state``, and the classes of the trace."""
    submit = _numbers(trace, "submit_time")
    order = np.arange(len(submit))
    if (submit[1:] < submit[:-1]).any():
        order = np.argsort(submit, kind="stable")
        trace = trace.take(pa.array(order))
    requests = Requests()
    klass = requests.number(trace)
    view = _unjudged(requests, cluster, rules)
    jobs = fresh_jobs(trace, klass, view.classes, {})
    return _judged(with_room(view, jobs, fresh_instances(jobs))), order, requests


def build_empty(requests: "Requests", cluster: Cluster, rules: Rules, slots: int) -> View:
    """The state before any job is known, for jobs of these classes, with room for ``slots`` of them and of their instances."""
    jobs = no_jobs(slots)
    return _judged(with_room(_unjudged(requests, cluster, rules), jobs, no_instances(slots)))


def _judged(view: View) -> View:
    on_shape = np.zeros((len(view.classes), len(view.shapes)), np.int64)
    capacities(view, on_shape)
    for c in range(len(view.classes)):
        view.classes.possible[c] = _possible(view, c, on_shape[c])
    return view


def with_room(view: View, jobs: Table, instances: Table) -> View:
    """The state with these jobs and instances."""
    return view._replace(jobs=jobs, instances=instances, instance_cores=np.zeros((len(instances), view.cores.shape[1]), np.int64))


def _unjudged(requests: "Requests", cluster: Cluster, rules: Rules) -> View:
    """The state without jobs, and without a word on what is possible."""
    shapes, domain, largest, gpu_numa, shape_cores = _shapes(cluster)
    classes = requests.classes()
    priorities = np.unique(classes.priority[classes.preemptible == 1]) if classes.preemptible.any() else np.zeros(1, np.int64)
    classes.rank = np.searchsorted(priorities, classes.priority)
    ranks = records(len(priorities), RANK)
    ranks.priority = priorities
    evictable: Any = classes[classes.preemptible == 1]
    np.maximum.at(ranks["most_gpus"], evictable.rank, np.minimum(evictable.instances * evictable.gpus, gpu_numa.shape[1]))
    servers, bucket, bucket_size = _servers(cluster, shapes, shape_cores, gpu_numa.shape[1])
    held = records((len(servers), len(ranks)), EVICTABLE)
    held.newest = -np.inf
    view = View(
        np.array([0.0, rules.horizon_s, rules.grace_s, rules.min_runtime_s, 60.0]),
        np.array([0, rules.seed, 0, 0, 0, len(servers), rules.max_evictable, schema.PINNINGS.index(rules.pinning), 0, 0]),
        rules.speeds(), shapes, domain, largest, gpu_numa, shape_cores, classes,
        records((len(classes), len(shapes)), ON_SHAPE), ranks, no_jobs(0), servers, np.zeros(len(servers), np.int64),
        np.zeros((len(servers), gpu_numa.shape[1]), np.int64), shape_cores[servers.shape_id], held, bucket, bucket_size,
        no_instances(0), np.zeros((0, shape_cores.shape[1]), np.int64),
    )
    words = requests.columns()
    for k, shape in enumerate(cluster.shapes):
        _judge_classes(view, shape, k, words["gpu_model"], words["affinity_domain"])
    return view


def smallest_state() -> View:
    """The state of one job on one server: every dtype and number of dimensions is as in any other."""
    shape = ServerShape("smallest", "GPU", 1, (1,), (0,), (0,))
    zero = np.zeros(1, np.int32)
    row = {c.name: c.default for c in schema.JOBS} | {
        "job_id": "0", "submit_time": 0.0, "duration": 1.0, "duration_estimate_s": 1.0, "gpus": 1}
    trace = pa.Table.from_pylist([row], schema=schema.arrow_schema(schema.JOBS))
    requests = Requests()
    requests.number(trace)
    return with_room(_unjudged(requests, Cluster("smallest", (shape,), zero, zero, zero), Rules()), no_jobs(1), no_instances(1))


def records(shape: int | tuple[int, int], dtype: np.dtype) -> Table:
    return np.zeros(shape, dtype).view(np.recarray)


def _numbers(trace: pa.Table, name: str, missing: float = np.nan) -> Array:
    column = trace.column(name)
    return (pc.fill_null(column, missing) if column.null_count else column).to_numpy()


def _codes(column: pa.ChunkedArray | pa.Array) -> tuple[Array, list]:
    """Number of each row's value in order of first appearance, and the values; null is a value."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    ends = pc.min_max(column).as_py()
    if len(column) and column.null_count in (0, len(column)) and ends["min"] == ends["max"]:
        return np.zeros(len(column), np.int64), [column[0].as_py()]
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def _positions(words: Sequence[str], known: tuple[str, ...]) -> Array:
    return np.array([known.index(word) for word in words], np.int64)


def _shapes(cluster: Cluster) -> tuple[Table, Table, Array, Array, Array]:
    n_gpus = max(1, *(shape.gpus for shape in cluster.shapes))
    if n_gpus > MAX_GPUS:
        raise BadInput(f"cluster {cluster.name}: a server has {n_gpus} GPUs; the engine takes {MAX_GPUS} at most")
    domains = [shape.domains() for shape in cluster.shapes]
    K, D, N = len(cluster.shapes), max(map(len, domains)), max(len(shape.numa_cores) for shape in cluster.shapes)
    shapes, domain = records(K, SHAPE), records((K, D), DOMAIN)
    largest, gpu_numa, cores = np.zeros((K, len(schema.LEVELS)), np.int64), np.zeros((K, n_gpus), np.int64), np.zeros((K, N), np.int64)
    for k, shape in enumerate(cluster.shapes):
        shapes[k] = shape.gpus, len(shape.numa_cores), len(domains[k]), shape.memory_mib
        for d, (level, gpus, numa) in enumerate(domains[k]):
            domain[k, d] = level, gpus, numa
            largest[k, level] = max(largest[k, level], int(gpus).bit_count())
        gpu_numa[k, : shape.gpus] = shape.gpu_numa
        cores[k, : len(shape.numa_cores)] = shape.numa_cores
    return shapes, domain, largest, gpu_numa, cores


CLASS_COLUMNS = ("instances", "gpus", "gpu_milli", "cpus", "memory_mib", "affinity", "affinity_domain", "gpu_model", "priority",
                 "preemptible", "network_domain", "network_mode")
"""Jobs that agree in all of these share a class."""


class Requests:
    """The classes of a trace in order of first appearance, as rows of CLASS_COLUMNS; the trace may come in pieces.

    ``jobs`` (C,) counts the jobs of each, but for those that a column ``clone`` of the trace calls copies.
    """

    def __init__(self):
        self.rows: dict[tuple, int] = {}
        self.jobs = np.zeros(0, np.int64)

    def number(self, trace: pa.Table) -> Array:
        """The class of each job (J,); those not met before are added."""
        klass = np.zeros(trace.num_rows, np.int64)
        for name in CLASS_COLUMNS:
            codes, values = _codes(trace.column(name))
            if len(values) > 1:
                klass = _codes(pa.array(klass * len(values) + codes))[0]
        first = np.full(klass.max(initial=-1) + 1, -1)
        first[klass[::-1]] = np.arange(len(klass))[::-1]
        found = trace.select(CLASS_COLUMNS).take(pa.array(first)).to_pydict()
        klass = np.array([self.rows.setdefault(row, len(self.rows)) for row in zip(*found.values(), strict=True)], np.int64)[klass]
        counted = klass[~trace["clone"].to_numpy()] if "clone" in trace.column_names else klass
        self.jobs = np.bincount(counted, minlength=len(self.rows)) + np.pad(self.jobs, (0, len(self.rows) - len(self.jobs)))
        return klass

    def columns(self) -> dict[str, tuple]:
        """What they ask for, by the name of the column."""
        return dict(zip(CLASS_COLUMNS, zip(*self.rows, strict=True) if self.rows else [()] * len(CLASS_COLUMNS), strict=True))

    def classes(self) -> Table:
        """Their table (C,), but for what the cluster decides."""
        words = self.columns()
        classes = records(len(self.rows), CLASS)
        for column, name in (("instances", "instances"), ("gpus", "gpus"), ("milli", "gpu_milli"), ("memory", "memory_mib"),
                            ("priority", "priority"), ("preemptible", "preemptible")):
            classes[column] = words[name]
        classes.affinity = _positions(words["affinity"], schema.AFFINITIES)
        cpu = np.ceil(np.round(np.array(words["cpus"], float) * MILLI, 6)).astype(np.int64)
        classes.cores = np.where(classes.affinity > 0, -(-cpu // MILLI), 0)
        classes.cpu = np.where(classes.affinity > 0, classes.cores * MILLI, cpu)
        mode = _positions(words["network_mode"], schema.NETWORK_MODES)
        domain = _positions(words["network_domain"], schema.NETWORK_DOMAINS)
        classes.network = np.where((mode > 0) & (classes.instances > 1), domain, ANYWHERE)
        classes.required = mode == schema.NETWORK_MODES.index("required")
        return classes


def _judge_classes(view: View, shape: ServerShape, k: int, models: Sequence[str | None], domains: Sequence[str]) -> None:
    """What each class can have on shape ``k``, by its gpu_model and affinity_domain (C,)."""
    smallest = _smallest_level(view, k)
    allowed = {word: word is None or shape.gpu_model in word.split("|") for word in set(models)}
    accepted = {word: shape.nvlink_level() if word == "nvlink" else schema.LEVELS.index(word) for word in set(domains) - {"auto"}}
    view.on_shape.allowed[:, k] = [allowed[word] for word in models]
    view.on_shape.accepts[:, k] = [accepted.get(word, NUMA if level == NUMA else SOCKET)
                                   for word, level in zip(domains, smallest, strict=True)]
    view.on_shape.can_hit[:, k] = smallest < SERVER


def _smallest_level(view: View, k: int) -> Array:
    """Smallest level (C,) of an empty server of shape ``k`` whose GPUs and exclusive cores would do."""
    smallest = np.full(len(view.classes), SERVER)
    for d in reversed(range(view.shapes.domains[k])):
        nodes = view.domain.numa[k, d] >> np.arange(view.shape_cores.shape[1]) & 1
        gpus = int(view.domain.gpus[k, d]).bit_count()
        enough = (gpus >= view.classes.gpus) & (nodes @ view.shape_cores[k] >= view.classes.cores)
        smallest[enough] = view.domain.level[k, d]
    return smallest


def no_jobs(slots: int) -> Table:
    """Jobs of which nothing is known yet (``slots``,): they never arrive."""
    fresh = records(1, JOB)
    fresh.status, fresh.speed, fresh.level, fresh.due = UNSUBMITTED, 1.0, UNPINNED, np.inf
    fresh.submit = np.inf
    fresh.first_start = fresh.start = fresh.finish = np.nan
    fresh.evicted_at = fresh.retry_at = -np.inf
    jobs: Any = np.repeat(fresh, slots)
    return jobs


def no_instances(slots: int) -> Table:
    """Instances that were never placed (``slots``,)."""
    instances = records(slots, INSTANCE_STATE)
    instances.server = instances.ran_on = instances.next = instances.prev = -1
    return instances


def fresh_jobs(trace: pa.Table, klass: Array, classes: Table, tenants: dict[str | None, int]) -> Table:
    """The jobs (J,) of a trace, or of a piece of it; ``tenants`` are numbered in order of first appearance, and new ones added.

    Instances are numbered from 0.
    """
    jobs = no_jobs(trace.num_rows)
    jobs.klass = klass
    kind, kinds = _codes(trace.column("kind"))
    jobs.kind = _positions(kinds, schema.KINDS)[kind]
    tenant, names = _codes(trace.column("tenant"))
    jobs.tenant = np.array([tenants.setdefault(name, len(tenants)) for name in names], np.int64)[tenant]
    jobs.submit, jobs.duration = _numbers(trace, "submit_time"), _numbers(trace, "duration")
    jobs.estimate, jobs.end = _numbers(trace, "duration_estimate_s"), _numbers(trace, "end_time", np.inf)
    jobs.checkpoint, jobs.restart_cost = _numbers(trace, "checkpoint_interval_s"), _numbers(trace, "restart_cost_s")
    jobs.end_instance = np.cumsum(classes.instances[klass])
    jobs.first_instance = jobs.end_instance - classes.instances[klass]
    return jobs


def fresh_instances(jobs: Table) -> Table:
    """The instances (I,) of these jobs, numbered from 0."""
    instances = no_instances(int(jobs.end_instance[-1]) if len(jobs) else 0)
    instances.job = np.repeat(np.arange(len(jobs)), jobs.end_instance - jobs.first_instance)
    return instances


def _servers(cluster: Cluster, shapes: Table, shape_cores: Array, n_gpus: int) -> tuple[Table, Array, Array]:
    servers = records(len(cluster.shape_of), SERVER_STATE)
    servers.shape_id, servers.rack, servers.spine = cluster.shape_of, cluster.rack_of, cluster.spine_of
    gpus = shapes.gpus[servers.shape_id]
    servers.free, servers.gpu = (1 << gpus) - 1, MILLI * gpus
    servers.cpu, servers.memory = MILLI * shape_cores[servers.shape_id].sum(axis=1), shapes.memory[servers.shape_id]
    servers.first = -1
    bucket = np.zeros((n_gpus + 1, (len(servers) + 31) // 32), np.int64)
    s = np.arange(len(servers))
    np.bitwise_or.at(bucket, (gpus, s >> 5), 1 << (s & 31))
    return servers, bucket, np.bincount(gpus, minlength=n_gpus + 1)


def _possible(view: View, c: int, on_shape: Array) -> bool:
    """Whether the empty cluster, or some domain of it that the class requires, could hold all its instances.

    ``on_shape`` (K,) is how many of them an empty server of each shape holds.
    """
    servers, need = view.servers, view.classes.instances[c]
    on_server = on_shape[servers.shape_id]
    if view.classes.network[c] == ANYWHERE or not view.classes.required[c]:
        return bool(on_server.sum() >= need)
    domain = servers.rack if view.classes.network[c] == RACK else servers.spine
    return bool(np.bincount(domain, on_server).max() >= need)


@entry
def capacities(view, on_shape):
    """Writes the capacity of every class on every shape to ``on_shape`` (C, K)."""
    for c in range(on_shape.shape[0]):
        for k in range(on_shape.shape[1]):
            on_shape[c, k] = capacity(view, c, k)


@entry
def capacity(view, c, k):
    """Instances of class ``c`` that an empty server of shape ``k`` holds, counted up to the size of its gang."""
    room = empty_room(view)
    fill_empty_server(room, view, k)
    cores = np.zeros(view.cores.shape[1], np.int64)
    n = 0
    while n < view.classes.instances[c] and fits(
        view, c, k, room.amount[FREE], room.shared, room.cores, room.amount[CPU], room.amount[MEMORY], True
    ):
        gpus = pin(view, c, k, room.amount[FREE], room.shared, room.cores, view.count[PINNING], True, cores)
        take(room, view, c, gpus, cores)
        n += 1
    return n


def why_impossible(view: View, c: int) -> str:
    """Which resource or domain an impossible class fails on, in words."""
    shapes, asks = view.shapes, view.classes[c]
    fitting = np.flatnonzero(view.on_shape.allowed[c])
    if not len(fitting):
        return "gpu_model: no server has an allowed model"
    for name, wanted, has in (
        ("gpus", asks.gpus, shapes.gpus), ("cpus", asks.cpu / MILLI, view.shape_cores.sum(axis=1)),
        ("memory_mib", asks.memory, shapes.memory),
    ):
        if not (has[fitting] >= wanted).any():
            return f"{name}: an instance wants {wanted:g}, a server has {has[fitting].max()} at most"
        fitting = fitting[has[fitting] >= wanted]
    if not any(capacity(view, c, k) for k in fitting):
        if asks.affinity != GUARANTEED:
            return "cpus: no NUMA node with a GPU has its exclusive cores"
        levels = " or ".join(sorted({schema.LEVELS[view.on_shape.accepts[c, k]] for k in fitting}))
        return f"affinity: no {levels} domain of a server could keep its guarantee"
    where = f"one {schema.NETWORK_DOMAINS[asks.network]}" if asks.network != ANYWHERE and asks.required else "the cluster"
    return f"instances: it wants {asks.instances}, more than {where} could hold"
