# Every target works on a fresh machine that has Python 3.10 or newer, pip, make and git.
# It makes .venv, installs what it needs there (once: a stamp file remembers it) and runs.

PYTHON ?= python3
ARGS ?=
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq -c constraints.txt
SPHINX := $(BIN)/python -m sphinx -q -W --keep-going -b html docs site

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help chromium run explore check test long lint bench soak faults fuzz rllte docs package clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  PYTHON=python3.12 chooses the interpreter, ARGS=... is passed on by run, explore, check, test, long, bench, soak and faults."
	@echo "  JOBS=4 runs the tests in four processes instead of two."

run: $(VENV)/.stamp-dev  ## the demo: six signals choose what a small model learns from; a few minutes, then report/demo/index.html
	$(BIN)/headway demo $(ARGS)

explore: $(VENV)/.stamp-dev  ## PPO, alone and rewarded by ICM+GMC, solves a small grid: three seeds each, a few minutes
	$(BIN)/headway run doorkey --preset quick --method ppo icm+gmc --noise none --seeds 0:3 --out runs/quick $(ARGS)

chromium:  ## install Chromium for the browser tests, if there is none (Debian and Ubuntu)
	@.ci/chromium

# The tests set torch to one thread; what they start does the same.
check test long: export OMP_NUM_THREADS = 1
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS)

check: $(VENV)/.stamp-dev  ## while you work: ruff, mypy and the tests that are not slow; about a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -m "not slow and not soak" $(ARGS)

test: $(VENV)/.stamp-dev  ## the whole test suite, in JOBS processes; the browser tests where a Chromium is installed
	$(PYTEST) $(ARGS)

lint: $(VENV)/.stamp-dev $(VENV)/.stamp-docs  ## ruff, mypy and a strict build of the docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(SPHINX)

bench: $(VENV)/.stamp-bench $(VENV)/.stamp-backpack  ## the full benchmark, with Opacus and BackPACK as peers
	$(BIN)/headway bench --out benchmarks/results --docs docs/benchmarks.md $(ARGS)

long: $(VENV)/.stamp-dev  ## the long forms of tests, which `make test` leaves out; minutes each
	$(PYTEST) -m soak $(ARGS)

soak: $(VENV)/.stamp-dev  ## the long fault suite: workers, nodes and campaigns killed and stopped, about an hour
	$(BIN)/python -m tests.faults.soak --out benchmarks/results/soak.json --docs docs/scale.md $(ARGS)

faults: $(VENV)/.stamp-dev  ## the fault suite, and how long it takes
	$(BIN)/python -m tests.faults.timing --out benchmarks/results/faults.json --docs docs/scale.md $(ARGS)

SECONDS ?= 60
fuzz: $(VENV)/.stamp-dev $(VENV)/.stamp-fuzz  ## search for inputs that break a reader, SECONDS=60 for each
	$(BIN)/python -m tests.fuzz.run $(SECONDS)

# rllte asks for old versions of other packages; of what it needs, these two are missing.
rllte: $(VENV)/.stamp-dev  ## hold the RLeXplore adapter against rllte itself, which is installed apart
	@$(PIP_INSTALL) --no-deps --upgrade --target $(VENV)/rllte rllte-core nvidia-ml-py termcolor
	PYTHONPATH=$(VENV)/rllte $(BIN)/python -m pytest -q tests/integrations/test_rlexplore.py tests/integrations/test_rllte_bonuses.py

docs: $(VENV)/.stamp-docs  ## build the docs into site/
	$(SPHINX)
	@echo "built: site/index.html"

package: $(VENV)/.stamp-package  ## build the sdist and the wheel into dist/, and check both
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

clean:  ## remove .venv, caches and built docs; results in runs/ and report/ stay
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first and from the constraint, so that no other package can choose its version.
$(VENV)/.stamp-torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("expected Python 3.10 or newer, got %d.%d; choose another: make PYTHON=..." % sys.version_info[:2] if sys.version_info < (3, 10) else 0)'
	@echo "installing torch into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) torch
	@touch $@

# BackPACK asks for torchvision but works without it; the rest of what it needs is in the bench extra.
$(VENV)/.stamp-backpack: $(VENV)/.stamp-torch
	@$(PIP_INSTALL) --no-deps backpack-for-pytorch
	@touch $@

# One stamp for each extra of pyproject.toml.
$(VENV)/.stamp-%: pyproject.toml constraints.txt $(VENV)/.stamp-torch
	@echo "installing headway-torch[$*] into $(VENV) (this may take some minutes) ..."
	@$(PIP_INSTALL) -e '.[$*]'
	@touch $@
