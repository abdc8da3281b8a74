# Needs Python >= 3.11 and make; everything else goes into .venv, pinned by requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.done
PYTEST := $(BIN)/python -m pytest -n 2 -q

.DEFAULT_GOAL := help
.PHONY: help setup compile test test-long test-launchers lint reproduce bench bench-large bench-peers notebooks coverage traces lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r name what; do printf '  make %-15s %s\n' "$$name" "$$what"; done

setup: $(READY) ## create the environment in .venv from requirements.lock (PYTHON=python3.12 picks an interpreter)

$(READY): pyproject.toml requirements.lock
	@command -v "$(PYTHON)" > /dev/null || \
		{ echo "make: there is no '$(PYTHON)' here: install Python >= 3.11 or name one with PYTHON=..." >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $$("$(PYTHON)" --version 2>&1) is too old: name a Python >= 3.11 with PYTHON=..." >&2; exit 2; }
	"$(PYTHON)" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraint requirements.lock --editable '.[parallel,notebooks,dev]'
	@touch $@

compile: $(READY) ## compile the replay loop and all policies once, before processes fan out
	$(BIN)/python -m harness.compile

test: compile ## run the test suite
	$(PYTEST) -m 'not slow'

test-long: compile ## run the test suite with the tests marked slow
	$(PYTEST)

test-launchers: compile ## sweeps through a real Slurm (Debian: slurm-wlm and munge) and a local Ray, with their extras
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint requirements.lock --editable '.[parallel,slurm,ray]'
	@# Real daemons on a machine that others use too: what failed gets one more try, which says so.
	timeout 1500 $(BIN)/python -m pytest -q tests/test_launchers.py tests/test_slurm_referee.py || \
		{ echo "once more, for what failed:"; timeout 900 $(BIN)/python -m pytest -q --last-failed tests/test_launchers.py tests/test_slurm_referee.py; }

lint: $(READY) ## ruff, pyright and the import rules of the layers
	$(BIN)/ruff check --output-format concise .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -q tests/test_layers.py

reproduce: compile ## every paper experiment, its figures and results/REPRODUCTION.md (QUICK=1 for a short look)
	$(BIN)/python -m harness.reproduce $(if $(filter-out 0,$(QUICK)),--quick)

bench: compile ## measure speed and memory against the budgets
	$(BIN)/python -m harness.bench

bench-large: compile ## stream 100 million jobs and 20 million requests in bounded memory (QUICK=1: 2 million; 20 GiB in TMPDIR)
	$(BIN)/python -m harness.bench --large --json results/bench-large.json $(if $(filter-out 0,$(QUICK)),--quick)

bench-peers: compile ## the common workload in other simulators beside the harness (HELIOS=DIR names a copy of that one)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint requirements.lock --editable '.[peers]'
	$(BIN)/python -m harness.bench --peers $(if $(HELIOS),--helios "$(HELIOS)") --markdown docs/performance.md

notebooks: compile ## execute the notebooks
	$(if $(wildcard notebooks/*.py),$(BIN)/jupytext --quiet --update --to ipynb notebooks/*.py)
	$(BIN)/python -m pytest -q --nbmake --nbmake-kernel=python3 --nbmake-timeout=600 notebooks/*.ipynb

coverage: $(READY) ## run the test suite as plain Python and say which lines it misses
	NUMBA_DISABLE_JIT=1 $(PYTEST) -m 'not slow' --cov --cov-report=term-missing

traces: $(READY) ## make the traces of traces/ again from their seeds
	$(BIN)/python -m harness.workload.embedded

lock: $(READY) ## resolve requirements.lock again from pyproject.toml (UPGRADE=1 takes newer releases)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-annotate --custom-compile-command 'make lock' \
		$(if $(filter-out 0,$(UPGRADE)),--upgrade) --output-file requirements.lock pyproject.toml

clean: ## remove the environment and all caches; results stay
	rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
