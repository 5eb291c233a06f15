# SPDX-License-Identifier: GPL-2.0-only
"""The proposal's main job: Redis filled over its limit, without and with snapshots; and one that is mostly read."""

from dataclasses import replace

from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Group, Role, Scale, Task

ABOUT = "Redis SET (the proposal's twelve cells), the same under memory.max, and a read-mostly Redis"
_LIMITS = {"none": None, "high": "memory.high", "max": "memory.max"}


def _snapshots(every_s: float) -> Task:
    loop = f"while sleep {every_s}; do {{redis-cli}} -s {store.SOCKET} BGSAVE; done"
    return Task("snapshots", Role.BESIDE, ("/bin/sh", "-c", loop), quiet=True)


def _case(size: store.Size, key: str, what: str, limit: str) -> Case:
    file = _LIMITS[limit]
    where = "no limit" if file is None else f"{file} = {size.limit_mib}M"
    return Case(
        scenario="redis",
        key=f"{key}-{limit}",
        title=f"Redis, {what}, {where}",
        machine=size.machine,
        groups=(Group("redis", {} if file is None else {file: size.limit_mib * MIB}),),
        tasks=(store.server(), store.benchmark("load", Role.LOAD, "set", size.keys, size.requests), store.PROBE),
        software=("redis",),
        scores=(store.rps(),),
        tail=store.TAIL,
        more=store.LATENCIES,
        deadline_s=size.deadline_s,
        main="redis",
        roomy=file is None,
        slow=store.SLOW if limit == "high" else (),
    )


def _bgsave(size: store.Size, case: Case) -> Case:
    # Room for the copies that the child's snapshot forces, for the snapshot and for the one before it.
    data = 2 * size.limit_mib
    machine = replace(size.machine, memory_mib=size.machine.memory_mib + 4 * data, disk_mib=3 * data)
    tasks = (store.server(snapshots=True), *case.tasks[1:], _snapshots(size.snapshot_every_s))
    # While the child lives, memory is shared with it or copied page by page: what share of it is large depends on
    # when it came, so no coverage is asked for.
    return replace(case, machine=machine, tasks=tasks, roomy=False)


def _read_mostly(size: store.Size, case: Case) -> Case:
    # Two connections of sixteen write, without end.
    tasks = (
        store.server(),
        store.benchmark("fill", Role.SETUP, "set", size.keys, size.requests, quiet=True),
        store.benchmark("load", Role.LOAD, "get", size.keys, size.requests, store.CLIENTS - 2),
        store.benchmark("writes", Role.BESIDE, "set", size.keys, 10**9, 2, quiet=True),
        store.PROBE,
    )
    return replace(case, tasks=tasks, scores=(store.rps("get"),))


def cases(scale: Scale) -> list[Case]:
    """Three limits without snapshots, three with, and two that are mostly read."""
    size = store.SIZES[scale]
    plain = [_case(size, "set", "SET", limit) for limit in _LIMITS]
    saved = [_bgsave(size, _case(size, "bgsave", "SET with BGSAVE", limit)) for limit in _LIMITS]
    read = [_read_mostly(size, _case(size, "read", "seven of eight GET", limit)) for limit in ("none", "max")]
    return [*plain, *saved, *read]
