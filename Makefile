# Quartermaster. `make` alone lists the targets.
#
# Only Go is required. The tools are built from the versions in tools.mod on first use (a few
# minutes on two cores), and Go caches them. With a C compiler the collector is built and
# tested too, and make race works.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-print-directory

GO   ?= go
TOOL := $(GO) tool -modfile=tools.mod

PKG      ?= ./...
DATA     ?=
RUN      ?=
BENCH    ?= .
COUNT    ?= 1
FUZZTIME ?= 5s
# Programs are built without C by default.
CGO      ?= 0

COMPILER := $(shell command -v $$($(GO) env CC) 2>/dev/null)
TEST      = $(if $(COMPILER),CGO_ENABLED=1 )$(GO) test -timeout 30m $(if $(RUN),-run '$(RUN)')

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@echo 'Targets:'
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' Makefile | while IFS=$$'\t' read -r t d; do printf '  %-16s %s\n' "$$t" "$$d"; done
	@echo
	@echo 'Variables, with their defaults:'
	@echo '  PKG=./...    packages of test, race, long and bench'
	@echo '  DATA=        folder of public files for demo'
	@echo '  RUN=         tests to run, a regular expression'
	@echo '  BENCH=.      benchmarks to run'
	@echo '  COUNT=1      runs of each benchmark;  OLD=FILE compares with an earlier bin/bench.txt'
	@echo '  FUZZTIME=5s  time for each fuzz target'
	@echo '  PLAN=short   how much crash does: short (minutes) or long (an hour or two)'
	@echo '  RESULTS=     file that crash adds its counts to, deploy/dev/crash-results.json'

# HiGHS solves the planner's linear programs. It is WebAssembly that the build embeds. If it
# cannot be fetched, builds and tests go on without it, with a message.
HIGHS := adapters/highs/module/highs.wasm
FETCH  = GOOS= GOARCH= $(GO) run ./adapters/highs/fetch

.PHONY: highs
highs: ## Fetch HiGHS, the solver of linear programs, in the version of adapters/highs/package-lock.json
	@$(FETCH)

.PHONY: solver
solver:
	@[ $(HIGHS) -nt adapters/highs/package-lock.json ] || $(FETCH) -try

# The pages are Svelte, and the build embeds them. Without npm, builds and tests go on without them, with a message.
.PHONY: web
web: ## Build the pages from adapters/web, with a pinned Node from the npm registry
	@adapters/web/build/build.sh

.PHONY: web-test
web-test: build ## Test the pages in Chromium on the demo's log: accessibility, figures against commands, journeys
	@adapters/web/build/test.sh

.PHONY: journeys
journeys: build ## Do every journey through the pages by mouse and by keyboard, and report it in bin/journeys/index.html, with pictures
	@rm -rf bin/journeys
	@CI_LONG=1 QM_JOURNEYS='$(abspath bin/journeys)' adapters/web/build/test.sh test/journeys/journeys.test.ts

.PHONY: bench-web
bench-web: build ## Measure the pages in Chromium on the demo's log: medians of QM_RUNS=20, and QM_UPDATES=8640 updates
	@adapters/web/build/test.sh test/measure.ts

.PHONY: shots
shots: build ## Take the screenshots of the README again, of the demo's log, into docs/shots
	@adapters/web/build/test.sh test/shots.ts

.PHONY: pages
pages:
	@adapters/web/build/build.sh -try

.PHONY: build
build: solver pages ## Build every command under cmd/ into bin/
	@mkdir -p bin
	CGO_ENABLED=$(CGO) $(GO) build -trimpath -o bin/ ./cmd/...
	@$(if $(COMPILER),$(MAKE) collector,echo 'no C compiler: bin/dcgm-collector cannot load DCGM')

# The only program with C in it. It looks up functions of DCGM at the first call, which
# immediate binding (-z now) would prevent.
.PHONY: collector
collector: ## Build bin/dcgm-collector with C, which reads GPUs
	@mkdir -p bin
	CGO_ENABLED=1 $(GO) build -trimpath -ldflags '-extldflags=-Wl,-z,lazy' -o bin/ ./cmd/dcgm-collector

.PHONY: simdcgm
simdcgm: ## Build bin/simdcgm/libdcgm.so.4, which simulates DCGM on machines without GPUs (adapters/dcgm/simdcgm)
	$(GO) run ./adapters/dcgm/simdcgm/build bin/simdcgm

# The demo keeps its data directory between runs, so that it can resume after a kill.
DEMO_DIR = $${QUARTERMASTER_DATA_DIR:-$${XDG_DATA_HOME:-$$HOME/.local/share}/quartermaster}

.PHONY: demo
demo: build ## Run the demo on a generated fleet, then serve its pages if this is a terminal; with DATA=DIR on public files
	@once=--once; [ ! -t 1 ] || once=; bin/quartermaster demo $$once $(if $(DATA),--from '$(DATA)' --data-dir "$(DEMO_DIR)-public")

.PHONY: demo-node
demo-node: build simdcgm ## Show a GPU node end to end on a simulated DCGM, with a fault injected; needs a C compiler
	@deploy/demo/quickstart.sh
	@deploy/demo/node.sh

.PHONY: test
test: solver ## Run the tests with few cases each
	$(TEST) $(PKG)

# By default the detector sleeps a second at the end of every process, and scripts start
# hundreds of processes. Three packages run at once, because those of the node programs wait
# most of the time.
.PHONY: race
race: solver ## Run the same tests under the race detector, which takes several times as long
	@$(if $(COMPILER),,echo 'the race detector needs a C compiler'; exit 1)
	GORACE="$${GORACE:-atexit_sleep_ms=20}" $(TEST) -p 3 -race $(PKG)

# Without the race detector, because it runs the demo and some hundred commands on its data.
.PHONY: docs
docs: solver ## Run every command of README and docs, as printed, on the demo's data
	QM_DOCS=1 $(GO) test -count=1 -timeout 20m -v -run '^TestDocs$$' ./cmd/quartermaster

.PHONY: integration
integration: build ## Start a real Kafka and a real Postgres, test against them and run the demo through them
	deploy/dev/integration.sh

# A separate module, so that the suite's dependencies are not those of this module.
.PHONY: compliance
compliance: ## Run the public suite of prometheus/compliance against the remote-write receiver, and a public witness
	@mkdir -p bin
	cd adapters/witness/compliance && GOFLAGS= $(GO) build -o ../../../bin/witness .
	QM_WITNESS='$(abspath bin/witness)' $(GO) test -count=1 -v -run '^TestCompliance$$' ./adapters/witness
	cd adapters/remotewrite/compliance && GOFLAGS= $(GO) test -c -o ../../../bin/remotewrite-compliance github.com/prometheus/complicance/remotewrite2
	QM_COMPLIANCE='$(abspath bin/remotewrite-compliance)' $(GO) test -count=1 -v -run '^TestCompliance$$' ./adapters/remotewrite

.PHONY: long
long: solver ## Run the tests with many cases, and the campaigns: kills, interleavings, the full Watermill suite
	CI_LONG=1 $(TEST) -count=1 -timeout 60m $(PKG)

# PLAN is short or long; or tail, tidy or ends, which are only what comes at their end. Ports and seed are in the environment:
# QM_CRASH_POSTGRES_PORT, QM_CRASH_KAFKA_PORT, QM_CRASH_SEED.
PLAN    ?= short
RESULTS ?= deploy/dev/crash-results.json

.PHONY: crash
crash: ## Kill, freeze and cut off instances on a real Kafka and Postgres, compare rows, add counts to RESULTS
	QM_CRASH=$(PLAN) QM_CRASH_RESULTS=$(if $(RESULTS),$(abspath $(RESULTS))) \
	$(GO) test -count=1 -timeout 4h -v -run '^TestCrashCampaign$$' ./cmd/quartermaster

.PHONY: bench
bench: solver ## Run the benchmarks into bin/bench.txt and summarize them
	@mkdir -p bin
	@[ -n "$${QM_KAFKA_BROKERS:-}" -a -n "$${QM_POSTGRES_DSN:-}" ] || \
		echo 'QM_KAFKA_BROKERS and QM_POSTGRES_DSN are not set: Kafka and Postgres are not measured; make bench-production starts both and measures them'
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 60m $(PKG) | tee bin/bench.txt
	@$(TOOL) benchstat $(OLD) bin/bench.txt

# A million events, in two minutes. docs/evidence/benchmarks.md reports QM_BENCH_EVENTS=10000000.
.PHONY: bench-production
bench-production: ## Start a real Kafka and a real Postgres and measure folding, takeover and restart
	@run=$$(mktemp -d); chmod 755 "$$run"; \
	kafka="deploy/dev/kafka.sh --dir $$run/kafka --port $${KAFKA_PORT:-39092}"; \
	postgres="deploy/dev/postgres.sh --dir $$run/postgres --port $${POSTGRES_PORT:-35432}"; \
	trap '$$kafka clean; $$postgres clean; rm -rf "$$run"' EXIT; \
	$$kafka start; $$postgres start; \
	QM_KAFKA_BROKERS=$$($$kafka brokers) QM_KAFKA_PID=$$(cat "$$run/kafka/broker-1/pid") QM_POSTGRES_DSN=$$($$postgres dsn) \
		$(GO) test -run '^$$' -bench Production -timeout 120m ./cmd/quartermaster

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME
	@{ grep -roE --include='*_test.go' --exclude-dir=testdata '^func Fuzz[A-Za-z0-9_]+' . || true; } | sort | \
	while IFS=: read -r file func; do \
		echo "== $${file%/*} $${func#func }"; \
		$(GO) test "$${file%/*}" -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) </dev/null; \
	done

# The linter reads what cgo wrote to the build cache. With -trimpath all
# checkouts share that entry, and it names the files of whichever came first,
# which may be gone.
.PHONY: lint
lint: ## Check the style (.golangci.yml)
	GOFLAGS=-trimpath=false "$$($(TOOL) -n golangci-lint)" run

.PHONY: fmt
fmt: ## Format Go code and schemas
	$(TOOL) golangci-lint fmt
	$(TOOL) buf format -w

# The tests that compare the reference in docs and the schemas of answers can also write them.
REFERENCE := $(GO) test -count=1 -run '^TestReference$$' ./cmd/* ./cmd/quartermaster/internal/cli ./cmd/quartermaster/internal/api

.PHONY: generate
generate: ## Generate Go code from the schemas; docs/reference and schemas of answers from the programs
	$(TOOL) buf generate
	$(REFERENCE) -update

# Compares with the working tree, whether committed or not, and changes nothing in it.
.PHONY: verify
verify: ## Check generated code and reference, links, module files, formats and schemas; changes nothing
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; mkdir -p "$$fresh/schemas"; \
	echo 'generated code matches the schemas'; \
	$(TOOL) buf generate -o "$$fresh"; \
	(cd schemas && find . -name '*.pb.go' | sort) >"$$fresh/have"; \
	(cd "$$fresh/schemas" && find . -name '*.pb.go' | sort) >"$$fresh/want"; \
	diff -u "$$fresh/have" "$$fresh/want" || { echo 'files differ: run make generate, and remove files without a schema'; exit 1; }; \
	while read -r f; do \
		diff -u "schemas/$$f" "$$fresh/schemas/$$f" || { echo "schemas/$$f differs: run make generate"; exit 1; }; \
	done <"$$fresh/want"
	@echo 'docs/reference matches the programs, and links in documents have targets'
	@$(REFERENCE)
	@$(GO) test -count=1 -run '^(TestLinks|TestNamed.*|TestSizes)$$' .
	@echo 'go.mod is tidy'
	@$(GO) mod tidy -diff
	@$(GO) mod verify
	@echo 'code and schemas are formatted'
	@$(TOOL) golangci-lint fmt --diff
	@$(TOOL) buf format --diff --exit-code
	@echo 'arm64 uses no fused multiply-add, so that answers are the same bytes on every processor'
	@GOARCH=arm64 CGO_ENABLED=0 $(GO) build -gcflags=-S ./domain/... ./projections/... ./simulations/... 2>&1 | \
		awk '/TEXT/ {seen = 1} /\tFN?M(ADD|SUB)[DS]\t/ {print; bad = 1} \
			END {if (!seen) print "the compiler printed no assembly"; if (bad) print "write float64(a*b) + c"; exit bad || !seen}'
	@echo 'schemas pass the linter'
	@$(TOOL) buf lint
	@tag=$$(git describe --tags --abbrev=0 2>/dev/null || true); \
	if [ -z "$$tag" ]; then echo 'no tag exists, so no schema is frozen: comparison skipped'; \
	elif ! git cat-file -e "$$tag:buf.yaml" 2>/dev/null; then echo "tag $$tag has no schemas: comparison skipped"; \
	else echo "schemas can read what $$tag wrote"; \
		$(TOOL) buf breaking --against "$$(git rev-parse --git-common-dir)#tag=$$tag"; fi

.PHONY: clean
clean: ## Remove built and fetched files
	rm -rf bin $(HIGHS) $(dir $(HIGHS))LICENSE $(dir $(HIGHS)).failed adapters/highs/testdata/highs.js
