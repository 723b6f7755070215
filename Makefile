# Every target creates the virtual environment that it needs, and nothing outside this folder.
#   PYTHON=python3.12   the Python to use (default: the first suitable one)
#   VENV=.venv          the folder of the virtual environment
#   UV=uv               install with this uv instead of pip
#   DATA_DIR=/path      demo, results: a folder with mnist.npz or MNIST's four idx files
#   ARGS="-k ports"     test: additional arguments for pytest (-n 0: one test at a time)
#   ARGS="newest user"  everywhere: the cells to run (see scripts/everywhere.py)
#   SEED=2              faults, mutants: another selection
#   N=20                flaky: runs; mutants: how many (all: each)

PYTHON ?=
VENV ?= .venv
ARGS ?=
SEED ?= 1

# DATA_DIR reaches the recipe unchanged, through the environment: a path may contain spaces,
# quotes and dollar signs.
ifdef DATA_DIR
override DATA_DIR := $(value DATA_DIR)
export DATA_DIR
endif
export PYTHON
export UV
# Set in many containers: each process that runs tests would compile every file again.
unexport PYTHONDONTWRITEBYTECODE
# Tasks would run in the active environment, which need not have what is installed here.
unexport VIRTUAL_ENV
unexport CONDA_PREFIX

# Empty if it is the default: then it is chosen anew.
OWN_SEED = $(if $(filter command line environment,$(origin SEED)),$(SEED))

.PHONY: help demo test golden flaky mutants everywhere check lint smoke faults plots bench results pictures docs clean distclean venv
.DEFAULT_GOAL := help

help: ## show this help
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12
	@sed -n '2,/^$$/s/^#  //p' Makefile

demo: venv ## train MNIST with two workers on this machine (3 epochs, a minute or two)
	@set --; \
	if [ -n "$$DATA_DIR" ]; then \
	    folder=$$(CDPATH= cd -- "$$DATA_DIR" 2>/dev/null && pwd) || { \
	        echo "make demo: DATA_DIR=$$DATA_DIR is no folder" >&2; exit 2; }; \
	    set -- -- --data-dir "$$folder"; \
	fi; \
	exec "$(VENV)/bin/python" -m distrun launch templates/multi_worker_mirrored.yaml "$$@"

test: venv ## run all tests, style and types among them (five minutes with two cores)
	@"$(VENV)/bin/python" -m pytest -n auto $(ARGS)

golden: venv ## write anew what commands show in tests/world/golden; read the difference
	@REMAKE=1 "$(VENV)/bin/python" -m pytest -q -p no:xdist tests/world/test_golden.py

flaky: venv ## run the tests of what has changed N times (20) on a busy machine (SEED=n repeats a run)
	@N="$(N)" SEED="$(OWN_SEED)" "$(VENV)/bin/python" scripts/flaky.py $(ARGS)

mutants: venv ## change the core N times (40), and see whether tests notice (a minute each)
	@N="$(N)" SEED="$(OWN_SEED)" "$(VENV)/bin/python" scripts/mutants.py

everywhere: ## run tests with each promised Python, as root and as a user, in eight kinds of shells (2 hours)
	@exec python3 scripts/everywhere.py $(ARGS)

check: venv ## check style and types, and run the unit tests (half a minute)
	@"$(VENV)/bin/python" -m pytest -n 2 -q $(ARGS) tests/unit

lint: venv ## run ruff and mypy
	@"$(VENV)/bin/python" -m ruff check .
	@"$(VENV)/bin/python" -m ruff format --check .
	@"$(VENV)/bin/python" -m mypy

smoke: venv ## train, follow, detach and kill once with the installed command
	@"$(VENV)/bin/python" tests/smoke.py

faults: venv ## inject faults into real training, in about sixty ways (SEED=n for others; up to 45 minutes)
	@"$(VENV)/bin/python" tests/faults --seed "$(SEED)"
	@"$(VENV)/bin/python" -m pytest -q tests/faults
	@"$(VENV)/bin/python" -m pytest -q -m hypothesis --hypothesis-profile=all tests/unit

plots: venv
	@"$(VENV)/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[bench]'

bench: plots ## measure distrun beside other launchers, and write docs/benchmarks.md (half an hour)
	@exec "$(VENV)/bin/python" benchmarks $(ARGS)

results: plots ## measure the bundled job and write docs/results.md (25 minutes)
	@exec "$(VENV)/bin/python" benchmarks/results --data-dir "$$DATA_DIR"

pictures: venv ## make the pictures of the pages (needs Chromium; 3 minutes)
	@exec "$(VENV)/bin/python" scripts/pictures.py

docs: venv ## generate docs/cli.md, docs/spec.md and tables of other pages
	@PYTHONPATH=launcher "$(VENV)/bin/python" scripts/docs.py

clean: ## remove the files of the other targets, except the virtual environment
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -not -path './$(VENV)/*' \
	    -prune -exec rm -rf {} +

distclean: clean ## remove the virtual environment, too
	rm -rf "$(VENV)"

venv:
	@sh scripts/venv.sh "$(VENV)"
