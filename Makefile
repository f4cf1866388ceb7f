# `make demo` and `make test` set everything up by themselves: a virtual environment, then an editable install.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint type format bench clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

# torch and torchvision are installed together so that they match.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip hatchling
	$(RUN) -m pip install --quiet torch torchvision
	$(RUN) -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(READY)  ## FedHydra on the built-in digits, about a minute
	$(RUN) -m oneshot_fl

test: $(READY)  ## All tests but the slow ones
	$(RUN) -m pytest

test-slow: $(READY)  ## The slow tests too
	$(RUN) -m pytest -m 'not gpu'

lint: $(READY)  ## Style and formatting
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

type: $(READY)  ## Types
	$(RUN) -m mypy

format: $(READY)  ## Rewrite the sources in the common format
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

bench: $(READY)  ## Measure the speed, an hour on a quiet machine
	$(RUN) -m benchmarks --out docs/results/speed.json

clean:  ## Remove the environment, caches and run folders (not the store of results)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis outputs multirun dist build
