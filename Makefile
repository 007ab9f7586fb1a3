# Everything a newcomer needs, from nothing but Python 3.11+ and make.
# The environment is made in .venv on first use and renewed when its requirements change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

# `make lock` keeps the pins it can; `make lock UPGRADE=1` takes the newest of everything.
UPGRADE ?=
COMPILE := $(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links \
	--custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: demo test soak check cases fix bench docs help clean lock tools

help: ## list the targets
	@echo "make <target>, where target is one of:"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 10

demo: $(VENV)/.run $(VENV)/.project ## start the demo
	@trap 'exit 0' INT; $(BIN)/python -m tailrace demo

test: tools ## run the tests and the coverage gate; ARGS="…" go to pytest
	@$(BIN)/python scripts/test $(ARGS)

soak: tools ## test for hours: storms, random examples, agentscope; KILLS=n, EXAMPLES=n, SEED=n, PARTS="…"
	@KILLS="$(KILLS)" EXAMPLES="$(EXAMPLES)" SEED="$(SEED)" scripts/soak $(PARTS)

check: $(VENV)/.dev $(VENV)/.project ## check format, style, types and architecture
	@scripts/node-env clients/ts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/node clients/ts/node_modules/typescript/bin/tsc --project clients/ts

cases: $(VENV)/.dev $(VENV)/.project ## write the expected.json of every case; read the diff
	@TAILRACE_WRITE_CASES=1 $(BIN)/python -m pytest -q tests/*/test_cases.py

fix: $(VENV)/.dev ## format, and repair what can be repaired automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: tools ## run the benchmarks; ARGS="…" are passed on
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.dev $(VENV)/.project ## write what is generated (schema, TypeScript types, golden traces, reference), and the site in site/
	@scripts/node-env clients/ts
	$(BIN)/python -m tailrace.core.event_schema
	$(BIN)/python scripts/generate_ts_types.py
	$(BIN)/node clients/ts/node_modules/typescript/bin/tsc --project clients/ts/tsconfig.inspector.json
	$(BIN)/python conformance/generate.py
	$(BIN)/python scripts/generate_sse.py
	$(BIN)/python scripts/generate_docs.py
	$(BIN)/python scripts/generate_cli.py
	$(BIN)/python scripts/build_site.py

lock: $(VENV)/.dev ## pin the dependencies again; UPGRADE=1 for the newest
	$(COMPILE) pyproject.toml --all-extras --group dev --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml --group build --constraint requirements/dev.txt \
		--output-file requirements/run.txt
	$(COMPILE) pyproject.toml --extra all --group build --constraint requirements/dev.txt \
		--output-file requirements/server.txt
	$(COMPILE) --group agentscope --output-file requirements/agentscope.txt
	$(COMPILE) --group install --output-file requirements/uv.txt
	@scripts/node-env --lock clients/ts
	@scripts/node-env --lock tests/js

clean: ## remove the environments and everything built or cached
	rm -rf $(VENV) .venv-agentscope build dist site .coverage .coverage.* .hypothesis
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	rm -rf clients/ts/dist clients/ts/node_modules tests/js/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What the tests and the benchmarks start: npm packages, Redis, PostgreSQL, nginx and Chromium.

tools: $(VENV)/.dev $(VENV)/.project
	@scripts/node-env clients/ts
	@scripts/node-env tests/js
	@scripts/services

# The environment: one stamp file for each thing that is installed.

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || \
		{ echo "Tailrace needs Python 3.11 or newer, and there is no $(PYTHON): install it, or name another with PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tailrace needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1): name a newer one with PYTHON=…" >&2; exit 1; }
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV) || \
		{ echo "$(PYTHON) could not create $(VENV): on Debian and Ubuntu, install python3-venv." >&2; exit 1; }
	@touch $@

$(VENV)/.run: requirements/run.txt | $(VENV)/.made
	@scripts/python-env $(VENV) requirements/run.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt | $(VENV)/.made
	@scripts/python-env $(VENV) requirements/dev.txt
	@touch $@ $(VENV)/.run

# Follows .run or .dev, both of which bring the build backend.
$(VENV)/.project: pyproject.toml | $(VENV)/.made
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@
