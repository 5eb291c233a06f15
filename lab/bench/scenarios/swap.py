# SPDX-License-Identifier: GPL-2.0-only
"""Other swap than zram by itself: compressed in zswap before it is written, and none at all."""

from dataclasses import replace

from lab.bench.scenarios import disk, store
from lab.bench.spec import MIB, Case, Metric, Role, Scale, Task

_ZSWAP = "/sys/module/zswap/parameters"


def _zswap(scale: Scale) -> Case:
    size = store.SIZES[scale]
    title = f"Redis, SET, memory.high = {size.limit_mib}M, zswap"
    case = store.case("swap", "zswap", title, size, {"memory.high": size.limit_mib * MIB})
    # What does not fit into a tenth of the memory is written to the device behind.
    writes = ((f"{_ZSWAP}/compressor", "lz4"), (f"{_ZSWAP}/max_pool_percent", "10"), (f"{_ZSWAP}/enabled", "Y"))
    # What zswap holds is not counted as swapped in.
    more = (
        Metric("zswap_in", "pages loaded from zswap", "", -1, lambda run: run.vmstat.get("zswpin")),
        Metric("zswap_out", "pages stored in zswap", "", -1, lambda run: run.vmstat.get("zswpout")),
    )
    return replace(case, writes=writes, slow=store.SLOW, more=(*case.more, *more))


def _off(scale: Scale) -> Case:
    size = store.SIZES[scale]
    # The keys and half of the file: reclaim finds page cache only, and who reads it again waits for it.
    file_mib = size.limit_mib
    limit_mib = 2 * size.limit_mib + file_mib // 2
    title = (
        f"Redis, SET, beside a file of {file_mib} MiB that is read again and again, memory.max = {limit_mib}M, no swap"
    )
    case = store.case("swap", "off", title, size, {"memory.max": limit_mib * MIB})
    fill = f"{disk.fill(file_mib)}; {disk.DROP}"
    again = "while :; do {cat} /mnt/file > /dev/null; /bin/sleep 0.2; done"
    return replace(
        case,
        machine=replace(size.machine, memory_mib=size.machine.memory_mib + 2 * file_mib, swap_mib=0,
                        disk_mib=file_mib + 48),
        tasks=(
            Task("file", Role.SETUP, ("{dash}", "-c", fill)),
            Task("reader", Role.BESIDE, ("{dash}", "-c", again), group="redis"),
            *case.tasks,
        ),
        software=(*case.software, "shell"),
    )  # fmt: skip


def cases(scale: Scale) -> list[Case]:
    """Two."""
    return [_zswap(scale), _off(scale)]
