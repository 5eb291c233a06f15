# SPDX-License-Identifier: GPL-2.0-only
"""The series pud, 1 GiB pages for anonymous memory: its selftest and its soak, in guests of two nodes."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import proc, results, setup, vm
from lab.checks import guest, host, tap
from lab.checks import soak as common
from lab.checks.result import Status, Suite, Test
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


def _source(kernel: Kernel, name: str) -> Path:
    return kernel.tree / "tools" / "testing" / "selftests" / "mm" / f"{name}.c"


def build_program(kernel: Kernel, name: str = PROGRAM) -> Path:
    """Builds a program of the selftest from the patched source, with more time for each test on a kernel for debugging;
    the others of its directory are left alone."""
    source = _source(kernel, name)
    selftests = source.parent.parent
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


MAY_SKIP: Mapping[str, str] = {}
"""Tests that may skip although all is there for them, with why. None: what is for want of 1 GiB or of luck is tried
again, and then it counts."""
_ATTEMPTS = 3
"""How often a test may skip before that counts: of its own guest the later ones, which has all its memory free."""


def _bare(test: str) -> str:
    """The name that -t takes."""
    return test.rpartition(".")[2]


def again(suite: Suite, once: Callable[[list[str]], Suite]) -> None:
    """Runs what was skipped again, by itself, and puts how that ended in its place."""
    for _ in range(_ATTEMPTS - 1):
        skipped = [
            test.name for test in suite.tests if test.status is Status.SKIPPED and _bare(test.name) not in MAY_SKIP
        ]
        if not skipped:
            return
        more = once([_bare(name) for name in skipped])
        ended = {test.name: test for test in more.tests if test.name in skipped}
        suite.tests = [ended.get(test.name, test) for test in suite.tests]
        # Its own complaints, such as of the guest's kernel log.
        suite.tests += [test for test in more.tests if test.status is Status.FAILED and test.name not in ended]
        suite.seconds += more.seconds
        suite.logs += [log for log in more.logs if log not in suite.logs]


def no_skips(suite: Suite) -> None:
    """What was skipped has failed to say anything, unless MAY_SKIP has it."""
    for at, test in enumerate(suite.tests):
        if test.status is Status.SKIPPED and _bare(test.name) not in MAY_SKIP:
            suite.tests[at] = Test(test.name, Status.FAILED, f"skipped, which is no result: {test.detail}")


def _show(name: str, suite: Suite) -> int:
    for test in suite.tests:
        detail = f"\n{test.detail}" if test.detail else ""
        print(f"{name}: {test.status}: {test.name}{detail}", flush=True)
    counts = ", ".join(f"{suite.count(status)} {status}" for status in Status)
    print(f"{name}: {counts} in {suite.seconds:.0f} s; logs: {', '.join(map(str, suite.logs))}", flush=True)
    return Exit.TESTS if suite.count(Status.FAILED) or not suite.count(Status.PASSED) else Exit.OK


def main(tests: Sequence[str] = (), debug: bool = False) -> int:
    """Builds, runs and shows; 1 if a test failed or was skipped again and again. `debug`: on the kernel for
    debugging."""
    setup.ensure(setup.Need.KERNEL | setup.Need.PROGRAM | setup.Need.VM)
    kernel = build.ensure(variant=build.PUD_DEBUG if debug else build.PUD)
    suite = run(kernel, tests)
    again(suite, lambda names: run(kernel, names))
    if not tests:
        without = plain(kernel)
        suite.tests += without.tests
        suite.logs += without.logs
    no_skips(suite)
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


_SUMS = 8
"""What the soak looks at when it has ended, whatever its length."""
_LONG_MIN = 5.0
"""From so many minutes on there is time for each operation, and the soak takes a sum for each."""


def operations(text: str) -> list[str]:
    """What the soak does, by its source."""
    names = re.search(r"\bop_names\[\w*\] = \{(.*?)\}", text, re.DOTALL)
    return re.findall(r'"([^"]+)"', names[1]) if names else []


def soak_gates(outcome: Outcome, minutes: float, names: Sequence[str]) -> list[Gate]:
    """Each sum at the end is one, and so is the kernel's silence. In a long run each of the operations `names` has been
    done, and memory was swapped out."""
    ended = results.gate("exit code", -1 if outcome.exit_code is None else outcome.exit_code, "== 0")
    found = [*common.sums(outcome, _SUMS), ended, *common.silence(outcome)]
    if minutes >= _LONG_MIN:
        taken = {str(record.get("name")) for record in outcome.records if record.get("type") == "sum"}
        found.append(results.gate("operations that have a sum", len(taken & set(names)), f"== {len(names)}"))
        found.append(results.gate("operations", len(names), ">= 20"))
        swapped = common.figures(outcome).get("swapped out")
        found.append(results.gate("pages swapped out", None if swapped is None else float(swapped), "> 0"))
    return found


def splits(outcome: Outcome) -> dict[str, int]:
    """Reason, walker or caller -> how many splits were traced, those that failed by themselves."""
    found = [record for record in outcome.records if record.get("type") == "splits"]
    return {name: value for name, value in found[-1].items() if name != "type"} if found else {}


def soak(minutes: float, seed: int | None, debug: bool = False) -> int:
    """Random operations for `minutes` of guest time; writes build/results/soak-pud.json. 1 if a gate failed. `debug`:
    on the kernel with KASAN and lockdep, otherwise on that of `make test-pud`."""
    seed = common.begins(minutes, seed)
    variant = build.PUD_DEBUG if debug else build.PUD
    kernel = build.ensure(variant=variant)
    mode, why = accel.of_image(kernel.image)
    print(f"soak: {minutes:g} minutes, SEED={seed}, {variant.name} {kernel.release}, {mode} ({why})", flush=True)
    program = build_program(kernel, _SOAK)
    outcome = vm.run(soak_job(kernel, program, mode, minutes, seed), _tell)
    source = _source(kernel, _SOAK).read_text(errors="replace")
    gates = soak_gates(outcome, minutes, operations(source))
    environment = results.environment(kernel.release, mode, minutes=minutes, seed=seed, kernel_variant=variant.name)
    figures = common.figures(outcome) | {"splits": splits(outcome)}
    path = results.write("soak-pud-debug" if debug else "soak-pud", environment, figures, gates)
    return common.ended(gates, f"results: {path}", f"log: {outcome.output}")


def soak_job(kernel: Kernel, program: Path, mode: Mode, minutes: float, seed: int) -> vm.Job:
    """A guest that soaks for so long."""
    words = f'exec "$0" -t {minutes * 60:g} -s {seed} -o "$LAB_RESULTS"'
    kasan = kernel.has("KASAN")
    return vm.Job(
        kernel=kernel.image,
        argv=["/bin/sh", "-c", words, str(program)],
        programs=[program],
        memory_mib=_MEMORY_MIB + _KASAN_MIB * kasan,
        nodes=2,
        mode=mode,
        timeout_s=minutes * 60 + _SOAK_MORE_S * (_SLOWER if kasan else 1),
        append=SLOW,
        name="soak-pud",
    )
