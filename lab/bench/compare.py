# SPDX-License-Identifier: GPL-2.0-only
"""What the variants of the default policy say: each rule taken away, each constant varied."""

from collections.abc import Iterator, Sequence

from lab.bench.arms import DEFAULT, Arm
from lab.bench.common import COVER_2M, COVER_64K, FLIPS, KILLS, PEAK
from lab.bench.spec import Metric
from lab.bench.table import Table, World
from lab.bench.text import field, label
from lab.bench.variants import ABLATION, SWEEPS, SWEPT
from lab.bench.walks import PER_INSTRUCTION, PER_OPERATION, SERVERS, WALKS

NOTABLE, NOTABLE_WALKS, NOTABLE_TAIL = 0.02, 0.1, 0.1
"""A figure, walks, and a latency, that differ by less count as the same. Walks of three equal runs differed by 0.3 to
12 %, and once by 44 %."""
LEFT_OUT = (
    f"Differences of less than {NOTABLE:.0%} ({NOTABLE_TAIL:.0%} of a p99, {NOTABLE_WALKS:.0%} of walks) are left out, "
    "and where runs overlap."
)
"""For readers of the table."""


def _figures(table: Table, world: World) -> list[Metric]:
    walks = [PER_OPERATION, SERVERS, PER_INSTRUCTION] if table.tlb else []
    return list(dict.fromkeys([*world.case.judged, *walks, COVER_64K, COVER_2M, PEAK, KILLS, FLIPS]))


def _differs(table: Table, world: World, arm: Arm, metric: Metric) -> bool:
    mine, theirs = table.figure(world, DEFAULT, metric), table.figure(world, arm.key, metric)
    if mine is None or theirs is None:
        return mine is not theirs
    tail = NOTABLE_TAIL if metric == world.case.tail else NOTABLE
    bound = NOTABLE_WALKS if metric in WALKS else tail
    if abs(mine.median - theirs.median) <= bound * max(abs(mine.median), abs(theirs.median)):
        return False
    return mine.most < theirs.least or theirs.most < mine.least


def _worlds(table: Table, arm: Arm) -> list[World]:
    return [world for world in table.worlds if table.runs(world, arm.key) and table.runs(world, DEFAULT)]


def ablation(table: Table) -> list[list[str]]:
    """Rows of a table, its head first: what changes when a rule goes. Empty without such runs."""
    rows: list[list[str]] = []
    for rule, arm in ABLATION.items():
        worlds = _worlds(table, arm)
        if not worlds:
            continue
        # How often the policy changes its mind is no use to anybody by itself.
        found = [(world, metric) for world in worlds for metric in _figures(table, world)
                 if metric is not FLIPS and _differs(table, world, arm, metric)]  # fmt: skip
        for world, metric in found:
            shown = [field(table, world, key, metric) for key in (DEFAULT, arm.key)]
            rows.append([rule, world.key, label(metric), *shown])
        if not found:
            rows.append([rule, ", ".join(world.key for world in worlds), "nothing", "", ""])
    return [["rule", "case", "what changes", "with it", "without"], *rows] if rows else []


def ablated(table: Table) -> list[World]:
    """Where rules were taken away."""
    found = {world.key for arm in ABLATION.values() for world in _worlds(table, arm)}
    return [world for world in table.worlds if world.key in found]


def tlb_lines(table: Table, worlds: Sequence[World]) -> list[str]:
    """What the TLB is in these rows, for under a table with walks of them; with its rows where it is not the same in
    all. Empty without the model."""
    if table.tlb is None:
        return []
    keys: dict[str, list[str]] = {}
    for world in worlds:
        keys.setdefault(table.tlb.line(world.case), []).append(world.key)
    return list(keys) if len(keys) == 1 else [f"{', '.join(found)}: {line}" for line, found in keys.items()]


def sweeps(table: Table) -> Iterator[tuple[str, World, list[list[str]]]]:
    """(option, case, rows of a table, its head first) of each constant that was varied."""
    for option, sweep in SWEEPS.items():
        arms = SWEPT[option]
        for world in table.worlds:
            if not any(table.runs(world, arm.key) for arm in arms.values()) or not table.runs(world, DEFAULT):
                continue
            metrics = _figures(table, world)
            # In the order of the values, the default among them.
            order = sorted([*sweep.values, sweep.default], key=_size)
            rows = [[f"--{option}", *(label(metric) for metric in metrics)]]
            for value in order:
                key = DEFAULT if value == sweep.default else arms[value].key
                if table.runs(world, key):
                    name = f"**{value}**" if value == sweep.default else value
                    rows.append([name, *(field(table, world, key, metric) for metric in metrics)])
            yield option, world, rows


def _size(value: str) -> int:
    """To sort by; words come before numbers."""
    digits = value.rstrip("Mms")
    if not digits.isdigit():
        return -1
    return int(digits) * (1000 if value.endswith("s") and not value.endswith("ms") else 1)
