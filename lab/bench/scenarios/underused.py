# SPDX-License-Identifier: GPL-2.0-only
"""A sparse heap beside work that needs memory, under one limit: what huge pages waste is missing there until they are
split. The shape of the second table of the mail that proposed the shrinker: performance, and memory."""

from dataclasses import dataclass

from lab.bench import readers
from lab.bench.common import MEAN
from lab.bench.run import Run
from lab.bench.scenarios import disk
from lab.bench.spec import MIB, Case, Group, Machine, Metric, Role, Scale, Task


@dataclass(frozen=True)
class _Size:
    heap_mib: int
    """Of which a byte in 50 KiB is touched."""
    file_mib: int
    """Read over and over."""
    cache_limit_mib: int
    """Holds the heap or the file in full, not both."""
    batch_mib: int
    """What a batch job fills."""
    batch_limit_mib: int
    """Holds the heap in huge pages or the batch job's memory, not both."""
    loops: int


_SIZES = {
    Scale.SMOKE: _Size(48, 32, 64, 24, 60, 4),
    Scale.CI: _Size(128, 96, 176, 64, 160, 12),
    Scale.FULL: _Size(2048, 1536, 2816, 1024, 2560, 40),
}


def _anon(run: Run) -> float | None:
    return run.groups["tenant"].stat["anon"] / MIB


def _elapsed(run: Run) -> float | None:
    # Who lost its heap has all the memory for the rest of the run.
    return None if run.oom_kills else readers.elapsed("load")(run)


def _splits(run: Run) -> float | None:
    return run.vmstat.get("thp_underused_split_page")


def _each_mib(heaps: int, size: _Size) -> int:
    # Several heaps are half as large again in all as the one.
    return size.heap_mib if heaps == 1 else size.heap_mib * 3 // 2 // heaps


def _heaps(heaps: int, size: _Size) -> str:
    each = f"of {_each_mib(heaps, size)} MiB"
    return f"a sparse heap {each}" if heaps == 1 else f"{heaps} sparse heaps {each}"


def _case(key: str, title: str, size: _Size, limit_mib: int, fill: tuple[Task, ...], work: str, heaps: int = 1) -> Case:
    current = "/sys/fs/cgroup/tenant/memory.current"
    settle = f'a=; while b=$({{cat}} {current}); [ "$a" != "$b" ]; do a=$b; /bin/sleep 1; done'
    load = f"i=0; while [ $i -lt {size.loops} ]; do {work}; i=$((i+1)); done"
    return Case(
        scenario="underused",
        key=key,
        title=f"{_heaps(heaps, size)} and {title}, memory.max = {limit_mib}M, no swap",
        machine=Machine(limit_mib + 384, 128, disk_mib=size.file_mib + 32 if fill else 0),
        groups=(Group("tenant", {"memory.max": limit_mib * MIB, "memory.swap.max": 0}),),
        tasks=(
            *fill,
            Task(
                "heap",
                Role.SERVER,
                ("{stress}", "--vm", str(heaps), "--vm-bytes", f"{_each_mib(heaps, size)}M", "--vm-stride", "51200",
                 "--vm-hang", "0"),
                group="tenant",
                quiet=True,
            ),
            Task("settle", Role.SETUP, ("{dash}", "-c", settle)),
            Task("load", Role.LOAD, ("{dash}", "-c", load), group="tenant"),
        ),
        software=("shell", "stress"),
        scores=(Metric("elapsed", "elapsed", "s", -1, _elapsed),),
        more=(
            Metric("anon", "anonymous memory", "MiB", -1, _anon),
            MEAN,
            Metric("splits", "underused folios split", "", 0, _splits),
        ),
        deadline_s=300,
        main="tenant",
    )  # fmt: skip


def cases(scale: Scale) -> list[Case]:
    """Three: the heaps of the second are each too small to be sparse by themselves."""
    size = _SIZES[scale]
    # The heap comes before the file is in memory.
    fill = f"{disk.fill(size.file_mib)}; {disk.DROP}"
    return [
        _case(
            "cache",
            f"a file of {size.file_mib} MiB that is read",
            size,
            size.cache_limit_mib,
            (Task("fill", Role.SETUP, ("{dash}", "-c", fill)),),
            "{cat} /mnt/file > /dev/null",
        ),
        _case(
            "heaps",
            f"a file of {size.file_mib} MiB that is read",
            size,
            size.cache_limit_mib,
            (Task("fill", Role.SETUP, ("{dash}", "-c", fill)),),
            "{cat} /mnt/file > /dev/null",
            heaps=4,
        ),
        _case(
            "batch",
            f"jobs that fill {size.batch_mib} MiB, one after the other",
            size,
            size.batch_limit_mib,
            (),
            f"/bin/dd if=/dev/zero of=/dev/null bs={size.batch_mib}M count=1 2> /dev/null",
        ),
    ]
