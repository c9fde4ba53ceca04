# Two commands do everything on a machine with Python 3.11+ and make:
#   make fig_interleaved   set up .venv, run the main experiment (any other artifact id works too)
#   make test              set up .venv, run the test suite
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
# What figures and tables need, and what all else does on top of it: each is made once, and again for another pyproject.toml.
SMALL := $(VENV)/.installed
STAMP := $(VENV)/.installed-dev
# uv does in seconds what pip does in a minute.
ifneq ($(shell command -v uv),)
MAKE_VENV = uv venv --quiet --seed --allow-existing --python $(PYTHON) $(VENV)
INSTALL = uv pip install --quiet --python $(RUN)/python
else
MAKE_VENV = $(PYTHON) -m venv $(VENV)
INSTALL = $(RUN)/python -m pip install --quiet --disable-pip-version-check
endif

.PHONY: help doctor test tests slow cov gpu lint lint-page exact mutants docs appendix pictures references clean
.DEFAULT_GOAL := fig_interleaved

# A folder without a rule would be "up to date".
FOLDERS := $(filter-out docs tests,$(patsubst %/,%,$(wildcard */)))
.PHONY: $(FOLDERS)
.DEFAULT $(FOLDERS):
	@echo "make $@: there is no such target; make help lists them, $(RUN)/reproduce --help the commands" >&2; exit 2

$(SMALL): pyproject.toml setup.py ptdp_core/simulator/native.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "ptdp needs Python 3.11 or newer; try make PYTHON=python3.12" >&2; exit 3; }
	$(MAKE_VENV)
	$(INSTALL) -e .
	@touch $@

$(STAMP): $(SMALL)
	$(INSTALL) -e '.[dev]'
	@touch $@

fig_% table_%: $(SMALL) ## run an artifact, for example `make fig_interleaved`
	@$(RUN)/reproduce $@

doctor: $(SMALL) ## what this machine can do, what is missing, how to get it
	$(RUN)/reproduce doctor

test tests: $(STAMP) ## run the test suite
	$(RUN)/python -m pytest -n auto --dist worksteal

slow: $(STAMP) ## run the tests that are not part of the default run
	$(RUN)/python -m pytest -n auto --dist worksteal -m slow --durations=40

cov: $(STAMP) ## run the test suite and report which lines it reached (htmlcov/index.html)
	$(RUN)/python -m pytest -n auto --dist worksteal --cov --cov-report=term:skip-covered --cov-report=html

exact: $(STAMP) ## compare everything deterministic with the committed reference, at zero tolerance
	$(RUN)/reproduce gate exact

PACKAGE ?= layout
mutants: $(STAMP) ## do the tests notice wrong lines? `make mutants PACKAGE=gate`, see docs/mutations.md
	$(INSTALL) -e '.[mutants]'
	$(RUN)/python tests/mutants.py $(PACKAGE)

gpu: $(STAMP) ## everything that one GPU should verify, about an hour; the same command goes on where it stopped
	$(RUN)/reproduce bench gpu

lint: $(STAMP) ## check style and types
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory lint-page; \
	else echo "npm was not found: the page's JavaScript is not checked"; fi

PAGE = cd reproduce/annex/page && npm exec --yes --package
lint-page: ## check style and types of the page's JavaScript (needs npm)
	$(PAGE) prettier@3.10.1 -- prettier --check '*.mjs' 'types.d.ts' 'page/*.js' 'page/*.css'
	$(PAGE) typescript@7.0.2 -- tsc --project .

docs: $(SMALL) ## build the documentation site (build/site/index.html)
	$(INSTALL) -e '.[docs]'
	PYTHONPATH=. DISABLE_MKDOCS_2_WARNING=true NO_MKDOCS_2_WARNING=1 $(RUN)/python -m mkdocs build --strict
	$(RUN)/python -m reproduce explore --out build/site/live

appendix: $(SMALL) ## the appendix of an artifact evaluation, two pages (build/appendix.pdf; needs pdflatex)
	PYTHONPATH=. $(RUN)/python docs/appendix.py

references: $(STAMP) ## make the committed results of the papers' artifacts anew, and small
	$(RUN)/reproduce all --results results/reference
	$(RUN)/python docs/references.py

pictures: $(STAMP) ## take the screenshots in docs/pictures anew (needs Chromium and npm)
	PYTHONPATH=. $(RUN)/python docs/pictures.py

clean: ## remove the environment and what tools left behind
	rm -rf $(VENV) build *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache htmlcov .coverage

help: ## show these targets
	@awk -F ':.*## ' '/^[a-z_%][a-z_% ]*:.*## / {sub(/: .*/, "", $$1); printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
