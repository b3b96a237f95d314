# make demo      see Lookout work, on any machine with Python 3.10 or later; ends by itself
# make run       run config.yaml until Ctrl-C
# make bench     measure Lookout here, on a drawn street; writes a report into bench-results in under three minutes
# make test      everything that needs no GPU
# make lint      what CI checks before the tests

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
# CI narrows what is installed: PIP_ARGS="-c tests/oldest.txt"
PIP_ARGS ?=

.PHONY: demo run bench test lint format schemas clean

demo: $(VENV)/base
	@$(BIN)/lookout demo

run: $(VENV)/base
	@$(BIN)/lookout run -c config.yaml

bench: $(VENV)/bench
	@$(BIN)/lookout bench replay --sources 4 --lanes 1 --max-batch 8 --seconds 8

test: $(VENV)/dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

schemas: $(VENV)/base
	$(BIN)/python -m daemon.messages docs/schema

clean:
	rm -rf .venv .venv-* build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Lookout needs Python 3.10 or later; $(PYTHON) is older: make PYTHON=/path/to/python3.10 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "install Python's venv module first: apt install python3-venv"; exit 2; }

$(VENV)/base: $(BIN)/python pyproject.toml
	@echo "Installing Lookout into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -e .
	@touch $@

$(VENV)/bench: $(VENV)/base
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -e '.[bench]'
	@touch $@

$(VENV)/dev: $(VENV)/base
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -e '.[dev]'
	@touch $@
