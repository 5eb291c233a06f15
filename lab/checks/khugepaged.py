# SPDX-License-Identifier: GPL-2.0-only
"""`make bench-khugepaged`: khugepaged's scan on the kernel of the series and on a stock one from before the scan was
improved, with the three tasks of the mail that did it, at the mail's size. All of it are counts of events; guest time
is counted in instructions."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import results, setup, vm
from lab.checks import guest, host
from lab.checks.host import RustTest
from lab.errors import Exit, LabError
from lab.kernel import build, stock
from lab.paths import RESULTS
from lab.report import parts
from lab.report.parts import grid, number
from lab.results import Gate, gate
from lab.vm import Mode

PROGRAM = "e2e_khugepaged"
TASK_MIB = 128
"""As in the mail, which has three of them: hot1, cold, hot2."""
TASKS = ("hot1", "cold", "without pages", "hot2")
"""In the order in which the scan meets them."""

NOTE = (
    f"Tasks of {TASK_MIB} MiB, as in the mail; counts of events under emulation, guest time counted in instructions.\n"
    "Not shown, since no time has TLB or caches in it: cycles per access and throughput of hot2 (the mail: -55 %,\n"
    "+7 %), which is what its huge pages are for; its dTLB misses (the mail: -76 %) are not counted in these guests.\n"
    "The two kernels are also configured differently, so their CPU times compare in the order of magnitude only."
)


@dataclass(frozen=True)
class Scans:
    """What one recording has."""

    passes: int
    ranges: list[Counter[str]]
    """Of each process: status -> ranges scanned with that result."""
    progress: list[int]
    """Of each process; zeroes where the kernel does not tell."""

    @property
    def statuses(self) -> Counter[str]:
        """Of all processes."""
        return sum(self.ranges, Counter())


@dataclass(frozen=True)
class Side:
    """What one kernel's guest recorded."""

    release: str
    hot2: Scans
    """Until all of hot2 is huge."""
    idle: Scans
    """A full scan when nothing is left to collapse."""
    sleep_ms: int
    """While the time of a full scan was taken."""
    full_ms: int
    cpu_us: float
    """khugepaged's CPU time in a full scan."""
    says_progress: bool


def _scans(record: dict[str, Any]) -> Scans:
    scans = record["scans"]
    return Scans(record["passes"], [Counter(one["ranges"]) for one in scans], [one["progress"] for one in scans])


def collect(release: str, records: list[dict[str, Any]]) -> Side:
    """From a guest's records; LabError where one is missing."""
    named = {record.get("name"): record for record in records}
    try:
        timed = named["khugepaged_full_scan_time"]
        hot2 = _scans(named["khugepaged_hot2"])
        if len(hot2.ranges) != len(TASKS):
            raise LabError(Exit.TESTS, f"{release}: {len(hot2.ranges)} processes were scanned, not {len(TASKS)}")
        return Side(
            release,
            hot2,
            _scans(named["khugepaged_full_scan"]),
            timed["scan_sleep_millisecs"],
            timed["full_scan_ms"],
            timed["cpu_ns"] / 1000,
            not timed["before"],
        )
    except KeyError as missing:
        raise LabError(Exit.TESTS, f"{release}: the guest did not record {missing}") from None


def _measure(image: Path, release: str, test: RustTest, env: dict[str, str]) -> Side:
    print(f"bench-khugepaged: {release}", flush=True)
    env = {"KHUGEPAGED_TASK_MIB": str(TASK_MIB), **env}
    job = guest.bare(image, test, Mode.ICOUNT, env, memory_mib=2048, name=f"khugepaged-{release}")
    outcome = vm.run(job)
    outcome.check(f"{PROGRAM} on {release}")
    return collect(release, outcome.records)


def gates(before: Side, after: Side) -> list[Gate]:
    """What the improvement claims, as far as counts can show it. What each scan must find is asserted by the program
    itself, in the guest."""
    return [
        gate("passes until hot2 is huge / before", after.hot2.passes / before.hot2.passes, "<= 0.5"),
        gate("passes of a full scan when all is huge", after.idle.passes, "== 1"),
        gate("the same before", before.idle.passes, "> 1"),
        gate("freed lazily, and passed over", after.hot2.ranges[1]["page_lazyfree"], "> 0"),
        gate("huge ranges in a full scan / before", _huge(after) / _huge(before), "== 1"),
    ]


def _huge(side: Side) -> int:
    return side.idle.statuses["page_pmd_mapped"]


def _delta(before: float, after: float) -> str:
    return f"{(after / before - 1) * 100:+.0f}%" if before else "-"


def tables(before: Side, after: Side) -> str:
    """In the shape of the mail's."""

    def row(name: str, one: float, other: float) -> list[str]:
        return [name, number(one), number(other), _delta(one, other)]

    head = [f"{word} ({side.release.partition('+')[0]})" for word, side in (("without", before), ("with", after))]
    hot2 = [["task hot2", *head, "delta"], row("passes until it is huge", before.hot2.passes, after.hot2.passes)]
    idle = [
        ["full scan, all is huge", *head, "delta"],
        row("passes", before.idle.passes, after.idle.passes),
        row(f"time with {after.sleep_ms} ms of sleep, ms", before.full_ms, after.full_ms),
        row("khugepaged's CPU time, us", before.cpu_us, after.cpu_us),
        ["total progress, pages", "not reported", number(sum(after.idle.progress)), "-"],
    ]
    found = [["scan_pmd status until then", *head]]
    for which, task in enumerate(TASKS):
        names = sorted({*before.hot2.ranges[which], *after.hot2.ranges[which]})
        for name in names:
            counts = [side.hot2.ranges[which][name] for side in (before, after)]
            found.append([f"{task}: {name}", *(str(count) for count in counts)])
        found.append([f"{task}: progress, pages", "not reported", number(after.hot2.progress[which])])
    return "\n\n".join("\n".join(grid(rows)) for rows in (hot2, found, idle))


def _document(side: Side) -> dict[str, Any]:
    def scans(one: Scans) -> dict[str, Any]:
        return {"passes": one.passes, "statuses": one.statuses, "ranges": one.ranges, "progress": one.progress}

    return {
        "release": side.release,
        "until_hot2_is_huge": scans(side.hot2),
        "full_scan": {
            **scans(side.idle), "scan_sleep_millisecs": side.sleep_ms, "ms": side.full_ms, "cpu_us": side.cpu_us
        },
    }  # fmt: skip


def main() -> int:
    """Both kernels, one after the other; 0 when every gate holds."""
    setup.ensure(setup.Need.PROGRAM | setup.Need.KERNEL | setup.Need.VM)
    # First what may not be had.
    image = stock.image()
    kernel = build.ensure()
    return run(kernel.image, kernel.release, image)


def run(kernel: Path, release: str, stock_image: Path) -> int:
    """The same with these images."""
    begun = time.monotonic()
    test = next((one for one in host.build_rust_tests() if one.name == PROGRAM), None)
    if test is None:
        raise LabError(Exit.BUILD, f"cargo built no {PROGRAM}")
    before = _measure(stock_image, stock_image.name.removeprefix("vmlinuz-"), test, guest.BEFORE[PROGRAM])
    after = _measure(kernel, release, test, {})
    checked = gates(before, after)
    environment = results.environment(
        after.release, "icount", before=before.release, task_mib=TASK_MIB, seconds=round(time.monotonic() - begun)
    )
    metrics = {"before": _document(before), "after": _document(after)}
    path = results.write("khugepaged", environment, metrics, checked)
    shown = f"{tables(before, after)}\n\n{NOTE}\n"
    page = RESULTS / "khugepaged.md"
    page.write_text(f"<!-- SPDX-License-Identifier: GPL-2.0-only -->\n# khugepaged's scan\n\n{shown}", encoding="utf-8")
    print(f"\n{shown}")
    print("\n".join(parts.gate_lines(checked)))
    print(f"\n{(time.monotonic() - begun) / 60:.1f} minutes. Results: {path}, {page}")
    return Exit.OK if all(one.ok for one in checked) else Exit.TESTS
