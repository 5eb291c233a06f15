# SPDX-License-Identifier: GPL-2.0-only
"""On the kernel for debugging: the selftests, one after the other in one guest, and a short soak."""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from lab import vm
from lab.checks import bpftests, guest, soak, tap
from lab.checks.guest import SELFTEST_BOOTS, SelftestBoot, Selftests
from lab.checks.result import Suite
from lab.kernel.build import Kernel
from lab.vm import Mode, Outcome

_TIMEOUT_S = 5400.0
"""Everything takes about ten times as long there, and the processors may share one host thread."""
_SLOW = 10
"""The same of one test: its time limit is that of a usual kernel with a processor of its own."""
_SOAK_S = 120.0
"""About three minutes of guest time with boot, sums and the look for leaks."""
_KSFT_SKIP = 4
_BEGIN = "== lab: begin"
_END = "== lab: end"


def command_lines(programs: list[str]) -> list[tuple[str, list[str]]]:
    """What to run of `programs` in a guest that boots as usual: a name, and the arguments. Boots with something
    switched off, or with another number of CPUs or nodes, are left to the ordinary kernel."""
    usual = SelftestBoot()
    found = []
    for program in programs:
        for suffix, boot in SELFTEST_BOOTS.get(program, {"": usual}).items():
            if replace(boot, only=()) == usual:
                arguments = [word for test in boot.only for word in ("-t", test)]
                found.append((f"{program}-{suffix}" if suffix else program, [program, *arguments]))
    return found


def sections(text: str) -> dict[str, tuple[int | None, str]]:
    """Name -> exit code (None: it did not end) and output, from what the guest's shell printed around each run."""
    found: dict[str, tuple[int | None, str]] = {}
    for name, output in re.findall(rf"^{_BEGIN} (\S+)\n(.*?)(?=^{_BEGIN} |\Z)", text, re.MULTILINE | re.DOTALL):
        end = re.search(rf"^{_END} {re.escape(name)} (\d+)$", output, re.MULTILINE)
        found[name] = (int(end[1]) if end else None, output)
    return found


def _suites(outcome: Outcome, names: list[str], checked: Sequence[str]) -> list[Suite]:
    ran = sections(outcome.output.read_text(errors="replace").replace("\r", ""))
    logs = [outcome.output, outcome.console]
    suites = []
    for name in names:
        suite = Suite(f"debug/{name}", logs=logs)
        code, output = ran.get(name, (None, ""))
        tap.parse(output, suite)
        if code is None:
            suite.fail("(the program)", f"it did not end: {outcome.reason or outcome.verdict}")
        suite.settle("" if code in (0, _KSFT_SKIP) else f"exit code {code}")
        suites.append(suite)
    suites.append(log(outcome, checked))
    return suites


def log(outcome: Outcome, checked: Sequence[str]) -> Suite:
    """The kernel's own findings, over all programs of the guest; `checked`: what PID 1 has to say."""
    suite = Suite("debug/kernel-log", seconds=outcome.seconds, logs=[outcome.output, outcome.console])
    console = outcome.console.read_text(errors="replace")
    complaints = "\n".join([*outcome.splats, *outcome.stalls][:20])
    suite.check("silent", not complaints, complaints)
    for text in checked:
        suite.check(text, console.count(text) == 1, "it did not say so")
    return suite


def _selftests(kernel: Kernel, built: Selftests, mode: Mode) -> list[Suite]:
    lines = command_lines(guest.meant_for(kernel, built))
    script = [
        f"echo '{_BEGIN} {name}'; {shlex.join([str(built.directory / words[0]), *words[1:]])}; echo '{_END} {name}' $?"
        for name, words in lines
    ]
    job = vm.Job(
        kernel=kernel.image,
        argv=["/bin/sh", "-c", "; ".join([soak.NO_FAIR_SERVER, *script])],
        programs=[built.directory / name for name in built.names],
        files={str(one): one for one in built.directory.glob("*.bpf.o")},
        memory_mib=soak.MEMORY_MIB,
        mode=mode,
        timeout_s=_TIMEOUT_S,
        append=soak.APPEND,
        env={**soak.env(kernel), "MTHP_SLOW": str(_SLOW)},
        name="debug-selftests",
    )
    return _suites(vm.run(job), [name for name, _ in lines], soak.checked(kernel))


def _in_bpf(kernel: Kernel, built: Selftests, mode: Mode) -> list[Suite]:
    """The test in selftests/bpf, whose links to cgroups are made of a module's type."""
    job = bpftests.build(kernel, built.directory).job(kernel, mode, name=f"debug-{bpftests.PROGRAM}")
    job = replace(job, memory_mib=soak.MEMORY_MIB, append=f"{job.append} {soak.APPEND}".strip())
    return [guest.judge(f"debug/{bpftests.PROGRAM}", vm.run(job), bpftests.parse)]


def _soak(kernel: Kernel, built: Selftests, mode: Mode) -> list[Suite]:
    outcome = vm.run(soak.job(kernel, built, mode, _SOAK_S, soak.SEED_OF_TESTS))
    suite = guest.judge("debug/soak", outcome, tap.parse)
    for gate in soak.gates(outcome, suite, kernel):
        if not gate.ok:
            suite.fail(gate.name, f"{gate.value}, not {gate.bound}")
    return [suite]


def run(kernel: Kernel, mode: Mode, selftests: bool, short_soak: bool, done: Callable[[Suite], None]) -> None:
    """All selftests on `kernel`, which is one for debugging, or a soak, or both; `done` hears of each as it ends."""
    built = guest.build_selftests(kernel)
    parts = [partial(one, kernel, built, mode) for one in (_selftests, _in_bpf)] if selftests else []
    parts += [partial(_soak, kernel, built, mode)] if short_soak else []
    guest.together(parts, done)
