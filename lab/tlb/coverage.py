# SPDX-License-Identifier: GPL-2.0-only
"""`python3 -m lab walks [FILE]`: the model's walks for each access at several coverages with huge pages, beside what
lab/tlb/hardware.py counted on a processor, if its FILE is given."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import programs, results, setup, vm
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.report.parts import gate_report, grid
from lab.tlb import model
from lab.tlb.counts import read
from lab.tlb.geometry import Geometry
from lab.tlb.hardware import COVERS, FORMAT, ORDERS
from lab.vm import Mode

MIB, ACCESSES, WARM_UP = 256, 500_000, 20_000
"""Memory; reads of a row; and those before it, which lab-walks does by itself."""
_LINES, _CHUNK = 64, 512
"""Lines in a base page, and base pages in a huge one."""
_CERTAIN = 0.0001
"""Tolerance of reads in the order of addresses, of which none is drawn. The program's own accesses are a part of it."""
_FIELDS = {"order", "mib", "cover", "covered", "walks_per_access", "ns_per_access"}
ABSENT = "No processor was measured: lab/tlb/hardware.py does that, on a real machine."


def load(path: Path) -> dict[str, Any]:
    """What hardware.py wrote; LabError if it is none."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        whole = body["format"] == FORMAT and all(set(row) == _FIELDS for row in body["rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(Exit.USAGE, f"{path} cannot be read ({error}); write it with lab/tlb/hardware.py") from error
    if not whole:
        raise LabError(Exit.USAGE, f"{path} is of another version of lab/tlb/hardware.py; measure again with this one")
    return dict(body)


def rows_of(records: Sequence[dict[str, Any]], plans: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """The model's rows, in the form of hardware.py's. Instructions stand where a processor has nanoseconds."""
    said = [record for record in records if record.get("type") == "walks"]
    windows = read(records)
    if not len(said) == len(windows) == len(plans):
        raise LabError(Exit.GUEST_FAILED, f"{len(plans)} runs were asked for, and {len(windows)} counted")
    found = []
    for (order, cover), one, window in zip(plans, said, windows, strict=True):
        counts = window.program("lab-walks")
        if counts is None:
            raise LabError(Exit.GUEST_FAILED, f"the model counted nothing of lab-walks in the run {order}, {cover} %")
        found.append(
            {"order": order, "mib": MIB, "cover": cover, "covered": one["covered"],
             "walks_per_access": counts["user"].walked / ACCESSES, "ns_per_access": one["ns"] / ACCESSES}
        )  # fmt: skip
    return found


def computed(order: str, cover: int, geometry: Geometry) -> float:
    """Walks for each read. Where pages are drawn: the share of base pages, times the share of those for which L2 has no
    entry beside the huge pages' own. In the order of addresses: once for each page that is entered in the part that is
    read, which begins where the warm-up ended."""
    pages = MIB * 1024 // 4
    huge = {chunk for chunk in range(pages // _CHUNK) if (chunk + 1) * cover // 100 > chunk * cover // 100}
    if order != "sequential":
        base = pages - _CHUNK * len(huge)
        return base / pages * max(0.0, 1 - (geometry.l2.entries - len(huge)) / base)

    def entry(page: int) -> tuple[bool, int]:
        chunk = page // _CHUNK
        return (True, chunk) if chunk in huge else (False, page)

    # lab-walks begins at the second line.
    read_pages = range((1 + WARM_UP) // _LINES, (WARM_UP + ACCESSES) // _LINES + 1)
    return len({entry(page) for page in read_pages} - {entry(WARM_UP // _LINES)}) / ACCESSES


def judge(rows: Sequence[dict[str, Any]], geometry: Geometry) -> list[results.Gate]:
    """Each row against what is computed: within four standard deviations where pages are drawn."""
    judged = []
    for row in rows:
        wanted = computed(row["order"], row["cover"], geometry)
        drawn = 4 * math.sqrt(wanted * (1 - wanted) / ACCESSES)
        most = _CERTAIN if row["order"] == "sequential" else drawn
        counted = row["walks_per_access"]
        name = f"{row['order']} reads, {row['cover']} % in huge pages: {counted:.4f} where {wanted:.4f} is computed"
        judged.append(results.gate(f"{name}; difference", abs(counted - wanted), f"<= {most:.5f}"))
    return judged


def table(mine: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Both, row by row; a dash where the processor has no such row."""
    known = {(row["order"], row["mib"], row["cover"]): row for row in theirs}
    rows = [["reads of 256 MiB", "in huge pages: model", "walks/access", "processor", "walks/access", "ns/access"]]
    for row in mine:
        other = known.get((row["order"], row["mib"], row["cover"]))
        rows.append([row["order"], *_shown(row), *(_shown(other) if other else ["-", "-"])])
        rows[-1].append(f"{other['ns_per_access']:.2f}" if other else "-")
    return rows


def _shown(row: dict[str, Any]) -> list[str]:
    return [f"{row['covered'] * 100:.0f}%", f"{row['walks_per_access']:.4f}"]


def main(path: Path | None) -> int:
    """Runs the guest, writes build/results/walks.json and prints the table; Exit.TESTS if a row is not as computed."""
    other = load(path) if path else None
    setup.ensure(setup.Need.PROGRAM | setup.Need.KERNEL | setup.Need.VM)
    kernel = build.ensure()
    tlb = model.load(Geometry(), kernel.vmlinux)
    program = programs.package("lab-walks")
    plans = [(order, cover) for order in ORDERS for cover in COVERS]
    lines = [f"{program} {MIB} {cover} {order}:{ACCESSES} > $LAB_RESULTS || exit 1" for order, cover in plans]
    # As it is when the run begins: the tree may change meanwhile.
    environment = results.environment(
        kernel.release, "icount", **tlb.environment(), processor=str(other["cpu"]) if other else None
    )
    job = vm.Job(kernel=kernel.image, argv=["/bin/sh", "-c", "\n".join(lines)], programs=[program], cpus=1,
                 memory_mib=MIB + 384, mode=Mode.ICOUNT, append="transparent_hugepage=madvise", plugin=tlb,
                 name="walks")  # fmt: skip
    outcome = vm.run(job)
    outcome.check("walks")
    model.check(outcome.records, "walks", outcome.console)
    rows = rows_of(outcome.records, plans)
    judged = judge(rows, tlb.geometry)
    metrics = {"format": FORMAT, "rows": rows, "processor": other, "model": tlb.identity()}
    written = results.write("walks", environment, metrics, judged)
    print("\n".join(grid(table(rows, other["rows"] if other else []))))
    print(f"\nTLB of the model: {tlb.geometry.text}.")
    print(f"Processor: {other['cpu']}, {other['event']}." if other else ABSENT)
    missed = [one for one in judged if one.missed]
    if missed:
        print("\n".join(gate_report(missed)))
    print(f"Written: {written}")
    return Exit.TESTS if missed else Exit.OK
