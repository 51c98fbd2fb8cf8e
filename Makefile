# make demo   sets everything up and runs the main job
# make test   sets everything up, then lints, type-checks and runs all tests
# make pages  fills the tables of README and docs from results/ and draws the pictures of tables again
# make stress sets everything up, then kills workers of a sweep of 200 runs every 15 seconds, ours and Ray's
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The type checker of the report's scripts; `make lint TSC=tsc` takes an installed one.
TSC ?= npx --yes --prefer-offline --fetch-retries=0 --package typescript@5.9.3 tsc

# Results of the benchmark of pruning without training, one a network.
ONESHOT := $(filter-out results/oneshot-ablation-%,$(sort $(wildcard results/oneshot-*.json)))

.PHONY: demo test pages stress lint lint-page clean
.DELETE_ON_ERROR:

# One thread: the demo's networks are too small to gain from more.
demo: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(BIN)/splinecut demo

# One thread a process: small tensors gain nothing from more, and two workers share the cores.
test: $(VENV)/.ready-dev lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

pages: $(VENV)/.ready
	$(BIN)/python -m tools.fill_tables README.md docs/results.md
	$(BIN)/python -m studies.charts results/digits-table.json results/fig7-rho-small.json results/table2-global-small.json
	$(BIN)/python -m studies.charts --tradeoff results/pruned-initialisation-small.json
	$(if $(ONESHOT),$(BIN)/python -m studies.oneshot.figure $(ONESHOT))

stress: $(VENV)/.ready-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.stress_sweep stress-digits --every 15 --ray

lint: $(VENV)/.ready-dev lint-page
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports

# Node is not needed to build or run anything here, so that its absence stops nothing.
lint-page:
	@if $(TSC) --version >/dev/null 2>&1; then $(TSC) -p src/splinecut/report/page; \
	else echo "skipped: types of the report's scripts (needs node, and typescript from npm)"; fi

# torch comes first and pinned: an open range would bring gigabytes of accelerator packages.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
