"""GFS' virtual clusters and spot quotas (arXiv 2509.11134) [code]: one virtual cluster for each GPU model. specs/cluster-policies.md, GFS.

High-priority (HP) jobs are those that are not preemptible, the others are spot. Every period (300 s) the demand of HP jobs is forecast,
and a spot job may start only if the GPUs of running spot jobs and its own are within the quota

    quota = eta (C - clip(floor(mu + z_p sigma), 0, C)),

where eta goes down when too many guaranteed hours fail, and up when few do and spot jobs wait. An hour is twelve periods, however long.
"""

import math

import numpy as np

from harness.cluster.forecast import FORECASTERS, LIN, ORACLE, RING, SEASONAL, TERMS, WORK, fit, linear, naive, normal_quantile
from harness.cluster.service import gpus_of
from harness.cluster.state import FINISHED, GRACE_S, NOW, PASS, RUNNING
from harness.jit import inlined, kernel
from harness.schema import MILLI

FORECAST, NO_QUOTA, CONSTANT = 0, 1, 2
PARAMS = {"quota": ("forecast", "none", "constant"), "quota_share": 0.1, "forecaster": FORECASTERS, "p": 0.9, "period_s": 300.0,
          "day_h": 24.0, "week_h": 168.0, "history_h": 672.0}
QUOTA_RULE, QUOTA_SHARE, FORECASTER, P, PERIOD, DAY_H, WEEK_H, HISTORY_H = range(len(PARAMS))
"""``quota_share``: the constant quota over the GPUs of the virtual cluster; ``p``: quantile of the forecast, also the share of guaranteed
hours that should succeed; ``period_s``: time between two quotas (s); then the lags and the memory of the forecast (h)."""

HOUR, WINDOW = 12, 48
"""Periods of an hour, and of the time over which failures are counted (4 h)."""

LOWEST_ETA, HIGHEST_ETA = 0.2, 1.2
"""[ours]: without bounds eta diverges."""

(POOL, CAPACITY, SPOT, HP, PEAK, QUOTA, ETA, HEAD_PASS, HEAD_SINCE, FAILED, KEPT, WINDOW_FAILED, WINDOW_KEPT, MEAN, SIGMA,
 FITTED) = range(16)
COEFFICIENTS = 16
FAILED_RING = COEFFICIENTS + TERMS
KEPT_RING = FAILED_RING + WINDOW
SCRATCH = KEPT_RING + WINDOW
SERIES = SCRATCH + WORK
FUTURE = SERIES + RING
"""Columns of Own.table. A row for each shape: POOL is the row of its virtual cluster, which has the rest: GPUs in all, of running spot and
HP jobs and the most of these in this hour (thousandths), the quota (GPUs), eta, when the head of the spot queue joined it (s) and the pass
in which that was seen, guaranteed hours that failed and were kept in this period and in the window before, the forecast (GPUs) and the
deviation of the fit, rings of these and of the hourly maxima, and what the oracle knows."""

STATE = 8
TICKS, Z, SUM_FAILED, SUM_KEPT, SUM_QUOTA, QUOTAS, FAILED_SHARE, MEAN_QUOTA = range(STATE)
NEEDS_TRACE = {"forecaster": "oracle"}
REPORTS = {"guarantee_failed_share": FAILED_SHARE, "quota_mean": MEAN_QUOTA}
"""In the summary: failed over all guaranteed hours, and the mean quota over the GPUs of the virtual clusters since there are spot jobs."""

JOB_STATE = 1
COUNTED = 0
"""Full hours of the attempt that are counted."""


def prepare(view, requests, cluster) -> np.ndarray:
    """The virtual clusters, and for the oracle the maxima of each 3600 s that HP jobs would have if each ran as it came: f8 (K, .)."""
    models = [shape.gpu_model for shape in cluster.shapes]
    pools = np.array([models.index(model) for model in models])
    gpus = np.bincount(cluster.shape_of, minlength=len(models)) * [shape.gpus for shape in cluster.shapes]
    hours = int(view.jobs.submit.max() // 3600.0) + 2 if np.isfinite(view.jobs.submit).all() and len(view.jobs) else 0
    table = np.zeros((len(models), FUTURE + hours))
    table[:, POOL], table[:, ETA], table[:, HEAD_PASS] = pools, 1.0, -1.0
    np.add.at(table[:, CAPACITY], pools, MILLI * gpus)
    high = (view.classes.preemptible == 0) & (view.classes.possible == 1)
    for pool in set(pools) if hours else ():
        asked = high & (view.on_shape.allowed[:, pools == pool] == 1).any(axis=1)
        table[pool, FUTURE:] = _hourly_maxima(view, view.jobs[asked[view.jobs.klass]], hours)
    return table


def _hourly_maxima(view, jobs, hours) -> np.ndarray:
    """GPUs that ``jobs`` hold at most in each 3600 s, if all start when they come: f8 (hours,)."""
    c = view.classes[jobs.klass]
    gpus = c.instances * c.gpus * c.milli / MILLI
    times = np.concatenate([jobs.submit, np.minimum(jobs.submit + jobs.duration, 3600.0 * hours), 3600.0 * np.arange(hours)])
    steps = np.concatenate([gpus, -gpus, np.zeros(hours)])
    order = np.lexsort((steps, times))
    most = np.zeros(hours)
    np.maximum.at(most, np.minimum(times[order] // 3600.0, hours - 1).astype(int), np.cumsum(steps[order]))
    return most


@inlined
def pool_of(view, own, s):
    """Row of the virtual cluster of server ``s``."""
    return int(own.table[view.servers.shape_id[s], POOL])


@inlined
def is_spot(view, job):
    return view.classes.preemptible[view.jobs.klass[job]] == 1


@inlined
def within_quota(view, own, job, pool):
    """Whether virtual cluster ``pool`` has quota left for all instances of ``job``; HP jobs need none."""
    if own.params[QUOTA_RULE] == NO_QUOTA or not is_spot(view, job):
        return True
    row = own.table[pool]
    quota = own.params[QUOTA_SHARE] * row[CAPACITY] / MILLI if own.params[QUOTA_RULE] == CONSTANT else row[QUOTA]
    return row[SPOT] / MILLI + gpus_of(view, job) <= quota


@inlined
def misses_quota(view, own, job):
    """Whether no virtual cluster that the job may use has quota left for it; it is then noted as waiting."""
    c = view.jobs.klass[job]
    for k in range(len(view.shapes)):
        if view.on_shape.allowed[c, k] and within_quota(view, own, job, int(own.table[k, POOL])):
            return False
    note_waiting(view, own, job)
    return True


@kernel
def account(view, own, job):
    """A job has started or stopped to run: GPUs in use, the maximum of the hour, and hours that failed or were kept."""
    jobs, c = view.jobs, view.jobs.klass[job]
    spot, runs = is_spot(view, job), jobs.status[job] == RUNNING
    each = view.classes.gpus[c] * view.classes.milli[c]
    for i in range(jobs.first_instance[job], jobs.end_instance[job]):
        row = own.table[pool_of(view, own, view.instances.server[i])]
        row[SPOT if spot else HP] += each if runs else -each
        row[PEAK] = max(row[PEAK], row[HP])
    if not spot:
        return
    if runs:
        own.job_state[job, COUNTED] = 0.0
        return
    count_hours(view, own, job)
    row = own.table[pool_of(view, own, view.instances.server[jobs.first_instance[job]])]
    if jobs.status[job] != FINISHED:
        row[FAILED] += 1.0
        own.state[SUM_FAILED] += 1.0
    elif view.clock[NOW] - jobs.start[job] > own.job_state[job, COUNTED] * HOUR * own.params[PERIOD]:
        row[KEPT] += 1.0
        own.state[SUM_KEPT] += 1.0
    every = own.state[SUM_FAILED] + own.state[SUM_KEPT]
    own.state[FAILED_SHARE] = own.state[SUM_FAILED] / every if every > 0.0 else 0.0


@inlined
def count_hours(view, own, job):
    """Counts the full hours of the running attempt of a spot job that are not counted yet."""
    hours = math.floor((view.clock[NOW] - view.jobs.start[job]) / (HOUR * own.params[PERIOD]))
    if hours > own.job_state[job, COUNTED]:
        own.table[pool_of(view, own, view.instances.server[view.jobs.first_instance[job]]), KEPT] += hours - own.job_state[job, COUNTED]
        own.state[SUM_KEPT] += hours - own.job_state[job, COUNTED]
        own.job_state[job, COUNTED] = hours


@inlined
def note_waiting(view, own, job):
    """A job could not start: the first spot job of a pass is the head of the queue of the virtual clusters that it may use."""
    c = view.jobs.klass[job]
    for k in range(len(view.shapes) if is_spot(view, job) else 0):
        row = own.table[int(own.table[k, POOL])]
        if view.on_shape.allowed[c, k] and row[HEAD_PASS] != view.count[PASS]:
            row[HEAD_PASS] = view.count[PASS]
            row[HEAD_SINCE] = max(view.jobs.submit[job], view.jobs.evicted_at[job] + view.clock[GRACE_S])


@kernel
def next_quota(view, own):
    """A period is over: counts hours, closes an hour, forecasts, and sets eta and the quota of every virtual cluster."""
    for s in range(len(view.servers)):
        i = view.servers.first[s]
        while i >= 0:
            job = view.instances.job[i]
            if view.jobs.status[job] == RUNNING and is_spot(view, job) and i == view.jobs.first_instance[job]:
                count_hours(view, own, job)
            i = view.instances.next[i]
    state, params = own.state, own.params
    state[TICKS] += 1.0
    tick = int(state[TICKS])
    if tick == 1:
        state[Z] = normal_quantile(params[P])
    quotas, gpus = 0.0, 0.0
    for k in range(len(view.shapes)):
        if own.table[k, POOL] != k:
            continue
        row = own.table[k]
        _count_failures(row, tick)
        if tick % HOUR == 0:
            row[SERIES + (tick // HOUR - 1) % RING] = row[PEAK] / MILLI
            row[PEAK] = row[HP]
        if tick % HOUR == 0 or tick < HOUR:
            _forecast(row, tick // HOUR, params)
        _feed_back(view, row, params)
        capacity = row[CAPACITY] / MILLI
        demand = math.floor(round(1e6 * (row[MEAN] + state[Z] * row[SIGMA])) / 1e6)
        row[QUOTA] = row[ETA] * (capacity - min(max(demand, 0.0), capacity))
        quotas += row[QUOTA]
        gpus += capacity
    if gpus > 0.0 and state[SUM_FAILED] + state[SUM_KEPT] > 0.0:
        state[SUM_QUOTA] += quotas / gpus
        state[QUOTAS] += 1.0
        state[MEAN_QUOTA] = state[SUM_QUOTA] / state[QUOTAS]


@inlined
def _count_failures(row, tick):
    """Moves the counts of this period into the window, and those of WINDOW periods before out of it."""
    at = tick % WINDOW
    row[WINDOW_FAILED] += row[FAILED] - row[FAILED_RING + at]
    row[WINDOW_KEPT] += row[KEPT] - row[KEPT_RING + at]
    row[FAILED_RING + at], row[KEPT_RING + at] = row[FAILED], row[KEPT]
    row[FAILED], row[KEPT] = 0.0, 0.0


@kernel
def _forecast(row, n, params):
    """Sets MEAN and SIGMA of the hour ``n`` that begins, in GPUs; the linear forecast is refitted every day."""
    series = row[SERIES:SERIES + RING]
    day, week, history, rule = int(params[DAY_H]), int(params[WEEK_H]), int(params[HISTORY_H]), params[FORECASTER]
    if n % day == 0:
        row[FITTED] = fit(series, n, day, week, history, row[COEFFICIENTS:COEFFICIENTS + TERMS], row[SCRATCH:SCRATCH + WORK])
    if rule == ORACLE and len(row) > FUTURE:
        row[MEAN], row[SIGMA] = row[FUTURE + min(n, len(row) - FUTURE - 1)], 0.0
    elif n == 0:
        row[MEAN], row[SIGMA] = row[PEAK] / MILLI, 0.0
    elif rule == LIN and n >= week and row[FITTED] >= 0.0:
        row[MEAN], row[SIGMA] = linear(series, n, day, week, row[COEFFICIENTS:COEFFICIENTS + TERMS]), row[FITTED]
    else:
        row[MEAN], row[SIGMA] = naive(series, n, week if rule == SEASONAL and n >= week else 1, history)


@inlined
def _feed_back(view, row, params):
    """Failures above 1.5 of what is allowed lower eta; below half of it eta rises if the head of the spot queue has waited for an hour."""
    allowed, every = 1.0 - params[P], row[WINDOW_FAILED] + row[WINDOW_KEPT]
    share = row[WINDOW_FAILED] / every if every > 0.0 else 0.0
    waits = row[HEAD_PASS] == view.count[PASS] and view.clock[NOW] - row[HEAD_SINCE] > HOUR * params[PERIOD]
    if share >= 1.5 * allowed:
        row[ETA] *= allowed / share
    elif share <= 0.5 * allowed and waits:
        row[ETA] *= 1.5 - share / allowed
    row[ETA] = min(max(row[ETA], LOWEST_ETA), HIGHEST_ETA)
