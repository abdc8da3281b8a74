"""The state of a job-level replay: what a policy may read, and what only the engine writes.

Every field is named, typed and given its unit here once. Tables are arrays of records (``view.jobs.start[job]``): few arrays, so
that a policy is called cheaply and the loop compiles fast, and what is read together lies together. GPUs of a server are bits of an
int64 mask, shares of a GPU, cores in total and GPU sums are counted in thousandths, exclusive cores are whole and counted per NUMA
node, memory is in whole MiB. J jobs, C classes of equal request, I instances, S servers, K shapes, G GPUs and N NUMA nodes of the
largest shape, D domains of a shape, P priorities of preemptible jobs.
"""

from typing import NamedTuple

import numpy as np

Array = np.ndarray
Table = np.recarray

NONE, BEST_EFFORT, GUARANTEED = 0, 1, 2
PACKED, FIRST_FREE, SPREAD = 0, 1, 2
NUMA, NVLINK, SOCKET, SERVER = 0, 1, 2, 3
UNPINNED = -1
ANYWHERE, RACK, SPINE = 0, 1, 2

WAITING, CLAIMING, RUNNING, FINISHED, REJECTED, EXPIRED, UNSUBMITTED = 0, 1, 2, 3, 4, 5, 6

STOP, GO_ON = True, False
"""What ``blocked`` answers: end the pass, or go on with the next job."""

NOW, HORIZON, GRACE_S, MIN_RUNTIME_S, RETRY_S = 0, 1, 2, 3, 4
"""Columns of View.clock, in seconds."""

DECISIONS, SEED, PASS, INSTANCE, SCOPE_FROM, SCOPE_TO, MAX_EVICTABLE, PINNING, EVICTING, UNBOUND = range(10)
"""Columns of View.count: decisions so far, the seed, passes so far, the instance that is being placed, the servers it may use, ..., 1
while the job evicts where it does not fit, and 1 for a policy that may evict whatever is preemptible, anywhere in scope."""


def table(**fields: str) -> np.dtype:
    """A record type from field names and NumPy type codes."""
    return np.dtype(list(fields.items()), align=True)


SHAPE = table(
    gpus="i8",
    numa_nodes="i8",
    domains="i8",  # number of domains
    memory="i8",  # MiB
)

DOMAIN = table(
    level="i8",  # NUMA, NVLINK, SOCKET or SERVER
    gpus="i8",  # mask of GPUs
    numa="i8",  # mask of NUMA nodes
)

CLASS = table(
    instances="i8",
    gpus="i8",  # per instance
    milli="i8",  # share of each GPU, thousandths
    cpu="i8",  # cores per instance, thousandths
    cores="i8",  # of these, exclusive whole cores
    memory="i8",  # MiB per instance
    affinity="i8",  # NONE, BEST_EFFORT or GUARANTEED
    priority="i8",
    preemptible="i8",  # 0 or 1
    rank="i8",  # number of preemptible priorities below its own; its column of evictable when it is preemptible
    network="i8",  # ANYWHERE, RACK or SPINE
    required="i8",  # 1: the network domain is required
    possible="i8",  # 1: an empty cluster could hold it
)

ON_SHAPE = table(
    allowed="i8",  # 1: the GPU model is on the list of the class
    accepts="i8",  # largest level a guaranteed instance accepts
    can_hit="i8",  # 1: an empty server of that shape could keep an instance below SERVER
)

JOB = table(
    klass="i8",
    kind="i8",  # index into schema.KINDS
    tenant="i8",  # number of the tenant in order of first appearance
    submit="f8",  # s
    duration="f8",  # s
    estimate="f8",  # s
    end="f8",  # s, inf: none
    checkpoint="f8",  # s, nan: none
    restart_cost="f8",  # s
    first_instance="i8",
    end_instance="i8",  # one past its last instance
    status="i8",
    first_start="f8",  # s, nan: never
    start="f8",  # s, of the current or last attempt
    restart="f8",  # s without progress at the head of the current attempt
    speed="f8",  # of the current attempt
    due="f8",  # s, its next finish event, inf: none
    finish="f8",  # s, nan: not yet
    progress="f8",  # s of work kept
    running="f8",  # s in ended attempts
    lost="f8",  # s of work lost
    restarting="f8",  # s in ended attempts
    evictions="i8",
    evicted_at="f8",  # s, -inf: never
    retry_at="f8",  # s, may not evict before
    level="i8",  # of its worst instance in the last attempt, UNPINNED: nothing is pinned
)

SERVER_STATE = table(
    shape_id="i8",
    rack="i8",
    spine="i8",
    free="i8",  # mask of wholly free GPUs
    gpu="i8",  # free GPU thousandths
    cpu="i8",  # free core thousandths
    memory="i8",  # free MiB
    first="i8",  # first instance on it, -1: none
)

RANK = table(
    priority="i8",
    most_gpus="i8",  # most GPUs that one job of this priority can hold on one server
)

EVICTABLE = table(
    gpu="i8",  # GPU thousandths of running preemptible jobs of one priority
    cpu="i8",  # core thousandths of the same
    newest="f8",  # s, latest start among them, -inf: none
)

INSTANCE_STATE = table(
    job="i8",
    server="i8",  # where it sits, or sat last, claims included; -1: never placed
    ran_on="i8",  # server of its current or last attempt, -1: never ran
    gpus="i8",  # mask
    next="i8",  # instances of one server form a doubly linked list
    prev="i8",
)


class View(NamedTuple):
    """All that a policy may read."""

    clock: Array  # f8 (5,) columns NOW ..
    count: Array  # i8 (10,) columns DECISIONS ..
    speed: Array  # f8 (kinds, levels + 1, network levels), level column 0 for nothing pinned
    shapes: Table  # SHAPE (K,)
    domain: Table  # DOMAIN (K, D) by level, then index: domain n < numa_nodes is NUMA node n
    largest: Array  # i8 (K, 4) most GPUs in one domain of each level
    gpu_numa: Array  # i8 (K, G) NUMA node of each GPU
    shape_cores: Array  # i8 (K, N) cores of each NUMA node
    classes: Table  # CLASS (C,): jobs that ask for the same with the same priority share a class
    on_shape: Table  # ON_SHAPE (C, K)
    ranks: Table  # RANK (P,): the priorities of preemptible jobs, ascending
    jobs: Table  # JOB (J,): the trace in arrival order, and what became of each job
    servers: Table  # SERVER_STATE (S,)
    version: Array  # i8 (S,) how often what is free or evictable on a server has changed
    shared: Array  # i8 (S, G) thousandths in use of a partly used GPU, 0: free or whole
    cores: Array  # i8 (S, N) cores of each NUMA node not held exclusively
    evictable: Table  # EVICTABLE (S, P)
    bucket: Array  # i8 (G + 1, W) bit s of bucket b: server s has b = floor(free GPU thousandths / 1000)
    bucket_size: Array  # i8 (G + 1,)
    instances: Table  # INSTANCE_STATE (I,)
    instance_cores: Array  # i8 (I, N) exclusive cores by NUMA node


class Own(NamedTuple):
    """All that a policy may write, except ``params``, which come from its configuration.

    A streamed replay renumbers jobs between two instants: ``job_state`` moves with them, but a number of a job kept as a value does not.
    """

    params: Array  # f8 (number of params,)
    state: Array  # f8 (STATE of the policy,)
    job_state: Array  # f8 (J, JOB_STATE of the policy)
    server_state: Array  # f8 (S, SERVER_STATE of the policy)
    class_server: Array  # f8 (C, S + K, CLASS_SERVER_STATE of the policy): of a class on a server, then on an untouched one of a shape
    table: Array  # f8 (., .) what prepare returned


def new_own(params: Array, state: int, job_state: int, server_state: int, class_server: int, table: Array, view: View) -> Own:
    """Zeroed scratch for a policy with so many columns of each kind, and what it prepared."""
    jobs, servers, classes = len(view.jobs), len(view.servers), len(view.classes)
    return Own(params.copy(), np.zeros(state), np.zeros((jobs, job_state)), np.zeros((servers, server_state)),
               np.zeros((classes, servers + len(view.shapes), class_server)), table)


def read_only(value):
    """The same arrays, not writable, through any depth of named tuples."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    return type(value)(*(read_only(field) for field in value))

