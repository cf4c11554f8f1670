# Every target first installs into .venv if needed. Another Python has its own folder:
# make test PYTHON=python3.13 installs into .venv-python3.13
PYTHON ?= python3
VENV   ?= .venv$(if $(filter-out python3,$(PYTHON)),-$(notdir $(PYTHON)))
JOBS   ?= 2
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DOCS   := $(VENV)/.docs
QUICK  := not slow and not long and not notebook

export MPLBACKEND = Agg

.PHONY: help setup setup-docs demo test test-long test-all long lint format coverage notebooks notebooks-written nbmake readme docs bench clean
.DELETE_ON_ERROR:

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

# $(call install,WHAT): with uv where there is one that can reach an index, else with pip.
# Byte code is written at the end, in parallel: without it every import takes four times as long,
# and where PYTHONDONTWRITEBYTECODE is set nothing would ever write it.
define install
	@{ command -v uv >/dev/null \
	    && uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) \
	    && uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '$(1)'; } \
	  || { $(PYTHON) -m venv $(VENV) \
	    && $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile \
	         -c constraints.txt -e '$(1)'; }
	@$(BIN)/python -m compileall -qq -j $(JOBS) -x '/tests?/' $(VENV)/lib bayesfac
endef

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Expected Python 3.11 or newer as $(PYTHON); pass another: make $(MAKECMDGOALS) PYTHON=..."; exit 1; }
	@echo "Installing into $(VENV): about a minute, once."
	$(call install,.[dev])
	@touch $@

setup: $(READY)  ## install into .venv (the other targets do this when needed)

demo: $(READY)  ## fit a point and a posterior, write a report
	@$(BIN)/bayesfac demo

# With the byte code of the tests kept, the second run collects them in half the time.
test test-long test-all long coverage: export PYTHONDONTWRITEBYTECODE =

test: $(READY)  ## run the quick tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "$(QUICK)" $(ARGS)

test-long: $(READY)  ## the tests that take seconds each (tests/tools/long.txt)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "long and not longest and not slow" $(ARGS)

test-all: $(READY)  ## all tests, with the longest and the slow ones, which take minutes
	XLA_FLAGS= $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --timeout 1800 $(ARGS)

long: $(READY)  ## time all tests but slow ones, and write tests/tools/long.txt and tests/tools/longest.txt anew
	@mkdir -p build
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow and not notebook" \
	  -o junit_duration_report=call --junitxml=build/tests.xml
	$(BIN)/python -m tests.tools.long_tests build/tests.xml

lint: $(READY)  ## check style, imports, types and the structure of the package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/mypy
	$(BIN)/python -m tests.tools.house

format: $(READY)  ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage: $(READY)  ## list the lines that the quick tests do not run
	$(BIN)/coverage run -m pytest -m "$(QUICK)" $(ARGS)
	$(BIN)/coverage report

# Compiled at LLVM's first level, as the tests are: most of a short run is compilation. Threads of OpenBLAS in
# two processes would wait for each other.
notebooks: $(READY)  ## run every notebook as a plain script, with few draws
	@mkdir -p build/notebooks
	@printf '%s\n' $(wildcard notebooks/*.py) | BAYESFAC_FAST=1 OPENBLAS_NUM_THREADS=1 \
	  XLA_FLAGS=--xla_backend_optimization_level=1 PYTHONUNBUFFERED=1 xargs -P $(JOBS) -I{} sh -c \
	  'log=build/{}.log; begun=$$(date +%s); if timeout 600 $(BIN)/python {} >$$log 2>&1; \
	   then echo "{}: ran in $$(($$(date +%s) - begun)) s"; else cat $$log; echo "{}: failed"; exit 255; fi'

BOOKS ?= $(wildcard notebooks/*.py)
notebooks-written: $(READY)  ## run BOOKS= (default: all) with all draws and write them with their pictures
	$(BIN)/python docs/tools/notebooks.py $(notdir $(basename $(BOOKS)))

nbmake: $(READY)  ## run the notebooks of BOOKS= in Jupyter (default: all)
	@mkdir -p build/notebooks && cp $(BOOKS) build/notebooks
	@cd build/notebooks && $(abspath $(BIN))/jupytext --quiet --to ipynb $(notdir $(BOOKS))
	BAYESFAC_FAST=1 $(BIN)/python -m pytest --nbmake --nbmake-timeout=600 --timeout 900 \
	  $(patsubst notebooks/%.py,build/notebooks/%.ipynb,$(BOOKS))

readme: $(READY)  ## update the methods in README.md, its badge and docs/choosing.md
	$(BIN)/python docs/tools/readme.py

# Sphinx and its theme, which only `make docs` needs.
$(DOCS): $(READY)
	$(call install,.[dev$(,)docs])
	@touch $@

setup-docs: $(DOCS)  ## install Sphinx too

docs: $(DOCS)  ## build the site in build/site
	$(BIN)/python docs/tools/rooms.py
	$(BIN)/python docs/tools/generate.py build/source
	@rm -rf build/site
	$(BIN)/python -m sphinx -q -E -W --keep-going -d build/doctrees -c docs build/source build/site
	@! grep -rE '<(script|link|img|iframe)[^>]* (src|href)="(https?:)?//' build/site --include=*.html \
	  || { echo "Expected pages that load nothing from other servers, got the lines above"; exit 1; }
	@echo "build/site/index.html"

bench: $(READY)  ## time bayesfac beside SMURFF, myFM and scikit-learn
	$(call install,.[dev$(,)bench])
	@set -e; for script in $(wildcard benchmarks/*.py); do \
	  echo "== $$script"; $(BIN)/python $$script; done

clean:  ## remove environments, build outputs and caches
	rm -rf .venv .venv-* build dist .coverage .mypy_cache .ruff_cache .pytest_cache \
	  .import_linter_cache .hypothesis
	find bayesfac tests docs benchmarks notebooks -name __pycache__ -prune -exec rm -rf {} +

, := ,
