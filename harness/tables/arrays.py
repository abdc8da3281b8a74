"""Arrays of whole numbers in NumPy's files."""

from zipfile import BadZipFile

import numpy as np

from harness.errors import BadInput
from harness.tables.sniff import one_line


def read_array(name: str, key: str, where: str) -> np.ndarray:
    """The array ``key`` (n,) of whole numbers, i64, in the file ``name`` (.npz). Raises BadInput, which begins with ``where``."""
    try:
        with np.load(name, allow_pickle=False) as arrays:
            known = list(arrays)
            found = arrays[key] if key in known else None
    except (OSError, ValueError, EOFError, BadZipFile, AttributeError, TypeError) as error:
        raise BadInput(f"{one_line(where)}: cannot be read ({one_line(error)}); must be FILE.npz:KEY") from error
    if found is None:
        raise BadInput(f"{one_line(where)}: the file has no array '{one_line(key, 40)}', only {one_line(', '.join(known))}")
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise BadInput(f"{one_line(where)}: must be a row of whole numbers, it is {found.dtype} of {found.ndim} dimensions")
    return found.astype(np.int64)
