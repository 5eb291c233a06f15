# SPDX-License-Identifier: GPL-2.0-only
"""All runs by case, LRU flavour and arm; medians, intervals and regret."""

from collections.abc import Sequence
from dataclasses import dataclass

from lab.bench.arms import ARMS, Arm
from lab.bench.common import COMMON
from lab.bench.run import Run
from lab.bench.spec import Case, Metric
from lab.report.stats import Figure, Interval, figure, median_interval, ratio_interval


def metrics(case: Case) -> list[Metric]:
    """All figures of a case, in the order of its table."""
    seen = {metric.key: metric for metric in (*case.judged, *case.more, *COMMON)}
    return list(seen.values())


@dataclass(frozen=True)
class World:
    """A row of the heat map: a case under an LRU flavour."""

    case: Case
    lru: str

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.case.title}, {'MGLRU' if self.lru == 'mglru' else 'classic LRU'}"

    @property
    def key(self) -> str:
        """In results files."""
        return f"{self.case.name}/{self.lru}"


@dataclass(frozen=True)
class Regret:
    """A score divided by the best static arm's; 1 is as good, more is better."""

    value: float
    interval: Interval | None
    best: str
    """The static arm that it is compared with."""


_PLAIN = ("never", "madvise")


class Table:
    """All runs of a report."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.all = list(runs)
        self._cells: dict[tuple[str, str, str], list[Run]] = {}
        self.worlds: list[World] = []
        for run in sorted(runs, key=lambda run: run.cell.repeat):
            cell = run.cell
            self._cells.setdefault((cell.case.name, cell.lru, cell.arm.key), []).append(run)
        seen: set[tuple[str, str]] = set()
        for run in runs:
            place = (run.cell.case.name, run.cell.lru)
            if place not in seen:
                seen.add(place)
                self.worlds.append(World(run.cell.case, run.cell.lru))

    def runs(self, world: World, arm: str) -> list[Run]:
        """The runs of one cell, in order."""
        return self._cells.get((world.case.name, world.lru, arm), [])

    def arms(self, world: World) -> list[Arm]:
        """The arms that were run."""
        return [arm for arm in ARMS if self.runs(world, arm.key)]

    def values(self, world: World, arm: str, metric: Metric) -> list[float]:
        """A metric of all runs of a cell; empty unless every one has it."""
        found = [metric.of(run) for run in self.runs(world, arm)]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else []

    def base_values(self, world: World, arm: str, metric: Metric) -> list[float]:
        """A metric of all runs of an arm that others are compared with. Where no program asks for huge pages `never`
        and `madvise` are one setting under two names, and so are their runs."""
        if arm not in _PLAIN or world.case.advises:
            return self.values(world, arm, metric)
        found = [self.values(world, one, metric) for one in _PLAIN if self.runs(world, one)]
        return [value for values in found for value in values] if all(found) else []

    def figure(self, world: World, arm: str, metric: Metric) -> Figure | None:
        """Median and extremes, or None."""
        values = self.values(world, arm, metric)
        return figure(values) if values else None

    def median(self, world: World, arm: str, metric: Metric) -> float | None:
        """Median, or None."""
        found = self.figure(world, arm, metric)
        return found.median if found else None

    def interval(self, world: World, arm: str, metric: Metric) -> Interval | None:
        """Of the median, or None."""
        return median_interval(self.values(world, arm, metric))

    def by_host(self, world: World, arm: str) -> bool:
        """The clock of this machine stopped a run of the cell."""
        return any(run.by_host for run in self.runs(world, arm))

    def best_static(self, world: World, score: Metric) -> str | None:
        """The static arm with the best median; None if no static arm has one. What the clock of this machine stopped
        is not compared with: before a limit is met anything is fast."""
        known = [
            (figure(values).median * score.better, arm.key)
            for arm in self.arms(world)
            if arm.static
            and not self.by_host(world, arm.key)
            and (arm.key != "madvise" or world.case.advises or not self.runs(world, "never"))
            and (values := self.base_values(world, arm.key, score))
        ]
        # The first of equals, in the order of ARMS.
        return max(known, key=lambda pair: pair[0])[1] if known else None

    def regret(self, world: World, arm: str, score: Metric) -> Regret | None:
        """Of one score; 0 for an arm that has none where a static arm has one; None if there is nothing to compare."""
        best = self.best_static(world, score)
        if best is None or not self.runs(world, arm):
            return None
        mine, theirs = self.values(world, arm, score), self.base_values(world, best, score)
        if not mine:
            return Regret(0.0, None, best)
        above, below = (mine, theirs) if score.better > 0 else (theirs, mine)
        bottom = figure(below).median
        if bottom == 0:
            # Of counts that should be low: none is as good as any.
            return Regret(1.0, None, best) if figure(above).median == 0 or score.better < 0 else None
        interval = None if arm == best else ratio_interval(above, below)
        return Regret(figure(above).median / bottom, interval, best)

    def ratio(self, world: World, metric: Metric, arm: str, base: str) -> float | None:
        """Median of `arm` divided by that of `base`, or None."""
        above, below = self.median(world, arm, metric), self.median(world, base, metric)
        return above / below if above is not None and below else None

    def whole(self, world: World, arm: str) -> bool:
        """Every run of the cell came to its end by itself and lost nothing."""
        runs = self.runs(world, arm)
        return bool(runs) and not any(run.oom_kills or run.bounded for run in runs)
