# SPDX-License-Identifier: GPL-2.0-only
"""`make test-module`: the module on unmodified kernels of Debian 13, and the end-to-end tests on it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab import programs, setup, vm
from lab.checks import guest, host, libtest, modulecost, moduleguest, modulemutants, modulerefused, tap
from lab.checks.result import Status, Suite, Test
from lab.errors import Exit, LabError
from lab.kernel import build, stockbuild
from lab.kernel.stockbuild import Stock
from lab.paths import REPO
from lab.tlb import emulator
from lab.vm import Mode, unmodified

KERNELS = stockbuild.NAMES
CONTRACT, REFUSED, SIGNED, COST, STRESS = "contract", "refused", "signed", "cost", "stress"
TESTS = (
    CONTRACT,
    REFUSED,
    SIGNED,
    "e2e_masks",
    "e2e_lifetime",
    "e2e_keep",
    "e2e_pressure",
    "e2e_headroom",
    COST,
    STRESS,
)
"""What runs on each kernel: the contract of the hook, what is refused, end-to-end tests, cost, and policies that come
and go (lab/checks/module.sh)."""
_GATE = (CONTRACT, REFUSED, SIGNED, COST)
_ROUNDS = 12
"""Rounds of that."""
_SETUP_S, _ROUND_S = 300.0, 2.0
"""Wall-clock seconds that the soak may take to begin, and for each round."""
_GUESTS = 4
"""That it may take."""
_LOADED = 500
"""Rounds of it after which the module is loaded anew, and that is said: RELOAD in lab/hook/src/stress.rs."""


@dataclass(frozen=True)
class KnownFailure:
    """A test that does not pass on the module, and why."""

    program: str
    test: str
    kernels: tuple[str, ...]
    why: str


_SWAPPED_IN = "the test reads how many folios of a size were swapped in, which Linux 6.12 does not count"

EXCEPTIONS = (
    KnownFailure("e2e_masks", "a_fixed_policy_caps_each_reason", ("6.12",), _SWAPPED_IN),
    KnownFailure("e2e_pressure", "pressure_stops_large_swap_ins", ("6.12",), _SWAPPED_IN),
    KnownFailure(
        "e2e_headroom",
        "a_carrier_that_does_not_tell_what_is_left_has_limits_and_scans",
        ("6.12",),
        "Linux 6.12 has no kfuncs of memory cgroups: where the module's are taken away, too, a scan sees no page cache",
    ),
    KnownFailure(
        "e2e_headroom",
        "page_cache_of_a_sibling_is_room_below_a_common_limit",
        ("6.12",),
        "Linux 6.12 has no kfuncs of memory cgroups: page cache of cgroups below a limit counts as used",
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


def _program(kernel: Stock, module: Path, test: host.RustTest) -> Suite:
    """An end-to-end test program."""
    name = f"{test.name}-{kernel.name}"
    # A stock kernel patches its own code while it runs: see guest.bare(). It takes more memory than the lab's, and with
    # little more than that huge pages cannot always be had.
    job = guest.bare(kernel.image, test, Mode.ICOUNT, {}, memory_mib=2048, name=f"module-{name}")
    binary = programs.mthp_ext()
    job = replace(job, programs=[*job.programs, binary], env={**job.env, "MTHP_EXT_BIN": str(binary)})
    suite = guest.judge(f"module/{name}", vm.run(unmodified.loaded(kernel, job, module)), libtest.parse)
    _except(suite, kernel, test.name)
    return suite


def _stress(kernel: Stock, module: Path) -> Suite:
    """lab/checks/module.sh."""
    binary = programs.mthp_ext()
    argv = ["/bin/sh", "/module.sh", str(binary), f"{unmodified.MODULES}/{module.name}", str(_ROUNDS)]
    job = moduleguest.bare(kernel, STRESS, argv, binary)
    job = replace(job, files={"/module.sh": REPO / "lab" / "checks" / "module.sh"})
    outcome = vm.run(unmodified.loaded(kernel, job, module))
    return guest.judge(f"module/{STRESS}-{kernel.name}", outcome, tap.parse)


def _report(suite: Suite) -> bool:
    """Prints it; whether a test failed."""
    for test in suite.tests:
        detail = f"\n{test.detail}" if test.status is Status.FAILED else ""
        print(f"test-module: {suite.name} {test.status}: {test.name}{detail}", flush=True)
    print(f"test-module: {suite.name}: {suite.seconds:.0f} s", flush=True)
    return bool(suite.count(Status.FAILED))


_OWN: Mapping[str, Callable[[Stock, Path], Suite]] = {
    CONTRACT: moduleguest.contract,
    REFUSED: modulerefused.in_guest,
    SIGNED: modulerefused.unsigned,
    COST: modulecost.run,
    STRESS: _stress,
}
"""What is no end-to-end test."""


def there(names: Sequence[str], target: str = "test-module") -> list[Stock]:
    """The kernels of these names; one that has gone from the archive is left out, and that is said."""
    found = []
    for name in names:
        try:
            found.append(stockbuild.stock(name))
        except stockbuild.GoneError as error:
            if len(names) == 1:
                raise
            print(f"{target}: skipped: {error}", flush=True)
    return found


def run(kernels: tuple[str, ...] = KERNELS, tests: tuple[str, ...] = TESTS) -> int:
    """Builds and runs; 1 if a test failed."""
    guest.check_names(tests, [*_OWN, *guest.e2e_names()])
    setup.ensure(setup.Need.PROGRAM | setup.Need.VM)
    rust = {test.name: test for test in host.build_rust_tests()} if set(tests) - _OWN.keys() else {}
    found = there(kernels)
    failed = False
    if REFUSED in tests:
        failed |= _report(modulerefused.at_build(found, build.ensure()))
    for kernel in found:
        module = stockbuild.build_module(kernel)
        print(f"test-module: {kernel.release}", flush=True)
        for what in tests:
            own = _OWN.get(what)
            failed |= _report(own(kernel, module) if own else _program(kernel, module, rust[what]))
    return Exit.TESTS if failed else Exit.OK


def gate(name: str) -> list[Suite]:
    """What `make test` runs on a kernel: that which takes a minute. Not being able to is a failure."""
    suites: list[Suite] = []
    try:
        kernel = stockbuild.stock(name)
        built = stockbuild.build_module(kernel)
        for what in _GATE:
            suites.append(_OWN[what](kernel, built))
    except LabError as error:
        suite, gone = Suite(f"module/{name}"), isinstance(error, stockbuild.GoneError)
        suite.tests.append(Test("(could not be run)", Status.SKIPPED if gone else Status.FAILED, str(error)))
        suites.append(suite)
    return suites


def mutants(kernels: tuple[str, ...] = KERNELS, names: tuple[str, ...] = ()) -> int:
    """Breaks the module, rule by rule; 1 if one is not noticed by the test that is for it."""
    setup.ensure(setup.Need.PROGRAM | setup.Need.VM)
    failed = False
    for kernel in there(kernels):
        sound = moduleguest.contract(kernel, stockbuild.build_module(kernel))
        if sound.count(Status.FAILED):
            failed |= _report(sound)
            continue
        failed |= _report(modulemutants.run(kernel, names))
    return Exit.TESTS if failed else Exit.OK


def stale_breakpoint(console: str) -> bool:
    """Did the kernel die, first of all, of a breakpoint at a place where its log shows none? QEMU with a thread for
    each processor executes one from code that it translated before: 7.2 with 1,900 rounds of the soak, 10.0 with 8,500;
    7.2 also with a stock kernel without the module, whose functions are traced on and off. A processor does not:
    whoever removes a breakpoint waits for those that have met it."""
    _, _, oops = console.partition("Oops: ")
    head, _, _ = oops.partition("Call Trace:")
    code = re.search(r"\bCode: ([0-9a-f ]+) <", head)
    inside = re.search(r"\bRIP: 0010:.*\[mthp_hook\]", head)
    return head.startswith("int3") and code is not None and not code[1].endswith("cc") and inside is None


def _undecided(suite: Suite, outcome: vm.Outcome) -> bool:
    """Is that all that is wrong with a guest? Then it says nothing; what it has shown until then is kept."""
    if not stale_breakpoint(outcome.console.read_text(errors="replace")):
        return False
    if "not ok" in outcome.output.read_text(errors="replace") or any("int3" not in splat for splat in outcome.splats):
        return False
    suite.tests[:] = [Test("(ended by a breakpoint of QEMU's)", Status.SKIPPED, f"log: {outcome.console}")]
    return True


def soaked(name: str, rounds: int, guest_of: Callable[[int, int], vm.Outcome]) -> list[Suite]:
    """Guests, of a number and a count of rounds, until one has come to its end; the rounds of one that QEMU ends before
    count as far as they were said. `name` is the kernel's."""
    suites: list[Suite] = []
    left = rounds
    while len(suites) < _GUESTS:
        outcome = guest_of(len(suites) + 1, left)
        suite = guest.judge(f"module/soak-{name}", outcome, tap.parse)
        suites.append(suite)
        if not _undecided(suite, outcome):
            return suites
        said = re.findall(r"^# \d+ rounds$", outcome.output.read_text(errors="replace"), re.MULTILINE)
        left = max(left - len(said) * _LOADED, _LOADED)
        print(f"test-module: {suite.name}: QEMU ended it after {len(said) * _LOADED} rounds; {left} more", flush=True)
    suites[-1].fail("(the soak)", f"QEMU ended each of {_GUESTS} guests")
    return suites


def soak(kernels: tuple[str, ...], rounds: int) -> int:
    """Everything at once on two processors, emulated by two threads: lab/hook/src/stress.rs."""
    setup.ensure(setup.Need.PROGRAM | setup.Need.VM)
    failed = False
    # See stale_breakpoint(): the newer, the rarer.
    program = emulator.find()
    for kernel in there(kernels):
        module, hook = stockbuild.build_module(kernel), programs.package("lab-hook")

        def guest_of(
            number: int, left: int, kernel: Stock = kernel, module: Path = module, hook: Path = hook
        ) -> vm.Outcome:
            argv = [str(hook), STRESS, str(left), f"{unmodified.MODULES}/{module.name}"]
            job = moduleguest.bare(kernel, f"soak-{number}", argv, hook)
            job = replace(job, cpus=2, mode=Mode.TCG, timeout_s=_SETUP_S + _ROUND_S * left, emulator=program)
            return vm.run(unmodified.loaded(kernel, job, module))

        for suite in soaked(kernel.name, rounds, guest_of):
            failed |= _report(suite)
    return Exit.TESTS if failed else Exit.OK


def table() -> str:
    """The exceptions, for docs/carriers.md."""
    rows = [f"| `{one.program}` | `{one.test}` | {', '.join(one.kernels)} | {one.why} |" for one in EXCEPTIONS]
    return "\n".join(["| program | test | kernels | why |", "|---|---|---|---|", *rows])
