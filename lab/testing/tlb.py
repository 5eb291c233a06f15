# SPDX-License-Identifier: GPL-2.0-only
"""The TLB model against what can be computed: random, sequential and dependent reads of memory in pages of each size.
And what it must not do: disturb the guest's clock, or report where it cannot know."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from lab import programs, vm
from lab.bench import execute, scenarios, walks
from lab.bench.arms import ARM, SIZES_KIB, THP
from lab.bench.cell import Cell
from lab.bench.run import Run
from lab.bench.spec import Scale
from lab.errors import Exit, LabError
from lab.kernel.build import Kernel
from lab.paths import BUILD
from lab.results import Gate, gate
from lab.schedule import Finished
from lab.testing.result import Status, Suite, Test
from lab.tlb import model
from lab.tlb.counts import Counts, read
from lab.tlb.geometry import JOINS, Geometry
from lab.tlb.model import Model
from lab.vm import Mode

MIB, ACCESSES = 256, 1_000_000
ORDERS = ("random", "sequential", "dependent")
TOLERANCE = 0.002
_LINES = 64
"""Lines of 64 bytes in a page of 4 KiB."""
_WRONG_MAP, _WRONG_TASK = 0xFFFF_8000_0000_0000, 0x1000


@dataclass(frozen=True)
class Boot:
    """A guest, and what it reads: all orders at each size."""

    name: str
    sizes: tuple[int, ...]
    tlb: Model | None
    mib: int = MIB
    orders: tuple[str, ...] = ORDERS
    levels: int = 5
    """Of the page tables."""


def script(boot: Boot, program: str) -> str:
    """What the guest runs."""
    # Page tables have five levels where the processor can; the flag is gone where the kernel does not use them.
    lines = [f"{'' if boot.levels == 5 else '! '}grep -q ' la57' /proc/cpuinfo || exit 1"]
    lines += [f"echo always > {THP}/enabled"]
    for size in boot.sizes:
        lines += [f"echo never > {THP}/hugepages-{kib}kB/enabled" for kib in SIZES_KIB]
        lines += [f"echo inherit > {THP}/hugepages-{size}kB/enabled"] if size in SIZES_KIB else []
        lines += [f"{program} {order} {boot.mib} {ACCESSES} > $LAB_RESULTS || exit 1" for order in boot.orders]
    return "\n".join(lines)


def _run(kernel: Kernel, boot: Boot) -> vm.Outcome:
    program = programs.package("lab-walks")
    outcome = vm.run(
        vm.Job(
            kernel=kernel.image,
            argv=["/bin/sh", "-c", script(boot, str(program))],
            programs=[program],
            memory_mib=MIB + 384,
            cpus=1,
            mode=Mode.ICOUNT,
            append="" if boot.levels == 5 else "no5lvl",
            tlb=boot.tlb,
            name=f"tlb-{boot.name}",
        )
    )
    outcome.check(f"the guest {boot.name}")
    return outcome


def expected(order: str, kib: int, geometry: Geometry) -> tuple[float, float]:
    """Shares of accesses that miss L1, and that walk: what does not fit of `MIB` in entries for so much each, by
    chance, or once for each entry where the order is that of the addresses."""
    entry_kib = 2048 if kib == 2048 else min(kib, 4 << JOINS[geometry.join])
    entries = MIB * 1024 // entry_kib
    l1 = geometry.l1_large if entry_kib == 2048 else geometry.l1_small
    if order == "sequential":
        share = 4 / entry_kib / _LINES
        return share, 0.0 if entries <= geometry.l2.entries else share
    return max(0.0, 1 - l1.entries / entries), max(0.0, 1 - geometry.l2.entries / entries)


def _near(name: str, value: float, wanted: float) -> Gate:
    return gate(
        f"{name}: {value:.4f} where {wanted:.4f} is computed; difference", abs(value - wanted), f"<= {TOLERANCE}"
    )


def judge(boot: Boot, geometry: Geometry, records: Sequence[dict[str, Any]]) -> list[Gate]:
    """Each row of a guest against what is computed."""
    rows = [(order, kib) for kib in boot.sizes for order in boot.orders]
    found = read(records)
    judged = [gate(f"{boot.name}: windows that were counted", len(found), f"== {len(rows)}")]
    for (order, kib), window in zip(rows, found, strict=False):
        name = f"{boot.name}, {order} reads, pages of {kib} KiB"
        # The kernel has a tick now and then.
        mine = window.programs.get("lab-walks", {}).get("user", Counts())
        judged.append(gate(f"{name}: accesses", mine.accesses / ACCESSES, "<= 1.0001"))
        l1, walks = expected(order, kib, geometry)
        judged.append(_near(f"{name}: misses of L1", mine.l1_misses / ACCESSES, l1))
        judged.append(_near(f"{name}: walks", mine.walked / ACCESSES, walks))
        judged.append(gate(f"{name}: accesses that no table maps", mine.lost, "== 0"))
        if order == "random" and kib == 4:
            # Half of the 128 directory entries are in the cache of 64; without one two entries must be read.
            judged.append(_near(f"{name}: references a walk / 10", mine.references / max(1, mine.walked) / 10, 0.15))
    return judged


def _clock(plain: Sequence[dict[str, Any]], modelled: Sequence[dict[str, Any]]) -> list[Gate]:
    """No price is charged: the guest's clock must not know of the model."""
    times = [[r["ns"] for r in records if r.get("type") == "walks"] for records in (plain, modelled)]
    return [
        gate("times without the model", len(times[0]), f"== {len(ORDERS)}"),
        *(
            gate(f"{order} reads: time with the model / without, difference from 1", abs(theirs / mine - 1), "<= 0.002")
            for order, mine, theirs in zip(ORDERS, *times, strict=False)
        ),
    ]


def _cell(kernel: Kernel, tlb: Model) -> Finished[Run]:
    [case] = scenarios.cases(Scale.SMOKE, ["redis/set-none"])
    world = execute.World(
        kernel.image, Mode.ICOUNT, programs.mthp_ext(), programs.guest(), None, tlb=walks.Tlb(tlb, 1 << 30)
    )
    return execute.run_all([Cell(case, ARM["never"], "classic", 0)], world, 1)


def _suite_counts(suite: Suite, finished: Finished[Run]) -> None:
    """A cell of the benchmark suite has walks, and those of its server are apart."""
    for complaint in finished.complaints:
        suite.fail("a cell of the suite", complaint)
    for run in finished.runs:
        figures = {metric.key: metric.of(run) for metric in walks.WALKS}
        every, servers = figures["walks_op_all"], figures["walks_op_servers"]
        ok = every is not None and servers is not None and 0 < servers < every
        _check(suite, "a cell of the suite: walks of all and of the server", ok, str(figures))
        # What comes before the first access of user code is nobody's.
        names = run.tlb.programs if run.tlb else {}
        share = walks.counts_of(run, {"(unknown)"}).walked / max(1, walks.counts_of(run, None).walked)
        _check(suite, "a cell of the suite: all programs have names", share < 0.01, f"{share:.3f} of {sorted(names)}")


def _refuses(suite: Suite, boot: Boot, outcome: vm.Outcome, why: str) -> None:
    said = model.refusal(outcome.records)
    _check(suite, f"{boot.name}: it refuses and says why", why in said, f"it said: {said!r}")


def _check(suite: Suite, name: str, ok: bool, detail: str) -> None:
    suite.tests.append(Test(name, Status.PASSED if ok else Status.FAILED, "" if ok else detail))


def run(kernel: Kernel) -> Suite:
    """Seven guests, two at a time: some eighty seconds of processor time."""
    begin = time.monotonic()
    suite = Suite("tlb model")
    try:
        usual = model.load(Geometry(), kernel.vmlinux)
    except LabError as error:
        # Without a mirror there is nothing to test; whatever else is wrong is a failure.
        status = Status.SKIPPED if error.code is Exit.SOURCE else Status.FAILED
        suite.tests.append(Test("(could not be loaded)", status, str(error)))
        return suite
    wrong_map, wrong_task = (
        replace(usual, layout=(*usual.layout, f"{name}={value:#x}"))
        for name, value in (("direct", _WRONG_MAP), ("current", _WRONG_TASK))
    )
    boots = {
        "off": Boot("no-coalescing", (4, 64, 2048), usual),
        "plain": Boot("plain", (4,), None),
        **{join: Boot(f"coalescing-{join}", (64,), replace(usual, geometry=Geometry(join=join)), orders=("random",),
                      levels=levels)
           for join, levels in (("16K", 4), ("64K", 5))},
        "map": Boot("wrong-map", (4,), wrong_map, 2, ("random",)),
        "task": Boot("wrong-task", (4,), wrong_task, 2, ("random",)),
    }  # fmt: skip
    suite.logs += [BUILD / "vm" / f"tlb-{boot.name}" / "console.log" for boot in boots.values()]
    programs.guest()
    programs.mthp_ext()
    programs.package("lab-walks")
    try:
        with ThreadPoolExecutor(2) as pool:
            # The longest first.
            guests = {name: pool.submit(_run, kernel, boot) for name, boot in boots.items()}
            cell = pool.submit(_cell, kernel, usual)
            outcomes = {name: guest.result() for name, guest in guests.items()}
            finished = cell.result()
    except LabError as error:
        suite.fail("(a guest failed)", str(error))
        return suite
    judged = _clock(outcomes["plain"].records, outcomes["off"].records)
    for name in ("off", "16K", "64K"):
        tlb = boots[name].tlb
        if tlb:
            why = model.refusal(outcomes[name].records)
            _check(suite, f"{boots[name].name}: the model counts", not why, why)
            judged += judge(boots[name], tlb.geometry, outcomes[name].records) if not why else []
    for one in judged:
        _check(suite, one.name, one.ok, f"{one.value} ({one.bound})")
    _refuses(suite, boots["map"], outcomes["map"], "map of all memory")
    _refuses(suite, boots["task"], outcomes["task"], "running task cannot be read")
    _suite_counts(suite, finished)
    suite.seconds = time.monotonic() - begin
    suite.settle()
    return suite
