# Condensate: bare `make` prints the targets.
.DEFAULT_GOAL := help
.PHONY: help run test build check fmt fuzz simulate bench demo mutants test-engines

# Runs of the crash simulation in `make simulate`, seconds for each fuzz target, rounds of the demo.
RUNS ?= 1000000
FUZZTIME ?= 30
ROUNDS ?= 1

TOOLS := $(CURDIR)/.cache/tools

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The agent works in a repository of its own, so that what it is asked to try does not touch this checkout.
run: build ## talk to an agent: simulator, runtime and a chat, everything under ./.condensate
	@mkdir -p .condensate && git init -q .condensate/work && cd .condensate/work && \
	CONDENSATE_CONFIG_DIR=$(CURDIR)/.condensate/config CONDENSATE_DATA_DIR=$(CURDIR)/.condensate/data exec $(CURDIR)/bin/cnd-runtime up

build: ## build all tools to bin/
	CGO_ENABLED=0 go build -o bin/ ./tools/...

test: ## all tests with the race detector, then 100,000 simulated crashes without it
	go test -race ./...
	go test -count=1 -run '^TestSimulation' ./core/loop

check: $(TOOLS)/staticcheck ## format, vet, linters, and builds for macOS and Linux without cgo
	@files=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); if [ -n "$$files" ]; then echo "not formatted:" $$files; exit 1; fi
	go mod verify >/dev/null
	go mod tidy -diff
	go vet ./...
	$(TOOLS)/staticcheck ./...
	@dead=$$($(TOOLS)/deadcode -test ./...) && [ -z "$$dead" ] || { echo "not reachable:"; echo "$$dead"; exit 1; }
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go vet ./...
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go build -o /dev/null ./tools/...
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -o /dev/null ./tools/...
	sh scripts/check-sh.sh

# The linters are pinned in a module of their own.
$(TOOLS)/staticcheck: internal/devtools/go.mod internal/devtools/go.sum
	cd internal/devtools && GOWORK=off go build -o $(TOOLS)/ tool
	@touch $@

fmt: ## format the sources
	gofmt -w $$(git ls-files '*.go')

fuzz: ## run every fuzz target for FUZZTIME seconds
	sh scripts/fuzz.sh $(FUZZTIME)

simulate: ## RUNS simulated crashes of the loop
	go test -count=1 -timeout 0 -run '^TestSimulation' ./core/loop -simulate.runs=$(RUNS)

bench: ## ratios to the machine's limits, measured side by side
	go run ./bench

demo: build ## a thread on a real repository, killed at random moments, resumed and proved (ROUNDS=1)
	go run ./e2e/demo -rounds $(ROUNDS)

mutants: ## break the store on purpose; its tests must notice
	go run ./internal/mutants

test-engines: build ## drive the vendors' own clients against the simulator (npm; skipped when unreachable)
	sh scripts/test-engines.sh
