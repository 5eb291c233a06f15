# SPDX-License-Identifier: GPL-2.0-only
"""The TLB model against what can be computed: random, sequential and dependent reads of memory in pages of each size.
And what it must not do: disturb the guest's clock, or report where it cannot know."""

import sys
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
from lab.qemu import Emulator
from lab.results import Gate, gate
from lab.schedule import Finished
from lab.testing.result import Status, Suite, Test
from lab.tlb import model
from lab.tlb.counts import read
from lab.tlb.geometry import JOINS, Geometry
from lab.tlb.model import Model
from lab.vm import Mode

MIB, ACCESSES = 256, 1_000_000
ORDERS = ("random", "sequential", "dependent")
TOLERANCE = 0.002
_REFERENCES = 0.02
"""Tolerance of the entries that a walk reads."""
_KERNEL = 0.01
"""And of walks in the kernel, which has memory of its own in base pages: its stack above all."""
_LINES = 64
"""Lines of 64 bytes in a page of 4 KiB."""
_WRONG_MAP, _WRONG_TASK = 0xFFFF_8000_0000_0000, 0x1000
_SHIFTED = ("comm", "mm", "context")
"""Offsets that are wrong by one word in guests of their own."""
_OTHER_LAYOUT = "this is not the kernel whose layout was given"
_COUNTED = ("redis/set-none", "memcached/none")
"""Cells of the suite that are modelled. Threads of memcached have other names than itself."""


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
    accesses: int = ACCESSES
    emulator: Emulator | None = None
    """Without a model."""


def script(boot: Boot, program: str) -> str:
    """What the guest runs."""
    # Page tables have five levels where the processor can; the flag is gone where the kernel does not use them.
    lines = [f"{'' if boot.levels == 5 else '! '}grep -q ' la57' /proc/cpuinfo || exit 1"]
    lines += [f"echo always > {THP}/enabled"]
    for size in boot.sizes:
        lines += [f"echo never > {THP}/hugepages-{kib}kB/enabled" for kib in SIZES_KIB]
        lines += [f"echo inherit > {THP}/hugepages-{size}kB/enabled"] if size in SIZES_KIB else []
        made = f"$(cat {THP}/hugepages-{size}kB/stats/anon_fault_alloc)"
        lines += [f"before={made}"] if size in SIZES_KIB else []
        lines += [f"{program} {order} {boot.mib} {boot.accesses} > $LAB_RESULTS || exit 1" for order in boot.orders]
        # Else 64 KiB would be counted as 4 KiB for want of folios, and all would seem right.
        wanted = boot.mib * 1024 // size * len(boot.orders)
        lines += [f"[ $(({made} - before)) -ge {wanted} ] || exit 1"] if size in SIZES_KIB else []
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
            emulator=boot.emulator,
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


def _near(name: str, value: float, wanted: float, tolerance: float = TOLERANCE) -> Gate:
    return gate(
        f"{name}: {value:.4f} where {wanted:.4f} is computed; difference", abs(value - wanted), f"<= {tolerance}"
    )


def judge(boot: Boot, geometry: Geometry, records: Sequence[dict[str, Any]]) -> list[Gate]:
    """Each row of a guest against what is computed."""
    rows = [(order, kib) for kib in boot.sizes for order in boot.orders]
    found = read(records)
    judged = [gate(f"{boot.name}: windows that were counted", len(found), f"== {len(rows)}")]
    for (order, kib), window in zip(rows, found, strict=False):
        name = f"{boot.name}, {order} reads, pages of {kib} KiB"
        program = window.program("lab-walks")
        judged.append(gate(f"{name}: programs of that name", int(program is not None), "== 1"))
        if program is None:
            continue
        mine = program["kernel" if order == "kernel" else "user"]
        l1, walks = expected(order, kib, geometry)
        judged.append(gate(f"{name}: accesses that no table maps", mine.lost, "== 0"))
        if order == "kernel":
            judged.append(_near(f"{name}: walks to 4 KiB", mine.walks.get(4, 0) / boot.accesses, walks, _KERNEL))
            judged.append(_near(f"{name}: walks in user mode", program["user"].walked / boot.accesses, 0.0, _KERNEL))
            continue
        judged.append(gate(f"{name}: accesses at least", mine.accesses / boot.accesses, ">= 1"))
        judged.append(gate(f"{name}: accesses at most", mine.accesses / boot.accesses, "<= 1.0001"))
        judged.append(_near(f"{name}: misses of L1", mine.l1_misses / boot.accesses, l1))
        judged.append(_near(f"{name}: walks", mine.walked / boot.accesses, walks))
        if order == "random" and kib == 4:
            # Half of the 128 directory entries are in the cache of 64; without one two entries must be read.
            read_by_walk = mine.references / max(1, mine.walked)
            judged.append(_near(f"{name}: references a walk", read_by_walk, 1.5, _REFERENCES))
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


def _cells(kernel: Kernel, tlb: Model) -> Finished[Run]:
    """Modelled cells of the suite, and the first of them in the same QEMU without the model."""
    cases = scenarios.cases(Scale.SMOKE, list(_COUNTED))
    plain = [Cell(case, ARM["never"], "classic", 0) for case in cases]
    world = execute.World(
        kernel.image,
        Mode.ICOUNT,
        programs.mthp_ext(),
        programs.guest(),
        None,
        tlb=walks.Tlb(tlb),
        emulator=tlb.emulator,
    )
    control = [cell for cell in plain if cell.case.name == _COUNTED[0]]
    return execute.run_all([*walks.plan(plain, 1), *control], world, 1)


def judge_cells(runs: Sequence[Run]) -> list[Gate]:
    """Cells of the suite against what must hold whatever they do: an instruction is a nanosecond, a request needs a
    walk or two where its data is far larger than the TLB's reach, and the model is not to be felt."""
    modelled = {run.cell.case.name: run for run in runs if run.cell.modelled}
    judged = [gate("cells of the suite that were modelled", len(modelled), f"== {len(_COUNTED)}")]
    for name, run in modelled.items():
        figures = {metric.key: metric.of(run) for metric in walks.WALKS}
        every, servers = figures["walks_op_all"], figures["walks_op_servers"]
        share = servers / every if every and servers is not None else None
        # The load generator's memory is small.
        judged.append(gate(f"{name}: walks of the servers / all", share, ">= 0.3"))
        judged.append(gate(f"{name}: walks of the servers / all, at most", share, "<= 0.99"))
        nobodys = run.tlb.program("(kernel)") if run.tlb else None
        between = (nobodys["kernel"].walked if nobodys else 0) / run.tlb.counts().walked if run.tlb else None
        judged.append(gate(f"{name}: walks between two programs / all", between, "<= 0.02"))
        executed = run.tlb.counts().instructions / 1e9 / run.elapsed_s if run.tlb else None
        judged.append(gate(f"{name}: instructions counted / nanoseconds, at least", executed, ">= 0.9"))
        judged.append(gate(f"{name}: instructions counted / nanoseconds", executed, "<= 1.02"))
    pair = [run for run in runs if run.cell.case.name == _COUNTED[0]]
    rates = {run.cell.modelled: run.cell.case.scores[0].of(run) for run in pair}
    with_it, without = rates.get(True), rates.get(False)
    ratio = abs(with_it / without - 1) if with_it and without else None
    return [*judged, gate(f"{_COUNTED[0]}: rate with the model / without, difference from 1", ratio, "<= 0.02")]


def _refuses(suite: Suite, boot: Boot, outcome: vm.Outcome, why: str) -> None:
    said = model.refusal(outcome.records)
    _check(suite, f"{boot.name}: it refuses and says why", why in said, f"it said: {said!r}")


def _check(suite: Suite, name: str, ok: bool, detail: str) -> None:
    suite.tests.append(Test(name, Status.PASSED if ok else Status.FAILED, "" if ok else detail))


def _shifted(tlb: Model, name: str) -> Model:
    """With one offset a word too far."""
    [word] = [word for word in tlb.layout if word.startswith(f"{name}=")]
    return replace(tlb, layout=(*tlb.layout, f"{name}={int(word.partition('=')[2], 16) + 8:#x}"))


def run(kernel: Kernel) -> Suite:
    """Fourteen guests, two at a time."""
    begin = time.monotonic()
    suite = Suite("tlb model")
    try:
        usual = model.load(Geometry(), kernel.vmlinux)
    except LabError as error:
        # Without a mirror there is nothing to test; whatever else is wrong is a failure.
        status = Status.SKIPPED if error.code is Exit.SOURCE else Status.FAILED
        suite.tests.append(Test("(could not be loaded)", status, str(error)))
        print(f"test: NOTHING OF THE TLB MODEL IS TESTED: {error}", file=sys.stderr, flush=True)
        return suite
    wrong_map, wrong_task = (
        replace(usual, layout=(*usual.layout, f"{name}={value:#x}"))
        for name, value in (("direct", _WRONG_MAP), ("current", _WRONG_TASK))
    )
    boots = {
        "off": Boot("no-coalescing", (4, 64, 2048), usual),
        "plain": Boot("plain", (4,), None, emulator=usual.emulator),
        **{join: Boot(f"coalescing-{join}", (64,), replace(usual, geometry=Geometry(join=join)), orders=("random",),
                      levels=levels)
           for join, levels in (("16K", 4), ("64K", 5))},
        "kernel": Boot("kernel", (4,), usual, orders=("kernel",), accesses=200_000),
        "map": Boot("wrong-map", (4,), wrong_map, 2, ("random",)),
        "task": Boot("wrong-task", (4,), wrong_task, 2, ("random",)),
        **{name: Boot(f"wrong-{name}", (4,), _shifted(usual, name), 2, ("random",)) for name in _SHIFTED},
    }  # fmt: skip
    suite.logs += [BUILD / "vm" / f"tlb-{boot.name}" / "console.log" for boot in boots.values()]
    programs.guest()
    programs.mthp_ext()
    programs.package("lab-walks")
    try:
        with ThreadPoolExecutor(2) as pool:
            # The longest first.
            guests = {name: pool.submit(_run, kernel, boot) for name, boot in boots.items()}
            cells = pool.submit(_cells, kernel, usual)
            outcomes = {name: guest.result() for name, guest in guests.items()}
            finished = cells.result()
    except LabError as error:
        suite.fail("(a guest failed)", str(error))
        return suite
    judged = _clock(outcomes["plain"].records, outcomes["off"].records)
    for name in ("off", "16K", "64K", "kernel"):
        tlb = boots[name].tlb
        if tlb:
            why = model.refusal(outcomes[name].records)
            _check(suite, f"{boots[name].name}: the model counts", not why, why)
            judged += judge(boots[name], tlb.geometry, outcomes[name].records) if not why else []
    for complaint in finished.complaints:
        suite.fail("a cell of the suite", complaint)
    for one in [*judged, *judge_cells(finished.runs)]:
        _check(suite, one.name, one.ok, f"{one.value} ({one.bound})")
    _refuses(suite, boots["map"], outcomes["map"], "map of all memory")
    for name in ("task", *_SHIFTED):
        _refuses(suite, boots[name], outcomes[name], _OTHER_LAYOUT)
    suite.seconds = time.monotonic() - begin
    suite.settle()
    return suite
