# SPDX-License-Identifier: GPL-2.0-only
"""Records as the TLB model writes them, for its tests."""

from dataclasses import replace
from typing import Any

from lab.bench import walks
from lab.paths import REPO
from lab.tests.bench_runs import case_of, one
from lab.tlb.counts import read
from lab.tlb.geometry import Geometry, size
from lab.tlb.model import Model
from lab.vm.qemu import Emulator


def counted(walks_4k: int, accesses: int = 1000, l1_misses: int = 0, lost: int = 0) -> dict[str, Any]:
    return {"instructions": 4000, "accesses": accesses, "l1_misses": l1_misses, "lost": lost,
            "references": 2 * walks_4k, "walks": {"4": walks_4k, "2048": 1, "1048576": 2}}  # fmt: skip


def record(**programs: int) -> dict[str, Any]:
    """Of process groups from 100 on."""
    every = [{"name": name, "group": 100 + number, "user": counted(count), "kernel": counted(0)}
             for number, (name, count) in enumerate(programs.items())]  # fmt: skip
    return {"type": "tlb", "window": 0, "programs": every}


TLB = walks.Tlb(Model(Emulator("qemu"), REPO / "LICENSE", Geometry()), size("3.4G"))


def modelled(case: Any, arm: str, count: int) -> Any:
    """A run of the model; its servers are the first task."""
    run = case_of(case, arm)
    return replace(run, cell=replace(run.cell, modelled=True), tlb=read([record(server=count, load=10 * count)])[0])


def modelled_slow(case: Any, arm: str) -> Any:
    run = one(case, arm, repeat=1, rps=1.0)
    return replace(run, cell=replace(run.cell, modelled=True), tlb=read([record(server=5, load=5)])[0])
