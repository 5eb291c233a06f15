# SPDX-License-Identifier: GPL-2.0-only
"""`make soak`: everything the series does at once, on the kernel for debugging, for as long as one likes."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import programs, results, setup, vm
from lab.checks import guest, tap
from lab.checks.guest import Selftests
from lab.checks.result import Status, Suite
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.kernel.build import Kernel
from lab.results import Gate
from lab.vm import Mode, Outcome, accel

MEMORY_MIB = 2048
"""Of a guest with a kernel for debugging: KASAN takes an eighth of it, kmemleak a record for each object."""
APPEND = "no5lvl rcupdate.rcu_cpu_stall_timeout=180"
"""A stall is one only if it lasts longer than a busy host starves an emulated CPU. With five levels of page tables,
KASAN takes any access for a wild one that an interrupt makes while identify_cpu() has all CPU features cleared."""
SEED_OF_TESTS = 7
"""The soak of `make test-debug` is to run the same every time, as far as that goes."""
_PROGRAM = "mthp_soak"
NOTHING_TO_SOAK = "a kernel with PREEMPT_RT has no transparent hugepages; there is nothing to soak"
NO_FAIR_SERVER = 'for one in /sys/kernel/debug/sched/*_server/cpu*/runtime; do [ ! -w "$one" ] || echo 0 >"$one"; done'
"""The scheduler's deadline server forwards its timer although it is queued again, and warns of it, when an emulated CPU
was starved by the host: a complaint about neither the series nor what is tested."""
_PATIENT = "[ ! -w /proc/sys/kernel/hung_task_timeout_secs ] || echo 480 >/proc/sys/kernel/hung_task_timeout_secs"
"""The kernel's two minutes are meant for a processor some fifty times as fast. khugepaged, which swaps in under
mmap_lock beside forty busy tasks, has had them. What waits for ever shows, unless it begins in the last eight."""
_SETUP_S = 1800.0
"""Wall-clock seconds that boot, sums and the look for leaks may take. The program by itself waits for up to 600 s until
everything has happened once, for up to 780 s until what is freed late is gone."""
LOCKS = (
    "&link->lock > &st_ops->links_mutex > cpu_hotplug_lock > jump_label_mutex",
    "&link->lock > cgroup_mutex",
    "cgroup_mutex > cpu_hotplug_lock > jump_label_mutex",
)
"""What lockdep has to know: which locks were held while which others were taken, directly or with more in between."""

_BEFORE_THE_END_S = 15
"""The soak counts links and BPF objects when it has ended; those of a daemon must be gone by then."""
_BESIDE = r"""
daemon=$1 seconds=$2 r=$3
shift 3
# A number below $1; the same row of them for the same seed.
draw() { r=$(((r * 1103515245 + 12345) % 2147483648)); drawn=$((r / 65536 % $1)); }
now() { read -r up rest </proc/uptime; now=${up%.*}; }

"$@" &
soak=$!
spare=$CGROUPS/mthp_soak.$soak/spare
until [ -d "$spare/leaf" ]; do
    [ -d "/proc/$soak" ] && ! grep -q '^State:.Z' "/proc/$soak/status" || break
    sleep 0.1
done
now; end=$((now + seconds - BEFORE_THE_END_S))
started=0 killed=0
while now; [ "$now" -lt "$end" ] && [ -d "$spare" ]; do
    # It swaps in under mmap_lock at nice 19: beside forty busy tasks it has one two-thousandth of an emulated CPU, and
    # who waits for that lock waits for minutes, of which the kernel complains. After it was off it is another thread.
    # By names alone: pidof reads command lines, and for that swaps in, under mmap_lock, what is swapped out again.
    for comm in /proc/[0-9]*/comm; do
        read -r name 2>/dev/null <"$comm" && [ "$name" = khugepaged ] || continue
        thread=${comm%/comm}
        renice -n 0 -p "${thread#/proc/}" >/dev/null
    done
    draw 3
    # An option that no rule of the policy uses would end it.
    hurry="--window 100ms --threshold 10ms"
    case $drawn in 0) policy="default $hurry" ;; 1) policy=headroom ;; *) policy="reactive $hurry" ;; esac
    "$daemon" run --root "$spare" --policy $policy >/dev/null &
    pid=$!
    started=$((started + 1))
    # Before or after it has attached.
    draw 80
    sleep "$((drawn / 10)).$((drawn % 10))"
    kill -9 $pid 2>/dev/null
    wait $pid
    # 128 and the number of SIGKILL: it has not ended by itself before.
    [ $? -ne 137 ] || killed=$((killed + 1))
done
sum() { printf '{"type": "sum", "name": "%s", "got": %d, "wanted": %d}\n' "$@" >>"$LAB_RESULTS"; }
wait $soak
code=$?
sum "daemons killed" $killed $started
sum "daemons started" $((started > 0)) 1
exit $code
"""
"""Starts the soak, and beside it the daemon, over and over. It attaches where the soak itself does not, and dies
without a chance to clean up: its links and programs go with it."""


def locks(kernel: Kernel) -> tuple[str, ...]:
    """Which of LOCKS `kernel` takes: without the hook, as with PREEMPT_RT, it has no type that is attached to cgroups,
    and no static key."""
    return LOCKS if kernel.has("BPF_TRANSPARENT_HUGEPAGE") else ()


def checked(kernel: Kernel) -> tuple[str, ...]:
    """What the guest's PID 1 says when it has asked the kernel and all is well."""
    saw = [f"lab-guest: lockdep saw {one}" for one in locks(kernel)]
    return ("lab-guest: lockdep is on", *saw, "lab-guest: no leaks")


def env(kernel: Kernel) -> dict[str, str]:
    """Lets PID 1 ask all that."""
    found = locks(kernel)
    return {"LAB_LEAKS": "1", **({"LAB_LOCKS": "; ".join(found)} if found else {})}


def script(cgroups: str = "/sys/fs/cgroup") -> str:
    """For sh; its arguments are the daemon, seconds, a seed, and the soak with its arguments."""
    return _BESIDE.replace("$CGROUPS", cgroups).replace("BEFORE_THE_END_S", str(_BEFORE_THE_END_S))


def command(program: Path, daemon: Path, seconds: float, seed: int) -> list[str]:
    """What the guest runs."""
    words = [str(program), "-t", f"{seconds:g}", "-s", str(seed)]
    text = f'{NO_FAIR_SERVER}\n{_PATIENT}\nset -- "$@" -o "$LAB_RESULTS"\n{script()}'
    return ["/bin/sh", "-c", text, "sh", str(daemon), f"{seconds:.0f}", str(seed % 2**31), *words]


def job(kernel: Kernel, built: Selftests, mode: Mode, seconds: float, seed: int) -> vm.Job:
    """A guest that soaks for `seconds`, and then looks for leaks."""
    program = built.directory / _PROGRAM
    daemon = programs.mthp_ext()
    return vm.Job(
        kernel=kernel.image,
        argv=command(program, daemon, seconds, seed),
        programs=[program, daemon],
        files={str(one): one for one in built.directory.glob("*.bpf.o")},
        memory_mib=MEMORY_MIB,
        mode=mode,
        timeout_s=seconds + _SETUP_S,
        append=APPEND,
        env=env(kernel),
        name="soak",
    )


def sums(outcome: Outcome, least: int) -> list[Gate]:
    """Each sum at the end is a gate, and at least so many were taken."""
    found = [
        results.gate(str(record["name"]), float(record["got"]), f"== {record['wanted']}")
        for record in outcome.records
        if record.get("type") == "sum"
    ]
    return [*found, results.gate("sums taken", len(found), f">= {least}")]


def silence(outcome: Outcome) -> list[Gate]:
    """The kernel said nothing."""
    return [
        results.gate("complaints in the kernel log", len(outcome.splats), "== 0"),
        results.gate("stalls in the kernel log", len(outcome.stalls), "== 0"),
    ]


def gates(outcome: Outcome, suite: Suite, kernel: Kernel) -> list[Gate]:
    """Sums, tests, the kernel's silence, and what PID 1 saw."""
    console = outcome.console.read_text(errors="replace")
    failed = results.gate("failed tests", suite.count(Status.FAILED), "== 0")
    found = [*sums(outcome, 38), failed, *silence(outcome)]
    for text in checked(kernel):
        found.append(results.gate(f"the guest said: {text}", console.count(text), "== 1"))
    return found


def figures(outcome: Outcome) -> dict[str, Any]:
    """The counts at the end of the run."""
    ends = [record for record in outcome.records if record.get("type") == "end"]
    return {name: value for name, value in ends[-1].items() if name != "type"} if ends else {}


def begins(minutes: float, seed: int | None) -> int:
    """Checks that all is there for a soak of so long, and returns its seed."""
    if not 0.5 <= minutes <= 24 * 60:
        raise LabError(Exit.USAGE, f"a soak takes at least half a minute and at most {24 * 60}, not {minutes:g}")
    setup.ensure(setup.Need.PROGRAM | setup.Need.KERNEL | setup.Need.VM)
    return int(time.time()) if seed is None else seed


def ended(judged: Sequence[Gate], *where: str) -> int:
    """Shows what was missed, and where the rest is; the exit code."""
    for gate in judged:
        if not gate.ok:
            print(f"soak: gate missed: {gate.name}: {gate.value}, not {gate.bound}")
    good = all(gate.ok for gate in judged)
    print(f"soak: {len(judged)} gates, {'all kept' if good else 'not all kept'}; {'; '.join(where)}")
    return Exit.OK if good else Exit.TESTS


def _tell(record: dict[str, Any]) -> None:
    if record.get("type") not in ("progress", "end"):
        return
    words = ("faults", "guards", "copied", "attached", "updated", "hups", "rmdirs", "failed_links", "errors")
    counts = ", ".join(f"{record[word]} {word.replace('_', ' ')}" for word in words if word in record)
    print(f"soak: {record['seconds']:6.0f} s: {counts}", flush=True)


def main(minutes: float, seed: int | None, preempt: str = "") -> int:
    """Soaks for `minutes` of guest time; writes build/results/soak.json. 1 if a gate failed."""
    if preempt == "rt":
        raise LabError(Exit.USAGE, NOTHING_TO_SOAK)
    variant = build.preempted(build.DEBUG, preempt)
    seed = begins(minutes, seed)
    kernel = build.ensure(variant=variant)
    mode, why = accel.of(kernel)
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
    judged = gates(outcome, suite, kernel)
    environment = results.environment(kernel.release, mode, minutes=minutes, seed=seed, kernel_variant=variant.name)
    path = results.write(f"soak-{preempt}" if preempt else "soak", environment, figures(outcome), judged)
    for test in suite.tests:
        if test.status is Status.FAILED:
            print(f"soak: FAILED {test.name}\n{test.detail}")
    return ended(judged, f"results: {path}")
