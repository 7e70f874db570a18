# Each target installs what it needs in .venv; make setup does only that.
PYTHON ?= python3
BIN := .venv/bin
# Cases per fuzz test in `make fuzz`; `make test` runs a few of the same cases. `make fuzz CASES=100000` takes hours.
CASES ?= 2000

.PHONY: setup test fuzz demo lint format clean

setup: .venv/ready

# constraints.txt pins the version of torch that is used in tests and benchmarks.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,gp,geo,track]'
	touch $@

test: setup
	$(BIN)/pytest

fuzz: setup
	SHIFTNP_FUZZ=$(CASES) $(BIN)/pytest tests/fuzz

demo: setup
	$(BIN)/python -m shiftnp.demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
