# SPDX-License-Identifier: GPL-2.0-only
"""Runs the suites, shows what failed, writes build/results/test.json."""

import sys
import threading
import time

from lab import results, setup
from lab.checks import bench, checkpatch, cost, debug, demo, guest, host, soak, tlb
from lab.checks import lint as linters
from lab.checks.result import Status, Suite, total
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.kernel.build import Kernel
from lab.paths import REPO, documents
from lab.vm import accel

_DETAIL_LINES = 30
_print_lock = threading.Lock()
PARTS = ("lint", "host", "vm", "sample", "kernel", "soak", "debug")
_PREEMPTED = ("kernel", "soak", "debug")
"""Those that can be run on a kernel with another model of preemption."""
_USUAL = ("lint", "host", "vm")
"""Without the kernel for debugging, which takes as long to build as all the rest: `make test-debug`."""
_SAMPLE = ("memcached/none", "mixed/host", "kernbench/none")
"""Cases of the benchmark suite that a sample of `vm` has: among them memcached, Redis, Python and gcc."""


def _show(suite: Suite) -> None:
    """One line for the suite, and each failure and skip with its reason."""
    with _print_lock:
        counts = ", ".join(f"{suite.count(status)} {status}" for status in Status if suite.count(status))
        print(f"{suite.name}: {counts} ({suite.seconds:.1f} s)")
        for test in suite.tests:
            if test.status is Status.PASSED:
                continue
            print(f"  {test.status.upper()} {suite.name} {test.name}")
            for line in test.detail.splitlines()[-_DETAIL_LINES:]:
                print(f"    {line}")
        if suite.count(Status.FAILED):
            for log in suite.logs:
                print(f"  log: {log}")
        sys.stdout.flush()


def _part(name: str, suites: list[Suite], error: LabError) -> None:
    """A part that could not be run counts as a failure, and the others still run."""
    suite = Suite(name)
    suite.fail("(could not be run)", str(error))
    suites.append(suite)
    _show(suite)


def _lint(suites: list[Suite]) -> None:
    print("test: linters", flush=True)
    suite = linters.run()
    _show(suite)
    suites.append(suite)


def _host(suites: list[Suite], rust: list[host.RustTest]) -> None:
    print("test: unit tests on the host", flush=True)
    for suite in [host.python_tests(), *host.rust_tests(rust)]:
        _show(suite)
        suites.append(suite)


def _checkpatch(suites: list[Suite]) -> None:
    begin = time.monotonic()
    suite = Suite("kernel/checkpatch")
    for name, text in checkpatch.complaints().items():
        suite.check(name, not text, text)
    suite.seconds = time.monotonic() - begin
    _show(suite)
    suites.append(suite)


def _vm(suites: list[Suite], rust: list[host.RustTest]) -> tuple[Kernel, str]:
    kernel = build.ensure()
    _checkpatch(suites)
    mode, why = accel.of(kernel)
    print(f"test: in guests, {mode} ({why})", flush=True)
    suites += guest.run(kernel, rust, mode, _show)
    print("test: the cost of a call", flush=True)
    smallest = cost.run(kernel)
    _show(smallest)
    suites.append(smallest)
    print("test: the TLB model", flush=True)
    checked = tlb.run(kernel)
    _show(checked)
    suites.append(checked)
    print("test: the demo at its smallest", flush=True)
    smallest = demo.run(kernel)
    _show(smallest)
    suites.append(smallest)
    print("test: every case of the benchmark suite at its smallest", flush=True)
    smallest = bench.run(kernel)
    _show(smallest)
    suites.append(smallest)
    return kernel, mode


def _sample(suites: list[Suite]) -> Kernel:
    """What differs between Debian's releases: Redis, the other programs of the suite, QEMU, the compilers."""
    kernel = build.ensure()
    print("test: the TLB model, a sample of the demo and of the benchmark suite", flush=True)
    for suite in (tlb.run(kernel), demo.run(kernel), bench.run(kernel, _SAMPLE)):
        _show(suite)
        suites.append(suite)
    return kernel


def _kernel(suites: list[Suite], preempt: str) -> tuple[Kernel, str]:
    """The selftests of the series alone."""
    kernel = build.ensure(variant=build.preempted(build.DEFAULT, preempt))
    mode, why = accel.of(kernel)
    print(f"test: the kernel selftests, {mode} ({why})", flush=True)
    suites += guest.run_selftests(kernel, mode, _show)
    return kernel, mode


def _debug(suites: list[Suite], parts: list[str], preempt: str) -> None:
    if preempt == "rt" and "soak" in parts:
        raise LabError(Exit.USAGE, soak.NOTHING_TO_SOAK)
    kernel = build.ensure(variant=build.preempted(build.DEBUG, preempt))
    mode, why = accel.of(kernel)
    print(f"test: on the kernel for debugging, {mode} ({why})", flush=True)
    suites += debug.run(kernel, mode, "debug" in parts, "soak" in parts, _show)


def _check_parts(parts: list[str], preempt: str) -> None:
    for part in parts:
        if part not in PARTS:
            raise LabError(Exit.USAGE, f"there is no part {part!r}; there are: {', '.join(PARTS)}")
        if preempt and part not in _PREEMPTED:
            there = ", ".join(_PREEMPTED)
            raise LabError(
                Exit.USAGE, f"part {part} is for the usual kernel; with PREEMPT={preempt} there are: {there}"
            )
    if preempt:
        build.preempted(build.DEFAULT, preempt)


def test(only: list[str] | None = None, preempt: str = "") -> int:
    """The usual parts (or `only` some of PARTS); 1 if a test failed or none ran. `preempt`: on a kernel with that
    model of preemption."""
    parts = only or list(_USUAL)
    _check_parts(parts, preempt)
    need = setup.Need.PROGRAM
    need |= setup.Need.LINT if "lint" in parts else setup.Need(0)
    need |= setup.Need.BENCH if {"vm", "sample"} & set(parts) else setup.Need(0)
    need |= setup.Need.KERNEL | setup.Need.VM if set(_PREEMPTED) & set(parts) else setup.Need(0)
    setup.ensure(need)
    suites: list[Suite] = []
    kernel: Kernel | None = None
    mode = "none"
    if "lint" in parts:
        try:
            _lint(suites)
        except LabError as error:
            _part("linters", suites, error)
    try:
        rust = host.build_rust_tests()
    except LabError as error:
        _part("rust", suites, error)
        rust = []
    in_guest = [one for one in rust if one.integration and one.name.startswith("e2e")]
    if "host" in parts:
        try:
            _host(suites, [one for one in rust if one not in in_guest])
        except LabError as error:
            _part("host", suites, error)
    if "vm" in parts:
        try:
            kernel, mode = _vm(suites, in_guest)
        except LabError as error:
            _part("vm", suites, error)
    if "sample" in parts:
        try:
            kernel, mode = _sample(suites), "icount"
        except LabError as error:
            _part("sample", suites, error)
    if "kernel" in parts:
        try:
            kernel, mode = _kernel(suites, preempt)
        except LabError as error:
            _part("kernel", suites, error)
    if "debug" in parts or "soak" in parts:
        try:
            _debug(suites, parts, preempt)
        except LabError as error:
            _part("debug", suites, error)
    return _close(suites, kernel, mode)


def _close(suites: list[Suite], kernel: Kernel | None, mode: str) -> int:
    failed = sum(suite.count(Status.FAILED) for suite in suites)
    ran = sum(len(suite.tests) for suite in suites) - sum(suite.count(Status.SKIPPED) for suite in suites)
    metrics = {
        suite.name: {"seconds": round(suite.seconds, 2), **{status.value: suite.count(status) for status in Status}}
        for suite in suites
    }
    gates = [results.gate("tests failed", failed, "== 0"), results.gate("tests run", ran, ">= 1")]
    release = kernel.release if kernel else None
    path = results.write("test", results.environment(release, mode), metrics, gates)
    print(f"results: {path}")
    print(total(suites), flush=True)
    return Exit.OK if all(gate.ok for gate in gates) else Exit.TESTS


def docs(pages: list[str]) -> int:
    """The commands of these pages, on the host and in a guest; 1 if one does not do what its page shows."""
    known = {str(page.relative_to(REPO)) for page in documents()}
    for page in pages:
        if page not in known:
            raise LabError(Exit.USAGE, f"there is no page {page!r}; name it by its path from the top of the checkout")
    setup.ensure(setup.Need.DEMO)
    rust = {test.name: test for test in host.build_rust_tests()}
    suites = [host.pages(rust["docs"], pages)]
    _show(suites[0])
    if any("```console guest" in (REPO / page).read_text() for page in pages):
        kernel = build.ensure()
        mode, why = accel.of(kernel)
        print(f"docs: in a guest, {mode} ({why})", flush=True)
        suites.append(guest.pages(kernel, rust[guest.PAGES], mode, pages))
        _show(suites[1])
    print(total(suites))
    return Exit.TESTS if any(suite.count(Status.FAILED) for suite in suites) else Exit.OK


def lint() -> int:
    """Only the linters."""
    setup.ensure(setup.Need.PROGRAM | setup.Need.LINT)
    suites: list[Suite] = []
    _lint(suites)
    print(total(suites))
    return Exit.TESTS if suites[0].count(Status.FAILED) else Exit.OK
