# SPDX-License-Identifier: GPL-2.0-only
# Front door of the repository: each target hands over to `python3 -m lab`, which installs what is missing by itself.

PYTHON ?= python3
LAB := env PYTHONPATH='$(CURDIR)' PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m lab
SCALE ?=
CASE ?=
MUTANT ?=
PATCH ?=
TARGETS ?=
RUN ?=
export SUITE AS_USER DIR BASE UPDATE DEBUG MINUTES SEED BOOT QUICK KERNEL_TARBALL KERNEL_URL MTHP_CACHE DATE

# With a shell of its own between make and the lab, Ctrl-C would reach both; `exec` leaves one process to stop.
.ONESHELL:
.SHELLFLAGS := -euc
.PHONY: $(shell sed -n 's/^\([a-z][a-z-]*\):.*##.*/\1/p' Makefile)
.NOTPARALLEL:

help: ## show this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '  make %-16s %s\n' "$$name" "$$text"; done

demo: ## show `always` collapse under memory pressure and mthp_ext save it (SCALE=full: the proposal's size)
	@exec $(LAB) demo $(if $(SCALE),--scale $(SCALE))

bench: ## the suite: all static settings and policies, judged by regret (SCENARIO= ARM= SCALE= MODE=; docs/internals/bench.md)
	@exec $(LAB) bench -- $(if $(SCENARIO),--scenario '$(SCENARIO)') $(if $(ARM),--arm '$(ARM)') $(if $(SCALE),--scale '$(SCALE)') $(if $(MODE),--mode '$(MODE)') $(if $(LRU),--lru '$(LRU)') $(if $(REPEAT),--repeat '$(REPEAT)')

test: ## all checks: linters, host unit tests, then the kernel selftests and end-to-end tests in a VM
	@exec $(LAB) test

test-short: ## linters, host unit tests, a sample of the demo and of the benchmark suite
	@exec $(LAB) test --only lint --only host --only sample

test-debug: ## the kernel selftests and a short soak on the kernel for debugging (builds it first)
	@exec $(LAB) test --only soak --only debug

clean-root: ## targets in a clean Debian root, as a newcomer (SUITE=trixie TARGETS='demo test' AS_USER=1)
	@exec $(LAB) clean-root $(TARGETS)

publish: ## copy build/results of bench and demo to results/DATE, if they are whole (RUN=bench DATE=2026-11-22)
	@exec $(LAB) publish $(RUN)

bench-hook: ## instructions per page fault: unpatched kernel, nothing attached, each policy (builds a second kernel)
	@exec $(LAB) bench-hook

bench-khugepaged: ## khugepaged's scan, here and on a stock kernel from before it was improved
	@exec $(LAB) bench-khugepaged

soak: ## everything at once on the kernel for debugging, then sums, leaks and silence (MINUTES=30 SEED=...)
	@exec $(LAB) soak

debug-mutants: ## put use-after-frees and a leak into the kernel for debugging: is each of them seen?
	@exec $(LAB) debug-mutants

setup: ## install what the other targets need (they call it themselves)
	@exec $(LAB) setup

build: ## build the mthp_ext binary (build/cargo/release/mthp_ext)
	@exec $(LAB) build

kernel: ## fetch, verify, patch and build the kernel (DEBUG=1: with KASAN, lockdep and their like)
	@exec $(LAB) kernel

kernel-tree: ## a git tree of the kernel with one commit per patch, to edit (DIR=...)
	@exec $(LAB) kernel-tree

kernel-patches: ## write the commits of that tree back to kernel/patches/ (DIR=...)
	@exec $(LAB) kernel-patches

checkpatch: ## run the kernel's checkpatch.pl --strict over the series
	@exec $(LAB) checkpatch

config-matrix: ## compile what the series touches with options off, for arm64 and 32 bit (CASE=PSI, BOOT=1)
	@exec $(LAB) config-matrix $(CASE)

bisect: ## build and boot the series patch by patch (QUICK=1: only compile what it touches; PATCH=3)
	@exec $(LAB) bisect $(PATCH)

mutants: ## break each rule of the contract once; a named test must notice (MUTANT=leaf-only: only that one)
	@exec $(LAB) mutants $(MUTANT)

sparse: ## run sparse over what the series touches, against the same without the series
	@exec $(LAB) sparse

lint: ## only the linters
	@exec $(LAB) lint

clean: ## remove build/ (the cache outside the checkout stays; `make clean` prints where it is)
	@exec $(LAB) clean
