"""Speed and memory against the budgets of the design: ``python -m harness.bench``, or ``make bench``."""
