# SPDX-License-Identifier: GPL-2.0-only
"""A host, or one of its NUMA nodes, that runs short of memory without any limit: no cgroup's headroom shows it."""

from dataclasses import replace

from lab.bench.scenarios import store
from lab.bench.spec import Case, Machine, Scale

_SIZES = {
    # keys, requests, machine, deadline
    Scale.SMOKE: (150_000, 150_000, Machine(224, 256), 30),
    Scale.CI: (400_000, 400_000, Machine(300, 512), 60),
    Scale.FULL: (3_000_000, 3_000_000, Machine(2048, 4096), 600),
}


def cases(scale: Scale) -> list[Case]:
    """The host as a whole, and a node of a host that has memory enough."""
    keys, requests, machine, deadline_s = _SIZES[scale]
    size = replace(store.SIZES[scale], keys=keys, requests=requests, machine=machine, deadline_s=deadline_s)
    two = replace(size, machine=replace(machine, memory_mib=2 * machine.memory_mib, nodes=2))
    of = f"{machine.memory_mib} MiB, no limit"
    return [
        store.case("hostpressure", "redis", f"Redis, SET, a host of {of}", size),
        store.case("hostpressure", "node", f"Redis, SET, bound to one of two nodes of {of}", two, {"cpuset.mems": "0"}),
    ]
