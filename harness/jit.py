"""Compilation, bits and the wall clock, with the same meaning when NUMBA_DISABLE_JIT=1."""

import time
from typing import Any

import numba
import numpy as np
from numba import types

njit: Any = numba.njit
config: Any = numba.config
JIT = not config.DISABLE_JIT

kernel: Any = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)
"""Decorator of the functions that compiled code calls: cached across processes, IEEE division, no entry from Python. They may not
allocate: without reference counts, which would take most of the time, there is nobody to free what they made."""

inlined: Any = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False, forceinline=True)
"""A kernel that is compiled into its callers: passing the state costs more than what a small step does."""

allocating: Any = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""The same for functions that make arrays: called rarely, they hand the loops to kernels."""

entry: Any = njit(cache=True, error_model="numpy")
"""Decorator of the compiled functions that Python calls."""


@inlined
def popcount(mask):
    """Number of set bits of a non-negative int64 (compiles to one instruction)."""
    n = 0
    while mask:
        mask &= mask - 1
        n += 1
    return n


@inlined
def lowest(mask):
    """Index of the lowest set bit; ``mask`` must not be 0."""
    return popcount((mask & -mask) - 1)


@inlined
def lowest_bits(mask, n):
    """The ``n`` lowest set bits of ``mask``."""
    taken = 0
    for _ in range(n):
        bit = mask & -mask
        taken |= bit
        mask ^= bit
    return taken


@inlined
def fill(values, x):
    """Sets all elements of a vector (a slice assignment compiles to far more code)."""
    for i in range(len(values)):
        values[i] = x


@inlined
def copy(values, source):
    """Copies a vector into another of the same length."""
    for i in range(len(values)):
        values[i] = source[i]


@inlined
def total(values):
    """Sum of a vector of integers."""
    result = 0
    for i in range(len(values)):
        result += values[i]
    return result


def _wall_ns(timespec):
    """Monotonic wall clock in nanoseconds; ``timespec`` is an i64 (2,) array to write to."""
    _clock_gettime(_CLOCK_MONOTONIC, timespec.ctypes.data)
    return timespec[0] * 1_000_000_000 + timespec[1]


def _records(n, dtype):
    """``n`` zeroed records of a record type."""
    return np.zeros(n, dtype)


_CLOCK_MONOTONIC = 1
_clock_gettime: Any = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))

wall_ns: Any = kernel(_wall_ns) if JIT else lambda timespec: time.monotonic_ns()
records: Any = allocating(_records) if JIT else lambda n, dtype: np.zeros(n, dtype).view(np.recarray)
