# A fresh machine needs make and Python 3.11 or later. The targets install everything else.

PYTHONS := python3 python3.14 python3.13 python3.12 python3.11 python
AT_LEAST := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in $(PYTHONS); do $$p -c '$(AT_LEAST)' >/dev/null 2>&1 && echo $$p && break; done)
BIN := .venv/bin
SEEDS ?= 100
FIRST ?= 1
SECONDS ?= 60
SEED ?= 1
HOURS ?= 1
KAFKA_VERSIONS := 4.4.0 4.3.1 3.9.1 2.8.2 1.1.1 0.10.2.2 0.10.1.1 0.9.0.1

.PHONY: test test-unit test-fleet test-journal test-deploy test-versions test-others test-reliability test-long kafka-classes spark-classes lint linters conformance matrix simulate simulate-mutants linearizability fuzz soak drills bench bench-fleet deb demo plain lock sbom audit clean system proxies java python
.DEFAULT_GOAL := test

# Four jobs of tests run at a time, because many tests wait for brokers and for timeouts. Fewer would leave a core idle at
# times. A file of tests that is not named here is in test-others.
UNIT := $(addprefix tests/,codecs coordinator policies metrics proxy scripts benchmarks surfaces)
FLEET := tests/spark
JOURNAL := $(patsubst %,tests/conformance/test_%.py,fleet fleet_damage hot_restart_journal journal_topic)
RELIABILITY := $(addprefix tests/,simulation linearizability fuzzing soak drills) $(patsubst %,tests/conformance/test_%.py, \
	hot_restart restart gateway_cluster verification leadership moved_coordinator)
VERSIONS := tests/page $(patsubst %,tests/conformance/test_%.py,differential added_versions added_clients \
	old_brokers kip40_group_metadata offset_metadata shrinking tail)
# The longest come first, so that the last ones end at about the same time.
JOBS := test-others test-fleet test-unit test-versions test-deploy test-journal test-reliability
COMPILED := $(shell sed -n '/^compiled = \[/,/^]/s/^  "\(.*\)",$$/\1/p' pyproject.toml)

test: system # runs the linters, then all tests; with ARGS it runs pytest once, with these arguments
	@$(MAKE) --no-print-directory --jobs=2 lint
	@$(BIN)/python -m tests.kafka.maven $(KAFKA_VERSIONS)
	-@$(MAKE) --no-print-directory --jobs=2 --keep-going kafka-classes spark-classes
ifdef ARGS
	@$(BIN)/python -m pytest $(ARGS)
else
	@$(MAKE) --no-print-directory --jobs=4 --keep-going --output-sync=target $(JOBS)
endif

kafka-classes: # makes the class archives of the versions whose JVMs start most often in tests
	@$(BIN)/python -m tests.kafka.class_archives 4.4.0 4.3.1

spark-classes: # makes the class archive with which Spark starts in tests
	@$(BIN)/python -m tests.spark.class_archive

test-unit:
	@$(BIN)/python -m pytest $(UNIT)

test-fleet:
	@$(BIN)/python -m pytest $(FLEET)

test-journal:
	@$(BIN)/python -m pytest $(JOURNAL)

test-deploy: # runs the tests of images, packages and manifests
	@$(BIN)/python -m pytest tests/deploy $(ARGS)

test-versions:
	@$(BIN)/python -m pytest $(VERSIONS)

test-others:
	@$(BIN)/python -m pytest $(addprefix --ignore=,tests/deploy $(UNIT) $(FLEET) $(JOURNAL) $(VERSIONS) $(RELIABILITY))

test-reliability:
	@$(BIN)/python -m pytest $(RELIABILITY)

test-long: system .venv/.dev # runs the tests that take long, which no other target of tests runs without ARGS
	@$(BIN)/python -m tests.kafka.maven $(KAFKA_VERSIONS)
	@$(BIN)/python -m pytest -m long $(or $(ARGS),tests)

lint: .venv/.dev linters # compiles, and runs ruff, mypy and the import contracts

linters: .venv/.packages-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --cache-dir build/imports

conformance: system .venv/.dev # compares the sidecar's answers with the broker's at length; writes docs/conformance.md
	@$(BIN)/python -m tests.kafka.maven $(KAFKA_VERSIONS)
	@$(BIN)/python -m pytest -p no:randomly --hypothesis-profile=conformance --table=docs/conformance.md -m "long or not long" \
		tests/conformance/test_differential.py tests/conformance/test_added_versions.py \
		tests/conformance/test_added_clients.py tests/conformance/test_random_history.py $(ARGS)

matrix: system .venv/.dev # runs clients and frameworks against all brokers, which may take an hour; writes docs/compatibility.md
	@$(BIN)/python -m tests.kafka.maven $(KAFKA_VERSIONS)
	@$(BIN)/python -m tests.matrix $(ARGS)

simulate: .venv/.packages-dev # runs the simulation for SEEDS seeds from FIRST on
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --first $(FIRST) $(ARGS)

simulate-mutants: .venv/.packages-dev # plants bugs, one after the other, that the simulation must find
	@$(BIN)/python -m tests.simulation.mutants $(ARGS)

linearizability: system .venv/.dev # checks what clients see of offsets, members and records under faults; SECONDS=60 SEED=1
	@$(BIN)/python -m tests.kafka.maven 4.4.0
	@$(BIN)/python -m tests.linearizability --seconds $(SECONDS) --seed $(SEED) $(ARGS)

fuzz: .venv/.dev .venv/.fuzz # fuzzes each target for SECONDS; ARGS names targets
	@$(BIN)/python -m tests.fuzzing --seconds $(SECONDS) $(ARGS)

soak: system .venv/.dev # runs a varied workload for HOURS, after which memory and tables must be flat
	@$(BIN)/python -m tests.kafka.maven 4.4.0
	@$(BIN)/python -m tests.soak --hours $(HOURS) $(ARGS)

drills: system .venv/.dev # restarts sidecars and brokers, and prints what real clients notice, with and without sidecars
	@$(BIN)/python -m tests.kafka.maven 4.4.0 2.8.2
	@$(BIN)/python -m tests.drills $(ARGS)

bench: proxies .venv/.dev # measures the data path in three quarters of an hour; QUICK=1 takes ten minutes; writes docs/performance.md
	@$(BIN)/python -m tests.kafka.maven 4.4.0
	@$(BIN)/python -m benchmarks.shotover
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(ARGS)

bench-fleet: java .venv/.dev # measures the fleet pipeline in half an hour; writes docs/fleet-performance.md
	@$(BIN)/python -m benchmarks --fleet $(if $(QUICK),--quick) $(ARGS)

deb: .venv/.dev # builds a Debian package for the minor version of this Python, and prints its path
	@$(BIN)/python -m deploy.debian $(ARGS)

demo: java .venv/.demo # runs the whole product in the terminal; ARGS=--stay keeps it running
	@$(BIN)/python -m group_sidecar.demo $(ARGS)

plain: # removes compiled modules, so that Python runs the edited sources until the next make
	@find -L group_sidecar -name '*.so' -delete
	@rm -f .venv/.dev .venv/.demo

lock: python # renews requirements/
	@PYTHON=$(PYTHON) scripts/lock

sbom: .venv/.dev # writes build/sbom/, which lists the packages of each image in the format of CycloneDX
	@mkdir -p build/sbom
	@for image in sidecar spark; do \
		$(BIN)/python -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml --spec-version 1.6 \
			--output-reproducible --output-file build/sbom/$$image.json requirements/$$image.txt || exit; \
	done

audit: .venv/.dev # fails if a locked package has a known vulnerability; needs the network
	@(for lists in "dev.txt --requirement requirements/uv.txt" wheels.txt fuzz.txt; do \
		$(BIN)/pip-audit --strict --require-hashes --disable-pip --progress-spinner off \
			--requirement requirements/$$lists $(ARGS) || exit; \
	done) || { echo "A package has a known vulnerability, or the list of vulnerabilities could not be read"; exit 1; }

clean: plain # removes all build output in the checkout; downloads are kept outside it
	@rm -rf .venv build *.egg-info .hypothesis $$(find -L group_sidecar -name '*.c')
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

system: python # installs Java, Maven, Prometheus and Chromium where they are missing and installation is allowed
	@$(PYTHON) scripts/bootstrap.py system

proxies: python # installs Java, Maven and HAProxy for the benchmarks; does not fail without HAProxy
	@$(PYTHON) scripts/bootstrap.py proxies

java: python # installs Java alone; does not fail without it
	@$(PYTHON) scripts/bootstrap.py java

.venv/.packages-dev .venv/.packages-demo: .venv/.packages-%: pyproject.toml $(wildcard requirements/*.txt) \
		scripts/bootstrap.py | python
	@$(PYTHON) scripts/bootstrap.py venv $*
	@touch $@

.venv/.dev .venv/.demo: .venv/.%: .venv/.packages-% setup.py $(COMPILED) \
		$(shell find -L group_sidecar -name '*.pyx' -o -name '*.h')
	@$(PYTHON) scripts/bootstrap.py project
	@touch $@

.venv/.fuzz: requirements/fuzz.txt .venv/.packages-dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed, and none was found"; exit 1; }
