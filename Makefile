# SPDX-License-Identifier: GPL-2.0-only
# Front door of the repository: each target hands over to `python3 -m lab`, which installs what is missing by itself.

PYTHON ?= python3
# The lab cannot say itself that there is no Python for it; 10 is its code for what a host lacks.
define LAB
python='$(PYTHON)'
lacks() { echo "make: $$1; the lab needs Python 3.11 or newer: apt-get install python3 (as root), or name one: make PYTHON=/path/to/python3" >&2; exit 10; }
command -v "$$python" >/dev/null || lacks "there is no $$python"
"$$python" -c 'import sys; sys.version_info >= (3, 11) or sys.exit(3); import argparse, ctypes, html' 2>/dev/null || case $$? in
3) lacks "$$python is $$("$$python" -V 2>&1 | head -n 1)" ;;
*) lacks "$$python does not work, or lacks parts of its own library" ;;
esac
exec env PYTHONPATH='$(CURDIR)' PYTHONDONTWRITEBYTECODE=1 "$$python" -m lab
endef
SCALE ?=
CASE ?=
MUTANT ?=
TEST ?=
PATCH ?=
TARGETS ?=
RUN ?=
FILE ?=
WALKS ?=
TLB_STANDS_FOR ?=
COALESCE ?=
# Where `make install` puts what `make build` made; as in GNU's Makefiles, DESTDIR is no part of the paths inside.
PREFIX ?= /usr/local
DESTDIR ?=
UNITDIR ?= $(PREFIX)/lib/systemd/system
DOCDIR ?= $(PREFIX)/share/doc/mthp_ext
PROGRAM ?= build/cargo/release/mthp_ext
export SERIES FLAVOUR SUITE AS_USER DIR BASE UPDATE DEBUG PREEMPT MINUTES SEED BOOT QUICK KERNEL_TARBALL KERNEL_URL MTHP_CACHE DATE

# With a shell of its own between make and the lab, Ctrl-C would reach both; `exec` leaves one process to stop.
.ONESHELL:
.SHELLFLAGS := -euc
.PHONY: help demo demo-stock bench bench-tlb test test-short test-debug test-systemd test-deb test-dkms test-machine test-kernel-deb test-kubernetes test-prometheus test-module soak-module mutants-module test-pud test-pud-policy clean-root publish bench-hook bench-khugepaged bench-pud soak debug-mutants setup build install deb oci kernel kernel-deb kernel-tree kernel-patches checkpatch config-matrix bisect mutants sparse same-text lint clean
.NOTPARALLEL:

help: ## show this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '  make %-16s %s\n' "$$name" "$$text"; done

demo: ## show `always` collapse under memory pressure and mthp_ext save it (SCALE=full: the proposal's size; KERNEL=6.12: as demo-stock)
	@$(LAB) demo $(if $(SCALE),--scale '$(SCALE)') $(if $(KERNEL),-- --stock '$(KERNEL)')

demo-stock: ## the same on a stock kernel of Debian's with the module; no kernel is built (KERNEL=6.12)
	@$(LAB) demo $(if $(SCALE),--scale '$(SCALE)') -- --stock '$(or $(KERNEL),newest)'

bench: ## the suite: all static settings and policies, judged by regret (SCENARIO= ARM= SCALE= MODE=; docs/internals/bench.md)
	@$(LAB) bench -- $(if $(SCENARIO),--scenario '$(SCENARIO)') $(if $(ARM),--arm '$(ARM)') $(if $(SCALE),--scale '$(SCALE)') $(if $(MODE),--mode '$(MODE)') $(if $(LRU),--lru '$(LRU)') $(if $(REPEAT),--repeat '$(REPEAT)') $(if $(WALKS),--walks '$(WALKS)') $(if $(TLB_STANDS_FOR),--tlb-stands-for '$(TLB_STANDS_FOR)') $(if $(COALESCE),--coalesce '$(COALESCE)')

test: ## the checks: linters, host unit tests, then the kernel selftests and end-to-end tests in a VM (TEST='e2e_keep mthp_psi': these)
	@$(LAB) test $(TEST)

test-short: ## linters, host unit tests, a sample of the demo and of the benchmark suite
	@$(LAB) test --only lint --only host --only sample

test-debug: ## the kernel selftests and a short soak on the kernel for debugging (builds it first; PREEMPT=full|rt)
	@$(LAB) test $(if $(filter rt,$(PREEMPT)),,--only soak) --only debug

test-systemd: ## the unit under systemd as PID 1, in a VM: start, watchdog, reload, stop, sandbox
	@$(LAB) test-systemd

test-module: ## the module on the stock kernels of Debian 13, in VMs: contract, refusals, cost, end-to-end tests (KERNEL=newest TEST=contract)
	@$(LAB) test-module $(if $(KERNEL),--kernel '$(KERNEL)') $(if $(TEST),--only '$(TEST)')

soak-module: ## the module with everything at once on two processors of the stock kernels (ROUNDS=10000 KERNEL=newest)
	@$(LAB) test-module $(if $(KERNEL),--kernel '$(KERNEL)') --soak '$(or $(ROUNDS),10000)'

mutants-module: ## break each rule of the module once; a named test of the contract must notice (MUTANT=leaf-first KERNEL=6.12)
	@$(LAB) test-module $(if $(KERNEL),--kernel '$(KERNEL)') --mutants $(MUTANT)

test-pud: ## 1 GiB pages: the kernel of the series pud and its selftest in a guest of 12 GiB (TEST=fork_cow: only that one; DEBUG=1: with KASAN and lockdep)
	@$(LAB) test-pud $(TEST)

test-pud-policy: ## 1 GiB pages under policies: a kernel of both series, in a guest of 12 GiB (TEST=limit: names with that)
	@$(LAB) test-pud-policy $(TEST)

test-deb: ## the Debian package: built twice, lintian; in a VM installed, upgraded, removed, purged
	@$(LAB) test-deb

test-dkms: ## the module's package under DKMS in a root of Debian 13: two kernels, upgraded, removed, purged
	@$(LAB) test-dkms

test-machine: ## a Debian 13 with its own kernel, in a VM: apt installs both packages, the service runs, Redis is served (KERNEL=newest)
	@$(LAB) test-machine $(if $(KERNEL),--kernel '$(KERNEL)')

test-kernel-deb: ## boot the packages of kernel-deb from a disk through its own boot loader; support, a policy, Redis
	@$(LAB) test-kernel-deb

test-kubernetes: ## manifests by schema and rules; the image under containerd with kubelet's cgroups, in a VM
	@$(LAB) test-kubernetes

test-prometheus: ## dashboard, alerts and recording rules in a real Prometheus, on pages served in a VM
	@$(LAB) test-prometheus

clean-root: ## targets in a clean Debian root, as a newcomer (SUITE=trixie TARGETS='demo test' AS_USER=1)
	@$(LAB) clean-root $(TARGETS)

publish: ## copy build/results of bench and demo to results/DATE, if they are whole (RUN=bench DATE=2026-11-22)
	@$(LAB) publish $(RUN)

bench-hook: ## instructions per page fault: unpatched kernel, nothing attached, each policy (builds a second kernel)
	@$(LAB) bench-hook

bench-tlb: ## page-table walks, faults, coverage and memory of your own program (FILE=PROGRAM or a directory; COALESCE=16K|64K)
	@$(LAB) bench-tlb $(if $(COALESCE),--coalesce '$(COALESCE)') $(if $(FILE),'$(FILE)')

bench-khugepaged: ## khugepaged's scan, here and on a stock kernel from before it was improved
	@$(LAB) bench-khugepaged

bench-pud: ## 1 GiB pages beside 2 MiB and 4 KiB: first touch, reads and writes of 4 GiB, splits, modelled walks
	@$(LAB) bench-pud

soak: ## everything at once on the kernel for debugging, then sums, leaks and silence (MINUTES=30 SEED=... PREEMPT=full; SERIES=pud: on the kernel of test-pud, with DEBUG=1 with KASAN and lockdep)
	@$(LAB) soak

debug-mutants: ## put use-after-frees and a leak into the kernel for debugging: is each of them seen?
	@$(LAB) debug-mutants

setup: ## install what the other targets need (they call it themselves)
	@$(LAB) setup

build: ## build the mthp_ext binary (build/cargo/release/mthp_ext)
	@$(LAB) build

install: ## install what `make build` made: binary, unit, configuration, manual, completion, policies (PREFIX=/usr/local DESTDIR=)
	@[ -x '$(PROGRAM)' ] || { echo "make: there is no $(PROGRAM) to install: make build, as the user who owns the checkout" >&2; exit 10; }
	case '$(PREFIX)' in /*) ;; *) echo "make: PREFIX=$(PREFIX) is no absolute path, and the unit needs one" >&2; exit 2 ;; esac
	to='$(DESTDIR)$(PREFIX)' doc='$(DESTDIR)$(DOCDIR)' config='$(DESTDIR)/etc/mthp_ext/config.toml' made=$$(mktemp -d)
	trap 'rm -r "$$made"' EXIT
	for shell in bash zsh fish; do '$(PROGRAM)' completions $$shell > "$$made/$$shell"; done
	mkdir "$$made/man"
	'$(PROGRAM)' man "$$made/man"
	sed 's|/usr/local/|$(PREFIX)/|' packaging/systemd/mthp_ext.service > "$$made/mthp_ext.service"
	sed -f packaging/systemd/slice.sed "$$made/mthp_ext.service" > "$$made/mthp_ext@.service"
	install -D -m 755 '$(PROGRAM)' "$$to/sbin/mthp_ext"
	install -D -m 644 -t '$(DESTDIR)$(UNITDIR)' "$$made"/*.service
	install -D -m 644 "$$made/bash" "$$to/share/bash-completion/completions/mthp_ext"
	install -D -m 644 "$$made/zsh" "$$to/share/zsh/site-functions/_mthp_ext"
	install -D -m 644 "$$made/fish" "$$to/share/fish/vendor_completions.d/mthp_ext.fish"
	install -D -m 644 -t "$$to/share/man/man8" "$$made"/man/*.8
	# One that is there may have been edited.
	[ -e "$$config" ] || install -D -m 644 packaging/etc/config.toml "$$config"
	install -D -m 644 -t "$$doc/policies" policies/*.toml
	install -D -m 644 -t "$$doc/grafana" packaging/grafana/*.json
	install -D -m 644 -t "$$doc/prometheus" packaging/prometheus/*.yml
	install -D -m 644 -t "$$doc/kubernetes" packaging/kubernetes/*
	for name in README.md site.yml $$(cd packaging/ansible && find roles -type f | sort); do
		install -D -m 644 "packaging/ansible/$$name" "$$doc/ansible/$$name"
	done

deb: ## build the Debian package for this machine's release (12 or 13) into build/deb/, and ask lintian
	@$(LAB) deb

oci: ## build a container image of the Debian package into build/oci/, as an OCI archive
	@$(LAB) oci

kernel: ## fetch, verify, patch and build the kernel (DEBUG=1: with KASAN, lockdep and their like; PREEMPT=full|rt; SERIES=pud)
	@$(LAB) kernel

kernel-deb: ## Debian packages of a kernel to boot: the series on Debian's configuration (an hour or more; FLAVOUR=cloud-amd64)
	@$(LAB) kernel-deb

kernel-tree: ## a git tree of the kernel with one commit per patch, to edit (DIR=... SERIES=pud)
	@$(LAB) kernel-tree

kernel-patches: ## write the commits of that tree back to kernel/series/ (DIR=... SERIES=pud)
	@$(LAB) kernel-patches

checkpatch: ## run the kernel's checkpatch.pl --strict over the series
	@$(LAB) checkpatch

config-matrix: ## compile what the series touches with options off, for arm64 and 32 bit (CASE=PSI, BOOT=1; SERIES=pud)
	@$(LAB) config-matrix $(CASE)

bisect: ## build and boot the series patch by patch (QUICK=1: only compile what it touches; PATCH=3)
	@$(LAB) bisect $(PATCH)

mutants: ## break each rule of the contract once; a named test must notice (MUTANT=leaf-only: only that one; SERIES=pud)
	@$(LAB) mutants $(MUTANT)

sparse: ## run sparse over what the series touches, against the same without the series (SERIES=pud)
	@$(LAB) sparse

same-text: ## the series pud: is the code of hot paths what it was where CONFIG_ANON_PUD_THP is off
	@$(LAB) same-text

lint: ## only the linters
	@$(LAB) lint

clean: ## remove build/ (the cache outside the checkout stays; `make clean` prints where it is)
	@$(LAB) clean
