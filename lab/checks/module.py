# SPDX-License-Identifier: GPL-2.0-only
"""`make test-module`: the module on unmodified kernels of Debian 13, and the end-to-end tests on it."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from lab import programs, setup, vm
from lab.checks import guest, host, libtest, tap
from lab.checks.result import Status, Suite, Test
from lab.errors import Exit
from lab.kernel import stockbuild
from lab.kernel.stockbuild import Stock
from lab.paths import BUILD, REPO
from lab.vm import Mode

KERNELS = ("6.12", "newest")
STRESS = "stress"
TESTS = ("e2e_masks", "e2e_lifetime", "e2e_keep", STRESS)
"""The end-to-end tests that run on the module, and lab/checks/module.sh."""
_ROUNDS = 12
"""Rounds of it."""
_MODULES = "/lib/modules"
"""Where a guest has them."""


@dataclass(frozen=True)
class KnownFailure:
    """A test that does not pass on the module, and why."""

    program: str
    test: str
    kernels: tuple[str, ...]
    why: str


EXCEPTIONS = (
    KnownFailure(
        "e2e_masks",
        "a_fixed_policy_caps_each_reason",
        ("6.12",),
        "the test reads how many folios of a size were swapped in, which Linux 6.12 does not count",
    ),
)
"""All of them. One that passes is a failure, too: it is to be taken out."""


def _except(suite: Suite, kernel: Stock, program: str) -> None:
    """Judges a suite by the table of exceptions."""
    known = {one.test: one for one in EXCEPTIONS if one.program == program and kernel.name in one.kernels}
    judged = []
    for test in suite.tests:
        one = known.get(test.name)
        if one and test.status is Status.FAILED:
            judged.append(Test(test.name, Status.SKIPPED, f"exception: {one.why}"))
        elif one and test.status is Status.PASSED:
            judged.append(Test(test.name, Status.FAILED, f"passes, and is an exception: {one.why}"))
        else:
            judged.append(test)
    gone = known.keys() - {test.name for test in suite.tests}
    judged += [Test(name, Status.FAILED, "an exception, and there is no such test") for name in sorted(gone)]
    suite.tests[:] = judged


def _on(kernel: Stock, module: Path, job: vm.Job) -> vm.Job:
    """The job on a stock kernel, after the module was loaded, and swap's device."""
    binary = programs.mthp_ext()
    needed = stockbuild.with_dependencies(kernel, "zram", BUILD / "stock-modules" / kernel.release)
    paths = [f"{_MODULES}/{path.name}" for path in (*needed, module)]
    script = "".join(f"insmod {path} || exit 90; " for path in paths) + "exec " + shlex.join(job.argv)
    return replace(
        job,
        argv=["/bin/sh", "-c", script],
        programs=[*job.programs, binary],
        files={**job.files, **dict(zip(paths, (*needed, module), strict=True))},
        env={**job.env, "MTHP_EXT_BIN": str(binary)},
    )


def _program(kernel: Stock, module: Path, test: host.RustTest) -> Suite:
    """An end-to-end test program."""
    name = f"{test.name}-{kernel.name}"
    # A stock kernel patches its own code while it runs: see guest.bare(). It takes more memory than the lab's.
    job = guest.bare(kernel.image, test, Mode.ICOUNT, {}, memory_mib=1280, name=f"module-{name}")
    suite = guest.judge(f"module/{name}", vm.run(_on(kernel, module, job)), libtest.parse)
    _except(suite, kernel, test.name)
    return suite


def _stress(kernel: Stock, module: Path) -> Suite:
    """lab/checks/module.sh."""
    name = f"stress-{kernel.name}"
    argv = ["/bin/sh", "/module.sh", str(programs.mthp_ext()), f"{_MODULES}/{module.name}", str(_ROUNDS)]
    job = vm.Job(
        kernel=kernel.image,
        argv=argv,
        files={"/module.sh": REPO / "lab" / "checks" / "module.sh"},
        cpus=1,
        mode=Mode.ICOUNT,
        timeout_s=900,
        append="damon_stat.enabled=0",
        name=f"module-{name}",
    )
    return guest.judge(f"module/{name}", vm.run(_on(kernel, module, job)), tap.parse)


def run(kernels: tuple[str, ...] = KERNELS, tests: tuple[str, ...] = TESTS) -> int:
    """Builds and runs; 1 if a test failed."""
    setup.ensure(setup.Need.PROGRAM | setup.Need.VM)
    rust = {test.name: test for test in host.build_rust_tests()}
    failed = False
    for name in kernels:
        kernel = stockbuild.stock(name)
        module = stockbuild.build_module(kernel)
        print(f"test-module: {kernel.release}", flush=True)
        for program in tests:
            suite = _stress(kernel, module) if program == STRESS else _program(kernel, module, rust[program])
            for test in suite.tests:
                detail = f"\n{test.detail}" if test.status is Status.FAILED else ""
                print(f"test-module: {suite.name} {test.status}: {test.name}{detail}", flush=True)
            print(f"test-module: {suite.name}: {suite.seconds:.0f} s", flush=True)
            failed |= bool(suite.count(Status.FAILED))
    return Exit.TESTS if failed else Exit.OK


def table() -> str:
    """The exceptions, for docs/carriers.md."""
    rows = [f"| `{one.program}` | `{one.test}` | {', '.join(one.kernels)} | {one.why} |" for one in EXCEPTIONS]
    return "\n".join(["| program | test | kernels | why |", "|---|---|---|---|", *rows])
