# SPDX-License-Identifier: GPL-2.0-only
"""The TLB model against what can be computed: reads of memory in pages of each size, in several orders. And what it
must not do: disturb the guest's clock, or report where it cannot know."""

import math
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab import programs, vm
from lab.bench import benchtlb, execute, scenarios, walks
from lab.bench.arms import ARM, SIZES_KIB, THP
from lab.bench.cell import Cell
from lab.bench.run import Run
from lab.bench.spec import Scale
from lab.checks.result import Status, Suite, Test
from lab.errors import Exit, LabError
from lab.kernel.build import Kernel
from lab.paths import BUILD
from lab.results import Gate, gate
from lab.tlb import model
from lab.tlb.counts import read
from lab.tlb.geometry import JOINS, Geometry
from lab.tlb.model import Model
from lab.vm import Mode
from lab.vm.schedule import Finished

MIB = 256
ORDERS = ("random", "sequential", "dependent")
TOLERANCE = 0.002
_CERTAIN = 0.0005
"""Where nothing is drawn: reads in the order of addresses, and what must never walk. The program's own accesses and the
pages that the row before has left in the TLB are half of it."""
_REFERENCES = 0.02
"""Tolerance of the entries that a walk reads."""
_KERNEL = 0.01
"""And of walks in the kernel, which has memory of its own in base pages: its stack above all."""
_CLOCK = 0.01
"""And of the clock. A nanosecond charged for a walk would be 0.06 of a random read."""
_RATE = 0.05
"""And of a rate of the suite: at its smallest equal runs differ by 0.01."""
_LEAST, _CALLS, _DROPPED = 100_000, 20_000, 5_000
"""Accesses: where none is a matter of chance; system calls; pages given back."""
_LINES = 64
"""Lines of 64 bytes in a page of 4 KiB."""
_WHOLE, _PAST_L2 = MIB * 256 * _LINES, 200_000
"""Reads in the order of addresses: of all memory, some 0.9 s of emulation; and of 12 MiB, half as much again as L2 maps
in base pages, which must do where the leaves are those of the row before."""
_WRONG_MAP, _WRONG_TASK = 0xFFFF_8000_0000_0000, 0x1000
_SHIFTED = {"comm": 8, "mm": 8, "context": 8, "leader": -40}
"""Offsets that are wrong by so many bytes: by one word, and the leader's place is that of the parent, which has a name,
too."""
_OTHER_LAYOUT = "this is not the kernel whose layout was given"
_OWN_MIB = 512
"""Memory of the guest of a program of one's own."""
_CASE = "redis/set-none"
"""Of the suite, modelled and plain."""


@dataclass(frozen=True)
class Reads:
    """Memory in pages of one size, filled once and read in each order."""

    kib: int
    orders: tuple[str, ...] = ORDERS
    control: bool = False
    """The first order comes once more, before the model is armed."""


@dataclass(frozen=True)
class Guest:
    """A guest, and the models that see what it reads."""

    name: str
    reads: tuple[Reads, ...]
    joins: tuple[str, ...]
    """Coalescing of each model."""
    levels: int
    """Of the page tables."""


PATTERNS = Guest("patterns", (Reads(4, control=True), Reads(64), Reads(2048)), ("off", "64K"), 5)
REFUSALS = Guest("refusals", (Reads(4, ("kernel", "dropped")), Reads(64, ("random",))), ("off", "16K"), 4)
"""Here are the models that must refuse, too. Each boot takes 3.2 s of a processor, so models share guests: a copy of
the plugin each."""


def expected(order: str, kib: int, geometry: Geometry) -> tuple[float, float]:
    """Shares of accesses that miss L1, and that walk: what does not fit of `MIB` in entries for so much each, by
    chance, or once for each entry where the order is that of the addresses."""
    if order == "dropped":
        return 1.0, 1.0
    entry_kib = 2048 if kib == 2048 else min(kib, 4 << JOINS[geometry.join])
    entries = MIB * 1024 // entry_kib
    l1 = geometry.l1_large if entry_kib == 2048 else geometry.l1_small
    if order == "sequential":
        share = 4 / entry_kib / _LINES
        return share, 0.0 if entries <= geometry.l2.entries else share
    return max(0.0, 1 - l1.entries / entries), max(0.0, 1 - geometry.l2.entries / entries)


def judged_by(order: str, kib: int, join: str) -> bool:
    """Whether this row can be computed for this model. Base pages that happen to lie side by side join, too; and the
    dependent order visits sets in turn, which a share of one half notices."""
    return join == "off" or (kib, order) == (64, "random")


def accesses(order: str, kib: int, joins: Iterable[str]) -> int:
    """So many that four standard deviations of each computed share are within the tolerance. Pages are drawn evenly and
    a set keeps its most recent ones, so each access misses by itself with the chance p: p (1 - p) / n is the variance
    of the share."""
    if order in ("kernel", "dropped"):
        return {"kernel": _CALLS, "dropped": _DROPPED}[order]
    if order == "sequential":
        return _PAST_L2 if kib == 64 else _WHOLE
    known = [expected(order, kib, Geometry(join=join)) for join in joins if judged_by(order, kib, join)]
    return max(_LEAST, *(math.ceil(4**2 * p * (1 - p) / TOLERANCE**2) for shares in known for p in shares))


def rows(guest: Guest) -> list[tuple[str, int, int]]:
    """Order, size of pages and number of accesses of each window."""
    return [(order, one.kib, accesses(order, one.kib, guest.joins)) for one in guest.reads for order in one.orders]


def script(guest: Guest, program: str) -> str:
    """What the guest runs."""
    # Page tables have five levels where the processor can; the flag is gone where the kernel does not use them.
    lines = [f"{'' if guest.levels == 5 else '! '}grep -q ' la57' /proc/cpuinfo || exit 1"]
    lines += [f"echo always > {THP}/enabled"]
    for one in guest.reads:
        lines += [f"echo never > {THP}/hugepages-{kib}kB/enabled" for kib in SIZES_KIB]
        plan = [f"{order}:{accesses(order, one.kib, guest.joins)}" for order in one.orders]
        plan = [plan[0], "arm", *plan] if one.control else plan
        run = f"{program} {MIB} - {' '.join(plan)} > $LAB_RESULTS || exit 1"
        if one.kib not in SIZES_KIB:
            lines += [run]
            continue
        # Else 64 KiB would be counted as 4 KiB for want of folios, and all would seem right.
        made = f"$(cat {THP}/hugepages-{one.kib}kB/stats/anon_fault_alloc)"
        lines += [f"echo inherit > {THP}/hugepages-{one.kib}kB/enabled", f"before={made}", run]
        lines += [f"[ $(({made} - before)) -ge {MIB * 1024 // one.kib} ] || exit 1"]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Seen:
    """What came out of a guest."""

    said: list[dict[str, Any]]
    """By its programs, and by the first model."""
    counted: dict[str, list[dict[str, Any]]]
    """By each model."""


def _run(kernel: Kernel, guest: Guest, models: Mapping[str, Model]) -> _Seen:
    """A plugin is in QEMU once for each file."""
    program = programs.package("lab-walks")
    first, *others = models
    options = list(models[first].emulator.options)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for other in others:
            copy = directory / f"{other}.so"
            shutil.copyfile(models[other].plugin, copy)
            options += replace(models[other], plugin=copy).arguments(directory / f"{other}.jsonl")
        outcome = vm.run(
            vm.Job(
                kernel=kernel.image,
                argv=["/bin/sh", "-c", script(guest, str(program))],
                programs=[program],
                memory_mib=MIB + 384,
                cpus=1,
                mode=Mode.ICOUNT,
                append="" if guest.levels == 5 else "no5lvl",
                plugin=replace(models[first], emulator=replace(models[first].emulator, options=tuple(options))),
                name=f"tlb-{guest.name}",
            )
        )
        outcome.check(f"the guest {guest.name}")
        found = {other: models[other].records(directory / f"{other}.jsonl") for other in others}
    return _Seen(outcome.records, {first: outcome.records, **found})


def _near(name: str, value: float, wanted: float, tolerance: float = TOLERANCE) -> Gate:
    return gate(
        f"{name}: {value:.4f} where {wanted:.4f} is computed; difference", abs(value - wanted), f"<= {tolerance}"
    )


def tolerance(order: str, share: float) -> float:
    """What a computed share may differ by."""
    return _CERTAIN if order == "sequential" or share == 0 else TOLERANCE


def judge(guest: Guest, geometry: Geometry, records: Sequence[dict[str, Any]]) -> list[Gate]:
    """Each row of a guest against what is computed."""
    wanted = rows(guest)
    found = read(records)
    head = f"{guest.name}, joined {geometry.join}"
    judged = [gate(f"{head}: windows that were counted", len(found), f"== {len(wanted)}")]
    for (order, kib, count), window in zip(wanted, found, strict=False):
        if not judged_by(order, kib, geometry.join):
            continue
        name = f"{head}, {order} reads, pages of {kib} KiB"
        program = window.program("lab-walks")
        judged.append(gate(f"{name}: programs of that name", int(program is not None), "== 1"))
        if program is None:
            continue
        mine = program["kernel" if order == "kernel" else "user"]
        l1, walks = expected(order, kib, geometry)
        judged.append(gate(f"{name}: accesses that no table maps", mine.lost, "== 0"))
        if order == "kernel":
            judged.append(_near(f"{name}: walks to 4 KiB", mine.walks.get(4, 0) / count, walks, _KERNEL))
            judged.append(_near(f"{name}: walks in user mode", program["user"].walked / count, 0.0, _KERNEL))
            continue
        if order != "dropped":
            # There the C library's system call has accesses of its own.
            judged.append(gate(f"{name}: accesses beside the reads, at least", mine.accesses - count, ">= 0"))
            judged.append(gate(f"{name}: accesses beside the reads", mine.accesses - count, "<= 50"))
        judged.append(_near(f"{name}: misses of L1", mine.l1_misses / count, l1, tolerance(order, l1)))
        judged.append(_near(f"{name}: walks", mine.walked / count, walks, tolerance(order, walks)))
        if order == "random" and kib == 4:
            # Half of the 128 directory entries are in the cache of 64; without one two entries must be read.
            read_by_walk = mine.references / max(1, mine.walked)
            judged.append(_near(f"{name}: references a walk", read_by_walk, 1.5, _REFERENCES))
    return judged


def clock(records: Sequence[dict[str, Any]]) -> list[Gate]:
    """No price is charged: the guest's clock must not know of the model."""
    times = {
        seen: [one["ns"] for one in records if one.get("type") == "walks" and one["seen"] is seen]
        for seen in (False, True)
    }
    ratio = times[True][0] / times[False][0] if times[True] and times[False] else None
    name = "random reads: time with the model / without, difference from 1"
    return [gate(name, None if ratio is None else abs(ratio - 1), f"<= {_CLOCK}")]


def _cells(kernel: Kernel, tlb: Model) -> Finished[Run]:
    """A modelled cell of the suite, and the same in the same QEMU without the model."""
    [case] = scenarios.cases(Scale.SMOKE, [_CASE])
    plain = Cell(case, ARM["never"], "classic", 0)
    world = execute.World(
        kernel.image,
        Mode.ICOUNT,
        programs.mthp_ext(),
        programs.guest(),
        None,
        tlb=walks.Tlb(tlb),
        emulator=tlb.emulator,
    )
    return execute.run_all([*walks.plan([plain], 1), plain], world, 1)


def judge_cells(runs: Sequence[Run]) -> list[Gate]:
    """A cell of the suite against what must hold whatever it does: an instruction is a nanosecond, a request needs a
    walk or two where its data is far larger than the TLB's reach, and the model is not to be felt."""
    by_kind = {run.cell.modelled: run for run in runs}
    run, plain = by_kind.get(True), by_kind.get(False)
    judged = [gate("cells of the suite that ran", len(by_kind), "== 2")]
    if run is None or plain is None or run.tlb is None:
        return [*judged, gate("cells of the suite that were modelled", 0, "== 1")]
    figures = {metric.key: metric.of(run) for metric in walks.WALKS}
    every, servers = figures["walks_op_all"], figures["walks_op_servers"]
    share = servers / every if every and servers is not None else None
    # The load generator's memory is small.
    judged.append(gate(f"{_CASE}: walks of the servers / all", share, ">= 0.3"))
    judged.append(gate(f"{_CASE}: walks of the servers / all, at most", share, "<= 0.99"))
    nobodys = run.tlb.program("(kernel)")
    between = (nobodys["kernel"].walked if nobodys else 0) / max(1, run.tlb.counts().walked)
    judged.append(gate(f"{_CASE}: walks between two programs / all", between, "<= 0.02"))
    executed = run.tlb.counts().instructions / 1e9 / run.elapsed_s
    judged.append(gate(f"{_CASE}: instructions counted / nanoseconds, at least", executed, ">= 0.9"))
    judged.append(gate(f"{_CASE}: instructions counted / nanoseconds", executed, "<= 1.02"))
    with_it, without = (one.cell.case.scores[0].of(one) for one in (run, plain))
    ratio = abs(with_it / without - 1) if with_it and without else None
    return [*judged, gate(f"{_CASE}: rate with the model / without, difference from 1", ratio, f"<= {_RATE}")]


def _own(kernel: Kernel, tlb: Model) -> Finished[Run]:
    """A program of a user's own, as `make bench-tlb` runs it, under each of its settings: 64 MiB, written once."""
    with tempfile.TemporaryDirectory() as name:
        start = Path(name) / "run"
        start.write_text("#!/bin/sh\nexec dd if=/dev/zero of=/dev/null bs=64M count=1\n", encoding="utf-8")
        start.chmod(0o755)
        own = benchtlb.payload(start.parent, _OWN_MIB)
        return benchtlb.measure("dd", own, _OWN_MIB, benchtlb.ARMS, kernel.image, walks.Tlb(tlb), 1)


def judge_own(runs: Sequence[Run]) -> list[Gate]:
    """Small pages against large ones: 16,384 faults and leaves against 32 of each, and what the program starts with.
    Folios of 64 KiB have the leaves of small pages, and 1,024 faults."""
    by_arm = {run.cell.arm.key: {row.key: row.of(run) for row in benchtlb.ROWS} for run in runs}
    judged = [gate("bench-tlb: settings that ran", len(by_arm), f"== {len(benchtlb.ARMS)}")]
    if len(by_arm) != len(benchtlb.ARMS):
        return judged
    never, always, only64, default = (by_arm[key] for key in ("never", "always", "only64", "mthp_ext"))
    missing = sum(value is None for figures in by_arm.values() for value in figures.values())
    judged.append(gate("bench-tlb: figures that are missing", missing, "== 0"))
    for key, other, figures, least in (
        ("faults", "large ones", always, 10),
        ("walks", "large ones", always, 2),
        ("faults", "those of 64K", only64, 4),
    ):
        mine, theirs = never[key], figures[key]
        ratio = mine / theirs if mine is not None and theirs else None
        judged.append(gate(f"bench-tlb: {key} with small pages / with {other}", ratio, f">= {least}"))
    judged.append(gate("bench-tlb: memory in folios of 2M, never", never["cover_2m"], "== 0"))
    judged.append(gate("bench-tlb: memory in folios of 2M, always", always["cover_2m"], ">= 0.8"))
    judged.append(gate("bench-tlb: memory in folios of 2M, 64K only", only64["cover_2m"], "== 0"))
    judged.append(gate("bench-tlb: memory in folios of 2M, default policy", default["cover_2m"], "> 0"))
    return judged


def _refuses(suite: Suite, name: str, records: list[dict[str, Any]], why: str) -> None:
    said = model.refusal(records)
    suite.check(f"{name}: it refuses and says why", why in said, f"it said: {said!r}")


def wrong(tlb: Model) -> dict[str, tuple[Model, str]]:
    """Models that do not know the guest's kernel, and what they must say."""
    found = {}
    for name, option, value, why in (
        ("wrong-map", "direct", _WRONG_MAP, "map of all memory"),
        ("wrong-task", "current", _WRONG_TASK, _OTHER_LAYOUT),
    ):
        found[name] = replace(tlb, layout=(*tlb.layout, f"{option}={value:#x}")), why
    for option, bytes_off in _SHIFTED.items():
        [word] = [word for word in tlb.layout if word.startswith(f"{option}=")]
        far = int(word.partition("=")[2], 16) + bytes_off
        found[f"wrong-{option}"] = replace(tlb, layout=(*tlb.layout, f"{option}={far:#x}")), _OTHER_LAYOUT
    return found


def _judge_guest(suite: Suite, guest: Guest, seen: _Seen) -> list[Gate]:
    judged = []
    for join in guest.joins:
        why = model.refusal(seen.counted[join])
        suite.check(f"{guest.name}, joined {join}: the model counts", not why, why)
        judged += judge(guest, Geometry(join=join), seen.counted[join])
    return judged


def run(kernel: Kernel) -> Suite:
    """Eight guests, two at a time: two of reads, two of the suite, four of a program of one's own."""
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
    guests = (PATTERNS, REFUSALS)
    suite.logs += [BUILD / "vm" / f"tlb-{guest.name}" / "console.log" for guest in guests]
    programs.guest()
    programs.mthp_ext()
    programs.package("lab-walks")
    refusing = wrong(usual)
    patterns, refusals = (
        {join: replace(usual, geometry=Geometry(join=join)) for join in guest.joins} for guest in guests
    )
    refusals |= {name: one for name, (one, _) in refusing.items()}
    try:
        with ThreadPoolExecutor(2) as pool:
            running = [
                pool.submit(_run, kernel, PATTERNS, patterns),
                pool.submit(_run, kernel, REFUSALS, refusals),
            ]
            cells = pool.submit(_cells, kernel, usual)
            own = pool.submit(_own, kernel, usual)
            seen = [one.result() for one in running]
            finished, owned = cells.result(), own.result()
    except LabError as error:
        suite.fail("(a guest failed)", str(error))
        return suite
    judged = clock(seen[0].said)
    for guest, one in zip(guests, seen, strict=True):
        judged += _judge_guest(suite, guest, one)
    for complaint in (*finished.complaints, *owned.complaints):
        suite.fail("a cell of the suite, or a program of one's own", complaint)
    for found in [*judged, *judge_cells(finished.runs), *judge_own(owned.runs)]:
        suite.gate(found)
    for name, (_, why) in refusing.items():
        _refuses(suite, name, seen[1].counted[name], why)
    suite.seconds = time.monotonic() - begin
    suite.settle()
    return suite
