# SPDX-License-Identifier: GPL-2.0-only
"""The tables, for a terminal and for docs/."""

from collections.abc import Iterable, Sequence

from lab.cost import gates, plan
from lab.cost.figures import Figures, Life
from lab.report.parts import grid
from lab.results import Gate

NOTE = (
    "Instructions counted under emulation, of the median fault (64 KiB: mean of the middle four fifths), which\n"
    "includes 10 or so of the program that takes it. Faults of 4 KiB ask no policy, the others ask once.\n"
    "They are not nanoseconds: there is no cache, no TLB, and no misprediction in them."
)


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(grid(rows, right=True))


def _number(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign},.0f}"


def faults(patched: Figures, stock: Figures | None) -> str:
    """Instructions per fault: in full where nothing is attached, else what comes on top."""
    columns = [(kib, depth) for kib in plan.SIZES_KIB for depth in plan.DEPTHS]
    rows = [["instructions per fault", *(f"{kib} KiB, depth {depth}" for kib, depth in columns)]]
    if stock:
        whole = [stock.fault(plan.NONE, plan.PLAIN[depth], kib) for kib, depth in columns]
        rows.append(["unpatched", *map(_number, whole)])
    rows.append(["patched", *(_number(patched.fault(plan.NONE, plan.PLAIN[depth], kib)) for kib, depth in columns)])
    for arm in plan.ARMS:
        if arm in plan.YARDSTICKS:
            continue
        base = plan.REFUSE if arm.refuses else plan.NONE
        places = {place.depth: place for place in arm.places}
        extra = [patched.extra(arm, base, places[depth], kib) for kib, depth in columns]
        rows.append([arm.label, *(_number(value, "+") for value in extra)])
    calls = [patched.calls.get((plan.PLAIN[depth].name, kib)) for kib, depth in columns]
    rows.append(["calls per fault", *("-" if value is None else f"{value:.2f}" for value in calls)])
    return _table(rows)


def scale(patched: Figures) -> str:
    """Instructions of attaching and of mkdir, by number of cgroups."""
    rows = [["instructions", *(f"{n:,} cgroups: {what}" for n in plan.CGROUPS for what in ("median", "p99", "max"))]]
    for what in ("attach", "detach", gates.MKDIR_ALONE, *gates.MKDIRS, gates.SCAN):
        cells = []
        for cgroups in plan.CGROUPS:
            found = patched.scale.get((cgroups, what))
            cells += [_number(value) for value in ((found.p50, found.p99, found.most) if found else (None,) * 3)]
        rows.append([what, *cells])
    return _table(rows)


def lives(patched: Figures, stock: Figures) -> str:
    """Instructions of fork and exec, and of a round of khugepaged, by the size that is on."""
    kernels = (("unpatched", stock), ("patched", patched))
    columns = [(kib, name, figures) for kib in plan.SETTINGS_KIB for name, figures in kernels]
    rows = [["instructions", *(f"{f'{kib:,} KiB' if kib else 'nothing'} on: {name}" for kib, name, _ in columns)]]

    def row(what: str) -> list[Life | None]:
        return [figures.lives.get((kib, what)) for kib, _, figures in columns]

    for what in plan.LIVES:
        rows.append([what, *(_number(one.instructions if one else None) for one in row(what))])
    each = [one.instructions / one.scans if one and one.scans else None for one in row(plan.KHUGEPAGED)]
    rows.append(["khugepaged, one round", *map(_number, each)])
    return _table(rows)


def reclaims(patched: Figures, idle: Figures, stock: Figures) -> str:
    """Instructions of a pass of reclaim over memory in use, and of a question in it, by the size of its folios."""
    rows = [["instructions of reclaim", *(f"{kib:,} KiB" for kib in plan.SIZES_KIB)]]
    rows.append(["unpatched", *(_number(stock.reclaim(plan.NONE, kib)) for kib in plan.SIZES_KIB)])
    rows.append(["patched", *(_number(idle.reclaim(plan.NONE, kib)) for kib in plan.SIZES_KIB)])
    rows.append(["... beside the programs", *(_number(patched.reclaim(plan.NONE, kib)) for kib in plan.SIZES_KIB)])
    for arm in (plan.EMPTY, plan.KEEPS):
        rows.append([arm.label, *(_number(patched.reclaim(arm, kib)) for kib in plan.SIZES_KIB)])
        rows.append(["... for each question", *(_number(patched.per_question(arm, kib)) for kib in plan.SIZES_KIB)])
    count = [patched.reclaims.get((plan.COUNT.name, kib)) for kib in plan.SIZES_KIB]
    rows.append(["questions", *(_number(one.calls if one else None) for one in count)])
    rows.append(["pages looked at", *(_number(one.scanned if one else None) for one in count)])
    return _table(rows)


def judged(checked: Iterable[Gate]) -> str:
    """One line per gate."""
    return "\n".join(
        f"{'ok  ' if one.ok else 'FAIL'} {one.name}: "
        f"{'not measured' if one.value is None else f'{one.value:g}' if isinstance(one.value, float) else one.value} "
        f"({one.bound})"
        for one in checked
    )
