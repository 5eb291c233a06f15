# SPDX-License-Identifier: GPL-2.0-only
"""Limits that are not where the memory is: on an ancestor, as a pod has them; protection of a neighbour; and a limit
that follows usage, as senpai and its like set it."""

import re
from dataclasses import replace

from lab.bench.common import SWAPPED_OUT
from lab.bench.run import Run
from lab.bench.scenarios import hostpressure, mixed, python, store
from lab.bench.spec import MIB, Bind, Case, Group, Machine, Metric, Role, Scale, Task


def _ancestor(scale: Scale) -> Case:
    size = store.SIZES[scale]
    case = store.case("tree", "ancestor", f"Redis, SET, memory.high = {size.limit_mib}M on the cgroup above", size)
    _, *rest = case.tasks
    return replace(
        case,
        groups=(Group("pod", {"memory.high": size.limit_mib * MIB}), Group("pod/redis")),
        tasks=(store.server(group="pod/redis"), *rest),
        main="pod/redis",
        slow=store.SLOW,
    )


# Touched once, and protected: the host has that much less for others, and no file of the others says so.
_HOLDS = """
import posix, time, _socket
noise = posix.urandom(1 << 20)
heap = bytearray({mib} << 20)
for at in range(0, len(heap), 1 << 20):
    heap[at:at + (1 << 20)] = noise
door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
door.bind("/run/holds.sock")
door.listen()
time.sleep(36000)
"""


def _neighbour(scale: Scale) -> Case:
    [host, _] = hostpressure.cases(scale)
    mib = {Scale.SMOKE: 32, Scale.CI: 64, Scale.FULL: 512}[scale]
    neighbour = Task(
        "neighbour", Role.SERVER, python.argv(_HOLDS, mib=mib), group="neighbour", ready="/run/holds.sock", quiet=True
    )
    machine = replace(host.machine, memory_mib=host.machine.memory_mib + mib)
    return replace(
        host,
        scenario="tree",
        key="neighbour",
        title=f"Redis, SET, a host of {machine.memory_mib} MiB, of which memory.low keeps {mib}M for a neighbour",
        machine=machine,
        groups=(*host.groups, Group("neighbour", {"memory.low": mib * MIB})),
        tasks=(neighbour, *host.tasks),
        software=(*host.software, "python"),
    )


# What senpai does, some 20 times as fast: as long as the cgroup stalls for less than a thousandth of the time, its
# limit is a hundredth below what it uses; else it may grow. It begins when the cold memory is there.
_SENPAI = """
import posix, time
base = "/sys/fs/cgroup/batch/"
def read(name):
    with open(base + name) as file:
        return file.read()
def stalled():
    return int(read("memory.pressure").split("some", 1)[1].split("total=", 1)[1].split()[0])
while "cold" not in posix.listdir("/run"):
    time.sleep(0.01)
seen = stalled()
while True:
    time.sleep({every_ms} / 1000)
    now = stalled()
    used = int(read("memory.current"))
    limit = used - used // 100 if now - seen < {every_ms} else used + used // 20
    seen = now
    with open(base + "memory.high", "w") as file:
        file.write(str(max(limit, 8 << 20)))
"""

# The pieces of the batch job of `mixed` beside a heap that nobody uses any more, for a fixed time: by work done, the
# faster setting would be squeezed less. Reports the pieces, the processor time and the time of the second half: from
# the first piece that begins in it to the end of the last, or to where one piece has slept it away.
_WORK = """
import posix, time
noise = posix.urandom(1 << 20)
cold = bytearray({cold} << 20)
for at in range(0, len(cold), 1 << 20):
    cold[at:at + (1 << 20)] = noise
open("/run/cold", "w").close()
alive = [None] * 8
n = 0
begin = time.monotonic()
half = None
while time.monotonic() - begin < {seconds}:
    if half is None and time.monotonic() - begin > {seconds} / 2:
        half = n, time.process_time(), time.monotonic()
    alive[n % 8] = bytes([n % 251 + 1]) * ({chunk} << 20)
    sum(alive[n % 8][::4096])
    n += 1
end = time.monotonic()
first, used, since = half or (n, time.process_time(), begin + {seconds} / 2)
print(f"worked {n - first} in {time.process_time() - used:.3f} of {end - since:.3f}")
"""


def _half(run: Run) -> tuple[float, float, float] | None:
    """MiB, seconds of the processor's time, and seconds, of the second half."""
    found = [re.fullmatch(r"worked (\d+) in ([0-9.]+) of ([0-9.]+)", line) for line in run.lines("load")]
    return next(((int(one[1]) * mixed.CHUNK_MIB, float(one[2]), float(one[3])) for one in found if one), None)


def _worked(run: Run) -> float | None:
    """MiB per second of the processor's time in the second half; 0 if it slept."""
    half = _half(run)
    if half is None:
        return None
    return half[0] / half[1] if half[1] > 0 else 0.0


def _paced(run: Run) -> float | None:
    """MiB per second of time in the second half: what its limit lets the job do, asleep over memory.high or not."""
    half = _half(run)
    return half[0] / half[2] if half and half[2] > 0 else None


def _follows(scale: Scale) -> Case:
    cold, seconds, every_ms = {Scale.SMOKE: (32, 2, 20), Scale.CI: (96, 16, 80), Scale.FULL: (1024, 120, 500)}[scale]
    return Case(
        scenario="tree",
        key="follows",
        title=f"a batch job beside {cold} MiB that nobody uses, memory.high follows what it uses",
        machine=Machine(cold + 512, 2 * cold),
        groups=(Group("batch"),),
        tasks=(
            Task("senpai", Role.BESIDE, python.argv(_SENPAI, every_ms=every_ms)),
            Task(
                "load",
                Role.LOAD,
                python.argv(_WORK, cold=cold, seconds=seconds, chunk=mixed.CHUNK_MIB),
                group="batch",
                env={"MALLOC_MMAP_THRESHOLD_": "131072"},
            ),
        ),
        software=("python",),
        scores=(Metric("batch", "batch job, MiB per CPU second", "", +1, _worked),),
        more=(Metric("paced", "batch job, MiB per second", "", +1, _paced),),
        # A third of what is cold.
        binds=(Bind(SWAPPED_OUT, cold * 256 / 3),),
        deadline_s=120,
        main="batch",
    )  # fmt: skip


def cases(scale: Scale) -> list[Case]:
    """Three."""
    return [_ancestor(scale), _neighbour(scale), _follows(scale)]
