# SPDX-License-Identifier: GPL-2.0-only
"""What the default policy must reach in every case, under both LRU flavours; and a policy for one use in the case
made for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from lab.bench import judging
from lab.bench.arms import ARM, DEFAULT, ON_MADVISE
from lab.bench.common import COVER_2M, COVER_64K, PEAK, PEAK_ANON
from lab.bench.run import Run
from lab.bench.spec import Metric
from lab.bench.table import Regret, Table, World, metrics
from lab.report.stats import figure, ratio_by_bootstrap
from lab.results import Gate, gate, unjudged, within

PEAK_ALWAYS = "<= 1.01"
"""Of `always`, which has most; the hundredth is what the peaks of equal runs differ by."""
POLL_S = 0.005
"""How exactly the guest knows when a task ended (POLL of lab/guest/src/bench/mod.rs)."""
HUGE_MIB = 2
"""A huge page: one more or less is chance."""
BATCH_MIB = 64 * 4 / 1024
"""What a cgroup is charged at a time (the kernel's MEMCG_CHARGE_BATCH, in pages of 4 KiB): by this much the memory of
equal cgroups may differ, on one processor."""

SLACK_PAGES = 2048
"""Pages by which counts of what is swapped may differ without a meaning: four huge pages. With several processors no
two runs are alike."""

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
        mine, theirs = self.median(metric), self.table.base_values(self.world, other, metric)
        its = figure(theirs).median if theirs else 0.0
        return max(0.0, mine + given) / its if mine is not None and its else None

    def lacks(self, *others: str) -> str:
        """Why these runs cannot decide a ratio to other arms; empty if they can. Each arm of a row runs as often as
        was fixed before, all alike: whoever repeats what was missed, or one arm of it, chooses by the result."""
        case, wanted = self.world.case, judging.runs(self.world.case)
        counts = {arm.key: len(self.table.runs(self.world, arm.key)) for arm in self.table.arms(self.world)}
        counts = {arm: count for arm, count in counts.items() if arm not in case.slow}
        if len(set(counts.values())) > 1:
            return f"as its arms ran from {min(counts.values())} to {max(counts.values())} times"
        few = [counts[arm] for arm in (self.arm, *others) if counts.get(arm, wanted) < wanted]
        return f"{min(few)} of {wanted} runs" if few else ""

    def decided(self, what: str, value: float | None, bound: str, *others: str) -> Gate:
        """A gate on a ratio to other arms, left open where there are too few runs of one."""
        why = self.lacks(*others)
        judged = self.gate(what, value, bound)
        return unjudged(judged.name, bound, why) if why else judged

    def noisy(self, metric: Metric, other: str, bound: str) -> Gate:
        """A gate on a figure that equal runs differ in by as much as its bound allows: missed only if all of the
        ratio's interval is beyond it."""
        mine, theirs = (
            self.table.values(self.world, self.arm, metric),
            self.table.base_values(self.world, other, metric),
        )
        judged = self.decided(f"{metric.label} / {other}", self.ratio(metric, other), bound, other)
        interval = ratio_by_bootstrap(mine, theirs)
        if not judged.judged or interval is None:
            return judged
        shown = f"{judged.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"
        return replace(judged, value=shown, ok=within(interval.low, interval.high, bound))

    def median(self, metric: Metric) -> float | None:
        return self.table.median(self.world, self.arm, metric)

    def gate(self, what: str, value: float | None, bound: str) -> Gate:
        who = self.world.key if self.arm == DEFAULT else f"{self.world.key}, {self.arm}"
        return gate(f"{who}: {what}", value, bound)


def check(table: Table, *, counted: bool, sized: bool | None = None) -> list[Gate]:
    """All gates whose arms were run. Without instruction-counted time (`counted`) only events are judged, and cases of
    which all figures are counts if they are of a size that means something (`sized`, as `counted` if not given)."""
    gates: list[Gate] = []
    for world in table.worlds:
        figures = counted or (world.case.counts and bool(sized))
        for arm in filter(None, (DEFAULT, ON_MADVISE, world.case.made_for)):
            one = _Judged(table, world, arm)
            if not one.runs or not ARM[arm].meant_for(world.case.name):
                continue
            found = _events(one)
            if figures:
                found += [*_speed(one), *_floors(one), *_coverage(one), *_memory(one)]
            gates += [_unless_cut(one, judged) for judged in found]
    return gates + ([*_nobody_has_all(table), *_median(table)] if counted else [])


def counting(gates: Sequence[Gate]) -> list[Gate]:
    """Those that could have failed: only they are worth a total."""
    return [one for one in gates if one.counts]


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
    every = [run for arm in one.table.arms(one.world) for run in one.table.runs(one.world, arm.key)]
    return [
        _event(one.gate(_KILLS, _kills(one.runs), "== 0"), bool(_kills(every))),
        _event(
            one.gate("runs stopped before their end", sum(run.bounded for run in one.runs), "== 0"),
            any(run.bounded for run in every),
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
    case = one.world.case
    for score in case.scores:
        found = one.table.regret(one.world, one.arm, score)
        if found is None:
            continue
        # Memory has its own gate below.
        if not (case.frugal and score.unit == "MiB"):
            bound = judging.of_score(case, score)
            name = f"{score.label} / best static ({found.best})"
            gates.append(one.decided(name, _rated(one, score, found), bound, found.best))
        if score is case.scores[0]:
            if case.tail is not None:
                gates.append(one.noisy(case.tail, found.best, judging.of_tail(case, case.tail)))
            gates += [one.noisy(worst, found.best, judging.WORST) for worst in case.more if worst.key == "max"]
    return gates


def _floors(one: _Judged) -> list[Gate]:
    """What is judged beside the scores, against `never`."""
    known = {metric.key: metric for metric in metrics(one.world.case)}
    return [
        one.decided(f"{known[key].label} / never", one.ratio(known[key], "never"), bound, "never")
        for key, bound in judging.floors(one.world.case)
        if one.table.runs(one.world, "never")
    ]


def _rated(one: _Judged, score: Metric, found: Regret) -> float:
    """The regret, with the time that the guest may have seen the end too late given back."""
    mine = one.median(score)
    if score.unit == "pages" and mine is not None:
        theirs = figure(one.table.base_values(one.world, found.best, score)).median
        counted = max(mine - SLACK_PAGES, min(mine, theirs))
        return theirs / counted if counted else 1.0
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
        one.gate(f"{metric.label} / always", one.ratio(metric, "always", given), judging.COVERAGE)
        for metric in (COVER_64K, COVER_2M)
    ]
    if one.table.by_host(one.world, "always"):
        return [unjudged(judged.name, judged.bound, _CUT) for judged in found]
    # What dies early has all of its few pages in large folios.
    dead = not one.table.whole(one.world, "always")
    return [unjudged(judged.name, judged.bound, "as always did not live") if dead else judged for judged in found]


def _memory(one: _Judged) -> list[Gate]:
    gates = []
    table, world = one.table, one.world
    # An arm that was killed or stopped did not have the memory to compare with.
    if table.whole(world, "always"):
        # With a limit the peak of the main cgroup is the limit; what several tenants need shows in the guest.
        peak = PEAK_ANON if world.case.tenants else PEAK
        found = one.gate(f"{peak.label} / always", one.ratio(peak, "always"), PEAK_ALWAYS)
        # `always` has most by its nature, or all have what the limit allows.
        gates.append(found if found.missed else replace(found, counts=False))
    if world.case.frugal and table.whole(world, "never"):
        for metric in (PEAK, *_resident(world)):
            bound = judging.of_memory(world.case, metric)
            ratio = one.ratio(metric, "never", -BATCH_MIB)
            gates.append(one.decided(f"{metric.label} / never", ratio, bound, "never"))
    return gates


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
    """Of the default policy's regrets in all rows."""
    judged = [one for one in (_Judged(table, world, DEFAULT) for world in table.worlds) if one.runs]
    rows = [(one, score) for one in judged for score in one.world.case.scores]
    found = [one.table.regret(one.world, one.arm, score) for one, score in rows]
    values = [regret.value for regret in found if regret is not None]
    if len(values) < MEDIAN_ROWS:
        return []
    name = f"result / best static, median of {len(values)} rows"
    few = sum(bool(one.lacks()) for one in judged)
    if few:
        return [unjudged(name, judging.MEDIAN, f"as {few} cases have too few runs")]
    return [gate(name, median(values), judging.MEDIAN)]


def _all_reached(table: Table, world: World, arm: str) -> bool:
    found = [table.regret(world, arm, score) for score in world.case.scores]
    return all(one is not None and gate("", one.value, judging.SCORE).ok for one in found)
