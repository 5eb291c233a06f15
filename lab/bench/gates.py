# SPDX-License-Identifier: GPL-2.0-only
"""What the default policy must reach in every case, under both LRU flavours; and a policy for one use in the case
made for it."""

from dataclasses import dataclass

from lab.bench.arms import ARM, DEFAULT
from lab.bench.common import COVER_2M, COVER_64K, PEAK, PEAK_ANON
from lab.bench.run import Run
from lab.bench.spec import Metric
from lab.bench.table import Regret, Table, World
from lab.results import Gate, gate, unjudged

REGRET = ">= 0.98"
TAIL = "<= 1.10"
COVERAGE = ">= 0.90"
PEAK_ALWAYS = "<= 1.01"
"""Of `always`; the hundredth is what the peaks of equal runs differ by. Without a meaning where the peak is a limit
that all arms reach."""
PEAK_NEVER = "<= 1.05"
"""Of `never`, where memory is what the case is about."""
POLL_S = 0.005
"""How exactly the guest knows when a task ended (POLL of lab/guest/src/bench/mod.rs)."""
HUGE_MIB = 2
"""A huge page: one more or less is chance."""
BATCH_MIB = 64 * 4 / 1024
"""What a cgroup is charged at a time (the kernel's MEMCG_CHARGE_BATCH, in pages of 4 KiB): by this much the memory of
equal cgroups may differ, on one processor."""

_KILLS = "nothing is killed"
_CUT = "because the clock of this machine stopped a run"


@dataclass(frozen=True)
class _Judged:
    """An arm in a world."""

    table: Table
    world: World
    arm: str

    @property
    def runs(self) -> list[Run]:
        return self.table.runs(self.world, self.arm)

    def ratio(self, metric: Metric, other: str, given: float = 0.0) -> float | None:
        """Of the medians, with as much `given` as chance may have made of it."""
        mine, its = self.median(metric), self.table.median(self.world, other, metric)
        return max(0.0, mine + given) / its if mine is not None and its else None

    def median(self, metric: Metric) -> float | None:
        return self.table.median(self.world, self.arm, metric)

    def gate(self, what: str, value: float | None, bound: str) -> Gate:
        who = self.world.key if self.arm == DEFAULT else f"{self.world.key}, {self.arm}"
        return gate(f"{who}: {what}", value, bound)


def check(table: Table, *, counted: bool) -> list[Gate]:
    """All gates whose arms were run. Without instruction-counted time (`counted`), and at sizes that mean nothing,
    only events are judged."""
    gates: list[Gate] = []
    for world in table.worlds:
        for arm in filter(None, (DEFAULT, world.case.made_for)):
            one = _Judged(table, world, arm)
            if not one.runs:
                continue
            found = _events(one)
            if counted:
                found += [*_speed(one), *_coverage(one), *_memory(one)]
            gates += [_unless_cut(one, judged) for judged in found]
    return gates + (_nobody_has_all(table) if counted else [])


def _unless_cut(one: _Judged, judged: Gate) -> Gate:
    """A gate, unless the clock of this machine stopped the arm: then nothing but kills can be held against it."""
    if not one.table.by_host(one.world, one.arm) or (judged.missed and judged.name.endswith(_KILLS)):
        return judged
    return unjudged(judged.name, judged.bound, _CUT)


def _events(one: _Judged) -> list[Gate]:
    # A world in which every static arm loses a process: there a policy may, too. Of those that were stopped before
    # their end nobody knows.
    static = [arm.key for arm in one.table.arms(one.world) if arm.static]
    if static and not any(one.table.whole(one.world, arm) for arm in static):
        return []
    # Who was OOM-killed is among the dead, too, if the suite knows it.
    kills = sum(max(run.oom_kills, len(run.died)) for run in one.runs)
    return [
        one.gate(_KILLS, kills, "== 0"),
        one.gate("runs stopped before their end", sum(run.bounded for run in one.runs), "== 0"),
    ]


def _speed(one: _Judged) -> list[Gate]:
    gates = []
    case = one.world.case
    for score in case.scores:
        found = one.table.regret(one.world, one.arm, score)
        if found is None:
            continue
        # Memory has its own gate below.
        if not (case.frugal and score.unit == "MiB"):
            gates.append(one.gate(f"{score.label} / best static ({found.best})", _rated(one, score, found), REGRET))
        if case.tail is not None and score is case.scores[0]:
            gates.append(one.gate(f"{case.tail.label} / {found.best}", one.ratio(case.tail, found.best), TAIL))
    return gates


def _rated(one: _Judged, score: Metric, found: Regret) -> float:
    """The regret, with the time that the guest may have seen the end too late given back."""
    mine = one.median(score)
    if score.unit != "s" or mine is None or mine <= POLL_S:
        return found.value
    return found.value * mine / (mine - POLL_S)


def coverage(table: Table, world: World) -> list[Gate]:
    """Those of huge coverage of the default policy: they hold no time, and so are worth something by themselves."""
    return _coverage(_Judged(table, world, DEFAULT))


def _coverage(one: _Judged) -> list[Gate]:
    if not one.world.case.roomy or not one.table.runs(one.world, "always"):
        return []
    peak = one.median(PEAK_ANON)
    given = HUGE_MIB / peak if peak else 0.0
    found = [
        one.gate(f"{metric.label} / always", one.ratio(metric, "always", given), COVERAGE)
        for metric in (COVER_64K, COVER_2M)
    ]
    cut = one.table.by_host(one.world, "always")
    return [unjudged(judged.name, judged.bound, _CUT) if cut else judged for judged in found]


def _memory(one: _Judged) -> list[Gate]:
    gates = []
    table, world = one.table, one.world
    # An arm that was killed or stopped did not have the memory to compare with.
    if table.whole(world, "always"):
        # With a limit the peak of the main cgroup is the limit; what several tenants need shows in the guest.
        peak = PEAK_ANON if world.case.tenants else PEAK
        gates.append(one.gate(f"{peak.label} / always", one.ratio(peak, "always"), PEAK_ALWAYS))
    if world.case.frugal and table.whole(world, "never"):
        for metric in (PEAK, *_resident(world)):
            gates.append(one.gate(f"{metric.label} / never", one.ratio(metric, "never", -BATCH_MIB), PEAK_NEVER))
    return gates


def _resident(world: World) -> list[Metric]:
    return [score for score in world.case.scores if score.unit == "MiB"]


def _nobody_has_all(table: Table) -> list[Gate]:
    """Where several tenants share a host, no static arm must reach the bound for all of them: else the suite does not
    show what a policy is for."""
    gates = []
    for world in (world for world in table.worlds if world.case.tenants):
        static = [
            key for key, arm in ARM.items() if arm.static and table.runs(world, key) and not table.by_host(world, key)
        ]
        if len(static) < 2:
            continue
        winners = [arm for arm in static if _all_reached(table, world, arm)]
        gates.append(gate(f"{world.key}: static arms that suit every tenant", len(winners), "== 0"))
    return gates


def _all_reached(table: Table, world: World, arm: str) -> bool:
    found = [table.regret(world, arm, score) for score in world.case.scores]
    return all(one is not None and gate("", one.value, REGRET).ok for one in found)
