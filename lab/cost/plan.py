# SPDX-License-Identifier: GPL-2.0-only
"""What is compared: who is attached, where, and the cgroups that faults are taken in."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

DEPTHS = (1, 4, 8)
SIZES_KIB = (4, 16, 64, 2048)
"""Of faults. Those of 4 KiB ask no policy: a large folio is on, but does not fit. The others ask once each."""
ASKED_KIB = 16
"""The smallest large folio: of its faults a request is the largest part."""
REPEATS = 3
LIVES = ("fork and exit", "exec and exit, small", "exec and exit, room for a huge page")
"""What processes are timed at, as the guest's program calls it."""
KHUGEPAGED = "khugepaged"
SETTINGS_KIB = (0, 64, 2048)
"""The size that is on meanwhile."""
CGROUPS = (200, 20_000)
"""Attaching is timed above this many cgroups."""

_HIGH = 64 << 30
"""memory.high where a place has limits: far above what is used, so that they cost their walk and nothing else."""
_BALLAST_MIB = 24
"""Held in each cgroup that is not to be a small one; the default policy calls small what has less than 8 MiB."""


@dataclass(frozen=True)
class Place:
    """A path of cgroups; faults are taken in its lowest."""

    name: str
    depth: int
    """Levels below the root."""
    high: int | None = None
    """memory.high of each level, bytes."""
    ballast_mib: int = _BALLAST_MIB


PLAIN = {depth: Place(f"plain{depth}", depth) for depth in DEPTHS}
LIMITED = {depth: Place(f"limited{depth}", depth, high=_HIGH) for depth in DEPTHS}
# A process has to live there: an empty cgroup is not small.
SMALL = {depth: Place(f"small{depth}", depth, ballast_mib=1) for depth in DEPTHS}
PLACES = (*PLAIN.values(), *LIMITED.values(), *SMALL.values())


@dataclass(frozen=True)
class Arm:
    """One of the things that are compared."""

    name: str
    label: str
    policy: str
    """none, empty, refuse or count (the yardstick programs), ext (mthp_ext run)."""
    args: tuple[str, ...] = ()
    """Arguments of `mthp_ext run`."""
    at: str = "root"
    """root, sibling, or path: at every level."""
    places: tuple[Place, ...] = tuple(PLAIN.values())
    sizes_kib: tuple[int, ...] = SIZES_KIB
    refuses: bool = False
    """No fault of it may get a large folio. Such a fault is compared with one that another program refused."""


NONE = Arm("none", "nothing attached", "none", places=PLACES)
EMPTY = Arm("empty", "empty program", "empty")
COUNT = Arm("count", "counting program", "count")
DEFAULT = Arm("default", "default", "ext")
LIMITS = Arm("default-limits", "default, limit at every level", "ext", places=tuple(LIMITED.values()))
# Else the first folios of a cgroup would be small ones, and reclaim would find others than in the other arms.
KEEPS = Arm("keeps", "default", "ext", args=("--min-memory", "0"))
REFUSE = Arm(
    "refuse", "program that refuses", "refuse", places=tuple(SMALL.values()), sizes_kib=(ASKED_KIB,), refuses=True
)
TINY = Arm(
    "default-small",
    "default, small cgroup, compared with a refusing program",
    "ext",
    places=tuple(SMALL.values()),
    sizes_kib=(ASKED_KIB,),
    refuses=True,
)
ARMS = (
    NONE,
    Arm("sibling", "attached elsewhere", "empty", at="sibling"),
    EMPTY,
    Arm("path", "empty program at every level", "empty", at="path"),
    Arm("reactive", "reactive", "ext", args=("--policy", "reactive")),
    Arm("headroom", "headroom", "ext", args=("--policy", "headroom")),
    DEFAULT,
    LIMITS,
    REFUSE,
    TINY,
    COUNT,
)
YARDSTICKS = (NONE, REFUSE, COUNT)
"""What others are compared with."""


@dataclass(frozen=True)
class Plan:
    """What one guest measures."""

    arms: tuple[Arm, ...]
    repeats: int = REPEATS
    cgroups: tuple[int, ...] = ()
    patched: bool = True
    holds: bool = False
    """Above that many cgroups, only how long cgroup_mutex is held while mthp_ext scans."""
    cpus: int = 1
    lives_kib: tuple[int, ...] = ()
    """Sizes that are on, one after the other, while fork, exec and khugepaged's scan are measured; 0: none is."""
    reclaims: bool = False
    """What reclaim takes is measured instead of faults."""
    places: tuple[Place, ...] = field(init=False)

    def __post_init__(self) -> None:
        wanted = {place.name: place for arm in self.arms for place in arm.places}
        object.__setattr__(self, "places", tuple(wanted.values()))

    def document(self, mthp_ext: Path) -> bytes:
        """The plan as the guest's program reads it."""
        arms = [
            {
                "name": arm.name,
                "policy": arm.policy,
                "args": list(arm.args),
                "at": arm.at,
                "places": [place.name for place in arm.places],
                "sizes_kib": list(arm.sizes_kib),
            }
            for arm in self.arms
        ]
        places = [
            {"name": place.name, "depth": place.depth, "high": place.high, "ballast_mib": place.ballast_mib}
            for place in self.places
        ]
        whole = {
            "mthp_ext": str(mthp_ext),
            "repeats": self.repeats,
            "places": places,
            "arms": arms,
            "cgroups": list(self.cgroups),
            "holds": self.holds,
            "lives_kib": list(self.lives_kib),
            "reclaims": self.reclaims,
            "patched": self.patched,
        }
        return json.dumps(whole).encode()


def plans() -> tuple[Plan, ...]:
    """All arms, in a guest for each kind of place. The kernel keeps pre-charged pages of seven cgroups per CPU and
    looks for a cgroup's among them one by one, so a fault is 7 instructions longer for each it finds first. With so
    few cgroups in a guest none is evicted, and each keeps its place."""
    found = []
    for group in (PLAIN, LIMITED, SMALL):
        among = set(group.values())
        arms = [replace(arm, places=tuple(place for place in arm.places if place in among)) for arm in ARMS]
        found.append(Plan(tuple(arm for arm in arms if arm.places)))
    return tuple(found)


def unpatched() -> Plan:
    """The faults of an unpatched kernel."""
    return Plan((replace(NONE, places=tuple(PLAIN.values())),), patched=False)


def reclaims(patched: bool, kib: int) -> Plan:
    """What reclaim takes to look at memory in use, in a guest of its own, with swap. No process holds memory beside it:
    it would be reclaimed, too. Two kernels are compared by the same plan, as what else a guest has at hand moves its
    page allocator, and that by a percent."""
    place = Place("reclaim", 4, ballast_mib=0)
    arms = (NONE, EMPTY, COUNT, KEEPS) if patched else (NONE,)
    return Plan(tuple(replace(arm, places=(place,), sizes_kib=(kib,)) for arm in arms), patched=patched, reclaims=True)


def lives(patched: bool) -> Plan:
    """What a process pays for being known to khugepaged, in a guest of its own."""
    return Plan((), patched=patched, lives_kib=SETTINGS_KIB)


def holds() -> Plan:
    """cgroup_mutex, with the processors that a scan has to look at for each cgroup."""
    return Plan((), cgroups=CGROUPS[-1:], holds=True, cpus=8)


def module() -> Plan:
    """The module for stock kernels. It is asked before it is known what fits, so faults of 4 KiB ask, too."""
    sibling = next(arm for arm in ARMS if arm.name == "sibling")
    arms = (NONE, sibling, EMPTY, DEFAULT)
    return Plan(tuple(replace(arm, places=(PLAIN[4],), sizes_kib=(4,)) for arm in arms))


def without_module() -> Plan:
    """The same faults before it is loaded."""
    return Plan((replace(NONE, places=(PLAIN[4],), sizes_kib=(4,)),), patched=False)


def smoke() -> Plan:
    """The gates of the cost of a call alone: a guest of a few seconds, and no unpatched kernel."""
    plain, small = PLAIN[4], SMALL[4]
    arms = (
        replace(NONE, places=(plain,), sizes_kib=(4, ASKED_KIB)),
        replace(EMPTY, places=(plain,), sizes_kib=(ASKED_KIB,)),
        replace(DEFAULT, places=(plain,), sizes_kib=(4, ASKED_KIB)),
        replace(REFUSE, places=(small,)),
        replace(TINY, places=(small,)),
        replace(COUNT, places=(plain,), sizes_kib=(4, ASKED_KIB, 64)),
    )
    # Three: one may find another cgroup's pre-charged pages first, 7 instructions for each.
    return Plan(arms)
