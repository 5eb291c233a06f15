# SPDX-License-Identifier: GPL-2.0-only
"""`make bench-pud`: first touch, reads and writes of 4 GiB in pages of 4 KiB, 2 MiB and 1 GiB. The mail that proposed
1 GiB pages measured them on hardware. Guest time is counted in instructions; walks are those of a modelled TLB."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab import programs, results, setup, vm
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.kernel.build import Kernel
from lab.paths import CARGO_TARGET, RESULTS
from lab.report import parts
from lab.report.parts import grid
from lab.results import Gate, gate, unjudged
from lab.tlb import counts, model
from lab.tlb.geometry import Geometry, Shape
from lab.vm import Mode

GIB = 4
"""As in the mail."""
COUNT = 1 << 22
"""Accesses of each row: its 4 M dereferences."""
RUNS = 3
"""Of each arm, interleaved."""
WALK_RUNS = 1
"""The same with the model, which counts; time is of those without."""
ARMS = ("never", "2M", "1G")
MEASURED = ("sequential read", "sequential write", "random read", "random write")
_MEMORY_MIB = 12288
_TIMEOUT_S = 3600.0
_APPEND = "clearcpuid=erms,fsrm"
"""Pages are zeroed eight bytes at an instruction, not one."""
_THP = "/sys/kernel/mm/transparent_hugepage"
_PAGES_KIB = {"never": 4, "2M": 2048, "1G": 1 << 20}
_SPREAD = 0.01
_NEAR = 0.01

GEOMETRY = Geometry(l2=Shape(128, 12), giants=(Shape(1, 4), Shape(4, 4)))
"""Of the mail's processor, as far as its maker says: L2 of 1536 entries for 4 KiB and 2 MiB, 16 for 1 GiB; in L1 four
of these. L1 for 4 KiB is the model's usual one."""

SEED = (
    ("4 M random reads in 4 GiB, 2 MiB pages", "134 ms"),
    ("the same, 1 GiB pages", "88 ms, 34 % less"),
    ("page faults of the 4 GiB, 2 MiB pages", "331 ms"),
    ("the same, 1 GiB pages", "898 ms, 2.7 times"),
)
"""Of "[RFC 00/12] mm: PUD (1GB) THP implementation", 2 February 2026, on a Xeon Platinum 8321HC."""

NOTE = """What these figures cannot show. Time is a count of instructions: no access waits for memory or for a walk, so
reads and writes take the same in each arm, and the mail's 34 % cannot come out. Walks are of a model that holds what
the maker of that processor says of its TLB, and are no time. Zeroing counts an instruction for eight bytes, where
hardware is bound by the bandwidth of its memory: most of a fault of 1 GiB is that. In the mail it also includes what
moving pages takes on a machine that has been used; here the guest has just booted, and little is in the way."""


@dataclass(frozen=True)
class Arm:
    """What the runs of an arm recorded."""

    name: str
    runs: list[dict[str, dict[str, Any]]]
    """Of each run: row -> record."""
    walks: list[dict[str, counts.Counts]]
    """Of each run with the model: row -> what the program did."""

    def ns(self, row: str) -> list[int]:
        """Of each run."""
        return [run[row]["ns"] for run in self.runs]

    def spread(self, row: str) -> float:
        """The largest over the least, less one."""
        return max(self.ns(row)) / min(self.ns(row)) - 1

    def each(self, row: str, name: str) -> list[int]:
        """By how much a counter grew in the row, in each run."""
        both = [run[row]["more"] for run in self.runs]
        return [int(more["after"][name]) - int(more["before"][name]) for more in both]

    def counted(self, row: str, name: str) -> int:
        """The same in the first run, for the tables: the gates look at all."""
        return self.each(row, name)[0]

    def fault_ns(self) -> float:
        """One fault: the median of the first of each GiB, in all runs."""
        return float(statistics.median(ns for run in self.runs for ns in run["first touch"]["more"]["fault_ns"]))

    def walked(self, row: str) -> float:
        """Walks an access, by the median run."""
        return statistics.median(run[row].walked for run in self.walks) / COUNT


def settings(arm: str) -> str:
    """Commands that leave pages of this size alone to a fault; smaller ones where there is no larger."""
    on = {"never": (), "2M": ("2048",), "1G": ("2048", "1048576")}[arm]
    lines = [f"for f in {_THP}/hugepages-*/enabled; do echo never > $f; done", f"echo never > {_THP}/enabled"]
    lines += [f"echo always > {_THP}/hugepages-{kib}kB/enabled" for kib in on]
    # It is looked for where the fault may compact memory itself; and khugepaged is no part of this.
    lines += [f"echo always > {_THP}/defrag", f"echo 3600000 > {_THP}/khugepaged/scan_sleep_millisecs"]
    return "\n".join(lines)


def collect(records: Sequence[dict[str, Any]], arm: str) -> dict[str, dict[str, Any]]:
    """Row -> record of one guest; LabError where one is missing."""
    rows = {record["row"]: record for record in records if record.get("type") == "chase"}
    for row in ("first touch", *MEASURED):
        if row not in rows:
            raise LabError(Exit.TESTS, f"{arm}: the guest did not record {row!r}")
    return rows


def collect_walks(records: Sequence[dict[str, Any]], arm: str) -> dict[str, counts.Counts]:
    """Row -> what the program did there: one window each, in their order."""
    windows = [window.program("lab-chase") for window in counts.read(records)]
    found = [counts.total(one.values()) for one in windows if one]
    if len(found) != len(MEASURED):
        raise LabError(Exit.TESTS, f"{arm}: the model counted {len(found)} rows, not {len(MEASURED)}")
    return dict(zip(MEASURED, found, strict=True))


def expected(arm: str, row: str) -> float:
    """Walks an access that can be computed: what does not fit of the memory, by chance, or once a page in order."""
    pages = GIB * (1 << 20) // _PAGES_KIB[arm]
    entries = GEOMETRY.l2.entries if arm != "1G" else 16
    if row.startswith("sequential"):
        # So many lines are met of each page before the next.
        return 0.0 if pages <= entries else 64 / (_PAGES_KIB[arm] * 1024)
    return max(0.0, 1 - entries / pages)


def _job(kernel: Kernel, arm: str, run: int, tlb: model.Model | None) -> vm.Job:
    programs.package("lab-walks")
    program = CARGO_TARGET / "release" / "lab-chase"
    words = f"{settings(arm)}\nexec {program} {GIB} {COUNT}{' arm' if tlb else ''} > $LAB_RESULTS"
    return vm.Job(
        kernel=kernel.image,
        argv=["/bin/sh", "-c", words],
        programs=[program],
        memory_mib=_MEMORY_MIB,
        cpus=1,
        mode=Mode.ICOUNT,
        timeout_s=_TIMEOUT_S,
        append=_APPEND,
        plugin=tlb,
        name=f"bench-pud-{arm}-{'walks' if tlb else 'plain'}-{run}",
    )


def gates(arms: Sequence[Arm]) -> list[Gate]:
    """That each arm had the pages that it is about, that equal runs are equal, and walks as computed."""
    never, small, giant = arms
    found: list[Gate] = []

    def in_all(what: str, values: Sequence[int], bound: str) -> None:
        """In each run, that is by the least and by the most of them."""
        found.append(gate(what, min(values), bound))
        if min(values) != max(values):
            found.append(gate(f"{what}, the most of the runs", max(values), bound))

    touch = "first touch"
    in_all("never: faults of the 4 GiB", never.each(touch, "faults"), f">= {GIB << 18}")
    in_all("2M: pages of 2 MiB had", small.each(touch, "had_2m"), f">= {GIB << 9}")
    in_all("2M: fallbacks to smaller pages", small.each(touch, "fallback_2m"), "== 0")
    in_all("1G: pages of 1 GiB had", giant.each(touch, "had_1g"), f"== {GIB}")
    in_all("1G: fallbacks to smaller pages", giant.each(touch, "fallback_1g"), "== 0")
    in_all("1G: splits before anything asks for one", giant.each(touch, "split_pud"), "== 0")
    in_all("1G: splits by mprotect of a page", giant.each("mprotect of a page", "split_pud"), "== 1")
    for arm in arms:
        name, bound = f"{arm.name}: most over least of equal runs, less 1", f"<= {_SPREAD}"
        spread = max(arm.spread(row) for row in ("first touch", *MEASURED))
        found.append(gate(name, spread, bound) if len(arm.runs) > 1 else unjudged(name, bound, "one run"))
        for row in MEASURED if arm.walks else ():
            wanted, walked = expected(arm.name, row), arm.walked(row)
            name = f"{arm.name}, {row}: {walked:.4f} walks an access where {wanted:.4f} is computed; difference"
            found.append(gate(name, abs(walked - wanted), f"<= {_NEAR}"))
    return found


def _ms(ns: float) -> str:
    return f"{ns / 1e6:,.1f}"


def tables(arms: Sequence[Arm]) -> str:
    """All of it, and the mail's figures."""
    heads = [arm.name for arm in arms]
    times = [["guest time: instructions, as ms", *heads]]
    times += [["first touch of 4 GiB", *(_ms(statistics.median(arm.ns("first touch"))) for arm in arms)]]
    times += [["one fault, the median", *(_ms(arm.fault_ns()) for arm in arms)]]
    for row in (*MEASURED, "mprotect of a page", "random read after that"):
        times += [[row, *(_ms(statistics.median(arm.ns(row))) for arm in arms)]]
    counted = [["counted in the first touch", *heads]]
    for name, words in (
        ("faults", "page faults"),
        ("had_1g", "pages of 1 GiB"),
        ("fallback_1g", "fallbacks from 1 GiB"),
        ("had_2m", "pages of 2 MiB"),
        ("fallback_2m", "fallbacks from 2 MiB"),
        ("tables_kib", "page tables, KiB, those in reserve included"),
        ("resident_kib", "memory, KiB"),
    ):
        counted += [[words, *(f"{arm.counted('first touch', name):,}" for arm in arms)]]
    for name, words in (("split_pud", "PUDs split by mprotect"), ("split_pmd", "PMDs split by mprotect")):
        counted += [[words, *(f"{arm.counted('mprotect of a page', name):,}" for arm in arms)]]
    shown = [times, counted]
    if all(arm.walks for arm in arms):
        walks = [["walks an access", *heads]]
        walks += [[row, *(f"{arm.walked(row):.4f}" for arm in arms)] for row in MEASURED]
        walks += [["entries that a walk reads, random read", *(f"{_references(arm):.2f}" for arm in arms)]]
        shown.append(walks)
    shown.append([["the mail, on hardware", "time"], *([name, value] for name, value in SEED)])
    return "\n\n".join("\n".join(grid(rows)) for rows in shown)


def _references(arm: Arm) -> float:
    one = counts.total(run["random read"] for run in arm.walks)
    return one.references / one.walked if one.walked else 0.0


def _document(arm: Arm) -> dict[str, Any]:
    walks = [
        {row: {"walks": one.walks, "references": one.references, "accesses": one.accesses} for row, one in run.items()}
        for run in arm.walks
    ]
    return {"runs": arm.runs, "walks": walks}


def main() -> int:
    """All arms, interleaved; 0 when every gate holds."""
    setup.ensure(setup.Need.PROGRAM | setup.Need.KERNEL | setup.Need.VM)
    begun = time.monotonic()
    kernel = build.ensure(variant=build.BOTH)
    tlb = model.load(GEOMETRY, kernel.vmlinux)
    arms = {name: Arm(name, [], []) for name in ARMS}
    for run in range(RUNS + WALK_RUNS):
        for name, arm in arms.items():
            with_model = run >= RUNS
            print(f"bench-pud: {name}, {'walks' if with_model else 'time'}, run {run + 1}", flush=True)
            outcome = vm.run(_job(kernel, name, run, tlb if with_model else None))
            outcome.check(f"lab-chase, {name}")
            if with_model:
                model.check(outcome.records, f"bench-pud, {name}", outcome.output)
                arm.walks.append(collect_walks(outcome.records, name))
            else:
                arm.runs.append(collect(outcome.records, name))
    return report(list(arms.values()), kernel.release, tlb, time.monotonic() - begun)


def report(arms: Sequence[Arm], release: str, tlb: model.Model, seconds: float) -> int:
    """Writes results and page, and prints them."""
    checked = gates(arms)
    environment = results.environment(
        release, "icount", gib=GIB, count=COUNT, runs=RUNS, walk_runs=WALK_RUNS, seconds=round(seconds)
    )
    environment["tlb"] = tlb.environment()
    path = results.write("pud", environment, {arm.name: _document(arm) for arm in arms}, checked)
    shown = f"{tables(arms)}\n\n{NOTE}\n\nThe model: {GEOMETRY.text}.\n"
    page = RESULTS / "pud.md"
    page.write_text(f"<!-- SPDX-License-Identifier: GPL-2.0-only -->\n# 1 GiB pages\n\n{shown}", encoding="utf-8")
    print(f"\n{shown}")
    print("\n".join(parts.gate_lines(checked)))
    print(f"\n{seconds / 60:.1f} minutes. Results: {path}, {page}")
    return Exit.TESTS if any(one.missed for one in checked) else Exit.OK
