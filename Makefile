# Everything a person or CI does, by name. `make` alone prints this list. Needs go, git, make and coreutils.

export CGO_ENABLED = 0
export GOFLAGS    ?=
GO     ?= go
OUT    ?= _out
ARCH   ?= amd64
FIRMWARE ?= uefi
FLAGS  := -trimpath -buildvcs=false

.DEFAULT_GOAL := help
.PHONY: help image run test e2e verify-release bench lint gen clean bin/factory bin/talosctl judges

help: ## print this list
	@while IFS= read -r line; do \
	  case "$$line" in [a-z]*': '*'## '*) printf '  %-16s%s\n' "$${line%%:*}" "$${line##*## }";; esac; \
	done < $(firstword $(MAKEFILE_LIST))

bin/factory:
	@$(GO) build $(FLAGS) -o $@ ./cmd/factory

bin/talosctl:
	@$(GO) build $(FLAGS) -o $@ ./cmd/talosctl

image: bin/factory bin/talosctl ## build _out/metal-amd64.raw
	@bin/factory build metal --arch $(ARCH) --output $(OUT)

run: image ## boot the image in QEMU: console here, API on 127.0.0.1:50000 (FIRMWARE=uefi|bios)
	@bin/factory boot $(OUT)/metal-$(ARCH).raw --firmware $(FIRMWARE) --forward 50000

# The foreign readers that judge our bytes are pinned packages too; their tree is made once.
judges: bin/factory
	@bin/factory tools judges --progress quiet >/dev/null

test: image judges ## unit tests, one kernel, the smoke boots
	@FACTORY_JUDGES="$$(bin/factory tools judges --progress quiet 2>/dev/null)" $(GO) test $(FLAGS) -tags judge ./...
	@FACTORY_JUDGES="$$(bin/factory tools judges --progress quiet 2>/dev/null)" $(GO) test $(FLAGS) -tags vm -timeout 40m -v ./e2e

e2e: image judges ## the long VM matrix
	@FACTORY_JUDGES="$$(bin/factory tools judges --progress quiet 2>/dev/null)" $(GO) test $(FLAGS) -tags vm,long -timeout 90m -v ./e2e

verify-release: bin/factory ## build twice, in two clones with two empty stores, and compare every byte
	@$(GO) test $(FLAGS) -tags release -timeout 4h -run TestBuiltTwice -v ./e2e

bench: image judges ## performance claims, as ratios against peers in the same run (docs/performance.md)
	@FACTORY_JUDGES="$$(bin/factory tools judges --progress quiet 2>/dev/null)" $(GO) test $(FLAGS) -tags bench -run 'TestPlot|TestPeakMemory' -bench . -benchtime 1x -timeout 30m -v ./e2e

lint: ## vet, formatting and the linters of .golangci.yml
	@unformatted="$$($$($(GO) env GOROOT)/bin/gofmt -l $$(git ls-files '*.go'))"; \
	  if [ -n "$$unformatted" ]; then echo "cannot pass lint: run gofmt -w $$unformatted"; exit 1; fi
	@$(GO) vet -tags judge,vm,long,release,bench ./...
	@$(GO) tool -modfile=tools/go.mod golangci-lint run

gen: ## generate the API's Go code from its .proto files
	@$(GO) generate ./api/...

clean: ## remove _out and bin (the store in the cache folder stays: see `bin/factory gc`)
	@rm -rf $(OUT) bin
