"""Kueue's topology-aware scheduling [code]: instances are counted where they fit, rolled up to racks and spines, and placed as one plan.

A required level: the tightest domain that takes the gang. Preferred: the same, else one level up, else several. Inside, BestFit takes
the roomiest domains first and the tightest that holds the rest last; LeastFreeCapacity the tightest first. ``profile=mixed`` uses
LeastFreeCapacity where a gang has no wish. Order of submission; the walk up ends at spines.
"""

from harness.cluster.rollup import CLASS_SERVER_STATE as CLASS_SERVER_STATE
from harness.cluster.rollup import SERVER_STATE as SERVER_STATE
from harness.cluster.rollup import STATE as STATE
from harness.cluster.rollup import is_planned, keep_plan, next_server, plan

PARAMS = {"profile": ("mixed", "best_fit", "least_free")}
PROFILE = 0
BEST_FIT, LEAST_FREE = 1, 2


def place(view, own, job):
    if not is_planned(view, own, job):
        profile = own.params[PROFILE]
        keep_plan(view, own, job, plan(view, own, job, profile != BEST_FIT, profile == LEAST_FREE))
    return next_server(view, own)
