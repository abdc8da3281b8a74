"""FGD, fragmentation gradient descent (ATC'23) [code]: the server, and for a share the GPU, on which fragmentation grows least.

Fragmentation of a server is that of harness.cluster.fragmentation, over the typical classes of the trace; scores are integers.
"""

from harness.cluster.fragmentation import SERVER_STATE as SERVER_STATE
from harness.cluster.fragmentation import STATE as STATE
from harness.cluster.fragmentation import least_growth, typical_classes
from harness.cluster.packing import CLASS_SERVER_STATE as CLASS_SERVER_STATE
from harness.cluster.packing import highest

prepare = typical_classes


def place(view, own, job):
    return highest(view, own, job, least_growth)
