# SPDX-License-Identifier: GPL-2.0-only
"""What a scenario is made of. A scenario file builds Cases from these and nothing else."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.bench.run import Run

MIB = 1 << 20


class Scale(StrEnum):
    """How large."""

    SMOKE = "smoke"
    """Seconds a cell: does it work at all; only events are judged."""
    CI = "ci"
    """Half a minute to a few minutes a cell under emulation."""
    FULL = "full"
    """The proposal's sizes where it has some; for KVM."""


class Role(StrEnum):
    """When a task runs; lab/guest/src/bench/cell.rs says the same."""

    SERVER = "server"
    """From the beginning to the end."""
    SETUP = "setup"
    """To its end before the measured time begins."""
    LOAD = "load"
    """The measured time ends with the last of them."""
    BESIDE = "beside"
    """Beside the load, killed at its end."""
    PROBE = "probe"
    """After the measured time, while the servers still run."""


@dataclass(frozen=True)
class Machine:
    """The guest."""

    memory_mib: int
    swap_mib: int
    swap_wait_us: int = 0
    """What each request to the swap device waits for, as on a disk; 0: zram, which never waits."""
    swap_mib_per_s: int = 0
    """What that disk moves in a second; 0: it has no limit."""
    disk_mib: int = 0
    """A file system in memory that no cgroup pays for, at /mnt."""
    min_free_kbytes: int = 2048
    """The same in all arms: switching a THP size on would raise it and decide the run by itself."""
    nodes: int = 1
    """NUMA nodes, which share the memory equally."""
    cpus: int | None = None
    """Processors; None: as many as the mode of emulation bears, of which under `icount` that is one."""


@dataclass(frozen=True)
class Group:
    """A cgroup; parents come before their children."""

    name: str
    settings: Mapping[str, str | int] = field(default_factory=dict)
    sampled: bool = True


@dataclass(frozen=True)
class Task:
    """A process. Words of `argv` and values of `env` may name the software's files: "{redis-server}"."""

    name: str
    role: Role
    argv: tuple[str, ...]
    group: str | None = None
    arg0: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    ready: str | None = None
    """A Unix socket, or host:port, that takes connections when a server is ready."""
    seeded: bool = False
    """It is redis-benchmark: gets the keys of the repeat."""
    quiet: bool = False


@dataclass(frozen=True)
class Wave:
    """A setting of a cgroup that changes while the load runs."""

    group: str
    file: str
    values: tuple[str, ...]
    every_ms: int
    again: bool = True
    """Over and over; else the last value stays."""


@dataclass(frozen=True)
class Meter:
    """A counter of a server that speaks Redis' protocol, read over the measured time."""

    name: str
    socket: str
    ask: str
    """The command whose answer has the counter."""
    counter: str
    """What stands before the counter, from the beginning of its line."""
    every_ms: int


@dataclass(frozen=True)
class Metric:
    """A figure of a run."""

    key: str
    label: str
    unit: str
    better: int
    """+1: more is better, -1: less is, 0: neither."""
    of: Callable[["Run"], float | None]
    """From a run; None if it could not be measured."""


@dataclass(frozen=True)
class Bind:
    """What a row must do under `never`, or it shows nothing and is not judged."""

    metric: Metric
    least: float
    most: float = math.inf


@dataclass(frozen=True)
class Case:
    """One workload in one world, to be run under every arm."""

    scenario: str
    key: str
    title: str
    machine: Machine
    groups: tuple[Group, ...]
    tasks: tuple[Task, ...]
    software: tuple[str, ...]
    """Names of lab/bench/software.py: what is taken into the guest."""
    scores: tuple[Metric, ...]
    """What regret is computed of: one, or one for each tenant."""
    deadline_s: int
    """Guest time after which the load is stopped."""
    main: str
    """The cgroup whose limits, memory and decisions are shown."""
    tail: Metric | None = None
    """A latency that must stay near the best static arm's."""
    more: tuple[Metric, ...] = ()
    """Shown, not judged."""
    waves: tuple[Wave, ...] = ()
    meters: tuple[Meter, ...] = ()
    """The first one's rate over time is drawn."""
    duration_s: float | None = None
    """The load runs for this long; None: until it ends by itself."""
    data_mib: int | None = None
    """What the main program's data takes, for a TLB of the reach that it stands for; None: it is no store."""
    roomy: bool = False
    """There is memory to spare: large folios should be used to the full."""
    frugal: bool = False
    """Memory is what the case is about: the policy must not use more than `never` does."""
    tenants: bool = False
    """Each score belongs to a tenant of its own; the gates ask that no static setting suits all of them."""
    made_for: str | None = None
    """The arm of the policy whose use the case shows: the gates judge it beside the default policy."""
    slow: tuple[str, ...] = ()
    """Arms that are bounded in time rather than in work; they run once, and first."""
    binds: tuple[Bind, ...] = ()
    free: str | None = None
    """The case whose `always` shows the huge coverage that there could be, where this one's may be killed; None: its
    own."""
    judges: tuple[str, ...] = ("mthp_ext",)
    """Arms of the default policy that run and are judged: on a host set to `always`, to `madvise`, or both."""
    named: bool = False
    """It takes so long that it is run only where SCENARIO names it."""
    counts: bool = False
    """All that is judged are counts: it says as much where time is not counted in instructions."""
    thp_off: tuple[str, ...] = ()
    """Cgroups at the top whose tasks get base pages in an arm that sets each tenant by itself."""
    writes: tuple[tuple[str, str], ...] = ()
    """More settings of the guest, the same in all arms: files and what is written to them."""
    lrus: tuple[str, ...] = ("classic", "mglru")
    """LRU flavours that make sense."""
    stop_s: int = 3600
    """Wall-clock time after which a run is stopped and rated by what it came to, whatever the guest's clock shows."""

    @property
    def judged(self) -> tuple[Metric, ...]:
        """The scores, and the latency if there is one."""
        return (*self.scores, self.tail) if self.tail else self.scores

    @property
    def name(self) -> str:
        """Selects it: SCENARIO=redis/high."""
        return f"{self.scenario}/{self.key}"
