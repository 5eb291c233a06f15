# SPDX-License-Identifier: GPL-2.0-only
"""All runs by case, LRU flavour and arm; medians, intervals and regret."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lab.bench import judging
from lab.bench.arms import ARMS, Arm
from lab.bench.common import COMMON
from lab.bench.run import Run
from lab.bench.spec import Case, Metric
from lab.bench.walks import WALKS, Tlb
from lab.report.stats import Figure, Interval, figure, median_interval, pair_interval


def metrics(case: Case, walks: Sequence[Metric] = ()) -> list[Metric]:
    """All figures of a case, in the order of its table."""
    seen = {metric.key: metric for metric in (*case.judged, *walks, *case.more, *COMMON)}
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
    """The static arms that it is compared with."""


@dataclass(frozen=True)
class Baseline:
    """What an arm is compared with."""

    values: list[float]
    arms: tuple[str, ...]
    """The static arms that these are of."""

    @property
    def name(self) -> str:
        """For readers."""
        return ", ".join(self.arms)


def quotient(score: Metric, mine: float, theirs: float) -> float:
    """How good a value is by another: 1 is as good, more is better. What the suite cannot see apart is the same."""
    slack = judging.RESOLUTION.get(score.unit, 0.0)
    if math.isfinite(mine) and math.isfinite(theirs):
        mine = theirs if abs(mine - theirs) <= slack else mine - math.copysign(slack, mine - theirs)
    if mine == theirs:
        return 1.0
    above, below = (mine, theirs) if score.better > 0 else (theirs, mine)
    return above / below if below else math.inf


def _picked(rivals: Mapping[str, list[float]], choose: Callable[[int | None], str]) -> Baseline:
    """Of each repeat, the value of the arm that is chosen with that one left out; of a single one, by itself."""
    count = len(next(iter(rivals.values())))
    chosen = [choose(repeat if count > 1 else None) for repeat in range(count)]
    return Baseline([rivals[arm][repeat] for repeat, arm in enumerate(chosen)], tuple(dict.fromkeys(chosen)))


def _without(rivals: Mapping[str, list[float]], left: int | None) -> dict[str, list[float]]:
    return {arm: [one for n, one in enumerate(values) if n != left] for arm, values in rivals.items()}


def _best(rivals: Mapping[str, list[float]], score: Metric) -> str:
    """The first of equals, in the order of ARMS."""
    return max(rivals, key=lambda arm: figure(rivals[arm]).median * score.better)


class Table:
    """All runs of a report."""

    def __init__(self, runs: Sequence[Run], tlb: Tlb | None = None) -> None:
        self.all = list(runs)
        self.tlb = tlb
        """The TLB model of these runs, for readers."""
        self._cells: dict[tuple[str, str, str, bool], list[Run]] = {}
        self.worlds: list[World] = []
        for run in sorted(runs, key=lambda run: run.cell.repeat):
            cell = run.cell
            self._cells.setdefault((cell.case.name, cell.lru, cell.arm.key, cell.modelled), []).append(run)
        seen: set[tuple[str, str]] = set()
        for run in runs:
            place = (run.cell.case.name, run.cell.lru)
            if place not in seen:
                seen.add(place)
                self.worlds.append(World(run.cell.case, run.cell.lru))

    def metrics(self, world: World) -> list[Metric]:
        """All figures of a row, in the order of its table. Those of the TLB model only where some run has them."""
        walks = [one for one in WALKS if any(one.of(run) is not None for run in self._of(world))]
        return metrics(world.case, walks)

    def _of(self, world: World) -> list[Run]:
        return [run for run in self.all if (run.cell.case.name, run.cell.lru) == (world.case.name, world.lru)]

    def runs(self, world: World, arm: str) -> list[Run]:
        """The runs of one cell, in order: those whose figures are shown and judged."""
        return self._cells.get((world.case.name, world.lru, arm, False), [])

    def modelled(self, world: World, arm: str) -> list[Run]:
        """Those with the TLB model, for its walks alone."""
        return self._cells.get((world.case.name, world.lru, arm, True), [])

    def world(self, case: str, lru: str) -> World | None:
        """The row of a case under an LRU flavour; None if it was not run."""
        return next((one for one in self.worlds if (one.case.name, one.lru) == (case, lru)), None)

    def arms(self, world: World) -> list[Arm]:
        """The arms that were run."""
        return [arm for arm in ARMS if self.runs(world, arm.key)]

    def values(self, world: World, arm: str, metric: Metric) -> list[float]:
        """A metric of all runs of a cell; empty unless every one has it."""
        runs = self.modelled(world, arm) if metric in WALKS else self.runs(world, arm)
        found = [metric.of(run) for run in runs]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else []

    def scored(self, world: World, arm: str, score: Metric) -> list[float]:
        """As `values`, but a run that lost a process for lack of memory counts as the worst there is: of an arm that
        dies now and then the other runs are still something to be compared with."""
        worst = 0.0 if score.better > 0 else math.inf
        found = [(run, score.of(run)) for run in self.runs(world, arm)]
        known = [worst if value is None and run.oom_kills else value for run, value in found]
        return [value for value in known if value is not None] if None not in known else []

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

    def rivals(self, world: World, score: Metric) -> dict[str, list[float]]:
        """The static arms that others are compared with, and their values: those that ran as often as most. What the
        clock of this machine stopped is none of them: before a limit is met anything is fast."""
        found = {
            arm.key: values
            for arm in self.arms(world)
            if arm.static
            and not self.by_host(world, arm.key)
            and (values := self.scored(world, arm.key, score))
            and any(score.of(run) is not None for run in self.runs(world, arm.key))
        }
        most = max(map(len, found.values()), default=0)
        return {key: values for key, values in found.items() if len(values) == most}

    def behind(self, world: World) -> list[str]:
        """The static arms of which the first run says that they cannot be the best: see judging.BEHIND. None of those
        without a figure: they were killed, or stopped by the clock of this machine."""
        if not judging.even(world.case):
            return []
        firsts = {
            arm.key: runs[0]
            for arm in self.arms(world)
            if arm.static and (runs := self.runs(world, arm.key)) and not (runs[0].cell.repeat or runs[0].by_host)
        }
        near = {*judging.kept_up(world.case), *(arm for arm, run in firsts.items() if run.oom_kills)}
        for score in world.case.scores:
            rivals = {arm: value for arm in firsts if (value := self.median(world, arm, score)) is not None}
            best = max(rivals.values(), key=lambda value: value * score.better, default=0.0)
            for arm, run in firsts.items():
                value = score.of(run)
                if value is None or quotient(score, value, best) >= judging.BEHIND:
                    near.add(arm)
        return [arm for arm in firsts if arm not in near]

    def best_static(self, world: World, score: Metric) -> str | None:
        """The static arm with the best median; None if no static arm has one."""
        rivals = self.rivals(world, score)
        return _best(rivals, score) if rivals else None

    def baseline(self, world: World, score: Metric) -> Baseline | None:
        """Run by run, what the static arm did that is the best by all other runs: picked among many by the same runs
        that it is then judged by, the best is better than it is."""
        rivals = self.rivals(world, score)
        return _picked(rivals, lambda left: _best(_without(rivals, left), score)) if rivals else None

    def steady(self, world: World, score: Metric, tail: Metric) -> Baseline | None:
        """As `baseline`, for a latency: of the static arms whose score is within NEAR of the best one's, the one with
        the least latency, both by all other runs."""
        scores = self.rivals(world, score)
        tails = {arm: values for arm in scores if (values := self.scored(world, arm, tail))}
        scores = {arm: scores[arm] for arm in tails}
        if not scores:
            return None

        def choose(left: int | None) -> str:
            known, others = _without(scores, left), _without(tails, left)
            most = figure(known[_best(known, score)]).median
            near = {
                arm: others[arm] for arm in known if quotient(score, figure(known[arm]).median, most) >= judging.NEAR
            }
            return _best(near, tail)

        return _picked(tails, choose)

    def regret(self, world: World, arm: str, score: Metric) -> Regret | None:
        """Of one score; 0 for an arm that has none where a static arm has one; None if there is nothing to compare."""
        best, base = self.best_static(world, score), self.baseline(world, score)
        if best is None or base is None or not self.runs(world, arm):
            return None
        mine = self.values(world, arm, score)
        if not mine:
            return Regret(0.0, None, best)
        if arm == best:
            return Regret(1.0, None, best)
        pairs = [quotient(score, one, other) for one in mine for other in base.values]
        value = quotient(score, figure(mine).median, figure(base.values).median)
        return Regret(value, pair_interval(pairs, len(mine), len(base.values)), base.name)

    def ratio(self, world: World, metric: Metric, arm: str, base: str) -> float | None:
        """Median of `arm` divided by that of `base`, or None."""
        above, below = self.median(world, arm, metric), self.median(world, base, metric)
        return above / below if above is not None and below else None

    def whole(self, world: World, arm: str) -> bool:
        """Every run of the cell came to its end by itself and lost nothing."""
        runs = self.runs(world, arm)
        return bool(runs) and not any(run.oom_kills or run.bounded for run in runs)
