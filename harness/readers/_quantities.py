"""Quantities of Kubernetes: ``500m``, ``2``, ``64Gi``, ``1e9``."""

import re

from harness.errors import BadInput
from harness.tables import one_line

MIB_BYTES = 2.0**20
_SUFFIXES = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0,
    **{sign: 1000.0 ** (i + 1) for i, sign in enumerate("kMGTPE")},
    **{f"{sign}i": 1024.0 ** (i + 1) for i, sign in enumerate("KMGTPE")},
}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,2})|([numkKMGTPE]i?)?)")


def amount(value: object, where: str) -> float:
    """The number that a quantity stands for, in bytes or cores or pieces. Raises BadInput when it is none."""
    match = _FORM.fullmatch(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    if match is None or (match[3] or "") not in _SUFFIXES:
        raise BadInput(f"{where}: '{one_line(value, 40)}' must be a quantity such as 500m, 2 or 64Gi")
    return float(match[1]) * (10.0 ** int(match[2]) if match[2] else _SUFFIXES[match[3] or ""])
