# SPDX-License-Identifier: GPL-2.0-only
"""Which cells, and in which order."""

from collections.abc import Sequence

from lab.bench import judging
from lab.bench.arms import ARM, DEFAULT, ON_MADVISE, Arm
from lab.bench.cell import Cell
from lab.bench.spec import Case
from lab.bench.table import Table

_ON_HOSTS = (DEFAULT, ON_MADVISE)


def plan(cases: Sequence[Case], arms: Sequence[Arm], lrus: Sequence[str], repeats: int | None) -> list[Cell]:
    """All cells, so many runs of each or, with None, as many as lab/bench/judging.py has fixed. Every case runs once
    before any repeats, arms interleaved within a case, so that whatever drifts in the host meets all arms alike. What
    is bounded in time rather than in work runs once. Where the default policy is run, so is the policy that a case is
    made for."""
    return [
        Cell(case, arm, lru, repeat)
        for repeat in range(repeats or judging.RUNS_SWAPPING)
        for case in cases
        if repeat < (repeats or judging.runs(case))
        for lru in case.lrus
        if lru in lrus
        for arm in _with_its_own(case, arms)
        if arm.meant_for(case.name) and (arm.key in case.judges or arm.key not in _ON_HOSTS)
        if repeat == 0 or arm.key not in case.slow
    ]


def worth(cells: Sequence[Cell], first: Table) -> list[Cell]:
    """Those of `cells` that can decide something, by the `first` runs: without more runs of static arms that are far
    behind."""
    behind = {(row.case.name, row.lru, arm) for row in first.worlds for arm in first.behind(row)}
    return [
        cell
        for cell in cells
        if cell.repeat == 0 or cell.modelled or (cell.case.name, cell.lru, cell.arm.key) not in behind
    ]


def _with_its_own(case: Case, arms: Sequence[Arm]) -> list[Arm]:
    own = ARM[case.made_for] if case.made_for else None
    return [*arms, own] if own and ARM[DEFAULT] in arms and own not in arms else [*arms]
