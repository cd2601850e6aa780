# Two commands for a newcomer: `make demo` and `make test`. Each sets up what it needs on a machine with Python 3.11.
# `make test-slow` runs the slow tests. CONTRIBUTING.md lists all commands.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
CODE := src tests tools benchmarks examples
# how lines are counted: Python 3.12 and later have sys.monitoring, which is faster than a trace function
CORE = $(shell $(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")')

.PHONY: demo test test-slow check format docs site site-serve paper bench clean

demo: .venv/ready
	$(BIN)/antiadv demo

# COVERAGE=1 counts the lines that the tests run, and fails below the floor in pyproject.toml
test: check
	COVERAGE_CORE=$(CORE) $(BIN)/python -m pytest --numprocesses=auto $(if $(COVERAGE),--cov --cov-report=term)

# the slow tests; then training, parity, engine and convolutions as on a CPU with AVX2 but without AVX-512
test-slow: .venv/ready
	$(BIN)/python -m pytest --numprocesses=auto -m slow
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(BIN)/python -m pytest --numprocesses=auto \
		-m 'slow or not slow' tests/train tests/parity tests/engine tests/golden tests/system/test_invariance.py \
		tests/core/test_strides.py

check: .venv/ready
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

# the generated pages: README.md, docs/ and results/index.md
docs: .venv/ready
	$(BIN)/python -m tools.docs
	$(BIN)/python tools/results_index.py

# the documentation as a site in site/, in a folder of this version; a broken link or an unknown name is an error
site: .venv-site/ready
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src .venv-site/bin/python -m tools.site

# the same for your browser, on this machine
site-serve: site
	$(PYTHON) -m http.server --bind 127.0.0.1 --directory site 8001

.venv-site/ready: tools/site-requirements.txt
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/python -m pip install --quiet --disable-pip-version-check --requirement tools/site-requirements.txt
	touch $@

# the paper from the stored results, in under a minute: docs/reproduction.md and report/report.html
paper: docs
	$(BIN)/antiadv report --store results --out report --gallery 6

# strength and speed of our attacks compared with other libraries, on the CPU; stored jobs are not run again
bench: .venv-bench/ready
	.venv-bench/bin/python -W ignore -m benchmarks.parity --device cpu --jobs 'torchattacks-*,art-*,foolbox-*'
	.venv-bench/bin/python -W ignore -m benchmarks.speed --device cpu --threads 2 --sides ours,compiled,mixed

# other libraries pin other versions, so they get their own environment; our package is installed without dependencies
.venv-bench/ready: benchmarks/constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --constraint benchmarks/constraints.txt \
		torch numpy scipy safetensors pillow pyautoattack foolbox adversarial-robustness-toolbox packaging
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--constraint benchmarks/constraints.txt torchattacks --editable .
	touch $@

# the environment with the tested versions; made again when they change
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,integration]'
	touch $@

clean:
	rm -rf .venv .venv-bench .venv-site site .mypy_cache .pytest_cache .ruff_cache .hypothesis
