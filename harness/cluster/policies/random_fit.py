"""Random placement (the floor of FGD's comparison): a random server that fits and, for a share of a GPU, a random GPU that fits."""

from harness.cluster.fit import NO_FIT, fits_server, on_gpu, share_fits
from harness.cluster.packing import draw_for
from harness.cluster.preempt import next_draw
from harness.cluster.state import SCOPE_FROM, SCOPE_TO
from harness.schema import MILLI

SERVER_STATE, FITTING = 1, 0  # scratch: row n is the n-th server that fits
STATE, LAST = 65, 64  # scratch: the GPUs that fit; and the number of the last job that came
JOB_STATE, NUMBER = 1, 0  # jobs by arrival, from 1


def key(view, own, job):
    if own.job_state[job, NUMBER] == 0.0:
        own.state[LAST] += 1.0
        own.job_state[job, NUMBER] = own.state[LAST]
    return 0.0


def place(view, own, job):
    c, draw = view.jobs.klass[job], draw_for(view, int(own.job_state[job, NUMBER]))
    low, high = view.count[SCOPE_FROM], view.count[SCOPE_TO]
    fitting = 0
    for s in range(low, high):
        if fits_server(view, s, c):
            own.server_state[fitting, FITTING] = s
            fitting += 1
    if fitting == 0:
        return NO_FIT
    s = int(own.server_state[draw % fitting, FITTING])
    if view.classes.milli[c] == MILLI:
        return s
    gpus = view.shapes.gpus[view.servers.shape_id[s]]
    fitting = 0
    for g in range(gpus):
        if share_fits(view, s, g, c):
            own.state[fitting] = g
            fitting += 1
    return on_gpu(s, int(own.state[next_draw(draw) % fitting]))
