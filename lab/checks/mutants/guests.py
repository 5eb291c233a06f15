# SPDX-License-Identifier: GPL-2.0-only
"""Mutants of the kernel: built in the trees of the usual kernel, run with the tests that they name."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lab import proc, vm
from lab.checks import bpftests, guest, soak, tap
from lab.checks.guest import SelftestBoot, Selftests
from lab.checks.mutants.judge import Seen
from lab.checks.mutants.patches import Catch, How, Mutant
from lab.kernel import build, source
from lab.kernel.build import Kernel
from lab.kernel.series import load
from lab.kernel.worktree import Worktree
from lab.lock import locked
from lab.vm import Mode, Verdict

_AT_ONCE = 2
_TIMEOUT_S = {False: 300.0, True: 900.0}
"""Wall-clock seconds for a guest, without and with the debugging options."""


def build_mutant(mutant: Mutant) -> Kernel:
    """The kernel with the mutant; LabError where it does not build."""
    return build.ensure(variant=build.DEBUG_MUTANT if mutant.debug else build.MUTANT, extra=[mutant.patch])


def restore() -> None:
    """Takes the mutants out of the source tree again."""
    with locked("kernel"):
        Worktree(source.get()).set(load())


def _programs(catches: Iterable[Catch]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for catch in catches:
        # The harness selects by the name behind the fixture's.
        name = catch.test if catch.program == bpftests.PROGRAM else catch.test.rpartition(".")[2]
        if catch.how is not How.BUILD and name not in found.setdefault(catch.program, []):
            found[catch.program].append(name)
    return found


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
