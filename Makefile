.DEFAULT_GOAL := help
.PHONY: help demo test-core test test-all test-slice test-newer-spark test-servers lint docs bench bench-quick lock package sbom clean

PYTHON ?= $(shell command -v python3.11 || echo python3)
TARGET ?= iceberg
ROWS ?=
ROUNDS ?= 5
IMAGES ?= mysql:8.0 mysql:8.4 mysql:9 mariadb:10.11 mariadb:11.4 mariadb:11.8 mariadb:12.3
SLICE ?= 0/12
bench bench-quick: DIR ?= ./benchmark-lake
DIR ?= ./demo-lake
PLACE ?= local

export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE # each process would compile all modules anew, which the installation leaves to the first
ifneq ($(shell test -w "$(HOME)" && echo writable),writable)
export PIP_NO_CACHE_DIR := 1
endif

# PySpark is a source package of 318 MB of jars. Its wheel is built by the locked setuptools, not compressed a second time,
# and beside all other packages; modules are compiled when they are imported. That halves the time of a plain installation.
PIP = DIST_EXTRA_CONFIG=$(CURDIR)/.venv/build.cfg .venv/bin/python -m pip
INSTALL = $(PIP) install --quiet --no-deps --no-compile --use-pep517

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

demo: .venv/package.stamp .venv/demo.stamp ## copy a busy MySQL into a lake and prove it (TARGET=iceberg|hudi PLACE=local|s3 ROWS=n DIR=folder)
	.venv/bin/lakeingest demo --target $(TARGET) --place $(PLACE) --dir $(DIR) $(if $(ROWS),--rows $(ROWS))

test-core: .venv-core/stamp ## run what needs no Spark, Java or server: core, decoders, decisions, layers; in half a minute
	.venv-core/bin/python -m pytest -n 2 --take quick --hypothesis-profile quick -m 'not mysql and not spark' $(CORE_TESTS)

test: .venv/package.stamp .venv/dev.stamp ## run all tests but the long ones; those of the core reach each of its branches
	.venv/bin/python -m pytest -n 2 --take quick --minutes 10 tests/core --cov
	.venv/bin/python -m pytest -n 2 --take quick --minutes 20 --durations 25 --ignore tests/core

test-all: .venv/package.stamp .venv/dev.stamp ## run every test, the end-to-end ones on both formats
	.venv/bin/python -m pytest -n 2 tests/core --cov
	LAKEINGEST_FORMATS=all .venv/bin/python -m pytest -n 2 --durations 25 --ignore tests/core

test-slice: .venv/package.stamp .venv/dev.stamp ## run a part of the long tests (SLICE=0/12 to 11/12)
	.venv/bin/python -m pytest -n 2 --durations 10 --take $(SLICE)

test-newer-spark: .venv-spark4/stamp ## run cases on Spark 4.1, in an environment of its own
	PYTHONPATH=$(CURDIR) .venv-spark4/bin/python -m pytest -p no:cacheprovider -k 'not hudi and not MariaDB' $(SPARK4_TESTS)

test-servers: .venv/package.stamp .venv/dev.stamp ## run the tests of the source on container images, by a Docker daemon (IMAGES="mysql:8.0 …")
	set -e; for image in $(IMAGES); do echo "$$image"; LAKEINGEST_IMAGE=$$image .venv/bin/python -m pytest -n 2 --take quick tests/mysql tests/e2e; done

lint: .venv/package.stamp .venv/dev.stamp ## ruff (rules and format) and mypy
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

docs: .venv/package.stamp .venv/dev.stamp ## make the reference pages anew, and the site in build/site
	PYTHONPATH=$(CURDIR) .venv/bin/python docs/generate.py
	.venv/bin/python docs/gather.py
	.venv/bin/python -m zensical build --strict --clean

bench: .venv/package.stamp .venv/dev.stamp ## measure lakeingest beside its peers, for hours (DIR=folder ROUNDS=n)
	.venv/bin/python -m benchmarks.pipelines --rounds $(ROUNDS) --dir $(DIR) --json $(DIR)/figures.json --plots $(DIR)/plots

bench-quick: .venv/package.stamp .venv/dev.stamp ## compare with two peers in ten minutes; fail if a ratio has fallen
	.venv/bin/python -m benchmarks.quick --dir $(DIR)

lock: ## resolve pyproject.toml anew into the two lock files
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet uv==0.13.8
	$(COMPILE) --group build --output-file requirements.lock
	$(COMPILE) --group build --group dev --constraints requirements.lock --output-file requirements-dev.lock

package: ## build wheel and sdist in dist, check them, and run the wheel in a new environment
	$(call suits,13)
	$(PYTHON) -m venv --clear .venv-package
	.venv-package/bin/pip install --quiet build==1.6.1 twine==7.0.0
	rm -rf dist
	.venv-package/bin/python -m build --quiet --outdir dist
	.venv-package/bin/twine check --strict dist/*
	$(PYTHON) -m venv --clear .venv-package
	@sed -E '/^ +--hash/d; s/ \\$$//' requirements.lock > .venv-package/constraints.txt
	.venv-package/bin/pip install --quiet --constraint .venv-package/constraints.txt dist/*.whl
	cd .venv-package && for command in --version 'explain BinlogGone' 'init pipeline.yml' 'unpack .'; do \
		env -u PYTHONPATH bin/lakeingest $$command > out.txt || { cat out.txt; exit 1; }; done
	cd .venv-package && ls monitoring/alerts.yml monitoring/dashboard.json notebooks/onboard.ipynb > /dev/null
	cd .venv-package && env -u PYTHONPATH bin/python -m lakeingest.mysql.wire.kernels > /dev/null

sbom: .venv/package.stamp ## list all packages of .venv with their versions and licences, as CycloneDX, in build/sbom.json
	$(PYTHON) -m venv .venv-sbom
	.venv-sbom/bin/pip install --quiet cyclonedx-bom==7.5.0
	@mkdir -p build
	.venv-sbom/bin/cyclonedx-py environment --output-reproducible --output-file build/sbom.json .venv/bin/python

clean: ## remove what make built and the tools' caches, but no lake
	rm -rf .venv .venv-core .venv-spark4 .venv-lock .venv-package .venv-sbom build dist *.egg-info .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .cache
	find lakeingest tests -name __pycache__ -type d -prune -exec rm -rf {} +

CORE_TESTS = tests/test_layers.py tests/core tests/mysql/wire tests/pipeline \
	--ignore tests/mysql/wire/test_compiled.py # its processes compile kernels anew
# What they import, and what that needs: the tools of tests, and what stands below Spark and the lake.
CORE_PACKAGES = execnet hypothesis iniconfig pluggy pygments pytest pytest-timeout pytest-xdist sortedcontainers \
	annotated-types cffi cryptography llvmlite mysql-replication numba numpy obstore packaging pyarrow pycparser pydantic \
	pydantic-core pymysql pyyaml typing-extensions typing-inspection
empty :=
space := $(empty) $(empty)

.venv-core/stamp: requirements-dev.lock
	$(call suits,13)
	$(PYTHON) -m venv --clear .venv-core
	@sed -nE '/^($(subst $(space),|,$(strip $(CORE_PACKAGES))))==/,/[^\\]$$/p' requirements-dev.lock > .venv-core/wanted.txt
	.venv-core/bin/python -m pip install --quiet --no-deps --no-compile --require-hashes -r .venv-core/wanted.txt
	.venv-core/bin/python -m lakeingest.mysql.wire.kernels > /dev/null
	@touch $@

SPARK4 = pyspark==4.1.4
SPARK4_TESTS = tests/spark/test_checksum.py tests/spark/test_scatter.py tests/spark/test_ranges.py tests/e2e/test_run.py \
	tests/e2e/test_repair.py

.venv-spark4/stamp: requirements-dev.lock
	$(PYTHON) -m venv --clear .venv-spark4
	@sed '/^pyspark==/,/[^\\]$$/d' requirements-dev.lock > .venv-spark4/rest.txt
	.venv-spark4/bin/python -m pip install --quiet --no-deps --require-hashes -r .venv-spark4/rest.txt
	.venv-spark4/bin/python -m pip install --quiet --no-deps $(SPARK4)
	@touch $@

COMPILE = .venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --custom-compile-command 'make lock' pyproject.toml --extra spark --extra aws

# PySpark 3.5 is for Python 3.11 and 3.12; without it, 3.13 is fine, too.
suits = @$(PYTHON) -c 'import sys; sys.exit((3, 11) > sys.version_info[:2] or sys.version_info[:2] > (3, $(1)))' || \
	{ echo 'this needs Python 3.11 to 3.$(1): make PYTHON=/path/to/python3.11' >&2; exit 1; }

# The runtime holds only what runs; what lint and test need is added to it, so PySpark is fetched once.
.venv/runtime.stamp: requirements.lock
	$(call suits,12)
	$(PYTHON) -m venv --clear .venv
	@printf '[bdist_wheel]\ncompression = stored\n' > .venv/build.cfg
	@sed -n '/^setuptools==/,/[^\\]$$/p' requirements.lock > .venv/build.txt
	@sed -n '/^pyspark==/,/[^\\]$$/p' requirements.lock > .venv/pyspark.txt
	@sed '/^pyspark==/,/[^\\]$$/d' requirements.lock > .venv/rest.txt
	$(INSTALL) --require-hashes -r .venv/build.txt
	$(INSTALL) --require-hashes --no-build-isolation -r .venv/pyspark.txt & rest=0; \
		$(INSTALL) --require-hashes -r .venv/rest.txt || rest=1; wait $$! && exit $$rest
	@touch $@

.venv/package.stamp: pyproject.toml .venv/runtime.stamp
	$(INSTALL) --no-build-isolation --no-index -e .
	.venv/bin/python -m lakeingest.mysql.wire.kernels > /dev/null
	@touch $@

# What the demo needs to run a server as a container, where the machine has none and is not Debian.
.venv/demo.stamp: requirements-dev.lock .venv/runtime.stamp
	@sed -nE '/^(docker|python-dotenv|testcontainers|wrapt)==/,/[^\\]$$/p' requirements-dev.lock > .venv/demo.txt
	$(INSTALL) --require-hashes -r .venv/demo.txt
	@touch $@

.venv/dev.stamp: requirements-dev.lock .venv/runtime.stamp
	$(INSTALL) --require-hashes --no-build-isolation -r requirements-dev.lock
	@touch $@
