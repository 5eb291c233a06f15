# SPDX-License-Identifier: GPL-2.0-only
"""Runs the suites, shows what failed, writes build/results/test.json."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial

from lab import proc, results, setup
from lab.checks import bench, checkpatch, cost, debug, demo, guest, host, module, soak, tlb
from lab.checks import lint as linters
from lab.checks.result import Status, Suite, total
from lab.errors import Exit, LabError
from lab.kernel import build, series
from lab.kernel.build import Kernel
from lab.paths import REPO, documents
from lab.vm import accel

_DETAIL_LINES = 30
PARTS = ("lint", "host", "vm", "sample", "kernel", "soak", "debug")
_PREEMPTED = ("kernel", "soak", "debug")
"""Those that can be run on a kernel with another model of preemption."""
_USUAL = ("lint", "host", "vm")
"""Without the kernel for debugging, which takes as long to build as all the rest: `make test-debug`."""
_SAMPLE = ("memcached/none", "mixed/host", "kernbench/none")
"""Cases of the benchmark suite that a sample of `vm` has: among them memcached, Redis, Python and gcc."""


class _Report:
    """The suites that have ended, each shown when it does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.suites: list[Suite] = []

    def add(self, suite: Suite) -> None:
        """Shows one line for the suite, and each failure and skip with its reason; from any thread."""
        counts = ", ".join(f"{suite.count(status)} {status}" for status in Status if suite.count(status))
        with self._lock:
            self.suites.append(suite)
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

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part that could not be run counts as a failure, and the others still run."""
        try:
            yield
        except LabError as error:
            suite = Suite(name)
            suite.fail("(could not be run)", str(error))
            self.add(suite)

    @contextmanager
    def beside(self, name: str, check: Callable[[], Suite]) -> Iterator[None]:
        """`check` is run beside what the block does, which then waits for it."""

        def run() -> None:
            with self.part(name):
                self.add(check())

        with ThreadPoolExecutor(max_workers=1) as pool:
            future = pool.submit(run)
            try:
                yield
                future.result()
            except BaseException:
                # The pool waits for its thread, and the thread for its program.
                proc.stop_all()
                raise

    def end(self) -> Exit:
        """The closing line; whether all passed."""
        print(total(self.suites))
        return Exit.TESTS if any(suite.count(Status.FAILED) for suite in self.suites) else Exit.OK


def _head(text: str) -> None:
    print(f"test: {text}", flush=True)


def _lint(report: _Report) -> None:
    _head("linters")
    report.add(linters.run())


def _host(report: _Report, rust: list[host.RustTest]) -> None:
    _head("unit tests on the host")
    for suite in host.rust_tests(rust):
        report.add(suite)


def _checkpatch() -> Suite:
    begin = time.monotonic()
    suite = Suite("kernel/checkpatch")
    names = [*series.every(), *series.joints(series.every())]
    for name, text in ((name, text) for one in names for name, text in checkpatch.complaints(one).items()):
        suite.check(name, not text, text)
    suite.seconds = time.monotonic() - begin
    return suite


def _only(check: Callable[[], Suite]) -> list[Suite]:
    return [check()]


def _vm(report: _Report, rust: list[host.RustTest]) -> tuple[Kernel, str]:
    kernel = build.ensure()
    mode, why = accel.of(kernel)
    _head(f"in guests, {mode} ({why}), then every case of the benchmark suite at its smallest")
    # checkpatch keeps one processor busy for a while, as a guest does. The model takes longer than most guests.
    single: list[Callable[[], Suite]] = [
        _checkpatch,
        *(partial(check, kernel) for check in (tlb.run, cost.run, demo.run)),
    ]
    others: list[Callable[[], list[Suite]]] = [partial(module.gate, name) for name in module.KERNELS]
    others += [partial(_only, check) for check in single]
    # Cells of the suite are many and short: they follow without a pause, and none is alone for long at the end.
    guest.run(kernel, rust, mode, report.add, others, bench.parts(kernel))
    return kernel, mode


def _sample(report: _Report) -> Kernel:
    """What differs between Debian's releases: Redis, the other programs of the suite, QEMU, and the kernel's compiler
    unless one was lent."""
    kernel = build.lent() or build.ensure()
    _head("the TLB model, a sample of the demo and of the benchmark suite")
    for check in (tlb.run, demo.run, partial(bench.run, only=_SAMPLE)):
        report.add(check(kernel))
    return kernel


def _kernel(report: _Report, preempt: str) -> tuple[Kernel, str]:
    """The selftests of the series alone."""
    kernel = build.ensure(variant=build.preempted(build.DEFAULT, preempt))
    mode, why = accel.of(kernel)
    _head(f"the kernel selftests, {mode} ({why})")
    guest.run_selftests(kernel, mode, report.add)
    return kernel, mode


def _debug(report: _Report, parts: list[str], preempt: str) -> None:
    if preempt == "rt" and "soak" in parts:
        raise LabError(Exit.USAGE, soak.NOTHING_TO_SOAK)
    kernel = build.ensure(variant=build.preempted(build.DEBUG, preempt))
    mode, why = accel.of(kernel)
    _head(f"on the kernel for debugging, {mode} ({why})")
    debug.run(kernel, mode, "debug" in parts, "soak" in parts, report.add)


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
    report = _Report()
    kernel: Kernel | None = None
    mode = "none"
    rust: list[host.RustTest] = []
    in_guest: list[host.RustTest] = []
    # The lab's own tests mostly wait, for programs that they let hang.
    with report.beside("lab", host.python_tests) if "host" in parts else nullcontext():
        if "lint" in parts:
            with report.part("linters"):
                _lint(report)
        with report.part("rust"):
            rust = host.build_rust_tests()
            rust = [one for one in rust if one.name != guest.PUD]
            in_guest = [one for one in rust if one.integration and one.name.startswith("e2e")]
        if "host" in parts:
            with report.part("host"):
                _host(report, [one for one in rust if one not in in_guest])
    if "vm" in parts:
        with report.part("vm"):
            kernel, mode = _vm(report, in_guest)
    if "sample" in parts:
        with report.part("sample"):
            kernel, mode = _sample(report), "icount"
    if "kernel" in parts:
        with report.part("kernel"):
            kernel, mode = _kernel(report, preempt)
    if "debug" in parts or "soak" in parts:
        with report.part("debug"):
            _debug(report, parts, preempt)
    return _close(report.suites, kernel, mode)


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


def named(wanted: list[str]) -> int:
    """Only these programs, in their guests; 1 if a test failed."""
    only = guest.check_names(wanted, guest.names())
    e2e = sorted({name.partition("-")[0] for name in only if name.startswith("e2e")})
    need = setup.Need.DEMO if guest.PAGES in e2e else setup.Need.PROGRAM | setup.Need.KERNEL | setup.Need.VM
    setup.ensure(need)
    rust = host.build_rust_tests(e2e) if e2e else []
    kernel = build.ensure()
    mode, why = accel.of(kernel)
    _head(f"{', '.join(only)} in guests, {mode} ({why})")
    report = _Report()
    guest.run_named(kernel, rust, mode, report.add, only)
    return report.end()


def docs(pages: list[str]) -> int:
    """The commands of these pages, on the host and in a guest; 1 if one does not do what its page shows."""
    known = {str(page.relative_to(REPO)) for page in documents()}
    for page in pages:
        if page not in known:
            raise LabError(Exit.USAGE, f"there is no page {page!r}; name it by its path from the top of the checkout")
    setup.ensure(setup.Need.DEMO)
    rust = {test.name: test for test in host.build_rust_tests()}
    report = _Report()
    report.add(host.pages(rust["docs"], pages))
    if any("```console guest" in (REPO / page).read_text() for page in pages):
        kernel = build.ensure()
        mode, why = accel.of(kernel)
        print(f"docs: in a guest, {mode} ({why})", flush=True)
        report.add(guest.pages(kernel, rust[guest.PAGES], mode, pages))
    return report.end()


def lint() -> int:
    """Only the linters."""
    setup.ensure(setup.Need.PROGRAM | setup.Need.LINT)
    report = _Report()
    _lint(report)
    return report.end()
