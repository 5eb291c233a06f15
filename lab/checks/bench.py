# SPDX-License-Identifier: GPL-2.0-only
"""Runs the benchmark suite: its cases at their smallest under the default policy, and some beside static arms, most of
them at their usual size. Judged by events, by ratios that instruction-counted time makes repeat, and by how much of the
memory is in large folios."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from lab import programs, results
from lab.bench import execute, gates, page, scenarios
from lab.bench.arms import ARM, DEFAULT
from lab.bench.cell import Cell
from lab.bench.plan import plan
from lab.bench.run import Run
from lab.bench.spec import Case, Scale
from lab.bench.table import Table, World
from lab.checks.result import Suite
from lab.kernel.build import Kernel
from lab.paths import BUILD
from lab.vm import Mode
from lab.vm.schedule import Finished


@dataclass(frozen=True)
class _Compared:
    """A case that is run beside static arms."""

    scale: Scale
    arms: tuple[str, ...]
    bound: str
    """Of the default's score divided by that of `never`."""
    lru: str = "classic"


_CASES = {
    # Below the usual size a limit is a few huge pages, and ratios are a matter of luck.  One run each: nine were 1.01
    # with a standard deviation of 0.014, the least 0.975, which broke 0.98.  `make bench` has the median of five.
    "redis/set-max": (
        _Compared(Scale.CI, ("always", "never", DEFAULT), ">= 0.95"),
        _Compared(Scale.CI, ("never", DEFAULT), ">= 0.95", "mglru"),
    ),
    # One run each, and what its waves meet differs: 0.99 with a standard deviation of 0.018.
    "square/high": (_Compared(Scale.CI, ("never", DEFAULT), ">= 0.92"),),
    # More than `never` serves, or large folios were given up.
    "roomy/x2": (_Compared(Scale.CI, ("always", "never", DEFAULT), ">= 1.03"),),
    "bloat/sparse-max": (_Compared(Scale.SMOKE, ("always", "never", DEFAULT), ">= 0.9"),),
}
_KILLED = ("redis/set-max", "bloat/sparse-max")
"""Cases in which `always` is killed under the classic LRU."""
_ONLY_IN_BENCH = {
    "redis/set-none": "redis/set-max",
    "redis/set-high": "redis/set-max",
    "redis/bgsave-none": "redis/bgsave-max",
    "redis/bgsave-high": "redis/bgsave-max",
    "memcached/none": "memcached/max",
    "kernbench/none": "kernbench/high",
    "roomy/files": "roomy/x2",
    "bloat/sparse": "bloat/sparse-max",
    "tree/ancestor": "redis/set-max",
    "tree/neighbour": "hostpressure/redis",
    "swap/zswap": "swap/disk",
    "dense/x70": "dense/x95",
    "dense/x85": "dense/x95",
    "late/idle": "late/load",
    "advised/redis-high": "advised/arrays-high",
    "advised/arrays-fit": "advised/arrays-high",
    "underused/heaps": "underused/cache",
    "shapes/workers": "bloat/sparse-max",
    "shapes/mapped": "underused/cache",
    "cpus/x4": "cpus/x2",
    "cpus/x8": "cpus/x2",
    "cpus/threads": "memcached/max",
}
"""Case -> its twin that is run here: of the same parts, with another limit or in another number."""
_NOT_HERE = {
    "heap/node-high": "which files Node.js reads at its start depends on how it was packaged",
}
"""Case without a twin -> why it is run in `make bench` only."""


def _alone(cases: Sequence[Case]) -> list[Cell]:
    """Each under the default policy, on the host that the case is about."""
    return [cell for case in cases for cell in plan([case], [ARM[case.judges[0]]], ["classic"], 1)]


def _smallest() -> list[Case]:
    return [case for case in scenarios.cases(Scale.SMOKE) if case.name not in (*_ONLY_IN_BENCH, *_NOT_HERE)]


def _cells(only: Sequence[str]) -> list[Cell]:
    """All cells, or those of `only` some cases at their smallest, under the default policy."""
    if only:
        return _alone(scenarios.cases(Scale.SMOKE, list(only)))
    compared = [
        cell
        for name, worlds in _CASES.items()
        for one in worlds
        for cell in plan(scenarios.cases(one.scale, [name]), [ARM[arm] for arm in one.arms], [one.lru], 1)
    ]
    others = [case for case in _smallest() if case.name not in _CASES]
    return [*compared, *_alone(others)]


def _must_live(suite: Suite, run: Run) -> None:
    name = f"{run.cell.case.name}: the default policy comes to its end"
    suite.check(name, not (run.died or run.bounded or run.oom_kills), execute.fate(run))
    scores = [score.label for score in run.cell.case.scores if score.of(run) is None]
    suite.check(f"{run.cell.case.name}: every score is measured", not scores, ", ".join(scores))


def _judge(suite: Suite, table: Table, world: World) -> None:
    score = world.case.scores[0]
    ratio = table.ratio(world, score, DEFAULT, "never")
    if score.better < 0 and ratio:
        ratio = 1 / ratio
    bound = next(one.bound for one in _CASES[world.case.name] if one.lru == world.lru)
    one = results.gate(f"{world.key}: {score.label} of {DEFAULT} / never", ratio, bound)
    suite.gate(one, "gate: ")
    for run in table.runs(world, "always") if world.case.name in _KILLED else []:
        suite.check(
            f"{world.key}: always is killed", run.oom_kills > 0, "it lived, though never does: nothing is shown"
        )
    for one in gates.coverage(table, world):
        suite.gate(one, "gate: ")
    if world.case.waves:
        flips = table.runs(world, DEFAULT)[0].flips(world.case.main)
        suite.check(f"{world.key}: the policy follows the limit", flips >= 2, f"{flips} decisions")
        # Usually 0.77 with a standard deviation of 0.06; `always` serves a three-hundredth.
        under = next(score for score in world.case.scores if score.key == "rps_limited")
        one = results.gate(f"{world.key}: {under.label} / never", table.ratio(world, under, DEFAULT, "never"), ">= 0.4")
        suite.gate(one, "gate: ")


def _world(kernel: Kernel) -> execute.World:
    return execute.World(kernel.image, Mode.ICOUNT, programs.mthp_ext(), programs.guest(), None)


def parts(kernel: Kernel) -> list[Callable[[], list[Suite]]]:
    """All cells, each a part of a pool. The last one to end has the suite."""
    cells = _cells(())
    shared = execute.shared(cells, _world(kernel))
    begin = time.monotonic()

    def one(index: int) -> list[Suite]:
        finished = shared.run(index)
        return [_suite(kernel, cells, finished, (), begin)] if finished else []

    return [partial(one, index) for index in range(len(cells))]


def run(kernel: Kernel, only: Sequence[str]) -> Suite:
    """The cells of some cases, at their smallest."""
    begin = time.monotonic()
    cells = _cells(only)
    finished = execute.run_all(cells, _world(kernel), 2)
    if finished.interrupted:
        raise KeyboardInterrupt
    return _suite(kernel, cells, finished, only, begin)


def _suite(kernel: Kernel, cells: Sequence[Cell], finished: Finished[Run], only: Sequence[str], begin: float) -> Suite:
    """What came out, judged."""
    suite = Suite("bench", logs=[BUILD / "vm" / cell.name / "console.log" for cell in cells])
    for complaint in finished.complaints:
        suite.fail("a cell", complaint)
    table = Table(finished.runs)
    judged = gates.check(table, counted=False)
    for one in judged:
        suite.gate(one, "gate: ")
    compared = set() if only else set(_CASES)
    if not finished.errors:
        for shown in (world for world in table.worlds if world.case.name in compared):
            _judge(suite, table, shown)
    for run in finished.runs:
        if run.cell.arm.key == run.cell.case.judges[0] and run.cell.case.name not in compared:
            _must_live(suite, run)
    document = page.render(table, judged, results.environment(kernel.release, str(Mode.ICOUNT), scale="smoke and ci"))
    suite.check("the page shows every case", all(page.anchor(w) in document for w in table.worlds), "one is missing")
    suite.check(
        "all cases were run",
        {world.case.name for world in table.worlds} == (set(only) or {c.name for c in _smallest()}),
        f"{[w.key for w in table.worlds]}",
    )
    suite.seconds = time.monotonic() - begin
    suite.settle()
    return suite
