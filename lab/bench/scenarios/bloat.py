# SPDX-License-Identifier: GPL-2.0-only
"""Programs that large folios make fat: threads that idle on arenas of their own, a sparse toucher, short lives."""

from lab.bench import readers
from lab.bench.common import MEAN
from lab.bench.run import Run
from lab.bench.scenarios import python
from lab.bench.spec import MIB, Case, Group, Machine, Metric, Role, Scale, Task

_LRUS = ("classic",)
"""But for the one with a limit nothing is reclaimed."""

# Each thread allocates a little from an arena of its own, as a worker that has served some requests, and idles.
THREADS = """
import _thread, time
ready = []
def worker(n):
    mine = [bytearray(512 + n % 64) for _ in range(200)]
    ready.append(n)
    time.sleep(3600)
    print(len(mine))
for n in range({count}):
    _thread.start_new_thread(worker, (n,))
while len(ready) < {count}:
    time.sleep(0.01)
time.sleep({idle})
"""


def _threads(scale: Scale) -> Case:
    count = 30 if scale is Scale.SMOKE else 100
    return Case(
        scenario="bloat",
        key="threads",
        title=f"{count} idle threads of a program on jemalloc",
        machine=Machine(1024, 128),
        groups=(Group("bloat"),),
        tasks=(
            Task(
                "load",
                Role.LOAD,
                python.argv(THREADS, count=count, idle=1 if scale is Scale.SMOKE else 5),
                group="bloat",
                # An arena for each thread, as on a machine with many processors.
                env={"LD_PRELOAD": "{jemalloc}", "MALLOC_CONF": f"narenas:{count}"},
            ),
        ),
        software=("python",),
        scores=(MEAN,),
        deadline_s=60,
        main="bloat",
        frugal=True,
        lrus=_LRUS,
    )


def sparse_toucher(processes: int, mib: int, seconds: int, group: str) -> Task:
    """So many processes, each of which uses a byte in 50 KiB of so much memory."""
    words = ("--vm", str(processes), "--vm-bytes", f"{mib}M", "--vm-stride", "51200", "--vm-keep")
    return Task("load", Role.LOAD, ("{stress}", *words, "--timeout", f"{seconds}s"), group=group)


def _survived(run: Run) -> float | None:
    return 1.0 if run.ends["load"].code == 0 and not run.oom_kills else None


SURVIVED = Metric("survived", "survived", "", +1, _survived)
"""Of cases in which that is all there is to say."""


def _sparse(scale: Scale) -> Case:
    mib, seconds = (64, 1) if scale is Scale.SMOKE else (256, 4)
    return Case(
        scenario="bloat",
        key="sparse",
        title=f"stress touches one byte in 50 KiB of {mib} MiB",
        machine=Machine(1024, 128),
        groups=(Group("bloat"),),
        tasks=(sparse_toucher(1, mib, seconds, "bloat"),),
        software=("stress",),
        scores=(MEAN,),
        deadline_s=60,
        main="bloat",
        frugal=True,
        lrus=_LRUS,
    )


def _sparse_max(scale: Scale) -> Case:
    seconds = 1 if scale is Scale.SMOKE else 4
    return Case(
        scenario="bloat",
        key="sparse-max",
        title="stress touches one byte in 50 KiB of 40 MiB, memory.max = 20M, no swap",
        machine=Machine(512, 128),
        groups=(Group("bloat", {"memory.max": 20 * MIB, "memory.swap.max": 0}),),
        tasks=(sparse_toucher(1, 40, seconds, "bloat"),),
        software=("stress",),
        scores=(SURVIVED,),
        more=(MEAN,),
        deadline_s=60,
        main="bloat",
        frugal=True,
    )


def _short(scale: Scale) -> Case:
    loops = 10 if scale is Scale.SMOKE else 100
    # From a pipe sort takes all of its buffer and fills it from both ends.
    script = f"i=0; while [ $i -lt {loops} ]; do {{cat}} /lab/text | {{sort}} -S 16M > /dev/null; i=$((i+1)); done"
    return Case(
        scenario="bloat",
        key="short",
        title=f"{loops} short-lived sorts with a buffer of 16 MiB",
        machine=Machine(512, 128),
        groups=(Group("bloat"),),
        tasks=(Task("load", Role.LOAD, ("{dash}", "-c", script), group="bloat"),),
        software=("shell",),
        scores=(readers.ELAPSED,),
        more=(MEAN,),
        deadline_s=60,
        main="bloat",
        frugal=True,
        lrus=_LRUS,
    )


def cases(scale: Scale) -> list[Case]:
    """Four."""
    return [_threads(scale), _sparse(scale), _sparse_max(scale), _short(scale)]
