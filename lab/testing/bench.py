# SPDX-License-Identifier: GPL-2.0-only
"""Runs three cases of the benchmark suite: a Redis that is filled over its limit and one whose limit moves, at their
usual size, and the smallest of all. Judged by events, and by ratios that instruction-counted time makes repeat."""

import time

from lab import programs, results
from lab.bench import execute, gates, page, scenarios
from lab.bench.arms import ARM, DEFAULT, Arm
from lab.bench.cell import Cell
from lab.bench.plan import plan
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
    return [
        cell
        for name, (scale, arms, _) in _CASES.items()
        for cell in plan(scenarios.cases(scale, [name]), arms, ["classic"], 1)
    ]


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
    """Eight runs; `always` must be killed in its two."""
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
        for shown in table.worlds:
            _judge(suite, table, shown)
    document = page.render(table, judged, results.environment(kernel.release, str(Mode.ICOUNT), scale="smoke"))
    _check(suite, "the page shows every case", all(page.anchor(w) in document for w in table.worlds), "one is missing")
    _check(suite, "all cases were run", len(table.worlds) == len(_CASES), f"{[w.key for w in table.worlds]}")
    suite.seconds = time.monotonic() - begin
    suite.settle()
    return suite
