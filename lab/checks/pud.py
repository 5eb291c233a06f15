# SPDX-License-Identifier: GPL-2.0-only
"""`make test-pud`: the kernel with 1 GiB pages for anonymous memory, and its selftest in a guest of two nodes."""

from collections.abc import Sequence
from pathlib import Path

from lab import proc, setup, vm
from lab.checks import guest, tap
from lab.checks.result import Status, Suite
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.kernel.build import Kernel
from lab.paths import BUILD
from lab.vm import Mode, accel

PROGRAM = "pud_thp_test"
_MEMORY_MIB = 10240
"""Of a range of 1 GiB no page may be the kernel's, and those below 4 GiB, the first of a node's own and the last, where
its `struct page`s are, have some. That leaves one on the first node and three on the second. Some 4 GiB are ever
touched."""
_TIMEOUT_S = 1500.0


def build_program(kernel: Kernel) -> Path:
    """Builds the selftest from the patched source; the other programs of its directory are left alone."""
    selftests = kernel.tree / "tools" / "testing" / "selftests"
    source = selftests / "mm" / f"{PROGRAM}.c"
    if not source.exists():
        raise LabError(Exit.BUILD, f"the series has no selftest: {source} is missing")
    out = BUILD / "selftests" / "pud" / PROGRAM
    out.parent.mkdir(parents=True, exist_ok=True)
    argv = ["gcc", "-Wall", "-Werror", "-O2", f"-I{selftests}", f"-I{kernel.tree}", "-o", str(out), str(source)]
    proc.run([*argv, "-lpthread"], log=BUILD / "log" / "selftest-pud.log", what=f"building {PROGRAM}")
    return out


def job(kernel: Kernel, program: Path, mode: Mode, tests: Sequence[str] = ()) -> vm.Job:
    """A guest that runs the selftest, or those of its tests."""
    return vm.Job(
        kernel=kernel.image,
        argv=[str(program), *(word for test in tests for word in ("-t", test))],
        programs=[program],
        memory_mib=_MEMORY_MIB,
        nodes=2,
        mode=mode,
        timeout_s=_TIMEOUT_S,
        name="test-pud",
    )


def run(kernel: Kernel, tests: Sequence[str] = ()) -> Suite:
    """What the selftest found on `kernel`."""
    mode, why = accel.of_image(kernel.image)
    print(f"test-pud: {kernel.release}, {mode} ({why})", flush=True)
    outcome = vm.run(job(kernel, build_program(kernel), mode, tests))
    return guest.judge("pud", outcome, tap.parse)


def main(tests: Sequence[str] = ()) -> int:
    """Builds, runs and shows; 1 if a test failed, or if all were skipped."""
    setup.ensure(setup.Need.KERNEL | setup.Need.PROGRAM | setup.Need.VM)
    suite = run(build.ensure(variant=build.PUD), tests)
    for test in suite.tests:
        detail = f"\n{test.detail}" if test.detail else ""
        print(f"test-pud: {test.status}: {test.name}{detail}", flush=True)
    counts = ", ".join(f"{suite.count(status)} {status}" for status in Status)
    print(f"test-pud: {counts} in {suite.seconds:.0f} s; logs: {', '.join(map(str, suite.logs))}", flush=True)
    return Exit.TESTS if suite.count(Status.FAILED) or not suite.count(Status.PASSED) else Exit.OK
