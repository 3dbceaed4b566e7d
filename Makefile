# Two commands for a newcomer: `make demo` and `make test`. Both make .venv and install by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests of one file stay together, since they share what takes long to make.
WORKERS ?= 2

.PHONY: demo test test-slow lint bench mutants clean

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[onnx,words,multilingual,protect,study,ray,service,langchain,dev]'
	touch $@

# A home that nobody can write to: what the demo trained on is remembered beside its runs.
ifneq ($(shell test -w "$$HOME" || echo closed),)
demo: export CAPELET_STATE ?= $(CURDIR)/runs/state
endif
demo: $(READY)
	$(BIN)/capelet audit reviews --out runs/demo
	$(BIN)/capelet protect reviews --method bottleneck --epsilon 4 --seeds 2 --out runs/demo-private

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	for file in $$(grep -l __main__ benchmarks/*.py); do \
		echo "== $$file"; $(BIN)/python $$file || exit 1; done

# Small faults are put into modules, one at a time: do their tests notice? Takes about an hour.
mutants: $(READY)
	$(BIN)/python tools/mutants.py

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache
