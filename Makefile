# weir: `make demo` shows it working, `make test` proves it. Both install what they need.

CARGO ?= cargo
SHELL := /bin/bash

.PHONY: demo test bench gate deps fmt lint build help

help:
	@echo 'make demo    homes, a weir worker and an internet in network namespaces (KEEP=1 leaves them running)'
	@echo 'make test    every test: unit, property, differential, fuzz, end to end in namespaces'
	@echo 'make gate    instructions per packet, counted by valgrind, and their limits'
	@echo 'make bench   packets per second beside raw DPDK forwarding and Linux NAT (SHORT=1: under five minutes; ONLY=name,...)'
	@echo 'make deps    install the Debian packages that building and testing need'
	@echo 'make fmt     format the sources          make lint    clippy, formatting, no warnings'

gate: deps
	$(CARGO) run --release --locked -p weir-gate

deps:
	@packaging/deps.sh

build: deps
	$(CARGO) build --release --locked -p weir -p weir-lab

demo: build
	@target/release/demo

test: deps
	$(CARGO) build --locked -p weir
	$(CARGO) test --locked --workspace --no-fail-fast

bench: build
	@target/release/weir traffic bench $(if $(SHORT),--short) $(if $(ONLY),--only $(ONLY))

fmt:
	$(CARGO) fmt --all

lint: deps
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
