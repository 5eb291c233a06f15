# SPDX-License-Identifier: GPL-2.0-only
"""The figures that a run must reach."""

from lab.cost import plan
from lab.cost.figures import Figures
from lab.results import Gate, gate

REPEATS = "<= 2"
"""Instructions between the runs of one cell."""
REPEATS_SMALL = "<= 7"
"""The same of the small cgroup: the kernel may find another cgroup's pre-charged pages first, in a place that it draws
at random."""
UNATTACHED = "<= 5"
"""Instructions per fault that the patches may add while nothing is attached."""
EMPTY_CALL = "<= 150"
DEFAULT_CALL = "<= 400"
ONE_CALL = "== 1"
SCALE_RATIO = "<= 1.5"
"""Of the median above 20,000 cgroups and above 200. An attach that visited them would be a hundred times slower."""
MKDIR_RATIO = "<= 1.1"
"""Of the median mkdir with a policy, or with one that comes and goes, and without."""

SCAN_SHARE = "<= 0.05"
"""Of a processor, for looking at 20,000 cgroups once a second."""
SCAN = "mthp_ext, one second"

HOLD_NS = "<= 5000000"
"""For which somebody may hold cgroup_mutex while mthp_ext scans, with 8 processors."""
HOLDS_OF_SCAN = "== 0"

MKDIR_ALONE = "mkdir, no policy"
MKDIRS = ("mkdir, attached", "mkdir, attached and detached meanwhile", "mkdir, mthp_ext running")


def repeats(*kernels: Figures) -> list[Gate]:
    """The figures that the others rest on repeat."""

    def largest(*, of_small: bool) -> float | None:
        spreads = [
            figure.spread
            for one in kernels
            for (arm, _, kib), figure in one.faults.items()
            if kib == 4 and len(figure.each) > 1 and (arm == plan.TINY.name) == of_small
        ]
        return max(spreads, default=None)

    name = "4 KiB: largest spread of a cell's runs, instructions"
    gates = [gate(name, largest(of_small=False), REPEATS)]
    if (other := largest(of_small=True)) is not None:
        gates.append(gate(f"{name}, small cgroup", other, REPEATS_SMALL))
    return gates


def unattached(patched: Figures, stock: Figures) -> list[Gate]:
    """The patched kernel against the unpatched one."""
    gates = []
    for place in plan.PLAIN.values():
        for kib in plan.SIZES_KIB:
            mine, its = patched.fault(plan.NONE, place, kib), stock.fault(plan.NONE, place, kib)
            more = None if mine is None or its is None else mine - its
            gates.append(gate(f"{kib} KiB, depth {place.depth}: instructions added, unattached", more, UNATTACHED))
    return gates


def calls(patched: Figures) -> list[Gate]:
    """What one call costs at depth 4, and that a fault of 4 KiB makes one."""
    plain, small = plan.PLAIN[4], plan.SMALL[4]
    count = patched.calls.get((plain.name, 4))

    def cost(arm: plan.Arm, place: plan.Place) -> float | None:
        return patched.per_call(arm, plan.NONE, place, 4, count)

    return [
        gate("calls per fault of 4 KiB, depth 4", count, ONE_CALL),
        gate("empty program, depth 4: instructions per call", cost(plan.EMPTY, plain), EMPTY_CALL),
        gate("default policy, depth 4: instructions per call", cost(plan.ADAPTIVE, plain), DEFAULT_CALL),
        gate("default policy, small cgroup, depth 4: instructions per call", cost(plan.TINY, small), DEFAULT_CALL),
    ]


def scale(patched: Figures) -> list[Gate]:
    """Attaching does not depend on the number of cgroups, and mkdir not on a policy."""
    few, many = plan.CGROUPS[0], plan.CGROUPS[-1]

    def median(cgroups: int, what: str) -> float | None:
        found = patched.scale.get((cgroups, what))
        return found.p50 if found else None

    def ratio(above: float | None, below: float | None) -> float | None:
        return above / below if above is not None and below else None

    gates = [
        gate(f"{what}, {many:,} cgroups / {few}", ratio(median(many, what), median(few, what)), SCALE_RATIO)
        for what in ("attach", "detach")
    ]
    gates += [
        gate(
            f"{what} / {MKDIR_ALONE}, {many:,} cgroups",
            ratio(median(many, what), median(many, MKDIR_ALONE)),
            MKDIR_RATIO,
        )
        for what in MKDIRS
    ]
    # An instruction is a nanosecond there.
    share = ratio(median(many, SCAN), 1e9)
    gates.append(gate(f"{SCAN}, {many:,} cgroups: share of a processor", share, SCAN_SHARE))
    return gates


def holds(patched: Figures) -> list[Gate]:
    """A scan keeps nobody from making cgroups."""
    many = plan.CGROUPS[-1]
    found = patched.holds.get(many)
    name = f"cgroup_mutex, 8 CPUs, {many:,} cgroups"
    return [
        gate(f"{name}: longest hold, ns", found.most if found else None, HOLD_NS),
        gate(f"{name}: holds by mthp_ext", found.of_scan if found else None, HOLDS_OF_SCAN),
    ]
