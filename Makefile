# `make demo` trains, evaluates and translates; `make test` runs every check, `make quick`
# those of daily work: lint, style, the laws of the mechanisms and one run, end to end.
# Each sets up the virtual environment by itself; PYTHON chooses the interpreter.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUN ?= runs/quickstart_rnn

.PHONY: demo test quick lint clean

demo: $(READY)
	$(BIN)/python train.py --config configs/quickstart_rnn.py --workdir $(RUN)
	$(BIN)/python eval.py --workdir $(RUN)
	printf '%s\n' 'Freitag, 7. Februar 1964' 'Dänemark, Finnland und Schweden' '14:30' \
		| $(BIN)/attnjax translate --workdir $(RUN)

test: $(READY) lint
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -q

quick: $(READY) lint
	$(BIN)/python -m pytest -n auto --dist worksteal -q tests/style tests/ops/test_laws.py \
		tests/test_main_job.py::test_translate_gives_a_line_for_a_line

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

$(READY): requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $(READY)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
