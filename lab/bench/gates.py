# SPDX-License-Identifier: GPL-2.0-only
"""What the default policy must reach in every case, under both LRU flavours; and a policy for one use in the case
made for it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean, median

from lab.bench import judging
from lab.bench.arms import ARM, DEFAULT
from lab.bench.common import COVER_2M, COVER_64K, PEAK, PEAK_ANON
from lab.bench.run import Run
from lab.bench.scenarios.bloat import SURVIVED
from lab.bench.spec import Case, Metric
from lab.bench.table import Baseline, Table, World, metrics, quotient
from lab.report.stats import pair_interval
from lab.results import Gate, by_interval, gate, unjudged

HUGE_MIB = 2
"""A huge page: one more or less is chance."""
BATCH_MIB = 64 * 4 / 1024
"""What a cgroup is charged at a time (the kernel's MEMCG_CHARGE_BATCH, in pages of 4 KiB): by this much the memory of
equal cgroups may differ, on one processor."""

_KILLS = "nothing is killed"
_CUT = "because the clock of this machine stopped a run"


Divide = Callable[[float, float], float]
"""Of mine and theirs."""


@dataclass(frozen=True)
class _Judged:
    """An arm in a world."""

    table: Table
    world: World
    arm: str

    @property
    def runs(self) -> list[Run]:
        return self.table.runs(self.world, self.arm)

    def lacks(self, *others: str) -> str:
        """Why these runs cannot decide a ratio to other arms; empty if they can. All static arms are there, and each
        arm ran as often as was fixed before, no more and no less, unless it may run once."""
        case, wanted, behind = self.world.case, judging.runs(self.world.case), self.table.behind(self.world)
        counts = {arm: len(self.table.runs(self.world, arm)) for arm in judged_arms(case)}
        if missing := [arm for arm, count in counts.items() if not count]:
            return f"without {', '.join(missing)}"
        odd = {
            arm: count
            for arm, count in counts.items()
            if arm not in case.slow and count != wanted and not (arm in behind and count == 1)
        }
        if odd:
            arm, count = next(iter(odd.items()))
            return f"{arm} ran {count} times, not {wanted}"
        if once := [arm for arm in others if arm in case.slow or (arm in behind and counts.get(arm) == 1)]:
            return f"as {once[0]} ran once"
        if why := self.shines():
            return why
        return self.unbound()

    def shines(self) -> str:
        """Which arm that ran once did better than the best of the others; empty if none."""
        for score in self.world.case.scores:
            best = self.table.best_static(self.world, score)
            for arm in self.world.case.slow if best else ():
                seen, usual = (
                    self.table.scored(self.world, arm, score),
                    self.table.median(self.world, best or "", score),
                )
                if seen and usual is not None and arm != best and quotient(score, max(seen), usual) > 1:
                    return f"as {arm}, which ran once, did better than {best}"
        return ""

    def unbound(self) -> str:
        """Why the row does not show what it is there for; empty if it does."""
        for bind in judging.binds(self.world.case):
            seen = self.table.median(self.world, "never", bind.metric)
            if seen is None or not bind.least <= seen <= bind.most:
                found = "nothing known" if seen is None else f"{seen:.4g}"
                return f"as the row does not bind: {bind.metric.label} of never, {found}"
        return ""

    def compared(
        self, what: str, mine: Sequence[float], theirs: Sequence[float], bound: str, divide: Divide, *others: str
    ) -> Gate:
        """A gate on how two arms' values are to each other, judged by the interval that the runs give."""
        name = self.name(what)
        if why := self.lacks(*others):
            return unjudged(name, bound, why)
        pairs = [divide(one, other) for one in mine for other in theirs]
        interval = pair_interval(pairs, len(mine), len(theirs))
        if interval is None:
            return gate(name, None, bound)
        return by_interval(name, divide(median(mine), median(theirs)), interval.low, interval.high, bound)

    def ratio(self, metric: Metric, other: str, bound: str, given: float = 0.0) -> Gate:
        """A gate on a figure divided by that of another arm, with as much `given` as chance may have made of it."""
        mine, theirs = self.table.values(self.world, self.arm, metric), self.table.values(self.world, other, metric)
        return self.compared(
            f"{metric.label} / {other}", [max(0.0, one + given) for one in mine], theirs, bound, _plain, other
        )

    def median(self, metric: Metric) -> float | None:
        return self.table.median(self.world, self.arm, metric)

    def name(self, what: str) -> str:
        """Of a gate."""
        who = self.world.key if self.arm == DEFAULT else f"{self.world.key}, {self.arm}"
        return f"{who}: {what}"

    def gate(self, what: str, value: float | None, bound: str) -> Gate:
        """A gate on an event."""
        return gate(self.name(what), value, bound)


def _plain(mine: float, theirs: float) -> float:
    return mine / theirs if theirs else 1.0 if mine == 0 else math.inf


def judged_arms(case: Case) -> list[str]:
    """The arms that a row must have: the static ones that are meant for it, and the policy's."""
    return [arm for arm in (*judging.STATIC, *case.judges) if ARM[arm].meant_for(case.name)]


def check(table: Table, *, counted: bool, sized: bool | None = None) -> list[Gate]:
    """All gates whose arms were run. Without instruction-counted time (`counted`) only events are judged, and cases of
    which all figures are counts if they are of a size that means something (`sized`, as `counted` if not given)."""
    gates: list[Gate] = []
    for world in table.worlds:
        figures = counted or (world.case.counts and bool(sized))
        for arm in filter(None, (*world.case.judges, world.case.made_for)):
            one = _Judged(table, world, arm)
            if not one.runs or not ARM[arm].meant_for(world.case.name):
                continue
            found = _events(one)
            if figures:
                found += [*_speed(one), *_floors(one), *_coverage(one), *_memory(one)]
            gates += [_unless_cut(one, judged) for judged in found]
    return gates + ([*_nobody_has_all(table), *_median(table)] if counted else [])


def _unless_cut(one: _Judged, judged: Gate) -> Gate:
    """A gate, unless the clock of this machine stopped the arm: then nothing but kills can be held against it."""
    if not one.table.by_host(one.world, one.arm) or (judged.missed and judged.name.endswith(_KILLS)):
        return judged
    return unjudged(judged.name, judged.bound, _CUT)


def _events(one: _Judged) -> list[Gate]:
    # A world in which every static arm loses a process: there a policy may, too. Of those that were stopped before
    # their end nobody knows.
    # One run of an arm that is far behind says less of its life than those of the policy.
    behind = one.table.behind(one.world)
    static = [arm.key for arm in one.table.arms(one.world) if arm.static and arm.key not in behind]
    if static and not any(one.table.whole(one.world, arm) for arm in static):
        return []
    every = [run for arm in one.table.arms(one.world) for run in one.table.runs(one.world, arm.key)]
    # Slow arms are stopped by design, which is no merit of others.
    usual = [run for run in every if run.cell.arm.key not in one.world.case.slow]
    return [
        _event(one.gate(_KILLS, _kills(one.runs), "== 0"), bool(_kills(every))),
        _event(
            one.gate("runs stopped before their end", sum(run.bounded for run in one.runs), "== 0"),
            any(run.bounded for run in usual),
        ),
    ]


def _kills(runs: Sequence[Run]) -> int:
    # Who was OOM-killed is among the dead, too, if the suite knows it.
    return sum(max(run.oom_kills, len(run.died)) for run in runs)


def _event(judged: Gate, happens: bool) -> Gate:
    """What befalls no arm of a row is no merit of any."""
    return judged if judged.missed or happens else replace(judged, counts=False)


def _speed(one: _Judged) -> list[Gate]:
    gates = []
    case, table, world = one.world.case, one.table, one.world
    for score in case.scores:
        base = table.baseline(world, score)
        # That nothing is killed is judged as such, and memory has its own gates below.
        if base is None or score.key == SURVIVED.key or (case.frugal and score.unit == "MiB"):
            continue
        name = f"{score.label} / best static ({base.name})"
        gates.append(one.compared(name, *_sides(one, score, base), judging.of_score(case, score), _by(score)))
    first = case.scores[0]
    tails = [(case.tail, judging.of_tail(case, case.tail))] if case.tail else []
    for tail, bound in [*tails, *((worst, judging.WORST) for worst in case.more if worst.key == "max")]:
        if judging.of_never(case):
            gates.append(one.ratio(tail, "never", bound))
        elif base := table.steady(world, first, tail):
            values = table.values(world, one.arm, tail)
            name = f"{tail.label} / least static ({base.name})"
            gates.append(one.compared(name, values, base.values, bound, _plain))
    return gates


def _sides(one: _Judged, score: Metric, base: Baseline) -> tuple[list[float], list[float]]:
    # One killed run is enough to lose.
    dead = 0.0 if score.better > 0 else math.inf
    runs = one.table.runs(one.world, one.arm)
    return one.table.values(one.world, one.arm, score) or [dead] * len(runs), base.values


def _by(score: Metric) -> Divide:
    return lambda mine, theirs: quotient(score, mine, theirs)


def _floors(one: _Judged) -> list[Gate]:
    """What is judged beside the scores, against `never`."""
    known = {metric.key: metric for metric in metrics(one.world.case)}
    return [
        one.ratio(known[key], "never", bound)
        for key, bound in judging.floors(one.world.case)
        if one.table.runs(one.world, "never")
    ]


def coverage(table: Table, world: World) -> list[Gate]:
    """Those of huge coverage of the default policy, of runs that are too few for an interval: they hold no time, and so
    are worth something by themselves."""
    one = _Judged(table, world, DEFAULT)
    found = []
    for metric, mine, theirs in _covered(one, world):
        value = _plain(median(mine), median(theirs)) if mine and theirs else None
        found.append(one.gate(f"{metric.label} / always", value, judging.COVERAGE))
    return found


def _covered(one: _Judged, free: World) -> list[tuple[Metric, list[float], list[float]]]:
    """(figure, values, those of `always` in the row `free`), with a huge page given."""
    if not one.world.case.roomy or not one.table.runs(free, "always"):
        return []
    peak = one.median(PEAK_ANON)
    given = HUGE_MIB / peak if peak else 0.0
    return [
        (metric, [value + given for value in one.table.values(one.world, one.arm, metric)],
         one.table.values(free, "always", metric))
        for metric in (COVER_64K, COVER_2M)
    ]  # fmt: skip


def _coverage(one: _Judged) -> list[Gate]:
    table, world = one.table, one.world
    if not world.case.roomy:
        return []
    # What dies early has all of its few pages in large folios: where `always` may, another row's is the measure.
    free = table.world(world.case.free or world.case.name, world.lru)
    who = "always" if world.case.free is None else f"always in {world.case.free}"
    names = [f"{metric.label} / {who}" for metric in (COVER_64K, COVER_2M)]
    why = _CUT if free and table.by_host(free, "always") else "" if free else f"without {world.case.free}"
    if free and table.runs(free, "always") and not table.whole(free, "always"):
        why = why or "as always did not live"
    if why:
        return [unjudged(one.name(name), judging.COVERAGE, why) for name in names]
    found = _covered(one, free) if free else []
    return [
        one.compared(name, mine, theirs, judging.COVERAGE, _plain)
        for name, (_, mine, theirs) in zip(names, found, strict=False)
    ]


def _memory(one: _Judged) -> list[Gate]:
    table, world = one.table, one.world
    if not world.case.frugal or not table.whole(world, "never"):
        return []
    return [
        one.ratio(metric, "never", judging.of_memory(world.case, metric), -BATCH_MIB)
        for metric in (PEAK, *_resident(world))
    ]


def _resident(world: World) -> list[Metric]:
    return [score for score in world.case.scores if score.unit == "MiB"]


def _nobody_has_all(table: Table) -> list[Gate]:
    """Where several tenants share a host, no static arm must reach the bound for all of them: else the suite does not
    show what a policy is for."""
    gates = []
    for world in (world for world in table.worlds if world.case.tenants):
        # Who sets each tenant by itself suits all of them; the question is whether one setting of the host does.
        static = [
            key
            for key, arm in ARM.items()
            if arm.static and not arm.by_tenant and table.runs(world, key) and not table.by_host(world, key)
        ]
        if len(static) < 2:
            continue
        winners = [arm for arm in static if _all_reached(table, world, arm)]
        # About the suite rather than a policy.
        found = gate(f"{world.key}: static arms that suit every tenant", len(winners), "== 0")
        gates.append(found if found.missed else replace(found, counts=False))
    return gates


MEDIAN_ROWS = 20
"""Of fewer rows a median says nothing about the suite."""


def _median(table: Table) -> list[Gate]:
    """Of the default policy's regrets, one of each row: rates and times."""
    rows = [one for one in (_Judged(table, world, world.case.judges[0]) for world in table.worlds) if one.runs]
    values = [value for one in rows if (value := _of_row(one)) is not None]
    if len(values) < MEDIAN_ROWS:
        return []
    name = f"result / best static, median of {len(values)} rows"
    if few := sum(bool(one.lacks()) for one in rows if _of_row(one) is not None):
        return [unjudged(name, judging.MEDIAN, f"as {few} rows cannot be judged")]
    return [gate(name, median(values), judging.MEDIAN)]


def _of_row(one: _Judged) -> float | None:
    """Geometric mean of a row's scores; None if none of them is a rate or a time."""
    scores = [
        score for score in one.world.case.scores if score.unit not in ("MiB", "pages") and score.key != SURVIVED.key
    ]
    found = [one.table.regret(one.world, one.arm, score) for score in scores]
    values = [regret.value for regret in found if regret is not None]
    return geometric_mean(values) if values and all(values) else 0.0 if values else None


def _all_reached(table: Table, world: World, arm: str) -> bool:
    found = [table.regret(world, arm, score) for score in world.case.scores]
    return all(one is not None and gate("", one.value, judging.SCORE).ok for one in found)
