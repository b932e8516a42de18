# `make demo` and `make test` work in a fresh checkout: both set up what is missing first.

VENV := .venv
BIN := $(VENV)/bin
# Two workers, each test file on one of them: its fixtures are made once. Empty it (`make pytest PYTEST_FLAGS=`) to see output as it comes.
PYTEST_FLAGS ?= -n 2 --dist loadfile
FUZZ_SECONDS ?= 60
C_ROOTS := firmware_templates targets host tests examples
C_FILES = $(shell find $(C_ROOTS) -name '*.[ch]' -not -path '*/build/*' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo experiments bench-firmware bench-linux fuzz test lint types pytest format setup setup-demo clean distclean
# The steps of `test` come one after the other, so that the last lines are the last step's.
.NOTPARALLEL:

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while read -r name text; do printf '  %-14s %s\n' "$$name" "$$text"; done

demo: setup-demo ## Export, build and run ResNet-8 on two emulated boards and show the numbers
	@$(BIN)/python examples/resnet8_digits/demo.py

experiments: setup ## Train what experiments/results lacks and write its page (half an hour; goes on where it was stopped)
	@$(BIN)/python experiments/run.py

bench-firmware: setup ## Count instructions of every kernel choice on all emulated boards (some minutes)
	@$(BIN)/python benchmarks/firmware.py --table benchmarks/firmware.md

bench-linux: setup ## Measure ResNet-50 and ResNet-8 on two Linux nodes over wires of known rates (network namespaces: root)
	@$(BIN)/python benchmarks/linux_nodes.py --table benchmarks/linux_nodes.md

fuzz: setup ## Fuzz what reads bytes from others, FUZZ_SECONDS in all (default 60)
	$(BIN)/python tests/fuzz/campaign.py $(FUZZ_SECONDS)

test: lint types pytest ## Set up, then lint, types and all tests

lint: setup ## ruff and clang-format, nothing changed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(if $(C_FILES),@echo clang-format --dry-run && $(BIN)/clang-format --dry-run --Werror $(C_FILES))

types: setup ## mypy --strict over the packages
	$(BIN)/mypy

pytest: setup ## All tests that need no board
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

format: setup ## Let ruff and clang-format rewrite the sources
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(if $(C_FILES),@echo clang-format -i && $(BIN)/clang-format -i $(C_FILES))

setup: ## Create .venv and install everything the tests need
	@scripts/setup.sh all

setup-demo:
	@scripts/setup.sh demo

clean: ## Remove what was built, keep .venv
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(C_ROOTS) converter planning pruning -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove .venv as well
	rm -rf $(VENV)
