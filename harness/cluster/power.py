"""Watts of a server, by what is in use on it. The model of PWR (arXiv 2412.17484): a GPU that anybody uses draws full power, and so does a
socket with a busy core.
"""

import numpy as np

from harness.cluster.state import Array
from harness.jit import inlined
from harness.schema import MILLI
from harness.topology import UNBOUNDED, Cluster

GPU_WATTS = {
    "T4": (10.0, 70.0), "A10": (30.0, 150.0), "P100": (25.0, 250.0), "V100": (30.0, 300.0), "V100M16": (30.0, 300.0),
    "V100M32": (30.0, 300.0), "A100": (50.0, 400.0), "A100-80": (50.0, 400.0), "G2": (30.0, 150.0), "G3": (50.0, 400.0),
}
"""Idle and full power of a GPU by model, as PWR's authors have them. G2 and G3 are undisclosed models of the openb trace; that they are
like A10 and A100 is assumed."""

UNKNOWN_GPU_WATTS = (25.0, 250.0)
"""What the public code has for models without a figure."""

SOCKET_IDLE_W, SOCKET_FULL_W, SOCKET_CPU = 15.0, 120.0, 32 * MILLI
"""Of a Xeon E5-2682 v4 (16 cores of 2 hardware threads, 120 W), which PWR's authors take where the CPU is not known: the cores of a trace
are hardware threads, here in thousandths."""


def gpu_watts(cluster: Cluster) -> Array:
    """Idle and full power of one GPU of each shape, f8 (K, 2)."""
    return np.array([GPU_WATTS.get(shape.gpu_model, UNKNOWN_GPU_WATTS) for shape in cluster.shapes])


@inlined
def cpu_watts(busy, free):
    """Watts of the sockets of a server with so many core thousandths busy and free; 0 where cores have no limit."""
    if busy + free >= UNBOUNDED * MILLI:
        return 0.0
    return SOCKET_FULL_W * ((busy + SOCKET_CPU - 1) // SOCKET_CPU) + SOCKET_IDLE_W * (free // SOCKET_CPU)
