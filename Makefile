# The commands of this repository. `make demo` and `make test` need a Debian 12 machine with Rust and nothing else: each
# installs the packages it lacks (scripts/packages) and says which.

# What the programs link and what the lab runs.
BUILD_PACKAGES := gcc libc6-dev libpcap-dev pkg-config
LAB_PACKAGES   := iproute2

CARGO ?= cargo

.PHONY: help
help: ## Say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

.PHONY: demo
demo: packages ## Real TCP over a real path: estimates against the kernel's truth, and what a host does with them
	$(CARGO) build --release -p spand-gateway -p spand-agent -p spand-tests
	./target/release/demo

.PHONY: test
test: packages ## All tests; those that need root or the corpus say so where they cannot run
	$(CARGO) test --workspace

.PHONY: lint
lint: packages ## Format, clippy and documentation, each without a warning
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items

.PHONY: packages
packages:
	@./scripts/packages $(BUILD_PACKAGES) $(LAB_PACKAGES)
