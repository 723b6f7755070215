# Every target makes the virtual environment it needs and nothing outside this folder.
#   PYTHON=python3.12   which Python to use (default: the first fit one that is found)
#   VENV=.venv          where its virtual environment is made
#   DATA_DIR=/path      demo, results: a folder that has mnist.npz or MNIST's four idx files
#   ARGS="-k ports"     test: more arguments for pytest (-n 0: one test at a time)
#   SEED=2              faults: other cells

PYTHON ?=
VENV ?= .venv
ARGS ?=
SEED ?= 1

# DATA_DIR goes to the recipe through the environment, as it was typed: a path may have
# spaces, quotes or dollars in it.
ifdef DATA_DIR
override DATA_DIR := $(value DATA_DIR)
export DATA_DIR
endif
export PYTHON

.PHONY: help demo test lint smoke faults results docs clean distclean venv
.DEFAULT_GOAL := help

help: ## show this
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12
	@sed -n '2,/^$$/s/^#  //p' Makefile

demo: venv ## train MNIST on two workers of this machine (3 epochs, a minute or two)
	@set --; \
	if [ -n "$$DATA_DIR" ]; then \
	    folder=$$(CDPATH= cd -- "$$DATA_DIR" 2>/dev/null && pwd) || { \
	        echo "make demo: DATA_DIR=$$DATA_DIR is no folder" >&2; exit 2; }; \
	    set -- -- --data-dir "$$folder"; \
	fi; \
	exec "$(VENV)/bin/python" -m distrun launch templates/multi_worker_mirrored.yaml "$$@"

test: lint ## check style and types, then run all tests, the fast ones first
	@"$(VENV)/bin/python" -m pytest -n 2 --dist loadgroup $(ARGS)

lint: venv ## ruff and mypy
	@"$(VENV)/bin/python" -m ruff check .
	@"$(VENV)/bin/python" -m ruff format --check .
	@"$(VENV)/bin/python" -m mypy

smoke: venv ## train, follow, detach and kill once, with the command as it is installed
	@"$(VENV)/bin/python" tests/smoke.py

faults: venv ## strike real training in some sixty ways (SEED=n draws others; a quarter of an hour)
	@"$(VENV)/bin/python" tests/faults --seed "$(SEED)"
	@"$(VENV)/bin/python" -m pytest -q tests/faults

results: venv ## measure the bundled job and write docs/results.md (a quarter of an hour)
	@"$(VENV)/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[results]'
	@exec "$(VENV)/bin/python" benchmarks/results --data-dir "$$DATA_DIR"

docs: venv ## write docs/cli.md and docs/spec.md anew, from the code
	@PYTHONPATH=launcher "$(VENV)/bin/python" scripts/docs.py

clean: ## remove what the other targets made, except the virtual environment
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -not -path './$(VENV)/*' \
	    -prune -exec rm -rf {} +

distclean: clean ## remove the virtual environment as well
	rm -rf "$(VENV)"

venv:
	@sh scripts/venv.sh "$(VENV)"
