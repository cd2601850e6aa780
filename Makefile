# Two commands for a newcomer: `make demo` and `make test`. Each sets up what it needs on a machine with Python 3.11.
# `make test-slow` runs the tests that take long.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: demo test test-slow check format docs paper bench clean

demo: .venv/ready
	$(BIN)/antiadv demo

test: check
	$(BIN)/python -m pytest --numprocesses=auto

# what takes long, and then training, parity, engine and convolutions as on a CPU that has AVX2 and no AVX-512
test-slow: .venv/ready
	$(BIN)/python -m pytest --numprocesses=auto -m slow
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(BIN)/python -m pytest --numprocesses=auto \
		-m 'slow or not slow' tests/train tests/parity tests/engine tests/core/test_strides.py

check: .venv/ready
	$(BIN)/ruff format --check src tests tools benchmarks
	$(BIN)/ruff check src tests tools benchmarks
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff format src tests tools benchmarks
	$(BIN)/ruff check --fix src tests tools benchmarks

# the pages that are made of facts
docs: .venv/ready
	$(BIN)/python -m tools.docs

# the paper from what is stored, in under a minute: docs/reproduction.md, and report/report.html to open in a browser
paper: docs
	$(BIN)/antiadv report --store results --out report --gallery 6

# ours beside other people's attacks, how strong and how fast, on the CPU; what is stored is not run again
bench: .venv-bench/ready
	.venv-bench/bin/python -W ignore -m benchmarks.parity --device cpu --jobs 'torchattacks-*,art-*,foolbox-*'
	.venv-bench/bin/python -W ignore -m benchmarks.speed --device cpu --threads 2 --sides ours,compiled,mixed

# their pins clash with ours: an environment of their own, where our package brings no dependencies
.venv-bench/ready: benchmarks/constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --constraint benchmarks/constraints.txt \
		torch numpy scipy safetensors pillow pyautoattack foolbox adversarial-robustness-toolbox packaging
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--constraint benchmarks/constraints.txt torchattacks --editable .
	touch $@

# the environment, with the versions that were tested; made anew when they change
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-bench .mypy_cache .pytest_cache .ruff_cache .hypothesis
