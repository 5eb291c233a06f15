# SPDX-License-Identifier: GPL-2.0-only
"""Other swap than zram by itself: compressed in zswap before it is written, on a disk, and none at all."""

from dataclasses import replace

from lab.bench.scenarios import disk, mixed, store
from lab.bench.spec import MIB, Bind, Case, Group, Metric, Role, Scale, Task

_ZSWAP = "/sys/module/zswap/parameters"


def _zswap(scale: Scale) -> Case:
    size = store.SIZES[scale]
    title = f"Redis, SET, memory.high = {size.limit_mib}M, zswap"
    case = store.case("swap", "zswap", title, size, {"memory.high": size.limit_mib * MIB})
    # What does not fit into a hundredth of the memory is written to the device behind, or zswap would be all there is.
    writes = ((f"{_ZSWAP}/compressor", "lz4"), (f"{_ZSWAP}/max_pool_percent", "1"), (f"{_ZSWAP}/enabled", "Y"))
    written = Metric("zswap_written", "pages zswap wrote back", "", -1, lambda run: run.vmstat.get("zswpwb"))
    # What zswap holds is not counted as swapped in.
    more = (
        Metric("zswap_in", "pages loaded from zswap", "", -1, lambda run: run.vmstat.get("zswpin")),
        Metric("zswap_out", "pages stored in zswap", "", -1, lambda run: run.vmstat.get("zswpout")),
        written,
    )
    return replace(case, writes=writes, slow=store.SLOW, more=(*case.more, *more), binds=(Bind(written, 1),))


_WAIT_US = 200
"""Of a request, whatever its size: what a busy SSD may take."""


def _disk(scale: Scale) -> Case:
    size = store.SIZES[scale]
    title = f"Redis, SET, memory.high = {size.limit_mib}M, swap on a disk that takes {_WAIT_US} us"
    case = store.case("swap", "disk", title, size, {"memory.high": size.limit_mib * MIB})
    machine = replace(size.machine, swap_wait_us=_WAIT_US)
    return replace(case, machine=machine, slow=store.SLOW)


_REFAULTS = Metric(
    "refaults", "pages of files read again", "pages", -1, lambda run: run.vmstat.get("workingset_refault_file")
)
_STEADY_S = {Scale.SMOKE: (0, 1), Scale.CI: (2, 14), Scale.FULL: (10, 70)}
"""Warm-up, and the time with it."""


def _off(scale: Scale) -> Case:
    size = store.SIZES[scale]
    # As many keys as the other rows have, each there. What is left of the limit holds buffers of the connections and a
    # third of the file, so most of it is read from the disk each time.
    keys = size.keys * 63 // 100
    file_mib = size.limit_mib
    limit_mib = store.NEEDED_MIB[scale] + 8 + file_mib // 3
    warm_up_s, time_s = _STEADY_S[scale]
    title = (
        f"Redis, nine of ten GET, beside a file of {file_mib} MiB that is read again and again, "
        f"memory.max = {limit_mib}M, no swap"
    )
    case = store.case("swap", "off", title, size, {"memory.max": limit_mib * MIB})
    server, _, *probes = case.tasks
    fill = f"{disk.fill(file_mib)}; {disk.DROP}"
    again = "while :; do {cat} /mnt/file > /dev/null; /bin/sleep 0.05; done"
    client = store.client(keys, store.UNIFORM, 90, warm_up_s, time_s)
    return replace(
        case,
        machine=replace(size.machine, memory_mib=size.machine.memory_mib + 2 * file_mib, swap_mib=0,
                        disk_mib=file_mib + 48),
        tasks=(
            Task("file", Role.SETUP, ("{dash}", "-c", fill)),
            server,
            store.fill(keys),
            Task("reader", Role.BESIDE, ("{dash}", "-c", again), group="redis"),
            client,
            *probes,
        ),
        software=(*case.software, "shell"),
        scores=(store.served_rate(),),
        tail=store.client_figure("p99", "p99 latency"),
        more=(store.client_figure("max", "worst latency"), _REFAULTS),
        # All of the file, once in four seconds.
        binds=(Bind(_REFAULTS, (time_s - warm_up_s) * file_mib * 256 / 4),),
        deadline_s=time_s + 20,
    )  # fmt: skip


_MIB_PER_S = 128
"""Of all requests: a network volume."""


def _shared(scale: Scale) -> Case:
    """What the one writes and never reads again keeps the other waiting."""
    case, size = _disk(scale), store.SIZES[scale]
    server, _, *probes = case.tasks
    keys = size.keys * 63 // 100
    warm_up_s, time_s = _STEADY_S[scale]
    return replace(
        case,
        key="shared",
        title=f"Redis, half of it GET, and a batch job, each with memory.high = {size.limit_mib}M, swap on a disk that "
        f"takes {_WAIT_US} us and moves {_MIB_PER_S} MiB/s",
        # What is swapped stays in the guest's memory.
        machine=replace(case.machine, memory_mib=2 * (case.machine.memory_mib + case.machine.swap_mib),
                        swap_mib=2 * case.machine.swap_mib, swap_mib_per_s=_MIB_PER_S),
        groups=(*case.groups, Group("batch", {"memory.high": size.limit_mib * MIB})),
        tasks=(
            server,
            store.fill(keys),
            mixed.batch(),
            store.client(keys, store.UNIFORM, 50, warm_up_s, time_s),
            *probes,
        ),
        software=(*case.software, "python"),
        slow=(),
        scores=(store.served_rate(),),
        tail=store.client_figure("p99", "p99 latency"),
        # Not judged: whoever starves the other has more of the disk.
        more=(store.client_figure("max", "worst latency"), mixed.BATCH),
        deadline_s=time_s + 20,
    )  # fmt: skip


def cases(scale: Scale) -> list[Case]:
    """Four."""
    return [_zswap(scale), _disk(scale), _shared(scale), _off(scale)]
