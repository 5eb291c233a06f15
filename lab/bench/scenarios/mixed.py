# SPDX-License-Identifier: GPL-2.0-only
"""One host, three kinds of tenants at the same time: no static setting suits all of them."""

from dataclasses import dataclass

from lab.bench.run import Run
from lab.bench.scenarios import python, store
from lab.bench.spec import MIB, Case, Group, Machine, Metric, Role, Scale, Task


@dataclass(frozen=True)
class _Size:
    store: store.Size
    services: int
    requests: int
    memory_mib: int


_SIZES = {
    Scale.SMOKE: _Size(store.SIZES[Scale.SMOKE], 10, 30_000, 768),
    Scale.CI: _Size(store.SIZES[Scale.CI], 50, 250_000, 1536),
    Scale.FULL: _Size(store.SIZES[Scale.FULL], 50, 10_000_000, 16384),
}
CHUNK_MIB = 8

# Works through data in pieces that it allocates, fills, looks at and drops; sixteen are alive at a time.
_BATCH = """
import time
alive = [None] * 16
n = 0
while True:
    alive[n % 16] = bytes([n % 251 + 1]) * ({chunk} << 20)
    sum(alive[n % 16][::4096])
    n += 1
    print(n, flush=True)
"""

# Starts one worker after the other, each with a little in its arena, and serves once in a while. Listens when all of
# them are there: the measured time shall see services at work, not how fast fifty interpreters start.
_SERVICE = """
import _socket, _thread, sys, time
there = []
def worker(n):
    table = [bytearray(512 + n) for _ in range({blocks})]
    there.append(n)
    while True:
        time.sleep(1)
        table[n % {blocks}] = bytearray(512 + n)
for n in range({threads}):
    _thread.start_new_thread(worker, (n,))
    while len(there) == n:
        time.sleep(0.001)
door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
door.bind(sys.argv[1])
door.listen()
time.sleep(3600)
"""


def services(count: int, threads: int = 4, blocks: int = 200) -> tuple[list[Group], list[Task]]:
    """So many services of so many threads, each of which holds so many blocks of half a KiB in an arena of its own.
    Each service has a cgroup; all of them are in `small`."""
    groups = [Group(f"small/s{n:02}", sampled=False) for n in range(count)]
    tasks = [
        Task(
            f"service{n:02}",
            Role.SERVER,
            python.argv(_SERVICE, f"/run/{n:02}.sock", threads=threads, blocks=blocks),
            group=group.name,
            ready=f"/run/{n:02}.sock",
            env={"LD_PRELOAD": "{jemalloc}", "MALLOC_CONF": f"narenas:{threads}"},
            quiet=True,
        )
        for n, group in enumerate(groups)
    ]
    return [Group("small"), *groups], tasks


def throughput(run: Run) -> float | None:
    """MiB of data that the batch job works through in a second of the processor's time, its page faults included.
    Not of the clock's: it would profit from every tenant that starves."""
    busy = run.groups["batch"].user_s + run.groups["batch"].system_s
    pieces = sum(0 <= t <= run.elapsed_s for t, _ in run.output.get("batch", []))
    return pieces * CHUNK_MIB / busy if busy > 0 else None


BATCH = Metric("batch", "batch job, MiB per CPU second", "", +1, throughput)


def batch() -> Task:
    """That job, in the cgroup `batch`. Each piece is mapped and unmapped by itself, as large arrays are; else the
    allocator would keep and reuse it."""
    argv = python.argv(_BATCH, chunk=CHUNK_MIB)
    return Task("batch", Role.BESIDE, argv, group="batch", env={"MALLOC_MMAP_THRESHOLD_": "131072"})


def resident(run: Run) -> float | None:
    """Mean of what all services have, MiB."""
    seen = [sample.current["small"] for sample in run.samples]
    return sum(seen) / len(seen) / MIB if seen else None


def cases(scale: Scale) -> list[Case]:
    """One."""
    size = _SIZES[scale]
    groups, tasks = services(size.services)
    limit = size.store.limit_mib * MIB
    return [
        Case(
            scenario="mixed",
            key="host",
            title=f"a Redis with memory.max = {size.store.limit_mib}M, a batch job, {size.services} small services",
            machine=Machine(size.memory_mib, size.store.machine.swap_mib),
            groups=(
                Group("redis", {"memory.max": limit}),
                Group("batch"),
                *groups,
            ),
            tasks=(
                *tasks,
                store.server(),
                batch(),
                store.benchmark("load", Role.LOAD, "set", size.store.keys, size.requests),
                store.PROBE,
            ),
            software=("redis", "python"),
            scores=(
                store.rps(),
                BATCH,
                Metric("small", "small services, resident", "MiB", -1, resident),
            ),
            tail=store.TAIL,
            more=store.LATENCIES,
            deadline_s=60 if scale is not Scale.FULL else 600,
            main="redis",
            tenants=True,
            thp_off=("redis", "small"),
        )
    ]
