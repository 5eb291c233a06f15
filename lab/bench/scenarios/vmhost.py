# SPDX-License-Identifier: GPL-2.0-only
"""A host whose free memory is in pieces: whoever takes large folios before takes the whole blocks from a virtual
machine that asks for them."""

from dataclasses import dataclass

from lab.bench import readers
from lab.bench.run import Run
from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Group, Machine, Metric, Role, Scale, Task


@dataclass(frozen=True)
class _Size:
    files: int
    """Of a MiB each; every other one is deleted."""
    keys: int
    vm_mib: int
    memory_mib: int


_SIZES = {
    Scale.SMOKE: _Size(64, 40_000, 48, 512),
    Scale.CI: _Size(320, 180_000, 256, 832),
    Scale.FULL: _Size(3200, 1_800_000, 2560, 8320),
}


def _huge(run: Run) -> float | None:
    stat = run.groups["vm"].stat
    return stat["anon_thp"] / MIB if run.ends["load"].code == 0 else None


def _tenant(run: Run) -> float | None:
    return None if run.died else readers.benchmark_summary(run.lines("fill")).get("rps")


def cases(scale: Scale) -> list[Case]:
    """One."""
    size = _SIZES[scale]
    # Nothing is left of the holes but blocks smaller than the files; what fills them first leaves whole ones alone.
    fragment = (
        f"i=0; while [ $i -lt {size.files} ]; do /bin/head -c 1048576 /dev/zero > /dev/shm/$i; i=$((i+1)); done; "
        f"i=0; while [ $i -lt {size.files} ]; do {{rm}} /dev/shm/$i; i=$((i+2)); done"
    )
    vm = (
        "{qemu}", "-M", "none", "-nodefaults", "-display", "none", "-daemonize",
        "-object", f"memory-backend-ram,id=ram,size={size.vm_mib}M,prealloc=on",
    )  # fmt: skip
    return [
        Case(
            scenario="vmhost",
            key="fragmented",
            title=f"QEMU takes {size.vm_mib} MiB for a virtual machine on a fragmented host beside Redis",
            machine=Machine(size.memory_mib, 512),
            groups=(Group("vm"), Group("redis")),
            tasks=(
                store.server(),
                Task("fragment", Role.SETUP, ("{dash}", "-c", fragment)),
                store.benchmark("fill", Role.SETUP, "set", size.keys, size.keys),
                Task("load", Role.LOAD, vm, group="vm"),
            ),
            software=("redis", "shell", "qemu"),
            scores=(
                Metric("start", "start of the virtual machine", "s", -1, readers.elapsed("load")),
                Metric("huge", "its memory in 2M folios", "MiB", +1, _huge),
                Metric("tenant", "Redis, requests/s", "", +1, _tenant),
            ),
            deadline_s=120,
            main="vm",
            tenants=True,
            lrus=("classic",),
        )
    ]
