# make run and make test are all a newcomer needs; both set up .venv by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PORT   ?= 8501

.PHONY: help setup run test lint types check-all bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

setup: $(VENV)/.installed  ## set up .venv, for the command line

run: $(VENV)/.installed  ## set up what is missing, then serve the app on 127.0.0.1 (PORT=8501)
	$(BIN)/python -m streamlit run app.py --server.port $(PORT)

test: $(VENV)/.installed  ## set up what is missing, then run the tests: side by side, with browsers two at a time, then those that measure this host one by one
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile -m "not alone and not browser"
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m browser tests/browser
	$(BIN)/python -m pytest -q -m alone tests/gpu_probe

lint: $(VENV)/.dev  ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## mypy, strict on planner/
	$(BIN)/python -m mypy

check-all: lint types test  ## everything, and properties with new examples
	HYPOTHESIS_PROFILE=search $(BIN)/python -m pytest -q tests/planner
	KVLEDGER_CHECK_ALL=1 $(BIN)/python -m pytest -q -m check_all tests/gpu_probe tests/browser

bench: $(VENV)/.installed  ## timings, printed and never asserted
	$(BIN)/python -m tests.benchmarks

clean:  ## remove the environment
	rm -rf $(VENV)

$(VENV)/.installed: requirements.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@
