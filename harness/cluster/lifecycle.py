"""What happens to one job: it starts, is evicted, ends. Times in seconds; the arithmetic is that of replay-semantics.md."""

import numpy as np

from harness.cluster.ledger import enter_evictable, job_level, leave_evictable, vacate
from harness.cluster.queue import FINISH, schedule
from harness.cluster.state import EXPIRED, FINISHED, NOW, RUNNING, WAITING
from harness.jit import inlined, kernel


@inlined
def network_level(state, job):
    """0: all instances on one server, 1: in one rack, 2: under one spine, 3: farther apart."""
    servers, jobs, instances = state.servers, state.jobs, state.instances
    first = instances.server[jobs.first_instance[job]]
    level = 0
    for i in range(jobs.first_instance[job] + 1, jobs.end_instance[job]):
        s = instances.server[i]
        if s == first:
            continue
        if servers.rack[s] == servers.rack[first]:
            level = max(level, 1)
        elif servers.spine[s] == servers.spine[first]:
            level = max(level, 2)
        else:
            level = 3
    return level


@inlined
def start(state, queue, job):
    """The job, already on its servers, begins to run."""
    jobs, now = state.jobs, state.clock[NOW]
    c = jobs.klass[job]
    jobs.status[job] = RUNNING
    jobs.start[job] = now
    if np.isnan(jobs.first_start[job]):
        jobs.first_start[job] = now
    jobs.restart[job] = jobs.restart_cost[job] if jobs.evictions[job] else 0.0
    jobs.level[job] = job_level(state, job)
    for i in range(jobs.first_instance[job], jobs.end_instance[job]):
        state.instances.ran_on[i] = state.instances.server[i]
    jobs.speed[job] = state.speed[jobs.kind[job], jobs.level[job] + 1, network_level(state, job)]
    jobs.due[job] = min(done_at(jobs, job), jobs.end[job])
    schedule(queue, jobs, jobs.due[job], FINISH, job)
    if state.classes.preemptible[c]:
        enter_evictable(state, job)


@inlined
def done_at(jobs, job):
    """When the current attempt completes the job."""
    return jobs.start[job] + jobs.restart[job] + (jobs.duration[job] - jobs.progress[job]) / jobs.speed[job]


@inlined
def charge_attempt(state, job):
    """Books the attempt that ends now; returns the seconds it ran without restarting."""
    jobs = state.jobs
    elapsed = state.clock[NOW] - jobs.start[job]
    jobs.running[job] += elapsed
    jobs.restarting[job] += min(elapsed, jobs.restart[job])
    return max(0.0, state.clock[NOW] - (jobs.start[job] + jobs.restart[job]))


@inlined
def lost_if_evicted(jobs, job, now):
    """Seconds of work that an eviction at ``now`` would lose."""
    ran = max(0.0, now - (jobs.start[job] + jobs.restart[job]))
    return jobs.speed[job] * (ran - kept(jobs.checkpoint[job], ran))


@inlined
def kept(checkpoint, ran):
    """Running time, of ``ran``, that the last checkpoint keeps. nan: there are none; 0: they are continuous."""
    if np.isnan(checkpoint):
        return 0.0
    if checkpoint == 0.0:
        return ran
    return checkpoint * np.floor(ran / checkpoint)


@kernel
def charge_eviction(state, queue, job):
    """Books the eviction of a job that is off its servers; it waits again. Returns the seconds of work lost."""
    jobs = state.jobs
    ran = charge_attempt(state, job)
    safe = kept(jobs.checkpoint[job], ran)
    lost = jobs.speed[job] * (ran - safe)
    jobs.progress[job] += jobs.speed[job] * safe
    jobs.lost[job] += lost
    jobs.evictions[job] += 1
    jobs.evicted_at[job] = state.clock[NOW]
    wait(state, queue, job)
    return lost


@inlined
def wait(state, queue, job):
    """The job waits; if it has an end_time, that is its next event."""
    jobs = state.jobs
    jobs.status[job] = WAITING
    jobs.due[job] = jobs.end[job]
    if jobs.end[job] < np.inf:
        schedule(queue, jobs, jobs.end[job], FINISH, job)


@inlined
def finish(state, job):
    """A running job ends: it is done, or its end_time has come."""
    jobs, now = state.jobs, state.clock[NOW]
    done = done_at(jobs, job) <= now
    ran = charge_attempt(state, job)
    jobs.progress[job] = jobs.duration[job] if done else jobs.progress[job] + jobs.speed[job] * ran
    jobs.status[job] = FINISHED
    jobs.finish[job] = now
    jobs.due[job] = np.inf
    for i in range(jobs.first_instance[job], jobs.end_instance[job]):
        vacate(state, i)
    if state.classes.preemptible[jobs.klass[job]]:
        leave_evictable(state, job)


@kernel
def end_unstarted(state, job):
    """The end_time of a job that does not run has come."""
    jobs = state.jobs
    jobs.status[job] = EXPIRED if np.isnan(jobs.first_start[job]) else FINISHED
    jobs.finish[job] = state.clock[NOW]
    jobs.due[job] = np.inf
