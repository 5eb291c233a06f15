# SPDX-License-Identifier: GPL-2.0-only
"""Mutants of the kernel: built in the trees of the usual kernel, run with the tests that they name."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lab import proc, vm
from lab.checks import bpftests, guest, host, pud, soak, tap
from lab.checks.guest import SelftestBoot, Selftests
from lab.checks.mutants.judge import Seen
from lab.checks.mutants.patches import Catch, How, Mutant
from lab.kernel import build, source
from lab.kernel.build import Kernel, Variant
from lab.kernel.series import DEFAULT, load_all
from lab.kernel.worktree import Worktree
from lab.lock import locked
from lab.vm import Mode, Verdict

_AT_ONCE = 2
_TIMEOUT_S = {False: 300.0, True: 900.0}
"""Wall-clock seconds for a guest, without and with the debugging options."""


def usual(series: tuple[str, ...], debug: bool) -> Variant:
    """The kernel without a mutant."""
    if series == DEFAULT:
        return build.DEBUG if debug else build.DEFAULT
    return build.PUD if series == build.PUD.series else build.BOTH


def build_mutant(mutant: Mutant) -> Kernel:
    """The kernel with the mutant; LabError where it does not build."""
    variant = build.mutant(usual(mutant.series, mutant.debug))
    return build.ensure(variant=variant, extra=[mutant.patch])


def restore(series: tuple[str, ...]) -> None:
    """Takes the mutants out of the source tree again."""
    with locked("kernel"):
        Worktree(source.get()).of(series).set(load_all(series))


def _programs(catches: Iterable[Catch]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for catch in catches:
        # The harness selects by the name behind the fixture's.
        name = catch.test if catch.program == bpftests.PROGRAM else catch.test.rpartition(".")[2]
        if catch.how is not How.BUILD and name not in found.setdefault(catch.program, []):
            found[catch.program].append(name)
    return found


def run_pud(kernel: Kernel, catches: Iterable[Catch], mode: Mode) -> list[Seen]:
    """The same for the series pud, which has one program."""
    tests = _programs(catches)[pud.PROGRAM]
    job = pud.job(kernel, pud.build_program(kernel), mode, tests)
    # Some mutants wait for themselves.
    append = f"{job.append} sysctl.kernel.hung_task_timeout_secs=60"
    outcome = vm.run(replace(job, append=append, name="mutant-pud"))
    suite = guest.judge(pud.PROGRAM, outcome, tap.parse)
    splats = len(outcome.splats) + (outcome.verdict is Verdict.PANIC)
    ended = outcome.verdict in (Verdict.PASSED, Verdict.FAILED)
    return [Seen(pud.PROGRAM, {test.name: test.status for test in suite.tests}, splats, ended)]


def run_policy(kernel: Kernel, catches: Iterable[Catch], mode: Mode) -> list[Seen]:
    """The same for both series, whose program is one of ours."""
    (program,) = host.build_rust_tests([guest.PUD])
    suite = guest.e2e(kernel, program, mode, _programs(catches)[guest.PUD], pud.SLOW)
    return [Seen(guest.PUD, {test.name: test.status for test in suite.tests})]


def run(kernel: Kernel, selftests: Selftests, catches: Iterable[Catch], mode: Mode, debug: bool) -> list[Seen]:
    """Runs the tests of `catches`, a guest for each program."""

    def one(item: tuple[str, list[str]]) -> Seen:
        program, tests = item
        parse = tap.parse
        if program == bpftests.PROGRAM:
            # The module is built for a kernel, and the mutant is another one.
            in_bpf = bpftests.build(kernel, selftests.directory)
            job = in_bpf.job(kernel, mode, tests, f"mutant-{program}", _TIMEOUT_S[debug])
            parse = bpftests.parse
        else:
            selftest, _, suffix = program.partition("-")
            usual = guest.SELFTEST_BOOTS.get(selftest, {}).get(suffix, SelftestBoot())
            boot = replace(usual, only=tuple(tests))
            job = selftests.job(selftest, kernel, mode, boot, f"mutant-{program}", _TIMEOUT_S[debug])
        if debug:
            job = replace(job, memory_mib=soak.MEMORY_MIB, append=f"{job.append} {soak.APPEND}".strip())
        outcome = vm.run(job)
        suite = guest.judge(program, outcome, parse)
        ended = outcome.verdict in (Verdict.PASSED, Verdict.FAILED)
        splats = len(outcome.splats) + (outcome.verdict is Verdict.PANIC)
        return Seen(program, {test.name: test.status for test in suite.tests}, splats, ended)

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        try:
            return list(pool.map(one, _programs(catches).items()))
        except BaseException:
            # The threads wait for their guests; without them they end at once.
            pool.shutdown(wait=False, cancel_futures=True)
            proc.stop_all()
            raise
