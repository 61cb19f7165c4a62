# weir: `make demo-single` and `make demo` show it working, `make test` proves it. All install what they need.

CARGO ?= cargo
SHELL := /bin/bash

.PHONY: demo-single demo failover soak log-proof test fuzz bench gate deps fmt lint build help

help:
	@echo 'make demo-single   homes, one weir node and an internet with real servers: half a minute'
	@echo '                   (KEEP=1 leaves them running)'
	@echo 'make demo          a cluster under load loses its nodes, and a table tells what homes saw:'
	@echo '                   12 minutes (KEEP=1: no faults; up in 15 seconds, runs until Ctrl-C)'
	@echo 'make failover      some faults many times: RUNS=5 EVENTS="kill silence" FRR=1 NODES=3;'
	@echo '                   SHARDS=1000 a node, TABLES=22000000 flows a node, HUGE=1 on huge pages,'
	@echo '                   COMMIT=release or drop, QUARANTINE=10 seconds (docs/failover.md)'
	@echo 'make soak          faults drawn from a seed for half an hour:'
	@echo '                   MINUTES=30 SEED=1 COMMIT=release FRR=1 LOGS=1'
	@echo 'make log-proof     half an hour of faults, then the block logs are asked who had what a server'
	@echo '                   saw: MINUTES=30 SEED=1 PER_SEC=6000 flows a second, QUESTIONS=600'
	@echo 'make build   weir-node and weir-lab for x86-64-v3, weir for any x86-64, in target/release'
	@echo 'make test    every test: unit, property, differential, fuzz, end to end in namespaces'
	@echo 'make fuzz    ten million random inputs for every fuzz target: INPUTS=10000000 ONLY=pattern (hours; tools/fuzz/README.md)'
	@echo 'make gate    instructions per packet, counted by valgrind, and their limits'
	@echo 'make bench   packets per second beside raw DPDK forwarding and Linux NAT (SHORT=1: under five minutes; ONLY=name,... ROUNDS=n SECONDS_EACH=s)'
	@echo 'make deps    install the Debian packages that building and testing need'
	@echo 'make fmt     format the sources          make lint    clippy, formatting, no warnings'

gate: deps
	$(CARGO) run --release --locked -p weir-gate

deps:
	@packaging/deps.sh

# weir, the commands and the controller, runs on any x86-64: it is built apart from the others, which are for x86-64-v3
# (.cargo/config.toml), and lies beside them.
build: deps
	$(CARGO) build --release --locked -p weir-node -p weir-lab
	RUSTFLAGS='-C target-cpu=x86-64' $(CARGO) build --release --locked -p weir --target-dir target/portable
	@ln -f target/portable/release/weir target/release/weir

demo-single: build
	@target/release/demo_single

demo: build
	@target/release/demo

failover: build
	@target/release/demo $(EVENTS) --runs $(or $(RUNS),3) --no-control $(if $(FRR),--frr) \
	  $(if $(NODES),--nodes $(NODES)) $(if $(SHARDS),--shards $(SHARDS)) \
	  $(if $(TABLES),--tables $(TABLES)) $(if $(HUGE),--huge-pages) $(if $(COMMIT),--commit=$(COMMIT)) $(if $(QUARANTINE),--quarantine $(QUARANTINE)) \
	  $(if $(LOGS),--logs)

soak: build
	@target/release/soak --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED)) $(if $(FRR),--frr) \
	  $(if $(NODES),--nodes $(NODES)) $(if $(COMMIT),--commit=$(COMMIT)) $(if $(LOGS),--logs)

log-proof: build
	@target/release/log_proof --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED)) \
	  $(if $(PER_SEC),--per-sec $(PER_SEC)) $(if $(QUESTIONS),--questions $(QUESTIONS))

test: deps
	$(CARGO) test --locked --workspace --no-fail-fast

fuzz: deps
	@CARGO='$(CARGO)' INPUTS='$(INPUTS)' ONLY='$(ONLY)' tools/fuzz/run.sh

bench: build
	@target/release/weir-lab traffic bench $(if $(SHORT),--short) $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS_EACH),--seconds $(SECONDS_EACH))

fmt:
	$(CARGO) fmt --all

lint: deps
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
