# SPDX-License-Identifier: GPL-2.0-only
"""What the default policy must reach, in every case and under both LRU flavours; a preset in the case made for it."""

from lab.bench.arms import ARM
from lab.bench.common import COVER_2M, COVER_64K, PEAK
from lab.bench.spec import Metric
from lab.bench.table import Table, World
from lab.results import Gate, gate

REGRET = ">= 0.98"
TAIL = "<= 1.10"
COVERAGE = ">= 0.90"
PEAK_ALWAYS = "<= 1.01"
"""Of `always`; the hundredth is what samples of a moving figure differ by."""
PEAK_NEVER = "<= 1.05"
"""Of `never`, where memory is what the case is about."""
BATCH_MIB = 64 * 4 / 1024
"""What a cgroup is charged at a time (the kernel's MEMCG_CHARGE_BATCH, in pages of 4 KiB): by this much the memory of
equal cgroups may differ, on one processor."""


def check(table: Table, *, counted: bool) -> list[Gate]:
    """All gates whose arms were run. Without instruction-counted time (`counted`), and at sizes that mean nothing,
    only events are judged."""
    gates: list[Gate] = []
    for world in table.worlds:
        if not table.runs(world, world.case.gated):
            continue
        gates += _events(table, world)
        if counted:
            gates += [*_speed(table, world), *_coverage(table, world), *_memory(table, world)]
    return gates + (_nobody_has_all(table) if counted else [])


def _survivors(table: Table, world: World) -> list[str]:
    """Static arms that lose no process. Not those that were stopped before the end: who knows."""
    return [arm.key for arm in table.arms(world) if arm.static and table.whole(world, arm.key)]


def _events(table: Table, world: World) -> list[Gate]:
    if not _survivors(table, world):
        return []
    runs = table.runs(world, world.case.gated)
    kills = sum(run.oom_kills + len(run.died) for run in runs)
    return [
        gate(f"{world.key}: nothing is killed", kills, "== 0"),
        gate(f"{world.key}: runs stopped before their end", sum(run.bounded for run in runs), "== 0"),
    ]


def _speed(table: Table, world: World) -> list[Gate]:
    gates = []
    for score in world.case.scores:
        found = table.regret(world, world.case.gated, score)
        if found is None:
            continue
        # Memory has its own gate below.
        if not (world.case.frugal and score.unit == "MiB"):
            name = f"{world.key}: {score.label} / best static ({found.best})"
            gates.append(gate(name, found.value, REGRET))
        if world.case.tail is not None and score is world.case.scores[0]:
            ratio = table.ratio(world, world.case.tail, world.case.gated, found.best)
            gates.append(gate(f"{world.key}: {world.case.tail.label} / {found.best}", ratio, TAIL))
    return gates


def _coverage(table: Table, world: World) -> list[Gate]:
    if not world.case.roomy or not table.runs(world, "always"):
        return []
    gates = []
    for metric in (COVER_64K, COVER_2M):
        ratio = table.ratio(world, metric, world.case.gated, "always")
        gates.append(gate(f"{world.key}: {metric.label} / always", ratio, COVERAGE))
    return gates


def _memory(table: Table, world: World) -> list[Gate]:
    gates = []
    # An arm that was killed or stopped did not have the memory to compare with.
    if table.whole(world, "always"):
        ratio = table.ratio(world, PEAK, world.case.gated, "always")
        gates.append(gate(f"{world.key}: peak resident / always", ratio, PEAK_ALWAYS))
    if world.case.frugal and table.whole(world, "never"):
        for metric in (PEAK, *_resident(world)):
            mine, its = table.median(world, world.case.gated, metric), table.median(world, "never", metric)
            ratio = None if mine is None or not its else max(0.0, mine - BATCH_MIB) / its
            gates.append(gate(f"{world.key}: {metric.label} / never", ratio, PEAK_NEVER))
    return gates


def _resident(world: World) -> list[Metric]:
    return [score for score in world.case.scores if score.unit == "MiB"]


def _nobody_has_all(table: Table) -> list[Gate]:
    """Where several tenants share a host, no static arm must reach the bound for all of them: else the suite does not
    show what a policy is for."""
    gates = []
    for world in (world for world in table.worlds if len(world.case.scores) > 1):
        static = [arm.key for arm in ARM.values() if arm.static and table.runs(world, arm.key)]
        if len(static) < 2:
            continue
        winners = [arm for arm in static if _all_reached(table, world, arm)]
        gates.append(gate(f"{world.key}: static arms that suit every tenant", len(winners), "== 0"))
    return gates


def _all_reached(table: Table, world: World, arm: str) -> bool:
    found = [table.regret(world, arm, score) for score in world.case.scores]
    return all(one is not None and gate("", one.value, REGRET).ok for one in found)
