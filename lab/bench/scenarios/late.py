# SPDX-License-Identifier: GPL-2.0-only
"""A limit that comes when the memory is there already: large folios were right when they were given, and are not any
more."""

import re
from dataclasses import replace
from itertools import pairwise

from lab.bench import readers
from lab.bench.run import Run
from lab.bench.scenarios import python, store
from lab.bench.spec import MIB, Case, Group, Machine, Metric, Role, Scale, Task, Wave

# Fills memory with what does not compress, gets a limit of about half of it, and uses a scattered quarter of the
# pages, which would fit: how many a second. The first second is for finding them; after it each line counts.
_QUARTER = """
import posix, time
size, page = {mib} << 20, 4096
heap = bytearray(size)
noise = posix.urandom(1 << 20)
for at in range(0, size, page):
    turn = at // page * 61 % ((1 << 20) - page)
    heap[at:at + page] = noise[turn:turn + page]
state, hot = 7, []
for at in range(0, size, page):
    state = (state * 1103515245 + 12345) & 0x7fffffff
    if state >> 16 & 3 == 0:
        hot.append(at)
begin = time.monotonic()
with open("/sys/fs/cgroup/hot/memory.high", "w") as limit:
    limit.write(str({limit} << 20))
used = 0
second = 1
while second <= {seconds}:
    for first in range(0, len(hot), 64):
        for at in hot[first:first + 64]:
            heap[at] = second
            used += 1
        now = time.monotonic() - begin
        if now >= second:
            print(f"used {used} in {now:.3f}", flush=True)
            second = int(now) + 1
"""


def _uses(run: Run) -> list[tuple[float, float]]:
    """(seconds since the limit, pages used since then)"""
    found = [re.fullmatch(r"used (\d+) in ([0-9.]+)", line) for line in run.lines("load")]
    return [(float(one[2]), float(one[1])) for one in found if one]


def _first(run: Run) -> float | None:
    seen = _uses(run)
    return seen[0][1] / seen[0][0] if seen else None


def _later(run: Run) -> float | None:
    seen = _uses(run)
    if len(seen) < 2:
        return None
    (begin, before), (end, after) = seen[0], seen[-1]
    return (after - before) / (end - begin)


def _quarter(scale: Scale) -> Case:
    mib, limit, seconds = (48, 26, 2) if scale is Scale.SMOKE else (180, 96, 5)
    argv = python.argv(_QUARTER, mib=mib, limit=limit, seconds=seconds)
    return Case(
        scenario="late",
        key="quarter",
        title=f"a scattered quarter of {mib} MiB in use, memory.high = {limit}M when all is there",
        machine=Machine(768, 512),
        groups=(Group("hot"),),
        tasks=(Task("load", Role.LOAD, argv, group="hot"),),
        software=("python",),
        scores=(
            Metric("uses", "pages used/s from the 2nd second on", "", +1, _later),
            Metric("first", "pages used/s in the first", "", +1, _first),
        ),
        deadline_s=60,
        main="hot",
    )


def _idle(scale: Scale) -> Case:
    size = store.SIZES[scale]
    case = store.case("late", "idle", f"Redis, SET, memory.high = {size.limit_mib}M after the keys are there", size)
    server, load, *probes = case.tasks
    fill = store.benchmark("fill", Role.SETUP, "set", size.keys, size.requests, quiet=True)
    file = "/sys/fs/cgroup/redis/memory.high"
    limit = Task("limit", Role.SETUP, ("{dash}", "-c", f"echo {size.limit_mib * MIB} > {file}"))
    # The rate of a load that is stopped is read from what the server has counted.
    reset = Task("reset", Role.SETUP, ("{redis-cli}", "-s", store.SOCKET, "CONFIG", "RESETSTAT"), quiet=True)
    return replace(
        case, tasks=(server, fill, reset, limit, load, *probes), software=(*case.software, "shell"), slow=store.SLOW
    )


_FREE_S = {Scale.SMOKE: 1, Scale.CI: 2, Scale.FULL: 20}
_LIMITED_S = {Scale.SMOKE: 1, Scale.CI: 10, Scale.FULL: 60}


def limit_s(run: Run) -> float | None:
    """When the limit came; None if the run did not live to see it."""
    return next((t for t, _, value in run.waves if value != "max"), None)


def free_rate(run: Run) -> float | None:
    """Requests per second before the limit."""
    came = limit_s(run)
    return readers.counted_rate(run, "served", 0.0, came) if came is not None else None


def limited_rate(run: Run) -> float | None:
    """Requests per second from the limit on; None if the server died of it."""
    came = limit_s(run)
    if came is None or run.died:
        return None
    return readers.counted_rate(run, "served", came, readers.known_s(run, "served"))


def _gap(run: Run) -> float | None:
    """Longest time between two of the server's answers to the meter, from the limit on: what a client waits."""
    came = limit_s(run)
    if came is None or run.died:
        return None
    times = [came, *(t for t, _ in run.meters.get("served", []) if t > came), run.elapsed_s]
    return max(after - before for before, after in pairwise(times))


def _load(scale: Scale) -> Case:
    size = store.SIZES[scale]
    # As many keys as SET with random ones leaves of all, but each of them there: from then on nothing grows.
    keys = size.keys * 63 // 100
    free_s, limited_s = _FREE_S[scale], _LIMITED_S[scale]
    title = f"Redis, SET, memory.high = {size.limit_mib}M arrives after {free_s} s of load"
    case = store.case("late", "load", title, size)
    server, _, *probes = case.tasks
    # Its latencies are those from the limit on.
    load = store.client(keys, store.UNIFORM, 0, free_s, free_s + limited_s)
    return replace(
        case,
        tasks=(server, store.fill(keys), load, *probes),
        # The second value stays.
        waves=(Wave("redis", "memory.high", ("max", str(size.limit_mib * MIB)), free_s * 1000, again=False),),
        meters=(store.SERVED,),
        deadline_s=free_s + limited_s + 10,
        scores=(Metric("limited", "requests/s with the limit", "", +1, limited_rate),),
        tail=store.client_figure("p99", "p99 latency with the limit"),
        more=(
            store.client_figure("max", "worst latency with the limit"),
            Metric("free", "requests/s before it", "", +1, free_rate),
            Metric("gap", "longest wait for an answer", "s", -1, _gap),
        ),
    )


def cases(scale: Scale) -> list[Case]:
    """Three. In `square` the limit comes while Redis is filled, and goes again."""
    return [_idle(scale), _load(scale), _quarter(scale)]
