# Daemons that the tests start live in sbin, which is not on everybody's path.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin

# Extra flags of go test, as in: make test TESTFLAGS='-v -run Reconcile'
TESTFLAGS ?=
FUZZTIME ?= 1m
BENCH ?= .
GOBUILD = CGO_ENABLED=0 go build -trimpath
# What controller-gen writes below a folder: deep copies and CustomResourceDefinitions.
GENERATE = go tool -modfile=tools/generate/go.mod controller-gen paths=./api/v1alpha1 \
	object output:object:dir=$(1) crd output:crd:dir=$(1)/crds

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

.PHONY: build
build: ## Build bin/proxyfleet.
	$(GOBUILD) -o bin/proxyfleet ./cmd/proxyfleet

.PHONY: quickstart
quickstart: build ## Run a fleet of three local proxies, and a target to crawl, in the foreground.
	$(GOBUILD) -o bin/quickstart-target ./examples/quickstart/target
	mkdir -p -m 700 examples/quickstart/state
	bin/quickstart-target -ca-file examples/quickstart/state/target-ca.pem \
		bin/proxyfleet run -f examples/quickstart/fleet.yaml --state examples/quickstart/state/fleet.db

.PHONY: deps
deps: ## Install what the tests need besides Go (Debian, as root).
	hack/install-test-deps.sh

.PHONY: test
test: ## Run every test under the race detector.
	go test -race -timeout 15m $(TESTFLAGS) ./...
	cd examples/colly && go test -race $(TESTFLAGS) ./...

.PHONY: test-slow
test-slow: export WALK ?= 20000
test-slow: export KILLS ?= 500
test-slow: export CONFORMANCE ?= all
test-slow: export GUESTS ?= 1
test-slow: ## The same with full counts: WALK histories of each kind, KILLS crashes, all of CONFORMANCE on machines that boot, and the GUESTS that take minutes.
	go test -race -timeout 4h -count=1 $(TESTFLAGS) ./...

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (1m).
	FUZZTIME=$(FUZZTIME) hack/fuzz.sh

.PHONY: bench
bench: ## Run the benchmarks that match BENCH (all).
	go test -run '^$$' -bench '$(BENCH)' -benchmem $(TESTFLAGS) ./...

.PHONY: generate
generate: ## Generate the deep copies and CustomResourceDefinitions of the Kubernetes objects.
	$(call GENERATE,api/v1alpha1)

.PHONY: lint
lint: ## Check formatting, go.mod, the linters' rules, and that what is generated is up to date.
	go mod tidy -diff
	cd tools && go mod tidy -diff
	cd tools/generate && go mod tidy -diff
	cd examples/colly && go mod tidy -diff && go vet ./...
	go tool -modfile=tools/go.mod golangci-lint run
	rm -rf bin/_generated
	$(call GENERATE,bin/_generated)
	diff -r --exclude=kustomization.yaml bin/_generated/crds api/v1alpha1/crds
	diff bin/_generated/zz_generated.deepcopy.go api/v1alpha1/zz_generated.deepcopy.go

.PHONY: fmt
fmt: ## Format the code.
	gofmt -w .
