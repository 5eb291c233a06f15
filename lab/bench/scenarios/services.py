# SPDX-License-Identifier: GPL-2.0-only
"""Services that have grown: each wastes a part of its large folios, and none is small any more. What the policy
small-services is for."""

from dataclasses import dataclass

from lab.bench.scenarios import mixed
from lab.bench.spec import Case, Machine, Metric, Role, Scale, Task


@dataclass(frozen=True)
class _Size:
    count: int
    threads: int
    blocks: int
    """Of half a KiB, that each thread holds in its arena."""
    memory_mib: int


_SIZES = {
    Scale.SMOKE: _Size(4, 4, 400, 768),
    Scale.CI: _Size(12, 16, 1600, 1536),
    Scale.FULL: _Size(100, 16, 1600, 16384),
}


def cases(scale: Scale) -> list[Case]:
    """One."""
    size = _SIZES[scale]
    groups, tasks = mixed.services(size.count, size.threads, size.blocks)
    return [
        Case(
            scenario="services",
            key="grown",
            title=f"{size.count} services of {size.threads} threads that have grown beyond what is small",
            machine=Machine(size.memory_mib, 128),
            groups=tuple(groups),
            tasks=(*tasks, Task("load", Role.LOAD, ("/bin/sleep", "3"))),
            software=("python",),
            scores=(Metric("small", "services, resident", "MiB", -1, mixed.resident),),
            deadline_s=60,
            main="small",
            frugal=True,
            made_for="small-services",
            lrus=("classic",),
        )
    ]
