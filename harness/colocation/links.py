"""What joins the GPUs of a replica at each topology level of a server: NVLink where it reaches, else PCIe inside a socket, else the link
between the sockets."""

from dataclasses import replace

from harness.colocation.settings import Links
from harness.schema import LEVELS
from harness.serving.models import Link
from harness.serving.pool import Pool
from harness.topology import SERVER, SOCKET, Cluster, ServerShape


def on_links(pool: Pool, cluster: Cluster, links: Links) -> Pool:
    """The pool with the links of the cluster's servers, unless it has links of its own.

    Of a cluster with several shapes the first counts.
    """
    return pool if pool.links else replace(pool, links=level_links(cluster.shapes[0], pool, links))


def level_links(shape: ServerShape, pool: Pool, links: Links) -> tuple[tuple[str, Link], ...]:
    """The link at each level at which it is not NVLink, by level."""
    pcie = Link(pool.gpu.pcie_gbs if links.pcie_gbs is None else links.pcie_gbs, links.hop_us)
    reach = shape.nvlink_level() if shape.nvlink else -1
    found = []
    for level, name in enumerate(LEVELS):
        if level <= reach and (level != SOCKET or reach == SERVER):
            continue
        found.append((name, Link(links.cross_socket_gbs, links.hop_us) if level == SERVER else pcie))
    return tuple(found)
