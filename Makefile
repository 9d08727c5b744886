# Every task of the project by one name; continuous integration uses the same names.
# `make` alone lists them. Variables: PYTHON, ARGS (make run), PYTEST_FLAGS, SEED; ROWS, ROUNDS,
# TIME and SAVE (make bench).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Without kept bytecode each of the thousands of processes of the suite compiles all modules it imports.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PY := .venv/bin/python
PYTEST_FLAGS ?=
# Puts the sources before the installed wheel; without it the tests use the compiled form.
INTERPRETED := PYTHONPATH="$(CURDIR)/src"
PYTEST := $(PY) -m pytest $(PYTEST_FLAGS)
BENCH_FLAGS = $(if $(ROWS),--rows $(ROWS)) $(if $(TIME),--seconds $(TIME)) $(if $(SAVE),--save)
# Two processes run the suite of a form: most tests wait for a disk or a process now and then. These
# folders take half of the CPU time; the other process runs the rest. Each collects its own tests only.
HALF := cluster contract planted simulated simulation
# These tests mostly wait for Redis, PostgreSQL, RabbitMQ, Spark, a browser, installations, clients and
# processes, and do not depend on the form of the broker; tests/compat speaks AMQP with both forms. So they
# run once, as suites in parallel with the others.
SERVICES := jobs bus page spark install clients serve
# HTTP and TLS are not compiled, so their tests run on the compiled form of the rest alone.
NOT_COMPILED := http oauth2 tls
FIRST_HALF := $(addprefix tests/,$(HALF))
SECOND_HALF := $(patsubst %,--ignore=tests/%,$(HALF) $(SERVICES))
# Corrupted frames, and requests for each operation of the HTTP API; the suite sends fewer.
FUZZ_MORE := LEVERET_FUZZ_FRAMES=200000 LEVERET_FUZZ_EXAMPLES=20
CHECKED := src tests tools examples setup.py

.PHONY: help
help: ## List all targets
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use

.PHONY: setup
setup: ## Make .venv with all dependencies and Leveret, compiled if gcc is present
	@tools/system_packages.sh "$(PYTHON)" build
	@"$(PYTHON)" tools/setup_venv.py

.PHONY: venv
venv:
	@tools/system_packages.sh "$(PYTHON)" build
	@"$(PYTHON)" tools/setup_venv.py --packages

# Builds Leveret without installing it. That takes minutes, so make test runs it in parallel.
.PHONY: wheel
wheel:
	@"$(PYTHON)" tools/setup_venv.py --wheel

.PHONY: run
# The shell becomes the broker, so its process id is the broker's. The first start runs the sources; the
# compiled form is built meanwhile, until the broker stops.
run: ## Run the broker, compiled from the second start on; ARGS="--amqp-port 5673" passes flags
	@tools/system_packages.sh "$(PYTHON)" venv
	@"$(PYTHON)" tools/setup_venv.py --run $$$$ && exec .venv/bin/leveret serve $(ARGS)

.PHONY: wheels
wheels: ## Build the wheels of a release for CPython 3.11 to 3.13 into dist/, and its notes
	@tools/system_packages.sh "$(PYTHON)" build
	@"$(PYTHON)" tools/build_wheels.py

##@ Test

.PHONY: test
test: ## Run all checks, then the whole suite in both forms in parallel
	@tools/system_packages.sh "$(PYTHON)" build
	@"$(PYTHON)" tools/setup_venv.py --tools
	@$(MAKE) -j --output-sync=target test-sources test-wheel

# The two halves of make test. The sources need no wheel, so their suite runs while the wheel is
# built, and so does that of Spark, which takes longest. Types are checked meanwhile, and before the
# longer half.
.PHONY: test-sources
test-sources: venv test-packages lint tidy
	@$(MAKE) suite-spark suite-interpreted

.PHONY: test-wheel
test-wheel: wheel venv test-packages lint tidy types
	@$(MAKE) setup
	@$(MAKE) suite-compiled suite-jobs suite-bus suite-page suite-processes

.PHONY: check
check: venv lint types tidy ## Run the quick checks before a commit: format, lint, types, tidy, unit tests
	@$(INTERPRETED) $(PYTEST) --form=interpreted -q tests/unit tests/http tests/docs

.PHONY: test-interpreted
test-interpreted: venv suite-interpreted ## Run the suite on the Python sources

.PHONY: suite-interpreted suite-interpreted-1 suite-interpreted-2
suite-interpreted:
	@$(MAKE) -j --output-sync=target suite-interpreted-1 suite-interpreted-2

suite-interpreted-1:
	@$(INTERPRETED) $(PYTEST) --form=interpreted $(FIRST_HALF)

suite-interpreted-2:
	@$(INTERPRETED) $(PYTEST) --form=interpreted $(SECOND_HALF) $(NOT_COMPILED:%=--ignore=tests/%)

.PHONY: test-compiled
test-compiled: setup suite-compiled suite-services ## Run the whole suite on the compiled form

.PHONY: suite-compiled suite-compiled-1 suite-compiled-2
suite-compiled:
	@$(MAKE) -j --output-sync=target suite-compiled-1 suite-compiled-2

suite-compiled-1:
	@$(PYTEST) --form=compiled $(FIRST_HALF)

suite-compiled-2:
	@$(PYTEST) --form=compiled $(SECOND_HALF)

.PHONY: test-services
test-services: setup test-packages suite-services ## Run the tests of jobs, event bus, page, clients, processes and Spark, with the servers they need

.PHONY: suite-services suite-jobs suite-bus suite-page suite-processes suite-spark
suite-services: suite-jobs suite-bus suite-page suite-processes suite-spark

suite-jobs:
	@$(PYTEST) --form=compiled tests/jobs

suite-bus:
	@$(PYTEST) --form=compiled tests/bus

suite-page:
	@$(PYTEST) --form=compiled tests/page

suite-processes:
	@$(PYTEST) --form=compiled tests/install tests/clients tests/serve

suite-spark:
	@$(INTERPRETED) $(PYTEST) --form=interpreted tests/spark

.PHONY: test-packages
test-packages: ## Install the system packages that some tests need (node, amqp-tools, valgrind, chromium …)
	@tools/system_packages.sh "$(PYTHON)" clients guard browser jobs rabbitmq spark

.PHONY: clients
clients: setup test-packages ## Run the AMQP clients' own test suites, compared with RabbitMQ
	@$(PY) -m tests.clients.run_suites $(ARGS)

.PHONY: compat
compat: setup ## Run the compatibility table against Leveret and RabbitMQ, and write the differences
	@tools/system_packages.sh "$(PYTHON)" rabbitmq
	@$(PY) -m tests.compat.run $(ARGS)

.PHONY: compat-cluster
compat-cluster: setup test-packages ## Run the compatibility table and the clients' own suites on three nodes, each connection on another node
	@$(PY) -m tests.compat.run --brokers leveret --nodes 3 --report build/compat-cluster.md
	@$(PY) -m tests.clients.run_suites --nodes 3 $(ARGS)

.PHONY: fuzz
fuzz: setup ## Fuzz the decoders and a running broker; TIME=7200 fuzzes connections for that many seconds
	@$(if $(TIME),$(PY) -m tools.fuzz --seconds $(TIME) $(ARGS),$(FUZZ_MORE) $(PYTEST) --form=compiled tests/fuzz)

.PHONY: damage
damage: setup ## Cut and flip every place of a small log, fail every write and every sync; ARGS="bits" tries one kind
	@$(PY) -m tests.simulation.damage $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: chaos
chaos: setup ## Kill the broker under load, KILLS times, and account for every message
	@$(PY) -m tools.chaos --kills $(or $(KILLS),500) $(ARGS)

.PHONY: chaos-cluster
chaos-cluster: setup ## Kill, freeze and cut off nodes of a cluster under load, ROUNDS times, and account for every message; ARGS="--namespaces" drops packets, ARGS="--spark" reads a stream by Spark
	@$(if $(findstring --spark,$(ARGS)),tools/system_packages.sh "$(PYTHON)" spark)
	@$(PY) -m tools.chaos_cluster --rounds $(or $(ROUNDS),100) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: chaos-partitions
chaos-partitions: setup ## Run the fourteen partition scenarios of RabbitMQ's Jepsen run on clusters of five and three nodes
	@$(PY) -m tools.chaos_cluster --partitions $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: chaos-spark
chaos-spark: setup ## Kill Spark's driver and the broker in every phase of a batch, ROUNDS times
	@tools/system_packages.sh "$(PYTHON)" spark
	@SINK_ROWS=100000 $(PYTEST) --form=compiled -q -s tests/spark/test_sink.py -k every_task_fails
	@$(PY) -m tools.chaos_spark --rounds $(or $(ROUNDS),5) $(ARGS)

.PHONY: audit-million
audit-million: setup ## Send a million messages through retries, dead letters and replay, and audit them
	@tools/system_packages.sh "$(PYTHON)" spark
	@$(PY) -m tools.audit_million $(ARGS)

.PHONY: chaos-bus
chaos-bus: setup ## Take the broker away from an event bus in six ways, ROUNDS times each, and count messages
	@$(PY) -m tools.chaos_bus --rounds $(or $(ROUNDS),20) $(ARGS)

.PHONY: soak-bus
soak-bus: setup ## Publish a million events, reconnect a thousand times, and check that memory does not grow
	@$(PY) -m tools.soak_bus $(ARGS)

.PHONY: chaos-reshard
chaos-reshard: setup ## Change the number of shards of the jobs service under load, ROUNDS times
	@tools/system_packages.sh "$(PYTHON)" jobs
	@$(PY) -m tools.chaos_reshard --rounds $(or $(ROUNDS),5) $(ARGS)

.PHONY: chaos-jobs
chaos-jobs: setup ## Kill nodes and workers of the jobs service and freeze its servers for SECONDS, and account for every job; STORE=embedded uses the broker's own store
	@tools/system_packages.sh "$(PYTHON)" jobs
	@$(PY) -m $(if $(filter embedded,$(STORE)),tests.jobs.chaos,tools.chaos_jobs) --seconds $(or $(SECONDS),600) --node-kills $(or $(KILLS),50) $(ARGS)

.PHONY: sim
sim: setup ## Simulate Raft (SEEDS runs of each schedule) and whole clusters (CLUSTERS) under faults; SEED=7 replays one
	@$(PY) -m tests.cluster.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000)) $(ARGS)
	@$(PY) -m tests.simulated.cluster $(if $(SEED),--seed $(SEED),--seeds $(or $(CLUSTERS),100))

.PHONY: test-spark-cluster
test-spark-cluster: setup ## Run the flows of the pipeline on a Spark cluster of a master and two workers
	@tools/system_packages.sh "$(PYTHON)" spark
	@$(PY) -m tools.spark_cluster

.PHONY: soak
soak: setup ## Load a broker for TIME seconds, and check that memory and descriptors do not grow
	@$(PY) -m tools.soak --seconds $(or $(TIME),120) $(ARGS)

.PHONY: sockets
sockets: setup ## Measure 10,000 idle connections and 100 consumers that do not read
	@$(PY) -m tools.sockets $(ARGS)

.PHONY: scale
scale: setup ## Measure 10,000 queues and a million waiting messages, and a restart after kill -9
	@$(PY) -m tools.scale $(ARGS)

.PHONY: bench
bench: setup ## Measure Leveret against RabbitMQ; options ROWS=stream,quorum ROUNDS=1 TIME=2 SAVE=1
	@tools/system_packages.sh "$(PYTHON)" rabbitmq
	@$(PY) tools/bench.py $(BENCH_FLAGS) $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

.PHONY: bench-cluster
bench-cluster: setup ## Measure a cluster of three nodes; options ROUNDS=3 ARGS="--seconds 5 --backlog 1000000"
	@$(PY) -m tools.bench_cluster $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

.PHONY: bench-scale
bench-scale: setup ## Measure the cost of a message as queues, bindings, connections and backlogs grow
	@$(PY) tools/bench.py scale $(BENCH_FLAGS) $(ARGS)

.PHONY: bench-spark
bench-spark: setup ## Measure a stream read by Spark against Parquet and pika
	@tools/system_packages.sh "$(PYTHON)" spark
	@$(PY) -m tools.bench_spark $(ARGS)

.PHONY: bench-profile
bench-profile: setup ## Profile the CPU time of a message with perf
	@$(PY) tools/bench.py profile $(if $(ROWS),--rows $(ROWS)) $(if $(TIME),--seconds $(TIME)) $(ARGS)

.PHONY: bench-report
bench-report: setup ## Show the history of saved runs as a page and a table
	@$(PY) tools/bench.py report $(ARGS)

.PHONY: bench-jobs
bench-jobs: setup ## Measure jobs against arq, RQ, procrastinate and SQL by hand; options ROUNDS=1 ARGS="--backlog 0"
	@tools/system_packages.sh "$(PYTHON)" jobs
	@$(PY) -m pip install -q -c constraints.txt -r tools/benchmark_jobs/requirements.txt
	@$(PY) tools/bench_jobs.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SAVE),--save $(SAVE)) $(ARGS)

.PHONY: bench-bus
bench-bus: setup ## Measure the event bus against FastStream and aio-pika; options ROUNDS=3 ARGS="--broker leveret"
	@tools/system_packages.sh "$(PYTHON)" rabbitmq
	@$(PY) -m tools.benchmark_bus $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SAVE),--save $(SAVE)) $(ARGS)

.PHONY: guard
guard: setup ## Count the instructions of the hot paths and compare them with the baseline
	@tools/system_packages.sh "$(PYTHON)" guard
	@$(PY) -m tools.guard

.PHONY: guard-update
guard-update: setup ## Record the current instruction counts of the hot paths as the baseline
	@tools/system_packages.sh "$(PYTHON)" guard
	@$(PY) -m tools.guard --update

##@ Code

.PHONY: fmt
fmt: venv ## Format the code and fix what ruff can fix
	@$(PY) -m ruff format $(CHECKED)
	@$(PY) -m ruff check --fix $(CHECKED)

.PHONY: lint
lint: venv ## Check format and lint
	@$(PY) -m ruff format --check $(CHECKED)
	@$(PY) -m ruff check --quiet $(CHECKED)

.PHONY: types
types: venv ## Check types, strictly
	@$(PY) -m mypy --cache-dir=build/mypy_types

.PHONY: tidy
tidy: venv ## Check imports between parts, sizes, and the rules of compiled code
	@$(PY) tools/tidy.py

.PHONY: gen
gen: venv ## Write the generated pages
	@$(PY) tools/tidy.py --write

.PHONY: clean
clean: ## Remove all generated files
	@rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find src tests tools -name __pycache__ -prune -exec rm -rf {} +
