.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Made anew whenever what is to be installed changes.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "buquet needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $(READY)

.PHONY: venv
venv: $(READY) ## Make .venv with everything that development needs

.PHONY: demo
demo: $(READY) ## Run the main job on SQLite and show it
	@$(BIN)/buquet demo

.PHONY: test
test: $(READY) ## Test every promise on every store, in a few minutes; needs no network
	$(PYTEST) -m 'not long'

.PHONY: test-long
test-long: $(READY) ## Search for longer: more seeds, networks that fail, workers that are killed
	$(PYTEST) -m long

.PHONY: fuzz
fuzz: $(READY) ## Try odd inputs for long, others each time than the tests do
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest tests/fuzz --timeout 0 -p no:logging --show-capture=no

SEEDS ?= 2000
.PHONY: simulate
simulate: $(READY) ## Run fleets in simulated time by SEEDS=2000; no guarantee may break
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --keep tests/simulation/kept

.PHONY: soak
soak: $(READY) ## Kill workers at random for a minute on each store; no task may be lost
	$(BIN)/python scripts/soak.py --seconds 60 --store sqlite
	$(BIN)/python scripts/soak.py --seconds 60 --store seaweedfs

.PHONY: bench
bench: $(READY) ## Measure against the peers, which it installs in .bench; takes long
	$(BIN)/python scripts/bench

.PHONY: cover
cover: $(READY) ## Run all tests and show which lines they do not reach
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage report

.PHONY: format
format: $(READY) ## Rewrite the code to the house format
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format --quiet .

.PHONY: lint
lint: $(READY) ## Check format, lint, layers and types
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

.PHONY: check
check: lint test test-long ## Everything that the gate runs

.PHONY: clean
clean: ## Remove what the other commands made
	rm -rf .venv .bench .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage build dist
