# SPDX-License-Identifier: GPL-2.0-only
"""`python3 -m lab walks [FILE]`: the model's walks for each access at several coverages with huge pages, beside what
lab/tlb/hardware.py counted on a processor, if its FILE is given."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import programs, results, setup, vm
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.report.parts import grid
from lab.tlb import model
from lab.tlb.counts import read
from lab.tlb.geometry import Geometry
from lab.tlb.hardware import COVERS, FORMAT, ORDERS
from lab.vm import Mode

MIB, ACCESSES = 256, 500_000
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
    """Runs the guest, writes build/results/walks.json and prints the table."""
    other = load(path) if path else None
    setup.ensure(setup.Need.PROGRAM | setup.Need.KERNEL | setup.Need.VM)
    kernel = build.ensure()
    tlb = model.load(Geometry(), kernel.vmlinux)
    program = programs.package("lab-walks")
    plans = [(order, cover) for order in ORDERS for cover in COVERS]
    lines = [f"{program} {MIB} {cover} {order}:{ACCESSES} > $LAB_RESULTS || exit 1" for order, cover in plans]
    job = vm.Job(kernel=kernel.image, argv=["/bin/sh", "-c", "\n".join(lines)], programs=[program], cpus=1,
                 memory_mib=MIB + 384, mode=Mode.ICOUNT, append="transparent_hugepage=madvise", plugin=tlb,
                 name="walks")  # fmt: skip
    outcome = vm.run(job)
    outcome.check("walks")
    model.check(outcome.records, "walks", outcome.console)
    rows = rows_of(outcome.records, plans)
    environment = results.environment(
        kernel.release, "icount", **tlb.environment(), processor=str(other["cpu"]) if other else None
    )
    written = results.write("walks", environment, {"format": FORMAT, "rows": rows, "processor": other}, [])
    print("\n".join(grid(table(rows, other["rows"] if other else []))))
    print(f"\nTLB of the model: {tlb.geometry.text}.")
    print(f"Processor: {other['cpu']}, {other['event']}." if other else ABSENT)
    print(f"Written: {written}")
    return Exit.OK
