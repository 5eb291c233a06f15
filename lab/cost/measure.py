# SPDX-License-Identifier: GPL-2.0-only
"""Boots the guests that measure."""

from pathlib import Path
from typing import Any

from lab import programs, vm
from lab.cost.figures import Figures, collect, merge
from lab.cost.plan import SIZES_KIB, Plan, reclaims
from lab.kernel.build import Kernel
from lab.vm import Mode

_PLAN = "/plan.json"


def job(image: Path, plan: Plan, name: str) -> vm.Job:
    """A guest that measures `plan`."""
    hook, mthp_ext = programs.package("lab-hook"), programs.mthp_ext()
    return vm.Job(
        kernel=image,
        argv=[str(hook), _PLAN],
        programs=[hook, mthp_ext],
        data={_PLAN: plan.document(mthp_ext)},
        memory_mib=3072 if plan.cgroups else 1024,
        cpus=plan.cpus,
        mode=Mode.ICOUNT,
        timeout_s=1800,
        name=name,
    )


def run(kernel: Kernel, plan: Plan, name: str) -> Figures:
    """Measures `plan` in a guest of its own. Raises LabError if the guest did not end well."""
    return of(job(kernel.image, plan, name))


def reclaimed(kernel: Kernel, name: str, patched: bool = True) -> Figures:
    """What reclaim takes, for each size in a guest of its own."""
    return merge([run(kernel, reclaims(patched, kib), f"{name}-{kib}") for kib in SIZES_KIB])


def of(guest: vm.Job) -> Figures:
    """What that guest measures."""
    outcome = vm.run(guest, _show)
    outcome.check(guest.name)
    return collect(outcome.records)


def _show(record: dict[str, Any]) -> None:
    match record["type"]:
        case "faults":
            print(
                f"  {record['arm']:16} {record['place']:9} {record['kib']:5} KiB  repeat {record['repeat']}: "
                f"{record['p50']:>9,} instructions",
                flush=True,
            )
        case "holds":
            print(f"  {record['cgroups']:6,} cgroups  longest hold of cgroup_mutex: {record['max']:,}", flush=True)
        case "reclaim":
            print(
                f"  {record['arm']:16} reclaim {record['kib']:5} KiB  repeat {record['repeat']}: "
                f"{record['instructions']:>11,} instructions, {record['calls']:,} questions",
                flush=True,
            )
        case "life":
            print(f"  {record['kib']:4} KiB on  {record['what']}: {record['instructions']:,}", flush=True)
        case "scale":
            print(f"  {record['cgroups']:6,} cgroups  {record['what']}: {record['p50']:,}", flush=True)
