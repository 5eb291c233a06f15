# SPDX-License-Identifier: GPL-2.0-only
"""A limit with room to spare, or full of files that were read once: who gives up large folios gives up too early."""

from dataclasses import replace

from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Group, Role, Scale, Task

ABOUT = "Redis SET under a memory.max of two and of four times its data set, and where page cache has filled that limit"


_FILES = "{cat} /dev/zram1 > /dev/null"
"""Reads the disk under the file system, which zram makes of nothing: all of it becomes page cache."""


def _case(size: store.Size, times: int) -> Case:
    data_mib = 2 * size.limit_mib
    return Case(
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


def _filled(size: store.Size, case: Case) -> Case:
    limit_mib = 8 * size.limit_mib
    return replace(
        case,
        key="files",
        title=f"{case.title}, which files that were read once have filled",
        machine=replace(case.machine, disk_mib=limit_mib + limit_mib // 4),
        tasks=(Task("files", Role.SETUP, ("{dash}", "-c", _FILES), group="redis"), *case.tasks),
        software=(*case.software, "shell"),
    )


def cases(scale: Scale) -> list[Case]:
    """Two limits, and one of them filled."""
    size = store.SIZES[scale]
    return [_case(size, 2), _case(size, 4), _filled(size, _case(size, 4))]
