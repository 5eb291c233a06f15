# SPDX-License-Identifier: GPL-2.0-only
"""A limit with room to spare: whoever gives up large folios here gives up too early."""

from dataclasses import replace

from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Group, Role, Scale

ABOUT = "Redis SET under a memory.max of two and of four times its data set"


def cases(scale: Scale) -> list[Case]:
    """Two limits."""
    size = store.SIZES[scale]
    data_mib = 2 * size.limit_mib
    return [
        Case(
            scenario="roomy",
            key=f"x{times}",
            title=f"Redis, SET, memory.max = {times * data_mib}M, {times} times the data",
            machine=replace(size.machine, memory_mib=max(size.machine.memory_mib, times * data_mib + 384)),
            groups=(Group("redis", {"memory.max": times * data_mib * MIB}),),
            tasks=(store.server(), store.benchmark("load", Role.LOAD, "set", size.keys, size.requests), store.PROBE),
            software=("redis",),
            scores=(store.rps(),),
            tail=store.TAIL,
            more=store.LATENCIES,
            deadline_s=size.deadline_s,
            main="redis",
            roomy=True,
        )
        for times in (2, 4)
    ]
