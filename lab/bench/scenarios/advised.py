# SPDX-License-Identifier: GPL-2.0-only
"""Programs that ask for huge pages themselves. On a host set to `madvise` they get them wherever they ask, also over a
limit; on one set to `always` the advice changes nothing, as everybody is given them. A policy must bind both where
memory is short, and leave an advised program that fits what it asked for."""

from dataclasses import replace

from lab.bench import readers
from lab.bench.arms import DEFAULT, ON_MADVISE
from lab.bench.common import SWAPPED_IN
from lab.bench.scenarios import bloat, python, store
from lab.bench.spec import MIB, Bind, Case, Group, Machine, Role, Scale, Task

_NOT_ON_ALWAYS = (ON_MADVISE,)
"""jemalloc does not advise where the system's setting is `always`: there these are other rows again."""
_ADVISING = {"MALLOC_CONF": "thp:always"}
"""jemalloc then advises what it maps, unless the system's setting is `always` already."""

# NumPy advises what it allocates from 4 MiB on. Every third array is used each turn, and one of the others every other
# turn: a sweep over all of them would leave nothing hot in memory under any policy. The data does not compress.
_ARRAYS = """
import mmap, posix
size, count, page = {mib} << 20, {count}, 4096
noise = posix.urandom(1 << 20)
arrays = []
for n in range(count):
    array = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, size, 1 << 20):
        array[at:at + (1 << 20)] = noise
    arrays.append(array)
cold = [n for n in range(count) if n % 3]
for turn in range({turns}):
    value = bytes([turn % 251 + 1]) * (size // page)
    for n in range(0, count, 3):
        arrays[n][::page] = value
    if turn % 2:
        arrays[cold[turn // 2 % len(cold)]][::page] = value
"""


def _redis(scale: Scale) -> Case:
    size = store.SIZES[scale]
    title = f"Redis whose allocator advises on a host set to madvise, SET, memory.high = {size.limit_mib}M"
    case = store.case("advised", "redis-high", title, size, {"memory.high": size.limit_mib * MIB})
    _, *rest = case.tasks
    # Where `madvise` does what was asked, it is as slow as `always`.
    return replace(
        case,
        tasks=(store.server(env=_ADVISING), *rest),
        slow=(*store.SLOW, "madvise"),
        judges=_NOT_ON_ALWAYS,
    )


def _arrays(scale: Scale, limited: bool) -> Case:
    mib, count, turns = {Scale.SMOKE: (4, 6, 8), Scale.CI: (8, 24, 64), Scale.FULL: (64, 48, 200)}[scale]
    whole = mib * count
    # Holds the third that is used all the time, and half as much again; or all of it and a quarter more.
    limit_mib = whole // 2 + 8 if limited else whole * 5 // 4 + 16
    file = "memory.high" if limited else "memory.max"
    return Case(
        scenario="advised",
        key="arrays-high" if limited else "arrays-fit",
        title=f"{count} advised arrays of {mib} MiB, a third of them hot, {file} = {limit_mib}M",
        machine=Machine(whole + 512, 2 * whole),
        groups=(Group("arrays", {file: limit_mib * MIB}),),
        tasks=(
            Task("load", Role.LOAD, python.argv(_ARRAYS, mib=mib, count=count, turns=turns), group="arrays"),
        ),
        software=("python",),
        scores=(readers.ELAPSED,),
        deadline_s=120,
        main="arrays",
        roomy=not limited,
        slow=(*store.SLOW, "madvise") if limited else (),
        judges=(DEFAULT, ON_MADVISE),
        # Its hot third stays in base pages; all of them in each turn would be three million.
        binds=(Bind(SWAPPED_IN, 1, turns * whole * 256 / 10),) if limited else (),
    )  # fmt: skip


def _small() -> Case:
    count = 8
    return Case(
        scenario="advised",
        key="small",
        title=f"{count} idle threads with an arena each, which their allocator advises, memory.max = 16M, no swap",
        machine=Machine(512, 128),
        groups=(Group("threads", {"memory.max": 16 * MIB, "memory.swap.max": 0}),),
        tasks=(
            Task(
                "load",
                Role.LOAD,
                python.argv(bloat.THREADS, count=count, idle=1),
                group="threads",
                # An arena begins with 2 MiB. glibc's, with glibc.malloc.hugetlb=1, advise what they grow by from that
                # size on, and an idle thread never comes so far.
                env={"LD_PRELOAD": "{jemalloc}", "MALLOC_CONF": f"narenas:{count},thp:always"},
            ),
        ),
        software=("python",),
        scores=(bloat.SURVIVED,),
        deadline_s=60,
        main="threads",
        judges=_NOT_ON_ALWAYS,
    )


def cases(scale: Scale) -> list[Case]:
    """Over a limit; where all fits; and a container smaller than what is asked for."""
    return [
        _redis(scale),
        _arrays(scale, True),
        _arrays(scale, False),
        _small(),
    ]
