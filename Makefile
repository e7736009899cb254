# Everything runs in an environment of its own, .venv, made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check format benchmarks clean

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip setuptools
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

demo: $(VENV)/installed
	rm -rf demo-output
	$(BIN)/fuaudit demo --out demo-output

# Every core has a process of its own, so libraries shall not add threads that wait for each other.
test: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmarks: $(VENV)/installed
	$(BIN)/python benchmarks/engines.py

clean:
	rm -rf $(VENV) demo-output build *.egg-info
