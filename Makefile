# Every target sets up what it needs: a virtual environment, then an editable install.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
INSTALL := $(RUN) -m uv pip install --quiet --python $(RUN)
# One worker a core and one more, because tests that start processes wait a quarter of the time; one thread a worker:
# tiny tensors only wait for a second.
WORKERS := $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)")
BASE ?= HEAD
# Tests start many processes, which begin sooner where compiled modules are kept, and write small files by the ten
# thousand, which need not reach a disk where 4 GB of memory are free for files.
MEMORY := $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 2>/dev/null && echo /dev/shm)
IN_MEMORY := $(if $(MEMORY),PYTEST_DEBUG_TEMPROOT=$(MEMORY))
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(IN_MEMORY) \
	$(RUN) -m pytest --numprocesses $(WORKERS) --dist worksteal $(if $(MEMORY),-o tmp_path_retention_policy=failed)

ifneq ($(filter evidence gpu-evidence,$(MAKECMDGOALS)),)
ifeq ($(strip $(DATA)),)
$(error DATA is not set: make $(MAKECMDGOALS) DATA=folder, with the data sets as torchvision keeps them)
endif
endif

.DEFAULT_GOAL := help
.PHONY: help demo check test test-slow lint type docs format bench evidence gpu-evidence clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# torch and torchvision are installed together, so that they match, and first, so that no tested version holds them back.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet uv
	$(INSTALL) torch torchvision
	$(INSTALL) --constraint constraints.txt --editable '.[dev,docs,export,privacy,report,joblib,slurm,ray,sweep,dashboard]'
	@# What a run imports is compiled now, once; the rest, most of it, where it is first used.
	PYTHONDONTWRITEBYTECODE= $(RUN) -c "import oneshot_fl.pipeline"
	touch $@

demo: $(READY)  ## FedHydra on the built-in digits, about a minute
	$(RUN) -m oneshot_fl

check: lint type  ## What a changed line must pass, in under a minute: style, types, its unit tests (BASE=main: a branch's)
	tests=$$($(RUN) -m tests.changed $(BASE)) && $(PYTEST) $$tests tests/test_architecture.py

test: $(READY)  ## All tests but the slow ones
	$(PYTEST)

test-slow: $(READY)  ## The slow tests too
	$(PYTEST) -m 'not gpu'

lint: $(READY)  ## Style and formatting
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

type: $(READY)  ## Types
	$(RUN) -m mypy

docs: $(READY)  ## The documentation in site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

format: $(READY)  ## Rewrite the sources in the common format
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

bench: $(READY)  ## Measure the speed, an hour on a quiet machine
	$(RUN) -m benchmarks --out docs/results/speed.json

evidence: $(READY)  ## Columns of the papers' tables at their own budgets: days, resumable (DATA=folder of data sets)
	@# A column that fails does not keep the others from running, but one that was stopped does (128 and more).
	code=0; for name in mnist_dirichlet mnist_two_classes; do \
		$(RUN) -m oneshot_fl -m experiment=evidence/$$name "data.root='$(DATA)'" hydra.sweep.dir=multirun/evidence/$$name \
			|| { code=$$?; [ $$code -lt 128 ] || break; }; \
	done; exit $$code

gpu-evidence: $(READY)  ## What only a GPU can tell, in pieces of 10 minutes that go on (DATA=folder of data sets)
	$(RUN) -m benchmarks.gpu_evidence --data "$(patsubst ~/%,$(HOME)/%,$(DATA))"

clean:  ## Remove the environment, caches and run folders (not the store of results)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis outputs multirun dist build site
