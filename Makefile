# SPDX-License-Identifier: Apache-2.0
# Everything there is to know: `make` prints the targets. Each works as the first command on a fresh
# machine with Python 3.11+, Java 17+ and make; no compiler is needed.

VENV   := .venv
PYTHON_IN_VENV := $(VENV)/bin/python

# What tests and demo load, by the names in src/changelane/spark/runtime/jars.py.
JARS   := delta iceberg kafka broker sqlite debezium

INSTALLED := $(VENV)/.installed
FETCHED   := .cache/jars-fetched
PREPARED  := .cache/classes-archived

# Hudi needs Spark 3.5: an environment of its own, made only when Hudi is used.
HUDI_VENV      := .venv-hudi
HUDI_INSTALLED := $(HUDI_VENV)/.installed
HUDI_FETCHED   := .cache/jars-fetched-3.5
HUDI_TESTS     := $(addprefix tests/spark/test_,capture_hudi.py counterexamples.py crash.py \
                  equality.py fence.py hudi.py kafka_source.py killed_run.py lake_types.py modes.py seed_jobs.py)

# The oldest supported Spark 4: an environment of its own, for a short list of tests.
SPARK40_VENV      := .venv-spark40
SPARK40_INSTALLED := $(SPARK40_VENV)/.installed
SPARK40_FETCHED   := .cache/jars-fetched-4.0
SPARK40_TESTS     := $(addprefix tests/spark/test_,counterexamples.py crash.py library.py kafka_source.py \
                     modes.py)

# DataHub's client needs a C compiler: an environment of its own, on top of the other.
DATAHUB_VENV      := .venv-datahub
DATAHUB_INSTALLED := $(DATAHUB_VENV)/.installed
DATAHUB_TESTS     := tests/unit/datahub/test_sdk.py $(addprefix tests/spark/test_,capture_datahub.py datahub_sink.py \
                     datahub_source.py)

# Local Spark listens on this machine only.
export SPARK_LOCAL_IP ?= 127.0.0.1

# The folders have no other tests than those of their marker, and take long to import.
WITHOUT_SERVICES := -m "not spark and not services" --ignore=tests/spark --ignore=tests/integration

# Tests of the code's shape and of generated pages: a part of `make check`.
SHAPE_TESTS := tests/test_architecture.py tests/test_generated_pages.py

# Many messages of every format, and commands that start processes: without Spark, but not fast.
THOROUGH_TESTS := tests/conformance $(addprefix tests/unit/,cli/test_convert.py cli/test_convert_jobs.py \
                  formats/contract/test_losses.py formats/contract/test_nesting.py \
                  testing/test_key_change_histories.py) \
                  $(wildcard tests/unit/conversion/test_*lanes*.py tests/unit/spark/rows/test_lanes*.py)

FAST := $(WITHOUT_SERVICES) $(addprefix --ignore=,$(SHAPE_TESTS) $(THOROUGH_TESTS))

# A file's tests share a Spark, and the longest files begin first.
SLOW_TESTS := tests/spark tests/integration
ON_SPARK := -n 2 --dist loadfile --no-loadscope-reorder

# More arguments for pytest, as in: make test ARGS="-k canal -x"
ARGS ?=
SECONDS_OF_FUZZ ?= 300
# A soak: kills of pipelines of files, and captured databases; SECONDS ends it earlier.
KILLS ?= 200
SEEDS ?= 20

.DEFAULT_GOAL := help
.PHONY: help demo demo-live test test-fast test-long test-all check golden fuzz soak bench bench-apply bench-kafka bench-capture bench-verify bench-peers clean java hudi test-hudi test-spark40 test-datahub
.DELETE_ON_ERROR:

help: ## print this list
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-13s %s\n", $$1, $$2 }'

demo: java $(INSTALLED) $(FETCHED) ## land a small shop's changes in Delta tables, and check them
	@$(PYTHON_IN_VENV) demo/run.py

demo-live: java $(INSTALLED) $(FETCHED) ## capture a PostgreSQL in use (it must be installed), and compare its tables with the lake's
	@$(PYTHON_IN_VENV) demo/live.py

# pytest's exit code 5 says that ARGS left no test of this part.
test: java $(INSTALLED) $(FETCHED) $(PREPARED) ## run the fast tests, the thorough ones, and those on Spark but the longest (ARGS="-k canal" for some)
	@echo "changelane: the fast tests"
	@$(PYTHON_IN_VENV) -m pytest $(FAST) -n 2 $(ARGS) || [ $$? -eq 5 ]
	@echo "changelane: the thorough tests, and those on Spark (some ten minutes)"
	@$(PYTHON_IN_VENV) -m pytest $(SLOW_TESTS) $(THOROUGH_TESTS) -m "not long" $(ON_SPARK) $(ARGS) || [ $$? -eq 5 ]

test-fast: $(INSTALLED) ## run the fast tests alone, about a minute
	@$(PYTHON_IN_VENV) -m pytest $(FAST) -n 2 $(ARGS)

test-long: java $(INSTALLED) $(FETCHED) $(PREPARED) ## run the longest tests on Spark: many histories, tables and kills
	@echo "changelane: the longest tests on Spark (most of an hour)"
	@$(PYTHON_IN_VENV) -m pytest $(SLOW_TESTS) -m long $(ON_SPARK) $(ARGS) || [ $$? -eq 5 ]

test-all: test test-long ## run all tests

hudi: java $(HUDI_INSTALLED) $(HUDI_FETCHED) ## make the environment for Hudi tables, .venv-hudi

test-hudi: java $(HUDI_INSTALLED) $(HUDI_FETCHED) $(INSTALLED) $(FETCHED) ## run the tests of table formats on Hudi
	@echo "changelane: the tests on Hudi (several minutes)"
	@$(HUDI_VENV)/bin/python -m pytest $(ON_SPARK) $(HUDI_TESTS) $(ARGS)

test-spark40: java $(SPARK40_INSTALLED) $(SPARK40_FETCHED) ## run some tests on the oldest supported Spark 4
	@echo "changelane: some tests on Spark 4.0 (several minutes)"
	@$(SPARK40_VENV)/bin/python -m pytest -m "not long" $(ON_SPARK) $(SPARK40_TESTS) $(ARGS)

test-datahub: java $(DATAHUB_INSTALLED) $(FETCHED) ## run the tests of DataHub with the vendor's client (needs a C compiler)
	@echo "changelane: the tests of DataHub with the vendor's client"
	@$(DATAHUB_VENV)/bin/python -m pytest $(DATAHUB_TESTS) $(ARGS)

check: $(INSTALLED) ## lint, formatting, types, and the shape of the code
	@echo "changelane: ruff check"
	@$(VENV)/bin/ruff check .
	@echo "changelane: ruff format --check"
	@$(VENV)/bin/ruff format --check .
	@echo "changelane: mypy"
	@$(VENV)/bin/mypy
	@$(PYTHON_IN_VENV) -m pytest -q $(SHAPE_TESTS)

golden: $(INSTALLED) ## write the golden files anew; review the difference before committing
	@$(PYTHON_IN_VENV) -m pytest tests/conformance -m "not spark" --golden=write $(ARGS)
	@$(PYTHON_IN_VENV) scripts/write_pages.py
	@git status --short tests/golden docs

fuzz: $(INSTALLED) ## mutated messages for every decoder, and the tests without Spark with more examples
	@$(PYTHON_IN_VENV) scripts/fuzz.py --seconds $(SECONDS_OF_FUZZ) $(ARGS)
	@CHANGELANE_EFFORT=10 $(PYTHON_IN_VENV) -m pytest -q $(WITHOUT_SERVICES) -n 2

soak: java $(INSTALLED) $(FETCHED) ## kill pipelines, captured databases among them, again and again and compare their tables (KILLS=200 SEEDS=20)
	@$(PYTHON_IN_VENV) scripts/soak.py --kills $(KILLS) --seeds $(SEEDS) $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

bench: java $(INSTALLED) $(FETCHED) ## measure speed against the baselines (several minutes)
	@$(PYTHON_IN_VENV) benchmarks/run.py $(ARGS)

bench-apply: java $(INSTALLED) $(FETCHED) ## measure messages to tables against a bare MERGE (long; ARGS="full --lake delta")
	@$(PYTHON_IN_VENV) benchmarks/apply.py $(ARGS)

bench-kafka: java $(INSTALLED) $(FETCHED) ## measure topic to topic against Spark's own copy (ARGS="--messages 100000 --flat")
	@$(PYTHON_IN_VENV) benchmarks/kafka.py $(ARGS)

bench-capture: java $(INSTALLED) $(FETCHED) ## measure the capture of databases (ARGS="snapshot --rows 100000", stream, memory, latency)
	@$(PYTHON_IN_VENV) benchmarks/capture.py $(ARGS)

bench-verify: java $(INSTALLED) $(FETCHED) ## measure verify on equal rows of a database (ARGS="--rows 100000")
	@$(PYTHON_IN_VENV) benchmarks/verify_rows.py $(ARGS)

bench-peers: java $(INSTALLED) $(FETCHED) ## measure beside Flink with Paimon and Iceberg (long; ARGS="convert --messages 10000")
	@$(PYTHON_IN_VENV) benchmarks/peers.py $(ARGS)

clean: ## remove everything that make made: the environment, the jars, the caches
	rm -rf $(VENV) $(HUDI_VENV) $(SPARK40_VENV) $(DATAHUB_VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	rm -rf spark-warehouse metastore_db derby.log artifacts
	find src tests demo benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# First of all prerequisites, so that it speaks before anything that takes time.
java:
	@sh scripts/check_java.sh

$(INSTALLED): pyproject.toml constraints.txt scripts/make_venv.sh
	@sh scripts/make_venv.sh $(VENV) dev constraints.txt 13
	@touch $@

$(HUDI_INSTALLED): pyproject.toml constraints-hudi.txt scripts/make_venv.sh
	@sh scripts/make_venv.sh $(HUDI_VENV) hudi,kafka,capture,test constraints-hudi.txt 12
	@touch $@

$(SPARK40_INSTALLED): pyproject.toml constraints-spark40.txt scripts/make_venv.sh
	@sh scripts/make_venv.sh $(SPARK40_VENV) delta,iceberg,kafka,test constraints-spark40.txt 13
	@touch $@

$(DATAHUB_INSTALLED): pyproject.toml constraints.txt scripts/make_datahub_venv.sh | $(INSTALLED)
	@sh scripts/make_datahub_venv.sh $(DATAHUB_VENV) $(VENV) constraints.txt
	@touch $@

$(FETCHED): src/changelane/spark/runtime/jars.py Makefile $(INSTALLED) | java
	@$(PYTHON_IN_VENV) scripts/fetch_jars.py $(JARS)
	@mkdir -p $(@D) && touch $@

# The demo starts Spark too few times to gain a minute.
$(PREPARED): $(FETCHED)
	@echo "changelane: archiving the JVM's classes once, for faster starts of Spark (about 1 minute)"
	@$(VENV)/bin/changelane prepare > /dev/null || echo "changelane: Spark starts without it"
	@touch $@

$(SPARK40_FETCHED): src/changelane/spark/runtime/jars.py Makefile $(SPARK40_INSTALLED) | java
	@$(SPARK40_VENV)/bin/python scripts/fetch_jars.py delta iceberg kafka broker
	@mkdir -p $(@D) && touch $@

$(HUDI_FETCHED): src/changelane/spark/runtime/jars.py Makefile $(HUDI_INSTALLED) | java
	@$(HUDI_VENV)/bin/python scripts/fetch_jars.py hudi kafka broker debezium
	@mkdir -p $(@D) && touch $@
