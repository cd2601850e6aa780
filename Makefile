# Two commands for a newcomer: `make demo` and `make test`. Each sets up what it needs on a machine with Python 3.11.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: demo test check format docs clean

demo: .venv/ready
	$(BIN)/antiadv demo

test: check
	$(BIN)/python -m pytest --numprocesses=auto

check: .venv/ready
	$(BIN)/ruff format --check src tests scripts
	$(BIN)/ruff check src tests scripts
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff format src tests scripts
	$(BIN)/ruff check --fix src tests scripts

# the pages that are made of facts
docs: .venv/ready
	$(BIN)/python scripts/make_docs.py

# the environment, with the versions that were tested; made anew when they change
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
