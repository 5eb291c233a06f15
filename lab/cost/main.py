# SPDX-License-Identifier: GPL-2.0-only
"""`make bench-hook`: what the hook costs per page fault, and whether that depends on the number of cgroups."""

import time
from typing import Any

from lab import results, setup
from lab.cost import disasm, gates, jumps, measure, plan, text
from lab.cost.figures import Figures, merge
from lab.errors import Exit
from lab.kernel import build
from lab.results import Gate


def main() -> int:
    """Measures all arms on the patched kernel and the unpatched one; 0 when every gate holds."""
    begun = time.monotonic()
    setup.ensure(setup.Need.PROGRAM | setup.Need.KERNEL | setup.Need.VM)
    kernel, stock_kernel = build.ensure(variant=build.COST), build.ensure(variant=build.STOCK)
    print("bench-hook: the unpatched kernel", flush=True)
    stock = merge(
        [
            measure.run(stock_kernel, plan.unpatched(), "hook-unpatched"),
            measure.run(stock_kernel, plan.lives(patched=False), "hook-lives-unpatched"),
            measure.reclaimed(stock_kernel, "hook-reclaims-unpatched", patched=False),
        ]
    )
    print("bench-hook: the patched kernel", flush=True)
    parts = [measure.run(kernel, one, f"hook-{one.places[0].name}") for one in plan.plans()]
    parts.append(measure.run(kernel, plan.lives(patched=True), "hook-lives"))
    # The same plan as on the other kernel: what else a guest has at hand moves its page allocator.
    idle = measure.reclaimed(kernel, "hook-reclaims-idle", patched=False)
    parts.append(measure.reclaimed(kernel, "hook-reclaims"))
    print(f"bench-hook: attaching above {' and '.join(f'{n:,}' for n in plan.CGROUPS)} cgroups", flush=True)
    parts.append(measure.run(kernel, plan.Plan((), cgroups=plan.CGROUPS), "hook-scale"))
    print("bench-hook: how long cgroup_mutex is held, on 8 processors", flush=True)
    parts.append(measure.run(kernel, plan.holds(), "hook-holds"))
    patched = merge(parts)
    found, asked = disasm.references(kernel.vmlinux), jumps.sites(kernel.vmlinux)
    checked: list[Gate] = [
        *gates.repeats(patched, stock),
        *gates.unattached(patched, stock),
        *gates.places(asked),
        *gates.lives(patched, stock),
        *gates.idle_reclaims(idle, stock),
        *gates.reclaims(patched),
        *gates.calls(patched),
        *gates.limits(patched),
        results.gate("instructions of the hook that may take a reference", len(found), "== 0"),
        *gates.scale(patched),
        *gates.holds(patched),
    ]
    environment = results.environment(kernel.release, "icount", seconds=round(time.monotonic() - begun))
    measured = {**metrics(patched, idle, stock, found), "places": [str(one) for one in asked]}
    path = results.write("bench-hook", environment, measured, checked)
    tables = (text.faults(patched, stock), text.scale(patched), text.lives(patched, stock))
    print("", *tables, text.reclaims(patched, idle, stock), text.NOTE, text.judged(checked), sep="\n\n")
    print(f"\n{(time.monotonic() - begun) / 60:.1f} minutes. Results: {path}")
    return Exit.OK if all(one.ok for one in checked) else Exit.TESTS


def metrics(patched: Figures, idle: Figures, stock: Figures, references: list[str]) -> dict[str, Any]:
    """Everything measured, for the results file."""

    def faults(figures: Figures) -> dict[str, Any]:
        return {
            f"{arm}/{place}/{kib}": {
                "instructions": round(figure.median, 1),
                "spread": round(figure.spread, 1),
                "mean": round(figure.mean, 1),
                "runs": [round(one, 1) for one in figure.each],
            }
            for (arm, place, kib), figure in figures.faults.items()
        }

    return {
        "unpatched": faults(stock),
        "patched": faults(patched),
        "calls_per_fault": {f"{place}/{kib}": calls for (place, kib), calls in patched.calls.items()},
        "scale": {
            f"{what}/{cgroups}": {"p50": one.p50, "p99": one.p99, "max": one.most}
            for (cgroups, what), one in patched.scale.items()
        },
        "holds": {
            str(cgroups): {
                "count": one.count,
                "p50": one.p50,
                "p99": one.p99,
                "max": one.most,
                "longest": one.longest,
                "used": one.used,
            }
            for cgroups, one in patched.holds.items()
        },
        "lives": {
            f"{kernel}/{what}/{kib}": {"instructions": one.instructions, "scans": one.scans}
            for kernel, figures in (("unpatched", stock), ("patched", patched))
            for (kib, what), one in figures.lives.items()
        },
        "reclaims": {
            f"{kernel}/{arm}/{kib}": {
                "runs": one.each,
                "scanned": one.scanned,
                "folios": one.folios,
                "questions": one.calls,
            }
            for kernel, figures in (("unpatched", stock), ("idle", idle), ("patched", patched))
            for (arm, kib), one in figures.reclaims.items()
        },
        "references": references,
    }
