# Each target installs what it needs in .venv; make setup does only that.
PYTHON ?= python3
BIN := .venv/bin
# Cases per fuzz test in `make fuzz`; `make test` runs a few of the same cases. `make fuzz CASES=100000` takes hours.
CASES ?= 2000

.PHONY: setup test fuzz demo play docs gallery lint format clean

setup: .venv/ready

# constraints.txt pins the version of torch that is used in tests and benchmarks.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,docs,export,gp,geo,track]'
	touch $@

test: setup
	$(BIN)/pytest

fuzz: setup
	SHIFTNP_FUZZ=$(CASES) $(BIN)/pytest tests/fuzz

demo: setup
	$(BIN)/python -m shiftnp.demo

# Broken links and references are errors.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo site/index.html

# The pictures of the gallery and of the explanations.
gallery: setup
	cd docs/gallery && for script in ../../examples/*.py; do MPLBACKEND=agg ../../$(BIN)/python $$script || exit 1; done
	rm -rf docs/gallery/*.zarr
	$(BIN)/python docs/_site/pictures.py

# The playground's runtime (npm) and networks (ONNX); `shiftnp play` then serves it.
play: setup
	$(BIN)/python -m shiftnp.play.build

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv demo site playground/node_modules src/shiftnp/play/page/built
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
