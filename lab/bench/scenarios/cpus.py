# SPDX-License-Identifier: GPL-2.0-only
"""Several processors. Emulation has no time for them that means anything, so these are judged by counts: who is killed,
what is swapped, what is large, what is split. MODE=tcg runs the processors at the same time."""

from lab.bench.common import COVER_64K, SWAPPED_OUT
from lab.bench.run import Run
from lab.bench.scenarios import memcached, python, store
from lab.bench.spec import MIB, Bind, Case, Group, Machine, Metric, Role, Scale, Task

# A process for each processor fills its share of the memory with what does not compress, then uses a scattered third of
# its pages. All would not fit, the third does. They wait until all are filled: one after the other they would fit.
_HOT = """
import posix
size, page = {mib} << 20, 4096
children = []
filled, fill = posix.pipe()
gone, go = posix.pipe()
for cpu in range({cpus}):
    pid = posix.fork()
    if pid:
        children.append(pid)
        continue
    heap = bytearray(size)
    noise = posix.urandom(1 << 20)
    for at in range(0, size, 1 << 20):
        heap[at:at + (1 << 20)] = noise
    state, hot = 7 + cpu, []
    for at in range(0, size, page):
        state = (state * 1103515245 + 12345) & 0x7fffffff
        if (state >> 16) % 3 == 0:
            hot.append(at)
    posix.close(fill)
    posix.close(go)
    posix.read(gone, 1)
    for turn in range({turns}):
        for at in hot:
            heap[at] = turn & 255
    posix._exit(0)
posix.close(fill)
posix.read(filled, 1)
posix.close(go)
failed = 0
for pid in children:
    _, status = posix.waitpid(pid, 0)
    failed |= status
posix._exit(1 if failed else 0)
"""


def _swapped_in(run: Run) -> float | None:
    return None if run.oom_kills or run.ends["load"].code != 0 else float(run.vmstat["pswpin"])


_SCORE = Metric("swapped_in", "pages swapped in", "pages", -1, _swapped_in)


def _hot(scale: Scale, cpus: int) -> Case:
    whole, turns = {Scale.SMOKE: (64, 4), Scale.CI: (192, 80), Scale.FULL: (4096, 200)}[scale]
    limit_mib = whole // 2 + 4 * cpus
    return Case(
        scenario="cpus",
        key=f"x{cpus}",
        title=f"{cpus} processes on {cpus} processors, a third of {whole} MiB hot, memory.high = {limit_mib}M",
        machine=Machine(whole + 512, 2 * whole, cpus=cpus),
        groups=(Group("hot", {"memory.high": limit_mib * MIB}),),
        tasks=(
            Task("load", Role.LOAD, python.argv(_HOT, mib=whole // cpus, cpus=cpus, turns=turns), group="hot"),
        ),
        software=("python",),
        scores=(_SCORE,),
        more=(COVER_64K,),
        deadline_s=300,
        main="hot",
        counts=True,
        slow=store.SLOW,
        # Half of what is too much.
        binds=(Bind(SWAPPED_OUT, (whole - limit_mib) * 256 / 2),),
    )  # fmt: skip


def _threads(scale: Scale) -> Case:
    """A server of 32 threads is hardly ever stalled as a whole, so `full` says less than `some`."""
    limited = memcached.cases(scale)[1]
    server, load = limited.tasks
    argv = tuple(
        "32" if before == "-t" else word for before, word in zip(("", *server.argv), server.argv, strict=False)
    )
    threads = Task("server", Role.SERVER, argv, group=server.group, ready=server.ready, quiet=True)
    return Case(
        scenario="cpus",
        key="threads",
        title=f"memcached with 32 threads on 4 processors, memory.max = {_limit(limited)}M",
        machine=Machine(limited.machine.memory_mib, limited.machine.swap_mib, cpus=4),
        groups=limited.groups,
        tasks=(threads, load),
        software=limited.software,
        scores=(_SCORE,),
        more=(
            Metric("some_share", "stall, some, share of the time", "share", 0, lambda run: _stalled(run, "some")),
            Metric("full_share", "stall, full, share of the time", "share", 0, lambda run: _stalled(run, "full")),
        ),
        deadline_s=4 * limited.deadline_s,
        main=limited.main,
        counts=True,
    )


def _limit(case: Case) -> int:
    return int(case.groups[0].settings["memory.max"]) // MIB


def _stalled(run: Run, kind: str) -> float | None:
    total = run.groups[run.cell.case.main]
    return (total.some_s if kind == "some" else total.full_s) / run.elapsed_s if run.elapsed_s > 0 else None


def cases(scale: Scale) -> list[Case]:
    """Two to eight processors, and a server of many threads on four."""
    return [*(_hot(scale, cpus) for cpus in (2, 4, 8)), _threads(scale)]
