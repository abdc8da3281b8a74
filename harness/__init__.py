"""Trace-replay benchmarking of schedulers for co-located LLM workloads on GPU clusters."""

from harness.cache import use_fresh_numba_cache

__version__ = "0.1.0"

use_fresh_numba_cache()
