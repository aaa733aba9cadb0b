# refit: update Cluster API machines in place.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
BIN := bin
TOOLS := $(BIN)/tools

# Reproducible: the same source makes the same agent, whose digest decides whether a node has it already.
GO_BUILD := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z0-9_-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build refit, and the agent for nodes of every architecture, into bin/.
	$(GO_BUILD) -o $(BIN)/refit ./cmd/refit
	GOOS=linux GOARCH=amd64 $(GO_BUILD) -o $(BIN)/agents/refit-node-linux-amd64 ./cmd/refit-node
	GOOS=linux GOARCH=arm64 $(GO_BUILD) -o $(BIN)/agents/refit-node-linux-arm64 ./cmd/refit-node

IMAGE ?= ghcr.io/capi-refit/refit:$(VERSION)
.PHONY: image
image: build ## Build the container image IMAGE out of bin/.
	docker build -t $(IMAGE) .

.PHONY: demo
demo: build ## A management cluster on loopback, a live in-place update of five nodes, its proof. KEEP=1 leaves it running; NODES=real|containers|stand-ins.
	go run ./test/demo $(if $(KEEP),--keep) $(if $(NODES),--nodes=$(NODES))

.PHONY: test
test: ## Unit and integration tests with the race detector. Needs no root, no Docker, no cluster.
	go test -race ./...

.PHONY: e2e
e2e: build ## The real Cluster API managers against real nodes: every scenario, about 10 minutes.
	go test -tags e2e -count=1 -timeout 40m -v -run '^TestInMemory$$' ./test/e2e

.PHONY: e2e-real
e2e-real: build ## The same on real kubeadm machines, made by Cluster API's Docker provider, and what only they can show.
	go test -tags e2e -count=1 -timeout 60m -v -run '^TestRealMachines$$' ./test/e2e

.PHONY: bench
bench: build ## Compare the hooks with Cluster API's reference extension, and update many nodes; prints ratios.
	go run ./test/bench

FUZZTIME ?= 10m
.PHONY: fuzz
fuzz: ## Fuzz the decoder of requests, and differences with their patches, for FUZZTIME each (10m).
	go test -run '^$$' -fuzz '^FuzzRequest$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 5s ./handlers
	go test -run '^$$' -fuzz '^FuzzPatch$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 5s ./internal/fieldset

.PHONY: lint
lint: $(TOOLS)/golangci-lint $(TOOLS)/kustomize generate ## Check code, generated files and manifests.
	$(TOOLS)/golangci-lint run ./...
	$(TOOLS)/golangci-lint run --build-tags e2e ./test/...
	$(TOOLS)/kustomize build config/default >/dev/null
	@git diff --exit-code --stat -- api config || { echo "generated files are out of date: commit what 'make generate' makes"; exit 1; }

.PHONY: generate
generate: $(TOOLS)/controller-gen ## Generate deep copies, CRDs and RBAC.
	$(TOOLS)/controller-gen object paths=./api/...
	$(TOOLS)/controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	$(TOOLS)/controller-gen rbac:roleName=refit-manager paths=./internal/... output:rbac:dir=config/rbac

# Each tool is a module of its own under tools/, pinned there, and is built once for each of its versions.
$(TOOLS)/%: tools/%/go.mod
	@echo "building $* (first use)"
	@mkdir -p $(TOOLS)
	@cd tools/$* && go build -o $(CURDIR)/$@ $$(awk '/^tool /{print $$2}' go.mod)

.PHONY: clean
clean: ## Remove what was built here. What is cached for all checkouts stays in the user's cache directory.
	rm -rf $(BIN)
