# SPDX-License-Identifier: GPL-2.0-only
"""The series pud, 1 GiB pages for anonymous memory: its selftest and its soak, in guests of two nodes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import proc, results, setup, vm
from lab.checks import guest, host, tap
from lab.checks import soak as common
from lab.checks.result import Status, Suite
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.kernel.build import Kernel
from lab.paths import BUILD
from lab.results import Gate
from lab.vm import Mode, Outcome, accel

PROGRAM = "pud_thp_test"
_SOAK = "pud_thp_soak"
_MEMORY_MIB = 12288
"""Of a range of 1 GiB no page may be the kernel's, and those below 4 GiB, the first of a node's own and the last, where
its `struct page`s are, have some. That leaves two on the first node and four on the second. Some 4 GiB are ever
touched; the soak touches all."""
_KASAN_MIB = 8192
"""An eighth of a guest with KASAN is its shadow, all of it on the first node. The slab takes more, too, also of ranges
that a test has just freed. In 14 GiB it had some of one of the first node's two after nine tests, and tests were
skipped for want of 1 GiB. This leaves four."""
_TIMEOUT_S = 3600.0
_SLOWER = 3
"""How much longer a test may take on the kernel for debugging."""
_SOAK_MORE_S = 900.0
"""What a guest with the soak takes beyond its minutes: boot, the last look at all pages, the sums."""
SLOW = (
    "rcupdate.rcu_cpu_stall_timeout=180 watchdog_thresh=60 "
    "sysctl.kernel.hung_task_timeout_secs=300 sysctl.kernel.hung_task_panic=1"
)
"""A busy host starves an emulated CPU for longer than what the kernel takes for a stall by default. A task that waits
for ever ends the guest rather than its time."""


_THP = "/sys/kernel/mm/transparent_hugepage"
_PLAIN = f"""\
echo 1..1
[ -d {_THP}/hugepages-2048kB ] && [ ! -e {_THP}/hugepages-1048576kB ] || {{
    ls {_THP}
    printf 'not '
}}
echo ok 1 - no_directory_without_pdpe1gb
"""
"""A processor that cannot map 1 GiB: nobody is offered the size."""


def build_program(kernel: Kernel, name: str = PROGRAM) -> Path:
    """Builds a program of the selftest from the patched source, with more time for each test on a kernel for debugging;
    the others of its directory are left alone."""
    selftests = kernel.tree / "tools" / "testing" / "selftests"
    source = selftests / "mm" / f"{name}.c"
    if not source.exists():
        raise LabError(Exit.BUILD, f"the series has no selftest: {source} is missing")
    out = BUILD / "selftests" / "pud" / name
    out.parent.mkdir(parents=True, exist_ok=True)
    argv = ["gcc", "-Wall", "-Werror", "-O2", f"-I{selftests}", f"-I{kernel.tree}", "-o", str(out), str(source)]
    argv += [f"-DSLOWER={_SLOWER}"] * kernel.has("KASAN")
    proc.run([*argv, "-lpthread"], log=BUILD / "log" / f"selftest-{name}.log", what=f"building {name}")
    return out


def job(kernel: Kernel, program: Path, mode: Mode, tests: Sequence[str] = ()) -> vm.Job:
    """A guest that runs the selftest, or those of its tests."""
    return vm.Job(
        kernel=kernel.image,
        argv=[str(program), *(word for test in tests for word in ("-t", test))],
        programs=[program],
        memory_mib=_MEMORY_MIB + _KASAN_MIB * kernel.has("KASAN"),
        nodes=2,
        mode=mode,
        timeout_s=_TIMEOUT_S * (_SLOWER if kernel.has("KASAN") else 1),
        append=SLOW,
        name="test-pud",
    )


def run(kernel: Kernel, tests: Sequence[str] = ()) -> Suite:
    """What the selftest found on `kernel`."""
    mode, why = accel.of_image(kernel.image)
    print(f"test-pud: {kernel.release}, {mode} ({why})", flush=True)
    outcome = vm.run(job(kernel, build_program(kernel), mode, tests))
    return guest.judge("pud", outcome, tap.parse)


def plain(kernel: Kernel) -> Suite:
    """The same for a processor without the size."""
    mode, _ = accel.of_image(kernel.image)
    argv = ["/bin/sh", "-c", _PLAIN]
    append = f"{SLOW} clearcpuid=pdpe1gb"
    outcome = vm.run(vm.Job(kernel=kernel.image, argv=argv, mode=mode, append=append, name="test-pud-plain"))
    return guest.judge("plain", outcome, tap.parse)


def _show(name: str, suite: Suite) -> int:
    for test in suite.tests:
        detail = f"\n{test.detail}" if test.detail else ""
        print(f"{name}: {test.status}: {test.name}{detail}", flush=True)
    counts = ", ".join(f"{suite.count(status)} {status}" for status in Status)
    print(f"{name}: {counts} in {suite.seconds:.0f} s; logs: {', '.join(map(str, suite.logs))}", flush=True)
    return Exit.TESTS if suite.count(Status.FAILED) or not suite.count(Status.PASSED) else Exit.OK


def main(tests: Sequence[str] = (), debug: bool = False) -> int:
    """Builds, runs and shows; 1 if a test failed, or if all were skipped. `debug`: on the kernel for debugging."""
    setup.ensure(setup.Need.KERNEL | setup.Need.PROGRAM | setup.Need.VM)
    kernel = build.ensure(variant=build.PUD_DEBUG if debug else build.PUD)
    suite = run(kernel, tests)
    if not tests:
        without = plain(kernel)
        suite.tests += without.tests
        suite.logs += without.logs
    return _show("test-pud", suite)


def policy(tests: Sequence[str] = ()) -> int:
    """The same for what a policy says about 1 GiB, on the lab's kernel with both series."""
    setup.ensure(setup.Need.KERNEL | setup.Need.PROGRAM | setup.Need.VM)
    kernel = build.ensure(variant=build.BOTH)
    (program,) = host.build_rust_tests([guest.PUD])
    mode, why = accel.of_image(kernel.image)
    print(f"test-pud-policy: {kernel.release}, {mode} ({why})", flush=True)
    return _show("test-pud-policy", guest.e2e(kernel, program, mode, tests, SLOW))


def _tell(record: dict[str, Any]) -> None:
    if record.get("type") in ("progress", "end"):
        words = ("allocated", "fallbacks", "mappings split", "pages split", "splits failed", "children")
        counts = ", ".join(f"{record[word]} {word}" for word in words if word in record)
        print(f"soak: {record['seconds']:6.0f} s: {counts}", flush=True)


def _gates(outcome: Outcome) -> list[Gate]:
    """Each sum at the end is one, and so is the kernel's silence."""
    ended = results.gate("exit code", -1 if outcome.exit_code is None else outcome.exit_code, "== 0")
    return [*common.sums(outcome, 8), ended, *common.silence(outcome)]


def soak(minutes: float, seed: int | None) -> int:
    """Random operations for `minutes` of guest time; writes build/results/soak-pud.json. 1 if a gate failed."""
    seed = common.begins(minutes, seed)
    kernel = build.ensure(variant=build.PUD)
    mode, why = accel.of_image(kernel.image)
    print(f"soak: {minutes:g} minutes, SEED={seed}, {kernel.release}, {mode} ({why})", flush=True)
    program = build_program(kernel, _SOAK)
    words = f'exec "$0" -t {minutes * 60:g} -s {seed} -o "$LAB_RESULTS"'
    outcome = vm.run(
        vm.Job(
            kernel=kernel.image,
            argv=["/bin/sh", "-c", words, str(program)],
            programs=[program],
            memory_mib=_MEMORY_MIB,
            nodes=2,
            mode=mode,
            timeout_s=minutes * 60 + _SOAK_MORE_S,
            append=SLOW,
            name="soak-pud",
        ),
        _tell,
    )
    gates = _gates(outcome)
    environment = results.environment(kernel.release, mode, minutes=minutes, seed=seed)
    path = results.write("soak-pud", environment, common.figures(outcome), gates)
    return common.ended(gates, f"results: {path}", f"log: {outcome.output}")
