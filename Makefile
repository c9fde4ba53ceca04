# Two commands do everything on a machine with Python 3.11+ and make:
#   make fig_interleaved   set up .venv, run the main experiment (any other artifact id works too)
#   make test              set up .venv, run the test suite
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
STAMP := $(VENV)/.installed-dev

.PHONY: test lint clean
.DEFAULT_GOAL := fig_interleaved

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "ptdp needs Python 3.11 or newer; try make PYTHON=python3.12" >&2; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

fig_% table_%: $(STAMP)
	$(RUN)/reproduce $@

test: $(STAMP)
	$(RUN)/python -m pytest -n auto --dist worksteal

lint: $(STAMP)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
