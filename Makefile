# Everything that builds, tests and measures Tailscope. `make help` lists it.
# On a fresh Debian 12: `make demo` and `make test`, with nothing installed by hand.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

STAMPS := target/make
VENV := .venv
PYTHON := $(VENV)/bin/python
TAILSCOPE := target/release/tailscope

# The binary runs where it is copied to, whatever that machine's libc. Only the last compilation step
# knows that it is linked statically, so it shares every dependency with a plain `cargo build`, and
# build scripts and procedural macros, which can't be static, never see the flag.
STATIC := -C target-feature=+crt-static

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Make reads the chosen toolchain as a makefile of one line, and makes it first where it is missing.
ifneq ($(filter-out help clean,$(or $(MAKECMDGOALS),help)),)
include $(STAMPS)/toolchain.mk
endif

$(STAMPS)/toolchain.mk: scripts/setup Cargo.toml
	@mkdir -p $(@D)
	@scripts/setup $(STAMPS)/toolchain
	@echo 'export PATH := $(CURDIR)/$(VENV)/bin:'"$$(<$(STAMPS)/toolchain)"':$$(PATH)' >$@

.PHONY: setup
setup: $(STAMPS)/toolchain.mk $(VENV)/.installed ## install what building and testing need
	@:

LOCKS := $(wildcard python/requirements.lock python/requirements-dev.lock)

# The system's interpreter where there is one: it is the one Debian keeps.
$(VENV)/bin/python:
	@echo "setup: making $(VENV)" >&2
	@python=/usr/bin/python3; [[ -x $$python ]] || python=python3; $$python -m venv $(VENV)

$(VENV)/.installed: $(LOCKS) | $(VENV)/bin/python $(STAMPS)/toolchain.mk
	@echo "setup: installing $(LOCKS) into $(VENV)" >&2
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check $(addprefix -r ,$(LOCKS))
	@touch $@

# Spark (470 MB), notebooks' tools, Java and a browser are for tests only, so building and the demo don't wait for them.
$(VENV)/.for-tests: python/requirements-extras.lock scripts/setup $(VENV)/.installed
	@scripts/setup --for-tests
	@echo "setup: installing $< into $(VENV)" >&2
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

.PHONY: build
build: tailscope lab sdk $(VENV)/.wheel $(VENV)/.pages ## build the tailscope binary, its Python part and the lab

# Cargo knows best what is new, so it always runs; what hangs on its result looks at the file's date.
.PHONY: tailscope
tailscope: $(STAMPS)/toolchain.mk
	cargo rustc --release --locked --quiet --package tailscope --bin tailscope -- $(STATIC)

$(TAILSCOPE): tailscope

$(VENV)/.wheel: $(TAILSCOPE) pyproject.toml $(shell find python -name '*.py' -o -name '*.html' -o -name '*.js' -o -name '*.css' -o -name '*.j2') $(VENV)/.installed
	rm -rf target/wheels
	$(VENV)/bin/maturin build --quiet --release --locked --out target/wheels -- $(STATIC)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall target/wheels/*.whl
	@touch $@

# Man pages and completions, where `man` finds them once .venv/bin is on the PATH.
$(VENV)/.pages: packaging/describe.py $(VENV)/.wheel
	$(PYTHON) $< | $(TAILSCOPE) generate $(VENV)/share
	@touch $@

.PHONY: deb
deb: build ## a Debian package: target/deb/tailscope_VERSION_ARCHITECTURE.deb
	packaging/build-deb target/deb

.PHONY: lab
lab: tailscope
	cargo build --release --locked --quiet --package tailscope-lab
	$(MAKE) --no-print-directory --silent -C lab/c

.PHONY: sdk
sdk: tailscope
	cargo build --release --locked --quiet --package tailscope-sdk --examples

JAR := target/java/tailscope.jar
ZOOKEEPER := /usr/share/java/zookeeper.jar /usr/share/java/zookeeper-jute.jar

.PHONY: sdk-java
sdk-java: $(JAR) ## build the SDK for Java: target/java/tailscope.jar

$(JAR): sdk/java/build $(shell find sdk/java/src -name '*.java') | $(VENV)/.for-tests
	@mkdir -p $(@D)
	$(PYTHON) sdk/java/build $@

target/java/tests/.made: $(JAR) $(wildcard tests/java/*.java)
	$(PYTHON) sdk/java/build $(JAR) tests/java $(@D) $(ZOOKEEPER)
	@touch $@

.PHONY: demo-guard
demo-guard: build target/java/tests/.made ## the same load without and with guard, while replicas pause; two minutes
	$(PYTHON) bench/guard_hazards.py --rounds 8 --picture demo/guard.svg

.PHONY: demo
demo: build ## a recorded, explained tail in about two minutes
	scripts/demo

.PHONY: test
test: build $(VENV)/.for-tests target/java/tests/.made ## everything: format, lints, and the tests of all languages; the last line sums up
	@scripts/setup --guests amd64
	@scripts/run-tests lint rust e2e-measured e2e-others+c+python+guests

.PHONY: lint
lint: setup ## check format, lints, spelling, links and words
	@scripts/run-tests lint

.PHONY: test-rust
test-rust: setup ## the Rust crates' tests
	@scripts/run-tests rust

.PHONY: test-c
test-c: setup ## the C SDK's tests
	@scripts/run-tests c

.PHONY: test-python
test-python: build $(VENV)/.for-tests ## the Python part's tests
	@scripts/run-tests python

.PHONY: test-e2e
test-e2e: build target/java/tests/.made ## the tests through the command line
	@scripts/run-tests e2e

.PHONY: test-more
test-more: build $(VENV)/.for-tests target/java/tests/.made ## the tests that take minutes and that make test leaves out
	@scripts/setup --for-packages
	@scripts/run-tests more

GUESTS ?= all

.PHONY: test-guests
test-guests: build $(VENV)/.for-tests ## the recorder on other kernels, emulated: all guests, or GUESTS="6.1 7.2"
	@scripts/setup --guests amd64 arm64
	@GUESTS="$(GUESTS)" scripts/run-tests guests

FUZZ_SECONDS ?= 60

.PHONY: fuzz
fuzz: build ## fuzz every input that others control, each for FUZZ_SECONDS; FUZZ="elf window" chooses
	fuzz/run $(FUZZ_SECONDS) $(FUZZ)
	$(PYTHON) fuzz/ledgers.py $(FUZZ_SECONDS)

.PHONY: format
format: setup ## rewrite the sources in this repository's format
	cargo fmt --all
	git ls-files -z '*.c' '*.h' | xargs -0 --no-run-if-empty clang-format -i
	ruff check --fix --quiet . && ruff format --quiet .

.PHONY: bench
bench: build sdk-java ## measure what recording costs, side by side
	cargo build --release --locked --quiet --package tailscope-kernel --example empty_uprobes
	bench/run

$(STAMPS)/for-proof: scripts/setup
	@scripts/setup --for-proof
	@touch $@

.PHONY: java
java: target/lab/java/HttpBench.class

target/lab/java/%.class: lab/java/%.java | $(STAMPS)/for-proof
	@mkdir -p $(@D)
	javac -XDignore.symbol.file -d $(@D) $<

LUCENE := target/lucene

.PHONY: search
search: build target/lab/search/Search.class ## the lab's search server, with Lucene from Maven Central, for bench/timeline_hazards.py

$(LUCENE)/.fetched: lab/search/fetch lab/search/ivy.xml lab/search/SHA256SUMS | $(STAMPS)/for-proof
	lab/search/fetch $(@D)
	@touch $@

target/lab/search/Search.class: $(wildcard lab/search/*.java) $(LUCENE)/.fetched
	@mkdir -p $(@D)
	javac -XDignore.symbol.file -Werror -Xlint:all,-try -cp '$(LUCENE)/*' -d $(@D) lab/search/*.java

.PHONY: proof
proof: build $(STAMPS)/for-proof java ## faults planted in real servers: are they found, and priced right; PROOF="--help"
	@PYTHONPATH=lab $(PYTHON) -m proof $(PROOF)

DOCS_VENV := target/docs-venv

# An environment of its own: what builds the site must not change what explain runs on.
$(DOCS_VENV)/.installed: python/requirements-docs.lock
	@echo "setup: installing $< into $(DOCS_VENV)" >&2
	@python=/usr/bin/python3; [[ -x $$python ]] || python=python3; $$python -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

.PHONY: docs
docs: $(VENV)/.wheel $(DOCS_VENV)/.installed ## the documentation as a site with search: target/docs/index.html
	@$(PYTHON) scripts/docs-site $(DOCS_VENV)/bin/mkdocs $(VENV)/bin/tailscope

.PHONY: clean
clean: ## remove what was built, and the Python environment
	rm -rf target $(VENV) dist
