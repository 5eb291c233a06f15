# SPDX-License-Identifier: GPL-2.0-only
"""Runs the benchmark suite: every case at its smallest under the default policy, and three beside static arms, two of
them at their usual size. Judged by events, and by ratios that instruction-counted time makes repeat."""

import time

from lab import programs, results
from lab.bench import execute, gates, page, scenarios
from lab.bench.arms import ARM, DEFAULT, Arm
from lab.bench.cell import Cell
from lab.bench.plan import plan
from lab.bench.run import Run
from lab.bench.spec import Scale
from lab.bench.table import Table, World
from lab.kernel.build import Kernel
from lab.paths import BUILD
from lab.testing.result import Status, Suite, Test
from lab.vm import Mode

_ALL = [ARM["always"], ARM["never"], ARM[DEFAULT]]
_CASES: dict[str, tuple[Scale, list[Arm], str]] = {
    # Below the usual size a limit is a few huge pages, and ratios are a matter of luck.
    "redis/set-max": (Scale.CI, _ALL, ">= 0.98"),
    # One run each: what its waves meet differs by some percent.
    "square/high": (Scale.CI, _ALL[1:], ">= 0.95"),
    "bloat/sparse-max": (Scale.SMOKE, _ALL, ">= 0.9"),
}
"""Name -> scale, arms, bound of the score divided by that of `never`."""


def _cells() -> list[Cell]:
    compared = [
        cell
        for name, (scale, arms, _) in _CASES.items()
        for cell in plan(scenarios.cases(scale, [name]), arms, ["classic"], 1)
    ]
    others = [case for case in scenarios.cases(Scale.SMOKE) if case.name not in _CASES]
    return [*compared, *plan(others, [ARM[DEFAULT]], ["classic"], 1)]


def _must_live(suite: Suite, run: Run) -> None:
    name = f"{run.cell.case.name}: the default policy comes to its end"
    _check(suite, name, not (run.died or run.bounded or run.oom_kills), execute.fate(run))
    scores = [score.label for score in run.cell.case.scores if score.of(run) is None]
    _check(suite, f"{run.cell.case.name}: every score is measured", not scores, ", ".join(scores))


def _check(suite: Suite, name: str, ok: bool, detail: str) -> None:
    suite.tests.append(Test(name, Status.PASSED if ok else Status.FAILED, "" if ok else detail))


def _judge(suite: Suite, table: Table, world: World) -> None:
    score = world.case.scores[0]
    ratio = table.ratio(world, score, DEFAULT, "never")
    if score.better < 0 and ratio:
        ratio = 1 / ratio
    one = results.gate(f"{world.key}: {score.label} of {DEFAULT} / never", ratio, _CASES[world.case.name][2])
    _check(suite, f"gate: {one.name}", one.ok, f"{one.value} ({one.bound})")
    for run in table.runs(world, "always"):
        _check(
            suite, f"{world.key}: always is killed", run.oom_kills > 0, "it lived, though never does: nothing is shown"
        )
    if world.case.waves:
        flips = table.runs(world, DEFAULT)[0].flips(world.case.main)
        _check(suite, f"{world.key}: the policy follows the limit", flips >= 2, f"{flips} decisions")


def run(kernel: Kernel) -> Suite:
    """All cells; `always` must be killed in its two."""
    begin = time.monotonic()
    cells = _cells()
    suite = Suite("bench", logs=[BUILD / "vm" / cell.name / "console.log" for cell in cells])
    world = execute.World(kernel.image, Mode.ICOUNT, programs.mthp_ext(), programs.guest(), None)
    finished = execute.run_all(cells, world, 2)
    if finished.interrupted:
        raise KeyboardInterrupt
    for error in finished.errors:
        suite.fail("a cell", str(error))
    table = Table(finished.runs)
    judged = gates.check(table, counted=False)
    for one in judged:
        _check(suite, f"gate: {one.name}", one.ok, f"{one.value} ({one.bound})")
    if not finished.errors:
        for shown in (world for world in table.worlds if world.case.name in _CASES):
            _judge(suite, table, shown)
    for run in finished.runs:
        if run.cell.arm is ARM[DEFAULT] and run.cell.case.name not in _CASES:
            _must_live(suite, run)
    document = page.render(table, judged, results.environment(kernel.release, str(Mode.ICOUNT), scale="smoke and ci"))
    _check(suite, "the page shows every case", all(page.anchor(w) in document for w in table.worlds), "one is missing")
    _check(
        suite,
        "all cases were run",
        len(table.worlds) == len(scenarios.cases(Scale.SMOKE)),
        f"{[w.key for w in table.worlds]}",
    )
    suite.seconds = time.monotonic() - begin
    suite.settle()
    return suite
