# SPDX-License-Identifier: GPL-2.0-only
"""Shapes of memory that rules by sums may take for others: many processes, each too small to be seen as sparse; files
mapped beside one large private buffer, whose page tables look half empty."""

from lab.bench import readers
from lab.bench.common import MEAN
from lab.bench.scenarios import bloat, disk, python
from lab.bench.spec import Case, Group, Machine, Role, Scale, Task


def _workers(scale: Scale) -> Case:
    count, mib, seconds = {Scale.SMOKE: (3, 20, 1), Scale.CI: (8, 60, 4), Scale.FULL: (100, 60, 10)}[scale]
    return Case(
        scenario="shapes",
        key="workers",
        title=f"{count} processes of one cgroup, each with {mib} MiB of which it uses a byte in 50 KiB",
        machine=Machine(count * mib + 384, 128),
        groups=(Group("workers"),),
        tasks=(bloat.sparse_toucher(count, mib, seconds, "workers"),),
        software=("stress",),
        scores=(MEAN,),
        deadline_s=120,
        main="workers",
        frugal=True,
        lrus=("classic",),
    )


# Reads a mapped file page by page, then fills a private buffer, over and over: weights, and a cache that grows.
_BUFFER = """
import mmap, posix
file = posix.open("/mnt/file", posix.O_RDONLY)
mapped = mmap.mmap(file, {file} << 20, mmap.MAP_SHARED, mmap.PROT_READ)
sum(mapped[::4096])
for turn in range({turns}):
    buffer = mmap.mmap(-1, {buffer} << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    buffer[::4096] = bytes([turn % 251 + 1]) * ({buffer} << 8)
    if turn + 1 < {turns}:
        buffer.close()
"""


def _mapped(scale: Scale) -> Case:
    file, buffer, turns = {Scale.SMOKE: (48, 24, 2), Scale.CI: (192, 128, 10), Scale.FULL: (4096, 2048, 10)}[scale]
    return Case(
        scenario="shapes",
        key="mapped",
        title=f"{file} MiB of a mapped file, and a private buffer of {buffer} MiB that is filled {turns} times",
        machine=Machine(2 * file + buffer + 384, 128, disk_mib=file + 48),
        groups=(Group("mapped"),),
        tasks=(
            Task("fill", Role.SETUP, ("{dash}", "-c", disk.fill(file))),
            Task("load", Role.LOAD, python.argv(_BUFFER, file=file, buffer=buffer, turns=turns), group="mapped"),
        ),
        software=("shell", "python"),
        scores=(readers.ELAPSED,),
        deadline_s=120,
        main="mapped",
        roomy=True,
        lrus=("classic",),
    )


def cases(scale: Scale) -> list[Case]:
    """Two."""
    return [_workers(scale), _mapped(scale)]
