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

# What `make image` makes, with what, and from which certificates; BUILDER may be docker, podman or buildah.
IMAGE ?= proxyfleet:dev
BUILDER ?= docker
ARCH ?= $(shell go env GOARCH)
CA_BUNDLE ?= /etc/ssl/certs/ca-certificates.crt

.PHONY: image
image: ## Build the image IMAGE (proxyfleet:dev) for ARCH with BUILDER (docker).
	mkdir -p bin/image
	GOOS=linux GOARCH=$(ARCH) $(GOBUILD) -ldflags '-s -w' -o bin/image/proxyfleet ./cmd/proxyfleet
	install -m 644 $(CA_BUNDLE) bin/image/ca-certificates.crt
	$(BUILDER) build --platform linux/$(ARCH) --tag $(IMAGE) .

.PHONY: quickstart
quickstart: build ## Run a fleet of three local proxies, and a target to crawl, in the foreground.
	$(GOBUILD) -o bin/quickstart-target ./examples/quickstart/target
	mkdir -p -m 700 examples/quickstart/state
	bin/quickstart-target -ca-file examples/quickstart/state/target-ca.pem \
		bin/proxyfleet run -f examples/quickstart/fleet.yaml --state examples/quickstart/state/fleet.db

.PHONY: deps
deps: ## Install what the tests need besides Go (Debian, as root).
	hack/install-test-deps.sh

.PHONY: cluster
cluster: ## Run a Kubernetes cluster with one node in the foreground (as root).
	go run ./hack/testenv/k8s/cluster -node

.PHONY: test
test: ## Run every test under the race detector.
	go test -race -timeout 25m $(TESTFLAGS) ./...
	cd examples/colly && go test -race $(TESTFLAGS) ./...

.PHONY: test-slow
test-slow: export KILLS ?= 500
test-slow: export CONFORMANCE ?= all
test-slow: export GUESTS ?= 1
test-slow: WALK ?= 20000
test-slow: ## The same with full counts: WALK histories of each kind, KILLS crashes, all of CONFORMANCE on machines that boot, and the GUESTS that take minutes.
	go test -race -timeout 4h -count=1 $(TESTFLAGS) ./...
	WALK=$(WALK) go test -timeout 6h -count=1 $(TESTFLAGS) ./internal/walk ./lease ./controller # the race detector needs memory for each history

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
	cd tools/deploy && go mod tidy -diff
	cd hack/testenv/k8s/kubeall && go mod tidy -diff
	cd examples/colly && go mod tidy -diff && go vet ./...
	go tool -modfile=tools/go.mod golangci-lint run
	rm -rf bin/_generated
	$(call GENERATE,bin/_generated)
	diff -r --exclude=kustomization.yaml bin/_generated/crds api/v1alpha1/crds
	diff bin/_generated/zz_generated.deepcopy.go api/v1alpha1/zz_generated.deepcopy.go

.PHONY: fmt
fmt: ## Format the code.
	gofmt -w .
