# Each target that needs Python makes .venv first, from constraints.txt; nothing has to be activated.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test quick docs check format sanitize envs services soak steady bench bench-peers reproduce clean

# a user's site-packages or PYTHONPATH must not leak into .venv
export PYTHONNOUSERSITE := 1
unexport PYTHONPATH PYTHONHOME

BIN := .venv/bin
PYTHON := $(BIN)/python
READY := .venv/.ready
PIP_INSTALL := $(PYTHON) -m pip install -qq --disable-pip-version-check -c constraints.txt

PYTEST_ARGS ?=
# the tests of all that is compiled from C++
SANITIZED_TESTS := tests/ops/test_kernels.py tests/ops/test_rows.py tests/layers/test_dropout.py \
  tests/layers/test_head_norm.py tests/layers/test_repeats.py tests/losses/test_full_softmax.py \
  tests/losses/test_repeats.py
BENCH_ARGS ?=
SOAK_ARGS ?=
STEADY_ARGS ?=
PEERS_ARGS ?=
REPRODUCE_ARGS ?= all

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' \
	  | while IFS=$$'\t' read -r name what; do printf '  make %-11s %s\n' "$$name" "$$what"; done

demo: $(READY) ## data, training, evaluation and a report, in about two minutes
	@$(BIN)/linrec demo

# one thread per worker: the workers already share the cores
test: check docs envs services ## all checks and all tests, with coverage (PYTEST_ARGS="-k name" narrows)
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n auto --maxprocesses=4 --dist=worksteal \
	  --cov=linrec --cov-report=term $(PYTEST_ARGS)

quick: $(READY) ## the tests that need no service, no other package and no long training, in about two minutes
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n auto --maxprocesses=4 --dist=worksteal \
	  -m "not slow and not service and not peer" $(PYTEST_ARGS)

docs: $(READY) ## the documentation as a site in site/; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet --clean

check: $(READY) ## formatting, lint, types and the import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## format the code and repair what lint can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

envs: $(READY) ## RecBole, RecTools, RePlay and transformers in .envs/, for their tests (once)
	@$(PYTHON) -m tests.transplant.environments

services: ## redis-server and chromium for their tests, where root and apt are there
	@missing=""; \
	command -v redis-server >/dev/null || missing="redis-server"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  (apt-get install -qq -y --no-install-recommends $$missing \
	    || (apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing)) \
	    >/dev/null 2>&1 || echo "could not install$$missing; tests that need it skip"; \
	fi

sanitize: $(READY) ## the kernel tests with AddressSanitizer and UBSan, on kernels built for that in build/
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build/sanitize -G Ninja -DLINREC_SANITIZE=ON \
	  -DLINREC_REQUIRE_KERNELS=ON -DPython_EXECUTABLE="$(abspath $(PYTHON))"
	PATH="$(abspath $(BIN)):$$PATH" cmake --build build/sanitize
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 \
	  UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH=tests/ops/sanitizer \
	  LINREC_SANITIZED="$(abspath build/sanitize)" OMP_NUM_THREADS=1 \
	  $(PYTHON) -m pytest $(SANITIZED_TESTS) --capture=sys $(PYTEST_ARGS)

soak: $(READY) ## two servers on one store, killed 1,000 times with reloads and deletions meanwhile (SOAK_ARGS)
	$(PYTHON) -m tests.serving.soak $(SOAK_ARGS)

steady: $(READY) ## ten minutes of steady load: memory and descriptors of the server must not grow (STEADY_ARGS)
	$(PYTHON) -m tests.serving.steady $(STEADY_ARGS)

bench: $(READY) ## speed and memory, as JSON with commit and machine (BENCH_ARGS are passed on)
	$(PYTHON) -m benchmarks.run $(BENCH_ARGS)

bench-peers: $(READY) envs ## RecBole, RecTools and RePlay side by side with ours (PEERS_ARGS are passed on)
	$(PYTHON) -m benchmarks.peers.run $(PEERS_ARGS)

reproduce: $(READY) ## the paper's tables and figures (REPRODUCE_ARGS="all --data ml-1m=PATH --data gowalla=PATH")
	$(PYTHON) -m experiments $(REPRODUCE_ARGS)

clean: ## remove caches, builds and the demo's output (.venv and .envs stay)
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* \
	  build dist site linrec-demo
	find src tests benchmarks experiments -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp goes first and comes back last. Without a stamp, what is in .venv was interrupted and is
# built again; with an old stamp it is only brought up to date.
$(READY): pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/linrec/ops/native/*)
	@if [ -e $@ ] && $(PYTHON) -c ""; then \
	  echo "updating .venv (packaging, pins or C++ sources changed)"; rm -f $@; \
	else \
	  base=python3; if python3.11 -c '' 2>/dev/null; then base=python3.11; fi; \
	  $$base -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "linrec's development environment needs Python 3.11 or newer as python3.11 or python3 on PATH; found: $$($$base --version 2>/dev/null || echo none)." >&2; \
	    exit 1; }; \
	  echo "setting up .venv (once; a few minutes)"; \
	  $$base -m venv --clear .venv; \
	fi
	@$(PIP_INSTALL) scikit-build-core nanobind cmake ninja
	@PATH="$(abspath $(BIN)):$$PATH" $(PIP_INSTALL) --no-build-isolation -e '.[dev]'
	@$(PYTHON) -c "from linrec import ops; print('attention kernels:', ops.kernels())"
	@touch $@
