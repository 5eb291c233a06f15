# SPDX-License-Identifier: GPL-2.0-only
"""`make soak`: everything the series does at once, on the kernel for debugging, for as long as one likes."""

import time
from typing import Any

from lab import accel, programs, results, setup, vm
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.kernel.build import Kernel
from lab.results import Gate
from lab.testing import guest, tap
from lab.testing.guest import Selftests
from lab.testing.result import Status, Suite
from lab.vm import Mode, Outcome

MEMORY_MIB = 2048
"""Of a guest with a kernel for debugging: KASAN takes an eighth of it, kmemleak a record for each object."""
APPEND = "no5lvl rcupdate.rcu_cpu_stall_timeout=180"
"""A stall is one only if it lasts longer than a busy host starves an emulated CPU. With five levels of page tables,
KASAN takes any access for a wild one that an interrupt makes while identify_cpu() has all CPU features cleared."""
SEED_OF_TESTS = 7
"""`make test` is to run the same every time, as far as that goes."""
_PROGRAM = "mthp_soak"
_NO_FAIR_SERVER = 'for one in /sys/kernel/debug/sched/*_server/cpu*/runtime; do [ ! -w "$one" ] || echo 0 >"$one"; done'
"""The scheduler's deadline server forwards its timer although it is queued again, and warns of it, when an emulated CPU
was starved by the host: a complaint about neither the series nor what is tested."""
_SETUP_S = 1200.0
"""Wall-clock seconds that boot, sums and the look for leaks may take."""
CHECKED = ("lab-guest: lockdep is on", "lab-guest: no leaks")
"""What the guest's PID 1 says when it has asked the kernel and all is well."""


def job(kernel: Kernel, built: Selftests, mode: Mode, seconds: float, seed: int) -> vm.Job:
    """A guest that soaks for `seconds`, and then looks for leaks."""
    program = built.directory / _PROGRAM
    daemon = programs.mthp_ext()
    words = [str(program), "-t", f"{seconds:g}", "-s", str(seed), "-x", str(daemon)]
    return vm.Job(
        kernel=kernel.image,
        argv=["/bin/sh", "-c", f'{_NO_FAIR_SERVER}; exec "$@" -o "$LAB_RESULTS"', "sh", *words],
        programs=[program, daemon],
        files={str(one): one for one in built.directory.glob("*.bpf.o")},
        memory_mib=MEMORY_MIB,
        mode=mode,
        timeout_s=seconds + _SETUP_S,
        append=APPEND,
        env={"LAB_LEAKS": "1"},
        name="soak",
    )


def gates(outcome: Outcome, suite: Suite) -> list[Gate]:
    """Each sum at the end is one, and so is the kernel's silence."""
    found = [
        results.gate(str(record["name"]), float(record["got"]), f"== {record['wanted']}")
        for record in outcome.records
        if record.get("type") == "sum"
    ]
    console = outcome.console.read_text(errors="replace")
    found.append(results.gate("sums taken", len(found), ">= 20"))
    found.append(results.gate("failed tests", suite.count(Status.FAILED), "== 0"))
    found.append(results.gate("complaints in the kernel log", len(outcome.splats), "== 0"))
    found.append(results.gate("stalls in the kernel log", len(outcome.stalls), "== 0"))
    for text in CHECKED:
        found.append(results.gate(f"the guest said: {text}", console.count(text), "== 1"))
    return found


def figures(outcome: Outcome) -> dict[str, Any]:
    """The counts at the end of the run."""
    ends = [record for record in outcome.records if record.get("type") == "end"]
    return {name: value for name, value in ends[-1].items() if name != "type"} if ends else {}


def _tell(record: dict[str, Any]) -> None:
    if record.get("type") not in ("progress", "end"):
        return
    words = ("faults", "swapped", "attached", "updated", "hups", "rmdirs", "failed_links", "daemons_killed", "errors")
    counts = ", ".join(f"{record[word]} {word.replace('_', ' ')}" for word in words if word in record)
    print(f"soak: {record['seconds']:6.0f} s: {counts}", flush=True)


def main(minutes: float, seed: int | None) -> int:
    """Soaks for `minutes` of guest time; writes build/results/soak.json. 1 if a gate failed."""
    if not 0 < minutes <= 24 * 60:
        raise LabError(Exit.USAGE, f"a soak takes more than 0 and at most {24 * 60} minutes, not {minutes:g}")
    setup.ensure(setup.Need.PROGRAM | setup.Need.KERNEL | setup.Need.VM)
    kernel = build.ensure(variant=build.DEBUG)
    mode, why = accel.best(kernel.image)
    seed = int(time.time()) if seed is None else seed
    print(f"soak: {minutes:g} minutes, SEED={seed}, {mode} ({why})", flush=True)
    seen: list[dict[str, Any]] = []

    def heard(record: dict[str, Any]) -> None:
        seen.append(record)
        _tell(record)

    try:
        outcome = vm.run(job(kernel, guest.build_selftests(kernel), mode, minutes * 60, seed), heard)
    except KeyboardInterrupt:
        reached = max((record["seconds"] for record in seen if "seconds" in record), default=0)
        print(f"soak: interrupted after {reached:g} s; nothing is known of sums and leaks, no result is written")
        raise
    suite = guest.judge("soak", outcome, tap.parse)
    judged = gates(outcome, suite)
    environment = results.environment(kernel.release, mode, minutes=minutes, seed=seed)
    path = results.write("soak", environment, figures(outcome), judged)
    for test in suite.tests:
        if test.status is Status.FAILED:
            print(f"soak: FAILED {test.name}\n{test.detail}")
    for gate in judged:
        if not gate.ok:
            print(f"soak: gate missed: {gate.name}: {gate.value}, not {gate.bound}")
    good = all(gate.ok for gate in judged)
    print(f"soak: {len(judged)} gates, {'all kept' if good else 'not all kept'}; results: {path}")
    return Exit.OK if good else Exit.TESTS
