# refit: update Cluster API machines in place.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Tags come from others, too: neither make nor a shell expands what a version says. Recipes have it in their environment.
ifeq ($(origin VERSION),undefined)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
endif
override VERSION := $(value VERSION)
export VERSION
BIN := bin
TOOLS := $(BIN)/tools

# Reproducible: the same source makes the same agent, whose digest decides whether a node has it already.
GO_BUILD := go build -trimpath -ldflags "-s -w -X main.version=$$VERSION"
# It is brought to each node: gRPC's pages for debugging, 2.7 MB of templates, stay out.
AGENT_BUILD := $(GO_BUILD) -tags grpcnotrace

# Dependencies are compiled once for all that is not run with the race detector.
build servers image push-image sign-image sbom release provenance reference demo bench bench-fleet lint rules test-prometheus chart e2e-packages e2e-conformance quick e2e-programs e2e-scenarios e2e-shards e2e-others e2e-leases e2e-updates e2e-move e2e-install first-hour e2e-everything e2e-real e2e-real-more e2e-minor e2e-lab: export CGO_ENABLED = 0
build servers image push-image sign-image sbom release provenance reference demo bench bench-fleet lint rules test-prometheus chart e2e-packages e2e-conformance quick e2e-programs e2e-scenarios e2e-shards e2e-others e2e-leases e2e-updates e2e-move e2e-install first-hour e2e-everything e2e-real e2e-real-more e2e-minor e2e-lab: export GOFLAGS += -trimpath

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z0-9_-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# It is a word of a few characters in all that it is put into: the linker's flags, the name of an image, files.
.PHONY: version
version:
	@LC_ALL=C; [[ $$VERSION =~ ^[0-9A-Za-z.+_-]+$$ ]] || { printf '%q is no version: give VERSION\n' "$$VERSION" >&2; exit 1; }

.PHONY: released
released: version
	@[[ $$VERSION =~ ^v[0-9] ]] || { echo "$$VERSION is no version of a release: VERSION=v0.1.0, say" >&2; exit 1; }

.PHONY: build
build: version ## Build refit, and the agent for nodes of every architecture, into bin/.
	$(GO_BUILD) -o $(BIN)/refit ./cmd/refit
	GOOS=linux GOARCH=amd64 $(AGENT_BUILD) -o $(BIN)/agents/refit-node-linux-amd64 ./cmd/refit-node
	GOOS=linux GOARCH=arm64 $(AGENT_BUILD) -o $(BIN)/agents/refit-node-linux-arm64 ./cmd/refit-node
	@rm -f $(BIN)/agents/*.sig
	$(if $(AGENT_KEY),$(BIN)/refit agent sign --key '$(AGENT_KEY)' --rollback-index $(ROLLBACK_INDEX) $(BIN)/agents/refit-node-linux-*)

# AGENT_KEY signs the agents, for nodes with a gate: see docs/node-access.md.
AGENT_KEY ?=
ROLLBACK_INDEX ?= 0

ifeq ($(origin IMAGE),undefined)
IMAGE := ghcr.io/capi-refit/refit:$(VERSION)
endif
override IMAGE := $(value IMAGE)
export IMAGE
# All times in the image are this one, so that the same commit makes the same image.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
# The image's labels name the commit.
ifeq ($(origin REVISION),undefined)
REVISION := $(shell git rev-parse HEAD 2>/dev/null)
endif
override REVISION := $(value REVISION)
export REVISION

# Of an image whose architecture is not this machine's, too.
.PHONY: servers
servers: version
	for arch in amd64 arm64; do GOOS=linux GOARCH=$$arch $(GO_BUILD) -o $(BIN)/refit-linux-$$arch ./cmd/refit || exit 1; done

.PHONY: image
image: build servers ## Make the container image IMAGE for amd64 and arm64, bin/image/, with the list of its modules, bin/image.spdx.json, and load this machine's into Docker if that answers.
	go run ./build/image --image "$$IMAGE" --version "$$VERSION" --revision "$$REVISION" --created $(SOURCE_DATE_EPOCH) \
	  --out $(BIN)/image --docker $(BIN)/image.tar --spdx $(BIN)/image.spdx.json
	@if docker info >/dev/null 2>&1; then docker load -i $(BIN)/image.tar; else echo "Docker does not answer: the image is in $(BIN)/image/ and $(BIN)/image.tar only"; fi

.PHONY: push-image
push-image: ## Push what make image has made, for all architectures, to the registry that IMAGE names.
	go run ./build/image push --from $(BIN)/image --image "$$IMAGE"

.PHONY: sbom
sbom: build servers $(TOOLS)/cyclonedx-gomod ## List the modules in each program of the image, with their hashes, in CycloneDX: bin/sbom/.
	@mkdir -p $(BIN)/sbom
	for program in $(BIN)/refit-linux-{amd64,arm64} $(BIN)/agents/refit-node-linux-{amd64,arm64}; do \
	  $(TOOLS)/cyclonedx-gomod bin -json -noserial -notimestamp -version "$$VERSION" -output $(BIN)/sbom/$${program##*/}.cdx.json $$program || exit 1; done

# What the command is built for: see build/release.
PLATFORMS := linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64

.PHONY: release
release: released ## Make the files of a release, out/: make release VERSION=v0.1.0. Needs no network but Go modules.
	@mkdir -p $(BIN)/release
	for platform in $(PLATFORMS); do \
	  GOOS=$${platform%-*} GOARCH=$${platform#*-} $(GO_BUILD) -buildvcs=false -o $(BIN)/release/refit-$$platform ./cmd/refit || exit 1; done
	go run ./build/release --version "$$VERSION" --programs $(BIN)/release --created $(SOURCE_DATE_EPOCH)

# What the workflow release does besides: it has a certificate for what it is, which nobody else gets. See docs/release.md.
.PHONY: provenance
provenance: released # what a release was built of, as its workflow's environment says
	@mkdir -p $(BIN)
	go run ./build/provenance --version "$$VERSION" --out $(BIN)/provenance.json

# The checksums are of all files of a release, so that their signature is one of each.
.PHONY: sign
sign: $(TOOLS)/cosign
	$(TOOLS)/cosign attest-blob --yes --type slsaprovenance1 --predicate $(BIN)/provenance.json --bundle out/refit.provenance.sigstore.json out/checksums.txt
	$(TOOLS)/cosign sign-blob --yes --bundle out/checksums.txt.sigstore.json out/checksums.txt

# All architectures at once: what is signed is the index, and with it each image that it names.
.PHONY: sign-image
sign-image: $(TOOLS)/cosign
	image=$$(go run ./build/image push --from $(BIN)/image --image "$$IMAGE"); \
	$(TOOLS)/cosign sign --yes --recursive "$$image"; \
	$(TOOLS)/cosign attest --yes --type spdxjson --predicate $(BIN)/image.spdx.json "$$image"; \
	$(TOOLS)/cosign attest --yes --type slsaprovenance1 --predicate $(BIN)/provenance.json "$$image"

.PHONY: vulnerabilities
vulnerabilities: $(TOOLS)/govulncheck ## Check what is shipped for known vulnerabilities. VULNDB=URL names another database than vuln.go.dev.
	VULNDB='$(VULNDB)' .ci/vulnerabilities $(TOOLS)/govulncheck

.PHONY: demo
demo: build ## A management cluster on loopback, a live in-place update of five nodes, its proof. KEEP=1 leaves it running; NODES=real|containers|stand-ins.
	go run ./test/demo $(if $(KEEP),--keep) $(if $(NODES),--nodes=$(NODES))

# go vet is one of lint's linters. For each of these it would look at all dependencies again, which takes minutes the first time.
# Without the race detector tests are compiled as all else is here, and walks go through all faults.
TEST := CGO_ENABLED=0 go test -trimpath -vet=off -timeout 60m
# The race detector is for packages with goroutines, in which it finds something: the others are tested without, and so is what only tests are made of.
CONCURRENT = $$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' $$(go list ./... | grep -v /refit/test/) | while read -r dir; do ! grep -qE '^\s*go [a-zA-Z]|t\.Parallel\(|errgroup|\.Go\(' "$$dir"/*.go || echo "$$dir"; done)

.PHONY: test
test: units walks race ## Unit and integration tests, those with goroutines with the race detector. Needs no root, no Docker, no cluster.

.PHONY: units
units: # internal/server's bounds on memory are not those of the race detector
	$(TEST) -skip 'Walk$$' $$(comm -23 <(go list -f '{{.Dir}}' ./... | sort) <(printf '%s\n' $(CONCURRENT) | sort)) ./internal/server
	cd test/rivals && $(TEST) .

.PHONY: walks
walks: ## A fault at each call of an update, and a death at each step on the node: every point that make quick leaves out. A part of make test.
	$(TEST) -run 'Walk$$' ./internal/machineupdate ./internal/agent

RACE ?= -race
.PHONY: race
race: # RACE= has the same tests without the race detector, on a machine that is slow
	$(if $(RACE),,CGO_ENABLED=0) go test $(RACE) -short -trimpath -vet=off -timeout 60m $(CONCURRENT)

BASE ?= HEAD
.PHONY: quick
quick: ## Test the packages that differ from BASE (HEAD), and all that import them, without walks and race detector.
	@packages=$$(go run -trimpath ./build/changed $(BASE)); if [[ -n $$packages ]]; then $(TEST) -short $$packages; else echo "no package differs from $(BASE)"; fi

EXCEPT ?=
.PHONY: e2e-programs
e2e-programs: build ## Build the programs that e2e needs, for all checkouts: some minutes the first time, seconds later. EXCEPT=helm,clusterctl leaves some out.
	go run ./test/lab/cmd/lab build $(if $(EXCEPT),--except=$(EXCEPT))

.PHONY: e2e
e2e: e2e-scenarios e2e-shards e2e-others e2e-leases e2e-updates e2e-move e2e-packages e2e-install first-hour e2e-conformance ## The real Cluster API managers against real nodes: every scenario; node leases, and what operators may, against a real API server; each updater on real Debian; a move; what is installed by kubectl, Helm and clusterctl; a new user's way; what others' extensions keep.

.PHONY: e2e-scenarios
e2e-scenarios: build
	go test -tags e2e -vet=off -count=1 -parallel 5 -timeout 80m -v -run '^TestInMemory$$$(SCENARIOS)' ./test/e2e

# Its lab waits until that of the scenarios has stopped, which takes most of an hour on a machine that is slow.
.PHONY: e2e-shards
e2e-shards: build ## Two replicas share two clusters, and one of them dies.
	go test -tags e2e -vet=off -count=1 -timeout 100m -v -run '^TestShards$$' ./test/e2e

.PHONY: e2e-others
e2e-others: build ## Other extensions are updaters beside refit's own: Cluster API's reference extension, which is down for a while, and one that lies.
	go test -tags e2e -vet=off -count=1 -timeout 30m -v -run '^TestOthers$$' ./test/e2e

# It takes a Debian machine, as the updaters' tests do.
ATTACK := ^TestANodesUserAttacksARealNode$$

# What needs nothing of the managers is not run again when nothing that it is made of has changed, nor what it runs on: go keeps its result.
# UNCACHED=1 runs it all the same.
UNCACHED ?=
COUNT := $(if $(UNCACHED),-count=1)
ON = $$(uname -rm) $$(docker version --format '{{.Server.Version}}' 2>/dev/null || true)

.PHONY: e2e-leases
e2e-leases:
	go test -tags e2e -vet=off $(COUNT) -timeout 60m -skip '$(ATTACK)' ./internal/lease ./internal/changemanagement ./internal/pending ./internal/rollback ./test/apiserver ./test/attack

.PHONY: e2e-updates
e2e-updates:
	E2E_ON="$(ON)" go test -tags e2e -vet=off $(COUNT) -parallel 3 -timeout 60m ./test/updates ./test/releases
	E2E_ON="$(ON)" go test -tags e2e -vet=off $(COUNT) -timeout 60m -run '$(ATTACK)' ./test/attack

.PHONY: e2e-move
e2e-move: ## clusterctl moves a cluster in the middle of an update, between two real API servers.
	go test -tags e2e -vet=off -count=1 -timeout 20m -v -run '^TestClusterctlMoves' ./internal/machineupdate

.PHONY: e2e-install
e2e-install: build ## kubectl, Helm and clusterctl install refit, upgrade it and remove it, while Cluster API's managers run.
	go test -tags e2e -vet=off -count=1 -timeout 30m -v ./test/install

.PHONY: first-hour
first-hour: build ## A new user's way, from a management cluster without refit to a machine that was updated in place, with the time of each step.
	go run ./test/firsthour

# The page's server is made of this module, and the browser driven by one of its own, so that go does not see what its tests run: UI_ON says it. Where
# pictures are written, they are not kept.
SCREENSHOTS ?= $(abspath docs/images)
.PHONY: e2e-ui
e2e-ui: ## The page of refit ui in Chromium, which is to be installed, and its screenshots for docs/images. SCREENSHOTS= writes none.
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $(BIN)/uifleet ./test/uifleet
	cd test/ui && UIFLEET='$(abspath $(BIN))/uifleet' SCREENSHOTS='$(SCREENSHOTS)' \
	  UI_ON="$$(uname -rm) $$(sha256sum <'$(abspath $(BIN))/uifleet') $$(for b in chromium chromium-browser google-chrome google-chrome-stable; do "$$b" --version 2>/dev/null || true; done)" \
	  CGO_ENABLED=0 go test -tags e2e -vet=off $(if $(SCREENSHOTS),-count=1,$(COUNT)) -timeout 20m -v ./...

.PHONY: e2e-everything
e2e-everything: build ## The scenarios of e2e and of e2e-real side by side, in one management cluster.
	go test -tags e2e -vet=off -count=1 -parallel 6 -timeout 75m -v -run '^TestEverything$$$(SCENARIOS)' ./test/e2e

# SCENARIO is a regular expression that the names of scenarios have to match: only these are run. Without it all are.
SCENARIO ?=
SCENARIOS = $(if $(SCENARIO),/^clusters$$/./($(SCENARIO)))

.PHONY: e2e-real
e2e-real: build ## What only real kubeadm machines can show, made by Cluster API's Docker provider: among it a new Kubernetes version.
	go test -tags e2e -vet=off -count=1 -timeout 75m -v -run '^TestRealMachines$$$(SCENARIOS)' ./test/e2e

.PHONY: e2e-real-more
e2e-real-more: build ## The other scenarios of e2e on real kubeadm machines, and fields that take minutes a node. Not in .ci/run: half an hour.
	go test -tags e2e -vet=off -count=1 -timeout 75m -v -run '^TestMoreOnRealMachines$$$(SCENARIOS)' ./test/e2e

.PHONY: e2e-minor
e2e-minor: build ## The next minor version of Kubernetes on real kubeadm machines, under load. Not in .ci/run: half an hour.
	go test -tags e2e -vet=off -count=1 -timeout 75m -v -run '^TestMinorVersion$$$(SCENARIOS)' ./test/e2e

.PHONY: e2e-lab
e2e-lab: ## That labs and nodes leave nothing behind, also when they are interrupted or killed. Not in .ci/run: ten minutes.
	go test -tags e2e -vet=off -count=1 -timeout 60m -v ./test/nodes
	go test -tags e2e -vet=off -count=1 -timeout 60m -v -run '^TestDocker' ./test/lab

.PHONY: e2e-conformance
e2e-conformance: ## Cluster API's reference extension, looked at as refit conformance does. It takes no cluster.
	go test -tags e2e -vet=off -count=1 -timeout 30m -v ./test/conformance

.PHONY: bench
bench: build ## Compare refit with what one would take instead: the reference extension, Ansible, OpenSSH, rrule-go, cron; prints ratios.
	go run ./test/bench

FLEET ?=
.PHONY: bench-fleet
bench-fleet: build ## Measure what a fleet of 30,000 machines costs. FLEET="--machines=2000 --clusters=50 --policies=20 --dark=100" measures a smaller one.
	go run ./test/benchfleet $(FLEET)

FUZZTIME ?= 10m
HISTORIES ?= 100000
.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME (10m), and the model of an update through HISTORIES (100000).
	$(TEST) -run '^TestModel$$' ./internal/machineupdate/flow -args -histories $(HISTORIES)
	grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z]*' . | while IFS=: read -r file name; do \
	  CGO_ENABLED=0 go test -trimpath -vet=off -run '^$$' -fuzz "^$${name#func }$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s "$$(dirname "$$file")" || exit 1; done

.PHONY: lint
lint: $(TOOLS)/golangci-lint $(TOOLS)/kustomize $(TOOLS)/actionlint generate ## Check code, generated files, manifests and workflows.
	$(TOOLS)/golangci-lint run --build-tags e2e ./...
	$(TOOLS)/golangci-lint run ./internal/lease
	$(TOOLS)/kustomize build config/default >/dev/null
	$(TOOLS)/kustomize build config/prometheus >/dev/null
	$(TOOLS)/kustomize build config/grafana >/dev/null
	$(TOOLS)/kustomize build config/workload >/dev/null
	$(TOOLS)/kustomize build config/components/mtls/managers >/dev/null
	@mkdir -p $(BIN)/components
	printf '%s\n' 'resources: [../../config/default]' 'components: [../../config/components/mtls, ../../config/components/watch-secrets]' >$(BIN)/components/kustomization.yaml
	$(TOOLS)/kustomize build $(BIN)/components >/dev/null
	$(TOOLS)/actionlint -shellcheck= -pyflakes=
	go run ./build/pins
	@git diff --exit-code --stat -- api config schedule docs/reference || { echo "generated files are out of date: commit what 'make generate' makes"; exit 1; }

# Rules need no service discovery, which is most of what promtool is made of. Nor does a test of one Prometheus.
$(TOOLS)/promtool $(TOOLS)/prometheus: TAGS := remove_all_sd

.PHONY: rules
rules: $(TOOLS)/promtool ## Check and test the alerts of config/prometheus with promtool, which takes some minutes to build the first time.
	@mkdir -p $(BIN)/prometheus
	sed '1,/^spec:$$/d; s/^  //' config/prometheus/rules.yaml >$(BIN)/prometheus/rules.yaml
	$(TOOLS)/promtool check rules --lint=all --lint-fatal $(BIN)/prometheus/rules.yaml
	$(TOOLS)/promtool test rules config/prometheus/rules_test.yaml

.PHONY: test-prometheus
test-prometheus: $(TOOLS)/prometheus ## Ask a real Prometheus as health gates do. It takes some minutes to build the first time, and so is not in .ci/run.
	PROMETHEUS='$(abspath $(TOOLS)/prometheus)' go test -tags prometheus -vet=off -count=1 -timeout 10m -v -run '^TestARealPrometheus' ./internal/health

.PHONY: generate
generate: $(TOOLS)/controller-gen $(TOOLS)/crd-ref-docs ## Generate deep copies, CRDs, RBAC and the API's reference.
	$(TOOLS)/controller-gen object paths=./api/... paths=./schedule
	$(TOOLS)/controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	$(TOOLS)/controller-gen rbac:roleName=refit-system-refit-manager paths=./internal/... output:rbac:dir=config/rbac
	$(TOOLS)/crd-ref-docs --source-path=api --config=docs/reference/api.config.yaml --renderer=markdown --output-path=docs/reference/api.md --log-level=ERROR

.PHONY: reference
reference: ## Write the pages about all commands, metrics and alerts, docs/reference/{cli,metrics,alerts}.md.
	go run ./build/reference

.PHONY: chart
chart: ## Make the Helm chart's templates out of config/.
	go run ./build/chart

.PHONY: e2e-packages
e2e-packages: ## The chart by Helm's own engine, with each of its values, against config/; a release's components by clusterctl.
	cd test/chart && go test -tags e2e -vet=off -count=1 .
	go test -tags e2e -vet=off -count=1 -run '^TestClusterctl' ./build/release

# Each tool is a module of its own under tools/, pinned there, and is built once for each of its versions, for all checkouts.
TOOL_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/refit/tools
$(TOOLS)/%: tools/%/go.mod tools/%/go.sum
	@mkdir -p $(TOOLS) $(TOOL_CACHE)
	@key=$$(cat $^ <(go version) <(echo '$(TAGS)') | git hash-object --stdin | cut -c1-12); built=$(TOOL_CACHE)/$*-$$key; \
	if [[ ! -x $$built ]]; then \
	  echo "building $* (first use)"; \
	  (cd tools/$* && go build -tags '$(TAGS)' -o $$built.$$$$ $$(awk '/^tool /{print $$2}' go.mod)) && mv $$built.$$$$ $$built; \
	fi; \
	ln -sf $$built $@ && touch $$built

.PHONY: clean
clean: ## Remove what was built here. What is cached for all checkouts stays in the user's cache directory.
	rm -rf $(BIN)
