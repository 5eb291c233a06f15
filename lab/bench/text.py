# SPDX-License-Identifier: GPL-2.0-only
"""Tables in Markdown, which also read well on a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from lab.bench.arms import ARMS
from lab.bench.common import FLIPS
from lab.bench.execute import fates_of
from lab.bench.spec import Metric
from lab.bench.table import Table, World
from lab.report.parts import clock_note, grid, number

_NO_TLB = "TLB misses, so what large folios are for is not in any figure of speed; huge coverage stands in"
_NO_PRICE = "the time of a TLB miss: walks are counted in rows of their own, and no figure of speed has them"
_NOT_MODELLED = (
    "caches and memory bandwidth: zeroing or copying 2 MiB costs its instructions and nothing else",
    "a second processor: no lock is contended, reclaim by kswapd takes the time of everybody",
    "a swap device, but in swap/disk: zram compresses with the guest's own instructions, and nothing waits for a disk",
)
"""What emulation leaves out, for readers."""
_SMOKE = "Scale smoke: does it work at all. These figures mean nothing."
INCOMPLETE = "Not complete: some runs that were asked for are missing. Such a run cannot be published."
"""Printed on the terminal only."""


def not_modelled(environment: Mapping[str, Any]) -> Sequence[str]:
    """What the mode of these runs leaves out; nothing where it is not emulation."""
    if environment["qemu_mode"] == "kvm":
        return ()
    return (_NO_PRICE if environment.get("tlb") else _NO_TLB, *_NOT_MODELLED)


def clock_line(table: Table) -> str:
    """What a reader must know of runs that the clock of this machine stopped; empty without any."""
    cells = ((world, arm.key) for world in table.worlds for arm in table.arms(world))
    return clock_note([f"{world.key}, {arm}" for world, arm in cells if table.by_host(world, arm)])


def warnings(environment: Mapping[str, Any]) -> list[str]:
    """What a reader must know before the figures."""
    return [_SMOKE] if environment.get("scale") == "smoke" else []


def label(metric: Metric) -> str:
    """With its unit."""
    return metric.label if metric.unit in ("", "share") else f"{metric.label}, {metric.unit}"


def row_name(table: Table, world: World, score: Metric) -> str:
    """Of a line of the heat map."""
    name = world.key if any(other.lru != world.lru for other in table.worlds) else world.case.name
    return f"{name}: {score.label}" if len(world.case.scores) > 1 else name


ONCE = "(1): by one run, in which it was far behind"
"""Of a field of the heat map."""


def regret_field(table: Table, world: World, arm: str, score: Metric) -> str:
    """A field of the heat map: regret, or what became of the arm."""
    found, runs = table.regret(world, arm, score), table.runs(world, arm)
    if not runs:
        return "-"
    if table.by_host(world, arm):
        return "cut short"
    if found is None or (found.value == 0 and not table.values(world, arm, score)):
        killed = any(run.oom_kills for run in runs)
        return "killed" if killed else "failed" if found else "nothing to compare"
    once = " (1)" if len(runs) == 1 and arm in table.behind(world) else ""
    return f"{found.value:.3f}" + ("*" if found.best == arm else "") + once


def heat_map(table: Table) -> list[str]:
    """Regret by scenario and arm."""
    arms = [arm for arm in ARMS if any(table.runs(world, arm.key) for world in table.worlds)]
    rows = [["regret", *(arm.label for arm in arms)]]
    for world in table.worlds:
        for score in world.case.scores:
            fields = [regret_field(table, world, arm.key, score) for arm in arms]
            rows.append([row_name(table, world, score), *fields])
    return grid(rows)


def field(table: Table, world: World, arm: str, metric: Metric) -> str:
    """A field of a case's table."""
    found = table.figure(world, arm, metric)
    if metric is FLIPS and table.runs(world, arm)[0].cell.arm.static:
        return "-"
    if found is None and table.by_host(world, arm):
        return "cut short"
    if found is None:
        return next(iter(fates_of(table.runs(world, arm))), "not measured").split(" after")[0]
    interval = table.interval(world, arm, metric)
    shown = number(found.median, metric.unit)
    if interval is None or interval.low == interval.high:
        return shown
    return f"{shown} ({number(interval.low, metric.unit)} to {number(interval.high, metric.unit)})"


def case_table(table: Table, world: World) -> list[str]:
    """The lines of one case: a row for each arm, a column for each figure."""
    shown = table.metrics(world)
    rows = [[world.key, *(label(metric) for metric in shown), "runs"]]
    for arm in table.arms(world):
        fields = [field(table, world, arm.key, metric) for metric in shown]
        rows.append([arm.label, *fields, str(len(table.runs(world, arm.key)))])
    # Arms side by side, as in the proposal's tables.
    lines = grid([list(column) for column in zip(*rows, strict=True)])
    for arm in table.arms(world):
        lines += [f"  {arm.label}: {text}" for text in fates_of(table.runs(world, arm.key))]
    return lines + ([f"  {table.tlb.line(world.case)}"] if table.tlb else [])
