# The commands of this repository. `make demo` and `make test` need a Debian 12 machine with Rust and nothing else: each
# installs the missing packages (scripts/packages) and says which.

# What the programs link and what the lab runs.
BUILD_PACKAGES := clang gcc libc6-dev libelf-dev libpcap-dev linux-libc-dev make pkg-config zlib1g-dev
LAB_PACKAGES   := iproute2 protobuf-compiler python3-grpcio
# promtool, for alerts and metrics, and what reads the agent's from files.
ALERT_PACKAGES := prometheus prometheus-node-exporter
# What packs a release and judges the packages, and what builds it for arm64.
RELEASE_PACKAGES := debhelper dpkg-dev fakeroot libcap2-bin lintian mmdebstrap patchelf rpm umoci
ARM64_PACKAGES   := gcc-aarch64-linux-gnu libc6-dev-arm64-cross libelf-dev:arm64 libpcap-dev:arm64 zlib1g-dev:arm64
# What tries it.
RELEASE_TEST_PACKAGES := debootstrap podman qemu-user-static runc umoci
RELEASED = $(or $(CARGO_TARGET_DIR),target)/release-files
# An engine for images, one that knows newer capabilities, and what makes base images where no registry is at hand.
DOCKER_PACKAGES := debootstrap docker-compose docker.io podman runc
# The simulator of the papers.
NS_PACKAGES := ns2
# What fetches a NATS server, for gateways that share.
NATS_PACKAGES := python3-pip
# What fetches Debian's kernels, packs what a guest boots with, and runs it.
KERNEL_PACKAGES := binutils busybox-static dash iproute2 kmod qemu-system-x86 xz-utils
# A browser and its driver, for the dashboard's tests alone.
BROWSER_PACKAGES := chromium chromium-driver fonts-dejavu-core

CARGO ?= cargo

.PHONY: help
help: ## Say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

# The demo and the dashboard are built as the tests are: who tries all three compiles once. The engine is optimised there, too.
.PHONY: demo
demo: packages ## Two and a half minutes of real TCP: estimates against the kernel's truth, advised against control connections; ARGS=--two-gateways: two that share, one is killed
	$(if $(findstring --two-gateways,$(ARGS)),@./scripts/packages $(NATS_PACKAGES))
	$(CARGO) build --bin spand-gateway --bin spand-agent --bin demo
	$(or $(CARGO_TARGET_DIR),target)/debug/demo $(ARGS)

# Where `make install` puts things.
PREFIX ?= /usr
BUILT  := $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: install
install: packages ## Programs, a header for C, systemd units, users and configurations into DESTDIR (default: this machine); starts nothing
	$(CARGO) build --release --locked --bin spand-gateway --bin spand-agent \
	    --example spand-gateway-manual --example spand-agent-manual
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/bin $(BUILT)/spand-gateway $(BUILT)/spand-agent
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system packaging/systemd/*.service
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/lib/sysusers.d packaging/sysusers.d/*.conf
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/include agent/advice/c/spand_advice.h
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/spand-gateway/proto/spand/v1 proto/spand/v1/*.proto
	@for name in gateway agent; do \
	    $(BUILT)/examples/spand-$$name-manual $(DESTDIR)$(PREFIX)/share; \
	    file=$(DESTDIR)/etc/spand/$$name.toml; \
	    if [ -e $$file ]; then echo "$$file is there already: left alone"; \
	    else install -D -m 0644 docs/reference/$$name.example.toml $$file && echo "$$file is an example: edit it"; fi; \
	done

.PHONY: release
release: packages ## Packages, archives and images of both programs for amd64 and arm64, in target/release-files: ARGS=amd64 for one
	@./scripts/packages $(RELEASE_PACKAGES) $(if $(filter amd64,$(ARGS)),,$(ARM64_PACKAGES))
	$(if $(filter amd64,$(ARGS)),,rustup target add aarch64-unknown-linux-gnu)
	./scripts/release $(RELEASED) $(ARGS)

.PHONY: release-test
release-test: packages ## Install, run, upgrade and remove what `make release` left, arm64 under qemu (root, some minutes); WHAT=images: build and run both images
	@./scripts/packages $(if $(filter images,$(WHAT)),$(DOCKER_PACKAGES),$(RELEASE_TEST_PACKAGES))
	$(if $(filter images,$(WHAT)),./scripts/docker-test $(or $(CARGO_TARGET_DIR),target)/docker,./scripts/release-test $(RELEASED))

.PHONY: test-programs
test-programs: packages
	@./scripts/packages $(NS_PACKAGES) $(NATS_PACKAGES)
	$(CARGO) test --workspace --no-run

# What tests lack, a line each; and what they may not lack, by the names in tests/needs.
SKIPPED := $(abspath $(or $(CARGO_TARGET_DIR),target))/skipped
export SPAND_REQUIRE ?= ns

.PHONY: test
test: test-programs ## All tests; ends with those that checked nothing, and fails where SPAND_REQUIRE=root,corpus,... names what they lack
	@rm -f $(SKIPPED)
	SPAND_SKIPPED=$(SKIPPED) RUST_TEST_THREADS=$${RUST_TEST_THREADS:-4} $(CARGO) test --workspace --no-fail-fast; ended=$$?; ./scripts/skipped $(SKIPPED); exit $$ended

# It builds no gateway and no agent, so it suits an inner loop.
.PHONY: quick
quick: packages ## The engine alone after a change of it: its own tests, scripts, fingerprints, captures, in two minutes
	$(CARGO) test -p spand-core -p spand-engine-tests

.PHONY: alert-tools
alert-tools:
	@./scripts/packages $(ALERT_PACKAGES)

.PHONY: browser
browser:
	@./scripts/packages $(BROWSER_PACKAGES)

.PHONY: dashboard
dashboard: packages ## A gateway with a dashboard to look at: played captures and 10,000 made-up networks; WHAT=images: take the pictures of docs/operate/dashboard.md again
	$(if $(filter images,$(WHAT)),@./scripts/packages $(BROWSER_PACKAGES))
	$(if $(filter images,$(WHAT)),SPAND_REQUIRE=chromedriver SPAND_SCREENSHOTS=$(CURDIR)/docs/img $(CARGO) test --workspace --test dashboard,$(CARGO) run -p spand-tests --bin dashboard -- $(ARGS))

# The oldest Rust that is supported. What it finds no fault in compiles with it. Four of its lints have false positives that later ones mended.
OLDEST_RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
LINTS := -D warnings -A clippy::missing_panics_doc -A clippy::range_minus_one -A clippy::range_plus_one -A clippy::self_named_module_files

.PHONY: lint
lint: packages ## Format, and clippy and documentation of the oldest supported Rust, each without a warning
	$(CARGO) fmt --check
	cd gateway/dashboard/vendor/uplot && sha256sum --check --strict --quiet SHA256SUMS
	@if rustup toolchain install $(OLDEST_RUST) --profile minimal --component clippy --no-self-update; then oldest=+$(OLDEST_RUST); \
	else echo "SKIPPED: Rust $(OLDEST_RUST) was not tried, since rustup has none here: lint by $$($(CARGO) --version)" >&2; fi; \
	set -ex; \
	$(CARGO) $$oldest clippy --workspace --all-targets -- $(LINTS); \
	$(CARGO) $$oldest clippy --package spand-gateway --no-default-features -- $(LINTS); \
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) $$oldest doc --workspace --no-deps --document-private-items

.PHONY: packages
packages:
	@./scripts/packages $(BUILD_PACKAGES) $(LAB_PACKAGES)

.PHONY: accuracy
accuracy: packages ## The reconstruction against real kernels over a covering design, resumable: ARGS="--minutes 55 --cell N"
	$(CARGO) build --release -p spand-tests --bin accuracy
	./target/release/accuracy $(ARGS)

.PHONY: rules
rules: packages ## Estimation rules on recordings of real kernels, resumable, an hour: ARGS="--report" to judge them again
	$(CARGO) build --release -p spand-tests --bin rules
	./target/release/rules $(ARGS)

# Transfers over TCP by default; WHAT: quic, wrong-shares, or guests.
.PHONY: benefit
benefit: packages ## Real transfers with and without the product, resumable, 45 minutes a seed: ARGS="--way route --scenarios alone"; WHAT=quic, wrong-shares or guests
ifeq ($(WHAT),guests)
	@./scripts/packages $(KERNEL_PACKAGES)
	./scripts/benefit-guests $(ARGS)
else
	$(CARGO) build --release --bin spand-gateway --bin spand-agent --bin quic --bin benefit --bin benefit-quic --bin wrong-shares
	./target/release/$(or $(filter wrong-shares,$(WHAT)),benefit$(addprefix -,$(WHAT))) $(ARGS)
endif

# Debian 11's kernel is older than what the agent's programs need; it may refuse them, in one sentence.
TRY_KERNELS := try --may-refuse bullseye

.PHONY: kernels
kernels: packages ## The product on the kernels of Debian 11, 12, 13 and sid, under qemu without KVM: docs/results/kernels.md; WHAT=lab: the lab's scenarios there
	@./scripts/packages $(KERNEL_PACKAGES)
ifeq ($(WHAT),lab)
	./scripts/kernels-lab $(ARGS)
else
	$(CARGO) build --release -p spand-tests --bin kernels
	$(or $(CARGO_TARGET_DIR),target)/release/kernels $(TRY_KERNELS) --page docs/results/kernels.md $(ARGS)
endif

.PHONY: kernels-short
# Whether the agent starts a connection on each of these kernels and leaves nothing, some minutes.
kernels-short: test-programs
	@./scripts/packages $(KERNEL_PACKAGES)
	$(or $(CARGO_TARGET_DIR),target)/debug/kernels $(TRY_KERNELS) --short $(ARGS)

.PHONY: papers
papers: packages ## The papers' experiments, in ns-2 or on this kernel, resumable: ARGS="--quick", "--only T1,T3" or "--kernel"
	@./scripts/packages $(NS_PACKAGES)
	$(CARGO) build --release --bin spand-oracle --bin papers --bin spand-gateway --bin spand-agent
	./target/release/papers $(ARGS)

.PHONY: cluster
cluster: packages ## Several gateways that share over real NATS servers: rates, times and faults; ARGS="--list", "--only cells" or "--quick"
	@./scripts/packages $(NATS_PACKAGES)
	$(CARGO) build --release -p spand-tests --bin cluster
	./target/release/cluster $(ARGS)

.PHONY: cases
cases: packages ## Record the small truth cases that are missing or named, and write their figures: ARGS="NAME" or ARGS="--write"
	@./scripts/packages $(KERNEL_PACKAGES)
	$(CARGO) build --release -p spand-tests --bin cases
	./target/release/cases $(ARGS)

.PHONY: bench
bench: packages ## What the product costs and how fast it is: ARGS="replay --extreme one-flow", ARGS="push --subscribers 100", ARGS=--help for all
	$(if $(findstring engines,$(ARGS)),@./scripts/packages tcptrace)
	$(CARGO) build --release --bin spand-gateway --bin spand-agent --bin bench
	$(or $(CARGO_TARGET_DIR),target)/release/bench $(or $(ARGS),replay)

.PHONY: bench-instructions
bench-instructions: packages ## What a packet costs in instructions, the same on a busy machine: fails above the limits in scripts/bench-instructions
	@CARGO="$(CARGO)" ./scripts/bench-instructions $(ARGS)

.PHONY: shares
shares: packages ## The share of every capture against what is recorded and the kernel's truth: ARGS="--record", "--only NAME --show"; WHAT=digests: fingerprints of all that the engine makes of them
	$(CARGO) run --bin $(if $(filter digests,$(WHAT)),digests,shares) -- $(ARGS)

.PHONY: fuzz
fuzz: packages ## Fuzz every target, resumable, until each had HOURS=1 of CPU: TARGETS="engine frames" for some; WHAT=smoke: ten seconds each; WHAT=coverage: lines reached
	./fuzz/run $(or $(WHAT),long) $(if $(filter smoke,$(WHAT)),10,$(if $(WHAT),,$(or $(HOURS),1)))

.PHONY: hostile
hostile: packages ## Floods of a million tuples in ten seconds beside real flows, and one peer's attacks on the listeners, and 100 kills of a store: docs/results/robustness.md
	$(CARGO) test --release -p spand-tests --test hostile -- --ignored --nocapture
	SPAND_ATTACK_SECONDS=10 $(CARGO) test --release -p spand-tests --test attacks
	SPAND_KILLS=100 $(CARGO) test --release -p spand-tests --test store_kill -- --nocapture

