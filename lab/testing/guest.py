# SPDX-License-Identifier: GPL-2.0-only
"""Tests that need the patched kernel: its selftests and the end-to-end tests of mthp_ext, in VMs."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lab import proc, programs, vm
from lab.errors import Exit, LabError
from lab.kernel.build import Kernel
from lab.paths import BUILD
from lab.testing import libtest, tap
from lab.testing.host import RustTest
from lab.testing.result import Suite
from lab.vm import Mode, Outcome, Verdict

_AT_ONCE = 2


@dataclass(frozen=True)
class Boot:
    """How the guest of an end-to-end test program is started."""

    append: str = ""
    env: dict[str, str] = field(default_factory=dict)


BOOTS: dict[str, Boot] = {
    "e2e": Boot(),
    # Kernels as users have them: what mthp_ext needs is off.
    "e2e_psi_off": Boot(append="psi=0"),
    "e2e_no_memcg": Boot(append="cgroup_disable=memory", env={"LAB_CONTROLLERS": "cpu pids"}),
    # The test mounts the v1 memory hierarchy itself, which v2 must not have taken.
    "e2e_memcg_v1": Boot(env={"LAB_CONTROLLERS": "cpu pids"}),
}
"""Boot of each tests/NAME.rs; another file named e2e_* boots as `e2e` does."""


@dataclass(frozen=True)
class _Run:
    name: str
    job: vm.Job
    parse: Callable[[str, Suite], None]


def build_selftests(kernel: Kernel) -> Path:
    """Builds the series' selftests from the patched source; the directory with the program and BPF objects."""
    source = kernel.tree / "tools" / "testing" / "selftests" / "mthp"
    if not (source / "Makefile").exists():
        raise LabError(Exit.BUILD, f"the series has no selftests: {source} is missing")
    out = BUILD / "selftests" / kernel.tree.parent.name
    out.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "LC_ALL": "C"}
    for name in ("MAKEFLAGS", "MAKELEVEL", "DIR", "BASE"):
        env.pop(name, None)
    proc.run(
        ["make", "-C", str(source), f"OUTPUT={out}", "CC=gcc", "CLANG=clang-19", "BPF_CLANG=clang-19"],
        log=BUILD / "log" / "selftests.log",
        what="building the kernel selftests",
        env=env,
    )
    return out


def _selftest(kernel: Kernel, mode: Mode) -> _Run:
    out = build_selftests(kernel)
    program = out / "mthp_test"
    # It looks for its BPF objects where it is itself.
    files = {str(path): path for path in out.glob("*.bpf.o")}
    job = vm.Job(
        kernel=kernel.image,
        argv=[str(program)],
        programs=[program],
        files=files,
        memory_mib=1536,
        mode=mode,
        timeout_s=900,
        name="test-selftests",
    )
    return _Run("kernel/mthp_test", job, tap.parse)


def _e2e(kernel: Kernel, test: RustTest, mode: Mode) -> _Run:
    boot = BOOTS.get(test.name, BOOTS["e2e"])
    binary = programs.mthp_ext()
    job = vm.Job(
        kernel=kernel.image,
        argv=[str(test.program), "--test-threads=1", "--include-ignored"],
        programs=[test.program, binary],
        memory_mib=1024,
        mode=mode,
        timeout_s=900,
        append=boot.append,
        env={"MTHP_EXT_BIN": str(binary), "RUST_BACKTRACE": "1", **boot.env},
        name=f"test-{test.name}",
    )
    return _Run(f"vm/{test.name}", job, libtest.parse)


def judge(name: str, outcome: Outcome, parse: Callable[[str, Suite], None]) -> Suite:
    """The tests of a guest's output; a guest that did not end well is a failure whatever it printed."""
    suite = Suite(name, seconds=outcome.seconds, logs=[outcome.output, outcome.console])
    parse(outcome.output.read_text(errors="replace"), suite)
    if outcome.verdict not in (Verdict.PASSED, Verdict.FAILED):
        # Also where a test failed before: the panic is what must be seen.
        suite.fail(f"(the guest: {outcome.verdict})", f"{outcome.reason}\n{proc.tail(outcome.console)}")
    elif outcome.verdict is Verdict.FAILED:
        suite.settle(f"{outcome.reason}; the end of its output:\n{proc.tail(outcome.output)}")
    if outcome.splats:
        listed = "\n".join(outcome.splats[:20])
        suite.fail("(the guest's kernel log)", f"the kernel complains; log: {outcome.console}\n{listed}")
    suite.settle()
    return suite


def run(kernel: Kernel, rust: Sequence[RustTest], mode: Mode, done: Callable[[Suite], None]) -> list[Suite]:
    """Runs everything, two guests at a time; `done` hears of each suite as it ends."""
    runs = [_selftest(kernel, mode), *(_e2e(kernel, test, mode) for test in rust)]

    ended = threading.Event()

    def one(this: _Run) -> Suite:
        suite = Suite(this.name) if ended.is_set() else judge(this.name, vm.run(this.job), this.parse)
        # Killed because the user interrupts: that says nothing about the tests.
        if not ended.is_set():
            done(suite)
        return suite

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        futures = [pool.submit(one, this) for this in runs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            ended.set()
            # The threads wait for their guests; without them they end at once.
            pool.shutdown(wait=False, cancel_futures=True)
            proc.stop_all()
            raise
