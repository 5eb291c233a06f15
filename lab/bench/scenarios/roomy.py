# SPDX-License-Identifier: GPL-2.0-only
"""A limit with room to spare, or full of files that were read once: who gives up large folios gives up too early."""

from dataclasses import replace

from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Role, Scale, Task

_FILES = "{cat} /dev/zram1 > /dev/null"
"""Reads the disk under the file system, which zram makes of nothing: all of it becomes page cache."""


def _case(size: store.Size, times: int) -> Case:
    # Twice the limit of the other scenarios is what the server needs.
    limit_mib = times * 2 * size.limit_mib
    title = f"Redis, SET, memory.max = {limit_mib}M, {times} times the data"
    case = store.case("roomy", f"x{times}", title, size, {"memory.max": limit_mib * MIB})
    machine = replace(size.machine, memory_mib=max(size.machine.memory_mib, limit_mib + 384))
    return replace(case, machine=machine, roomy=True)


def _filled(case: Case) -> Case:
    limit_mib = int(case.groups[0].settings["memory.max"]) // MIB
    return replace(
        case,
        key="files",
        title=f"{case.title}, which files that were read once have filled",
        machine=replace(case.machine, disk_mib=limit_mib + limit_mib // 4),
        tasks=(Task("files", Role.SETUP, ("{dash}", "-c", _FILES), group="redis"), *case.tasks),
        software=(*case.software, "shell"),
    )


def cases(scale: Scale) -> list[Case]:
    """Twice the data; and four times, but filled."""
    size = store.SIZES[scale]
    return [_case(size, 2), _filled(_case(size, 4))]
